"""`scheduler`: what agents schedule, and that it opens no way round the gates."""

from typing import Any

import orjson
import pytest

from tests.behaviour.test_schedules import ADA, EVE, OTHER, Bell, SetClock, opened
from toolgate import Actor, App, Outcome
from toolgate.model import Call, SpendingLimit, new_id

pytestmark = pytest.mark.requirement("BUILTIN-4", "JOB-1")


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def task(tool: str, **arguments: Any) -> str:
    return orjson.dumps({"tool": tool, "arguments": arguments}).decode()


async def schedule(app: App, what: str, when: str = "@hourly", actor: Actor = ADA, **more: Any) -> Outcome:
    return await app.invoke("scheduler", {"task": what, "schedule": when, **more}, actor=actor)


async def added(app: App, what: str, when: str = "@hourly", actor: Actor = ADA, **more: Any) -> dict[str, Any]:
    outcome = await schedule(app, what, when, actor, **more)
    assert outcome.ok, outcome.error
    [one] = outcome.output["schedules"]
    assert isinstance(one, dict)
    return one


async def test_words_become_a_notification_at_their_time(clock: SetClock) -> None:
    async with opened(clock) as app:
        one = await added(app, "Feed the cat", "30 12 * * *")
        assert (one["state"], one["next_at"], one["task"]) == ("active", "2026-06-01T12:30+00:00", "Feed the cat")
        await app.jobs.run_all()
        assert await app.notifications.list(actor=ADA) == []
        clock.advance(minutes=30)
        await app.jobs.run_all()
        [told] = await app.notifications.list(actor=ADA)
        assert (told.message, told.user, told.persona) == ("Feed the cat", "ada", "analyst")
        assert await app.notifications.list(actor=EVE) == []


async def test_a_tool_is_called_at_its_time_in_the_zone_that_is_named(clock: SetClock) -> None:
    bell = Bell()
    async with opened(clock) as app:
        bell.hang_in(app)
        one = await added(app, task("ring", how="loud"), "0 9 * * *", timezone="America/New_York")
        assert (one["timezone"], one["next_at"]) == ("America/New_York", "2026-06-01T13:00+00:00")
        assert orjson.loads(one["task"]) == {"tool": "ring", "arguments": {"how": "loud"}}
        clock.advance(hours=1)
        await app.jobs.run_all()
    assert bell.rung == ["loud"]


async def test_list_and_remove_are_of_the_same_user_and_persona(clock: SetClock) -> None:
    bell = Bell()
    async with opened(clock) as app:
        bell.hang_in(app)
        one = await added(app, task("ring"))
        for stranger in (EVE, OTHER, Actor("acme", "other", "ada"), Actor("acme", None, "ada")):
            seen = await app.invoke("scheduler", {"operation": "list"}, actor=stranger)
            assert seen.output == {"schedules": []}
            refused = await app.invoke("scheduler", {"operation": "cancel", "id": one["id"]}, actor=stranger)
            assert refused.error is not None and refused.error.code == "INVALID_INPUT"
        seen = await app.invoke("scheduler", {"operation": "list"}, actor=ADA)
        assert seen.output == {"schedules": [one]}
        gone = await app.invoke("scheduler", {"operation": "cancel", "id": one["id"]}, actor=ADA)
        assert gone.output == {"schedules": [one]}
        clock.advance(hours=2)
        await app.jobs.run_all()
        assert bell.rung == []


async def test_each_firing_asks_a_person_and_adding_does_not_answer_for_them(clock: SetClock) -> None:
    bell = Bell()
    async with opened(clock) as app:
        bell.hang_in(app)
        await added(app, task("melt", how="all"))
        clock.advance(hours=1)
        await app.jobs.run_all()
        [job] = await app.jobs.list(actor=ADA)
        [waiting] = await app.approvals.list(actor=ADA)
        assert (job.state, bell.rung) == ("waiting", [])
        await app.approvals.answer(waiting.request.id, False, actor=EVE)
        await app.jobs.run_all()
        assert ((await app.jobs.get(job.id, actor=ADA)).state, bell.rung) == ("failed", [])


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"task": "x", "schedule": "0 0 31 2 *"}, "INVALID_INPUT", "never fires"),
        ({"task": "x", "schedule": "* * * * * *"}, "INVALID_INPUT", "no cron line"),
        ({"task": "x", "schedule": "@daily", "timezone": "Mars/X"}, "INVALID_INPUT", "no time zone"),
        ({"task": "x"}, "INVALID_INPUT", "needs schedule"),
        ({"schedule": "@daily"}, "INVALID_INPUT", "needs task"),
        ({"task": "  ", "schedule": "@daily"}, "INVALID_INPUT", "needs task"),
        ({"operation": "cancel"}, "INVALID_INPUT", "needs id"),
        ({"operation": "cancel", "id": "x"}, "INVALID_INPUT", "no schedule"),
        ({"operation": "drop"}, "VALIDATION_ERROR", "operation"),
        ({"task": "{", "schedule": "@daily"}, "INVALID_INPUT", "not JSON"),
        ({"task": '{"arguments": {}}', "schedule": "@daily"}, "INVALID_INPUT", "no tool"),
        ({"task": '{"tool": ["ring"]}', "schedule": "@daily"}, "INVALID_INPUT", "no tool"),
        ({"task": '{"tool": "ring", "arguments": [1]}', "schedule": "@daily"}, "INVALID_INPUT", "no tool"),
        ({"task": '{"tool": "ring", "actor": {"user": "eve"}}', "schedule": "@daily"}, "INVALID_INPUT", "no tool"),
        ({"task": '{"tool": "ring", "arguments": {"how": 1}}', "schedule": "@daily"}, "INVALID_INPUT", "how"),
        ({"task": '{"tool": "nothing"}', "schedule": "@daily"}, "TOOL_NOT_FOUND", "nothing"),
        ({"task": '{"tool": "hidden"}', "schedule": "@daily"}, "TOOL_NOT_FOUND", "hidden"),
        (
            {"task": task("scheduler", task="x", schedule="@daily"), "schedule": "@daily"},
            "INVALID_INPUT",
            "cannot add schedules",
        ),
        ({"task": task("read_file", path="/etc/shadow"), "schedule": "@daily"}, "SECURITY_VIOLATION", ""),
        ({"task": "x" * 30_000, "schedule": "@daily"}, "VALIDATION_ERROR", "task"),
        ({"task": "x" * 5_000, "schedule": "@daily"}, "INVALID_INPUT", "message"),
    ],
)
async def test_what_is_wrong_is_said_at_once(clock: SetClock, given: dict[str, Any], code: str, words: str) -> None:
    async with opened(clock, tools={"echo": {"enabled": False}}) as app:
        Bell().hang_in(app)
        outcome = await app.invoke("scheduler", given, actor=ADA)
        assert outcome.error is not None and outcome.error.code == code
        assert words in f"{outcome.error.message} {outcome.error.details} {outcome.error.suggestion}"
        assert await app.schedules.list(actor=ADA) == []


async def test_hidden_and_missing_tools_look_the_same(clock: SetClock) -> None:
    async with opened(clock, tools={"echo": {"enabled": False}}) as app:
        hidden, missing = await schedule(app, task("echo")), await schedule(app, task("ehco"))
        assert hidden.error is not None and missing.error is not None
        assert hidden.error.message.replace("echo", "ehco") == missing.error.message
        assert (hidden.error.code, hidden.error.suggestion) == (missing.error.code, missing.error.suggestion)


async def test_a_persona_that_may_not_call_a_tool_may_not_schedule_it(clock: SetClock) -> None:
    bell = Bell()
    async with opened(clock) as app:
        bell.hang_in(app)
        one = await added(app, task("ring"))
        await app.tools.disable("ring")
        refused = await schedule(app, task("ring"))
        assert refused.error is not None and refused.error.code == "TOOL_NOT_FOUND"
        clock.advance(hours=1)
        await app.jobs.run_all()
        [job] = await app.jobs.list(actor=ADA)
        assert (job.schedule, job.state, bell.rung) == (one["id"], "failed", [])


@pytest.mark.parametrize("held", [{"spending_limit": SpendingLimit(10**9)}, {"from_code": True}])
async def test_a_program_adds_none(clock: SetClock, held: dict[str, Any]) -> None:
    async with opened(clock) as app:
        outcome = await app.parts.pipeline(Call(new_id(), "scheduler", {"task": "x", "schedule": "@daily"}, ADA, **held))
        assert outcome.error is not None and "program cannot add schedules" in outcome.error.message
        assert await app.schedules.list(actor=ADA) == []


async def test_a_user_has_so_many_and_no_more(clock: SetClock) -> None:
    async with opened(clock, jobs={"schedules_per_user": 3, "schedule_seconds": 300}) as app:
        for _ in range(3):
            await added(app, "x", "@daily")
        outcome = await schedule(app, "x", "@daily")
        assert outcome.error is not None and outcome.error.code == "CAPACITY_EXCEEDED"
        outcome = await schedule(app, "x", "* * * * *", EVE)
        assert outcome.error is not None and "at most every 300 s" in outcome.error.message


@pytest.mark.parametrize(
    "how", ["{{secret:BELL_CODE}}", "{{ secret:BELL_CODE }}", "{{\n\tsecret:BELL_CODE}}", "a {{secret:BELL_CODE}} b"]
)
@pytest.mark.parametrize("is_escaped", [False, True])
async def test_a_task_refers_to_no_secret_however_it_is_written(
    clock: SetClock, monkeypatch: pytest.MonkeyPatch, how: str, is_escaped: bool
) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_BELL_CODE", "s3cret-of-the-bell")
    use = {"use": {"BELL_CODE": [{"tool": "ring", "tenant": "acme"}]}}
    bell = Bell()
    async with opened(clock, secrets=use) as app:
        bell.hang_in(app)
        direct = await app.invoke("ring", {"how": how}, actor=ADA)
        assert direct.ok and "s3cret-of-the-bell" in bell.rung.pop()
        text = task("ring", how=how)
        outcome = await schedule(app, text.replace("secret", "\\u0073ecret") if is_escaped else text)
        assert outcome.error is not None and "s3cret" not in str(outcome.to_dict())
        assert outcome.error.code == "INVALID_INPUT" or not is_escaped
        assert await app.schedules.list(actor=ADA) == []
        await app.schedules.add("@hourly", "ring", {"how": how}, actor=ADA)  # a person may
        clock.advance(hours=1)
        await app.jobs.run_all()
        assert "s3cret-of-the-bell" in bell.rung.pop()
        assert "s3cret" not in str([job.to_dict() for job in await app.jobs.list(actor=ADA)])

"""Calls that come over an event stream, through the governed pipeline, and their results."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.event_caller import KEY, SECRET, EventCaller, event_caller, signed
from tests.patience import until
from toolgate import Actor, App, InvokeContext, tool
from toolgate.app.event_stream import taking_events
from toolgate.errors import ToolgateError
from toolgate.settings.events import EventSettings

pytestmark = pytest.mark.requirement("JOB-3")

ran: list[Any] = []


@tool(tier="write")
async def note_down(ctx: InvokeContext, number: int, pause: float = 0.0) -> dict[str, Any]:
    """Notes a number, and who calls."""
    await asyncio.sleep(pause)
    ran.append(number)
    actor = ctx.call.actor
    return {"number": number, "tenant": actor.tenant, "persona": actor.persona, "user": actor.user, "door": ctx.call.door}


@tool(tier="execute")
async def launch(number: int) -> int:
    """Launches something, which a person is asked about."""
    ran.append(number)
    return number


@tool(tier="read_only")
async def repeat_text(text: str, times: int) -> str:
    """Repeats a text."""
    return text * times


@tool(tier="write", background=True)
async def grind(number: int) -> int:
    """Grinds in the background."""
    ran.append(number)
    return number


@pytest.fixture
def settings(stream_url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The settings of an App that takes calls from topics of the test's own."""
    monkeypatch.setenv("TOOLGATE_SERVER_SECRET_CRM_KEY", SECRET)
    ran.clear()
    name = f"t{uuid.uuid4().hex[:12]}"
    return {
        "url": stream_url,
        "requests": f"{name}.requests",
        "results": f"{name}.results",
        "group": name,
        "keys": {KEY: {"secret": "CRM_KEY", "tenants": ["acme"]}},
        "redeliver_seconds": 2,
        "partitions": 4,
        "message_bytes": 100_000,
    }


@contextlib.asynccontextmanager
async def serving(home: Path, settings: dict[str, Any], **more: Any) -> AsyncIterator[App]:
    async with App.open(home=home, events=settings, **{"limits": {"lease_seconds": 1}, **more}) as app:
        for one in (note_down, launch, repeat_text, grind):
            app.register(one)
        async with taking_events(app):
            yield app


@contextlib.asynccontextmanager
async def both(home: Path, settings: dict[str, Any], **more: Any) -> AsyncIterator[tuple[App, EventCaller]]:
    theirs = EventSettings.model_validate({**settings, "message_bytes": 900_000})
    async with event_caller(theirs) as caller, serving(home, settings, **more) as app:
        yield app, caller


async def test_a_signed_request_is_run_as_its_actor_and_answered(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with both(tmp_path, settings) as (app, caller):
        id = await caller.send("note_down", {"number": 7}, persona="analyst")
        outcome = await caller.result(id)
        assert outcome["status"] == "success"
        assert outcome["output"] == {
            "number": 7, "tenant": "acme", "persona": "analyst", "user": "u-1", "door": "events",
        }  # fmt: skip
        await app.flush()
        assert await app.audit.of_request(id, tenant="acme") == (outcome["id"],)
        assert ran == [7]


@pytest.mark.parametrize("stream_url", ["nats"], indirect=True)
async def test_a_service_can_listen_before_its_first_call(tmp_path: Path, settings: dict[str, Any]) -> None:
    import nats
    from nats.js.errors import NotFoundError

    async with contextlib.AsyncExitStack() as stack:
        client = await nats.connect(settings["url"])
        stack.push_async_callback(client.close)

        async def is_made(topic: str) -> bool:
            with contextlib.suppress(NotFoundError):
                return bool(await client.jetstream().find_stream_name_by_subject(topic))
            return False

        await stack.enter_async_context(serving(tmp_path, settings))
        for topic in (settings["results"], f"{settings['requests']}.rejected"):
            await until(partial(is_made, topic), f"there is a stream of {topic}")


async def test_the_same_message_again_is_answered_again_and_not_run_again(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with both(tmp_path, settings) as (_, caller):
        body = orjson.dumps(caller.request("note_down", {"number": 1}, id="order-1"))
        await caller.publish(body)
        first = await caller.result("order-1")
        await caller.publish(body)
        other = await caller.call("note_down", {"number": 2})
        assert other["status"] == first["status"] == "success"
        assert {orjson.dumps(one["outcome"]) for one in caller.results if one["id"] == "order-1"} == {orjson.dumps(first)}
        assert ran == [1, 2]


async def test_another_message_under_a_used_id_is_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with both(tmp_path, settings) as (_, caller):
        await caller.call("note_down", {"number": 1}, id="order-1")
        await caller.send("note_down", {"number": 2}, id="order-1")
        outcome = await caller.result("order-1", number=2)
        assert outcome["error"]["code"] == "IDEMPOTENCY_CONFLICT"
        assert ran == [1]


async def test_one_idempotency_key_has_one_effect_whatever_the_ids(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with both(tmp_path, settings) as (_, caller):
        first = await caller.call("note_down", {"number": 1}, idempotency_key="payment-9")
        second = await caller.call("note_down", {"number": 1}, idempotency_key="payment-9")
        assert first["output"] == second["output"]
        assert ran == [1]


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_after_its_deadline_nothing_is_run(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with both(tmp_path, settings) as (_, caller):
        late = await caller.call("note_down", {"number": 1}, deadline=time.time() - 1)
        assert (late["status"], late["error"]["code"]) == ("timeout", "TIMEOUT")
        far = await caller.call("note_down", {"number": 2}, deadline=time.time() + 10 * 86_400)
        assert far["error"]["code"] == "VALIDATION_ERROR"
        slow = await caller.call("note_down", {"number": 3, "pause": 30}, deadline=time.time() + 1)
        assert slow["error"]["code"] == "TIMEOUT"
        assert ran == []


async def test_what_was_done_in_time_is_told_after_the_deadline(tmp_path: Path, settings: dict[str, Any]) -> None:
    """The process died between the effect and the record of the message; when it comes again its deadline is over."""
    async with both(tmp_path, settings) as (app, caller):
        actor = Actor("acme", user="u-1")
        done = await app.invoke("note_down", {"number": 1}, actor=actor, idempotency_key="order-1", door="events")
        assert done.ok
        outcome = await caller.call("note_down", {"number": 1}, id="order-1", deadline=time.time() - 1)
        assert (outcome["status"], outcome["output"]["number"]) == ("success", 1)
        assert ran == [1]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"tool": "no_such_tool"}, "TOOL_NOT_FOUND"),
        ({"arguments": {"number": "seven"}}, "VALIDATION_ERROR"),
        ({"arguments": [1]}, "VALIDATION_ERROR"),
        ({"deadline": "tomorrow"}, "VALIDATION_ERROR"),
        ({"user": ""}, "VALIDATION_ERROR"),
        ({"user": "a\nb"}, "VALIDATION_ERROR"),
        ({"tennant": "acme"}, "VALIDATION_ERROR"),
        ({"tenant": "globex"}, "PERMISSION_DENIED"),
        ({"idempotency_key": "k" * 256}, "VALIDATION_ERROR"),
    ],
)
async def test_a_signed_request_that_cannot_be_run_is_answered(
    tmp_path: Path, settings: dict[str, Any], fields: dict[str, Any], code: str
) -> None:
    async with both(tmp_path, settings) as (_, caller):
        outcome = await caller.call(**{"tool": "note_down", "arguments": {"number": 1}, **fields})
        assert outcome["error"]["code"] == code
        assert ran == []
        assert not caller.rejected


async def test_what_is_not_signed_is_put_aside_and_never_run(tmp_path: Path, settings: dict[str, Any]) -> None:
    settings["keys"]["other"] = {"secret": "OTHER_KEY", "tenants": ["acme"]}  # its secret is not set
    async with both(tmp_path, settings) as (_, caller):
        body = orjson.dumps(caller.request("note_down", {"number": 1}))
        for header in (
            None,
            "",
            "v1 crm " + "0" * 64,
            signed(body, secret="x" * 40),
            signed(body, key="nobody"),
            signed(body, key="other", secret=""),
            signed(body, purpose="result"),
            signed(body + b" "),
            signed(body).upper(),
            "v1 crm",
            "\u00e9" * 500,
        ):
            await caller.publish(body, header)
        reasons = await caller.put_aside(11)
        assert "It has no signature." in reasons
        assert all(message.body == body for message in caller.rejected)
        assert (await caller.call("note_down", {"number": 2}))["status"] == "success"
        assert ran == [2]


async def test_what_cannot_be_read_is_put_aside(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with both(tmp_path, settings) as (_, caller):
        bodies = [b"", b"{", b"null", b"[]", b'{"tool": "note_down"}', b'{"id": "a b"}', b"\xff\xfe", b"[" * 90_000]
        for body in bodies:
            await caller.publish(body)
        assert all("It is not a request" in reason for reason in await caller.put_aside(len(bodies)))
        huge = orjson.dumps(caller.request("repeat_text", {"text": "x" * 200_000, "times": 1}))
        await caller.publish(huge)
        assert "more than the 100,000" in (await caller.put_aside(len(bodies) + 1))[-1]
        assert huge.startswith(caller.rejected[-1].body)
        assert (await caller.call("note_down", {"number": 2}))["status"] == "success"
        assert ran == [2]


async def test_keys_can_be_rotated(tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SERVER_SECRET_NEXT_KEY", "n" * 40)
    settings["keys"]["crm-2027"] = {"secret": "NEXT_KEY", "tenants": ["acme"]}
    async with serving(tmp_path, settings) as app:
        stream, came = app.parts.event_calls.stream(), asyncio.Queue[str]()

        async def note(delivery: Any) -> None:
            came.put_nowait(delivery.message.headers["toolgate-signature"].split()[1])

        following = await stream.follow(settings["results"], note)
        caller = EventCaller(stream, EventSettings.model_validate(settings))
        for header in ({}, {"key": "crm-2027", "secret": "n" * 40}):
            body = orjson.dumps(caller.request("note_down", {"number": 1}))
            await caller.publish(body, signed(body, **header))
        async with asyncio.timeout(30):
            assert sorted([await came.get(), await came.get()]) == ["crm", "crm-2027"]
        await following.stop(0)


async def test_a_session_keeps_its_order_over_two_processes(tmp_path: Path, settings: dict[str, Any]) -> None:
    """With Kafka in one process: librdkafka's mock refuses the second member of a group that aiokafka makes."""
    database = {"database_url": f"sqlite:///{tmp_path / 'shared.db'}"}
    async with both(tmp_path / "one", settings, **database) as (_, caller), contextlib.AsyncExitStack() as more:
        if settings["url"].startswith("nats"):
            await more.enter_async_context(serving(tmp_path / "two", settings, **database))
        ids = []
        for number in range(12):
            for session in range(3):
                fields = {"number": 100 * session + number, "pause": 0.02 if number % 2 else 0.0}
                ids.append(await caller.send("note_down", fields, session=f"s-{session}"))
        for id in ids:
            assert (await caller.result(id))["status"] == "success"
        for session in range(3):
            assert [one % 100 for one in ran if one // 100 == session] == list(range(12))


async def test_no_more_calls_run_at_once_than_the_setting_says(tmp_path: Path, settings: dict[str, Any]) -> None:
    running, most = 0, 0

    @tool(tier="read_only")
    async def busy() -> None:
        """Counts those that run beside it."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1

    async with both(tmp_path, {**settings, "concurrency": 2}) as (app, caller):
        app.register(busy)
        for id in [await caller.send("busy") for _ in range(10)]:
            assert (await caller.result(id))["status"] == "success"
        assert most == 2


async def test_a_call_that_waits_for_a_person_is_answered_twice(
    tmp_path: Path, settings: dict[str, Any], database: str
) -> None:
    async with both(tmp_path, settings, database_url=database) as (app, caller):
        yes, no = await caller.send("launch", {"number": 1}), await caller.send("launch", {"number": 2})
        for id, answer in ((yes, True), (no, False)):
            pending = (await caller.result(id))["pending"]
            assert pending["kind"] == "approval"
            await app.approvals.answer(pending["id"], answer, actor=Actor("acme", user="boss"))
        assert (await caller.result(yes, number=2))["output"] == 1
        assert (await caller.result(no, number=2))["error"]["code"] == "USER_CANCELLED"
        assert [one["final"] for one in caller.results if one["id"] == yes] == [False, True]
        assert ran == [1]


async def test_an_approval_after_the_deadline_runs_nothing(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with both(tmp_path, settings) as (app, caller):
        await caller.call("note_down", {"number": 0})  # when requests are taken, the time begins
        ran.clear()
        id = await caller.send("launch", {"number": 1}, deadline=time.time() + 1.5)
        pending = (await caller.result(id))["pending"]["id"]
        assert (await caller.result(id, number=2))["error"]["code"] == "TIMEOUT"
        boss = Actor("acme", user="boss")
        assert await app.approvals.list(actor=boss) == []
        assert await app.approvals.state(pending, "acme") == "expired"
        with pytest.raises(ToolgateError, match="it expired"):
            await app.approvals.answer(pending, True, actor=boss)
        assert not (await app.approvals.resume(pending, actor=boss)).ok
        assert ran == []


async def test_a_result_that_is_too_long_for_the_stream_is_said_to_be(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with both(tmp_path, settings, limits={"output_string": 10**6, "lease_seconds": 1}) as (_, caller):
        outcome = await caller.call("repeat_text", {"text": "abc ", "times": 30_000})
        assert outcome["error"]["code"] == "OUTPUT_INVALID"


async def test_a_call_that_runs_when_the_process_is_stopped_ends_and_is_answered(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async with event_caller(EventSettings.model_validate(settings)) as caller:
        async with serving(tmp_path, settings) as app:
            id = await caller.send("note_down", {"number": 1, "pause": 0.5})
            while not app.parts.running.count:
                await asyncio.sleep(0.01)
        assert (await caller.result(id))["status"] == "success"


async def test_a_call_that_runs_as_a_job_is_answered_when_the_job_is_over(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with both(tmp_path, settings) as (app, caller):
        id = await caller.send("grind", {"number": 5})
        assert (await caller.result(id))["pending"]["kind"] == "job"
        async with app.jobs.worker():
            assert (await caller.result(id, number=2))["output"] == 5
        assert ran == [5]


async def test_a_job_that_has_not_begun_at_the_deadline_is_cancelled(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with both(tmp_path, settings) as (app, caller):
        await caller.call("note_down", {"number": 0})
        id = await caller.send("grind", {"number": 5}, deadline=time.time() + 1.5)
        pending = (await caller.result(id))["pending"]
        assert (await caller.result(id, number=2))["error"]["code"] == "TIMEOUT"
        await app.jobs.run_all()
        assert (await app.jobs.get(pending["id"], actor=Actor("acme", user="u-1"))).state == "cancelled"
        assert ran == [0]


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_job_that_was_over_at_the_deadline_is_told_though_nobody_had_looked(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    """A process that takes requests was away between the end of the job and the deadline."""
    async with event_caller(EventSettings.model_validate(settings)) as caller:
        async with serving(tmp_path, settings):
            await caller.call("note_down", {"number": 0})
            id = await caller.send("grind", {"number": 5}, deadline=(deadline := time.time() + 2.5))
            assert (await caller.result(id))["pending"]["kind"] == "job"
        async with App.open(home=tmp_path) as worker:
            worker.register(grind)
            await worker.jobs.run_all()
        await asyncio.sleep(max(0.0, deadline - time.time()))  # the time itself is what is tested
        async with serving(tmp_path, settings):
            assert (await caller.result(id, number=2))["output"] == 5

"""Calls that a person must agree to: pending without an answer, and run by no yes but one to this very call."""

import asyncio
import itertools
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.asking import ADA, ASKING, BOSS, Workshop, approved, ask, let_pass, refused
from tests.secret_use import named
from toolgate import App, Hook, InvokeContext, tool
from toolgate.gates.approval.request import Answer, ApprovalError, ApprovalRequest
from toolgate.model import Actor
from toolgate.store import audit_log
from toolgate.store.approvals import MAX_WAITING_QUESTIONS
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TIER-6", "TIER-7")


# -- nobody to ask


@pytest.mark.requirement("TIER-2", "TIER-3", "TIER-4")
@pytest.mark.parametrize(("name", "arguments"), ASKING)
async def test_without_an_approver_a_call_that_must_be_asked_about_ends_pending(
    name: str, arguments: dict[str, Any]
) -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        outcome = await app.invoke(name, arguments)
        assert (outcome.status, outcome.output) == ("pending", None)
        assert outcome.error is not None
        assert outcome.error.code == "APPROVAL_REQUIRED"
        assert outcome.pending is not None
        assert "A person can answer until" in (outcome.error.suggestion or "")
        assert work.ran == []


SETTINGS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("tools", ({}, {"run": {"enabled": True}, "send": {"enabled": True}})),
    ("enforcement", ({}, {"enforced_tools": ["run", "send"]})),
    ("tier_overrides", ({}, {"run": "external_api", "send": "execute"}, {"run": "execute"})),
    ("sensitive_keys", ((), ("to", "task"))),
    ("approvals", ({}, {"expire_seconds": 0.001}, {"expire_seconds": 86_400})),
    ("budgets", ({}, {"external_api_daily": None})),
    ("commands", ({}, {"allow": ["ls", "rm"]})),
    ("max_execution_time", (60, 1)),
)


def _alone() -> list[dict[str, Any]]:
    return [{name: value} for name, values in SETTINGS for value in values]


def _in_pairs() -> list[dict[str, Any]]:
    """Every value of every setting together with every value of every other one."""
    found = []
    for (one, ones), (other, others) in itertools.combinations(SETTINGS, 2):
        found += [{one: first, other: second} for first, second in itertools.product(ones, others)]
    return found


@pytest.mark.requirement("TIER-3", "TIER-4")
@pytest.mark.parametrize(
    "combined", [_alone, pytest.param(_in_pairs, marks=pytest.mark.matrix("opens an App for each pair of settings"))]
)
async def test_no_configuration_makes_them_run_unasked(combined: Callable[[], list[dict[str, Any]]]) -> None:
    work = Workshop()
    for settings in combined():
        async with work.move_into(memory_app(**settings)) as app:
            for name, arguments in ASKING[:2]:
                outcome = await app.invoke(name, arguments)
                assert outcome.status == "pending", (settings, outcome)
    assert work.ran == []


async def test_the_same_call_asked_again_waits_for_the_same_approval() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        first = await ask(app, session="s")
        assert await ask(app, session="s") == first
        others = [
            await ask(app, arguments={"task": "ls -l"}, session="s"),
            await ask(app, session="t"),
            await ask(app, session="s", actor=Actor("acme", "analyst", "eve")),
            await ask(app, session="s", actor=Actor("globex", "analyst", "ada")),
        ]
        assert len({first, *others}) == 5
        assert [waiting.request.id for waiting in await app.parts.consent.questions.list("globex")] == [others[-1]]
        await app.parts.consent.questions.answer(first, Answer("reject"), BOSS, "cli")
        assert await ask(app, session="s") != first


# -- an approval


async def test_an_approval_runs_the_call_once() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await approved(app)
        outcome = await app.invoke("run", {"task": "ls"}, actor=ADA, approval=id)
        assert outcome.output == "ran ls"
        again = await app.invoke("run", {"task": "ls"}, actor=ADA, approval=id)
        refused(again, "PERMISSION_DENIED", f"was used already by call {outcome.id}")
        assert len(work.ran) == 1
        assert (await app.parts.consent.questions.show(id, "acme")).used_by == outcome.id


async def test_a_call_may_leave_the_arguments_to_the_approval() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await approved(app, arguments={"task": "ls", "times": 2})
        assert (await app.invoke("run", None, actor=ADA, approval=id)).output == "ran ls"
        assert work.ran == [{"task": "ls", "password": "", "times": 2}]


@pytest.mark.parametrize("arguments", [{"task": "rm"}, {"task": "ls", "times": 2}, {"task": "ls "}])
async def test_it_does_not_run_other_arguments(arguments: dict[str, Any]) -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await approved(app)
        refused(await app.invoke("run", arguments, actor=ADA, approval=id), "PERMISSION_DENIED", "other arguments")
        assert work.ran == []
        assert (await app.invoke("run", {"times": 1.0, "task": "ls"}, actor=ADA, approval=id)).ok, "the same arguments"


@pytest.mark.parametrize(
    ("actor", "words"),
    [
        (Actor("acme", "analyst", "eve"), "another actor"),
        (Actor("acme", "admin", "ada"), "another actor"),
        (Actor("acme", None, "ada"), "another actor"),
        (Actor("globex", "analyst", "ada"), "There is no approval"),
        (Actor(), "There is no approval"),
    ],
)
@pytest.mark.parametrize("arguments", [{"task": "ls"}, None])
async def test_it_does_not_run_for_another_actor(actor: Actor, words: str, arguments: Any) -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await approved(app)
        refused(await app.invoke("run", arguments, actor=actor, approval=id), "PERMISSION_DENIED", words)
        assert work.ran == []


async def test_it_does_not_run_another_tool() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await approved(app, "look", {"at": "x"})
        refused(await app.invoke("send", {"to": "x"}, actor=ADA, approval=id), "PERMISSION_DENIED", "is for look")
        assert work.ran == []


@pytest.mark.parametrize("state", ["waiting", "approved"])
async def test_it_does_not_run_after_its_time(state: str) -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await (ask(app) if state == "waiting" else approved(app))
        await let_pass(app, 3_601)
        refused(await app.invoke("run", {"task": "ls"}, actor=ADA, approval=id), "PERMISSION_DENIED", "expired at")
        assert (await app.parts.consent.questions.show(id, "acme")).state == "expired"
        assert [gone.request.id for gone in await app.parts.consent.questions.list("acme", "expired")] == [id]
        assert (
            await app.parts.consent.questions.list("acme", "waiting")
            == await app.parts.consent.questions.list("acme", "approved")
            == []
        )
        with pytest.raises(ApprovalError, match="no longer waits for an answer: it expired"):
            await app.parts.consent.questions.answer(id, Answer("approve"), BOSS, "cli")
        assert work.ran == []


async def test_a_clock_that_jumped_back_makes_no_approval_valid() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await approved(app)
        await let_pass(app, -3_000)
        refused(await app.invoke("run", {"task": "ls"}, actor=ADA, approval=id), "PERMISSION_DENIED", "clock has jumped")
        assert work.ran == []


async def test_it_does_not_run_a_tool_that_has_changed(tmp_path: Path) -> None:
    work = Workshop()
    async with work.move_into(App.open(home=tmp_path)) as app:
        id = await approved(app)

    @tool(name="run", tier="execute")
    async def other(task: str, password: str = "", times: int = 1) -> str:
        """Run a command, and something else."""
        raise AssertionError(task, password, times)

    async with App.open(home=tmp_path) as app:
        app.register(other)
        refused(await app.invoke("run", {"task": "ls"}, actor=ADA, approval=id), "PERMISSION_DENIED", "has changed since")


async def test_a_rejected_call_is_told_why_and_stays_rejected() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await ask(app)
        await app.parts.consent.questions.answer(id, Answer("reject", "not on a Friday"), BOSS, "console")
        for _ in range(2):
            outcome = await app.invoke("run", {"task": "ls"}, actor=ADA, approval=id)
            refused(outcome, "USER_CANCELLED", "rejected by boss", "not on a Friday")
        with pytest.raises(ApprovalError, match="it was rejected by boss"):
            await app.parts.consent.questions.answer(id, Answer("approve"), BOSS, "console")
        assert work.ran == []


async def test_one_that_waits_goes_on_waiting() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await ask(app)
        assert await ask(app, approval=id) == id
        assert work.ran == []


@pytest.mark.parametrize("id", ["", "ap_", "nonsense", "ap_\0", "ap_\ud800", "ap_" + "x" * 10_000, "ap_' OR 1=1 --"])
@pytest.mark.parametrize("arguments", [{"task": "ls"}, None])
async def test_an_id_that_does_not_exist_is_refused(id: str, arguments: Any) -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        await approved(app)
        refused(await app.invoke("run", arguments, actor=ADA, approval=id), "PERMISSION_DENIED", "There is no approval")
        for by in (BOSS, Actor("globex")):
            with pytest.raises(ApprovalError, match="There is no approval"):
                await app.parts.consent.questions.answer(id, Answer("approve"), by, "cli")
        assert work.ran == []


async def test_nobody_answers_for_another_tenant() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await ask(app)
        with pytest.raises(ApprovalError, match="There is no approval"):
            await app.parts.consent.questions.answer(id, Answer("approve"), Actor("globex", user="boss"), "cli")
        with pytest.raises(ApprovalError, match="There is no approval"):
            await app.parts.consent.questions.show(id, "globex")
        assert (await app.parts.consent.questions.show(id, "acme")).state == "waiting"


# -- shared, and across restarts


async def test_of_many_callers_with_one_approval_in_two_apps_one_runs(database: str, tmp_path: Path) -> None:
    works = Workshop(), Workshop()
    async with (
        works[0].move_into(App.open(database_url=database, home=tmp_path / "a")) as one,
        works[1].move_into(App.open(database_url=database, home=tmp_path / "b")) as two,
    ):
        id = await approved(one)
        calls = [app.invoke("run", {"task": "ls"}, actor=ADA, approval=id) for _ in range(10) for app in (one, two)]
        outcomes = await asyncio.gather(*calls)
        assert sorted(outcome.status for outcome in outcomes) == ["denied"] * 19 + ["success"]
        assert len(works[0].ran) + len(works[1].ran) == 1


async def test_a_pending_call_resumes_after_every_process_has_ended(database: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"database_url": database, "home": tmp_path}
    work = Workshop()
    async with work.move_into(App.open(**settings)) as app:
        id = await ask(app, session="s1", idempotency_key="k1")
    async with App.open(**settings) as app:  # it need not know the tool
        (waiting,) = await app.parts.consent.questions.list("acme")
        assert (waiting.request.id, waiting.request.arguments["task"]) == (id, "ls")
        await app.parts.consent.questions.answer(id, Answer("approve"), BOSS, "cli")
    async with work.move_into(App.open(**settings)) as app:
        outcome = await app.approvals.resume(id, actor=BOSS)
        assert outcome.output == "ran ls"
        again = await app.approvals.resume(id, actor=BOSS)
        assert again.output == "ran ls" or not again.ok, "the same answer by its key, or none"
    assert len(work.ran) == 1


async def test_of_two_processes_that_ask_one_question_the_one_that_loses_asks_anew(database: str, tmp_path: Path) -> None:
    works = Workshop(), Workshop()
    asked: list[str] = []
    both = asyncio.Event()

    async def agree(request: ApprovalRequest) -> bool:
        asked.append(request.id)
        if len(asked) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 30)
        return True

    async with (
        works[0].move_into(App.open(database_url=database, home=tmp_path / "a")) as one,
        works[1].move_into(App.open(database_url=database, home=tmp_path / "b")) as two,
    ):
        id = await ask(one)
        one.approvals.add_approver(agree)
        two.approvals.add_approver(agree)
        outcomes = await asyncio.gather(*(app.invoke("run", {"task": "ls"}, actor=ADA) for app in (one, two)))
        assert [outcome.status for outcome in outcomes] == ["success"] * 2
        assert asked[:2] == [id, id]
        assert len(asked) == 3 and asked[2] != id, "two calls, two questions"
        assert [approval.state for approval in await one.parts.consent.questions.list("acme", None)] == ["used"] * 2
        assert [len(work.ran) for work in works] == [1, 1]


async def test_who_loses_its_question_again_and_again_is_told(database: str, tmp_path: Path) -> None:
    """Whatever it asks, another process has it answered and uses it first."""
    works = Workshop(), Workshop()
    async with (
        works[0].move_into(App.open(database_url=database, home=tmp_path / "a")) as one,
        works[1].move_into(App.open(database_url=database, home=tmp_path / "b")) as two,
    ):

        async def too_late(request: ApprovalRequest) -> bool:
            await two.parts.consent.questions.answer(request.id, Answer("approve"), BOSS, "cli")
            assert (await two.invoke("run", {"task": "ls"}, actor=ADA, approval=request.id)).ok
            return True

        one.approvals.add_approver(too_late)
        refused(await one.invoke("run", {"task": "ls"}, actor=ADA), "PERMISSION_DENIED", "but used by call")
        assert [len(work.ran) for work in works] == [0, 2]


# -- many of them


@pytest.mark.requirement("TIER-6")
async def test_a_caller_gone_wild_does_not_fill_the_inbox(database: str, tmp_path: Path) -> None:
    work = Workshop()
    async with work.move_into(App.open(database_url=database, home=tmp_path)) as app:
        calls = (app.invoke("run", {"task": str(number)}, actor=ADA) for number in range(MAX_WAITING_QUESTIONS - 1))
        assert {outcome.status for outcome in await asyncio.gather(*calls)} == {"pending"}
        last = await ask(app)
        full = await app.invoke("run", {"task": "one more"}, actor=ADA)
        assert (full.status, full.pending) == ("failure", None)
        assert full.error is not None
        assert (full.error.code, full.error.retryable) == ("CAPACITY_EXCEEDED", True)
        assert f"{MAX_WAITING_QUESTIONS} questions of this user wait" in full.error.message
        assert "until a person has answered" in str(full.error.suggestion)
        assert await app.approvals.counts() == {"acme": MAX_WAITING_QUESTIONS}

        assert await ask(app) == last, "what waits can be asked again"
        for other in (Actor("acme", "analyst", "eve"), Actor("globex", "analyst", "ada")):
            assert await ask(app, actor=other), "others are not concerned"
        await app.parts.consent.questions.answer(last, Answer("reject"), BOSS, "cli")
        assert await ask(app, arguments={"task": "one more"}), "there is room again"
        await let_pass(app, 3_601)
        assert await ask(app, arguments={"task": "and another"}), "what has expired does not count"
        assert work.ran == []


async def test_questions_are_forgotten_long_after_their_end(database: str, tmp_path: Path) -> None:
    work, day = Workshop(), 86_400
    settings: dict[str, Any] = {"database_url": database, "home": tmp_path}
    async with work.move_into(App.open(**settings)) as app:
        used = await approved(app)
        assert (await app.invoke("run", {"task": "ls"}, actor=ADA, approval=used)).ok
        rejected = await ask(app, arguments={"task": "no"})
        await app.parts.consent.questions.answer(rejected, Answer("reject"), BOSS, "cli")
        old = {used, rejected, await approved(app, arguments={"task": "yes"}), await ask(app, arguments={"task": "?"})}
        await let_pass(app, 2 * day)
        later = await ask(app, arguments={"task": "later"})
        await let_pass(app, 89 * day)
    async with work.move_into(App.open(**settings)) as app:
        assert {approval.request.id for approval in await app.parts.consent.questions.list("acme", None)} == {*old, later}
        new = await ask(app, arguments={"task": "new"})
        assert {approval.request.id for approval in await app.parts.consent.questions.list("acme", None)} == {later, new}


# -- edits


async def test_an_edited_approval_runs_the_edited_arguments() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        for arguments in ({"task": "rm -rf x"}, None, {"task": "ls", "times": 2}):
            work.ran.clear()
            id = await ask(app, arguments={"task": "rm -rf x"})
            await app.parts.consent.questions.answer(
                id, Answer("edit", arguments={"task": "ls", "times": 2}), BOSS, "console"
            )
            outcome = await app.invoke("run", arguments, actor=ADA, approval=id)
            assert outcome.output == "ran ls"
            assert work.ran == [{"task": "ls", "password": "", "times": 2}]
            await app.flush()
            start = next(row for row in await app.parts.store.read(audit_log.of_call(outcome.id)) if row[2] == "start")
            assert b"rm -rf" not in str(start).encode(), "the log says what ran"


async def test_an_edit_that_does_not_fit_the_tool_changes_nothing() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await ask(app)
        for arguments in (
            {},
            {"task": 3},
            {"task": "ls", "more": 1},
            {"task": float("nan")},
            {"task": object()},
        ):
            with pytest.raises(ApprovalError, match="edited arguments"):
                await app.parts.consent.questions.answer(id, Answer("edit", arguments=arguments), BOSS, "console")
        assert (await app.parts.consent.questions.show(id, "acme")).state == "waiting"


async def test_a_masked_secret_survives_an_edit_of_what_stands_beside_it() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        given = {"task": "deploy", "password": "correct horse battery"}
        id = await ask(app, arguments=given)
        shown = (await app.parts.consent.questions.status(id, "acme")).request
        assert (shown.arguments["password"], shown.complete) == ("[REDACTED]", False)
        edited = {**shown.arguments, "task": "deploy --dry-run"}
        await app.parts.consent.questions.answer(id, Answer("edit", arguments=edited), BOSS, "console")
        without = await app.invoke("run", None, actor=ADA, approval=id)
        assert without.error is not None
        assert without.error.code == "VALIDATION_ERROR"
        refused(await app.invoke("run", edited, actor=ADA, approval=id), "PERMISSION_DENIED", "other arguments")
        assert (await app.invoke("run", given, actor=ADA, approval=id)).ok
        assert work.ran == [{"task": "deploy --dry-run", "password": "correct horse battery", "times": 1}]


async def test_secrets_are_not_typed_into_edits_nor_moved_about() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await ask(app, arguments={"task": "deploy", "password": "correct horse battery"})
        for edited, words in (
            ({"task": "x", "password": "hunter2 hunter2"}, "looks like a secret"),
            ({"task": "x [REDACTED]"}, "was shown masked"),
            ({"task": "[REDACTED]", "password": "[REDACTED]"}, "was shown masked"),
        ):
            with pytest.raises(ApprovalError, match=words):
                await app.parts.consent.questions.answer(id, Answer("edit", arguments=edited), BOSS, "console")
        named = {"task": "x", "password": "{{secret:DEPLOY}}"}
        await app.parts.consent.questions.answer(id, Answer("edit", arguments=named), BOSS, "console")
        assert (await app.parts.consent.questions.show(id, "acme")).edited == {**named, "times": 1}


# -- what is on record


@pytest.mark.requirement("TIER-5", "IO-4")
async def test_a_secret_argument_never_gets_into_the_database(tmp_path: Path) -> None:
    work = Workshop()
    secret = "correct horse battery staple"
    async with work.move_into(App.open(home=tmp_path)) as app:
        id = await ask(app, arguments={"task": "deploy", "password": secret})
        await app.parts.consent.questions.answer(id, Answer("approve"), BOSS, "cli")
        assert (await app.invoke("run", {"task": "deploy", "password": secret}, actor=ADA, approval=id)).ok
        await app.flush()
        for file in tmp_path.rglob("*"):
            if file.is_file():
                assert secret.encode() not in file.read_bytes(), file
    assert work.ran[0]["password"] == secret


async def test_the_log_tells_who_asked_who_answered_and_which_call_used_it() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await approved(app)
        outcome = await app.invoke("run", {"task": "ls"}, actor=ADA, approval=id)
        await app.flush()
        rows = await app.parts.store.read(audit_log.after(0))
        kinds = [row[2] for row in rows]
        assert kinds == ["approval.requested", "end", "approval.answered", "approval.used", "start", "end"]
        assert all(id in str(row[7]) for row in rows[:5])
        assert "approved by boss through console" in str(rows[4][7])
        assert rows[4][3] == outcome.id


async def test_a_call_that_is_refused_later_leaves_its_approval_to_be_used() -> None:
    work = Workshop()
    refusals = iter([True, False])

    class Refuses(Hook):
        def will_acquire_quota(self, ctx: InvokeContext) -> None:
            if next(refusals):
                ctx.retry_after(1000, "too early")

    async with work.move_into(memory_app()) as app:
        id = await approved(app)
        app.add_hook(Refuses())
        assert (await app.invoke("run", {"task": "ls"}, actor=ADA, approval=id)).status == "denied"
        assert (await app.parts.consent.questions.show(id, "acme")).state == "approved"
        assert (await app.invoke("run", {"task": "ls"}, actor=ADA, approval=id)).ok


# -- when the policy changes


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy file of our own, which says what the shipped one says."""
    file = tmp_path / "policy.rego"
    file.write_text((resources.files("toolgate.gates.policy") / "default.rego").read_text("utf-8"), encoding="utf-8")
    return file


def change(policy: Path) -> None:
    policy.write_text(policy.read_text(encoding="utf-8") + "\n# stricter from now on\n", encoding="utf-8")


async def test_it_does_not_run_after_the_policy_has_changed(tmp_path: Path, policy: Path) -> None:
    work = Workshop()
    settings: dict[str, Any] = {"home": tmp_path, "policy": {"file": policy}}
    async with work.move_into(App.open(**settings)) as app:
        id, waiting = await approved(app), await ask(app, "send", {"to": "bob"})
    async with work.move_into(App.open(**settings)) as app:
        another = await approved(app, "look", {"at": "x"})
        assert (await app.invoke("look", {"at": "x"}, actor=ADA, approval=another)).ok, "it is the same policy"
    change(policy)
    async with work.move_into(App.open(**settings)) as app:
        refused(await app.invoke("run", {"task": "ls"}, actor=ADA, approval=id), "PERMISSION_DENIED", "another policy")
        with pytest.raises(ApprovalError, match="The policy has changed"):
            await app.parts.consent.questions.answer(waiting, Answer("approve"), BOSS, "cli")
        assert await ask(app, "send", {"to": "bob"}) != waiting, "it is asked anew"
        await app.parts.consent.questions.answer(waiting, Answer("reject"), BOSS, "cli")
    assert work.ran == [{"at": "x"}]


# -- several processes

PROCESS = """
import asyncio, sys
from tests.behaviour.asking import ADA, Workshop
from toolgate import App

async def main(home, id):
    work = Workshop()
    async with work.move_into(App.open(home=home)) as app:
        sys.stdin.readline()
        await asyncio.gather(*(app.invoke("run", {"task": "ls"}, actor=ADA, approval=id) for _ in range(10)))
    print(len(work.ran))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.matrix("starts several processes")
async def test_of_many_callers_in_two_processes_one_runs(tmp_path: Path) -> None:
    async with Workshop().move_into(App.open(home=tmp_path)) as app:
        id = await approved(app)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(tmp_path), id],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    ends = await asyncio.gather(*(asyncio.to_thread(process.communicate, "go\n", 60) for process in started))
    assert sorted(out.strip() for out, _ in ends) == ["0", "1"]


# -- while a person thinks


@pytest.mark.parametrize("how", ["disabled", "denied", "denied to all"])
async def test_what_was_forbidden_while_a_person_thought_does_not_run_after_the_yes(how: str) -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:

        async def slow(_request: Any) -> bool:
            if how == "disabled":
                await app.tools.set_enabled("run", False, tenant="acme")
            elif how == "denied":
                await app.tools.set_enabled("run", False, persona="analyst")
            else:
                await app.policy.deny("run")
            return True

        app.approvals.add_approver(slow)
        outcome = await app.invoke("run", {"task": "ls"}, actor=ADA)
        assert (outcome.status, work.ran) == ("failure", [])
        [approval] = await app.approvals.list(state=None, actor=ADA)
        assert approval.state == "approved"  # it was not used


async def test_a_call_is_resumed_with_the_scopes_that_it_had() -> None:
    ran = []

    @tool(tier="execute", requires_permission="tool:launch")
    async def launch(rocket: str) -> str:
        """Launch a rocket."""
        ran.append(rocket)
        return rocket

    async with memory_app() as app:
        app.register(launch)
        pilot = Actor("acme", "pilot", "pia", ("tool:launch",))
        id = await ask(app, "launch", {"rocket": "a4"}, actor=pilot)
        await app.approvals.answer(id, True, actor=BOSS)
        assert (await app.approvals.resume(id, actor=BOSS)).ok
        assert ran == ["a4"]


@pytest.mark.requirement("IO-4")
async def test_the_name_of_a_secret_is_shown_to_the_person_and_its_value_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_DOOR", "correct horse battery")
    work = Workshop()
    async with work.move_into(memory_app(secrets=named("DOOR", "run"))) as app:
        id = await ask(app, "run", {"task": "ls", "password": "{{secret:DOOR}}"})
        [approval] = await app.approvals.list(actor=ADA)
        assert approval.request.complete
        assert approval.request.arguments["password"] == "{{secret:DOOR}}"
        await app.approvals.answer(id, True, actor=BOSS)
        assert (await app.approvals.resume(id, actor=BOSS)).ok
        assert work.ran[0]["password"] == "correct horse battery"


async def test_those_that_wait_are_counted_until_they_are_answered(database: str, tmp_path: Path) -> None:
    @tool(tier="external_api")
    async def pay(amount: int) -> int:
        """Pay somebody."""
        return amount

    eve = Actor("globex", user="eve")
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        app.register(pay)
        assert await app.approvals.waiting(None) == (0, None)
        asked = [(await app.invoke("pay", {"amount": at}, actor=actor)).pending for at, actor in enumerate((ADA, BOSS, eve))]
        ids = [one.id for one in asked if one is not None]
        first, *_ = await app.approvals.list(state=None, all_tenants=True)

        async def counted(tenant: str | None, user: str | None = None) -> int:
            return (await app.approvals.waiting(tenant, user=user)).number

        everybody = await app.approvals.waiting(None)
        assert (everybody.number, everybody.oldest) == (3, first.request.created_at)
        assert [await counted(ADA.tenant), await counted(ADA.tenant, ADA.user), await counted("globex")] == [2, 1, 1]
        assert [await counted("globex", ADA.user), await counted("nobody")] == [0, 0]
        await app.approvals.answer(ids[0], False, actor=BOSS)
        assert [await counted(ADA.tenant), await counted(ADA.tenant, ADA.user), await counted(None)] == [1, 0, 2]

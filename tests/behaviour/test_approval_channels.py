"""Approvers attached to an App: their answers count, their failures are no answers, and nobody else can approve."""

import asyncio
import threading
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviour.asking import ADA, ASKING, BOSS, Workshop, refused
from toolgate import App, Hook, InvokeContext, tool
from toolgate.gates.approval.request import Answer, ApprovalError, ApprovalRequest, Approver, GrantTerms
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TIER-6", "TIER-7")

SOON = 30.0


async def _says_yes(_request: ApprovalRequest) -> bool:
    return True


class Person:
    """Answers one question after the other; waits at each until told to go on."""

    def __init__(self, *answers: Answer | bool | None) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalRequest] = []
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def __call__(self, request: ApprovalRequest) -> Answer | bool | None:
        self.asked.append(request)
        self.is_asked.set()
        await self.may_answer.wait()
        return self.answers.pop(0)


# -- answers


YES: list[Approver] = [
    _says_yes,
    lambda _request: True,
    lambda _request: Answer("approve"),
    lambda request: _says_yes(request),
]


@pytest.mark.parametrize("approver", YES)
@pytest.mark.parametrize(("name", "arguments"), ASKING)
async def test_a_yes_runs_the_call(approver: Approver, name: str, arguments: dict[str, Any]) -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        app.approvals.add_approver(approver)
        assert (await app.invoke(name, arguments)).ok
        assert len(work.ran) == 1
        assert [used.state for used in await app.parts.consent.questions.list("default", None)] == ["used"]


async def test_one_yes_is_for_one_call() -> None:
    work = Workshop()
    asked: list[ApprovalRequest] = []

    def approver(request: ApprovalRequest) -> bool:
        asked.append(request)
        return len(asked) == 1

    async with work.move_into(memory_app()) as app:
        app.approvals.add_approver(approver)
        assert (await app.invoke("run", {"task": "ls"})).ok
        refused(await app.invoke("run", {"task": "ls"}), "USER_CANCELLED")
        assert len(asked) == 2
        assert asked[0].id != asked[1].id
        assert len(work.ran) == 1


async def test_a_no_ends_the_call_with_its_reason() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        app.approvals.add_approver(lambda _request: Answer("reject", "too\nrisky \u202e", by="ada", through="chat"))
        refused(await app.invoke("run", {"task": "ls"}), "USER_CANCELLED", "rejected by ada: too\\nrisky")
        (answered,) = await app.parts.consent.questions.list("default", "rejected")
        assert (answered.answered_by, answered.answered_through) == ("ada", "chat")
        assert work.ran == []


async def test_an_edit_runs_what_was_edited() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        app.approvals.add_approver(lambda request: Answer("edit", arguments={**request.arguments, "task": "ls -l"}))
        outcome = await app.invoke("run", {"task": "rm", "password": "correct horse battery"})
        assert outcome.output == "ran ls -l"
        assert work.ran == [{"task": "ls -l", "password": "correct horse battery", "times": 1}]


async def test_who_has_no_answer_passes_the_question_on() -> None:
    work = Workshop()
    first, second = Person(None), Person(True)
    first.may_answer.set()
    second.may_answer.set()
    async with work.move_into(memory_app()) as app:
        app.approvals.add_approver(first)
        app.approvals.add_approver(second)
        assert (await app.invoke("run", {"task": "ls"})).ok
        assert [request.id for request in first.asked] == [request.id for request in second.asked]


@pytest.mark.requirement("TIER-5")
async def test_the_question_says_what_it_is_about() -> None:
    work = Workshop()
    person = Person(False)
    person.may_answer.set()
    async with work.move_into(memory_app()) as app:
        app.approvals.add_approver(person)
        await app.invoke("send", {"to": "bob"}, actor=ADA, session="s1")
        await app.invoke("run", {"task": "ls", "password": "correct horse battery"}, actor=ADA)
    letter, command = person.asked
    assert (letter.tool, letter.description, letter.arguments) == ("send", "Send a letter.", {"to": "bob"})
    assert (letter.actor, letter.session, letter.tier, letter.door) == (ADA, "s1", "external_api", "python")
    assert (letter.estimate_usd, letter.complete, letter.destructive) == (0.1, True, False)
    assert (command.arguments["password"], command.complete) == ("correct horse battery", True)
    for shown in (
        "send 1.0.0",
        "Send a letter.",
        '"to": "bob"',
        "$0.10",
        "external_api asks for every call",
        "acme/analyst/ada",
    ):
        assert shown in letter.text()


# -- no answers


class Odd:
    """Nothing that anybody would take for an answer."""

    def __bool__(self) -> bool:
        return True


async def _raises(_request: ApprovalRequest) -> bool:
    raise RuntimeError("the chat is down")


async def _exits(_request: ApprovalRequest) -> bool:
    raise SystemExit(0)


async def _cancels(_request: ApprovalRequest) -> bool:
    raise asyncio.CancelledError


def _raises_plainly(_request: ApprovalRequest) -> bool:
    raise KeyboardInterrupt


def _junk(value: Any) -> Callable[[ApprovalRequest], Any]:
    return lambda _request: value


NO_ANSWERS: list[Callable[[ApprovalRequest], Any]] = [
    _raises,
    _exits,
    _cancels,
    _raises_plainly,
    *map(_junk, (None, 1, "approve", "yes", b"y", {"verdict": "approve"}, ["approve"], Odd(), Answer, 1.0)),
    lambda _request: Answer("maybe"),  # type: ignore[arg-type]
    lambda _request: Answer("edit"),
    lambda _request: Answer("edit", arguments={"task": 3}),
    lambda _request: Answer("edit", arguments={}),
    lambda _request: Answer("approve", grant=GrantTerms("session", 60)),  # the call has none
    lambda _request: Answer("approve", grant=GrantTerms("user", -1)),
]


@pytest.mark.parametrize("approver", NO_ANSWERS)
@pytest.mark.sample(4)
async def test_what_is_no_answer_leaves_the_call_pending(approver: Callable[[ApprovalRequest], Any]) -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        app.approvals.add_approver(approver)
        outcome = await asyncio.wait_for(app.invoke("run", {"task": "ls"}), SOON)
        assert outcome.status == "pending", outcome
        assert outcome.pending is not None
        assert work.ran == []
        assert (await app.parts.consent.questions.show(outcome.pending.id, "default")).state == "waiting"
        assert await app.parts.consent.grants.list("default") == []


@pytest.mark.parametrize("cap", ["1e999999", "1e-999999", "-1", "NaN", "1000000001", "0.0000000001"])
def test_a_grant_has_a_sum_that_can_be_counted(cap: str) -> None:
    with pytest.raises(ApprovalError):
        GrantTerms("user", 60, Decimal(cap))


@given(st.decimals(min_value="0.000000001", max_value=10**9, allow_nan=False, places=30) | st.just(Decimal(0)))
def test_a_grant_never_allows_more_than_was_agreed_to(cap: Decimal) -> None:
    counted = GrantTerms("user", 60, cap).cap
    assert counted is not None
    assert Fraction(counted) <= Fraction(cap) * 10**9 < counted + 1


async def test_a_destructive_call_is_not_approved_along_with_a_grant() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        app.approvals.add_approver(lambda _request: Answer("approve", grant=GrantTerms("user", 60)))
        assert (await app.invoke("delete_file", {"file": "x"})).status == "pending"
        assert work.ran == []


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_an_approver_that_never_answers_is_left_when_the_question_expires(blocking: bool) -> None:
    work = Workshop()
    release = threading.Event()

    async def hangs(_request: ApprovalRequest) -> bool:
        await asyncio.sleep(3_600)
        return True

    def blocks(_request: ApprovalRequest) -> bool:
        return release.wait(60)

    async with work.move_into(memory_app(approvals={"expire_seconds": 0.2})) as app:
        app.approvals.add_approver(blocks if blocking else hangs)
        outcome = await asyncio.wait_for(app.invoke("run", {"task": "ls"}), SOON)
        release.set()
        assert outcome.status == "pending"
        assert outcome.error is not None
        assert "expired" in (outcome.error.suggestion or "")
        assert work.ran == []


async def test_a_yes_after_the_end_is_too_late() -> None:
    work = Workshop()
    person = Person(True)
    async with work.move_into(memory_app(approvals={"expire_seconds": 0.05})) as app:
        app.approvals.add_approver(person)
        call = asyncio.ensure_future(app.invoke("run", {"task": "ls"}))
        await asyncio.wait_for(person.is_asked.wait(), SOON)
        while (await app.parts.consent.questions.show(person.asked[0].id, "default")).state == "waiting":
            await asyncio.sleep(0.01)
        person.may_answer.set()
        assert (await asyncio.wait_for(call, SOON)).status == "pending"
        assert work.ran == []


# -- more than one channel


@pytest.mark.parametrize("verdict", ["approve", "reject"])
async def test_an_answer_from_elsewhere_counts_while_somebody_is_being_asked(verdict: Any) -> None:
    work = Workshop()
    person = Person(False)
    async with work.move_into(memory_app()) as app:
        app.approvals.add_approver(person)
        call = asyncio.ensure_future(app.invoke("run", {"task": "ls"}, actor=ADA))
        await asyncio.wait_for(person.is_asked.wait(), SOON)
        await app.parts.consent.questions.answer(person.asked[0].id, Answer(verdict), BOSS, "console")
        outcome = await asyncio.wait_for(call, SOON)
        assert outcome.status == ("success" if verdict == "approve" else "denied")
        assert len(work.ran) == (verdict == "approve")


async def test_an_answer_from_another_process_is_noticed(tmp_path: Any) -> None:
    work = Workshop()
    person = Person(False)
    async with work.move_into(App.open(home=tmp_path)) as app, App.open(home=tmp_path) as other:
        app.approvals.add_approver(person)
        call = asyncio.ensure_future(app.invoke("run", {"task": "ls"}, actor=ADA))
        await asyncio.wait_for(person.is_asked.wait(), SOON)
        await other.parts.consent.questions.answer(person.asked[0].id, Answer("approve"), BOSS, "cli")
        assert (await asyncio.wait_for(call, SOON)).ok


async def test_two_equal_calls_at_once_are_two_questions() -> None:
    work = Workshop()
    person = Person(True, True)
    async with work.move_into(memory_app()) as app:
        app.approvals.add_approver(person)
        calls = [asyncio.ensure_future(app.invoke("run", {"task": "ls"})) for _ in range(2)]
        while len(person.asked) < 2:
            await asyncio.sleep(0.01)
        person.may_answer.set()
        assert all(outcome.ok for outcome in await asyncio.wait_for(asyncio.gather(*calls), SOON))
        assert len({request.id for request in person.asked}) == len(work.ran) == 2


async def test_a_caller_that_goes_away_leaves_a_question_that_can_be_answered() -> None:
    work = Workshop()
    person = Person(True)
    async with work.move_into(memory_app()) as app:
        app.approvals.add_approver(person)
        call = asyncio.ensure_future(app.invoke("run", {"task": "ls"}, actor=ADA))
        await asyncio.wait_for(person.is_asked.wait(), SOON)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(call, SOON)
        id = person.asked[0].id
        await app.parts.consent.questions.answer(id, Answer("approve"), BOSS, "cli")
        assert (await app.invoke("run", {"task": "ls"}, actor=ADA, approval=id)).ok
        assert len(work.ran) == 1


# -- those who may not


class Pushy(Hook):
    """Does all that a hook can do to a context."""

    def will_check_consent(self, ctx: InvokeContext) -> None:
        ctx.decision = ("approved",)
        ctx.data["approved"] = True
        ctx.bind("approval", True)

    will_authorize = will_check_feature_flags = will_normalize_input = will_check_consent


async def test_a_hook_can_not_approve() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        app.add_hook(Pushy())
        for name, arguments in ASKING:
            assert (await app.invoke(name, arguments)).status == "pending"
        assert work.ran == []


class Sly(Hook):
    """Changes the arguments behind everybody's back."""

    def will_check_consent(self, ctx: InvokeContext) -> None:
        ctx.input["task"] = "something harmless"


@pytest.mark.parametrize("password", ["", "correct horse battery"])
async def test_what_a_person_is_shown_is_what_runs_whatever_a_hook_does(password: str) -> None:
    work = Workshop()
    shown: list[Any] = []
    async with work.move_into(memory_app()) as app:
        app.add_hook(Sly())
        app.approvals.add_approver(lambda request: shown.append(request.arguments["task"]) or True)  # type: ignore[func-returns-value]
        await app.invoke("run", {"task": "rm", "password": password})
    assert [done["task"] for done in work.ran] == shown


async def test_a_tool_that_was_approved_does_not_approve_what_it_calls() -> None:
    work = Workshop()

    @tool(tier="execute")
    async def outer(ctx: InvokeContext) -> str:
        """Call another tool."""
        return (await ctx.call_tool("run", {"task": "rm"})).status

    async with work.move_into(memory_app()) as app:
        app.register(outer)
        app.approvals.add_approver(lambda request: True if request.tool == "outer" else None)
        assert (await app.invoke("outer")).status == "pending"
        assert work.ran == []

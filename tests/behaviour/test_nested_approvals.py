"""A call inside a call that must be asked about: the outer call waits, and goes on after the answer without repeating what
was done. Through Python, with a restart between, on both databases."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.nesting import LIMITED, Bench, approve, left, reject, waits
from toolgate import Actor, App, Hook, InvokeContext, tool
from toolgate.gates.approval.request import Answer, ApprovalRequest, GrantTerms
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TIER-9")
STEPS = [["note", "one"], ["risky", "two"], ["note", "three"]]
ALL = ["noted one", "did two", "noted three"]
ONCE = {"note one": 1, "risky two": 1, "note three": 1}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "did.txt")


@pytest.fixture
def opened(database: str, tmp_path: Path, bench: Bench) -> Iterator[Any]:
    def open_app(**settings: Any) -> App:
        app = App.open(None, database_url=database, home=tmp_path / "home", entry_points=False, **settings)
        return bench.move_into(app)

    yield open_app


async def test_the_outer_call_waits_with_the_inner_question_and_goes_on_after_a_restart(opened: Any, bench: Bench) -> None:
    async with opened() as app:
        outcome = await app.invoke("follow", {"steps": STEPS}, actor=LIMITED)
        id = waits(outcome)
        assert outcome.error is not None and "risky" in outcome.error.message and "follow" in outcome.error.message
        assert bench.effects == {"note one": 1}
        [asked] = await app.approvals.list(actor=LIMITED)
        assert (asked.request.id, asked.request.tool, asked.request.outer_tool) == (id, "risky", "follow")
        assert asked.request.outer_call == outcome.id
        assert f"asked by follow (call {outcome.id})" in asked.request.text()
        again = await app.invoke("follow", {"steps": STEPS}, actor=LIMITED, approval=id)
        assert waits(again) == id
        assert bench.did == ["follow", "note one"]  # nothing is run while nobody has answered
    async with opened() as app:
        await approve(app, id)
        done = await app.invoke("follow", {"steps": STEPS}, actor=LIMITED, approval=id)
        assert (done.status, done.output) == ("success", ALL), done
        assert bench.effects == ONCE
        assert await left(app) == 0
        spent = await app.invoke("follow", {"steps": STEPS}, actor=LIMITED, approval=id)
        assert spent.status == "denied" and bench.effects == ONCE


async def test_the_outer_call_is_not_asked_about_again(opened: Any, bench: Bench) -> None:
    async with opened() as app:
        first = waits(await app.invoke("guarded", {"steps": STEPS}, actor=LIMITED))
        await approve(app, first)
        second = waits(await app.invoke("guarded", {"steps": STEPS}, actor=LIMITED, approval=first))
        assert second != first and bench.effects == {"note one": 1}
    async with opened() as app:
        assert waits(await app.invoke("guarded", {"steps": STEPS}, actor=LIMITED)) == second, "the same call again"
        await approve(app, second)
        done = await app.invoke("guarded", {"steps": STEPS}, actor=LIMITED)
        assert done.output == ALL and bench.effects == ONCE
        assert len(await app.approvals.list(state=None, actor=LIMITED)) == 2
        assert waits(await app.invoke("guarded", {"steps": STEPS}, actor=LIMITED)) not in (first, second), "a new call"


async def test_a_grant_that_does_not_count_leaves_the_question_as_it_is(opened: Any) -> None:
    """With its votes: it is not asked anew each time that the outer call is made again."""
    boss, eve = Actor(LIMITED.tenant, user="boss"), Actor(LIMITED.tenant, user="eve")
    async with opened() as app:
        await app.grants.create("risky", GrantTerms("tenant", 60), actor=LIMITED, by=boss)
    async with opened(approvals={"rules": [{"tool": "risky", "quorum": 2}]}) as app:
        id = waits(await app.invoke("follow", {"steps": STEPS}, actor=LIMITED))
        await app.approvals.answer(id, True, actor=boss)
        assert waits(await app.invoke("follow", {"steps": STEPS}, actor=LIMITED)) == id
        await app.approvals.answer(id, True, actor=eve)
        assert (await app.invoke("follow", {"steps": STEPS}, actor=LIMITED)).output == ALL


async def test_several_questions_come_one_after_the_other(opened: Any, bench: Bench) -> None:
    steps = [["risky", "a"], ["note", "b"], ["risky", "a"], ["risky", "c"]]
    ids: list[str] = []
    for _ in range(3):
        async with opened() as app:
            outcome = await app.invoke("follow", {"steps": steps}, actor=LIMITED, approval=ids[-1] if ids else None)
            ids.append(waits(outcome))
            await approve(app, ids[-1])
    async with opened() as app:
        done = await app.approvals.resume(ids[-1], actor=LIMITED)
        assert done.output == ["did a", "noted b", "did a", "did c"], done
    assert len(set(ids)) == 3 and bench.effects == {"risky a": 2, "note b": 1, "risky c": 1}


async def test_a_rejection_is_what_the_program_is_told(opened: Any, bench: Bench) -> None:
    async with opened() as app:
        id = waits(await app.invoke("follow", {"steps": STEPS}, actor=LIMITED))
        await reject(app, id)
        done = await app.invoke("follow", {"steps": STEPS}, actor=LIMITED, approval=id)
        assert done.output == ["noted one", "USER_CANCELLED", "noted three"]
        assert bench.effects == {"note one": 1, "note three": 1} and await left(app) == 0


async def test_an_edit_runs_in_place_of_what_was_asked(opened: Any) -> None:
    async with opened() as app:
        id = waits(await app.invoke("follow", {"steps": STEPS}, actor=LIMITED))
        await app.parts.consent.questions.answer(
            id, Answer("edit", arguments={"text": "milder"}), Actor("acme", user="boss"), "test"
        )
        done = await app.invoke("follow", {"steps": STEPS}, actor=LIMITED, approval=id)
        assert done.output == ["noted one", "did milder", "noted three"]
        first = waits(await app.invoke("guarded", {"steps": [["risky", "x"]]}, actor=LIMITED))
        await app.parts.consent.questions.answer(
            first, Answer("edit", arguments={"steps": STEPS}), Actor("acme", user="boss"), "test"
        )
        second = waits(await app.invoke("guarded", {"steps": [["risky", "x"]]}, actor=LIMITED, approval=first))
        await approve(app, second)
        done = await app.invoke("guarded", {"steps": [["risky", "x"]]}, actor=LIMITED, approval=second)
        assert done.output == ALL


async def test_questions_asked_side_by_side_can_be_answered_in_any_order(opened: Any, bench: Bench) -> None:
    steps = [["risky", "a"], ["note", "b"], ["risky", "c"], ["risky", "a"], ["peek", "d"]]
    async with opened() as app:
        first = waits(await app.invoke("together", {"steps": steps}, actor=LIMITED))
        asked = [one.request.id for one in await app.approvals.list(actor=LIMITED)]
        assert first in asked
    while asked:
        async with opened() as app:
            id = asked.pop()
            await approve(app, id)
            outcome = await app.invoke("together", {"steps": steps}, actor=LIMITED, approval=id)
            if outcome.status == "pending":
                asked = [one.request.id for one in await app.approvals.list(actor=LIMITED)]
    assert outcome.output == ["did a", "noted b", "did c", "did a", "saw d"], outcome
    assert bench.effects == {"risky a": 2, "note b": 1, "risky c": 1}


async def test_a_call_inside_a_call_inside_a_call_waits_too(opened: Any, bench: Bench) -> None:
    async with opened() as app:
        middle = waits(await app.invoke("deep", {"steps": STEPS}, actor=LIMITED))
        [asked] = await app.approvals.list(actor=LIMITED)
        assert (asked.request.tool, asked.request.outer_tool) == ("guarded", "deep")
        await approve(app, middle)
        inner = waits(await app.invoke("deep", {"steps": STEPS}, actor=LIMITED, approval=middle))
        [asked] = await app.approvals.list(actor=LIMITED)
        assert (asked.request.id, asked.request.tool, asked.request.outer_tool) == (inner, "risky", "deep")
    async with opened() as app:
        await approve(app, inner)
        done = await app.approvals.resume(inner, actor=LIMITED)
        assert done.output == ["noted before", ALL, "noted after"], done
        assert bench.effects == {**ONCE, "note before": 1, "note after": 1} and await left(app) == 0


async def test_what_a_tool_makes_of_it_does_not_matter(bench: Bench) -> None:
    @tool(tier="write")
    async def stubborn(ctx: InvokeContext) -> str:
        """Takes no no."""
        try:
            await ctx.call_tool("risky", text="x")
        except BaseException:  # noqa: BLE001
            return "never mind"
        await ctx.call_tool("note", text="y")
        return "did it"

    @tool(tier="write")
    async def careless(ctx: InvokeContext) -> str:
        """Does not look."""
        await asyncio.gather(ctx.call_tool("risky", text="x"), return_exceptions=True)
        await asyncio.gather(ctx.call_tool("note", text="y"), return_exceptions=True)
        return "did it"

    async with memory_app() as app:
        bench.move_into(app)
        app.tools.register_many([stubborn, careless])
        for name in ("stubborn", "careless"):
            bench.file.unlink(missing_ok=True)
            id = waits(await app.invoke(name))
            assert bench.did == []
            await app.approvals.answer(id, True)
            assert (await app.invoke(name, approval=id)).output == "did it"
            assert bench.effects == {"risky x": 1, "note y": 1}


async def test_money_keys_and_grants_count_once(bench: Bench) -> None:
    @tool(tier="external_api", cost=0.25)
    async def pay(ctx: InvokeContext) -> str:
        """Costs something, and calls what is asked about."""
        first = await ctx.call_tool("risky", text="a")
        second = await ctx.call_tool("risky", text="b")
        return f"{first.output}, {second.output}"

    async with memory_app() as app:
        bench.move_into(app)
        app.register(pay)
        made = await app.grants.create("pay", GrantTerms("user", 3600))
        for count in (1, 2):
            outcome = await app.invoke("pay", idempotency_key="k")
            assert outcome.metrics.cost_usd == 0
            [grant] = await app.grants.list()
            assert (grant.id, grant.uses, grant.spent_usd) == (made.id, 0, 0.0)
            assert (await app.invoke("pay", idempotency_key="k")).pending == outcome.pending
            assert len(await app.approvals.list(state=None)) == count
            await app.approvals.answer(waits(outcome), True)
        done = await app.invoke("pay", idempotency_key="k")
        assert (done.output, done.metrics.cost_usd) == ("did a, did b", 0.25)
        [grant] = await app.grants.list()
        assert (grant.uses, grant.spent_usd) == (1, 0.25)
        known = await app.invoke("pay", idempotency_key="k")
        assert known.output == done.output and known.metrics.cached
        assert bench.effects == {"risky a": 1, "risky b": 1}
        other = await app.invoke("follow", {"steps": STEPS}, idempotency_key="f")
        clash = await app.invoke("follow", {"steps": []}, idempotency_key="f")
        assert clash.error is not None and clash.error.code == "IDEMPOTENCY_CONFLICT", waits(other)


async def test_whoever_is_asked_while_the_program_is_held_answers_at_once(bench: Bench) -> None:
    async with memory_app() as app:
        bench.move_into(app)
        asked: list[str] = []

        def agree(request: ApprovalRequest) -> bool:
            asked.append(request.tool)
            return True

        app.approvals.add_approver(agree)
        assert (await app.invoke("guarded", {"steps": STEPS})).output == ALL
        assert asked == ["guarded", "risky"] and bench.effects == ONCE


async def test_a_person_who_is_slower_than_the_program_leaves_it_waiting(bench: Bench) -> None:
    async with memory_app() as app:
        bench.move_into(app)
        app.approvals.add_approver(never)
        for seconds in (0.5, 5.0, 30.0):  # the longer ones only where the machine was held up before it could ask
            outcome = await app.invoke("follow", {"steps": STEPS}, timeout=seconds)
            if outcome.status != "timeout":
                break
            bench.file.unlink(missing_ok=True)
        id = waits(outcome)
        await app.approvals.answer(id, True)
        assert (await app.invoke("follow", {"steps": STEPS}, approval=id)).output == ALL
        assert bench.effects == ONCE


async def test_a_question_that_nobody_waits_for_any_more_is_closed(bench: Bench) -> None:
    @tool(tier="write")
    async def hasty(ctx: InvokeContext) -> str:
        """Does not wait for what it asked."""
        calling = asyncio.create_task(ctx.call_tool("risky", text="x"))
        async with asyncio.timeout(30):
            while not await app.approvals.list():
                await asyncio.sleep(0.01)
        calling.cancel()
        raise ValueError("enough")

    async with memory_app() as app:
        bench.move_into(app)
        app.register(hasty)
        app.approvals.add_approver(never)
        outcome = await app.invoke("hasty")
        assert outcome.error is not None and outcome.error.code == "INVOCATION_ERROR"
        assert await app.approvals.list() == [] and len(await app.approvals.list(state="expired")) == 1


async def never(_request: Any) -> bool:
    await asyncio.sleep(3600)
    return True


async def test_a_caller_that_goes_away_while_a_person_thinks_can_come_back(bench: Bench) -> None:
    async with memory_app() as app:
        bench.move_into(app)
        app.approvals.add_approver(never)
        calling = asyncio.ensure_future(app.invoke("follow", {"steps": STEPS}))
        async with asyncio.timeout(30):
            while not await app.approvals.list():
                await asyncio.sleep(0.01)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        [waiting] = await app.approvals.list()
        await app.approvals.answer(waiting.request.id, True)
        assert (await app.invoke("follow", {"steps": STEPS}, approval=waiting.request.id)).output == ALL
        assert bench.effects == ONCE


async def test_a_grant_that_was_revoked_meanwhile_has_the_outer_call_asked_about(bench: Bench) -> None:
    async with memory_app() as app:
        bench.move_into(app)
        grant = await app.grants.create("guarded", GrantTerms("user", 3600))
        inner = waits(await app.invoke("guarded", {"steps": STEPS}))
        await app.approvals.answer(inner, True)
        await app.grants.revoke(grant.id)
        outer = waits(await app.invoke("guarded", {"steps": STEPS}, approval=inner))
        assert (await app.parts.consent.questions.show(outer, "default")).request.tool == "guarded"
        assert bench.effects == {"note one": 1}
        await app.approvals.answer(outer, True)
        assert (await app.invoke("guarded", {"steps": STEPS}, approval=outer)).output == ALL
        assert bench.effects == ONCE and await left(app) == 0


async def test_a_grant_that_was_made_meanwhile_lets_it_go_on(bench: Bench) -> None:
    async with memory_app() as app:
        bench.move_into(app)
        id = waits(await app.invoke("follow", {"steps": STEPS}))
        await app.grants.create("risky", GrantTerms("user", 3600))
        assert (await app.invoke("follow", {"steps": STEPS}, approval=id)).output == ALL
        assert bench.effects == ONCE and await app.approvals.list() == []


async def test_an_idempotency_key_whose_call_can_t_go_on_runs_nothing_again(bench: Bench) -> None:
    async with memory_app(approvals={"expire_seconds": 0.5}) as app:
        bench.move_into(app)
        id = waits(await app.invoke("follow", {"steps": STEPS}, idempotency_key="k"))
        async with asyncio.timeout(30):
            while await app.approvals.list():
                await asyncio.sleep(0.05)
        for approval in (None, id):
            outcome = await app.invoke("follow", {"steps": STEPS}, idempotency_key="k", approval=approval)
            assert outcome.status == "denied" and "expired" in (outcome.error.message if outcome.error else ""), outcome
        assert bench.effects == {"note one": 1}
        await app.refresh()
        assert await left(app) == 1, "nothing is kept but that the key was used"
        assert (await app.invoke("follow", {"steps": STEPS}, idempotency_key="k")).status == "denied"
        assert bench.effects == {"note one": 1}


async def test_what_is_too_much_to_be_kept_is_said(bench: Bench) -> None:
    @tool(tier="read_only")
    async def much(size: int) -> str:
        """Give a lot."""
        return "x" * size

    @tool(tier="write")
    async def greedy(ctx: InvokeContext) -> int:
        """Ask after taking a lot."""
        found = [await ctx.call_inside("much", {"size": 900_000 + n}, whole=True, from_code=False) for n in range(6)]
        await ctx.call_tool("risky", text="x")
        return sum(len(one.output) for one in found)

    async with memory_app() as app:
        bench.move_into(app).tools.register_many([much, greedy])
        outcome = await app.invoke("greedy")
        assert outcome.error is not None and outcome.error.code == "CAPACITY_EXCEEDED", outcome
        assert await app.approvals.list() == [] and await left(app) == 0
        app.approvals.add_approver(lambda _request: True)
        assert (await app.invoke("greedy")).output > 5_000_000
        assert bench.effects == {"risky x": 1}


async def test_so_many_outer_calls_of_a_user_may_wait(bench: Bench) -> None:
    async with memory_app() as app:
        bench.move_into(app)
        made = [await app.invoke("follow", {"steps": [["risky", str(n)]]}) for n in range(51)]
        assert [outcome.status for outcome in made] == ["pending"] * 50 + ["failure"]
        assert len(await app.approvals.list()) == 50
        id = waits(made[0])
        await app.approvals.answer(id, True)
        assert (await app.invoke("follow", {"steps": [["risky", "0"]]}, approval=id)).output == ["did 0"]


async def test_what_hooks_call_outside_the_tool_is_told_as_it_is(bench: Bench) -> None:
    seen: list[str] = []

    class Caller(Hook):
        """Calls what is asked about, before and after."""

        async def will_validate_input(self, ctx: InvokeContext) -> None:
            if ctx.call.tool == "peek":
                seen.append((await ctx.call_tool("risky", text="before")).status)

        async def did_audit(self, ctx: InvokeContext) -> None:
            if ctx.call.tool == "peek":
                seen.append((await ctx.call_tool("risky", text="after")).status)

    async with memory_app() as app:
        bench.move_into(app).add_hook(Caller())
        assert (await app.invoke("peek", {"text": "x"})).output == "saw x"
        assert seen == ["pending", "pending"] and bench.effects == {}

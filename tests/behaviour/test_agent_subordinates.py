"""Subordinates: a run inside a call, with a persona of its own, and no more rights or money than its caller."""

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.agents import DIALECTS, SOON, agency, by_speaker, calls, delegate, did, of_kind, run, told
from tests.behaviour.test_agent_approvals import kept_app
from tests.model_servers import Reply, model_server
from tests.patience import until
from toolgate.agent.run import RunLimits
from toolgate.gates.approval.request import Answer, GrantTerms
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.model import NANO, Actor

pytestmark = [pytest.mark.requirement("AGENT-1", "TIER-9", "BUILTIN-4")]
dialects = pytest.mark.parametrize("dialect", DIALECTS)
HELPER = {"subordinates": ["helper"]}


@dialects
async def test_a_subordinate_does_something_and_its_caller_is_told(tmp_path: Path, dialect: str) -> None:
    answers = by_speaker(
        Boss=[delegate(message="Help: 1 + 2?"), Reply("It says three.")],
        Help=[calls(("add", {"a": 1, "b": 2})), Reply("Three.")],
    )
    async with agency(tmp_path, dialect, answers, agent=HELPER) as (app, server):
        result, events = await run(app, "Boss here.")
        assert result.text == "It says three." and did(tmp_path) == ["add 1 2"]
        assert '"text":"Three."' in told(server.asked[-1], dialect)[0]
        shown = await app.agents.show(result.id)
        (child,) = shown.subordinates
        assert (child.persona, child.status, child.text, child.parent) == ("helper", "done", "Three.", result.id)
        assert [one.id for one in await app.agents.list()] == [result.id]
        assert [one.text for one in (await app.agents.show(child.id)).messages if one.kind == "user"] == ["Help: 1 + 2?"]
        inner = [event for event in events if event.run == child.id]
        assert {"call", "result", "turn"} <= {event.kind for event in inner}  # whoever watches the caller sees it work
        assert result.cost_usd == pytest.approx(4 * 29 * 0.14e-6)


async def test_a_subordinate_that_is_named_to_call_tool_is_one_of_the_run(tmp_path: Path) -> None:
    """Its run ends with that of its caller: when that is cancelled, or its key or its grant revoked."""
    named = calls(("call_tool", {"name": "call_subordinate", "arguments": {"agent": "helper", "message": "Help"}}))
    answers = by_speaker(Boss=[named, Reply("Well.")], Help=[calls(("risky", {"text": "x"})), Reply("Done.")])
    async with agency(tmp_path, "openai", answers, agent=HELPER) as (app, _):
        first, _ = await run(app, "Boss here.", session="s")
        assert first.status == "waiting"
        (child,) = (await app.agents.show(first.id)).subordinates
        assert (child.persona, child.parent) == ("helper", first.id)
        await app.agents.cancel(first.id)
        (child,) = (await app.agents.show(first.id)).subordinates
        assert child.status == "cancelled" and await app.approvals.list() == [] and did(tmp_path) == []


async def test_only_personas_that_are_named_for_the_caller_can_be_called_and_ones_own(tmp_path: Path) -> None:
    rules = ["helper", {"persona": "clerk", "by": ["boss"]}, {"persona": "guest", "tenants": ["other"]}]
    wanted = calls(*[("call_subordinate", {"agent": name, "message": "Help"}) for name in ("clerk", "guest", "root", "")])
    answers = by_speaker(Boss=[wanted, Reply("Well.")], Help=[Reply("Yes.")])
    async with agency(tmp_path, "openai", answers, agent={"subordinates": rules}) as (app, server):
        assert (await run(app, "Boss here."))[0].ok
        clerk, guest, root, own = told(server.asked[-1], "openai")
        assert all("PERMISSION_DENIED" in one and "no subordinate" in one for one in (clerk, guest, root))
        assert '"text":"Yes."' in own
        outcome = await app.invoke("call_subordinate", {"agent": "clerk", "message": "Help"}, actor=Actor(persona="boss"))
        assert outcome.output["text"] == "Yes."


async def test_subordinates_call_subordinates_only_so_deep(tmp_path: Path) -> None:
    answers = by_speaker(Deep=[delegate("", "Deep"), delegate("", "Deep"), delegate("", "Deep"), Reply("Bottom.")])
    async with agency(tmp_path, "openai", answers, agent={"depth": 2}) as (app, server):
        assert (await run(app, "Deep"))[0].text == "Bottom."
        assert "2 deep, and no deeper" in told(server.asked[3], "openai")[0]


async def test_a_subordinate_may_do_no_more_than_its_caller_and_its_caller_no_more_than_it(tmp_path: Path) -> None:
    """The policy is asked about each actor of the chain; its tools are those that all of them have."""
    answers = by_speaker(
        Boss=[delegate(message="Help"), Reply("Well.")],
        Help=[calls(("post", {"text": "x"}), ("add", {"a": 1, "b": 1}), ("long", {"size": 10})), Reply("Done.")],
    )
    async with agency(tmp_path, "openai", answers, agent=HELPER) as (app, server):
        await app.tools.set_enabled("post", False, persona="boss", reason="not for bosses")
        await app.tools.set_enabled("long", False, persona="helper", reason="not for helpers")
        result, _ = await run(app, "Boss here.", actor=Actor(persona="boss"))
        assert result.ok and did(tmp_path) == ["add 1 1"]
        posted, added, read = told(server.asked[2], "openai")
        assert "post" in posted and ("TOOL_NOT_FOUND" in posted or "PERMISSION_DENIED" in posted)
        assert '"output":2' in added
        assert "TOOL_NOT_FOUND" in read or "PERMISSION_DENIED" in read
        offered = {tool["function"]["name"] for tool in server.asked[1].json["tools"]}
        assert "add" in offered and not offered & {"post", "long"}


async def test_a_grant_of_the_subordinates_persona_does_not_spare_its_caller_the_question(tmp_path: Path) -> None:
    answers = by_speaker(
        Boss=[delegate(message="Help"), Reply("Well.")], Help=[calls(("risky", {"text": "x"})), Reply("Done.")]
    )
    async with agency(tmp_path, "openai", answers, agent=HELPER) as (app, _):
        await app.grants.create("risky", GrantTerms("user", 60), actor=Actor(persona="helper"))
        begun = await app.agents.start("Boss here.", session="s")
        waiting = await app.agents.wait(begun, SOON)
        assert waiting.status == "waiting" and did(tmp_path) == []
        await asyncio.sleep(0.3)  # time in which nobody is asked again
        assert len(await app.approvals.list(state=None)) == 1
        await app.grants.create("risky", GrantTerms("user", 60))

        async def is_done() -> bool:
            return (await app.agents.show(begun)).run.status == "done"

        await until(is_done)
        assert did(tmp_path) == ["risky x"]
    (tmp_path / "did").unlink()
    async with agency(tmp_path, "openai", by_speaker(
        Boss=[delegate(message="Help"), Reply("Well.")], Help=[calls(("risky", {"text": "x"})), Reply("Done.")]
    ), agent=HELPER) as (app, _):  # fmt: skip
        for persona in ("helper", None):
            await app.grants.create("risky", GrantTerms("user", 60), actor=Actor(persona=persona))
        assert (await run(app, "Boss here."))[0].ok and did(tmp_path) == ["risky x"]
        risky = [one for one in await app.grants.list(active=False) if one.tool == "risky"]
        assert [one.uses for one in risky] == [1, 1]  # it counts for each of them


async def test_the_money_of_a_subordinate_is_its_callers(tmp_path: Path) -> None:
    pays = calls(*[("pay", {"what": str(at)}) for at in range(5)])
    answers = by_speaker(Boss=[delegate(message="Help"), Reply("Well.")], Help=[pays, Reply("Done.")])
    async with agency(tmp_path, "openai", answers, agent=HELPER) as (app, _):
        result, _ = await run(app, "Boss here.", limits=RunLimits(cost_usd=Decimal("0.70")))
        assert result.ok and len(did(tmp_path)) == 2 and 0.60 <= result.cost_usd <= 0.70
        (child,) = (await app.agents.show(result.id)).subordinates
        assert child.limits.cost_usd <= Decimal("0.70") and child.cost_usd == pytest.approx(result.cost_usd, abs=0.001)
        assert child.cost_usd <= result.cost_usd


async def test_budgets_of_the_callers_persona_count_what_a_subordinate_spends(tmp_path: Path) -> None:
    pays = calls(("pay", {"what": "a"}), ("pay", {"what": "b"}))
    answers = by_speaker(Boss=[delegate(message="Help"), Reply("Well.")], Help=[pays, Reply("Done.")])
    async with agency(tmp_path, "openai", answers, agent=HELPER) as (app, server):
        await app.budgets.set(new_budget("day", NANO // 2, persona="boss", tool="pay"))
        result, _ = await run(app, "Boss here.", actor=Actor(persona="boss"))
        assert result.ok and len(did(tmp_path)) == 1
        assert "BUDGET_EXCEEDED" in "".join(told(server.asked[2], "openai"))


async def test_a_subordinate_cannot_add_schedules_or_speak_for_a_run_of_another(tmp_path: Path) -> None:
    adds = calls(("scheduler", {"task": "Wake up", "schedule": "0 8 * * *"}))
    answers = by_speaker(Boss=[delegate(message="Help"), adds, Reply("Well.")], Help=[adds, Reply("Done.")])
    async with agency(tmp_path, "openai", answers, agent=HELPER) as (app, server):
        result, _ = await run(app, "Boss here.")
        assert result.ok
        assert "A subordinate agent cannot add schedules" in told(server.asked[2], "openai")[0]
        assert len(await app.schedules.list()) == 1  # the agent itself can
        (child,) = (await app.agents.show(result.id)).subordinates
        with pytest.raises(Exception, match="only its caller speaks to it"):
            await app.agents.say(child.id, "Do more.")
        with pytest.raises(Exception, match=r"it goes on with the call that it is in|nothing left"):
            await app.agents.resume(child.id)


# -- a person is asked inside


@dialects
@pytest.mark.parametrize(
    ("answer", "ran", "words"),
    [
        (Answer("approve"), ["post before", "risky x"], "did x"),
        (Answer("edit", arguments={"text": "safe"}), ["post before", "risky safe"], '"run_with":{"text":"safe"}'),
        (Answer("reject", "No."), ["post before"], "USER_CANCELLED"),
    ],
)
async def test_a_question_inside_makes_the_outer_call_wait_and_go_on_without_repeating_anything(
    tmp_path: Path, dialect: str, answer: Answer, ran: list[str], words: str
) -> None:
    answers = by_speaker(
        Boss=[delegate(message="Help"), Reply("Well.")],
        Help=[calls(("post", {"text": "before"})), calls(("risky", {"text": "x"})), Reply("Done.")],
    )
    async with agency(tmp_path, dialect, answers, agent=HELPER) as (app, server):
        first, events = await run(app, "Boss here.")
        assert first.status == "waiting" and did(tmp_path) == ["post before"]
        assert of_kind(events, "pending")[-1]["tool"] == "call_subordinate"
        (question,) = await app.approvals.list()
        assert (question.request.tool, question.request.outer_tool) == ("risky", "call_subordinate")
        (child,) = (await app.agents.show(first.id)).subordinates
        assert child.status == "waiting" and "risky" in (child.reason or "")
        asked = len(server.asked)
        await app.approvals.answer(question.request.id, answer)
        await app.agents.resume(first.id)
        result = await app.agents.wait(first.id, SOON)
        assert (result.status, result.text) == ("done", "Well.") and did(tmp_path) == ran
        assert len(server.asked) == asked + 2  # one more turn of each: nothing was asked again
        assert words in told(server.asked[asked], dialect)[1]


async def test_two_questions_inside_side_by_side_and_two_deep(tmp_path: Path) -> None:
    answers = by_speaker(
        Boss=[delegate(message="Help"), Reply("Well.")],
        Help=[
            calls(
                ("post", {"text": "h"}),
                ("risky", {"text": "a"}),
                ("call_subordinate", {"agent": "", "message": "Deep"}),
            ),
            Reply("Done."),
        ],
        Deep=[calls(("risky", {"text": "b"})), Reply("Deeply.")],
    )  # fmt: skip
    async with agency(tmp_path, "openai", answers, agent=HELPER) as (app, server):
        result, _ = await run(app, "Boss here.")
        for _ in range(3):
            if result.status != "waiting":
                break
            for question in await app.approvals.list():
                await app.approvals.answer(question.request.id, True)
            await app.agents.resume(result.id)
            result = await app.agents.wait(result.id, SOON)
        assert (result.status, result.text) == ("done", "Well.")
        assert sorted(did(tmp_path)) == ["post h", "risky a", "risky b"]
        assert len(server.asked) == 6


async def test_a_question_inside_is_answered_through_any_door_and_after_a_restart(tmp_path: Path, database: str) -> None:
    answers = by_speaker(
        Help=[calls(("post", {"text": "before"})), calls(("risky", {"text": "x"})), calls(("risky", {"text": "y"})),
              Reply("Done.")],
    )  # fmt: skip
    asked = {"agent": "helper", "message": "Help"}
    async with model_server("openai", answers) as server:
        async with kept_app(tmp_path, database, server, agent=HELPER) as app:
            first = await app.invoke("call_subordinate", asked)
            assert first.pending is not None, first
        async with kept_app(tmp_path, database, server, agent=HELPER) as app:
            await app.approvals.answer(first.pending.id, True)
            second = await app.approvals.resume(first.pending.id)
            assert second.pending is not None and did(tmp_path) == ["post before", "risky x"], second
        async with kept_app(tmp_path, database, server, agent=HELPER) as app:
            await app.approvals.answer(second.pending.id, True)
            third = await app.invoke("call_subordinate", asked)  # the same call again
            assert third.output["text"] == "Done.", third
            assert did(tmp_path) == ["post before", "risky x", "risky y"] and len(server.asked) == 4
            assert await app.grants.list() == []  # those that it had to ask the model ended with it


async def test_a_program_that_calls_a_subordinate_waits_with_it(tmp_path: Path) -> None:
    """The calls of the program are replayed, those of the subordinate are in its journal."""
    answers = by_speaker(Help=[calls(("risky", {"text": "x"})), Reply("Done.")])
    async with agency(tmp_path, "openai", answers, agent=HELPER) as (app, server):
        from toolgate import InvokeContext, tool

        @tool(tier="write")
        async def program(ctx: InvokeContext) -> Any:
            """Call others."""
            before = await ctx.call_tool("post", text="before")
            inner = await ctx.call_tool("call_subordinate", agent="helper", message="Help")
            after = await ctx.call_tool("post", text="after")
            return [before.output, inner.output["text"], after.output]

        app.register(program)
        unasked = await app.invoke("program")  # nobody agreed to have the model asked from inside a program
        assert unasked.pending is not None and (await app.approvals.list())[0].request.tool == "ask_model"
        for persona in (None, "helper"):
            await app.grants.create("ask_model", GrantTerms("user", 60), actor=Actor(persona=persona))
        first = await app.invoke("program")
        assert first.pending is not None and (await app.approvals.list())[-1].request.tool == "risky", first
        await app.approvals.answer(first.pending.id, True)
        done = await app.approvals.resume(first.pending.id)
        assert done.output == ["posted before", "Done.", "posted after"], done
        assert did(tmp_path) == ["post before", "risky x", "post after"] and len(server.asked) == 2


async def test_cancelling_a_run_cancels_its_subordinate_and_withdraws_the_question_inside(tmp_path: Path) -> None:
    answers = by_speaker(Boss=[delegate(message="Help")], Help=[calls(("risky", {"text": "x"}))])
    async with agency(tmp_path, "openai", answers, agent=HELPER) as (app, _):
        first, _ = await run(app, "Boss here.")
        await app.agents.cancel(first.id)
        (child,) = (await app.agents.show(first.id)).subordinates
        assert child.status == "cancelled" and await app.approvals.list() == [] and did(tmp_path) == []


async def test_a_subordinate_stops_when_the_grant_of_its_callers_run_is_revoked(tmp_path: Path) -> None:
    answers = by_speaker(
        Boss=[delegate(message="Help"), Reply("Well.")], Help=[calls(("slow", {"text": "x"})), Reply("Done.")]
    )
    async with agency(tmp_path, "openai", answers, agent=HELPER) as (app, server):
        begun = await app.agents.start("Boss here.")
        await until(lambda: did(tmp_path))
        grants = await app.grants.list()
        await app.grants.revoke(next(one.id for one in grants if one.persona is None))
        (tmp_path / "go").touch()
        result = await app.agents.wait(begun, SOON)
        assert result.status == "failed" and "revoked" in (result.reason or "") and len(server.asked) == 2
        assert await app.grants.list() == []


async def test_another_user_of_the_tenant_sees_nothing_of_a_subordinate(tmp_path: Path) -> None:
    answers = by_speaker(Boss=[delegate(message="Help"), Reply("Well.")], Help=[Reply("Done.")])
    async with agency(tmp_path, "openai", answers, agent=HELPER) as (app, _):
        result, _ = await run(app, "Boss here.")
        (child,) = (await app.agents.show(result.id)).subordinates
        for other in (Actor(user="eve"), Actor(persona="helper"), Actor("acme")):
            with pytest.raises(Exception, match="There is no run"):
                await app.agents.show(child.id, actor=other)

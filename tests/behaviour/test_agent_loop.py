"""The loop of an agent against scripted servers of both dialects: calls, their results, limits, history, events."""

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.agents import ADA, BOSS, DIALECTS, SOON, agency, calls, did, events_of, kinds, of_kind, result_of, run, said, told
from tests.model_servers import Reply, Wanted
from tests.patience import until
from toolgate import Actor, ToolgateError, tool
from toolgate.agent.run import RunLimits
from toolgate.errors import Failed
from toolgate.model import LOCAL
from toolgate.store.sql import column

pytestmark = [pytest.mark.requirement("AGENT-1", "PIPE-1")]
dialects = pytest.mark.parametrize("dialect", DIALECTS)


@dialects
async def test_an_agent_calls_tools_side_by_side_and_answers(tmp_path: Path, dialect: str) -> None:
    first = calls(("add", {"a": 1, "b": 2}), ("post", {"text": "x"}), text="Let me see.")
    async with agency(tmp_path, dialect, first, Reply("It is three.")) as (app, server):
        result, events = await run(app, "How much is 1 + 2?")
        assert (result.status, result.reason, result.text, result.turns) == ("done", None, "It is three.", 2)
        assert sorted(did(tmp_path)) == ["add 1 2", "post x"]
        assert kinds(events)[0] == "text" and of_kind(events, "text")[0]["text"].startswith("Let me")
        assert [one["output"] for one in of_kind(events, "result")] == [3, "posted x"]
        results = told(server.asked[1], dialect)
        assert "add" in results[0] and '"output":3' in results[0] and "not instructions" in results[0]
        assert "posted x" in results[1]
        assert said(server.asked[0]) == ["How much is 1 + 2?"]
        offered = str(server.asked[0].json["tools"])
        assert "'post'" in offered and "ask_model" not in offered
        ids = await app.audit.of_request(f"agent:{result.id}")
        assert len(ids) == 4  # two turns, two calls: each went through the pipeline


@dialects
async def test_two_calls_of_one_turn_run_at_the_same_time(tmp_path: Path, dialect: str) -> None:
    here: list[str] = []

    @tool(tier="write")
    async def meet(name: str) -> str:
        """Wait for the other."""
        here.append(name)
        async with asyncio.timeout(SOON):
            while len(here) < 2:
                await asyncio.sleep(0.01)
        return name

    async with agency(tmp_path, dialect, calls(("meet", {"name": "a"}), ("meet", {"name": "b"})), Reply("Met.")) as (app, _):
        app.register(meet)
        assert (await run(app))[0].text == "Met."


@dialects
async def test_a_model_is_told_what_is_wrong_with_its_arguments_and_corrects_itself(tmp_path: Path, dialect: str) -> None:
    broken: dict[str, object] | str = '{"a": 1, "b": ' if dialect == "openai" else {"a": 1}
    answers = [calls(("add", {"a": "x", "b": 2})), calls(("add", broken)), calls(("add", {"a": 1, "b": 2})), Reply("3")]
    async with agency(tmp_path, dialect, *answers) as (app, server):
        result, _ = await run(app)
        assert result.text == "3" and did(tmp_path) == ["add 1 2"]
        first, second = told(server.asked[2], dialect)
        assert "VALIDATION_ERROR" in first and "a: must be of type integer" in first and "add takes: a, b" in first
        assert "VALIDATION_ERROR" in second and ("not a JSON object" in second or "b" in second)


@dialects
async def test_an_invented_tool_is_told_as_unknown_with_a_near_name_and_a_hidden_one_looks_the_same(
    tmp_path: Path, dialect: str
) -> None:
    wanted = calls(("ad", {"a": 1, "b": 2}), ("ask_model", {"messages": []}), ("posts", {}))
    async with agency(tmp_path, dialect, wanted, Reply("Well.")) as (app, server):
        result, _ = await run(app)
        assert result.ok and did(tmp_path) == []
        near, internal, other = told(server.asked[1], dialect)
        assert "TOOL_NOT_FOUND" in near and "Did you mean add?" in near
        assert "There is no tool named 'ask_model'" in internal
        assert "Did you mean post?" in other


@dialects
async def test_the_tool_response_ends_a_run(tmp_path: Path, dialect: str) -> None:
    async with agency(tmp_path, dialect, calls(("response", {"text": "Done."}), ("post", {"text": "y"}))) as (app, server):
        result, _ = await run(app)
        assert (result.status, result.text, len(server.asked)) == ("done", "Done.", 1)
        assert did(tmp_path) == ["post y"]


@dialects
async def test_a_conversation_goes_on_with_its_history(tmp_path: Path, dialect: str) -> None:
    async with agency(tmp_path, dialect, calls(("add", {"a": 1, "b": 2})), Reply("3"), Reply("6")) as (app, server):
        first, _ = await run(app, "1 + 2?")
        second, events = await run(app, "Twice that?", run=first.id)
        assert (second.id, second.text, second.turns) == (first.id, "6", 3)
        assert said(server.asked[2])[0] == "1 + 2?" and "Twice that?" in said(server.asked[2])
        assert '"output":3' in told(server.asked[2], dialect)[0]
        shown = await app.agents.show(first.id)
        said_by = [one.kind for one in shown.messages]
        assert said_by == ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]
        assert [one.id for one in await app.agents.list()] == [first.id]
        assert kinds(events)[-1] == "end"


async def test_the_style_json_works_with_models_that_know_no_tool_calls(tmp_path: Path) -> None:
    wants = '{"thoughts": ["I add."], "headline": "Adding", "tool_name": "add", "tool_args": {"a": 1, "b": 2}}'
    answers = [Reply('{"tool_name": "add"'), Reply(wants), Reply('{"tool_name": "response", "tool_args": {"text": "3"}}')]
    async with agency(tmp_path, "openai", *answers) as (app, server):
        result, events = await run(app, style="json")
        assert (result.status, result.text) == ("done", "3")
        assert of_kind(events, "thoughts")[0] == {"thoughts": ["I add."], "headline": "Adding"}
        assert "tools" not in server.asked[0].json
        assert any("[Toolgate]" in words for words in said(server.asked[1]))  # what was wrong with the first reply
        assert any('"output":3' in words for words in said(server.asked[2]))
        assert not [event for event in events if event.kind == "text" and "tool_name" in event.data["text"]]


# -- limits


async def test_each_limit_ends_a_run_with_its_reason(tmp_path: Path) -> None:
    again = [calls(("add", {"a": at, "b": 1})) for at in range(9)]
    async with agency(tmp_path, "openai", *again) as (app, server):
        result, _ = await run(app, limits=RunLimits(turns=3))
        assert result.status == "failed" and "3 times" in (result.reason or "") and "turns" in (result.reason or "")
        assert len(server.asked) == 3
    async with agency(tmp_path, "openai", calls(("add", {"a": 1, "b": 1}))) as (app, server):
        result, _ = await run(app)
        assert result.status == "failed" and "repeats itself" in (result.reason or "") and len(server.asked) == 4
        assert did(tmp_path).count("add 1 1") == 3 + 1  # once above
    async with agency(tmp_path, "openai", calls(("slow", {"text": "x"})), Reply("late")) as (app, server):
        (tmp_path / "go").touch()
        result, _ = await run(app, limits=RunLimits(seconds=0.001))
        assert result.status == "failed" and "limit of time" in (result.reason or "")


async def test_the_cost_of_a_run_stays_within_its_limit_and_the_budgets(tmp_path: Path) -> None:
    """Tools count, and the model's own turns; what would go beyond it is not done."""
    wants = [calls(*[("pay", {"what": f"{turn}{at}"}) for at in range(3)]) for turn in range(2)]
    prices = {"input_price": 10, "output_price": 10, "max_tokens": 1000}
    async with agency(tmp_path, "openai", *wants, Reply("Enough."), model=prices) as (app, server):
        result, _ = await run(app, limits=RunLimits(cost_usd=Decimal("1.00")))
        assert result.ok and len(did(tmp_path)) == 3
        assert 0.90 <= result.cost_usd <= 1.00
        refused = told(server.asked[-1], "openai")[-1]
        assert "BUDGET_EXCEEDED" in refused and "the run has $" in refused
    async with agency(tmp_path, "openai", Reply("x"), model={**prices, "max_tokens": 100_000}) as (app, server):
        result, _ = await run(app, limits=RunLimits(cost_usd=Decimal("0.50")))
        assert result.status == "failed" and "limit of cost" in (result.reason or "") and not server.asked
    budgets = {"external_api_daily": Decimal("0.001")}
    async with agency(tmp_path, "openai", Reply("x"), model=prices, budgets=budgets) as (app, server):
        result, _ = await run(app)
        assert result.status == "failed" and "BUDGET_EXCEEDED" in (result.reason or "") and not server.asked


async def test_limits_above_those_of_the_settings_are_refused(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", Reply("x"), agent={"turns": 5}) as (app, _):
        with pytest.raises(ToolgateError, match=r"turns is 6, and may be 5 \(setting agent.turns\)"):
            await app.agents.start("x", limits=RunLimits(turns=6))
        with pytest.raises(ToolgateError, match="nothing to say"):
            await app.agents.start("  ")


NO_LIMITS: dict[str, Any] = {"turns": True, "seconds": float("nan"), "cost_usd": Decimal("nan"), "same_call": "3"}


@pytest.mark.parametrize("name", NO_LIMITS)
async def test_a_limit_that_is_no_number_is_refused_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    async with agency(tmp_path, "openai", Reply("x")) as (app, _):
        with pytest.raises(ToolgateError, match=f"The limits of the run are wrong: .*{name}"):
            await app.agents.start("x", limits=RunLimits(**{name: NO_LIMITS[name]}))
        assert await app.agents.list() == [] and await app.grants.list() == []


# -- the grant of a run


async def test_a_run_has_a_grant_that_is_listed_charged_and_revoked_with_its_end(tmp_path: Path) -> None:
    prices = {"input_price": 0, "output_price": 1000, "max_tokens": 100}
    async with agency(tmp_path, "openai", calls(("slow", {"text": "x"})), Reply("Done."), model=prices) as (app, _):
        begun = await app.agents.start("x", session="s1", limits=RunLimits(cost_usd=Decimal(1)))
        await until(lambda: did(tmp_path))
        (grant,) = await app.grants.list()
        assert (grant.tool, grant.session, grant.granted_by, grant.cap_usd) == ("ask_model", "s1", LOCAL.user, 1.0)
        assert begun.id in (grant.reason or "")
        assert grant.spent_usd == pytest.approx(0.01)  # what the turn cost, not what it might have
        (tmp_path / "go").touch()
        assert (await app.agents.wait(begun, SOON)).text == "Done."
        assert await app.grants.list() == []


async def test_a_grant_that_is_revoked_in_the_middle_stops_the_run(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", calls(("slow", {"text": "x"})), Reply("Done.")) as (app, server):
        begun = await app.agents.start("x")
        await until(lambda: did(tmp_path))
        (grant,) = await app.grants.list()
        await app.grants.revoke(grant.id)
        (tmp_path / "go").touch()
        result = await app.agents.wait(begun, SOON)
        assert result.status == "failed" and f"({grant.id}) was revoked by local" in (result.reason or "")
        assert len(server.asked) == 1


async def test_whoever_may_not_agree_to_their_own_calls_waits_for_somebody_who_may(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", Reply("Hello.")) as (app, server):
        result, events = await run(app, actor=ADA, door="http")
        assert result.status == "waiting" and "ask_model" in (result.reason or "") and not server.asked
        assert of_kind(events, "pending")[0]["approval"] == result.pending[0]
        await app.approvals.answer(result.pending[0], True, actor=BOSS)
        await app.agents.resume(result.id, actor=ADA)
        assert (await app.agents.wait(result.id, SOON, actor=ADA)).text == "Hello."


# -- whose it is


async def test_nobody_else_sees_a_run_and_missing_looks_the_same(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", Reply("Hello.")) as (app, _):
        mine, _ = await run(app, session="s")
        others = [ADA, Actor("default", None, "eve"), Actor("default", "admin", "local"), Actor("acme", None, "local")]
        for other in others:
            assert await app.agents.list(actor=other) == []
            for verb in (app.agents.show, app.agents.cancel, app.agents.resume):
                with pytest.raises(Failed) as hidden:
                    await verb(mine.id, actor=other)
                with pytest.raises(Failed) as missing:
                    await verb("01a1ec81-0000-7000-8000-000000000000", actor=other)
                assert str(hidden.value).replace(mine.id, "X") == str(missing.value).replace(
                    "01a1ec81-0000-7000-8000-000000000000", "X"
                )
            with pytest.raises(Failed, match="There is no run"):
                await app.agents.say(mine.id, "Tell me all.", actor=other)
            with pytest.raises(Failed, match="There is no run"):
                await events_of(app.agents.follow(mine.id, actor=other))


async def test_messages_are_encrypted_at_rest_and_masked_when_shown(tmp_path: Path) -> None:
    secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    async with agency(tmp_path, "openai", Reply("Hello.")) as (app, server):
        mine, _ = await run(app, f"My token is {secret}.")
        assert secret in said(server.asked[0])[0]  # the user's own words reach the model as they are
        shown = await app.agents.show(mine.id)
        assert secret not in str(shown.to_dict())

        kept = await app.parts.store.read(column("SELECT content FROM agent_messages"))
        assert len(kept) == 3 and secret not in str(kept) and "Hello" not in str(kept)


# -- events


async def test_a_reader_that_leaves_does_not_stop_the_run_unless_it_asked_for_that(tmp_path: Path) -> None:
    answers = (calls(("slow", {"text": "x"})), Reply("Done."))
    async with agency(tmp_path, "openai", *answers) as (app, _):
        events = app.agents.run("x")
        first = await anext(events)
        await events.aclose()  # type: ignore[attr-defined]
        (tmp_path / "go").touch()
        assert (await app.agents.wait(first.run, SOON)).text == "Done."
    (tmp_path / "go").unlink()
    async with agency(tmp_path, "openai", *answers) as (app, _):
        events = app.agents.run("x", stop_when_left=True)
        first = await anext(events)
        await events.aclose()  # type: ignore[attr-defined]
        result = await app.agents.wait(first.run, SOON)
        assert (result.status, result.reason) == ("cancelled", "It was cancelled.")


async def test_a_reader_that_is_slow_is_given_text_together_and_told_of_what_it_missed(tmp_path: Path) -> None:
    long = Reply("word " * 400)
    many = [calls(*[("add", {"a": at, "b": turn}) for at in range(16)]) for turn in range(35)]
    async with agency(tmp_path, "openai", *many, long) as (app, _):
        events = app.agents.run("x")
        first = await anext(events)
        await app.agents.wait(first.run, SOON)
        rest = await events_of(events)
        assert result_of(rest).ok and len(rest) <= 1_002
        assert "earlier events were left out" in of_kind(rest, "notice")[0]["text"]
        assert of_kind(rest, "text") == [{"text": long.text}]


async def test_a_run_can_be_cancelled_and_spoken_to_afterwards(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", calls(("slow", {"text": "x"})), Reply("As you like.")) as (app, server):
        begun = await app.agents.start("x")
        await until(lambda: did(tmp_path))
        with pytest.raises(Failed, match="is under way"):
            await app.agents.say(begun, "Hurry.")
        cancelled = await app.agents.cancel(begun)
        assert cancelled.status == "cancelled" and await app.grants.list() == []
        with pytest.raises(Failed, match="nothing left to cancel"):
            await app.agents.cancel(begun)
        with pytest.raises(Failed, match="nothing left to do"):
            await app.agents.resume(begun)
        result, _ = await run(app, "Never mind.", run=begun.id)
        assert result.text == "As you like."
        assert "OUTCOME_UNKNOWN" in told(server.asked[1], "openai")[0]


def test_wanted_is_the_model_of_a_call() -> None:
    assert Wanted("add", {}).text == "{}"

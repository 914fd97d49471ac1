"""Runs of agents among others who would use what is theirs: their grants, their rights, their money, their conversations."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.agents import ADA, BOSS, SOON, agency, by_speaker, calls, delegate, did, run, said, told
from tests.model_servers import Reply
from tests.patience import until
from toolgate import tool
from toolgate.agent.run import Run
from toolgate.cli.chat.conversation import Conversation
from toolgate.cli.chat.screen import Screen
from toolgate.errors import ToolgateError
from toolgate.gates.approval.request import Answer, GrantTerms
from toolgate.model import LOCAL, Actor
from toolgate.pipeline.context import InvokeContext

pytestmark = pytest.mark.requirement("AGENT-1", "TIER-9")
QUESTION = {"messages": [{"role": "user", "text": "Ride along."}]}


@tool(tier="read_only")
async def rider(ctx: InvokeContext) -> Any:
    """Ask the model, as code in the sandbox and sampling of MCP servers do."""
    return (await ctx.call_inside("ask_model", QUESTION, whole=True, internal=True, goes_on=False)).status


@pytest.mark.parametrize("session", ["s-1", None])
async def test_the_grant_of_a_run_is_for_its_own_turns_and_for_nothing_else_that_asks_the_model(
    tmp_path: Path, session: str | None
) -> None:
    answers = by_speaker(
        Boss=[calls(("rider", {})), calls(("slow", {"text": "x"})), Reply("Done.")], Ride=[Reply("Rode along.")]
    )
    async with agency(tmp_path, "openai", answers) as (app, server):
        app.tools.register(rider)
        begun = await app.agents.start("Boss here.", session=session)
        await until(lambda: did(tmp_path) == ["slow x"])
        assert '"output":"pending"' in told(server.asked[1], "openai")[0]  # a tool within the run
        for other in (session, "s-2"):
            assert (await app.invoke("rider", {}, session=other)).output == "pending"  # a call beside it
        (tmp_path / "go").touch()
        assert (await app.agents.wait(begun, SOON)).text == "Done."
        assert len(server.asked) == 3


async def test_a_tool_that_is_hidden_from_a_persona_is_missing_to_its_model_however_it_is_named(tmp_path: Path) -> None:
    def inside(*names: str) -> dict[str, Any]:
        given: dict[str, Any] = {"text": "x"}
        for name in names:
            given = {"name": name, "arguments": given}
        return given

    wanted = calls(
        ("post", {"text": "x"}), ("call_tool", inside("post")), ("call_tool", inside("post", "call_tool")),
        ("call_subordinate", {"agent": "", "message": "Post x."}), ("describe_tool", {"name": "post"}), ("nothing", {}),
    )  # fmt: skip
    answers = by_speaker(Boss=[wanted, Reply("Well.")], Post=[calls(("post", {"text": "x"})), Reply("Hidden.")])
    guest = Actor(persona="guest")
    async with agency(tmp_path, "openai", answers) as (app, server):
        await app.tools.disable("post", persona="guest")
        result, _ = await run(app, "Boss here.", actor=guest)
        assert result.text == "Well." and did(tmp_path) == []
        offered = [str(one.json["tools"]) for one in server.asked]
        assert not any("'post'" in one for one in offered) and all("'add'" in one for one in offered)
        results = told(next(one for one in server.asked if told(one, "openai") and "Boss here." in said(one)), "openai")
        plain, inner, twice, below, _, missing = results
        assert plain.replace("'post'", "'nothing'").replace("of post", "of nothing") == missing
        assert "There is no tool named 'post'" in inner and "called by itself" in twice and "Hidden." in below


async def test_a_subordinate_that_would_be_one_run_too_many_leaves_no_grant(tmp_path: Path) -> None:
    answers = by_speaker(Boss=[calls(("slow", {"text": "x"})), Reply("Done.")], Help=[Reply("Yes.")])
    async with agency(tmp_path, "openai", answers, agent={"live_runs": 1}) as (app, server):
        begun = await app.agents.start("Boss here.")
        await until(lambda: did(tmp_path))
        outcome = await app.invoke("call_subordinate", {"agent": "", "message": "Help"})
        assert outcome.error is not None and outcome.error.code == "CAPACITY_EXCEEDED", outcome
        assert "agent.live_runs" in (outcome.error.suggestion or "")
        (tmp_path / "go").touch()
        assert (await app.agents.wait(begun, SOON)).ok and len(server.asked) == 2
        assert await app.grants.list() == []


async def test_no_job_drives_a_subordinate_beside_the_call_that_it_is_in(tmp_path: Path) -> None:
    """It would act as its own persona, and for nobody else's rights."""
    answers = by_speaker(
        Boss=[delegate(message="Help"), Reply("Well.")], Help=[calls(("risky", {"text": "x"})), Reply("Done.")]
    )
    boss = Actor(persona="boss")
    async with agency(tmp_path, "openai", answers, agent={"subordinates": ["helper"]}) as (app, _):
        result, _ = await run(app, "Boss here.", actor=boss)
        (child,) = (await app.agents.show(result.id, actor=boss)).subordinates
        await app.approvals.answer(result.pending[0], True)
        job = await app.jobs.enqueue("agent_run", {"run": child.id}, actor=boss, max_attempts=1)
        async with app.jobs.worker():
            over = await app.jobs.wait(job.id, SOON, actor=boss)
        assert "that of a subordinate" in str(over.error)
        assert len(await app.approvals.list()) == 0 and did(tmp_path) == []


async def test_a_subordinate_stops_when_the_key_of_its_callers_run_is_revoked(tmp_path: Path) -> None:
    answers = by_speaker(
        Boss=[delegate("", "Help"), Reply("Well.")], Help=[calls(("slow", {"text": "x"})), calls(("post", {"text": "y"}))]
    )
    async with agency(tmp_path, "openai", answers, approvals={"asker_may_answer": "always"}) as (app, server):
        key, _ = await app.keys.create("k", ADA)
        await app.keys.create("only looks", ADA, roles=("viewer",))
        begun = await app.agents.start("Boss here.", actor=ADA, door="http")
        await until(lambda: did(tmp_path))
        await app.keys.revoke(key.id)
        (tmp_path / "go").touch()
        result = await app.agents.wait(begun, SOON, actor=ADA)
        assert "No API key" in (result.reason or "")
        assert len(server.asked) == 2 and did(tmp_path) == ["slow x"]


async def test_who_comes_with_fewer_scopes_does_nothing_by_a_run_that_was_started_with_more(tmp_path: Path) -> None:
    wide, narrow = Actor(user="u-1", scopes=("deploy", "read")), Actor(user="u-1", scopes=("read",))
    always = {"asker_may_answer": "always"}
    async with agency(tmp_path, "openai", calls(("risky", {"text": "x"})), Reply("Done."), approvals=always) as (app, _):
        result, _ = await run(app, actor=wide)
        assert result.status == "waiting"
        with pytest.raises(ToolgateError, match="scopes that this call lacks: deploy"):
            await app.agents.resume(result.id, actor=narrow)
        await app.agents.cancel(result.id, actor=narrow)  # that takes nothing but to be its user
        with pytest.raises(ToolgateError, match="scopes that this call lacks: deploy"):
            await app.agents.say(result.id, "Go on.", actor=narrow)
        assert (await app.agents.show(result.id, actor=wide)).run.status == "cancelled"


async def test_a_chat_stays_in_its_own_conversation_though_its_user_begins_another_meanwhile(tmp_path: Path) -> None:
    answers = by_speaker(Here=[calls(("slow", {"text": "x"})), Reply("Done here.")], There=[Reply("Done there.")])
    async with agency(tmp_path, "openai", answers) as (app, _):
        talk = Conversation(app, Screen(), LOCAL)
        said = asyncio.create_task(talk.say("Here I am."))
        await until(lambda: did(tmp_path))
        assert (await run(app, "There I am."))[0].ok
        (tmp_path / "go").touch()
        assert (await asyncio.wait_for(said, SOON)).text == "Done here."


async def test_what_an_approver_took_out_of_a_turn_is_not_sent_with_the_next_one(tmp_path: Path) -> None:
    answers = calls(("add", {"a": 1, "b": 2})), Reply("Three."), Reply("Again.")
    async with agency(tmp_path, "openai", *answers, approvals={"asker_may_answer": "never"}) as (app, server):
        result, _ = await run(app, "The code is 4711. Add.", actor=ADA, door="http")
        asked = (await app.approvals.get(result.pending[0], ADA.tenant)).request.arguments
        changed = [*asked["messages"][:-1], {"role": "user", "text": "Add."}]
        answer = Answer("edit", arguments={**asked, "messages": changed})
        await app.approvals.answer(result.pending[0], answer, actor=BOSS)
        await app.grants.create("ask_model", GrantTerms("user", 600), actor=ADA, by=BOSS)
        await app.agents.resume(result.id, actor=ADA)
        assert (await app.agents.wait(result.id, SOON, actor=ADA)).text == "Three."
        again, _ = await run(app, "And again.", actor=ADA, run=result.id)
        assert again.text == "Again." and len(server.asked) == 3
        assert [said(one) for one in server.asked] == [["Add."], ["Add."], ["Add.", "And again."]]
        assert [one.json["messages"][0]["role"] for one in server.asked] == ["system"] * 3


async def test_a_run_that_several_resume_at_once_is_driven_once_and_the_others_are_told(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", calls(("risky", {"text": "x"})), Reply("Done.")) as (app, _):
        result, _ = await run(app)
        await app.approvals.answer(result.pending[0], True)
        resumed = await asyncio.gather(*(app.agents.resume(result.id) for _ in range(5)), return_exceptions=True)
        assert all(isinstance(one, Run | ToolgateError) for one in resumed), resumed
        assert (await app.agents.wait(result.id, SOON)).text == "Done." and did(tmp_path) == ["risky x"]

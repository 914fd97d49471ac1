"""A run in the middle of which a person is asked: it waits, goes on with the answer, and tells the model what became of the
call; on both stores, past the end of the App that began it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agents import DIALECTS, SOON, agency, calls, did, of_kind, run, told, tools_of
from tests.behaviour.asking import let_pass
from tests.loopback import Site
from tests.model_servers import Reply, model_server, model_settings
from tests.patience import until
from toolgate import App
from toolgate.gates.approval.request import Answer, GrantTerms

pytestmark = [pytest.mark.requirement("AGENT-1", "TIER-9")]
dialects = pytest.mark.parametrize("dialect", DIALECTS)
ASKS = calls(("post", {"text": "first"}), ("risky", {"text": "x"}), text="I try.")


@asynccontextmanager
async def kept_app(folder: Path, database: str, server: Site, **more: Any) -> AsyncIterator[App]:
    """An App on a database that outlasts it."""
    settings = {"database_url": database, "home": folder / "home", "model": model_settings("openai", server, secret=None)}
    async with App.open(**settings, entry_points=False, auto_load_custom_tools=False, **more) as app:
        app.tools.register_many(tools_of(folder))
        yield app


@dialects
@pytest.mark.parametrize(
    ("answer", "ran", "words"),
    [
        (Answer("approve"), ["post first", "risky x"], ['"output":"did x"']),
        (
            Answer("edit", arguments={"text": "safe"}),
            ["post first", "risky safe"],
            ['"output":"did safe"', '"run_with":{"text":"safe"}', "A person changed the arguments"],
        ),
        (Answer("reject", "Not on a Friday."), ["post first"], ["USER_CANCELLED", "Not on a Friday."]),
    ],
)
async def test_a_run_waits_for_an_answer_and_the_model_is_told_what_became_of_its_call(
    tmp_path: Path, dialect: str, answer: Answer, ran: list[str], words: list[str]
) -> None:
    async with agency(tmp_path, dialect, ASKS, Reply("Well.")) as (app, server):
        result, events = await run(app, session="s1")
        assert result.status == "waiting" and result.reason == "A person has to answer about risky."
        assert did(tmp_path) == ["post first"] and len(server.asked) == 1
        (pending,) = of_kind(events, "pending")
        assert pending["approval"] == result.pending[0] and pending["tool"] == "risky"
        await app.approvals.answer(result.pending[0], answer)
        await app.agents.resume(result.id)
        ended = await app.agents.wait(result.id, SOON)
        assert (ended.status, ended.text, ended.pending) == ("done", "Well.", ())
        assert did(tmp_path) == ran and len(server.asked) == 2
        posted, risked = told(server.asked[1], dialect)
        assert "posted first" in posted and all(word in risked for word in words), risked


async def test_a_run_that_this_app_drives_goes_on_by_itself(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", ASKS, Reply("Well.")) as (app, _):
        begun = await app.agents.start("x")
        waiting = await app.agents.wait(begun, SOON)
        assert waiting.status == "waiting"
        await app.approvals.answer(waiting.pending[0], True)

        async def is_done() -> bool:
            return (await app.agents.show(begun)).run.status == "done"

        await until(is_done)
        assert did(tmp_path) == ["post first", "risky x"]


async def test_a_question_that_expires_is_told_to_the_model_which_may_ask_again(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", ASKS, calls(("risky", {"text": "y"})), Reply("Well.")) as (app, server):
        first, _ = await run(app)
        await let_pass(app, 3700)
        await app.agents.resume(first.id)
        second = await app.agents.wait(first.id, SOON)
        assert "expired" in told(server.asked[1], "openai")[1] and did(tmp_path) == ["post first"]
        assert second.status == "waiting" and second.pending != first.pending
        assert second.reason == "A person has to answer about risky."


async def test_of_two_questions_each_call_runs_when_its_own_is_answered(tmp_path: Path) -> None:
    two = calls(("risky", {"text": "a"}), ("risky", {"text": "b"}))
    async with agency(tmp_path, "openai", two, Reply("Well.")) as (app, server):
        first, _ = await run(app)
        assert len(first.pending) == 2
        await app.approvals.answer(first.pending[1], True)
        await app.agents.resume(first.id)
        second = await app.agents.wait(first.id, SOON)
        assert second.status == "waiting" and second.pending == first.pending[:1] and did(tmp_path) == ["risky b"]
        await app.approvals.answer(first.pending[0], False)
        await app.agents.resume(first.id)
        assert (await app.agents.wait(first.id, SOON)).status == "done"
        refused, done = told(server.asked[1], "openai")
        assert "USER_CANCELLED" in refused and "did b" in done


async def test_a_grant_that_is_given_meanwhile_lets_the_run_go_on(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", ASKS, Reply("Well.")) as (app, _):
        begun = await app.agents.start("x")
        assert (await app.agents.wait(begun, SOON)).status == "waiting"
        await app.grants.create("risky", GrantTerms("user", 60))

        async def is_done() -> bool:
            return (await app.agents.show(begun)).run.status == "done"

        await until(is_done)
        assert did(tmp_path) == ["post first", "risky x"]


async def test_a_person_who_is_there_is_asked_in_place_and_an_edit_is_told_as_one(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", ASKS, Reply("Well.")) as (app, server):
        app.approvals.add_approver(lambda _asked: Answer("edit", arguments={"text": "safe"}))
        assert (await run(app))[0].status == "done"
        assert '"run_with":{"text":"safe"}' in told(server.asked[1], "openai")[1]


async def test_a_cancelled_run_withdraws_its_question(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", ASKS) as (app, _):
        waiting, _ = await run(app)
        await app.agents.cancel(waiting.id)
        assert await app.approvals.list() == [] and did(tmp_path) == ["post first"]


async def test_a_run_goes_on_in_another_app_after_the_answer(tmp_path: Path, database: str) -> None:
    """Nothing that was done is done again, and its history is there."""
    async with model_server("openai", ASKS, Reply("Well."), Reply("Still here.")) as server:
        async with kept_app(tmp_path, database, server) as app:
            first, _ = await run(app)
        async with kept_app(tmp_path, database, server) as app:
            await app.approvals.answer(first.pending[0], True)
            await app.agents.resume(first.id)
            assert (await app.agents.wait(first.id, SOON)).text == "Well."
            assert did(tmp_path) == ["post first", "risky x"]
        async with kept_app(tmp_path, database, server) as app:
            assert (await run(app, "And now?", run=first.id))[0].text == "Still here."
            assert len(told(server.asked[2], "openai")) == 2


async def test_a_worker_goes_on_with_a_run_once_it_is_answered(tmp_path: Path, database: str) -> None:
    async with model_server("openai", ASKS, Reply("Well.")) as server:
        async with kept_app(tmp_path, database, server) as app:
            begun = await app.agents.start("x", background=True)
            await app.jobs.run_all()
            waiting = await app.agents.wait(begun, SOON)
            assert waiting.status == "waiting"
            (job,) = await app.jobs.list()
            assert (job.type, job.state) == ("agent_run", "waiting")
        async with kept_app(tmp_path, database, server) as app:
            await app.approvals.answer(waiting.pending[0], True)
            await app.jobs.run_all()
            assert (await app.agents.wait(begun, SOON)).text == "Well."
            assert did(tmp_path) == ["post first", "risky x"]


async def test_a_run_that_was_left_waiting_by_an_app_is_taken_by_a_worker(tmp_path: Path, database: str) -> None:
    async with model_server("openai", ASKS, Reply("Well.")) as server:
        async with kept_app(tmp_path, database, server) as app:
            begun = await app.agents.start("x")
            waiting = await app.agents.wait(begun, SOON)
        async with kept_app(tmp_path, database, server) as app:
            await app.jobs.run_all()
            assert (await app.agents.show(begun)).run.status == "waiting"  # nobody has answered
            await app.approvals.answer(waiting.pending[0], True)
            await app.jobs.run_all()
            assert (await app.agents.wait(begun, SOON)).text == "Well."
            assert did(tmp_path) == ["post first", "risky x"]

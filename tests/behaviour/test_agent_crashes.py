"""Runs outlast their processes: real ones, killed at every point of a turn. No effect happens twice, and no result that was
there is lost."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent_process import LEASE_SECONDS, AgentProcess, opened
from tests.agents import by_speaker, calls, delegate, did, told
from tests.job_worker import noted
from tests.loopback import Asked, Said, Site
from tests.model_servers import Reply, _answering, model_server, model_settings
from tests.patience import until
from toolgate import App
from toolgate.agent.run import RunResult
from toolgate.errors import Failed

pytestmark = [pytest.mark.requirement("AGENT-1", "TIER-9")]
SOON = 60.0


class Crew:
    """The processes of a test; none outlives it."""

    def __init__(self) -> None:
        self.processes: list[AgentProcess] = []

    def hire(self, *words: Any) -> AgentProcess:
        self.processes.append(AgentProcess(*words))
        return self.processes[-1]

    def kill(self) -> None:
        for one in self.processes:
            one.kill()


@pytest.fixture
def crew() -> Iterator[Crew]:
    crew = Crew()
    yield crew
    crew.kill()


def model_of(server: Site, dialect: str = "openai") -> dict[str, Any]:
    return model_settings(dialect, server, secret=None)


async def begun(folder: Path) -> str:
    """The id of the run that a process has begun."""
    await until(lambda: noted(folder / "runs"), "a run has begun", SOON)
    return noted(folder / "runs")[0]


async def gone_on(app: App, id: str) -> RunResult:
    """Goes on with a run as soon as its process counts as dead, to its end."""

    async def is_taken() -> bool:
        try:
            await app.agents.resume(id)
        except Failed as error:
            assert "is under way" in str(error) or "waits" in str(error), error
            return False
        return True

    await until(is_taken, "the run is taken over", SOON)
    return await app.agents.wait(id, SOON)


@asynccontextmanager
async def crashed(
    folder: Path, database: str, crew: Crew, *answers: Any, dialect: str = "openai"
) -> AsyncIterator[tuple[App, Site, str]]:
    """A run whose process has died, and an App that can go on with it. An answer `None` kills the process when it is asked
    for, without an answer."""

    def killing(_asked: Asked) -> Said:
        crew.kill()
        return Said(500)

    made = [killing if answer is None else answer for answer in answers]
    async with model_server(dialect, *made) as server:
        process = crew.hire(database, folder, model_of(server, dialect))
        id = await begun(folder)
        await until(lambda: process.is_dead, "the process has died", SOON)
        async with opened(database, folder, model_of(server, dialect)) as app:
            yield app, server, id


async def test_killed_while_the_model_answers(tmp_path: Path, database: str, crew: Crew) -> None:
    async with crashed(tmp_path, database, crew, None, calls(("post", {"text": "x"})), Reply("Done.")) as (app, server, id):
        result = await gone_on(app, id)
        assert (result.status, result.text, did(tmp_path)) == ("done", "Done.", ["post x"])
        assert server.asked[0].json["messages"] == server.asked[1].json["messages"]


async def test_killed_after_the_results_came_and_before_the_model_was_told(
    tmp_path: Path, database: str, crew: Crew
) -> None:
    first = calls(("post", {"text": "x"}), ("add", {"a": 1, "b": 2}))
    async with crashed(tmp_path, database, crew, first, None, Reply("Done.")) as (app, server, id):
        result = await gone_on(app, id)
        assert (result.status, result.turns) == ("done", 2)
        assert sorted(did(tmp_path)) == ["add 1 2", "post x"]
        assert ["posted x" in told(server.asked[2], "openai")[0], len(server.asked)] == [True, 3]


async def test_killed_in_the_middle_of_a_call_with_an_effect(tmp_path: Path, database: str, crew: Crew) -> None:
    """Nobody knows whether it had its effect: the model is told that, and nothing that was known is lost."""
    turns = calls(("post", {"text": "x"})), calls(("add", {"a": 1, "b": 2}), ("die_writing", {"text": "y"}))
    async with crashed(tmp_path, database, crew, *turns, Reply("Done.")) as (app, server, id):
        result = await gone_on(app, id)
        effects = [what for what in did(tmp_path) if not what.startswith("add")]
        assert result.status == "done" and effects == ["post x", "die_writing y"]
        posted, added, unknown = told(server.asked[-1], "openai")
        assert "posted x" in posted and '"output":3' in added
        assert "OUTCOME_UNKNOWN" in unknown and "nobody knows how it ended" in unknown


async def test_killed_in_the_middle_of_a_call_that_only_reads(tmp_path: Path, database: str, crew: Crew) -> None:
    async with crashed(tmp_path, database, crew, calls(("die_reading", {"text": "y"})), Reply("Done.")) as (app, server, id):
        assert (await gone_on(app, id)).status == "done"
        assert "read y" in told(server.asked[1], "openai")[0]


async def test_killed_while_it_waits_for_a_person(tmp_path: Path, database: str, crew: Crew) -> None:
    asks = calls(("post", {"text": "x"}), ("risky", {"text": "y"}))
    async with model_server("openai", asks, Reply("Done.")) as server:
        process = crew.hire(database, tmp_path, model_of(server))
        id = await begun(tmp_path)
        async with opened(database, tmp_path, model_of(server)) as app:
            await until(lambda: _is(app, id, "waiting"), "it waits", SOON)
            process.kill()
            (question,) = await app.approvals.list()
            await app.approvals.answer(question.request.id, True)
            result = await gone_on(app, id)
            assert result.status == "done" and did(tmp_path) == ["post x", "risky y"]


@pytest.mark.matrix("three processes, one after the other; test_agent_subordinates has a subordinate go on after a restart")
async def test_killed_while_a_subordinate_works(tmp_path: Path, database: str, crew: Crew) -> None:
    """The call that it is in is made again, and finds its journal: what it did is not done again."""

    def killing(_asked: Asked) -> Said:
        crew.kill()
        return Said(500)

    answers = by_speaker(
        Do=[delegate(message="Help"), Reply("Well.")],
        Help=[
            calls(("post", {"text": "x"})),
            calls(("die_writing", {"text": "y"})),
            killing,
            calls(("risky", {"text": "z"})),
            Reply("Done."),
        ],
    )
    async with model_server("openai", answers) as server:
        process = crew.hire(database, tmp_path, model_of(server))
        id = await begun(tmp_path)
        await until(lambda: process.is_dead, "the process has died in the call", SOON)
        worker = crew.hire(database, tmp_path, model_of(server), "work")
        await until(lambda: worker.is_dead, "the next has died while the model answered", SOON)
        async with opened(database, tmp_path, model_of(server)) as app:
            waiting = await gone_on(app, id)
            assert waiting.status == "waiting", waiting
            await app.approvals.answer(waiting.pending[0], True)
            result = await gone_on(app, id)
            assert (result.status, result.text) == ("done", "Well.")
            assert Counter(did(tmp_path)) == {"post x": 1, "die_writing y": 1, "risky z": 1}
            posted, unknown, risked = told(server.asked[-2], "openai")
            assert "OUTCOME_UNKNOWN" in unknown and "did z" in risked and "posted x" in posted
            (child,) = (await app.agents.show(id)).subordinates
            assert (child.status, child.turns) == ("done", 4)


@pytest.mark.matrix("two processes, and the worker's own pace; the tests above take runs over by hand")
async def test_a_worker_takes_over_what_another_process_left(tmp_path: Path, database: str, crew: Crew) -> None:
    first = calls(("post", {"text": "x"}), ("risky", {"text": "y"}))
    async with model_server("openai", first, Reply("Done.")) as server:
        process = crew.hire(database, tmp_path, model_of(server))
        id = await begun(tmp_path)
        async with opened(database, tmp_path, model_of(server)) as app:
            await until(lambda: _is(app, id, "waiting"), "it waits", SOON)
            process.kill()
            crew.hire(database, tmp_path, model_of(server), "work")
            (question,) = await app.approvals.list()
            await app.approvals.answer(question.request.id, True)
            await until(lambda: _is(app, id, "done"), "a worker has gone on", SOON)
            assert did(tmp_path) == ["post x", "risky y"]


@pytest.mark.matrix("it waits for leases to be renewed; that only one drives a run is held by the tests above")
async def test_a_living_process_keeps_its_run(tmp_path: Path, database: str, crew: Crew) -> None:
    async with model_server("openai", calls(("slow", {"text": "x"})), Reply("Done.")) as server:
        crew.hire(database, tmp_path, model_of(server))
        id = await begun(tmp_path)
        await until(lambda: did(tmp_path), "the tool is called", SOON)
        async with opened(database, tmp_path, model_of(server)) as app:
            with pytest.raises(Failed, match="is under way"):
                await app.agents.resume(id)
            await asyncio.sleep(2 * LEASE_SECONDS)  # its sign of life is renewed
            await app.jobs.run_all()
            assert did(tmp_path) == ["slow x"]
            cancelled = await app.agents.cancel(id)  # but whoever it belongs to can end it from anywhere
            assert cancelled.status == "cancelled"
            (tmp_path / "go").touch()
            await asyncio.sleep(0.3)
            assert len(server.asked) == 1


async def _is(app: App, id: str, status: str) -> bool:
    return (await app.agents.show(id)).run.status == status


@pytest.mark.matrix("it kills processes at random for a while; the tests above hold each point of a turn")
async def test_killed_again_and_again_at_any_moment(tmp_path: Path, database: str, crew: Crew) -> None:
    turns = 12
    wanted = [calls(("post", {"text": f"{turn}a"}), ("post", {"text": f"{turn}b"})) for turn in range(turns)]
    at = 0

    def answer(asked: Asked) -> Said:
        """The answer by what the model was told, not by how often it was asked."""
        messages = [one for one in asked.json["messages"] if one["role"] == "assistant"]
        reply = wanted[len(messages)] if len(messages) < turns else Reply("Done.")
        return _answering("openai", reply)(asked)

    chance = random.Random(7)
    async with model_server("openai", answer) as server:
        process = crew.hire(database, tmp_path, model_of(server))
        id = await begun(tmp_path)
        deadline = time.monotonic() + 240
        async with opened(database, tmp_path, model_of(server)) as app:
            while True:
                await asyncio.sleep(chance.uniform(0.02, 0.4))
                process.kill()
                at += 1
                row = (await app.agents.show(id)).run
                if row.status == "done" or time.monotonic() > deadline:
                    break
                if at >= 4:  # a run that kills every process is given up: here somebody goes on with it by hand
                    assert (await gone_on(app, id)).status == "done"
                    break
                process = crew.hire(database, tmp_path, model_of(server), "work")
                await until(lambda at=at: len(noted(tmp_path / "workers")) >= at, "a worker has begun", SOON)  # type: ignore[misc]
                await _taken(app, id, process)
            run = (await app.agents.show(id)).run
            assert run.status == "done", run
            twice = {what: count for what, count in Counter(did(tmp_path)).items() if count > 1}
            results = told(server.asked[-1], "openai")
            assert not twice and len(results) == 2 * turns
            unknown = [one for one in results if "OUTCOME_UNKNOWN" in one]
            known = [one for one in results if "posted" in one]
            assert len(known) + len(unknown) == 2 * turns and len(unknown) <= 2 * at


async def _taken(app: App, id: str, process: AgentProcess) -> None:
    """Waits until a worker has the run, or it is over."""
    before = await _claims(app, id)

    async def is_taken() -> bool:
        run = (await app.agents.show(id)).run
        return run.status != "running" or await _claims(app, id) > before or process.is_dead

    await until(is_taken, "a worker has taken it", SOON)


async def _claims(app: App, id: str) -> int:
    def read() -> Any:
        rows = yield "SELECT claims FROM agent_runs WHERE id = :id", {"id": id}
        return int(rows[0][0])

    count: int = await app.parts.store.read(read())
    return count

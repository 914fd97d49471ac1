"""Runs without anybody at hand: as jobs, taken over by workers, ended with the key or the job that they came with."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.agents import ADA, SOON, agency, calls, did, run, told
from tests.model_servers import Reply
from tests.patience import until
from toolgate import App, tool
from toolgate.model import LOCAL
from toolgate.store.database import Transaction
from toolgate.store.sql import value

pytestmark = [pytest.mark.requirement("AGENT-1", "JOB-1")]
SLOW = calls(("slow", {"text": "x"}))


async def status(app: App, id: str) -> str:
    found: str = await app.parts.store.read(value("SELECT status FROM agent_runs WHERE id = :id", {"id": id}))
    return found


async def changed(app: App, id: str, **changes: Any) -> None:
    """Changes the record of a run, as another process might have left it."""

    def work() -> Transaction[None]:
        yield (
            f"UPDATE agent_runs SET {', '.join(f'{name} = :{name}' for name in changes)} WHERE id = :id",
            {"id": id, **changes},
        )

    await app.parts.store.transact(work())


async def test_a_run_in_the_background_is_driven_by_a_worker(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", calls(("post", {"text": "x"})), Reply("Done.")) as (app, server):
        begun = await app.agents.start("x", background=True)
        assert not server.asked and await status(app, begun.id) == "running"
        async with app.jobs.worker():
            assert (await app.agents.wait(begun, SOON)).text == "Done."
        (job,) = await app.jobs.list()
        assert (job.type, job.state, job.result["status"], job.payload) == ("agent_run", "done", "done", {"run": begun.id})
        assert did(tmp_path) == ["post x"]
        more = await app.agents.say(begun, "And?", background=True)
        await app.jobs.run_all()
        assert (await app.agents.wait(more, SOON)).turns == 3


async def test_cancelling_its_job_cancels_a_run(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", SLOW, Reply("Done.")) as (app, _):
        begun = await app.agents.start("x", background=True)
        async with app.jobs.worker():
            await until(lambda: did(tmp_path))
            (job,) = await app.jobs.list()
            await app.jobs.cancel(job.id)
            await until(lambda: _is(app, begun.id, "cancelled"))


async def _is(app: App, id: str, wanted: str) -> bool:
    return await status(app, id) == wanted


async def test_a_worker_that_stops_leaves_a_run_to_the_next(tmp_path: Path) -> None:
    quick = {"drain_seconds": 0}
    async with agency(tmp_path, "openai", calls(("add", {"a": 1, "b": 1})), SLOW, Reply("Done."), jobs=quick) as (
        app,
        server,
    ):
        begun = await app.agents.start("x", background=True)
        async with app.jobs.worker():
            await until(lambda: "slow x" in did(tmp_path))
            (tmp_path / "go").touch()  # what is under way ends while the worker stops
        assert await status(app, begun.id) in ("running", "done")
        await app.jobs.run_all()
        assert (await app.agents.wait(begun, SOON)).text == "Done."
        assert did(tmp_path) == ["add 1 1", "slow x"] and len(server.asked) == 3


async def test_a_run_that_ends_every_process_is_given_up(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", Reply("Done.")) as (app, _):
        begun = await app.agents.start("x", background=True)
        await changed(app, begun.id, crashes=5, is_queued=False)
        await app.parts.run_takeover.sweep()
        shown = (await app.agents.show(begun)).run
        assert shown.status == "failed" and "5 processes died" in (shown.reason or "")
        await app.agents.resume(begun)  # by hand it may be tried again
        assert (await app.agents.wait(begun, SOON)).text == "Done."


async def test_a_run_that_somebody_drives_by_hand_is_taken_by_no_worker(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", calls(("risky", {"text": "x"})), Reply("Done.")) as (app, _):
        waiting, _ = await run(app)
        await app.approvals.answer(waiting.pending[0], True)
        await app.jobs.run_all()
        assert await status(app, waiting.id) == "waiting" and await app.jobs.list() == []


async def test_old_runs_are_forgotten_with_their_messages(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", Reply("Done."), agent={"keep_days": 1}) as (app, _):
        old, _ = await run(app)
        new, _ = await run(app)
        await changed(app, old.id, ended_at=app.parts.now() - timedelta(days=2))
        await app.parts.run_takeover.sweep()
        assert [one.id for one in await app.agents.list()] == [new.id]
        left = value("SELECT count(*) FROM agent_messages WHERE run_id = :id", {"id": old.id})
        assert await app.parts.store.read(left) == 0


async def test_a_run_ends_with_the_key_that_it_came_with(tmp_path: Path) -> None:
    always = {"asker_may_answer": "always"}
    async with agency(tmp_path, "openai", SLOW, Reply("Done."), approvals=always) as (app, server):
        key, _ = await app.keys.create("k", ADA)
        begun = await app.agents.start("x", actor=ADA, door="http")
        await until(lambda: did(tmp_path))
        await app.keys.revoke(key.id)
        (tmp_path / "go").touch()
        result = await app.agents.wait(begun, SOON, actor=ADA)
        assert result.status == "failed" and "No API key" in (result.reason or "") and len(server.asked) == 1


async def test_a_call_that_always_runs_as_a_job_is_waited_for(tmp_path: Path) -> None:
    @tool(tier="write", background=True)
    async def later(text: str) -> str:
        """Do something in the background."""
        return f"later {text}"

    async with agency(tmp_path, "openai", calls(("later", {"text": "x"})), Reply("Done.")) as (app, server):
        app.register(later)
        begun = await app.agents.start("x")
        waiting = await app.agents.wait(begun, SOON)
        assert waiting.status == "waiting" and waiting.reason == "It waits for later in the background."
        await app.jobs.run_all()
        await until(lambda: _is(app, begun.id, "done"))
        assert "later x" in told(server.asked[1], "openai")[0]


async def test_a_user_may_have_so_many_runs_at_once(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", SLOW, agent={"live_runs": 2}) as (app, _):
        runs = [await app.agents.start("x") for _ in range(2)]
        with pytest.raises(Exception, match="2 runs of this user are under way"):
            await app.agents.start("x")
        assert len(await app.grants.list()) == 2  # the third has left none
        await app.agents.cancel(runs[0])
        assert (await app.agents.start("x")).user == LOCAL.user
        (tmp_path / "go").touch()

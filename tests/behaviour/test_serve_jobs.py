"""Jobs beside the server: `toolgate serve` runs them, and an MCP client is told when a call became one."""

import asyncio
from pathlib import Path

import pytest

from tests.serving import serving
from toolgate import App, InvokeContext, tool
from toolgate.errors import CallError
from toolgate.jobs.job import Job
from toolgate.model import LOCAL

pytestmark = pytest.mark.requirement("JOB-1")
SOON = 20


class Desk:
    """Tools whose work is counted."""

    def __init__(self, app: App) -> None:
        self.done: list[str] = []
        self.begun = asyncio.Event()
        self.enough = asyncio.Event()

        @tool(tier="write", background=True)
        async def post(what: str) -> dict[str, str]:
            """Post something."""
            self.done.append(what)
            return {"posted": what}

        @tool(tier="write")
        async def slow(what: str) -> str:
            """Take long."""
            self.begun.set()
            await self.enough.wait()
            self.done.append(what)
            return what

        @tool(tier="read_only")
        async def odd(ctx: InvokeContext) -> str:
            """Say that it has got infinitely far."""
            await ctx.progress(float("inf"), float("nan"), "far")
            return "there"

        app.tools.register_many([post, slow, odd])


async def over(app: App, id: str) -> Job:
    job = await app.jobs.wait(id, SOON)
    assert job.is_over, job
    return job


async def test_a_call_of_a_background_tool_over_mcp_is_pending_with_its_job_which_the_server_runs(tmp_path: Path) -> None:
    async with App.open(database_url="memory://", home=tmp_path, entry_points=False) as app:
        desk = Desk(app)
        async with serving(app) as site:
            await site.with_key(app, LOCAL)
            listed = (await site.mcp("tools/list")).json["result"]["tools"]
            facts = next(one for one in listed if one["name"] == "post")["_meta"]["toolgate/tool"]
            assert facts["background"] is True
            answer = (await site.mcp("tools/call", {"name": "post", "arguments": {"what": "letter"}})).json["result"]
            told = answer["structuredContent"]
            assert (answer["isError"], told["status"], told["kind"]) == (True, "pending", "job")
            assert answer["_meta"]["toolgate/job"] == told["job"]
            assert f"queued as job {told['job']}" in answer["content"][0]["text"]
            assert (await over(app, told["job"])).state == "done"
        assert desk.done == ["letter"]


async def test_a_server_that_stops_waits_for_the_job_that_it_runs(tmp_path: Path) -> None:
    async with App.open(database_url="memory://", home=tmp_path, entry_points=False) as app:
        desk = Desk(app)
        async with serving(app):
            queued = await app.enqueue("slow", {"what": "letter"})
            assert queued.pending is not None
            await asyncio.wait_for(desk.begun.wait(), SOON)
            asyncio.get_running_loop().call_later(0.1, desk.enough.set)
        assert (await app.jobs.get(queued.pending.id)).state == "done" and desk.done == ["letter"]
        left = await app.enqueue("slow", {"what": "another"})
        assert left.pending is not None and (await app.jobs.wait(left.pending.id, 0.2)).state == "queued"


async def test_a_server_that_is_not_to_run_jobs_runs_none(tmp_path: Path) -> None:
    settings = {"home": tmp_path, "entry_points": False, "jobs": {"serve": False}}
    async with App.open(database_url="memory://", **settings) as app:
        desk = Desk(app)
        desk.enough.set()
        async with serving(app):
            queued = await app.enqueue("slow", {"what": "letter"})
            assert queued.pending is not None
            assert (await app.jobs.wait(queued.pending.id, 0.3)).state == "queued"
        assert desk.done == []


async def test_progress_that_no_json_can_say_keeps_nobody_from_looking(tmp_path: Path) -> None:
    async with App.open(database_url="memory://", home=tmp_path, entry_points=False) as app:
        Desk(app)
        queued = await app.enqueue("odd", {})
        assert queued.pending is not None
        await app.jobs.run_all()
        assert [job.state for job in await app.jobs.list()] == ["done"]


async def test_jobs_are_counted_by_type_and_state(tmp_path: Path) -> None:
    async with App.open(database_url="memory://", home=tmp_path, entry_points=False, metrics=True) as app:
        Desk(app)
        await app.enqueue("post", {"what": "letter"})
        await app.jobs.run_all()
        assert app.metrics is not None
        text = app.metrics.text().decode()
        assert 'toolgate_jobs_total{state="done",type="execute_tool"} 1.0' in text
        assert 'toolgate_job_seconds_count{type="execute_tool"} 1.0' in text


async def test_who_follows_a_job_is_given_each_change_until_it_is_over(tmp_path: Path) -> None:
    async with App.open(database_url="memory://", home=tmp_path, entry_points=False) as app:
        Desk(app)
        queued = await app.enqueue("post", {"what": "letter"})
        assert queued.pending is not None
        states = []
        async with asyncio.timeout(SOON):
            async for job in app.jobs.follow(queued.pending.id):
                states.append(job.state)
                if len(states) == 1:
                    await app.jobs.run_all()
        assert states[0] == "queued" and states[-1] == "done"
        with pytest.raises(CallError, match="There is no job"):
            await anext(app.jobs.follow("nothing"))


async def test_a_job_that_is_over_cannot_be_cancelled(tmp_path: Path) -> None:
    async with App.open(database_url="memory://", home=tmp_path, entry_points=False) as app:
        Desk(app)
        queued = await app.enqueue("post", {"what": "letter"})
        assert queued.pending is not None
        await app.jobs.run_all()
        with pytest.raises(CallError, match="nothing left to cancel"):
            await app.jobs.cancel(queued.pending.id)

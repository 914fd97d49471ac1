"""DBOS as the engine of jobs: what it must not do on its own. That jobs are run as on the other engine is in `test_jobs`."""

import asyncio
import base64
import pickle
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.test_job_crashes import Crew, crash
from tests.job_worker import Worker, register, settings
from toolgate import Actor, App, tool
from toolgate.errors import SettingsError
from toolgate.jobs.handlers import JobContext

pytestmark = [
    pytest.mark.requirement("JOB-1"),
    pytest.mark.matrix("an engine that is not the default; each start takes a second"),
]
ADA = Actor("acme", "analyst", "ada")
SOON = 30


def opened(home: Path, **jobs: Any) -> Any:
    return App.open(**settings(f"sqlite:///{home / 'toolgate.db'}", home, engine="dbos", **jobs))


def rows(home: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(home / "toolgate-dbos.db")) as connection:
        return connection.execute(sql).fetchall()


async def run_some(home: Path, count: int = 3) -> None:
    async with opened(home) as app:
        register(app, home)
        for number in range(count):
            await app.enqueue("post", {"key": f"a secret {number}"}, actor=ADA)
        await app.jobs.run_all()
        assert await app.jobs.counts(actor=ADA) == {"done": count}


async def test_it_keeps_ids_alone_as_json_in_a_durable_file_of_its_owner(tmp_path: Path) -> None:
    await run_some(tmp_path)
    await run_some(tmp_path / "other")
    kept = rows(tmp_path, "SELECT serialization, inputs, executor_id, application_version FROM workflow_status")
    assert len(kept) == 3 and {(form, version) for form, _, _, version in kept} == {("portable_json", "toolgate-1")}
    assert not any("secret" in str(inputs) for _, inputs, _, _ in kept)
    others = rows(tmp_path / "other", "SELECT executor_id FROM workflow_status")
    assert len({executor for _, _, executor, _ in kept}) == 1  # that of this App
    assert {executor for _, _, executor, _ in kept}.isdisjoint({executor for (executor,) in others})
    assert rows(tmp_path, "PRAGMA journal_mode") == [("wal",)]
    assert stat.S_IMODE((tmp_path / "toolgate-dbos.db").stat().st_mode) == 0o600


class Hostile:
    """Pickled, it makes a file when it is read."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


async def test_what_somebody_writes_into_its_tables_is_not_executed(tmp_path: Path) -> None:
    await run_some(tmp_path, 1)
    planted, mark = base64.b64encode(pickle.dumps(Hostile(tmp_path / "executed"))).decode(), tmp_path / "executed"
    with closing(sqlite3.connect(tmp_path / "toolgate-dbos.db")) as connection:
        connection.execute(
            "UPDATE workflow_status SET status = 'ENQUEUED', inputs = ?, output = ?, serialization = 'py_pickle', "
            "executor_id = NULL, queue_name = 'toolgate_jobs'", (planted, planted)
        )  # fmt: skip
        connection.commit()
    await run_some(tmp_path / "again", 1)
    async with opened(tmp_path) as app:
        register(app, tmp_path)
        async with app.jobs.worker():
            queued = await app.enqueue("post", {"key": "honest"}, actor=ADA)
            assert queued.pending is not None
            assert (await app.jobs.wait(queued.pending.id, SOON, actor=ADA)).state == "done"
    assert not mark.exists()
    pickle.loads(base64.b64decode(planted))
    assert mark.exists(), "the planted value would have done nothing anyway"


async def test_a_second_one_in_a_process_is_refused_in_words_and_one_after_the_other_is_not(tmp_path: Path) -> None:
    async with opened(tmp_path) as app, opened(tmp_path / "other") as other:
        async with app.jobs.worker():
            with pytest.raises(SettingsError, match="DBOS runs once in a process"):
                await other.jobs.run_all()
        await other.jobs.run_all()


async def test_it_needs_a_database(tmp_path: Path) -> None:
    async with App.open(**settings("memory://", tmp_path, engine="dbos")) as app:
        with pytest.raises(SettingsError, match="needs a database"):
            await app.jobs.run_all()


async def test_no_more_run_at_once_than_is_set_and_approvals_hold_no_place(tmp_path: Path) -> None:
    at_once, most = 0, 0

    async def count(_ctx: JobContext) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.05)
        at_once -= 1

    @tool(tier="execute")
    async def tidy(room: str) -> str:
        """Tidy a room."""
        return room

    async with opened(tmp_path) as app:
        app.register(tidy)
        app.parts.jobs.handlers.add("count", count)
        for number in range(4):  # each waits for a person, who never answers
            assert (await app.enqueue("tidy", {"room": str(number)}, actor=ADA)).pending is not None
        for _ in range(8):
            await app.jobs.enqueue("count", {}, actor=ADA)
        await app.jobs.run_all(concurrency=2)
        assert await app.jobs.counts(actor=ADA) == {"done": 8, "waiting": 4}
    assert most == 2


async def test_what_it_has_done_is_deleted_and_what_dead_workers_had(tmp_path: Path) -> None:
    await run_some(tmp_path, 2)
    with closing(sqlite3.connect(tmp_path / "toolgate-dbos.db")) as connection:
        connection.execute("UPDATE workflow_status SET created_at = 1000 WHERE rowid = 1")
        connection.execute("UPDATE workflow_status SET status = 'PENDING', executor_id = 'dead' WHERE rowid = 2")
        connection.commit()
    async with opened(tmp_path) as app, app.jobs.worker():
        async with asyncio.timeout(SOON):
            while rows(tmp_path, "SELECT 1 FROM workflow_status"):
                await asyncio.sleep(0.05)


def test_it_is_imported_by_workers_alone(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\nfrom toolgate import App\n"
        f"async def main():\n  async with App.open(home={str(tmp_path)!r}, entry_points=False, jobs={{'engine': 'dbos'}}):\n"
        "    print('dbos' in sys.modules)\nasyncio.run(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.requirement("JOB-4")
async def test_workers_are_killed_and_nothing_is_lost_or_done_twice(database: str, tmp_path: Path) -> None:
    crew = Crew()
    try:
        await crash(database, tmp_path, crew, 60, 2, pause=0.3, engine="dbos")
    finally:
        for worker in crew.workers:
            assert isinstance(worker, Worker)
            worker.kill()

"""Several processes on one database, and processes that die at the worst moment."""

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from toolgate import App
from toolgate.store import audit_log
from toolgate.store.database import Rows

ROOT = Path(__file__).resolve().parents[2]


def start(folder: Path, callers: int, calls: int, url: str | None) -> "subprocess.Popen[str]":
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.hostile.caller", str(folder), str(callers), str(calls), *([url] if url else [])]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def noted(folder: Path, what: str) -> list[str]:
    """Call ids in a note; the last line is dropped if the kill cut it short."""
    file = folder / what
    text = file.read_text() if file.exists() else ""
    return text.split("\n")[:-1]


async def everything(app: App) -> Rows:
    rows: Rows = []
    while page := await app.parts.store.read(audit_log.after(rows[-1][0] if rows else 0)):
        rows += page
    return rows


async def kill_repeatedly(folder: Path, url: str | None, rounds: int) -> None:
    chance = random.Random(20261115)
    unfinished = 0
    for turn in range(rounds):
        process = start(folder, 16, 1_000_000, url)
        before = len(noted(folder, "returned"))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if turn % 3:  # once it is under way; the others while they begin
            patience = time.monotonic() + 30
            while len(noted(folder, "returned")) == before and time.monotonic() < patience:
                time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.12))
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        process.stdout.close()
    async with App.open(home=folder / "home", database_url=url) as app:
        rows = await everything(app)
        started = {row[3] for row in rows if row[2] == "start"}
        ended = {row[3] for row in rows if row[2] == "end"}
        effects, returned = noted(folder, "effects"), noted(folder, "returned")
        assert len(returned) > rounds, "the processes were killed before they did anything"
        assert set(returned) <= ended, "an outcome was returned whose end is not on record"
        assert set(effects) <= started, "an effect happened whose start is not on record"
        assert ended <= started
        assert len(set(effects)) == len(effects)
        unfinished = len(started - ended)
        verdict = await app.audit.verify()
        assert verdict.ok, verdict.faults
    assert unfinished > 0, "no kill ever hit a running call, so this proves nothing"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str | None:
    if request.param == "sqlite":
        return None
    found: str = request.getfixturevalue("postgres_database")
    return found


@pytest.mark.requirement("AUD-3", "AUD-2")
async def test_kill_9_loses_no_record(tmp_path: Path, url: str | None) -> None:
    await kill_repeatedly(tmp_path, url, rounds=3)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.requirement("AUD-3", "AUD-2")
async def test_kill_9_fifty_times_loses_no_record(tmp_path: Path, url: str | None) -> None:
    await kill_repeatedly(tmp_path, url, rounds=50)


@pytest.mark.requirement("AUD-2", "REG-2")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_processes_that_write_at_once_lose_nothing_and_the_chain_holds(tmp_path: Path, url: str | None) -> None:
    processes = [start(tmp_path, 8, 100, url) for _ in range(2)]
    for process in processes:
        out, _ = await asyncio.to_thread(process.communicate, timeout=250)
        assert (process.returncode, out) == (0, "ready\n")
    async with App.open(home=tmp_path / "home", database_url=url) as app:
        rows = await everything(app)
        returned = noted(tmp_path, "returned")
        assert len(set(returned)) == 2 * 8 * 100
        for kind in ("start", "end"):
            assert {row[3] for row in rows if row[2] == kind} == set(returned)
        assert len(rows) == 2 * len(returned)
        verdict = await app.audit.verify()
        assert (verdict.ok, verdict.faults) == (True, [])


@pytest.mark.matrix("starts a process that never rests")
@pytest.mark.requirement("AUD-3")
async def test_a_read_that_returned_is_on_disk_soon_even_if_the_event_loop_never_rests(tmp_path: Path) -> None:
    """Only the writer's own thread can have saved it. The promise is 50 ms; a shared machine is given half of the time in
    which the loop does not rest."""
    script = (
        "import asyncio, sys, time\n"
        "from toolgate import App\n"
        "async def main():\n"
        f"    async with App.open(home={str(tmp_path / 'home')!r}) as app:\n"
        "        outcome = await app.invoke('echo', {'text': 'x'})\n"
        "        print(outcome.id, flush=True)\n"
        "        end = time.monotonic() + 60\n"
        "        while time.monotonic() < end: pass\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    call_id = process.stdout.readline().strip()
    patience = time.monotonic() + 30
    with closing(sqlite3.connect(f"file:{tmp_path / 'home' / 'toolgate.db'}?mode=ro", uri=True)) as database:
        while database.execute("SELECT count(*) FROM audit_log WHERE call_id = ?", (call_id,)).fetchone() != (2,):
            assert time.monotonic() < patience, "it is not on disk"
            time.sleep(0.01)
    process.kill()
    process.wait(30)
    process.stdout.close()
    async with App.open(home=tmp_path / "home") as app:
        assert [row[2] for row in await app.parts.store.read(audit_log.of_call(call_id))] == ["start", "end"]


@pytest.mark.requirement("AUD-3")
async def test_an_outcome_of_tier_write_that_was_returned_is_on_record_whatever_it_was(tmp_path: Path) -> None:
    """The process is killed the moment it has its outcomes: one waits for a person, one was invalid, one failed."""
    script = (
        "import asyncio, os, signal\n"
        "from toolgate import App, tool\n"
        "@tool(tier='write')\n"
        "async def put(n: int) -> int:\n"
        "    'Put.'\n"
        "    raise ValueError('no')\n"
        "@tool(tier='execute')\n"
        "async def run() -> int:\n"
        "    'Run.'\n"
        "    return 1\n"
        "async def main():\n"
        f"    async with App.open(home={str(tmp_path / 'home')!r}) as app:\n"
        "        app.register(put); app.register(run)\n"
        "        for name, arguments in (('run', {}), ('put', {'n': 'x'}), ('put', {'n': 1})):\n"
        "            outcome = await app.invoke(name, arguments)\n"
        "            print(outcome.id, outcome.status, flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script], capture_output=True, text=True, timeout=250, check=False
    )
    returned = [line.split() for line in done.stdout.splitlines()]
    assert [status for _, status in returned] == ["pending", "failure", "failure"]
    async with App.open(home=tmp_path / "home") as app:
        for call_id, status in returned:
            assert [row[6] for row in await app.parts.store.read(audit_log.of_call(call_id))][-1] == status

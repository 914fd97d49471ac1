"""An undo that is killed half way can be run again, and two that run at once do not meet."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.undoing import ANN, a_call, tree
from toolgate.model import Call
from toolgate.store.database import Store, open_store
from toolgate.undo import Journal, NotUndone

pytestmark = pytest.mark.requirement("TIER-2")
ROOT = Path(__file__).resolve().parents[2]
FILES = 120
UNDO = """
import asyncio, json, sys
from pathlib import Path
from toolgate import Actor
from toolgate.undo import Journal, NotUndone
from toolgate.store.database import open_store

async def main(url, backups, call_id):
    store = open_store(url, None)
    await store.start()
    print("ready", flush=True)
    try:
        done = await Journal(store, Path(backups), 10_000_000, 30).undo(call_id, Actor("acme", user="ann"))
        print(json.dumps([one.done for one in done]))
    except NotUndone as error:
        print(json.dumps(error.message))
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def changed(journal: Journal, work: Path) -> tuple[dict[str, tuple[object, ...]], Call]:
    """A call that changed a folder of files, removed one and made one; and what there was before it."""
    for folder in ("changed", "removed"):
        (work / folder).mkdir(parents=True)
        for number in range(FILES):
            (work / folder / f"{number:03}").write_text(f"old {number}")
    before, call = tree(work), a_call()
    async with journal.changing(call, work / "changed"):
        for file in (work / "changed").iterdir():
            file.write_text("new")
    async with journal.changing(call, work / "removed"):
        shutil.rmtree(work / "removed")
    async with journal.changing(call, work / "made"):
        (work / "made").mkdir()
        for number in range(FILES):
            (work / "made" / f"{number:03}").write_text("new")
    return before, call


def start(url: str, backups: Path, call: Call) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", UNDO, url, str(backups), call.id]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def reached(work: Path, moment: str) -> bool:
    middle = f"{FILES // 2:03}"
    if moment == "removing":
        return not (work / "made" / middle).exists()
    if moment == "restoring":
        return (work / "removed" / middle).exists()
    return (work / "changed" / middle).read_text() != "new"


def wait_until(work: Path, moment: str, process: "subprocess.Popen[str]") -> None:
    patience = time.monotonic() + 60
    while not reached(work, moment):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < patience


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'toolgate.db'}"


async def opened(url: str) -> Store:
    store = open_store(url, None)
    await store.start()
    return store


@pytest.mark.matrix("kills processes at each place")
@pytest.mark.parametrize("moment", ["removing", "changing", "restoring"])
async def test_an_undo_that_is_killed_half_way_can_be_run_again(tmp_path: Path, url: str, moment: str) -> None:
    work, backups = tmp_path / "work", tmp_path / "backups"
    store = await opened(url)
    before, call = await changed(Journal(store, backups, 10_000_000, 30), work)
    await store.close()
    after = tree(work)

    process = start(url, backups, call)
    wait_until(work, moment, process)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    assert process.stdout is not None
    process.stdout.close()
    half_way = tree(work)
    assert half_way not in (before, after), "the kill came too early or too late, so this proves nothing"

    again = start(url, backups, call)
    out, _ = again.communicate(timeout=60)
    done = json.loads(out.removeprefix("ready\n"))
    assert set(done) >= {"restored", "unchanged"}
    assert tree(work) == before

    store = await opened(url)
    with pytest.raises(NotUndone, match="undone already"):
        await Journal(store, backups, 10_000_000, 30).undo(call.id, ANN)
    await store.close()
    assert tree(work) == before


@pytest.mark.matrix("starts several processes")
async def test_two_processes_do_not_undo_the_same_call_at_once(tmp_path: Path, url: str) -> None:
    work, backups = tmp_path / "work", tmp_path / "backups"
    store = await opened(url)
    journal = Journal(store, backups, 10_000_000, 30)
    before, call = await changed(journal, work)
    process = start(url, backups, call)
    wait_until(work, "removing", process)
    with pytest.raises(NotUndone, match="by another process"):
        await journal.undo(call.id, ANN, force=True)
    out, _ = process.communicate(timeout=60)
    assert "restored" in json.loads(out.removeprefix("ready\n"))
    assert tree(work) == before
    await store.close()

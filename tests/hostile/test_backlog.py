"""A record that was handed over is on disk within 50 ms, however fast calls come: callers are slowed before that breaks.

What a busy machine adds is measured while the test runs, by a thread that writes to the same disk, and allowed for.
"""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.flooder import HEAD, NOTE, Stalls, look
from toolgate import App
from toolgate.store import audit_log
from toolgate.store.writer import MAX_WRITE_SECONDS, AwaitedWrite

pytestmark = pytest.mark.requirement("AUD-3")


ROUNDS = 3
"""Of which one has to keep the bound: a stall may fall between two looks of the thread that measures them. Were callers not
slowed, every round would break it."""


def allowed(stall: float, slowdown: float, waits: int = 2) -> float:
    """The bound, on a machine that takes so much longer for everything, and that keeps the writer waiting for the processor
    and for the disk: once for each of the two batches that a record may have to wait for; with a server, which needs the
    processor too, also for its answers. Were callers not slowed, it would be most of the time that the test takes."""
    return MAX_WRITE_SECONDS * slowdown + waits * stall


def said(oldest: float, stall: float, slowdown: float) -> str:
    return f"{oldest * 1000:.0f} ms, stalls of {stall * 1000:.0f} ms, {slowdown:.1f} times as slow"


class Ages:
    """When each record was handed over, and how old it was when its batch was on disk."""

    def __init__(self, store: Any) -> None:
        self.oldest = 0.0
        self.count = 0
        self._given: dict[int, tuple[float, Any]] = {}
        self._append, self._commit = store.append, store._commit
        store.append, store._commit = self.append, self.commit

    def append(self, record: Any) -> None:
        self._given[id(record)] = (time.monotonic(), record)
        self._append(record)

    def commit(self, batch: list[Any]) -> Any:
        answers = self._commit(batch)
        now = time.monotonic()
        for item in batch:
            found = None if isinstance(item, AwaitedWrite) else self._given.pop(id(item), None)
            if found is not None:
                self.count += 1
                self.oldest = max(self.oldest, now - found[0])
        return answers


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'toolgate.db'}"
    found: str = request.getfixturevalue("postgres_database")
    return found


@pytest.mark.matrix("floods for a while")
@pytest.mark.parametrize(("callers", "calls"), [(1, 15_000), (64, 250), (4_000, 4)], ids=["one", "many", "a crowd"])
async def test_no_record_waits_longer_than_the_bound_whatever_comes(
    tmp_path: Path, url: str, callers: int, calls: int
) -> None:
    async with App.open(home=tmp_path / "home", database_url=url, entry_points=False) as app:
        app.register(look)
        await app.invoke("look", {"number": 0})
        await app.flush()
        ages = Ages(app.parts.store)
        waits = (2 if url.startswith("sqlite") else 6) * (2 if callers > 1_000 else 1)

        async def call() -> None:
            for number in range(calls):
                assert (await app.invoke("look", {"number": number})).ok

        found = []
        for _ in range(ROUNDS):
            ages.oldest = ages.count = 0
            stalls = Stalls(tmp_path)
            await asyncio.gather(*(call() for _ in range(callers)))
            await app.flush()
            stall, slowdown = stalls.end()
            assert ages.count == 2 * callers * calls
            if ages.oldest <= allowed(stall, slowdown, waits):
                return
            found.append(said(ages.oldest, stall, slowdown))
        pytest.fail("; ".join(found))


@pytest.mark.matrix("floods for a while")
async def test_also_calls_that_never_start_are_slowed(tmp_path: Path) -> None:
    """A call with arguments that do not fit has an end record only."""
    async with App.open(home=tmp_path / "home", entry_points=False) as app:
        app.register(look)
        await app.flush()
        ages = Ages(app.parts.store)
        stalls = Stalls(tmp_path)
        for _ in range(15_000):
            await app.invoke("look", {"number": "none"})
        await app.flush()
        stall, slowdown = stalls.end()
        assert ages.count == 15_000
        assert ages.oldest <= allowed(stall, slowdown), said(ages.oldest, stall, slowdown)


@pytest.mark.matrix("kills processes in a flood")
@pytest.mark.parametrize("callers", [1, 64])
async def test_kill_9_in_a_flood_loses_no_outcome_that_was_returned_50_ms_before(tmp_path: Path, callers: int) -> None:
    words = [sys.executable, "-m", "tests.hostile.flooder", str(tmp_path), str(callers)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        deadline = time.monotonic() + 60
        while _count(tmp_path / "noted") < 20_000 and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        killed = time.monotonic()
        process.kill()
    content = (tmp_path / "noted").read_bytes()
    count, stall, slowdown = HEAD.unpack_from(content)
    assert count >= 20_000
    returned = {call.decode(): at for at, call in NOTE.iter_unpack(content[HEAD.size : HEAD.size + count * NOTE.size])}
    async with App.open(home=tmp_path / "home", entry_points=False) as app:
        seq = 0
        ended: set[str] = set()
        while rows := await app.parts.store.read(audit_log.after(seq)):
            seq = rows[-1][0]
            ended.update(row[3] for row in rows if row[2] == "end")
        verdict = await app.audit.verify()
    assert verdict.ok, verdict.faults
    oldest = max((killed - at for call, at in returned.items() if call not in ended), default=0.0)
    assert oldest <= allowed(stall, slowdown), said(oldest, stall, slowdown)


def _count(file: Path) -> int:
    with file.open("rb") as opened:
        count: int = HEAD.unpack(opened.read(HEAD.size))[0]
    return count

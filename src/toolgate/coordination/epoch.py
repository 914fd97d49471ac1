"""Notices between processes on one machine that share a SQLite file: counters in a small file beside it, mapped into the
memory of each process. A change that one process announced is seen by the very next call in another.

The file holds two numbers of eight bytes: how often data changed, and how often anything was announced. Texts do not
travel: other processes' watchers are told "" within a tenth of a second.
"""

import asyncio
import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from toolgate.coordination.notices import DATA, Notices
from toolgate.coordination.redis import BusError
from toolgate.tasks import start_task, stop_tasks

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

SIZE = 16
CHANGES, NOTICES = 0, 1
POLL_SECONDS = 0.1


class EpochNotices(Notices):
    """Counters in a file."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._descriptor = -1
        self._counters = memoryview(bytearray(SIZE)).cast("Q")
        self._noticed = 0
        self._polling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
            if os.fstat(self._descriptor).st_size < SIZE:
                os.ftruncate(self._descriptor, SIZE)  # what it adds is zeros, so it does no harm if two do it
            self._counters = memoryview(mmap.mmap(self._descriptor, SIZE)).cast("Q")
        except OSError as error:
            await self.close()
            raise BusError(
                f"{self._file} can't be used: {error.strerror}.", suggestion="Check who owns the folder of the database."
            ) from error
        self._seen, self._noticed = self._counters
        self._polling = start_task(self._poll())

    async def close(self) -> None:
        await stop_tasks(self._polling)
        self._polling = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        # The map itself goes with the last view of it; who asks after this finds that nothing changes any more.
        self._counters = memoryview(bytearray(self._counters)).cast("Q")

    async def announce(self, topic: str, text: str = "") -> None:
        with self._alone():
            if topic == DATA:
                self._counters[CHANGES] += 1
            self._counters[NOTICES] += 1
            noticed = self._counters[NOTICES]
        if noticed == self._noticed + 1:
            self._noticed = noticed  # it was only us: nobody here has to look
        self._tell(topic, text)

    def changed(self) -> bool:
        return self._counters[CHANGES] != self._seen

    def _mark(self) -> int:
        return self._counters[CHANGES]

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process adds to the counters meanwhile: to add is to read, then to write."""
        if fcntl is None or self._descriptor < 0:
            yield
            return
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            noticed = self._counters[NOTICES]
            if noticed != self._noticed:
                self._noticed = noticed
                self._may_have_missed()

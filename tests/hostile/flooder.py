"""A process that calls a tool of tier read_only as fast as it can, and notes when it was given which outcome.

    python -m tests.hostile.flooder FOLDER CALLERS

Notes go to FOLDER/noted, a file in memory that outlives a kill: how many, the longest that this machine kept a thread
waiting for a small durable write, how much slower it works than if it had nothing else to do, then the moment and the call
of each. Prints `ready` before the first call.
"""

import asyncio
import mmap
import os
import struct
import sys
import threading
import time
from pathlib import Path

from toolgate import App, tool

MOST = 400_000
HEAD = struct.Struct("<qdd")
NOTE = struct.Struct("<d36s")


class Stalls:
    """Measures how long the machine, busy with other things, makes a thread wait for a small write to disk, and how much
    more time it takes for everything."""

    def __init__(self, folder: Path) -> None:
        self.longest = 0.0
        self._began, self._worked = time.monotonic(), time.process_time()
        self._file = os.open(folder / "stalls", os.O_WRONLY | os.O_CREAT, 0o600)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)
        self._thread.start()

    def _measure(self) -> None:
        while not self._ended.is_set():
            begun = time.monotonic()
            os.pwrite(self._file, b"x" * 512, 0)
            os.fsync(self._file)
            time.sleep(0.005)
            self.longest = max(self.longest, time.monotonic() - begun - 0.005)

    @property
    def slowdown(self) -> float:
        """The time that has passed, to that of the processor which this process got of it; 1 on a machine of its own."""
        worked = time.process_time() - self._worked
        return max(1.0, (time.monotonic() - self._began) / worked) if worked else 1.0

    def end(self) -> tuple[float, float]:
        """The longest wait, and the slowdown."""
        slowdown = self.slowdown
        self._ended.set()
        self._thread.join()
        os.close(self._file)
        return self.longest, slowdown


@tool(tier="read_only")
async def look(number: int) -> int:
    """Looks."""
    return number


async def main(folder: Path, callers: int) -> None:
    with (folder / "noted").open("w+b") as file:
        file.truncate(HEAD.size + MOST * NOTE.size)
        notes = mmap.mmap(file.fileno(), 0)
    stalls = Stalls(folder)
    count = 0

    async with App.open(home=folder / "home", entry_points=False) as app:
        app.register(look)
        await app.flush()
        sys.stdout.write("ready\n")
        sys.stdout.flush()

        async def call() -> None:
            nonlocal count
            while count < MOST:
                outcome = await app.invoke("look", {"number": count})
                NOTE.pack_into(notes, HEAD.size + count * NOTE.size, time.monotonic(), outcome.id.encode())
                count += 1
                HEAD.pack_into(notes, 0, count, stalls.longest, stalls.slowdown)

        await asyncio.gather(*(call() for _ in range(callers)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))

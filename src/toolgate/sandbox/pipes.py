"""The three pipes of a child process, read and written by the event loop: no thread is kept for them."""

import asyncio
import os
import subprocess
from contextlib import suppress
from typing import IO


class Pipes:
    """What is said to a process and heard of it. Made on the thread of the loop that will use it."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self._writing = asyncio.Lock()
        for pipe in self._pipes():
            os.set_blocking(pipe.fileno(), False)

    def _pipes(self) -> list[IO[bytes]]:
        return [pipe for pipe in (self._child.stdin, self._child.stdout, self._child.stderr) if pipe is not None]

    async def write(self, data: bytes) -> None:
        """To its stdin, one after another. What can't be delivered any more is dropped."""
        async with self._writing:
            pipe, rest = self._child.stdin, memoryview(data)
            while rest and pipe is not None and not pipe.closed:
                try:
                    rest = rest[os.write(pipe.fileno(), rest) :]
                except BlockingIOError:
                    await self._ready(pipe, writing=True)
                except OSError:
                    return

    async def close_stdin(self) -> None:
        """It finds the end of its input."""
        if self._child.stdin is not None:
            self._close_pipe(self._child.stdin)

    async def read(self, most: int) -> bytes:
        """The next bytes of its stdout; empty at the end."""
        return await self._read(self._child.stdout, most)

    async def read_errors(self, most: int) -> bytes:
        """The next bytes of its stderr; empty at the end."""
        return await self._read(self._child.stderr, most)

    async def _read(self, pipe: IO[bytes] | None, most: int) -> bytes:
        # Whoever floods us must not keep everybody else from their turn.
        await asyncio.sleep(0)
        while pipe is not None and not pipe.closed:
            try:
                return os.read(pipe.fileno(), most)
            except BlockingIOError:
                await self._ready(pipe, writing=False)
        return b""

    async def _ready(self, pipe: IO[bytes], *, writing: bool) -> None:
        """Wait until the pipe can be used again, or is closed."""
        number, loop = pipe.fileno(), self._loop
        turn: asyncio.Future[None] = loop.create_future()
        (loop.add_writer if writing else loop.add_reader)(number, wake, turn)
        self._waiting.add(turn)
        try:
            await turn
        finally:
            self._waiting.discard(turn)
            if not pipe.closed:
                (loop.remove_writer if writing else loop.remove_reader)(number)

    def close_pipes(self) -> None:
        """All of them."""
        for pipe in self._pipes():
            self._close_pipe(pipe)

    def _close_pipe(self, pipe: IO[bytes]) -> None:
        if pipe.closed:
            return
        self._loop.remove_reader(pipe.fileno())
        self._loop.remove_writer(pipe.fileno())
        with suppress(OSError):
            pipe.close()
        for turn in list(self._waiting):  # whoever waits for it looks again
            wake(turn)


def wake(turn: asyncio.Future[None]) -> None:
    """Let whoever waits go on."""
    if not turn.done():
        turn.set_result(None)

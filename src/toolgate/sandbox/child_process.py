"""A child process and its three pipes, which the event loop reads, writes and waits for: no thread is kept for it."""

import asyncio
import os
import select
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from toolgate.sandbox.jail import Stopped
from toolgate.tasks import finish, start_task

SIGNAL_EXIT_CODE = 128
"""Launchers say so much more than the number of the signal that ended the program."""


def spawn(argv: Sequence[str], environment: Mapping[str, str], pass_fds: Iterable[int]) -> subprocess.Popen[bytes]:
    """Start a program, by its whole path, with only this environment. Raises OSError."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        pass_fds=tuple(pass_fds),
        env=dict(environment),
        cwd="/",
        start_new_session=True,
    )


class ChildProcess(ABC):
    """The input, output and end of a process. Made on the thread of the loop that will use it."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.pid = child.pid
        self.stopped: Stopped | None = None
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._closing: asyncio.Future[None] | None = None
        self._handle = os.pidfd_open(child.pid)
        self._loop.add_reader(self._handle, self._on_end)
        self._waiting: set[asyncio.Future[None]] = set()
        self._writing = asyncio.Lock()
        for pipe in self._pipes():
            os.set_blocking(pipe.fileno(), False)

    def _pipes(self) -> list[IO[bytes]]:
        return [pipe for pipe in (self._child.stdin, self._child.stdout, self._child.stderr) if pipe is not None]

    def is_alive(self) -> bool:
        """Asks the kernel: the loop may not have been told yet."""
        return self._handle >= 0 and not has_ended(self._handle)

    async def wait(self) -> int:
        code = await finish(self._ended)
        return SIGNAL_EXIT_CODE - code if code > SIGNAL_EXIT_CODE else code

    def _on_end(self) -> None:
        code = self._child.poll()
        if code is None:
            return
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        self._handle = -1
        if not self._ended.done():
            self._ended.set_result(code)

    @property
    def closed(self) -> bool:
        return self._closing is not None

    async def close(self) -> None:
        if self._closing is None:
            self._closing = start_task(self._close())
        await finish(self._closing)

    @abstractmethod
    async def _close(self) -> None: ...

    # -- its pipes

    async def write(self, data: bytes) -> None:
        """One after another."""
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
        if self._child.stdin is not None:
            self._close_pipe(self._child.stdin)

    async def read(self, most: int) -> bytes:
        return await self._read(self._child.stdout, most)

    async def read_errors(self, most: int) -> bytes:
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


def has_ended(*handles: int) -> bool:
    """True if one of these processes, by their pidfds, has ended."""
    ends = select.poll()
    for handle in handles:
        ends.register(handle, select.POLLIN)
    return bool(ends.poll(0))


def wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)

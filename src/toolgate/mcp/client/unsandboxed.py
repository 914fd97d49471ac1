"""A server's program without a jail, as a `JailedProcess`: it gets only the given environment, and `subreaper` ends all of
it when we are gone. It must be started on the event loop's own thread."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from toolgate.sandbox.jail import Stopped
from toolgate.sandbox.pipes import Pipes
from toolgate.tasks import finish, start_task

SUBREAPER = Path(__file__).with_name("subreaper.py")
SIGNAL_EXIT_BASE = 128
END_SECONDS = 6.0
"""Seconds for the subreaper to end everything; after that it is killed itself."""


async def start(argv: Sequence[str], environment: Mapping[str, str], cwd: Path | None) -> "UnsandboxedProcess":
    """Starts a program by its full path, with only this environment. Raises OSError."""
    inner, outer = os.pipe()
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SUBREAPER), str(inner), str(os.getpid()), str(cwd or "/"), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=(inner,),
            env=dict(environment),
            cwd="/",
            start_new_session=True,
        )
    except BaseException:
        os.close(outer)
        raise
    finally:
        os.close(inner)
    return UnsandboxedProcess(child, outer)


class UnsandboxedProcess(Pipes):
    """A program and its subreaper."""

    def __init__(self, child: subprocess.Popen[bytes], order: int) -> None:
        super().__init__(child)
        self.pid = child.pid
        """The subreaper's; it passes SIGTERM on."""
        self.stopped: Stopped | None = None
        self.busy = True
        self._order = order
        self._killed = False
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._closing: asyncio.Future[None] | None = None
        self._handle = os.pidfd_open(child.pid)
        self._loop.add_reader(self._handle, self._on_end)

    def is_alive(self) -> bool:
        return not self._ended.done() and self._child.poll() is None

    def uppers(self) -> list[int]:
        """No layers lie over what it writes."""
        return []

    # How it ends

    async def wait(self) -> int:
        """Its exit code; minus the number of the signal that ended it."""
        code = await finish(self._ended)
        return SIGNAL_EXIT_BASE - code if code > SIGNAL_EXIT_BASE else code

    def terminate(self) -> None:
        if not self._ended.done():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGTERM)

    def kill(self, why: Stopped | None = None) -> None:
        """Ends it and everything that it started. Does not wait; may be called twice."""
        if not self._killed:
            self._killed = True
            if not self._ended.done():
                self.stopped = why
            os.close(self._order)

    async def close(self) -> None:
        """Kills it, and waits until all of it is gone."""
        if self._closing is None:
            self._closing = start_task(self._close_all())
        await finish(self._closing)

    async def _close_all(self) -> None:
        self.kill()
        try:
            async with asyncio.timeout(END_SECONDS):
                await finish(self._ended)
        except TimeoutError:
            self._child.kill()  # what it started is tied to its life
            await finish(self._ended)
        finally:
            self.close_pipes()

    def _on_end(self) -> None:
        code = self._child.poll()
        if code is None:
            return
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        if not self._ended.done():
            self._ended.set_result(code if code >= 0 else SIGNAL_EXIT_BASE - code)

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

from toolgate.sandbox.child_process import ChildProcess, spawn
from toolgate.sandbox.jail import Stopped
from toolgate.tasks import finish

SUBREAPER = Path(__file__).with_name("subreaper.py")
END_SECONDS = 6.0
"""Seconds for the subreaper to end everything; after that it is killed itself."""


async def start(argv: Sequence[str], environment: Mapping[str, str], cwd: Path | None) -> "UnsandboxedProcess":
    """Starts a program by its full path, with only this environment. Raises OSError."""
    inner, outer = os.pipe()
    try:
        command = [sys.executable, "-I", "-S", str(SUBREAPER), str(inner), str(os.getpid()), str(cwd or "/"), *argv]
        child = spawn(command, environment, (inner,))
    except BaseException:
        os.close(outer)
        raise
    finally:
        os.close(inner)
    return UnsandboxedProcess(child, outer)


class UnsandboxedProcess(ChildProcess):
    """A program and its subreaper, whose number is `pid`: it passes SIGTERM on."""

    def __init__(self, child: subprocess.Popen[bytes], order: int) -> None:
        super().__init__(child)
        self.busy = True
        self._order = order
        self._killed = False

    def uppers(self) -> list[int]:
        """No layers lie over what it writes."""
        return []

    # How it ends

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

    async def _close(self) -> None:
        self.kill()
        try:
            async with asyncio.timeout(END_SECONDS):
                await finish(self._ended)
        except TimeoutError:
            self._child.kill()  # what it started is tied to its life
            await finish(self._ended)
        finally:
            self.close_pipes()

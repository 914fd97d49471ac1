"""The implementation of `jail.JailedProcess`: a process that some jail's launcher started, and everything below it.

No thread is kept for it: its end is told by a pidfd, its pipes are read by the event loop when somebody asks. It must be
started on the loop's own thread, since jails tie a process to the life of the thread that started it.
"""

import asyncio
import logging
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from toolgate.sandbox.child_process import ChildProcess, has_ended, spawn, wake
from toolgate.sandbox.jail import Jail, ProjectedEntry, Spec, Stopped, Unavailable
from toolgate.sandbox.jails import watchdog
from toolgate.sandbox.jails.launch import Launch
from toolgate.sandbox.jails.process_tree import descendants, is_first, parent_of
from toolgate.tasks import finish, start_task
from toolgate.threads import to_thread

TOLD_SECONDS = 2.0
"""The time that a launcher that is no longer wanted may take to name the first process inside."""
END_SECONDS = 2.0
"""After it, a launcher that was asked to end everything is no longer asked."""
LAST_SECONDS = 1.0
"""The time that the killed may take to go. One that the kernel itself holds up, on a stuck disk say, goes when it can."""

Begun = TypeVar("Begun")
logger = logging.getLogger("toolgate.sandbox")

_CHILD = re.compile(rb'"child-pid":\s*(\d+)\s*[,}\n]')


def begin(launch: Launch, make: Callable[[subprocess.Popen[bytes]], Begun]) -> Begun:
    """Start it. Whatever was made for it is gone again if that fails."""
    try:
        child = spawn(launch.argv, launch.environment, (number for ends in launch.ends() for number in ends.inner))
    except BaseException as error:
        launch.undo()
        if isinstance(error, OSError):
            raise Unavailable(f"{launch.argv[0]} could not be started: {error.strerror or error}.") from error
        raise
    finally:
        for ends in launch.ends():
            ends.close_inner()
    try:
        return make(child)
    except OSError as error:
        child.kill()
        with child:
            launch.undo()
        raise Unavailable(f"A process cannot be watched: {error.strerror or error}.") from error


class Process(ChildProcess):
    """A jailed process."""

    def __init__(self, child: subprocess.Popen[bytes], launch: Launch, spec: Spec) -> None:
        super().__init__(child)
        self.init: int | None = None
        """The host's number of the first process inside, while it is known and alive."""
        self._busy = True
        self.spec = spec
        self.launch = launch
        self._named = asyncio.Event()
        """Set once the first process inside is known; or never will be."""
        self._said = b""
        self._killed = False
        self._init_handle = -1
        if launch.told:
            self._loop.add_reader(launch.told.outer, self._on_told)
        else:
            self._named.set()
        self._watchdog = watchdog.of_loop()
        if launch.watched:
            self._watchdog.add(self)

    @property
    def busy(self) -> bool:
        """True if untrusted code may be running. Whoever keeps it warm says no; it is looked at less often then."""
        return self._busy

    @busy.setter
    def busy(self, now: bool) -> None:
        self._busy = now
        if now:
            self._watchdog.hurry(self)

    def is_alive(self) -> bool:
        return super().is_alive() and not (self._init_handle >= 0 and has_ended(self._init_handle))

    def uppers(self) -> list[int]:
        return self.launch.layers.uppers() if self.launch.layers else []

    def refresh(self) -> None:
        """Have it see, in its layers, what the host has changed since."""
        if self.launch.layers:
            self.launch.layers.refresh()

    def project(self, pieces: Mapping[str, ProjectedEntry]) -> None:
        """Have it see these pieces of its projected folders, and no others."""
        if self.launch.layers:
            self.launch.layers.project(pieces)

    async def listeners(self) -> list[socket.socket]:
        """The sockets that it was to listen on (`Spec.listen`), in order: from now on the caller's. Raises Unavailable."""
        if self.launch.handoff is None:
            return []
        receiving = start_task(self.launch.handoff.receive())
        try:
            await asyncio.wait((receiving, self._ended), return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            receiving.cancel()
            raise
        found = receiving.result() if receiving.done() else []
        if len(found) == len(self.spec.listen):
            return found
        receiving.cancel()
        for one in found:
            one.close()
        self.kill()  # one that lives and says nothing would be listened to for ever
        said = (await self.read_errors(1000)).decode(errors="replace").strip()
        raise Unavailable(f"It has no network of its own: {said or 'it ended at once'}.")

    # -- its end

    async def wait(self) -> int:
        """A shell's own 128 + n stays what it is."""
        code = await (finish(self._ended) if self.spec.profile == "shell" else super().wait())
        return -signal.SIGKILL if self._killed else code

    def kill(self, why: Stopped | None = None) -> None:
        if self._ended.done() and self.init is None:
            return
        if not self._killed and not self._ended.done():
            self._killed, self.stopped = True, why
        # Should the program not have begun yet, it never will.
        self.launch.order.close()
        self._strike()

    def _strike(self) -> None:
        """The first process inside takes all others with it. Until it has a name the launcher must live, to name it."""
        if self._init_handle >= 0:
            _send(self._init_handle, signal.SIGKILL)
        elif self._named.is_set() and not self._ended.done():
            _send(self._handle, self.launch.kill_signal)

    async def _close(self) -> None:
        try:
            await self._end_all()
        finally:
            self._watchdog.discard(self)
            self._release()
            if self.launch.remove:
                await to_thread(self.launch.undo)
            else:
                self.launch.undo()

    async def _end_all(self) -> None:
        """Everything inside, then the launcher; the stubborn are killed one by one. It takes no longer than it may."""
        self.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(TOLD_SECONDS):
                await self._named.wait()
            async with asyncio.timeout(self.launch.end_seconds or END_SECONDS):
                await self._gone()
                return
        self._named.set()
        self._strike()
        for number in [] if self._ended.done() else (*descendants(self.pid), self.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._gone()
        except TimeoutError:
            logger.warning("a jailed process was killed and has not ended yet: %s", self.init or self.pid)

    async def _gone(self) -> None:
        """The launcher may end before the first process inside does."""
        await finish(self._ended)
        if self._init_handle < 0:
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._init_handle, wake, turn)
        try:
            await turn
        finally:
            self._loop.remove_reader(self._init_handle)
        # Where we are the one whom orphans fall to (the first process of a container is), it is ours to bury.
        with suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self._init_handle, os.WEXITED | os.WNOHANG)
        self.init = None

    def _release(self) -> None:
        self.close_pipes()
        if self._init_handle >= 0:
            os.close(self._init_handle)
            self._init_handle = -1
        self._hear_no_more()

    # -- told by the loop

    def _on_end(self) -> None:
        super()._on_end()
        if self._ended.done():
            self.launch.order.close()
            # A launcher that ended by itself has left nothing; one that died may have left all.
            if self._init_handle >= 0:
                _send(self._init_handle, signal.SIGKILL)

    def _on_told(self) -> None:
        """The launcher names the first process inside, or ends without. It is heard out: it would die of a closed pipe."""
        told = self.launch.told
        if told is None or told.outer < 0:
            return
        piece = os.read(told.outer, 4096)
        self._said += piece
        found = _CHILD.search(self._said)
        if found and not self._named.is_set():
            self._know(int(found[1]))
        if not piece:
            self._hear_no_more()
        if (found or not piece) and not self._named.is_set():
            self._named.set()
            if self._killed:
                self._strike()

    def _know(self, init: int) -> None:
        """By a handle, since the number may be another's soon: it is ours as long as the launcher is its parent, or we are
        since the launcher has ended."""
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(init)
            parent = parent_of(init)
            if parent == self.pid or (parent == os.getpid() and is_first(init)):
                self._init_handle, self.init = handle, init
                if self._ended.done():
                    self._strike()
            else:
                os.close(handle)

    def _hear_no_more(self) -> None:
        told = self.launch.told
        if told is not None and told.outer >= 0:
            self._loop.remove_reader(told.outer)
            told.close()


def _send(handle: int, number: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, number)


class LocalJail(Jail):
    """A jail whose processes are children of this one: it ends what still runs when it is closed."""

    def __init__(self) -> None:
        self._processes: set[Process] = set()

    def _started(self, launch: Launch, spec: Spec) -> Process:
        self._processes = {other for other in self._processes if not other.closed}
        started = begin(launch, lambda child: Process(child, launch, spec))
        self._processes.add(started)
        return started

    async def close(self) -> None:
        await asyncio.gather(*(started.close() for started in self._processes))
        self._processes.clear()

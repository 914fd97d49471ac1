"""Several processes that serve on one port: a parent that only starts them, starts them again, and passes signals on.

Each worker has a listening socket of its own on the same address (SO_REUSEPORT), so that the system spreads connections over
them; with one socket for all, whichever worker wakes first takes all that wait. The parent has made the sockets and keeps
them: what was connected to a worker that died waits for the next one in its place, and is not reset.

A worker is forked before there is an event loop, a thread or an open database. It knows by a socket of its own that the
parent lives, and ends when it does not.
"""

import asyncio
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from toolgate.errors import NotServing

WAITS = (0.1, 0.5, 2.0, 10.0, 30.0)
"""Seconds before a worker that has ended is started again: the first time, the second …"""
STEADY_SECONDS = 60.0
"""A worker that ran for this long before it ended counts as the first of them that did."""
MAX_SAID_BYTES = 65_536
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

logger = logging.getLogger("toolgate")


@dataclass
class ServeWorker:
    """A worker, as it knows itself."""

    number: int
    listening: socket.socket
    parent: socket.socket
    is_new: bool
    """True for the one that is started before all others, and not again: what it says when it is ready is told to people."""

    @property
    def is_first(self) -> bool:
        """True for the one that does what is to be done once."""
        return self.number == 0

    def is_ready(self, said: Mapping[str, Any]) -> None:
        """Tells the parent that it takes requests, and what else there is to say."""
        with suppress(OSError):  # it is gone, and that is heard elsewhere
            self.parent.sendall(orjson.dumps(said) + b"\n")

    @contextmanager
    def stopped(self, stop: Callable[[], None]) -> Iterator[None]:
        """Has something called when the worker is to stop: on SIGTERM, and when the parent is gone. A terminal sends SIGINT
        to all processes, and the parent passes that on."""
        loop = asyncio.get_running_loop()

        def parent_is_gone() -> None:
            loop.remove_reader(self.parent)
            stop()

        loop.add_signal_handler(signal.SIGTERM, stop)
        loop.add_reader(self.parent, parent_is_gone)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            loop.remove_reader(self.parent)


@dataclass
class _Child:
    """A worker, as the parent knows it."""

    number: int
    listening: socket.socket
    pid: int = 0
    line: socket.socket | None = None
    was_ready: bool = False
    started: float = 0.0
    ends: int = 0
    """How often it has ended soon after it was started."""
    due: float | None = field(default=0.0)
    """When it is to be started; None: it runs."""


class Supervisor:
    """The parent: `run` gives, in each worker, the worker; in the parent, the exit code once all have ended."""

    def __init__(self, sockets: Sequence[socket.socket], ready: Callable[[list[int], dict[str, Any]], None]) -> None:
        """`ready` is told the process ids once all workers take requests, and what the first said when it did."""
        if not hasattr(os, "fork"):
            raise NotServing("This system cannot fork.", suggestion="Leave --workers away, and start several servers.")
        self._children = [_Child(number, listening) for number, listening in enumerate(sockets)]
        self._ready = ready
        self._selector = selectors.DefaultSelector()
        self._signals, self._wakeup = socket.socketpair()
        self._has_begun = False
        self._is_stopping = False
        self._code = 0
        self._said: dict[str, Any] = {}

    def run(self) -> ServeWorker | int:
        found = self._run()
        if isinstance(found, ServeWorker):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return found

    def _run(self) -> ServeWorker | int:
        self._wakeup.setblocking(False)
        self._signals.setblocking(False)
        before = {one: signal.signal(one, lambda *_: None) for one in (*STOP_SIGNALS, signal.SIGCHLD)}
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._signals, selectors.EVENT_READ)
        try:
            while not self._is_stopping or any(child.pid for child in self._children):
                if (worker := self._start_due()) is not None:
                    return worker
                self._wait()
        finally:
            signal.set_wakeup_fd(-1)
            for one, handler in before.items():
                signal.signal(one, handler)
            self._selector.close()
        return self._code

    # -- starting

    def _start_due(self) -> ServeWorker | None:
        """Starts what is due. At first one after another: the first makes the database's tables, and has the errors that all
        would have."""
        for child in self._children:
            if self._is_stopping:
                return None
            is_due = child.due is not None and child.due <= time.monotonic()
            if is_due and (worker := self._fork(child)) is not None:
                return worker
            if not self._has_begun and not child.was_ready:
                return None
        if not self._has_begun:
            self._has_begun = True
            self._ready([child.pid for child in self._children], self._said)
        return None

    def _fork(self, child: _Child) -> ServeWorker | None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            return self._become(child, ours, theirs)
        theirs.close()
        child.pid, child.line, child.was_ready, child.started, child.due = pid, ours, False, time.monotonic(), None
        self._selector.register(ours, selectors.EVENT_READ, child)
        return None

    def _become(self, own: _Child, parents: socket.socket, line: socket.socket) -> ServeWorker:
        """Leaves in this process what is the worker's own."""
        signal.set_wakeup_fd(-1)
        for end in (parents, self._signals, self._wakeup):
            end.close()
        for child in self._children:
            if child.line is not None:
                child.line.close()
            if child is not own:
                child.listening.close()
        return ServeWorker(own.number, own.listening, line, own.number == 0 and not self._has_begun)

    # -- watching

    def _wait(self) -> None:
        due = [child.due for child in self._children if child.due is not None]
        timeout = max(0.0, min(due) - time.monotonic()) if due and not self._is_stopping and self._has_begun else None
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                self._signalled()
            else:
                self._told(key.data)

    def _told(self, child: _Child) -> None:
        assert child.line is not None  # it is what has told
        with suppress(OSError):
            told = child.line.recv(MAX_SAID_BYTES)
            child.was_ready = told != b""
            if told and child.number == 0 and not self._has_begun:
                self._said = orjson.loads(told)
        self._selector.unregister(child.line)  # it says one thing; that it has ended is heard by a signal

    def _signalled(self) -> None:
        for number in self._signals.recv(4_096):
            if number in STOP_SIGNALS:
                self._stop()
        for child in self._children:
            pid, status = os.waitpid(child.pid, os.WNOHANG) if child.pid else (0, 0)
            if pid:
                self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: _Child, code: int) -> None:
        pid, child.pid = child.pid, 0
        assert child.line is not None  # it ran
        with suppress(KeyError):
            self._selector.unregister(child.line)
        child.line.close()
        if self._is_stopping:
            self._code = self._code or (code if code > 0 else 0)
        elif not self._has_begun:
            self._code = code if code > 0 else 1  # it has told why
            self._stop()
        else:
            child.ends = 1 if time.monotonic() - child.started > STEADY_SECONDS else child.ends + 1
            wait = WAITS[min(child.ends, len(WAITS)) - 1]
            child.due = time.monotonic() + wait
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            logger.warning("the worker with process id %d %s: another takes its place in %g s", pid, how, wait)

    def _stop(self) -> None:
        """Passes a signal on. The sockets are closed here first, so that the workers are the last to have them."""
        if not self._is_stopping:
            self._is_stopping = True
            for child in self._children:
                child.listening.close()
        for child in self._children:
            if child.pid:
                os.kill(child.pid, signal.SIGTERM)

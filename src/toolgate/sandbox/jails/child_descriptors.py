"""Descriptors of which a jailed process has one end, by the same number, and the host the other."""

import asyncio
import fcntl
import os
import socket
from abc import ABC, abstractmethod
from contextlib import suppress

from toolgate.sandbox.child_process import wake
from toolgate.sandbox.jail import MB, Unavailable

ORDER_BYTES = MB
"""The most that an unprivileged pipe holds."""
MAX_SOCKETS = 250
"""Sockets that come out of one jail; the kernel hands over no more than 253 at once."""


class ChildEnds(ABC):
    """The child's descriptors, until it has them, and the host's."""

    inner: tuple[int, ...]

    @abstractmethod
    def close(self) -> None:
        """Close the host's. May be called twice."""

    def close_inner(self) -> None:
        """Close the child's, once it has them. May be called twice."""
        for number in self.inner:
            os.close(number)
        self.inner = ()

    def close_all(self) -> None:
        """For a start that failed."""
        self.close_inner()
        self.close()


class ChildPipe(ChildEnds):
    """A pipe."""

    def __init__(self, inner: int, outer: int) -> None:
        self.number = inner
        self.inner = (inner,)
        self.outer = outer

    @classmethod
    def down(cls, data: bytes) -> "ChildPipe":
        """The child reads what is written now; that our end stays open tells it that we are still there."""
        pipe = cls(*os.pipe2(os.O_CLOEXEC))
        try:
            if len(data) > ORDER_BYTES:
                raise Unavailable("The environment and arguments of the program are more than 1 MB.")
            fcntl.fcntl(pipe.outer, fcntl.F_SETPIPE_SZ, max(len(data), 65_536))
            os.set_blocking(pipe.outer, False)
            if os.write(pipe.outer, data) != len(data):
                raise Unavailable("The order for the jail does not fit into a pipe.")
        except BaseException:
            pipe.close_all()
            raise
        return pipe

    @classmethod
    def up(cls) -> "ChildPipe":
        """The child writes, we read."""
        outer, inner = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(outer, False)
        return cls(inner, outer)

    def close(self) -> None:
        if self.outer >= 0:
            os.close(self.outer)
            self.outer = -1


class SocketHandoff(ChildEnds):
    """The way of sockets out of a jail: the starter listens on its own network's loopback, and hands its sockets to us.

    A socket belongs to the network that it was made in, whoever holds it. So the host answers, in its own event loop, what
    a jailed program says to an address of its own; there is no process in between, and no way from one network into the
    other."""

    def __init__(self) -> None:
        self._outer, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._outer.setblocking(False)
        self.number = inner.detach()
        self.inner = (self.number,)

    async def receive(self) -> list[socket.socket]:
        """Wait for them; empty if nobody will send any."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._outer, wake, ready)
        try:
            await ready
        finally:
            loop.remove_reader(self._outer)
        numbers: list[int] = []
        with suppress(OSError):
            _, numbers, _, _ = socket.recv_fds(self._outer, 1, MAX_SOCKETS, socket.MSG_CMSG_CLOEXEC)
        return [socket.socket(fileno=number) for number in numbers]

    def close(self) -> None:
        self._outer.close()

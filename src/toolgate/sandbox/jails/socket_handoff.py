"""How sockets get out of a jail: the starter listens on the loopback of its own network, and hands what it listens on to us.

A socket belongs to the network that it was made in, whoever holds it. So the host answers, in its own event loop, what a
jailed program says to an address of its own; there is no process in between, and no way from one network into the other.
"""

import asyncio
import os
import socket
from contextlib import suppress

MAX_SOCKETS = 250
"""Sockets that come out of one jail; the kernel hands over no more than 253 at once."""


class SocketHandoff:
    """A pair of sockets of which the child has one, through which it sends those that it listens on."""

    def __init__(self) -> None:
        self._outer, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._outer.setblocking(False)
        self.inner = inner.detach()
        """The child's; it has the same number there."""

    async def receive(self) -> list[socket.socket]:
        """Wait for them; empty if nobody will send any."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._outer, _wake, ready)
        try:
            await ready
        finally:
            loop.remove_reader(self._outer)
        numbers: list[int] = []
        with suppress(OSError):
            _, numbers, _, _ = socket.recv_fds(self._outer, 1, MAX_SOCKETS, socket.MSG_CMSG_CLOEXEC)
        return [socket.socket(fileno=number) for number in numbers]

    def close_inner(self) -> None:
        """For a start that failed."""
        if self.inner >= 0:
            os.close(self.inner)
            self.inner = -1

    def close(self) -> None:
        """May be called twice."""
        self._outer.close()


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)

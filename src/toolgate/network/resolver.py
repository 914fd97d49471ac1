"""The resolver of this machine, on threads of its own."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

MAX_LOOKUPS = 32
"""Host names that are resolved at once, in all."""

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Resolves a host name to addresses."""

_lookup_threads = ThreadPoolExecutor(MAX_LOOKUPS, thread_name_prefix="toolgate-lookup")
"""Threads of its own: a slow DNS server must not block those that all share."""


async def resolve(host: str, port: int) -> list[str]:
    """Resolves a host name as this machine does."""
    look = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_lookup_threads, look)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))

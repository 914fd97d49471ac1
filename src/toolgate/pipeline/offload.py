"""Work that grows with a call's input, done in threads of its own: the event loop goes on serving everybody else.

Each tenant has one piece of work under way at a time, the others wait in line, so that one tenant's large calls take neither
all threads nor most of the interpreter's time. A thread can't be stopped: a caller that is cancelled waits for its end, or
what it works on would change under whoever settles the call.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from toolgate.tasks import complete

LARGE = 100_000
"""Bytes, as JSON, from which on a value is worked on off the event loop."""
THREADS = 4

P = ParamSpec("P")
T = TypeVar("T")

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="toolgate-large")


class Offload:
    """The lines of the tenants."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[asyncio.Lock, list[None]]] = {}
        """By tenant: whose turn it is, and one entry for each that waits or works."""

    async def __call__(self, tenant: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` gives, done in a thread when it is the tenant's turn."""
        turn, here = self._lines.setdefault(tenant, (asyncio.Lock(), []))
        here.append(None)
        try:
            async with turn:
                return await complete(asyncio.get_running_loop().run_in_executor(_threads, partial(work, *args, **kwargs)))
        finally:
            here.pop()
            if not here:
                self._lines.pop(tenant, None)

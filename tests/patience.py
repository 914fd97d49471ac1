"""Waiting for what really happens, with a limit that only a machine in trouble reaches."""

import asyncio
import inspect
import time
from collections.abc import Callable

SOON = 30.0
"""Seconds: far more than anything here takes, also on a slow machine that has other work."""


async def until(holds: Callable[[], object], what: str = "it happens", seconds: float = SOON) -> None:
    """Wait until something holds, whether it has to be awaited or not."""
    end = time.monotonic() + seconds
    while True:
        found = holds()
        if await found if inspect.isawaitable(found) else found:
            return
        assert time.monotonic() < end, f"in vain it was waited until {what}"
        await asyncio.sleep(0.01)

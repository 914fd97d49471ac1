"""The result of a check, and how a probe is asked."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Literal, NamedTuple

from toolgate.errors import described

CheckStatus = Literal["ok", "unused", "warning", "fault"]
"""ok: it can be used. unused: it is not in use, or can't be used, and nothing waits for it. warning: something does not
work or waits for a person, and the rest works all the same. fault: calls fail."""


class Check(NamedTuple):
    """What a probe found, and what to do about it."""

    name: str
    status: CheckStatus
    message: str
    advice: str | None = None
    details: Mapping[str, str] | None = None
    """More of it, for programs."""


async def answers(name: str, probe: Callable[[], Awaitable[object]], seconds: float) -> Check:
    """A check of something that only has to answer in time."""
    begun = perf_counter()
    try:
        async with asyncio.timeout(seconds):
            await probe()
    except TimeoutError:
        return Check(name, "fault", f"no answer within {seconds:g} s")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return Check(name, "fault", described(error), getattr(error, "suggestion", None))
    return Check(name, "ok", f"answered in {(perf_counter() - begun) * 1000:.1f} ms")

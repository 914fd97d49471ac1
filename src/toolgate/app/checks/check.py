"""The result of a check, and how a probe is asked."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Literal, NamedTuple

from toolgate.errors import described
from toolgate.tasks import start_task

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
    """A check of something that only has to answer in time.

    A probe that is late is cancelled and not waited for: a pool of connections gives one back only after the server has
    confirmed that it cancelled the query, which a server that does not answer never does.
    """
    task = start_task(_ask(name, probe))
    try:
        await asyncio.wait({task}, timeout=seconds)
        return task.result() if task.done() else Check(name, "fault", f"no answer within {seconds:g} s")
    finally:
        task.cancel()


async def _ask(name: str, probe: Callable[[], Awaitable[object]]) -> Check:
    begun = perf_counter()
    try:
        await probe()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return Check(name, "fault", described(error), getattr(error, "suggestion", None))
    return Check(name, "ok", f"answered in {(perf_counter() - begun) * 1000:.1f} ms")

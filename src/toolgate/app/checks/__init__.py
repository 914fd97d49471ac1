"""Checks of an installation, made by using what is there. `toolgate doctor` prints them, /readyz answers with those that
calls need, `toolgate servers` shows those of MCP servers. Here: what a check finds, and how a service, a policy or a tool is
asked."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from toolgate.errors import described
from toolgate.tasks import start_task

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts
    from toolgate.gates.policy.engine import PolicyVerdict

CheckStatus = Literal["ok", "unused", "warning", "fault"]
"""ok: it can be used. unused: it is not in use, or can't be used, and nothing waits for it. warning: something does not
work or waits for a person, and the rest works all the same. fault: calls fail."""
NO_SUCH_TOOL = "no tool has this name"


class Check(NamedTuple):
    """The result of a probe, and the advice that goes with it."""

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


async def ask_policy(parts: "Parts") -> "PolicyVerdict":
    """Asks the policy engine about a tool that can't exist: whatever decides must answer, and must say no."""
    from toolgate.gates.policy.engine import PolicyQuestion

    engine, question = parts.guard.engine, PolicyQuestion("default", None, "tool.request", NO_SUCH_TOOL, "local")
    if engine.remote is True:
        return await engine.ask(question)
    return engine.decide(question, parts.policy.data, parts.guard.epoch)


async def ask_tool(parts: "Parts", instance: Any, method: Callable[[], Any], seconds: float) -> Any:
    """Asks a tool about itself, made ready as for a call and cleaned up again. Each step has `seconds`; raises
    TimeoutError."""
    if hasattr(instance, "initialize"):
        await _run(parts, instance.initialize, seconds)
    try:
        return await _run(parts, method, seconds)
    finally:
        if hasattr(instance, "cleanup"):
            await _run(parts, instance.cleanup, seconds)


async def _run(parts: "Parts", method: Any, seconds: float) -> Any:
    async with asyncio.timeout(seconds):
        if inspect.iscoroutinefunction(method.func if isinstance(method, partial) else method):
            return await method()
        try:
            return await parts.local.threads.submit(method)
        except asyncio.CancelledError:
            parts.local.threads.give_up()
            raise

"""Asks an approver: for as long as the question stands, without trust in what it does.

One that raises, hangs or gives nonsense has given no answer. One that is slow loses to whoever answers sooner elsewhere.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable

from toolgate.errors import described
from toolgate.gates.approval.request import Answer, ApprovalRequest, Approver, visible
from toolgate.tasks import start_task, wait_for_any
from toolgate.threads import DaemonExecutor

ANSWER_POLL_SECONDS = 1.0
"""How often the store is asked whether another process had the answer."""

logger = logging.getLogger("toolgate.approval")


def name_of(approver: Approver) -> str:
    name = getattr(approver, "__qualname__", None)
    return visible(name) if isinstance(name, str) and name else type(approver).__qualname__


async def ask(
    approver: Approver, request: ApprovalRequest, is_over: Callable[[], Awaitable[bool]], woken: asyncio.Event
) -> Answer | None:
    """The approver's answer. None: it has none, or the question is over (answered elsewhere, or too late)."""
    asking = start_task(_call(approver, request), unheard=True)  # whatever it does after it was let go
    try:
        while not asking.done():
            await wait_for_any(woken, asking, seconds=ANSWER_POLL_SECONDS)
            woken.clear()
            if not asking.done() and await is_over():
                return None
        return _understood(approver, asking)
    finally:
        asking.cancel()


def _understood(approver: Approver, asking: "asyncio.Future[object]") -> Answer | None:
    if asking.cancelled():
        logger.warning("the approver %s was cancelled, which is no answer", name_of(approver))
        return None
    error = asking.exception()
    if error is not None:
        logger.warning("the approver %s failed, which is no answer: %s", name_of(approver), described(error))
        return None
    given = asking.result()
    if given is None or type(given) is Answer:
        return given
    if type(given) is bool:
        return Answer("approve" if given else "reject")
    logger.warning("the approver %s gave a %s, which is no answer", name_of(approver), type(given).__name__)
    return None


async def _call(approver: Approver, request: ApprovalRequest) -> object:
    """A plain function may wait for a person as long as it likes: its thread is its own, and keeps nobody from ending."""
    try:
        if inspect.iscoroutinefunction(approver) or inspect.iscoroutinefunction(getattr(approver, "__call__", None)):  # noqa: B004
            given: object = approver(request)
        else:
            given = await asyncio.wrap_future(DaemonExecutor(1).submit(_result, approver, request))
        return await given if inspect.isawaitable(given) else given
    except (KeyboardInterrupt, SystemExit) as error:  # out of a task they would end the event loop
        raise RuntimeError(described(error)) from error


def _result(approver: Approver, request: ApprovalRequest) -> object:
    try:
        return approver(request)
    except StopIteration as error:  # which no future takes
        raise RuntimeError(described(error)) from error

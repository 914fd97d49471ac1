"""The runner of Python tools: in place, as a task, or in a thread, within the time they have."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from pydantic import ValidationError

from toolgate.errors import (
    CODES,
    CallError,
    Failed,
    NotReached,
    StoreError,
    TimedOut,
    ToolError,
    call_error,
    described,
    timed_out,
)
from toolgate.extras import MissingExtra
from toolgate.model import Entry, Implementation
from toolgate.pipeline.context import InvokeContext
from toolgate.tasks import finish, start_task
from toolgate.threads import ToolThreads

GRACE = 0.5
"""Seconds that a cancelled tool has to clean up before it is given up."""


class LocalRunner:
    """Runs functions and the `execute` of classes."""

    def __init__(self, threads: int) -> None:
        self.threads = ToolThreads(threads)
        self.runaways: set[asyncio.Task[Any]] = set()
        """Tasks that went on although they were cancelled."""
        self._initialized: dict[int, asyncio.Future[tuple[Any, BaseException | None]]] = {}
        self._instances: list[Any] = []

    def run(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> Awaitable[Any]:
        code: Implementation = entry.implementation
        if code.plain:
            awaitable: Awaitable[Any] = code.function(**arguments)
            return awaitable
        if code.bind is not None:
            arguments = _bind(code.bind, arguments)
        if code.context_parameter is not None:
            arguments = {**arguments, code.context_parameter: ctx}
        if code.instance is not None:
            return self._as_task(self._with_instance(code, arguments, ctx.time_limit), ctx.time_limit)
        return self._begin(code, arguments, ctx.time_limit)

    def _begin(self, code: Implementation, arguments: dict[str, Any], timeout: float) -> Awaitable[Any]:
        if code.mode == "thread":
            return self._in_thread(partial(code.function, **arguments), timeout)
        awaitable: Coroutine[Any, Any, Any] = code.function(**arguments)
        return awaitable if code.mode == "inline" else self._as_task(awaitable, timeout)

    async def _with_instance(self, code: Implementation, arguments: dict[str, Any], timeout: float) -> Any:
        await self._prepare(code.instance, arguments)
        return await self._begin(code, arguments, timeout)

    async def _as_task(self, work: Coroutine[Any, Any, Any], timeout: float) -> Any:
        """A task of its own, so that a tool which ignores its cancellation can be left behind."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        task = loop.create_task(_guarded(work))
        task.add_done_callback(lambda _task: _end(ended))
        timer = loop.call_later(timeout, _end, ended)
        try:
            await ended
        except asyncio.CancelledError:
            await self._stop(task)
            raise
        finally:
            timer.cancel()
        if not task.done():
            await self._stop(task)
            raise timed_out(timeout)
        if task.cancelled():
            raise Failed("CANCELLED", "The tool cancelled itself.")
        value, error = task.result()
        if error is not None:
            raise error
        return value

    async def _stop(self, task: "asyncio.Task[Any]") -> None:
        task.cancel()
        await asyncio.wait((task,), timeout=GRACE)
        if not task.done():
            self.runaways.add(task)
            task.add_done_callback(self.runaways.discard)

    async def _in_thread(self, function: Any, timeout: float) -> Any:
        future = self.threads.submit(function)
        try:
            done, _ = await asyncio.wait((future,), timeout=timeout)
        finally:
            if future.cancel():  # its time is over, or its caller is gone
                self.threads.give_up()
        if not done:
            advice = "A synchronous tool cannot be stopped: its thread goes on in the background."
            raise timed_out(timeout, suggestion=advice)
        return future.result()

    # -- class-based tools

    async def initialized(self, instance: Any) -> None:
        """Has the object of a class-based tool `initialize` once, for all its calls, and `cleanup` when this is closed."""
        if hasattr(instance, "initialize"):
            ready = self._initialized.get(id(instance))
            if ready is None:
                ready = start_task(_guarded(_call_aside(instance.initialize)))
                self._initialized[id(instance)] = ready
            _, error = await finish(ready)
            if error is not None:
                self._initialized.pop(id(instance), None)  # the next call may try again
                raise error
        if instance not in self._instances:
            self._instances.append(instance)

    async def _prepare(self, instance: Any, arguments: dict[str, Any]) -> None:
        """`initialize` once for all calls, then the tool's own `validate`."""
        await self.initialized(instance)
        if hasattr(instance, "validate"):
            verdict = await _call(instance.validate, arguments)
            if verdict is False or (verdict not in (None, True) and verdict):
                words = "; ".join(map(str, verdict)) if isinstance(verdict, list | tuple) else str(verdict or "")
                raise _invalid([{"path": "", "message": words or "refused by the tool"}])

    async def close(self) -> list[str]:
        """Clean up the class-based tools that were used; gives what went wrong."""
        troubles = []
        for instance in self._instances:
            if hasattr(instance, "cleanup"):
                try:
                    await asyncio.wait_for(_call_aside(instance.cleanup), 10)
                except Exception as error:
                    troubles.append(f"cleanup of {type(instance).__name__}: {type(error).__name__}: {error}")
        self._instances.clear()
        for task in self.runaways:
            task.cancel()
        self.threads.close()
        return troubles


async def _guarded(work: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """The result as a value: a SystemExit or KeyboardInterrupt that left a task would end the event loop."""
    try:
        return await work, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return None, error


def _end(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def _call(method: Any, *arguments: Any) -> Any:
    result = method(*arguments)
    return await result if asyncio.iscoroutine(result) else result


async def _call_aside(method: Any) -> Any:
    """A method that may take long: one that is not async runs off the event loop."""
    if asyncio.iscoroutinefunction(method):
        return await method()
    return await asyncio.to_thread(method)


def _bind(bind: Callable[[dict[str, Any]], dict[str, Any]], arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return bind(arguments)
    except ValidationError as error:
        faults = [
            {"path": ".".join(str(part) for part in fault["loc"]), "message": fault["msg"]}
            for fault in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise _invalid(faults) from error


def _invalid(faults: list[dict[str, str]]) -> NotReached:
    words = "; ".join(f"{fault['path']}: {fault['message']}".removeprefix(": ") for fault in faults)
    advice = "Correct the arguments and call again."
    return NotReached("VALIDATION_ERROR", f"Invalid arguments: {words}", suggestion=advice, details={"errors": faults})


def understand(error: BaseException, instance: Any = None) -> CallError:
    """The error of a call whose tool raised something. A class-based tool may translate it first."""
    if isinstance(error, CallError):
        return error
    if instance is not None and hasattr(instance, "handle_error") and isinstance(error, Exception):
        try:
            translated = instance.handle_error(error)
        except Exception as second:
            translated = second
        error = translated if isinstance(translated, BaseException) else error
    if isinstance(error, CallError):
        return error
    if isinstance(error, ToolError):
        return _from_tool_error(error)
    if isinstance(error, MissingExtra):  # its own advice is a command on this machine, which is none of the caller's
        advice = f"Ask the operator to install toolgate[{error.extra}]."
        return _from_tool_error(ToolError(error.message, suggestion=advice, charged=False))
    if isinstance(error, StoreError):  # it names the database's place, which the operator is told by the log
        advice = "`toolgate doctor` shows what is wrong with the store."
        return Failed("UNEXPECTED_ERROR", "The store cannot be used.", suggestion=advice, reason=error.message)
    words = described(error)
    if isinstance(error, TimeoutError):
        return TimedOut(message=f"The tool gave up waiting: {words}")
    if isinstance(error, ConnectionError):
        return Failed("CONNECTION_ERROR", f"The tool could not reach its target: {words}")
    return Failed("INVOCATION_ERROR", f"The tool raised {words}")


def _from_tool_error(error: ToolError) -> CallError:
    known = error.code in CODES and CODES[error.code].status != "pending"
    details = error.details if known else {**(error.details or {}), "tool_code": error.code}
    found = call_error(
        error.code if known else "INVOCATION_ERROR",
        error.message,
        retryable=error.retryable,
        suggestion=error.suggestion,
        details=details,
    )
    found.charged = error.charged is not False
    return found

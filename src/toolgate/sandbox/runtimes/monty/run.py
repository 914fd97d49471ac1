"""One run in Monty: the program's text as Monty is given it, and what came of it, in the words of the CPython worker."""

import ast
import asyncio
import json
import os
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from toolgate.errors import shortened
from toolgate.jsontext import find_not_json
from toolgate.sandbox.jail import ResourceLimits, Stopped
from toolgate.sandbox.worker_protocol import (
    MAX_CONCURRENT_REQUESTS,
    CodeFailure,
    Refusal,
    Serve,
    WorkerResult,
    limit_message,
)

if TYPE_CHECKING:
    from pydantic_monty import FunctionSnapshot, Monty, MontyError, MontySession, SyncSnapshot

MAX_TOOL_CALLS = 100_000
"""Questions to the host; whoever serves them sets the real limit."""
VALUE, TEXT, LIBRARY = "_toolgate_value", "_toolgate_text", "_toolgate_json"


class MontyResult(WorkerResult):
    """The result of a job in Monty."""

    doubtful: bool = False
    """It failed, maybe only for being here, and had no effect: CPython has the last word, where it can be had."""


class MontySource(NamedTuple):
    """A program as Monty is given it: with its last value put into JSON at the end, where Monty still knows what it is."""

    whole: str
    lines: int
    """Of the program's own."""
    shifted: tuple[int, int]
    """The line that something was put into, and how many characters."""
    source: list[str]

    @classmethod
    @lru_cache(maxsize=512)
    def of(cls, code: str, output: int) -> "MontySource":
        source = code.splitlines()
        last = ast.parse(code).body[-1:]
        if not last or not isinstance(last[0], ast.Expr):
            return cls(code, len(source), (0, 0), source)
        place = last[0]
        lines = code.encode().splitlines(keepends=True)
        before = b"".join(lines[: place.lineno - 1]) + lines[place.lineno - 1][: place.col_offset]
        end_line, end = place.end_lineno or place.lineno, place.end_col_offset or 0
        until = b"".join(lines[: end_line - 1]) + lines[end_line - 1][:end]
        expression, after = until[len(before) :], code.encode()[len(until) :]
        put = f"{VALUE} = (".encode()
        whole = (before + put + expression + b")" + after).decode()
        told = (
            f"\nimport json as {LIBRARY}\n{TEXT} = {LIBRARY}.dumps({VALUE}, allow_nan=False)"
            f"\n{TEXT} if {TEXT}[{output}:] == '' else 0\n"
        )
        return cls(whole + told, len(source), (place.lineno, len(put)), source)


class MontyToolCalls:
    """The calls of one run: the program asks in its thread, and is answered in the event loop. `asked` counts them,
    `refused` is the last that was refused."""

    def __init__(self, loop: asyncio.AbstractEventLoop, serve: Serve | None, names: list[str] | None) -> None:
        self._loop, self._serve, self._names = loop, serve, names
        self._waiting: Future[Any] | None = None
        self._closed = False
        self.asked = 0
        self.refused: Refusal | None = None

    def close(self) -> None:
        self._closed = True
        waiting = self._waiting
        if waiting is not None:
            waiting.cancel()

    def answer(self, at: "FunctionSnapshot") -> Any:
        """The answer to one call of the program: a value, or an exception."""
        try:
            if at.object_id is None:
                raise NameError(f"name {at.function_name!r} is not defined")
            return {"return_value": self._call(str(at.function_name), at.args, at.kwargs)}
        except Refusal as refusal:
            self.refused = refusal
            return {"exception": RuntimeError(refusal.message)}
        except (NameError, TypeError, ValueError, AttributeError) as error:
            return {"exception": error}

    def _call(self, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if name == "parallel":
            return self._ask(*given, **named)
        if name == "call":
            return self._one(*given, **named)
        if self._names is not None and name not in self._names:
            raise AttributeError(f"There is no tool {name}. There are: {', '.join(self._names[:50])}")
        return self._one(name, *self._merged(*given, **named))

    def _merged(self, arguments: dict[str, Any] | None = None, /, **named: Any) -> tuple[dict[str, Any]]:
        return ({**(arguments or {}), **named},)

    def _one(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        return self._ask([(name, arguments or {})])[0]

    def _ask(self, calls: list[tuple[Any, Any]]) -> list[Any]:
        calls = [(name, arguments) for name, arguments in calls]  # pairs, or it is no call
        wrong = find_not_json(calls)
        if wrong is not None:
            raise TypeError(f"What was given to tool cannot be sent: it {wrong.message}")
        self.asked += len(calls)
        self._waiting = asyncio.run_coroutine_threadsafe(self._together(calls), self._loop)
        if self._closed:
            self._waiting.cancel()
        answers: list[Any] = self._waiting.result()
        for answer in answers:
            if isinstance(answer, Refusal):
                raise answer
        return answers

    async def _together(self, calls: list[tuple[Any, Any]]) -> list[Any]:
        room = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)

        async def one(name: Any, arguments: Any) -> Any:
            async with room:
                try:
                    if self._serve is None:
                        raise Refusal("PERMISSION_DENIED", "The host answers no such question here.")
                    return await self._serve("tool", [name, arguments])
                except Refusal as refusal:
                    return refusal
                except (TypeError, ValueError):
                    return Refusal("INVALID_INPUT", "The host cannot answer this.")
                except Exception:  # noqa: BLE001 - the program must get an answer, whatever it is
                    return Refusal("UNEXPECTED_ERROR", "The host failed.")

        return await asyncio.gather(*(one(name, arguments) for name, arguments in calls))


class MontyRun:
    """One job, in whichever worker it is given."""

    def __init__(self, job: Mapping[str, Any], limits: ResourceLimits, desk: MontyToolCalls) -> None:
        self._job, self._limits, self._desk = job, limits, desk
        self._lock = Lock()
        self._worker: int | None = None
        self._stopped: Stopped | None = None
        self._over = False

    def stop(self, why: Stopped | None) -> None:
        """Kill the worker, if it is still at this. May be called twice, from any thread."""
        with self._lock:
            if not self._over:
                self._over, self._stopped = True, why
                self._kill()
        self._desk.close()

    def _kill(self) -> None:
        if self._worker is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._worker, signal.SIGKILL)

    def _begin(self, pid: int | None) -> None:
        with self._lock:
            if pid is not None and hasattr(os, "pidfd_open"):
                self._worker = os.pidfd_open(pid)
            if self._over:
                self._kill()

    def _end(self) -> None:
        with self._lock:
            self._over = True
            if self._worker is not None:
                os.close(self._worker)
                self._worker = None

    def run(self, pool: "Monty") -> tuple[MontyResult, Stopped | None]:
        from pydantic_monty import MontyError

        text = MontySource.of(self._job["code"], self._limits.output)
        printed = PrintedOutput(self._limits.output, lambda: self.stop("output"))
        heard = MontyResult()
        try:
            resources: Any = {
                "max_feed_duration_secs": self._limits.seconds,
                "max_memory": self._limits.memory,
                "max_suspensions": MAX_TOOL_CALLS,
            }
            with pool.checkout(limits=resources, assert_message_annotations=False) as session:
                self._begin(session.worker_pid)
                try:
                    told = self._feed(session, text, printed)
                finally:
                    self._end()
            heard.value = _value(told, self._limits.output)
        except _NotJson as error:
            heard.failure = CodeFailure("value", f"The result cannot be given as JSON: {error}", "ValueError")
        except MontyError as error:
            self._explain(error, text, heard)
        except CancelledError:
            self._stopped = self._stopped or "time"
        heard.stdout = printed.text()
        if self._stopped is not None:
            heard.failure = CodeFailure("died", limit_message(self._stopped, self._limits), stopped=self._stopped)
        heard.doubtful = heard.failure is not None and self._stopped in (None, "memory") and not self._desk.asked
        return heard, self._stopped

    def _feed(self, session: "MontySession", text: MontySource, printed: "PrintedOutput") -> Any:
        """The value of the whole text: JSON, or None if the program has none."""
        from pydantic_monty import ClassInstance, FunctionSnapshot, MontyComplete, NameLookupSnapshot

        given: dict[str, Any] = {"args": dict(self._job.get("arguments") or {})}
        if self._job["mode"] == "script":
            return session.feed_run(text.whole, inputs=given, print_callback=printed)
        given["tools"] = ClassInstance(self._desk, allowed_methods=set())
        at: SyncSnapshot = session.feed_start(text.whole, inputs=given, print_callback=printed)
        while not isinstance(at, MontyComplete):
            if isinstance(at, FunctionSnapshot):
                at = at.resume(self._desk.answer(at))
            elif isinstance(at, NameLookupSnapshot):
                at = at.resume()
            else:
                raise CancelledError
        return at.output

    def _explain(self, error: "MontyError", text: MontySource, heard: MontyResult) -> None:
        """Tells what went wrong, in the words and the shape of the CPython worker."""
        from pydantic_monty import MontyCrashedError, MontySyntaxError

        if isinstance(error, MontyCrashedError):
            if error.timed_out:
                self._stopped = self._stopped or "time"
            heard.failure = CodeFailure("died", "Its interpreter died, most likely for the memory that it used.")
            return
        inner = error.exception()
        name, message = type(inner).__name__, str(inner)
        if name == "TimeoutError":
            self._stopped = "time"
        elif name == "MemoryError":
            self._stopped = "memory"
        elif isinstance(error, MontySyntaxError):
            heard.failure = CodeFailure("syntax", message, name)
        else:
            heard.failure = self._failure(error, name, message, text)

    def _failure(self, error: Any, name: str, message: str, text: MontySource) -> CodeFailure:
        frames = error.traceback()
        if frames and frames[-1].line > text.lines:
            return CodeFailure("value", f"The result cannot be given as JSON: {message}", "ValueError")
        if self._desk.refused is not None and message == self._desk.refused.message:
            name, message = "ToolError", f"{self._desk.refused.code}: {message}"
        shown = [
            f"line {frame.line}, in {frame.function_name or '<module>'}: "
            + shortened(text.source[frame.line - 1].strip(), 120)
            for frame in (*frames[:3], *frames[3:][-8:])
            if 0 < frame.line <= len(text.source)
        ]
        line, column = (frames[-1].line, frames[-1].column) if frames else (None, None)
        if line == text.shifted[0] and column is not None:
            column = max(1, column - text.shifted[1])
        message = shortened(message, 2_000) or f"{name} was raised, without a message"
        return CodeFailure("raised", message, name, line, column, shortened("\n".join(shown), 2_000) or None)


class PrintedOutput:
    """The output of a program. Monty's own collector has a limit too, but lets the program go on till its time is over."""

    def __init__(self, most: int, full: Callable[[], None]) -> None:
        self._most, self._full = most, full
        self._size = 0
        self._parts: list[str] = []

    def __call__(self, _stream: str, text: str) -> None:
        """Monty can only print to stdout, but for a program that has `sys`."""
        room = self._most - self._size
        self._size += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if room > 0:
            self._parts.append(text[:room])
        if self._size > self._most:
            self._full()

    def text(self) -> str:
        return "".join(self._parts)


class _NotJson(Exception):
    """A result that JSON has no word for."""


def _value(told: Any, output: int) -> Any:
    if told is None:
        return None
    if not isinstance(told, str):
        raise _NotJson(f"it is larger than {output:,} bytes.")
    value = json.loads(told, object_pairs_hook=_object)
    wrong = find_not_json(value)
    if wrong is not None:
        raise _NotJson(f"{f'at {wrong.path} it' if wrong.path else 'it'} {wrong.message}.")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _NotJson("it has two keys that are the same in JSON, like 1 and '1'.")
    return made

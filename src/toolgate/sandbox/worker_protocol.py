"""The protocol between host and worker: a job, what it asks for meanwhile, and how it ended.

Lines of JSON. A frame from the worker begins with 0x1E; whatever else there is, the code wrote by itself. Nothing that comes
out is trusted: a forged frame asks for no more than the code may ask for anyway, and a forged result is the code's result.
Whoever asks for too much at once is not read until it has been served, so the host's memory does not grow with its demands.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal, get_args

import msgspec
import orjson

from toolgate.errors import shortened
from toolgate.model import Outcome
from toolgate.sandbox.jail import JailedProcess, ResourceLimits, Stopped, Unavailable
from toolgate.tasks import BackgroundTasks, start_task

logger = logging.getLogger("toolgate.sandbox")
FRAME = b"\x1e"
MAX_CONCURRENT_REQUESTS = 16
"""Questions of one job that are answered at the same time."""
FRAME_READ_BYTES = 65_536
MAX_LOG_LINES = 200
MAX_LOG_LINE_CHARS = 2_000

Level = Literal["debug", "info", "warn", "error"]
Kind = Literal["syntax", "raised", "value", "missing", "died"]
Serve = Callable[[str, list[Any]], Awaitable[Any]]
"""Answers a question of the code: what it wants, and with what. An exception is told to the code."""


class Refusal(Exception):
    """A question that the host answers with an error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def given(outcome: Outcome) -> Any:
    """The output of a call that was made for code, if it succeeded; else what the code is told of it."""
    if outcome.ok:
        return outcome.output
    code = outcome.error.code if outcome.error is not None else "UNEXPECTED_ERROR"
    words = outcome.error.message if outcome.error is not None else "It failed."
    if outcome.pending is not None:
        words = f"{words} ({outcome.pending.kind} {outcome.pending.id})"
    raise Refusal(code, words)


class CodeFailure(msgspec.Struct, frozen=True):
    """Why code did not give a result."""

    kind: Kind
    message: str
    name: str | None = None
    line: int | None = None
    column: int | None = None
    stack: str | None = None
    stopped: Stopped | None = None
    """The limit that it ran into, if that is why."""

    def __str__(self) -> str:
        column = "" if self.column is None else f", column {self.column}"
        where = "" if self.line is None else f" (line {self.line}{column})"
        name = f"{self.name}: " if self.name and not self.message.startswith(self.name) else ""
        return f"{name}{self.message}{where}"


class WorkerLogLine(msgspec.Struct, frozen=True):
    """A line that code gave to its logger."""

    level: Level
    message: str


class WorkerResult(msgspec.Struct):
    """The result of a job."""

    value: Any = None
    failure: CodeFailure | None = None
    stdout: str = ""
    stderr: str = ""
    logs: list[WorkerLogLine] = msgspec.field(default_factory=list)
    compiled: str | None = None
    """The code in the form that its runtime takes without compiling it again."""


class Worker:
    """A warm process: ready for one job."""

    def __init__(self, process: JailedProcess, limits: ResourceLimits) -> None:
        self.process = process
        self._limits = limits
        self._unread = bytearray()
        self._longest = 8 * limits.output + FRAME_READ_BYTES
        self._written = {"stdout": 0, "stderr": 0, "nothing": 0}
        self._texts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._errors = start_task(self._drain_errors())

    async def ready(self) -> None:
        """Wait until it has all it needs; raises Unavailable if it could not be started."""
        while (line := await self._line()) is not None:
            if "ready" in (self._frame(line) or ()):
                return
        code = await self._end()
        said = self._text("stderr").strip()[-500:]
        raise Unavailable(f"a worker did not start: {said or f'it ended with exit code {code}'}")

    async def run(
        self, job: dict[str, Any], serve: Serve | None = None, limits: ResourceLimits | None = None
    ) -> WorkerResult:
        """Have the one job of the process done, within limits that may be narrower than those of its kind."""
        self._limits = limits or self._limits
        heard = WorkerResult()
        asked = BackgroundTasks()
        room = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
        try:
            await self.process.write(orjson.dumps({"run": job}) + b"\n")
            while not await self._next(heard, serve, asked, room):
                pass
        finally:
            await asked.close()  # what it began and did not wait for is settled before it is said to have ended
            await asyncio.sleep(0)  # what it wrote to stderr before its last frame is there by now
            await asyncio.sleep(0)
            heard.stdout, heard.stderr = self._text("stdout"), self._text("stderr")
        if self.process.stopped == "output" and heard.failure is None:
            heard.failure = CodeFailure("died", limit_message("output", self._limits), stopped="output")
        return heard

    async def _next(self, heard: WorkerResult, serve: Serve | None, asked: BackgroundTasks, room: asyncio.Semaphore) -> bool:
        """Hear one line; whether it was the last."""
        line = await self._line()
        if line is None:
            heard.failure = await self._death()
            return True
        frame = self._frame(line)
        if frame is None:
            return False  # its own words
        if ("result" in frame or "failure" in frame) and len(line) <= self._limits.output + FRAME_READ_BYTES:
            compiled = frame.get("compiled")
            heard.compiled = compiled if isinstance(compiled, str) else None
            heard.value = frame.get("result")
            heard.failure = _failure(frame["failure"]) if "failure" in frame else None
            return True
        elif "call" in frame:
            await room.acquire()
            asked.start(self._answer(frame, serve, room))
        elif "out" in frame:
            stream = "stderr" if frame["out"] == "stderr" else "stdout"
            self._keep(stream, str(frame.get("text", "")).encode("utf-8", "replace"))
        elif "log" in frame and len(heard.logs) < MAX_LOG_LINES:
            heard.logs.append(
                WorkerLogLine(_level(frame["log"]), shortened(str(frame.get("message", "")), MAX_LOG_LINE_CHARS))
            )
        else:
            self._keep("nothing", line)
        return False

    async def _answer(self, frame: dict[str, Any], serve: Serve | None, room: asyncio.Semaphore) -> None:
        number, wanted, given = frame.get("call"), frame.get("op"), frame.get("args")
        try:
            if serve is None or not isinstance(wanted, str) or not isinstance(given, list):
                raise Refusal("PERMISSION_DENIED", "The host answers no such question here.")
            reply = orjson.dumps({"reply": number, "value": await serve(wanted, given)})
        except Refusal as refused:
            reply = orjson.dumps({"reply": number, "error": {"code": refused.code, "message": refused.message}})
        except (TypeError, ValueError):
            error = {"code": "INVALID_INPUT", "message": "The host cannot answer this."}
            reply = orjson.dumps({"reply": number if isinstance(number, int) else None, "error": error})
        except Exception:
            logger.exception("a question of sandboxed code could not be answered")
            reply = orjson.dumps({"reply": number, "error": {"code": "UNEXPECTED_ERROR", "message": "The host failed."}})
        try:
            await self.process.write(reply + b"\n")
        finally:
            room.release()

    # -- reading

    def _frame(self, line: bytes) -> dict[str, Any] | None:
        """The worker's frame in a line; the rest of the line, which the code wrote, is kept."""
        own, mark, told = line.partition(FRAME)
        frame = None
        if mark:
            try:
                frame = orjson.loads(told)
            except orjson.JSONDecodeError:
                own = line
            if not isinstance(frame, dict):
                self._keep("nothing", told)
        if own:
            self._keep("stdout", own)
        return frame if isinstance(frame, dict) else None

    async def _line(self) -> bytes | None:
        """The next line; None if there is none. A line that never ends is cut short, its writer ended."""
        while (end := self._unread.find(b"\n")) < 0:
            if len(self._unread) > self._longest:
                self.process.kill("output")
                self._unread.clear()
                return None
            chunk = await self.process.read(FRAME_READ_BYTES)
            if not chunk:
                if not self._unread:
                    return None
                end = len(self._unread)
                break
            self._unread += chunk
        line = bytes(self._unread[: end + 1])
        del self._unread[: end + 1]
        return line

    def _keep(self, stream: str, text: bytes) -> None:
        """Keep what the code wrote, up to the limit; beyond it, end the process. What means nothing is counted only: whoever
        has the host read without end is to be stopped as well."""
        room = self._limits.output - self._written[stream]
        self._written[stream] += len(text)
        if room > 0 and stream in self._texts:
            self._texts[stream].append(text[:room])
        if len(text) > room:
            self.process.kill("output")
            self.process.stopped = self.process.stopped or "output"  # also if it has just ended by itself

    def _text(self, stream: str) -> str:
        return b"".join(self._texts[stream]).decode("utf-8", "replace")

    async def _drain_errors(self) -> None:
        while chunk := await self.process.read_errors(FRAME_READ_BYTES):
            self._keep("stderr", chunk)

    # -- ends that are not told

    async def _end(self) -> int:
        code = await self.process.wait()
        await asyncio.wait((self._errors,), timeout=1)
        return code

    async def _death(self) -> CodeFailure:
        code = await self._end()
        stopped = self.process.stopped or limit_met(code, self._text("stderr"))
        return CodeFailure("died", died(stopped, code, self._limits), stopped=stopped)

    async def close(self) -> None:
        await self.process.close()
        self._errors.cancel()


def limit_met(code: int, errors: str = "") -> Stopped | None:
    """The limit for which the kernel, or its own runtime, ended a process, told by its exit code and last words."""
    if "out of memory" in errors[-4_000:].lower() or code in (-6, -5, 133, 134):
        return "memory"
    if code in (-24, 152):
        return "time"
    return "disk" if code in (-25, 153) else None


def died(stopped: Stopped | None, code: int, limits: ResourceLimits) -> str:
    """Why a process ended without a word, in words."""
    if stopped is not None:
        return limit_message(stopped, limits)
    if code in (-9, 137):
        return "It was killed, most likely for the memory that it used."
    if code in (-31, 159):
        return "It was ended for a system call that no sandboxed code may make."
    return f"It ended without a result (exit code {code})."


def limit_message(why: str, limits: ResourceLimits) -> str:
    words = {
        "time": f"The tool did not finish within {limits.seconds:g} s.",
        "memory": f"It used more than {limits.memory >> 20} MB of memory.",
        "disk": f"It wrote more than {limits.disk >> 20} MB, or more than {limits.files} files.",
        "processes": f"It had more than {limits.processes} processes.",
        "output": f"It wrote more than {limits.output:,} bytes of output.",
    }
    return words[why]


def _failure(told: Any) -> CodeFailure:
    fields = told if isinstance(told, dict) else {}
    kind = fields.get("kind")
    return CodeFailure(
        kind if kind in ("syntax", "raised", "value", "missing") else "raised",
        _text_of(fields.get("message"), 4_000) or "It failed and did not say why.",
        _text_of(fields.get("name"), 200),
        _number(fields.get("line")),
        _number(fields.get("column")),
        _text_of(fields.get("stack"), 4_000),
    )


def _text_of(value: Any, most: int) -> str | None:
    return value[:most] if isinstance(value, str) and value else None


def _number(value: Any) -> int | None:
    return value if type(value) is int and 0 < value < 10**9 else None


def _level(value: Any) -> Level:
    return next((level for level in get_args(Level) if level == value), "info")

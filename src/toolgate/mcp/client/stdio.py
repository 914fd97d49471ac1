"""The stdio transport: one JSON message a line, over the pipes of a program.

What a program prints is data. Lines that are no messages are skipped and counted, since some servers print a banner; a line
without end, or too many such lines, ends the connection with a reason. Its stderr is always read, so that it never blocks,
and the end of it is kept for the reason of a failure.
"""

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import orjson
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from toolgate.jsontext import MAX_JSON_VALUES, holds_too_much
from toolgate.mcp.client.errors import INTERNAL_ERROR, PARSE_ERROR
from toolgate.mcp.client.model import ServerInfo
from toolgate.mcp.client.untrusted_text import printable, size
from toolgate.sandbox.jail import JailedProcess
from toolgate.tasks import finish, start_task, stop_tasks

if TYPE_CHECKING:
    from toolgate.mcp.client.launch import ServerProcess

READ_BYTES = 262_144
MAX_SKIPPED_PER_TURN = 200
"""Lines that are skipped before other tasks have their turn."""
MAX_STDERR_BYTES = 4_096
MAX_STDERR_LINES = 12
EXIT_SECONDS = 2.0
"""Seconds for a program to exit once its stdin is closed."""
TERMINATE_SECONDS = 1.0
"""Seconds to exit after SIGTERM."""
MAX_BACKLOG_BYTES = 67_108_864
"""Bytes that may wait for a program that does not read."""
MAX_BATCH_MESSAGES, MAX_BATCH_BYTES = 100, 1_048_576
"""The limits of a batch. We send none, so no server has to answer with many."""

_ESCAPED = re.compile(
    rb"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(?P<half>u[dD][89a-fA-F][\da-fA-F]{2})|.)", re.DOTALL
)
"""In JSON: a surrogate pair, a lone surrogate, or any other escape."""
_ID = rb'"id"\s*:\s*(\d{1,15}|"[^"\\]{1,64}")'
_NAMED = (
    re.compile(rb'\A\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID),
    re.compile(rb",\s*" + _ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\Z'),
)
"""Places at which an id is sure to be that of the message itself: its very beginning, or its end."""
_NEAR = 200


class StdoutReader(ObjectReceiveStream[SessionMessage | Exception]):
    """The program's messages, as the SDK reads them."""

    def __init__(self, box: JailedProcess, most: int) -> None:
        self._box = box
        self._most = most
        self._parts: list[bytes] = []
        """Of a line that has not ended yet."""
        self._held = 0
        self._lines: deque[bytes] = deque()
        """Read, but not decoded yet."""
        self._ready: deque[JSONRPCMessage] = deque()
        self._rubbish = 0
        self.skipped = 0
        """Lines that were no messages."""
        self.such_as = b""
        self.finished = False
        """True once the program closed its stdout."""
        self.broken: str | None = None
        """The reason why reading stopped, if it was not the program that ended."""

    async def receive(self) -> SessionMessage | Exception:
        looked = 0
        while not self._ready:
            if self.broken is not None:
                raise anyio.EndOfStream
            if self._lines:
                self._take(self._lines.popleft().strip())
                looked += 1
                if looked % MAX_SKIPPED_PER_TURN == 0:
                    await asyncio.sleep(0)
            elif self.finished:
                raise anyio.EndOfStream
            else:
                await self._more()
        return SessionMessage(self._ready.popleft())

    async def _more(self) -> None:
        piece = await self._box.read(READ_BYTES)
        self.finished = not piece
        head, newline, tail = piece.rpartition(b"\n")
        if newline or not piece:
            lines = b"".join((*self._parts, head)).split(b"\n")
            self._parts, self._held = [tail], len(tail)
            self._lines.extend(lines)
        else:
            self._parts.append(tail)
            self._held += len(tail)
        if self._held > self._most:
            self._break(f"It sent a message of more than {size(self._most)} (setting output_bytes).")

    def _take(self, line: bytes) -> None:
        if not line:
            return
        if len(line) > self._most:
            self._break(f"It sent a message of more than {size(self._most)} (setting output_bytes).")
            return
        messages = decode(line)
        if messages:
            self._ready.extend(messages)
            self._rubbish = 0
            return
        self.skipped += 1
        self._rubbish += len(line)
        if self._rubbish > self._most:
            self.such_as = line[:200]
            self._break(f"It printed more than {size(self._most)} of output that is no JSON-RPC.")

    def _break(self, why: str) -> None:
        self.broken = why
        self._parts = []
        self._lines.clear()

    async def drain(self) -> None:
        """Reads and drops the rest, so that a program that is about to exit does not block on it."""
        while await self._box.read(READ_BYTES):
            continue

    async def aclose(self) -> None:
        """The pipe is closed with the program."""


class StdinWriter(ObjectSendStream[SessionMessage]):
    """Writes messages to the program without waiting until it has read them: it may never."""

    def __init__(self, box: JailedProcess) -> None:
        self._box = box
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._flushing: asyncio.Task[None] | None = None
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        line = encode(item.message)
        if self._bytes + len(line) > MAX_BACKLOG_BYTES:
            raise anyio.BrokenResourceError
        self._waiting.append(line)
        self._bytes += len(line)
        if self._flushing is None:
            self._flushing = start_task(self._flush())

    async def _flush(self) -> None:
        try:
            while self._waiting:
                piece = b"".join(self._waiting)
                self._waiting.clear()
                await self._box.write(piece)
                self._bytes -= len(piece)
        finally:
            self._flushing = None

    async def aclose(self) -> None:
        self._closed = True

    async def stop(self) -> None:
        self._closed = True
        if self._flushing is not None:
            self._flushing.cancel()


class StdioChannel:
    """A program and its transport."""

    def __init__(self, program: "ServerProcess", most: int, mask: Callable[[str], str]) -> None:
        self._program = program
        self._mask = mask
        self._errors = bytearray()
        self._listening = start_task(self._listen())
        self.read = StdoutReader(program.box, most)
        self.write = StdinWriter(program.box)
        self.jail = program.jail
        self.layers = program.layers
        self.pid: int | None = program.box.pid
        self._given_up = False

    async def _listen(self) -> None:
        while piece := await self._program.box.read_errors(READ_BYTES):
            self._errors += piece[-MAX_STDERR_BYTES:]
            del self._errors[:-MAX_STDERR_BYTES]

    async def why(self) -> str | None:
        """Gives the reason why it ended; None if it has not."""
        box = self._program.box
        if self.read.broken is not None or not self.read.finished:
            return self.read.broken
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_SECONDS):
                code = await box.wait()
                await asyncio.wait({self._listening}, timeout=EXIT_SECONDS / 4)
                return self._ended(code)
        return "It closed its output."

    def _ended(self, code: int) -> str:
        stopped = self._program.box.stopped
        if stopped:
            return f"It was killed: it used more {stopped} than its limit."
        return f"It was killed by signal {-code}." if code < 0 else f"It exited with code {code}."

    def fast_http(self, _: ServerInfo) -> None:
        """There is no faster path."""

    def said(self) -> str:
        """The last line of its stderr."""
        lines = self.last_lines()
        if not lines and self.read.skipped:
            such_as = printable(self._mask(self.read.such_as.decode("utf-8", "replace")), 80)
            return f"{self.read.skipped} lines that are no JSON-RPC" + (f", such as {such_as!r}" if such_as else "")
        return lines[-1].strip() if lines else ""

    def last_lines(self) -> tuple[str, ...]:
        """The last lines of its stderr. A line whose beginning is lost is not shown, since it could not be masked."""
        words = self._errors.decode("utf-8", "replace")
        if len(self._errors) == MAX_STDERR_BYTES:
            words = words.partition("\n")[2]
        lines = [line.rstrip() for line in words.splitlines() if line.strip()]
        return tuple(printable(self._mask(line), 500) for line in lines[-MAX_STDERR_LINES:])

    def give_up(self) -> None:
        """It is killed without being asked to exit first."""
        self._given_up = True

    async def close(self) -> None:
        """Closes its stdin; then sends SIGTERM; then kills it, with all that it started."""
        box = self._program.box
        try:
            await self.write.stop()
            if not self._given_up and box.is_alive():
                await self._ask_to_end(box)
        finally:
            await self._program.close()
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening

    async def _ask_to_end(self, box: JailedProcess) -> None:
        await box.close_stdin()
        draining, ended = start_task(self.read.drain()), start_task(box.wait())
        try:
            if not (await asyncio.wait({ended}, timeout=EXIT_SECONDS))[0]:
                self._program.terminate()
                await asyncio.wait({ended}, timeout=TERMINATE_SECONDS)
        finally:
            await stop_tasks(draining, ended)


@asynccontextmanager
async def open_stdio(program: "ServerProcess", most: int, mask: Callable[[str], str]) -> AsyncIterator[StdioChannel]:
    """The transport of a started program; the program is gone when this is left. `mask` masks its secrets."""
    stdio = StdioChannel(program, most, mask)
    try:
        yield stdio
    finally:
        await finish(stdio.close())


def decode(line: bytes) -> list[JSONRPCMessage]:
    """The messages of a line: one, a batch as in protocol 2025-03-26, or none if it is no JSON-RPC."""
    several = line.startswith(b"[")
    if several and len(line) > MAX_BATCH_BYTES:
        return []
    if holds_too_much(line):
        return _no_answer(line, f"The server's answer holds more than {MAX_JSON_VALUES} values.")
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _unreadable(line)
    if several and len(value) > MAX_BATCH_MESSAGES:
        return []
    found = [_message(one) for one in (value if several else [value])]
    return [one for one in found if one is not None]


def _unreadable(line: bytes) -> list[JSONRPCMessage]:
    """Decodes what is almost JSON: lone surrogates, NaN, invalid UTF-8. Another response becomes an error at once."""
    if not line.startswith(b"{"):
        return []
    with suppress(ValueError, RecursionError):
        text = _ESCAPED.sub(lambda found: b"\\ufffd" if found["half"] else found[0], line).decode("utf-8", "replace")
        message = _message(json.loads(text, parse_constant=lambda _: None))
        return [message] if message is not None else []
    return _no_answer(line, "The server's response is not valid JSON.")


def _no_answer(line: bytes, words: str) -> list[JSONRPCMessage]:
    """An error in place of a response that is not decoded, if its id can be found."""
    first, last = _NAMED
    named = first.search(line[:_NEAR]) or last.search(line[-_NEAR:])
    if named is None or not (b'"result"' in line or b'"error"' in line):
        return []
    error = ErrorData(code=PARSE_ERROR, message=words)
    return [JSONRPCError.model_construct(jsonrpc="2.0", id=orjson.loads(named[1]), error=error)]


def _message(value: Any) -> JSONRPCMessage | None:
    """Builds a message leniently: each field only has to be of the type that its readers rely on."""
    if not isinstance(value, dict):
        return None
    number: Any = value.get("id")
    named = isinstance(number, str | int) and not isinstance(number, bool)
    if isinstance(value.get("method"), str):
        params = value.get("params")
        params = params if isinstance(params, dict) else None
        if named:
            return JSONRPCRequest.model_construct(jsonrpc="2.0", id=number, method=value["method"], params=params)
        return JSONRPCNotification.model_construct(jsonrpc="2.0", method=value["method"], params=params)
    if not named:
        return None
    if isinstance(value.get("error"), dict):
        return JSONRPCError.model_construct(jsonrpc="2.0", id=number, error=_error(value["error"]))
    if isinstance(value.get("result"), dict):
        return JSONRPCResponse.model_construct(jsonrpc="2.0", id=number, result=value["result"])
    words = "The server's response has neither a valid result nor a valid error."
    return JSONRPCError.model_construct(jsonrpc="2.0", id=number, error=ErrorData(code=INTERNAL_ERROR, message=words))


def _error(value: dict[str, Any]) -> ErrorData:
    code, message = value.get("code"), value.get("message")
    return ErrorData.model_construct(
        code=code if isinstance(code, int) and not isinstance(code, bool) else INTERNAL_ERROR,
        message=message if isinstance(message, str) else "The server's error has no message.",
        data=value.get("data"),
    )


def encode(message: JSONRPCMessage) -> bytes:
    plain: dict[str, Any] = {"jsonrpc": "2.0"}
    if not isinstance(message, JSONRPCNotification):
        plain["id"] = message.id
    if isinstance(message, JSONRPCRequest | JSONRPCNotification):
        plain["method"] = message.method
        if message.params is not None:
            plain["params"] = message.params
    elif isinstance(message, JSONRPCResponse):
        plain["result"] = message.result
    else:
        plain["error"] = message.error.model_dump(mode="json", exclude_unset=True)
    try:
        return orjson.dumps(plain, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # whole numbers beyond 64 bits, halves of characters
        return json.dumps(plain, separators=(",", ":")).encode() + b"\n"

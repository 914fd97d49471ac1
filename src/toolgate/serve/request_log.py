"""The log of a server on stderr: a line for each request and one for each call.

Lines have neither query strings nor headers, bodies or arguments, and whatever a client wrote is escaped: it can't begin a
line, or hide a part of one. A request only appends values to a list; twenty times a second they become text, in one write,
in a thread, so that neither a call nor the event loop waits for whoever reads the log. /mcp is left to the lines of calls
unless more is asked for: its requests are nearly all calls.
"""

import asyncio
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

import orjson
from starlette.types import Scope

from toolgate.app.app import App
from toolgate.gates.approval.request import visible
from toolgate.mcp.server.identity import CREDENTIAL_KEY, REQUEST_ID_KEY
from toolgate.model import Outcome, check_request_id, new_id
from toolgate.pipeline.context import InvokeContext
from toolgate.tasks import start_task
from toolgate.threads import to_thread

LogFormat = Literal["text", "json"]
FLUSH_SECONDS = 0.05
MAX_WAITING_LINES = 10_000
"""Lines that wait to be written; where whoever reads them is slower, more are dropped and counted."""
MAX_VALUE_CHARS = 300
REQUEST_ID_HEADER = b"x-request-id"

PLAIN_WORD = re.compile(rf"[A-Za-z0-9_.:/@+~*-]{{1,{MAX_VALUE_CHARS}}}")

Fields = dict[str, Any]


def request_id_of(headers: Mapping[bytes, bytes] | list[tuple[bytes, bytes]]) -> str:
    """The id that a client gave its request, or a new one if it gave none that a record may hold."""
    given = dict(headers).get(REQUEST_ID_HEADER)
    if given is not None:
        try:
            text = given.decode("ascii")
            check_request_id(text)
            return text
        except ValueError:  # also what is no ASCII, which a header should be
            pass
    return new_id()


class ServerLog:
    """The lines of one server, also of calls that came by other doors of its process."""

    def __init__(self, form: LogFormat = "text", *, verbose: bool = False, descriptor: int = 2) -> None:
        self.verbose = verbose
        """Whether requests of /mcp have lines too."""
        self._form = form
        self._descriptor = descriptor
        self._waiting: list[tuple[float, Fields]] = []
        self._dropped = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def of(self, app: App) -> AsyncIterator[None]:
        """Notes the calls of an App, until what is left is written."""
        app.audit.on_call(self.call)
        try:
            yield
        finally:
            await self.close()

    # -- what happened

    def request(self, scope: Scope, status: int, sent: int, begun: float) -> None:
        """Notes a request that was answered. `begun`: by the performance counter."""
        credential = scope.get(CREDENTIAL_KEY)
        fields: Fields = {
            "event": "request", "method": scope["method"], "path": scope["path"], "status": status,
            "ms": round((time.perf_counter() - begun) * 1000, 2), "bytes": sent, "request": scope.get(REQUEST_ID_KEY),
        }  # fmt: skip
        if credential is not None:
            fields |= {"tenant": credential.actor.tenant, "user": credential.actor.user, "credential": credential.id}
        self._add(fields)

    def call(self, ctx: InvokeContext, outcome: Outcome) -> None:
        """Notes a call that ended."""
        call, error = ctx.call, outcome.error
        actor = call.actor
        self._add({
            "event": "call", "call": call.id, "tool": call.tool, "tenant": actor.tenant, "persona": actor.persona,
            "user": actor.user, "door": call.door, "status": outcome.status,
            "code": None if error is None else error.code, "ms": round(outcome.metrics.duration_ms, 2),
            "request": call.request_id,
        })  # fmt: skip

    def _add(self, fields: Fields) -> None:
        if len(self._waiting) >= MAX_WAITING_LINES:
            self._dropped += 1
            return
        self._waiting.append((time.time(), fields))
        if self._timer is None and self._writing is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._flush)

    # -- lines

    def _flush(self) -> None:
        self._timer = None
        self._writing = start_task(to_thread(self._write, self._taken()), unheard=True)
        self._writing.add_done_callback(self._flushed)

    def _flushed(self, _task: object) -> None:
        self._writing = None
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._flush)

    def _taken(self) -> list[tuple[float, Fields]]:
        waiting, self._waiting = self._waiting, []
        dropped, self._dropped = self._dropped, 0
        if dropped:
            waiting.append((time.time(), {"event": "dropped", "lines": dropped}))
        return waiting

    def _write(self, waiting: list[tuple[float, Fields]]) -> None:
        text = "".join([line(at, fields, self._form) for at, fields in waiting]).encode("utf-8", "backslashreplace")
        while text:
            try:
                text = text[os.write(self._descriptor, text) :]
            except OSError:  # nobody reads it: then so be it
                return

    async def close(self) -> None:
        """Writes what waits."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await asyncio.wait((self._writing,))
        self._write(self._taken())


def line(at: float, fields: Fields, form: LogFormat) -> str:
    """One line of a log; values that are None are left out."""
    moment = f"{_second(int(at))}.{int(at % 1 * 1000):03}Z"
    if form == "json":
        plain = {name: _shown(value) for name, value in fields.items() if value is not None}
        return orjson.dumps({"time": moment, **plain}).decode() + "\n"
    words = [f"{name}={_word(value)}" for name, value in fields.items() if value is not None and name != "event"]
    return f"{moment} {fields['event']} {' '.join(words)}\n"


@lru_cache(maxsize=2)
def _second(at: int) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}"


def _shown(value: Any) -> Any:
    return visible(value[:MAX_VALUE_CHARS]) if isinstance(value, str) else value


def _word(value: Any) -> str:
    """A value in a line of words: quoted if it could be taken for more than one."""
    if not isinstance(value, str):
        return str(value)
    if PLAIN_WORD.fullmatch(value):
        return value
    return '"' + visible(value[:MAX_VALUE_CHARS]).replace("\\", "\\\\").replace('"', '\\"') + '"'


class LogFormatter(logging.Formatter):
    """Other messages of the program in the form of these lines."""

    def __init__(self, form: LogFormat) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        fields: Fields = {"event": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = record.exc_info[0].__name__
        return line(record.created, fields, self._form)[:-1]

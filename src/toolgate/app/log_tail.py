"""The end of the audit log, followed live: what a call or a person did, for whoever watches.

Every process reads the one log, so that it does not matter which of them something happened in, and a watcher that comes
back with the number of the last event it saw goes on behind that one. The log is read once for all watchers of a process,
and only while there are any.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import orjson

from toolgate.errors import StoreError
from toolgate.store.database import Rows
from toolgate.tasks import start_task

POLL_SECONDS = 0.2
RETRY_SECONDS = 2.0
MAX_WAITING_EVENTS = 1_000
"""New events that a watcher may not have taken yet; after that it reads the log again."""
PAGE_EVENTS = 500
MAX_PAGE_READS = 4
"""Pages that are read at a time for all who are behind: however many come back at once, others need the database too."""
CALL_EVENTS = {"start": "call.started", "end": "call.ended"}
SHOWN = frozenset({
    "approval", "budget", "code", "cost_usd", "door", "duration_ms", "for_persona", "for_tenant", "grant", "job", "key",
    "outer_call", "parent", "pending", "request_id", "schedule", "server", "session", "state", "type", "verdict",
})  # fmt: skip
"""Fields of records that events tell. Everything else (arguments, outputs, messages) is read where the caller may."""

logger = logging.getLogger("toolgate")
ReadLog = Callable[..., Awaitable[Rows]]
Whose = tuple[str | None, str | None]
"""A tenant and a user; None: any."""


class LogEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One record of the audit log, in short."""

    seq: int
    at_ms: float
    event: str
    """call.started, call.ended, or the name of an act: approval.requested, tool.disabled …"""
    call: str
    """The id of the call, or of the act."""
    tenant: str
    tool: str
    status: str
    user: str | None
    persona: str | None
    details: dict[str, Any]

    def is_for(self, tenant: str | None, user: str | None) -> bool:
        """Tells whether an event is of this tenant and user; None: of any."""
        return tenant in (None, self.tenant) and user in (None, self.user)

    def audiences(self) -> set[Whose]:
        """Gives the tenants and users that `is_for` is true of."""
        return {(tenant, user) for tenant in (None, self.tenant) for user in (None, self.user)}


def event_of(row: tuple[Any, ...]) -> LogEvent:
    """Gives a row of the log as an event. One whose body somebody has spoiled tells only that it is there."""
    seq, at, kind, call, tenant, tool, status, body = row[:8]
    try:
        read = orjson.loads(body)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        read = {}
    user, persona = (read.get(name) if isinstance(read.get(name), str) else None for name in ("user", "persona"))
    shown = {name: value for name, value in read.items() if name in SHOWN and value is not None}
    return LogEvent(
        seq=seq, at_ms=at / 1000, event=CALL_EVENTS.get(kind, kind), call=call, tenant=tenant, tool=tool, status=status,
        user=user, persona=persona, details=shown,
    )  # fmt: skip


class Watcher:
    """Somebody who follows the log, from one number on.

    Whoever is behind reads pages of the log itself, and is given new rows by the common reader once it has caught up. Who is
    too slow for that falls back to reading pages, so that nothing is lost and nothing piles up.
    """

    def __init__(self, tail: "LogTail", seq: int, tenant: str | None, user: str | None) -> None:
        self._tail = tail
        self._seq = seq
        """The last row that was taken, or passed over because it is somebody else's."""
        self._tenant, self._user = tenant, user
        self.whose = tenant, user
        self._is_live = False
        self._waiting: deque[LogEvent] = deque()
        self._news = asyncio.Event()

    def give(self, event: LogEvent) -> None:
        """Takes a new row of its tenant and user from the reader."""
        if not self._is_live or event.seq <= self._seq:
            return  # a page of its own may have brought it further than the reader has got
        self._waiting.append(event)
        self._news.set()
        if len(self._waiting) > MAX_WAITING_EVENTS:
            self._is_live = False
            self._waiting.clear()

    async def take(self, seconds: float) -> list[LogEvent]:
        """Gives what has happened since the last look; nothing, if nothing does within so many seconds."""
        while not self._is_live:
            if found := await self._read_page():
                return found
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return []
        self._news.clear()
        taken = [*self._waiting]
        self._waiting.clear()
        if taken:
            self._seq = taken[-1].seq
        return taken

    async def _read_page(self) -> list[LogEvent]:
        """Gives the next rows of the log. Behind the last one the watcher is live, unless the reader went on meanwhile."""
        async with self._tail.reading:
            reached = self._tail.seq
            rows = await self._tail.read(self._seq, tenant=self._tenant, limit=PAGE_EVENTS)
        if rows:
            self._seq = rows[-1][0]
        if len(rows) < PAGE_EVENTS:
            self._seq = max(self._seq, reached)
            self._is_live = self._tail.seq <= self._seq
        events = map(event_of, rows)
        return [event for event in events if event.is_for(self._tenant, self._user)]


class LogTail:
    """The watchers of one process, and the one reader for them."""

    def __init__(self, read: ReadLog, end: Callable[[], Awaitable[int]]) -> None:
        self.read, self._end = read, end
        self.seq = 0
        """The last row that the reader has read."""
        self.reading = asyncio.Semaphore(MAX_PAGE_READS)
        self._watchers: defaultdict[Whose, set[Watcher]] = defaultdict(set)
        """By tenant and user; None: any. A new row concerns few of many watchers."""
        self._reader: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    def __len__(self) -> int:
        return sum(map(len, self._watchers.values()))

    @asynccontextmanager
    async def watching(
        self, after: int | None = None, *, tenant: str | None = None, user: str | None = None
    ) -> AsyncIterator[Watcher]:
        """Follows the log while inside `async with`.

        Args:
            after: The number of the last event that the watcher knows; without it, it begins with what happens next. One
                that the log has not reached is taken for its end.
            tenant: The tenant whose events it is given; None: all of them.
            user: The user whose events it is given; None: all of them.
        """
        async with self._starting:
            if self._reader is None:
                self.seq = await self._end()
                self._reader = start_task(self._follow())
            begin = self.seq if after is None else after
            if begin > self.seq:  # seen in another process, or on a page: the reader may be behind it by a poll
                begin = min(begin, max(self.seq, await self._end()))
            watcher = Watcher(self, begin, tenant, user)
            self._watchers[watcher.whose].add(watcher)
        try:
            yield watcher
        finally:
            self._watchers[watcher.whose].discard(watcher)
            if not self._watchers[watcher.whose]:
                del self._watchers[watcher.whose]

    async def _follow(self) -> None:
        while self._watchers or self._starting.locked():
            await asyncio.sleep(POLL_SECONDS)
            try:
                rows = await self.read(self.seq)
            except StoreError as error:
                logger.warning("the audit log cannot be followed: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for row in rows:
                event = event_of(row)
                for whose in event.audiences():
                    for watcher in self._watchers.get(whose, ()):
                        watcher.give(event)
                self.seq = event.seq
        self._reader = None

    async def close(self) -> None:
        """Ends the reader."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait((self._reader,))
            self._reader = None

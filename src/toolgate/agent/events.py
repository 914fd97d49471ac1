"""The events of runs, for whoever watches: a reader that is slow, or goes away, keeps no run from going on."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from toolgate.agent.run import EventKind, RunEvent

MAX_WAITING_EVENTS = 1_000
"""Events that are kept for a reader that has not come for them; then the oldest are lost, and it is told."""
MAX_PIECE_CHARS = 100_000
"""Characters of text that are put together while they wait."""

Emit = Callable[[RunEvent], None]


class EventReader:
    """One who watches a run."""

    def __init__(self) -> None:
        self._waiting: deque[RunEvent] = deque()
        self._missed = 0
        self._is_over = False
        self._changed = asyncio.Event()

    def put(self, event: RunEvent) -> None:
        last = self._waiting[-1] if self._waiting else None
        if last is not None and event.kind == last.kind == "text" and event.run == last.run:
            text = last.data["text"] + event.data["text"]
            if len(text) <= MAX_PIECE_CHARS:
                self._waiting[-1] = RunEvent("text", {"text": text}, event.run)
                return
        if len(self._waiting) >= MAX_WAITING_EVENTS:
            self._waiting.popleft()
            self._missed += 1
        self._waiting.append(event)
        self._changed.set()

    def end(self) -> None:
        self._is_over = True
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[RunEvent]:
        while True:
            if self._missed:
                words = f"{self._missed} earlier events were left out: they were not read in time."
                self._missed = 0
                yield RunEvent("notice", {"text": words})
            if self._waiting:
                yield self._waiting.popleft()
            elif self._is_over:
                return
            else:
                self._changed.clear()
                await self._changed.wait()


class RunEvents:
    """The events of one run, and of the subordinates in it."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._readers: set[EventReader] = set()

    def __len__(self) -> int:
        return len(self._readers)

    def emit(self, event: RunEvent) -> None:
        for reader in tuple(self._readers):
            reader.put(event)

    def tell(self, kind: EventKind, **data: Any) -> None:
        self.emit(RunEvent(kind, data, self._run))

    def reader(self) -> EventReader:
        reader = EventReader()
        self._readers.add(reader)
        return reader

    def leave(self, reader: EventReader) -> None:
        self._readers.discard(reader)

    def end(self) -> None:
        """Lets readers come to their end, once they have read what waits for them."""
        for reader in tuple(self._readers):
            reader.end()
        self._readers.clear()

"""Reads what is kept of calls beside their records, compares it with the hash in the record, and removes what is too old or
too much."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Literal

import msgspec
import orjson

from toolgate.errors import StoreError
from toolgate.store import call_details
from toolgate.store.database import Store
from toolgate.tasks import start_task, stop_tasks

PRUNE_SECONDS = 10.0
"""How often details are pruned while an App is open."""

logger = logging.getLogger("toolgate.audit")

State = Literal["kept", "pruned", "removed", "changed"]


class CallDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of one call beside its records."""

    seq: int
    """The number of the end record."""
    state: State
    """pruned: retention removed it. removed: somebody else did. changed: it is not what was written, and is not shown."""
    stages: tuple[dict[str, Any], ...] = ()
    """The gates in the order in which they were passed: gate, start_ms, ms, verdict, and where there is one hooks_ms,
    reason, code, attempt."""
    output_bytes: int | None = None
    """The size of the output as JSON, if it is kept."""
    output: Any = None
    output_beginning: str | None = None
    """In place of `output`, where that is larger than the setting audit.details.output_bytes."""

    def to_dict(self) -> dict[str, Any]:
        """The details as plain values, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        if self.output_bytes is not None and self.output_beginning is None:
            plain["output"] = self.output  # which may be null
        return plain


class DetailArchive:
    """The details of all calls."""

    def __init__(self, store: Store, *, days: float, total_bytes: int, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._age = timedelta(days=days)
        self._total_bytes = total_bytes
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = start_task(self._prune_from_time_to_time())

    async def close(self) -> None:
        await stop_tasks(self._task)

    async def _prune_from_time_to_time(self) -> None:
        while True:
            try:
                await self.prune()
            except StoreError as error:
                logger.warning("details of calls could not be pruned: %s", error)
            await asyncio.sleep(PRUNE_SECONDS)

    async def prune(self) -> int:
        """Remove what is too old or too much; gives of how many calls. A few at a time, so that records do not wait long."""
        removed = 0
        limits = int((self._clock() - self._age).timestamp() * 1_000_000), self._total_bytes
        while await self._store.read(call_details.expired(*limits)):  # a look takes no lock that records wait for
            removed += await self._store.transact(call_details.prune(*limits))
        return removed

    async def of_record(self, seq: int, body: str) -> CallDetails | None:
        """What is kept beside an end record; None if nothing ever was."""
        try:
            digest = orjson.loads(body).get("details_sha256")
        except (orjson.JSONDecodeError, AttributeError):
            return None
        if digest is None:
            return None
        content, older = await self._store.read(call_details.fetch(seq))
        if content is None:
            return CallDetails(seq, "removed" if older else "pruned")
        try:
            if sha256(content).hexdigest() == digest:
                return CallDetails(seq, "kept", **orjson.loads(content))
        except (TypeError, orjson.JSONDecodeError):  # whoever wrote it could change the record as well: `verify` tells
            pass
        return CallDetails(seq, "changed")

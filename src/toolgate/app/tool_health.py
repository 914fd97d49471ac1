"""Health checks of tools on a schedule, in processes that stay: serve, mcp, an open App. The last result is kept in the
store, so that whoever asks about a tool sees it, whichever process made the check.

One process makes each check: it takes it by moving the time of the next one. What goes wrong in a check is its result.
"""

import asyncio
import inspect
import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from toolgate.app.checks import ask_tool
from toolgate.errors import described, shortened
from toolgate.jsontext import valid_text
from toolgate.model import Entry
from toolgate.store import tool_health
from toolgate.store.tool_health import HealthRow
from toolgate.tasks import repeat, start_task, stop_tasks

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from toolgate.app.assembly import Parts

CHECK_STEPS = 2
"""Before the first check, or the first call, a tool is initialized; each step has its own time."""
STOP_SECONDS = 1.0
CHECKS_AT_ONCE = 4
JITTER = 0.1
"""Part of the interval by which a check comes sooner or later, so that those of many processes and tools spread."""
MAX_POLL_SECONDS = 15.0
MAX_HEALTH_CHARS = 300
NOT_ENDED = "the check before this one has not ended"

logger = logging.getLogger("toolgate.health")


class HealthAnswer(NamedTuple):
    """What came of a check. The message says why a tool is not well, and may say more of one that is."""

    healthy: bool
    message: str | None = None


class ThreadedChecks:
    """The methods of tools that run in threads, counted by tool: a thread can't be stopped, and each check that starts
    another one while the last still runs would take one more for good."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()

    def is_running(self, tool: str) -> bool:
        return self._running[tool] > 0

    def counted(self, tool: str, method: Any) -> Any:
        """The same method, counted while it runs; a coroutine function as it is."""
        if inspect.iscoroutinefunction(method):
            return method

        def run() -> Any:
            self._count(tool, 1)
            try:
                return method()
            finally:
                self._count(tool, -1)

        return run

    def _count(self, tool: str, change: int) -> None:
        with self._lock:
            self._running[tool] += change


class ToolHealth:
    """Makes the health checks of tools that have one. One for each App."""

    def __init__(self, parts: "Parts", *, on_schedule: bool) -> None:
        """`on_schedule`: whether checks are made without being asked; not where the App is closed again at once."""
        self._parts = parts
        given = parts.settings.health
        self._interval = timedelta(seconds=given.interval_seconds)
        self._seconds = given.timeout_seconds
        self._on_schedule = on_schedule and given.interval_seconds > 0
        self._task: asyncio.Task[None] | None = None
        self._asked: dict[str, asyncio.Task[HealthAnswer]] = {}
        self._threads = ThreadedChecks()
        self._checked: tuple[int, list[Entry]] = (-1, [])
        self._known: list[HealthRow] = []
        self._random = random.Random()

    # -- the schedule

    def start(self) -> None:
        if self._on_schedule:
            pause = min(self._interval.total_seconds() / 4, MAX_POLL_SECONDS)
            self._task = start_task(repeat(pause, self.check_due, logger, "health checks could not be made"))

    async def stop(self) -> None:
        """Makes no more checks. One that can't be cancelled is not waited for."""
        await stop_tasks(self._task)
        asked = [task for task in self._asked.values() if not task.done()]
        for task in asked:
            task.cancel()
        if asked:
            await asyncio.wait(asked, timeout=STOP_SECONDS)

    async def check_due(self) -> None:
        """Makes the checks that are due by now, and plans those of tools that have none planned yet."""
        entries = {entry.name: entry for entry in self.entries() if self._parts.catalog.is_on(entry.name)}
        if not entries:
            self._known = []
            return
        store, now = self._parts.store, self._parts.now()
        planned = {row.tool: row for row in await store.read(tool_health.list_health())}
        for name in entries.keys() - planned.keys():
            await store.transact(tool_health.plan_check(name, now + self._interval * JITTER * self._random.random()))
        latest = now + self._interval * (1 + JITTER)  # later than that only if the interval was longer, or a clock wrong
        due = [row for name, row in planned.items() if name in entries and not now < row.next_check <= latest]
        places = asyncio.Semaphore(CHECKS_AT_ONCE)
        await asyncio.gather(*(self._check(entries[row.tool], row, places) for row in due))
        self._known = [row for row in await store.read(tool_health.list_health()) if row.tool in entries]

    async def _check(self, entry: Entry, row: HealthRow, places: asyncio.Semaphore) -> None:
        async with places:
            now, store = self._parts.now(), self._parts.store
            following = now + self._interval * (1 + JITTER * (2 * self._random.random() - 1))
            if not await store.transact(tool_health.claim_check(entry.name, row.next_check, following)):
                return
            answer = await self.ask(entry)
            state = "healthy" if answer.healthy else "unhealthy"
            if state != row.state and row.state != "unchecked":
                logger.warning("the tool %s is now %s: %s", entry.name, state, answer.message or "no message")
            await store.transact(tool_health.record_check(entry.name, state, answer.message, self._parts.now()))

    # -- one check

    def entries(self) -> list[Entry]:
        """The tools that have a health check."""
        catalog = self._parts.catalog
        version, found = self._checked
        if version != catalog.version:
            version = catalog.version
            found = [one for one in catalog.entries() if has_check(one)]
            self._checked = version, found
        return found

    async def ask(self, entry: Entry) -> HealthAnswer:
        """Asks a tool how it is, made ready as for a call. One that does not answer in time is not waited for, and not
        asked again before it has ended."""
        name = entry.name
        before = self._asked.get(name)
        if self._threads.is_running(name) or (before is not None and not before.done()):
            return HealthAnswer(False, NOT_ENDED)
        task = self._asked[name] = start_task(self._answer(entry))
        try:
            await asyncio.wait({task}, timeout=self._seconds * CHECK_STEPS + 1)
        finally:
            if not task.done():
                task.cancel()
        answer = task.result() if task.done() else HealthAnswer(False, self._late())
        return answer._replace(message=await self._told(answer.message))

    async def _answer(self, entry: Entry) -> HealthAnswer:
        instance: Any = entry.implementation.instance
        method: Callable[[], Any] = self._threads.counted(entry.name, instance.health_check)
        try:
            async with asyncio.timeout(self._seconds):
                await self._parts.local.initialized(instance)
            return read_answer(await ask_tool(self._parts, None, method, self._seconds))
        except TimeoutError:
            return HealthAnswer(False, self._late())
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a tool raises is its answer, be it SystemExit
            return HealthAnswer(False, described(error))

    def _late(self) -> str:
        return f"no answer within {self._seconds:g} s"

    async def _told(self, message: str | None) -> str | None:
        """A tool's words as others may read them: short, in one line, without secrets."""
        if message is None:
            return None
        shown = (char if char.isprintable() else " " for char in valid_text(message[: MAX_HEALTH_CHARS * 10]))
        words = " ".join("".join(shown).split())
        if not self._parts.redactor.ready:
            await self._parts.redactor.prepare(words)
        return shortened(str(self._parts.redactor.mask(words)), MAX_HEALTH_CHARS)

    # -- what is known

    async def of(self, tool: str) -> HealthRow | None:
        """The last check of a tool and the time of the next, made by whichever process; None if none is planned."""
        return await self._parts.store.read(tool_health.health_of(tool))

    def collect(self) -> "Iterator[Metric]":
        """The same of all tools as metrics, as of the last look at the store."""
        from prometheus_client.core import GaugeMetricFamily

        healthy = GaugeMetricFamily("toolgate_tool_healthy", "1 if a tool's last health check passed", labels=["tool"])
        last = GaugeMetricFamily("toolgate_tool_last_check_seconds", "When a tool was last checked", labels=["tool"])
        following = GaugeMetricFamily("toolgate_tool_next_check_seconds", "When a tool is checked next", labels=["tool"])
        for row in self._known:
            following.add_metric([row.tool], row.next_check.timestamp())
            if row.last_check is not None:
                healthy.add_metric([row.tool], float(row.state == "healthy"))
                last.add_metric([row.tool], row.last_check.timestamp())
        yield from (healthy, last, following)


def has_check(entry: Entry) -> bool:
    """True for a class-based tool with a method `health_check`."""
    return callable(getattr(getattr(entry.implementation, "instance", None), "health_check", None))


def read_answer(answer: Any) -> HealthAnswer:
    """Reads True, False or None, or {healthy, message}, as a mapping or an object; None is taken for well."""
    healthy = answer.get("healthy", True) if isinstance(answer, dict) else getattr(answer, "healthy", answer)
    message = answer.get("message") if isinstance(answer, dict) else getattr(answer, "message", None)
    is_well = healthy is None or bool(healthy)
    return HealthAnswer(is_well, str(message) if message else None if is_well else "unhealthy")

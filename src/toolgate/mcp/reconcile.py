"""Compares the definitions of MCP servers with what was accepted: when a server has come up or says that its tools have
changed, every few minutes, and before a call reaches one that was not compared since it came up."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from hashlib import sha256
from time import monotonic
from typing import Any, NamedTuple

import orjson

from toolgate.errors import CallError, described
from toolgate.mcp import definitions as table
from toolgate.mcp.catalog_entries import Upstream, name_here
from toolgate.mcp.client.errors import Unreachable
from toolgate.mcp.client.model import ListKind, ServerInfo
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.mcp.definitions import ITEM_KINDS, Comparison, DefinitionKey, ServerSnapshot
from toolgate.mcp.method_tools import METHOD_CAPABILITIES
from toolgate.mcp.pins import cleaned, found_in, label
from toolgate.model import LOCAL, Actor
from toolgate.registry.catalog import ToolProblem
from toolgate.store.database import Store
from toolgate.tasks import BackgroundTasks, finish, start_task
from toolgate.threads import to_thread

RELIST_SECONDS = 300.0
"""The time after which servers that are up are listed again, should they not tell."""
MAX_COMPARISONS = 3
"""Comparisons of one call, should the server go down each time."""
MIN_RECONCILE_SECONDS = 0.25
"""Between comparisons that a server causes by saying that its tools have changed."""
RECONCILE_IDLE_FACTOR = 20
"""The next such comparison waits this many times as long as the last one took: many tools do not keep us busy."""
MAX_RECONCILE_SECONDS = 30.0
MAX_INLINE_DEFINITIONS = 100
"""More are read in a thread."""
MAX_AUDITED_TOOLS = 100
MAX_FAILURE_CHARS = 500
MAX_INFO_BYTES = 65_536
MAX_RECORDED_INSTRUCTIONS_CHARS = 1_000
ITEM_LIST_SECONDS = 10.0
"""The time that a server's tools wait for its prompts and resources."""
LIST_CHANGES = ("tools", "prompts", "resources")

READ_SECONDS_PER_DEFINITION = 20e-6

RecordAudit = Callable[[str, Actor, str, dict[str, Any]], Awaitable[None]]
logger = logging.getLogger("toolgate")


class ServerListing(NamedTuple):
    about: ServerInfo
    lists: dict[ListKind, list[dict[str, Any]]]
    unknown: frozenset[ListKind]
    """Lists that could not be fetched."""


@dataclass(eq=False)
class Reconciler:
    engine: UpstreamServers
    store: Store
    note: RecordAudit
    announce: Callable[[], Awaitable[None]]
    take: Callable[[], Awaitable[int]]
    """Called after each comparison: loads what the store says now, and returns its epoch."""
    trusts: Callable[[Upstream, DefinitionKey], str | None]
    """Gives the name under which a tool may be used when it is first seen."""

    def __post_init__(self) -> None:
        self.upstreams: Mapping[str, Upstream] = {}
        self.no_definitions: dict[str, list[ToolProblem]] = {}
        self.failures: dict[str, str] = {}
        """Servers that could not be listed, and why."""
        self._compared: dict[str, int] = {}
        """Servers that were compared since they came up, and the number of their start."""
        self._lives: Counter[str] = Counter()
        """Counts for each server how often it went down, or was changed."""
        self._under_way: dict[str, asyncio.Task[Comparison]] = {}
        self._again: set[str] = set()
        self._waiting: set[str] = set()
        self._due: dict[str, float] = {}
        """When a server may next be compared because it says so."""
        self._last: dict[str, tuple[str, int]] = {}
        """The last digest of each, and the epoch of the store then."""
        self._tasks = BackgroundTasks()
        self._stopped = False

    async def stop(self) -> None:
        self._stopped = True
        await self._tasks.close()

    # -- when

    def start_of(self, server: str) -> int | None:
        """The start of a server that was compared; None: it has gone down since."""
        return self._compared.get(server)

    async def before_a_call(self, server: str) -> int:
        """Has a server compared, if it was not since it came up; returns the number of its start."""
        tries = 0
        while server not in self._compared and tries < MAX_COMPARISONS:
            tries += 1
            await self.compare(server)
        if server not in self._compared:
            raise Unreachable(message=f"Server {server} goes down each time its tools are listed.")
        return self._compared[server]

    def doubt(self, server: str) -> None:
        """Forgets a comparison, also one under way: what answers next under this name may be another program."""
        self._lives[server] += 1
        self._compared.pop(server, None)

    def heard(self, server: str, what: str, _uri: str | None) -> None:
        if what == "down":
            self.doubt(server)
        elif what in LIST_CHANGES and server in self._under_way:
            self._again.add(server)
        elif what in LIST_CHANGES or (what == "up" and server not in self._compared):
            self.soon(server)

    def soon(self, server: str) -> None:
        """Compares in the background, when it is due."""
        if server in self.upstreams and server not in self._waiting:
            self._waiting.add(server)
            self.spawn(self._try(server))

    async def now_and_then(self) -> None:
        """Compares servers that are up, every RELIST_SECONDS."""
        while True:
            await asyncio.sleep(RELIST_SECONDS)
            for status in self.engine.statuses():
                if status.state == "up":
                    self.soon(status.name)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any] | None":
        if self._stopped:
            work.close()
            return None
        return self._tasks.start(work)

    async def _try(self, server: str) -> None:
        try:
            await asyncio.sleep(self._due.get(server, 0.0) - monotonic())
        finally:
            self._waiting.discard(server)
        try:
            await self.compare(server)
        except CallError as error:
            logger.warning("server %s: %s", server, cleaned(error.message)[:MAX_FAILURE_CHARS])
        except Exception as error:  # noqa: BLE001 - one server's trouble is not the others'
            logger.warning("server %s could not be listed: %s", server, type(error).__name__)

    # -- how

    async def compare(self, server: str, *, anew: bool = False) -> Comparison:
        """Lists a server and compares. Concurrent callers share one comparison, unless it has to begin now (`anew`)."""
        task = self._under_way.get(server)
        if task is not None and anew:
            await asyncio.wait([task])
            task = self._under_way.get(server)  # begun since
        if task is None:
            task = self.spawn(self._compare(server, anew))
            if task is None:
                raise Unreachable(message=f"Server {server} is not available: Toolgate is closing.")
            self._under_way[server] = task
            task.add_done_callback(lambda done: self._done(server, done))
        return await finish(task)

    def _done(self, server: str, task: "asyncio.Task[Comparison]") -> None:
        del self._under_way[server]
        if not task.cancelled():
            task.exception()  # whoever waited was told; if nobody waited any more, nobody need be
        if server in self._again:
            self._again.discard(server)
            self.soon(server)

    async def _compare(self, server: str, anew: bool) -> Comparison:
        upstream = self.upstreams.get(server)
        if upstream is None:
            raise Unreachable(message=f"There is no server named {server!r}: see toolgate servers list.")
        self._compared.pop(server, None)
        lives = self._lives[server]
        try:
            answered = await ask(self.engine, upstream)
        except CallError as error:
            self.failures[server] = cleaned(error.message)[:MAX_FAILURE_CHARS]
            raise
        start, began = self.engine[server].starts, monotonic()
        self.failures.pop(server, None)
        read, many = self._read(upstream, answered), sum(map(len, answered.lists.values()))
        seen, digest, self.no_definitions[server] = await to_thread(read) if many > MAX_INLINE_DEFINITIONS else read()
        known = None if anew else self._last.get(server)
        if known is not None and known == (digest, await self.take()):
            compared = Comparison()
        else:
            compared = await self.store.transact(table.compare(server, seen))
            if compared.any:
                await self.announce()
                await self._record(upstream, compared)
            self._last[server] = (digest, await self.take())
        if self._lives[server] == lives:
            self._compared[server] = start
        took = monotonic() - began + many * READ_SECONDS_PER_DEFINITION
        self._due[server] = monotonic() + min(
            max(MIN_RECONCILE_SECONDS, took * RECONCILE_IDLE_FACTOR), MAX_RECONCILE_SECONDS
        )
        return compared

    def _read(
        self, upstream: Upstream, answered: ServerListing
    ) -> Callable[[], tuple[ServerSnapshot, str, list[ToolProblem]]]:
        """Gives the function that reads a listing: what the server has, a digest of all of it, and the invalid definitions.
        It runs in a thread, so it uses nothing that changes."""
        name, about, trusts = upstream.name, answered.about, self.trusts
        jail = next((status.jail for status in self.engine.statuses() if status.name == name), None)

        def read() -> tuple[ServerSnapshot, str, list[ToolProblem]]:
            found, problems = found_in(name, about.capabilities, answered.lists)
            trust = {key: named for key in found if (named := trusts(upstream, key)) is not None}
            seen = ServerSnapshot(upstream.identity, info_json(about), jail, found, trust, answered.unknown)
            hashes = sorted((key, one.hash) for key, one in found.items())
            whole = (*seen[:3], hashes, sorted(trust.items()), sorted(seen.unknown))
            return seen, sha256(repr(whole).encode("utf-8", "surrogatepass")).hexdigest(), problems

        return read

    async def _record(self, upstream: Upstream, compared: Comparison) -> None:
        """Writes audit records: one for each changed tool, one for all others of a kind."""
        for key in compared.changed[:MAX_AUDITED_TOOLS]:
            details = {"server": upstream.name, "tool": label(key), "why": "its definition has changed"}
            name = "" if key[0] in ITEM_KINDS else name_here(upstream, key)
            await self.note("mcp.tool_quarantined", LOCAL, name, details)
        for action, keys in (
            ("mcp.tools_quarantined", compared.new),
            ("mcp.tools_in_use", compared.taken),
            ("mcp.tools_gone", compared.gone),
        ):
            if keys:
                names = [label(key) for key in keys[:MAX_AUDITED_TOOLS]]
                await self.note(action, LOCAL, "", {"server": upstream.name, "count": len(keys), "tools": names})


async def ask(engine: UpstreamServers, upstream: Upstream) -> ServerListing:
    """Lists a server, which is started if need be."""
    about = await engine[upstream.name].about()
    seconds = upstream.settings.start_seconds
    kinds = [kind for kind in ITEM_KINDS if ("prompts" if kind == "prompts" else "resources") in about.capabilities]
    listing = {kind: start_task(_items(engine, upstream.name, kind)) for kind in kinds}
    lists: dict[ListKind, list[dict[str, Any]]] = {}
    try:
        async with asyncio.timeout(seconds):
            if "tools" in about.capabilities:
                lists["tools"] = await engine[upstream.name].listed("tools", fresh=True)
            lists |= {kind: items for kind, task in listing.items() if (items := await task) is not None}
    except TimeoutError:
        raise Unreachable(
            message=f"Server {upstream.name} did not list its tools within {seconds:g} s (setting start_seconds)."
        ) from None
    finally:
        for task in listing.values():
            task.cancel()
    return ServerListing(about, lists, frozenset(kinds) - lists.keys())


async def _items(engine: UpstreamServers, server: str, kind: ListKind) -> list[dict[str, Any]] | None:
    """A list of a server; None if it fails or takes too long."""
    try:
        async with asyncio.timeout(ITEM_LIST_SECONDS):
            return await engine[server].listed(kind, fresh=True)
    except (TimeoutError, CallError) as error:
        logger.warning("server %s did not list its %s: %s", server, kind, cleaned(described(error))[:300])
        return None


def info_json(about: ServerInfo) -> str:
    """A server's description of itself as JSON: all of it, or if that is too long, its capabilities."""
    words = {"protocol": about.protocol, "capabilities": about.capabilities, "info": about.info}
    if about.instructions:
        words["instructions"] = about.instructions[:MAX_RECORDED_INSTRUCTIONS_CHARS]
    try:
        text = orjson.dumps(words, option=orjson.OPT_SORT_KEYS).decode()
    except (TypeError, ValueError):
        text = ""
    if 0 < len(text) <= MAX_INFO_BYTES:
        return text
    names: dict[str, dict[str, Any]] = {
        name: {} for name in ("tools", *METHOD_CAPABILITIES.values()) if name in about.capabilities
    }
    return orjson.dumps({"protocol": about.protocol[:32], "capabilities": names, "info": {}}).decode()

"""Supervises one server: starts it when it is first needed, sends heartbeats, and restarts it when it fails.

One task owns it (a transport has to be entered and left by the same one). It is restarted with exponential backoff and
jitter; after too many failures in a row, once per `rest_seconds`. A call that finds the server down waits for a start that
is near, and otherwise fails with the time of the next one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from contextvars import Context
from functools import partial
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any

from toolgate.errors import CallError
from toolgate.extras import is_installed, not_installed
from toolgate.mcp.client import sdk
from toolgate.mcp.client.backoff import MAX_WAIT_FOR_START_SECONDS, ProcessExited, RestartBackoff, start_failure
from toolgate.mcp.client.errors import ConnectionLost, Restarted, SessionLost, Unreachable
from toolgate.mcp.client.list_cache import ListCache
from toolgate.mcp.client.model import ConnectionStatus, ListKind, OnServerChange, ServerInfo, ServerState
from toolgate.mcp.client.mounts import with_notes, withheld_error
from toolgate.mcp.client.secret_masking import SecretMasker
from toolgate.mcp.client.subscriptions import Subscriptions
from toolgate.mcp.client.untrusted_text import longest_timeout, sentence, span
from toolgate.model import Caller
from toolgate.settings import ServerSettings
from toolgate.tasks import start_task, stop_tasks

if TYPE_CHECKING:
    from toolgate.mcp.client.connection import Connection, ServerChannel
    from toolgate.mcp.client.handshake import Era

STEADY_SECONDS = 10.0
"""A server that was up for this long, or has answered a request, did not fail to start."""
MAX_MISSED_HEARTBEATS = 3
"""Heartbeats that a server may leave unanswered during a call without a timeout."""
STOP_SECONDS = 15.0
"""Seconds for a stop before the owner is cancelled."""

OpenChannel = Callable[[str, ServerSettings, AsyncExitStack, SecretMasker], Awaitable["ServerChannel"]]

logger = logging.getLogger("toolgate.mcp")
_calls = count(1)


class ServerSupervisor:
    def __init__(
        self,
        name: str,
        settings: ServerSettings,
        open_channel: OpenChannel,
        tell: OnServerChange,
        masker: SecretMasker,
        after: asyncio.Task[bool] | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.masker = masker
        self.lists = ListCache()
        self.subscriptions = Subscriptions(name, self.lists, tell)
        self._open_channel = open_channel
        self._tell = tell
        self._after = after
        """The end of the server that had this name before."""
        self._owner: asyncio.Task[None] | None = None
        self._stop: asyncio.Future[None] | None = None
        self._changed = asyncio.Event()
        self._closed = False
        self._state: ServerState = "idle" if settings.enabled else "off"
        self._connection: Connection | None = None
        self._channel: ServerChannel | None = None
        self._about: ServerInfo | None = None
        self._backoff = RestartBackoff(name, settings, masker.mask_text)
        self.starts = 0
        """The number of its starts: between two requests with the same number, the program is the same."""
        self.restarts = True
        """True: it is restarted when it fails; otherwise by the next call."""
        self._used = monotonic()
        self._under_way: dict[int, tuple[float, float]] = {}
        """Calls: when each began, and the seconds that its caller waits."""
        self._patience = max(settings.heartbeat_seconds * MAX_MISSED_HEARTBEATS, longest_timeout(settings))
        self._era: Era = "unknown"

    # -- for those who ask

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        caller: Caller | None = None,
        start: int | None = None,
        seconds: float | None = None,
    ) -> Mapping[str, Any]:
        """Sends a request once the server is up; if its session is lost, once more in a new one. Raises Unreachable,
        ConnectionLost, ErrorResponse or InputRequired; if the caller is cancelled, the server is told.

        `start`: only that start of the server is asked (`starts`); Restarted, if it is another. `seconds`: how long the
        caller waits, during which a silent server is taken to be working."""
        ask = partial(self._ask, method, params, caller, start, self._patience if seconds is None else seconds)
        connection = await self._unexposed()
        try:
            return await ask(connection)
        except SessionLost:
            if connection is self._connection:  # else that has been done
                connection.renew()
        return await ask(await self.connection())

    async def _ask(
        self,
        method: str,
        params: Mapping[str, Any],
        caller: Caller | None,
        start: int | None,
        seconds: float,
        connection: "Connection",
    ) -> Mapping[str, Any]:
        if start is not None and start != self.starts:
            raise Restarted(message=f"Server {self.name} was restarted since its tools were compared.")
        number = next(_calls)
        self._under_way[number] = monotonic(), seconds
        layers = self._channel.layers if self._channel is not None else None
        try:
            if layers is None:
                return await connection.request(method, params, caller)
            try:
                answer = await connection.request(method, params, caller)
            finally:
                said = await layers.settle()
            if not layers.exposed:
                return with_notes(answer, said)
        except CallError as error:
            if layers is None or not layers.exposed:
                self.masker.mask_error(error)
                raise
        finally:
            del self._under_way[number]
            self._used = monotonic()
        await self._end_exposed()
        raise withheld_error(self.name)

    async def _unexposed(self) -> "Connection":
        """The connection to a server that sees the host's files as they are, but none that no tool may open."""
        connection = await self.connection()
        layers = self._channel.layers if self._channel is not None else None
        if layers is None:
            return connection
        await layers.show_host()
        if not layers.exposed:
            return connection
        await self._end_exposed()
        return await self.connection()

    async def _end_exposed(self) -> None:
        """Stops a server that may have seen a file that no tool may open, so that it can't tell."""
        logger.warning("server %s is stopped: a file that no tool may open was put into a folder that it writes", self.name)
        await self.stop()

    async def listed(self, what: ListKind, *, fresh: bool = False) -> list[dict[str, Any]]:
        kept = self.lists.kept(what) if self._connection is not None else None
        if kept is not None and not fresh:
            return kept
        self._used = monotonic()
        self._tell(self.name, "step", "listing what it has")
        return await self.lists.get(await self._unexposed(), what, self.settings, fresh=fresh)

    async def about(self) -> ServerInfo:
        return (await self.connection()).about

    async def subscribe(self, uri: str) -> None:
        """Subscribes listeners to changes of a resource, until as many have unsubscribed."""
        await self.subscriptions.add(await self.connection(), uri)

    async def unsubscribe(self, uri: str) -> None:
        await self.subscriptions.remove(self._connection, uri)

    async def connection(self) -> "Connection":
        """The connection, once there is one. Raises Unreachable if the start fails, or none is near."""
        failed = self._backoff.failed_starts
        while True:
            if self._connection is not None and not self._connection.ended.done():
                self._used = monotonic()
                return self._connection
            if self._closed or not self.settings.enabled:
                raise Unreachable(message=f"Server {self.name} is {'stopped' if self._closed else 'not enabled'}.")
            if self._backoff.failed_starts > failed or (self._waits and self._backoff.left > MAX_WAIT_FOR_START_SECONDS):
                raise self._backoff.unreachable()
            if self._owner is None:
                if not is_installed("mcp"):
                    raise Unreachable(message=not_installed("mcp"))
                self._begin()
            await self._changed.wait()

    @property
    def _waits(self) -> bool:
        return self._state in ("waiting", "resting")

    @property
    def failure(self) -> Unreachable | None:
        """The last failure, without what is for operators only."""
        return self._backoff.failure

    def status(self) -> ConnectionStatus:
        channel = self._channel
        return ConnectionStatus(
            name=self.name,
            state=self._state,
            transport=self.settings.transport or ("stdio" if self.settings.url is None else "http"),
            about=self._about,
            jail=channel.jail if channel is not None else None,
            failure=self._backoff.words(),
            last_lines=self._backoff.last_lines,
            starts=self.starts,
            restarts=self._backoff.in_a_row,
            next_try=self._backoff.left if self._waits else None,
            pid=channel.pid if channel is not None else None,
            under_way=len(self._under_way),
        )

    # -- stopping

    async def stop(self) -> bool:
        """Stops it; the next call starts it. False: it could not be stopped."""
        owner, stop = self._owner, self._stop
        if owner is None or stop is None:
            return True
        if not stop.done():
            stop.set_result(None)
        if self._state == "starting":
            owner.cancel()
        if not (await asyncio.wait({owner}, timeout=STOP_SECONDS))[0]:
            owner.cancel()
            await asyncio.wait({owner}, timeout=STOP_SECONDS)
        return owner.done()

    async def close(self) -> bool:
        """Stops it for good."""
        self._closed = True
        self._notify()
        return await self.stop()

    async def restart(self) -> None:
        await self.stop()
        self._backoff.forget()
        await self.connection()

    # -- the owner

    def _begin(self) -> None:
        """Starts the owner, in a context of its own: not that of the call that needs it."""
        self._stop = asyncio.get_running_loop().create_future()
        self._become("starting")
        self._owner = Context().run(start_task, self._run(self._stop))
        self._owner.set_name(f"mcp {self.name}")
        self._owner.add_done_callback(self._left)

    def _left(self, owner: asyncio.Task[None]) -> None:
        if not owner.cancelled() and (error := owner.exception()) is not None:
            logger.error("server %s: its owner failed: %s", self.name, sentence(error))
            self._backoff.failed_starts += 1
        self._owner = self._stop = None
        self._become("idle")

    def _become(self, state: ServerState) -> None:
        self._state = state
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _run(self, stop: asyncio.Future[None]) -> None:
        """Runs it, life after life, until it is stopped or idle."""
        if self._after is not None:
            await asyncio.wait({self._after})
            self._after = None
        while not stop.done():
            self._become("starting")
            began = monotonic()
            try:
                failure = await self._life(stop)
            except Exception as error:  # noqa: BLE001 - whatever a transport ends with
                failure = Unreachable(message=sentence(error))
                self._backoff.note(failure)
            finally:
                connection = self._over()
            if failure is None or not await self._goes_on(failure, connection, monotonic() - began, stop):
                return

    def _over(self) -> "Connection | None":
        """Clears the state of a life; returns its connection, if there was one."""
        connection, self._connection, self._channel = self._connection, None, None
        self.lists.drop()
        if connection is not None:
            if not connection.reason.done():
                connection.reason.set_result("")
            self._tell(self.name, "down", None)
        return connection

    async def _goes_on(
        self, failure: Unreachable, connection: "Connection | None", lived: float, stop: asyncio.Future[None]
    ) -> bool:
        """True if it is restarted, once that is due."""
        if connection is None and self._era == "unknown" and isinstance(failure, ProcessExited):
            self._era = "legacy"
            return True
        if connection is None:
            self._backoff.failed_starts += 1
        elif connection.answered or lived >= STEADY_SECONDS:
            self._backoff.in_a_row = 0
            if connection.renewed:
                return True
        if failure.code == "MISSING_AUTH" or not self.restarts:  # a login is missing: the next call may find one
            return False
        wait, state = self._backoff.failed()
        logger.warning("server %s: %s It is restarted in %s.", self.name, self._backoff.words(), span(wait))
        self._become(state)
        await asyncio.wait({stop}, timeout=wait)
        return True

    async def _life(self, stop: asyncio.Future[None]) -> Unreachable | None:
        """Runs it from start to end. None: it was stopped."""
        await sdk.loaded()
        from toolgate.mcp.client.connection import open_connection

        self.starts += 1
        async with AsyncExitStack() as stack:
            channel: ServerChannel | None = None
            try:
                channel = self._channel = await self._open_channel(self.name, self.settings, stack, self.masker)
                self._tell(self.name, "step", "handshake")
                async with asyncio.timeout(self.settings.start_seconds):
                    meant = open_connection(
                        self.name, self.settings, channel, self._era, self.subscriptions.notice, self.masker
                    )
                    connection = await stack.enter_async_context(meant)
                self._up(connection)
                failure = await self._serve(connection, stop)
                connection.reason.set_result("It was stopped." if failure is None else failure.message)
                if failure is not None:
                    self._backoff.note(failure, channel.said())
            except Exception as error:  # noqa: BLE001 - whatever kept it from starting
                silent = channel if self._connection is None else None
                failure = await start_failure(error, silent, self.settings)
                self._backoff.note(failure, lines=() if silent is None else silent.last_lines())
            if failure is not None and channel is not None:
                channel.give_up()
            return failure

    def _up(self, connection: "Connection") -> None:
        self._connection, self._about = connection, connection.about
        self._era = "modern" if connection.modern else "legacy"
        self._backoff.failure = None
        self._used = monotonic()
        self._become("up")
        self._tell(self.name, "up", None)

    # -- while it is up

    async def _serve(self, connection: "Connection", stop: asyncio.Future[None]) -> Unreachable | None:
        watching = start_task(self.subscriptions.run(connection))
        try:
            while True:
                look = self._until_next_look(connection)
                await asyncio.wait({connection.ended, stop}, timeout=look, return_when=asyncio.FIRST_COMPLETED)
                if stop.done():
                    return None
                if connection.ended.done():
                    reason = await self._channel.why() if self._channel is not None else None
                    return Unreachable(message=reason or "It closed the connection.")
                if self._is_idle():
                    return None
                if connection.silent >= self.settings.heartbeat_seconds and (dead := await self._dead(connection, stop)):
                    return dead
        finally:
            connection.end()  # nobody begins with it any more
            self._backoff.soon()
            self._become("waiting")
            await stop_tasks(watching)

    def _until_next_look(self, connection: "Connection") -> float:
        """Seconds until the next heartbeat or idle check."""
        wait, idle = self.settings.heartbeat_seconds - connection.silent, self.settings.idle_seconds
        if idle is not None:
            wait = min(wait, idle if self._needed else idle - (monotonic() - self._used))
        return max(0.01, wait)

    @property
    def _needed(self) -> bool:
        return bool(self._under_way or self.subscriptions.wanted or self.settings.url is not None)

    def _is_idle(self) -> bool:
        limit = self.settings.idle_seconds
        return limit is not None and not self._needed and monotonic() - self._used >= limit

    def _is_busy(self, connection: "Connection") -> bool:
        """True if it may be silent because of a call that began before it fell silent and is still waited for."""
        now = monotonic()
        fell_silent = now - connection.silent + self.settings.heartbeat_seconds
        return any(began <= fell_silent and now < began + wait for began, wait in self._under_way.values())

    async def _dead(self, connection: "Connection", stop: asyncio.Future[None]) -> Unreachable | None:
        """Sends a heartbeat. A server at work may be silent for as long as a call may take.

        The response is awaited in two halves: if this process itself was blocked, what came meanwhile is read in the second.
        """
        limit = self.settings.heartbeat_seconds
        beat = start_task(connection.beat())
        wait: set[asyncio.Future[Any]] = {beat, connection.ended, stop}
        try:
            if not (await asyncio.wait(wait, timeout=limit / 2, return_when=asyncio.FIRST_COMPLETED))[0]:
                await asyncio.wait(wait, timeout=limit / 2, return_when=asyncio.FIRST_COMPLETED)
            if stop.done() or connection.ended.done():
                return None
            if beat.done():
                error = beat.exception()
                if isinstance(error, SessionLost):
                    connection.renew()
                lost = isinstance(error, Unreachable | ConnectionLost) and not self._under_way
                return Unreachable(message=str(error)) if lost else None
            if connection.silent < limit or self._is_busy(connection):
                return None
            return Unreachable(message=f"It did not answer a heartbeat within {span(limit)}.")
        finally:
            await stop_tasks(beat)

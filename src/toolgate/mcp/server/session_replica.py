"""A handshake session as one process has it: the SDK's transport, connection and dispatcher, made from what is on record.

Any process can make one for any session, so a request is served by whichever it reaches. The ids of requests to the client
carry the replica's number: its answers find the process that asked.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import orjson
from anyio.abc import TaskStatus
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import ServerRunner, serve_connection
from mcp.server.streamable_http import GET_STREAM_KEY, StreamableHTTPServerTransport
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp.shared.subscriptions import ResourceUpdated, ServerEvent
from mcp.shared.transport_context import TransportContext
from mcp_types import InitializeRequestParams, jsonrpc_message_adapter
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from toolgate.mcp.server.caller import LOG_LEVEL_KEY
from toolgate.mcp.server.change_notifications import ChangeNotifier, notify
from toolgate.mcp.server.session_records import EVERYONE, IDLE_SECONDS, KEPT_KEY, KeptSession, SessionRecords
from toolgate.model import Actor
from toolgate.store.mcp_sessions import McpSessionRow
from toolgate.tasks import BackgroundTasks

NUMBER_BITS = 32
"""The bits of a request's id below the number of its replica; both fit into what JavaScript can count to."""
RELAY_SECONDS = 0.1
"""The time for which changed resources are gathered before another process is told of them."""
STREAM_END_SECONDS = 5.0

logger = logging.getLogger("toolgate")


class SessionReplica:
    def __init__(self, id: str, key: str, number: int, actor: Actor, records: SessionRecords) -> None:
        """`id` is what the client sends; `key` is its name on record."""
        self.key = key
        self.number = number
        self._actor = actor
        self.version = 0
        """Of the record that it was last brought in line with."""
        self.transport = StreamableHTTPServerTransport(mcp_session_id=id, idle_timeout=IDLE_SECONDS)
        self.connection: Connection
        self._dispatcher: JSONRPCDispatcher[TransportContext]
        self._records = records
        self._work = BackgroundTasks()
        self._handled: set[int] = set()
        """The numbers of messages that were handled, of those that still lie in the store."""
        self._changed: set[str] = set()
        """Resources that another process is to be told of."""
        self._stream_seq = 0
        """The number of the message that announced the stream that is open here."""
        self._stream_ended: asyncio.Event | None = None
        self._one_change = asyncio.Lock()

    async def run(
        self,
        server: Server[Any],
        lifespan_state: Any,
        gone: Callable[[], None],
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Runs the session's message loop until it is terminated, or idle for too long."""
        async with self.transport.connect() as (reading, writing):
            self._dispatcher = JSONRPCDispatcher(reading, writing, inline_methods=frozenset({"initialize"}))
            self._dispatcher._next_id = self.number << NUMBER_BITS
            self.connection = Connection.for_loop(self._dispatcher, session_id=self.transport.mcp_session_id)
            self.connection.state[KEPT_KEY] = KeptSession(self.key, self._records)
            task_status.started()
            assert self.transport.idle_scope is not None  # it has a timeout
            try:
                with self.transport.idle_scope:
                    await serve_connection(
                        server, self._dispatcher, connection=self.connection, lifespan_state=lifespan_state
                    )
            except Exception:
                logger.exception("a session of an MCP client failed")
            finally:
                gone()
                await self.end()

    async def end(self) -> None:
        """Ends it in this process, with the streams that are open here."""
        self._work.cancel()
        if not self.transport.is_terminated:
            with anyio.CancelScope(shield=True):
                await self.transport.terminate()

    @property
    def is_over(self) -> bool:
        idle = self.transport.idle_scope
        return self.transport.is_terminated or (idle is not None and idle.cancel_called)

    @property
    def is_in_use(self) -> bool:
        return self.transport._requests_in_flight > 0

    # -- what is on record

    async def follow(self, row: McpSessionRow, changes: ChangeNotifier) -> None:
        """Brings it in line with what is on record, and has it notified of changes."""
        connection = self.connection
        async with self._one_change:
            listener = await changes.join(connection, self._actor, self._tell)
            if row.version <= self.version and connection.client_params is not None:
                return
            connection.client_params, connection.protocol_version = _handshake(row.client)
            connection.initialized.set()
            if row.log_level is not None:
                connection.state[LOG_LEVEL_KEY] = row.log_level
            wanted = set(orjson.loads(row.uris))
            for uri in wanted - listener.uris.keys():
                await changes.watch(listener, uri)
            for uri in set(listener.uris) - wanted:
                changes.unwatch(listener, uri)
            self.version = row.version

    # -- requests

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.transport.handle_request(scope, receive, send)

    async def stream(self, scope: Scope, receive: Receive, send: Send, *, is_only: bool) -> None:
        """Serves the stream of notifications. A session has one: the newest, in whichever process it is."""
        if not is_only:
            self._stream_seq = await self._records.send(self.key, {"stream": True}, sender=self.number) or self._stream_seq
        await self._end_stream()
        ended = self._stream_ended = asyncio.Event()
        try:
            await self.transport.handle_request(scope, receive, send)
        finally:
            ended.set()

    async def _end_stream(self) -> None:
        self.transport.close_standalone_sse_stream()
        if self._stream_ended is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STREAM_END_SECONDS):
                    await self._stream_ended.wait()

    def receiver_of(self, message: Mapping[str, Any], replicas: int) -> int | None:
        """The number of the other replica that a client's message is for, 0 for all others; None: it is for this one."""
        if message.get("method") == "notifications/cancelled":
            named = (message.get("params") or {}).get("requestId")
            is_here = not isinstance(named, str | int) or coerce_request_id(named) in self._dispatcher._in_flight
            return None if is_here or replicas == 1 else EVERYONE
        if "method" in message or not isinstance(message.get("id"), int):
            return None
        number: int = message["id"] >> NUMBER_BITS
        return number if number != self.number and 0 < number <= replicas else None

    # -- messages from and to other processes

    async def relay(self, message: Mapping[str, Any], receiver: int) -> None:
        """Passes on what a client sent."""
        await self._records.send(self.key, {"message": message}, sender=self.number, receiver=receiver)

    async def hear(self, seq: int, body: Mapping[str, Any]) -> None:
        """Handles a message of another replica, once."""
        if seq in self._handled:
            return
        self._handled.add(seq)
        if "message" in body:
            await self._give(body["message"])
        elif "stream" in body and seq > self._stream_seq:
            self.transport.close_standalone_sse_stream()
        elif self._has_stream:
            for uri in body.get("updated", ()):
                self._notify(ResourceUpdated(uri))

    def forget(self, lying: set[int]) -> None:
        """Forgets the numbers of handled messages that no longer lie in the store."""
        self._handled &= lying

    async def _give(self, message: Mapping[str, Any]) -> None:
        writer = self.transport._read_stream_writer
        if writer is not None and not self.transport.is_terminated:
            # A client's message was passed on as it came: it may be none.
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ValidationError):
                await writer.send(SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False)))

    # -- changes

    @property
    def _has_stream(self) -> bool:
        return GET_STREAM_KEY in self.transport._request_streams

    def _tell(self, event: ServerEvent) -> None:
        """Notifies the client. Lists are watched by every process; a resource's server may have told this one alone."""
        if self._has_stream or not isinstance(event, ResourceUpdated):
            self._notify(event)
            return
        if not self._changed:
            self._work.start(self._relay_changes(), unheard=True)
        self._changed.add(event.uri)

    def _notify(self, event: ServerEvent) -> None:
        self._work.start(notify(self.connection, event), unheard=True)

    async def _relay_changes(self) -> None:
        await asyncio.sleep(RELAY_SECONDS)
        changed, self._changed = sorted(self._changed), set()
        await self._records.send(self.key, {"updated": changed}, sender=self.number)


def is_handshake(client: str) -> bool:
    """Tells whether a session can be made from what a client says of itself: the parameters of initialize, as JSON."""
    try:
        _handshake(client)
    except ValidationError:
        return False
    return True


def _handshake(client: str) -> tuple[InitializeRequestParams, str]:
    return ServerRunner._negotiate_initialize(orjson.loads(client))

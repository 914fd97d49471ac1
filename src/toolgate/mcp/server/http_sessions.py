"""MCP over streamable HTTP, by the SDK: `async with open_http(app) as manager`, which serves requests that are authenticated
already.

Requests of protocol 2026-07-28 stand alone: any process can answer any of them. Older clients have a session, which belongs
to the credential that began it. It is on record (`session_records`), and each process that a request of it reaches makes a
replica (`session_replica`). A request looks at the record first, so that what was set through one process holds in the next.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager, _error_response
from mcp.shared.inbound import decode_header_value
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from toolgate.errors import StoreError
from toolgate.mcp.server.change_notifications import ChangeNotifier
from toolgate.mcp.server.gateway import Gateway
from toolgate.mcp.server.identity import CREDENTIAL_KEY, CURRENT_TOOL, Credential, actor_id, credential_in_scope
from toolgate.mcp.server.session_records import TOUCH_SECONDS, SessionRecords, key_of
from toolgate.mcp.server.session_replica import SessionReplica, is_handshake
from toolgate.store.database import now
from toolgate.tasks import BackgroundTasks, finish, repeat, wait_for_any

if TYPE_CHECKING:
    from toolgate.app.app import App

HANDSHAKE_VERSIONS = frozenset(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)
MAX_SESSION_ID_BYTES = 128
MAX_CLIENT_BYTES = 65_536
"""Bytes of what a client says of itself in its handshake; it is kept."""
TOO_LARGE = PlainTextResponse("The parameters of initialize are too large", 413)
LOOK_SECONDS = 15.0
"""News of sessions are looked for this often, in case a notice was lost."""

logger = logging.getLogger("toolgate")


class HttpSessionManager(StreamableHTTPSessionManager):
    def __init__(self, app: "App", server: Server[Any], changes: ChangeNotifier) -> None:
        super().__init__(server, max_request_body_size=app.settings.serve.body_bytes)
        self._tools = app.tools
        self._changes = changes
        self._records: SessionRecords = app.mcp_sessions
        self._replicas: dict[str, SessionReplica] = {}
        self._one_replica = asyncio.Lock()
        self._has_news = asyncio.Event()
        self._news: set[str] = set()

    # -- requests

    async def serve(self, credential: Credential, scope: Scope, receive: Receive, send: Send, body: bytes = b"") -> None:
        """`body` is what `receive` will give, if it was read already."""
        # blanks around a value are not part of it (RFC 9110), and the SDK compares values with what is in the body; it
        # answers nothing to Last-Event-ID, as no events are kept
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"] if name != b"last-event-id"]
        headers = dict(scope["headers"])
        owner = AccessToken(token="", client_id=credential.id, scopes=[], subject=actor_id(credential.actor))
        scope["user"] = AuthenticatedUser(owner)
        scope[CREDENTIAL_KEY] = credential
        called = headers.get(b"mcp-name") if headers.get(b"mcp-method") == b"tools/call" else None
        name = None if called is None else decode_header_value(called.decode("latin-1"))  # the SDK compares it with the body
        CURRENT_TOOL.set(None if name is None else await self._tools.visible(name, credential.actor))
        if headers.get(b"mcp-protocol-version", b"2025-11-25") not in HANDSHAKE_VERSIONS:
            await self.handle_request(scope, receive, send)
            return
        message = orjson.loads(body) if body else {}
        session = headers.get(b"mcp-session-id")
        if session is not None:
            await self._continue(session.decode("latin-1"), message, credential, scope, receive, send)
        elif message.get("method") == "initialize":
            await self._begin(message, credential, scope, receive, send)
        else:
            await self.handle_request(scope, receive, send)  # the SDK says what is missing

    async def _begin(self, message: Mapping[str, Any], who: Credential, scope: Scope, receive: Receive, send: Send) -> None:
        client = _client_of(message)
        if len(client) > MAX_CLIENT_BYTES:
            await TOO_LARGE(scope, receive, send)
            return
        id = uuid4().hex
        key = key_of(id)
        if not await self._records.add(key, who, client):
            await PlainTextResponse("Too many open sessions", 429)(scope, receive, send)
            return
        replica = None
        try:
            replica = await self._start(SessionReplica(id, key, 1, who.actor, self._records))
            await replica.serve(scope, receive, send)
        finally:
            if replica is None or replica.connection.client_params is None:  # the handshake was refused, or broken off
                await finish(self._end(key))

    async def _continue(
        self, id: str, message: Mapping[str, Any], who: Credential, scope: Scope, receive: Receive, send: Send
    ) -> None:
        key = key_of(id)
        row = await self._records.find(key, who) if len(id) <= MAX_SESSION_ID_BYTES else None
        replica = None if row is None else await self._replica(id, key, who)
        if row is None or replica is None:
            await _error_response("Session not found", 404)(scope, receive, send)
            return
        await replica.follow(row, self._changes)
        if (now() - row.seen_at).total_seconds() > TOUCH_SECONDS:
            await self._records.touch([key])
        replicas = max(row.replicas, replica.number)  # this one may be newer than what was read
        receiver = replica.receiver_of(message, replicas)
        if receiver is not None:
            await replica.relay(message, receiver)
            await Response(status_code=202)(scope, receive, send)
        elif scope["method"] == "GET":
            await replica.stream(scope, receive, send, is_only=replicas == 1)
        elif scope["method"] == "DELETE":
            self._forget(replica)  # before others hear of it, as this process does
            await self._records.end(key)
            await replica.serve(scope, receive, send)
            await replica.end()
        else:
            if message.get("method") == "initialize" and (client := _client_of(message)) != row.client:
                if len(client) > MAX_CLIENT_BYTES:
                    await TOO_LARGE(scope, receive, send)
                    return
                if is_handshake(client):  # what is none the SDK refuses, and no process must read it from the record
                    await self._records.set_client(key, client)
            await replica.serve(scope, receive, send)

    # -- replicas

    async def _replica(self, id: str, key: str, who: Credential) -> SessionReplica | None:
        """The replica of a session, made if this process has none; None: the session has ended meanwhile."""
        if (known := self._replicas.get(key)) is not None and not known.is_over:
            return known
        async with self._one_replica:
            if (known := self._replicas.get(key)) is not None and not known.is_over:
                return known
            number = await self._records.take_up(key)
            return None if number is None else await self._start(SessionReplica(id, key, number, who.actor, self._records))

    async def _start(self, replica: SessionReplica) -> SessionReplica:
        assert self._task_group is not None  # it runs
        gone = partial(self._forget, replica)
        await self._task_group.start(partial(replica.run, self.app, self._lifespan_state, gone))
        self._replicas[replica.key] = replica
        return replica

    def _forget(self, replica: SessionReplica) -> None:
        if self._replicas.get(replica.key) is replica:
            del self._replicas[replica.key]

    async def _end(self, key: str) -> None:
        await self._records.end(key)
        await self._drop(key)

    async def _drop(self, key: str) -> None:
        replica = self._replicas.pop(key, None)
        if replica is not None:
            await replica.end()

    # -- news

    def woken(self, key: str) -> None:
        """Hears of a session that has news; "": any may have."""
        if self._replicas if key == "" else key in self._replicas:
            self._news.add(key)
            self._has_news.set()

    async def watch(self) -> None:
        """Follows what happens to the sessions of this process elsewhere."""
        while True:
            await wait_for_any(self._has_news, seconds=LOOK_SECONDS)
            self._has_news.clear()
            news, self._news = self._news or {""}, set()
            try:
                if "" in news:
                    await self._look_at_all()
                else:
                    for key in news:
                        await self._look_at(key)
            except StoreError as error:
                logger.warning("sessions of MCP clients were not looked after: %s", error)
            except Exception:  # of one session, which must not be the end of this for all
                logger.exception("sessions of MCP clients were not looked after")

    async def keep(self) -> None:
        """Puts down which sessions are in use, and ends those that are not. Meant to be repeated."""
        await self._records.touch([key for key, replica in self._replicas.items() if replica.is_in_use])
        await self._records.prune()

    async def _look_at_all(self) -> None:
        if not self._replicas:
            return
        versions = await self._records.versions()
        for key, replica in list(self._replicas.items()):
            if key not in versions:
                await self._drop(key)
            elif versions[key] != replica.version:
                await self._look_at(key)
        await self._hear(None)

    async def _look_at(self, key: str) -> None:
        replica = self._replicas.get(key)
        row = None if replica is None else await self._records.get(key)
        if row is None or replica is None:
            await self._drop(key)
            return
        await replica.follow(row, self._changes)
        await self._hear(key)

    async def _hear(self, only: str | None) -> None:
        """Hands the messages in the store to the replicas that they are for."""
        numbers = {key: replica.number for key, replica in self._replicas.items()}
        messages = await self._records.messages(numbers, only)
        for message in messages:
            if (replica := self._replicas.get(message.session)) is not None:
                await replica.hear(message.seq, message.body)
        lying = {message.seq for message in messages}
        for key, replica in self._replicas.items():
            if only is None or only == key:
                replica.forget(lying)


def _client_of(message: Mapping[str, Any]) -> str:
    return orjson.dumps(message.get("params")).decode()


@asynccontextmanager
async def open_http(app: "App") -> AsyncIterator[HttpSessionManager]:
    async def recall(id: str) -> Credential | None:
        app.issuers.recall(id)
        return await app.keys.recall(id)

    gateway = Gateway(app, credential_in_scope, recall=recall)
    async with gateway as server:
        manager, work = HttpSessionManager(app, server, gateway.changes), BackgroundTasks()
        async with manager.run():
            stop = app.mcp_sessions.watch(manager.woken)
            work.start(manager.watch())
            work.start(repeat(TOUCH_SECONDS, manager.keep, logger, "sessions of MCP clients were not looked after"))
            try:
                yield manager
            finally:
                stop()
                work.cancel()

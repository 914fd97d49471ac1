"""/mcp: the hot path of the HTTP server, a bare ASGI function.

A request is checked in this order: where it was sent to and by which page, who sent it, how large it is. Then a plain one is
answered by `FastPath`, every other by the SDK (`HttpSessionManager`), which takes the better part of a second to import, so
that it is loaded while the server already answers. Web pages whose scripts may call are told so as CORS wants it.
"""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from toolgate.app.app import App
from toolgate.app.checks import Check
from toolgate.errors import described
from toolgate.jsontext import holds_too_much
from toolgate.mcp.client import sdk
from toolgate.mcp.server.envelope import find_envelope_fault
from toolgate.mcp.server.fast_path import FastPath
from toolgate.mcp.server.identity import Credential
from toolgate.serve.authentication import Authenticator, check_single
from toolgate.serve.hosts import Headers
from toolgate.serve.problems import HttpProblem
from toolgate.serve.protected_resource import MCP_PATH
from toolgate.serve.request_body import read_body
from toolgate.serve.streams import OpenStreams
from toolgate.tasks import finish, start_task

if TYPE_CHECKING:
    from toolgate.mcp.server.http_sessions import HttpSessionManager

METHODS = ("POST", "GET", "DELETE")
EXPOSED_HEADERS = "mcp-session-id, mcp-protocol-version, www-authenticate"
MAX_REQUESTED_HEADER_BYTES = 4_096

logger = logging.getLogger("toolgate")


class McpRoute:
    """The ASGI app of /mcp: `async with McpRoute(app, authenticator) as route`."""

    def __init__(self, app: App, authenticator: Authenticator, streams: OpenStreams) -> None:
        self._app = app
        self._authenticator = authenticator
        self._max_bytes = app.settings.serve.body_bytes
        self.fast_path = FastPath(app)
        self.by_sdk: asyncio.Future[HttpSessionManager] = asyncio.get_running_loop().create_future()
        """Done once the SDK is loaded; requests that need it wait for it."""
        self._stopped = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None
        self._streams = streams

    # -- life

    async def __aenter__(self) -> Self:
        self._owner = start_task(self._run_sdk())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopped.set()
        assert self._owner is not None
        await self._owner

    async def _run_sdk(self) -> None:
        """Opens and closes the SDK's sessions, which must be done by one and the same task."""
        try:
            await sdk.loaded()  # first, so that no two threads load it at a time
            from toolgate.mcp.server.http_sessions import open_http

            async with open_http(self._app) as manager:
                self.by_sdk.set_result(manager)
                self.fast_path.ready = True
                await self._stopped.wait()
        except Exception as error:
            if not self.by_sdk.done():
                self.by_sdk.set_exception(error)
                self.by_sdk.exception()  # whoever asks is told; if nobody does, that is no fault of theirs
            logger.exception("the MCP endpoint failed")

    def check(self) -> Check:
        """Checks that it is served. While the SDK is being loaded, requests only wait a little longer."""
        if self.by_sdk.done() and (error := self.by_sdk.exception()) is not None:
            return Check("mcp", "fault", described(error))
        return Check("mcp", "ok", "served" if self.by_sdk.done() else "being loaded")

    # -- requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pairs, method = scope["headers"], scope["method"]
        headers: Headers = dict(pairs)
        plain = len(headers) == len(pairs)
        if not plain:
            check_single(pairs)
        self._authenticator.check_place(headers)
        origin = headers.get(b"origin")
        if origin is not None:
            if method == "OPTIONS":
                await _preflight(origin, headers)(scope, receive, send)
                return
            send = _readable_by(origin, send)
        if method not in METHODS:
            allowed = ", ".join(METHODS)
            raise HttpProblem(405, f"{method} is not allowed at {MCP_PATH}: use {allowed}.", headers={"allow": allowed})
        credential = self._authenticator.known(headers) or await self._authenticator.check(scope, headers)
        if "call" not in credential.permissions:
            raise HttpProblem(403, "The key has no role that may call tools.", suggestion="Use a key with the role caller.")
        if method != "POST":
            await self._serve_by_sdk(credential, scope, headers, receive, send, lasts=method == "GET")
            return
        if not _is_json(headers.get(b"content-type", b"")):
            raise HttpProblem(415, "The body must be JSON: send `Content-Type: application/json`.")
        body = await read_body(headers, receive, self._max_bytes, "serve.body_bytes")
        if plain and not holds_too_much(body) and await self.fast_path.serve(scope, headers, body, credential, send):
            return
        if (fault := find_envelope_fault(body)) is not None:
            await Response(fault.body(), 400, media_type="application/json")(scope, receive, send)
            return
        lasts = headers.get(b"mcp-method") == b"subscriptions/listen"
        await self._serve_by_sdk(credential, scope, headers, _received(body, receive), send, body, lasts=lasts)

    async def _serve_by_sdk(
        self,
        credential: Credential,
        scope: Scope,
        headers: Headers,
        receive: Receive,
        send: Send,
        body: bytes = b"",
        *,
        lasts: bool,
    ) -> None:
        manager = await finish(self.by_sdk)
        if not lasts:
            await manager.serve(credential, scope, receive, send, body)
            return
        with self._streams.kept(credential.id, scope, headers):
            try:
                await manager.serve(credential, scope, receive, send, body)
            except asyncio.CancelledError:
                with suppress(RuntimeError):  # of a response that had not begun, or had ended
                    await send({"type": "http.response.body", "body": b""})


def _received(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives a body that was read already, and after that what else there is."""
    given = False

    async def receive_again() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _is_json(content_type: bytes) -> bool:
    return content_type == b"application/json" or content_type.partition(b";")[0].strip().lower() == b"application/json"


# -- web pages


def _preflight(origin: bytes, headers: Headers) -> Response:
    """The answer to what a browser asks before it sends a script's request."""
    told = {
        "access-control-allow-origin": origin.decode("latin-1"),
        "access-control-allow-methods": ", ".join(METHODS),
        "access-control-max-age": "600",
        "vary": "origin",
    }
    requested = headers.get(b"access-control-request-headers", b"")
    if 0 < len(requested) <= MAX_REQUESTED_HEADER_BYTES:
        told["access-control-allow-headers"] = requested.decode("latin-1")
    return Response(status_code=204, headers=told)


def _readable_by(origin: bytes, send: Send) -> Send:
    """A `send` whose answers the scripts of a page may read."""

    async def send_to_page(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin.decode("latin-1")
            headers["access-control-expose-headers"] = EXPOSED_HEADERS
            headers.add_vary_header("origin")
        await send(message)

    return send_to_page

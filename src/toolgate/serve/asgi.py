"""The HTTP server as an ASGI app: /mcp, /healthz, /readyz, /metrics.

What comes in is looked at in this order: where it was sent to and by which page, who sent it, how large it is; then it is
served. Requests to /mcp that are hot and plain are answered by `mcp.quick`, all others by the SDK behind `mcp.endpoint`. The
SDK takes the better part of a second to import, so it is loaded while the server already answers.
"""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import msgspec
import orjson

from toolgate.app.app import App
from toolgate.errors import StoreError, described
from toolgate.jsontext import holds_too_much
from toolgate.mcp.client import sdk
from toolgate.mcp.server.envelope import find_envelope_fault
from toolgate.mcp.server.fast_path import FastPath
from toolgate.serve.authentication import Authenticator, Headers, is_local
from toolgate.serve.health import Health, Part
from toolgate.serve.keys import Keys
from toolgate.serve.metrics import Metering
from toolgate.serve.pages import preflight, readable_by
from toolgate.serve.problems import HttpProblem, Receive, Scope, Send, answer, refuse

if TYPE_CHECKING:
    from toolgate.mcp.server.endpoint import McpEndpoint

MCP = "/mcp"
METHODS = {
    MCP: ("POST", "GET", "DELETE"),
    "/healthz": ("GET", "HEAD"),
    "/readyz": ("GET", "HEAD"),
    "/metrics": ("GET", "HEAD"),
}
ONCE = frozenset({b"host", b"origin", b"authorization", b"content-type", b"content-length"})
"""Headers of which there may be one: who reads the first and who reads the last would not agree."""
BODY_SECONDS = 30.0
"""How long a request may take to arrive."""
CLOSE = (b"connection", b"close")
WATCH_SECONDS = 1.0
"""How often it is seen to that whoever listens still may."""

logger = logging.getLogger("toolgate")


class HttpApp:
    """The ASGI app of an open App: `async with HttpApp(app) as http`."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.keys = Keys(app)
        self.door = Authenticator(app.settings, self.keys)
        self._health = Health(app, self._mcp_part)
        self._metering = Metering(app)
        self._quick = FastPath(app)
        self._most = app.settings.serve.body_bytes
        self._endpoint: asyncio.Future[McpEndpoint] = asyncio.get_running_loop().create_future()
        self._stopped = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._streams: dict[asyncio.Task[Any], Headers] = {}
        """Requests that last until somebody ends them, and what they came with."""

    # -- life

    async def __aenter__(self) -> Self:
        self._owner = asyncio.create_task(self._own_endpoint())
        self._watching = asyncio.create_task(self._watch_streams())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        self._stopped.set()
        if self._watching is not None:
            self._watching.cancel()
        if self._owner is not None:
            await self._owner
        self._metering.close()
        await self.keys.close()

    def stop(self) -> None:
        """End what would last: clients that wait for news. Calls that are running are left to end."""
        for stream in self._streams:
            stream.cancel()

    async def _watch_streams(self) -> None:
        """End those whose key was revoked, or has expired."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for stream, headers in list(self._streams.items()):
                with suppress(StoreError):  # then nobody knows: the next look tells
                    if not await self.door.is_still_good(headers):
                        stream.cancel()

    async def loaded(self) -> None:
        """Wait until the SDK is there; requests that need it wait by themselves."""
        await asyncio.shield(self._endpoint)

    async def _own_endpoint(self) -> None:
        """The SDK's sessions must be opened and closed by one and the same task."""
        try:
            await sdk.loaded()
            from toolgate.mcp.server.endpoint import McpEndpoint

            async with McpEndpoint(self._app) as endpoint:
                self._endpoint.set_result(endpoint)
                self._quick.ready = True
                await self._stopped.wait()
        except Exception as error:
            if not self._endpoint.done():
                self._endpoint.set_exception(error)
                self._endpoint.exception()  # whoever asks is told; if nobody does, that is no fault of theirs
            logger.exception("the MCP endpoint failed")

    def _mcp_part(self) -> Part:
        """How /mcp is. While the SDK is being loaded requests only wait a little longer."""
        if self._endpoint.done() and (error := self._endpoint.exception()) is not None:
            return Part("mcp", "down", described(error))
        return Part("mcp", "ok", "served" if self._endpoint.done() else "being loaded")

    # -- requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served, not {scope['type']}")
        replying = _Replying(send)
        try:
            if scope["path"] == MCP:
                await self._mcp(scope, receive, replying)
            else:
                await self._other(scope, replying)
        except HttpProblem as problem:
            await refuse(replying, problem)
        except _Gone:
            pass
        except Exception:
            logger.exception("a request failed")
            if replying.started:
                raise
            await refuse(replying, HttpProblem(500, "Something unexpected went wrong."))

    async def _mcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        pairs, method = scope["headers"], scope["method"]
        headers: Headers = dict(pairs)
        plain = len(headers) == len(pairs)
        if not plain:
            _check_once(pairs)
        self.door.check_place(headers)
        origin = headers.get(b"origin")
        if origin is not None:
            if method == "OPTIONS":
                await preflight(send, origin, headers, METHODS[MCP])
                return
            send = readable_by(origin, send)
        _check_method(method, METHODS[MCP])
        credential = self.door.known(headers) or await self.door.check(scope, headers)
        scope["toolgate.credential"] = credential
        if method != "POST":
            await self._slowly(scope, headers, receive, send, lasts=method == "GET")
            return
        if not _is_json(headers.get(b"content-type", b"")):
            raise HttpProblem(415, "The body must be JSON: send `Content-Type: application/json`.")
        body = await self._body(headers, receive)
        if plain and not holds_too_much(body) and await self._quick.serve(scope, headers, body, credential, send):
            return
        if (fault := find_envelope_fault(body)) is not None:
            await answer(send, fault.body(), 400)
            return
        lasts = headers.get(b"mcp-method") == b"subscriptions/listen"
        await self._slowly(scope, headers, _again(body, receive), send, lasts=lasts)

    async def _slowly(self, scope: Scope, headers: Headers, receive: Receive, send: Send, *, lasts: bool) -> None:
        """Through the SDK."""
        endpoint = await asyncio.shield(self._endpoint)
        if not lasts:
            await endpoint(scope, receive, send)
            return
        stream = asyncio.current_task()
        assert stream is not None
        self._streams[stream] = headers
        try:
            await endpoint(scope, receive, send)
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # of a response that had not begun, or had ended
                await send({"type": "http.response.body", "body": b""})
        finally:
            del self._streams[stream]

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """The whole body, unless it is too large or too slow."""
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length[:20]) > self._most):
            raise self._too_large()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await self._parts(receive)
        except TimeoutError:
            raise HttpProblem(408, f"The request did not arrive within {BODY_SECONDS:g} s.", headers=[CLOSE]) from None

    async def _parts(self, receive: Receive) -> bytes:
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            if size > self._most:
                raise self._too_large()
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def _too_large(self) -> HttpProblem:
        return HttpProblem(
            413,
            f"The request is larger than {self._most:,} bytes.",
            suggestion="The setting serve.body_bytes says how large a request may be.",
            headers=[CLOSE],
        )

    async def _other(self, scope: Scope, send: Send) -> None:
        path = scope["path"]
        if path not in METHODS:
            raise HttpProblem(404, "There is nothing at this address.")
        _check_method(scope["method"], METHODS[path])
        if path == "/healthz":
            await answer(send, b'{"status":"alive"}')
        elif path == "/readyz":
            await self._ready(scope, send)
        else:
            await self._metrics(scope, send)

    async def _ready(self, scope: Scope, send: Send) -> None:
        """How all is. Only who runs the installation is told more than whether: what is wrong may name what others do."""
        report = await self._health.look()
        told: dict[str, Any] = {"status": "ready" if report.ready else "not ready"}
        if await self._runs_this(scope):
            told = {"status": report.status, "checks": msgspec.to_builtins(report.parts)}
        await answer(send, orjson.dumps(told), 200 if report.ready else 503)

    async def _metrics(self, scope: Scope, send: Send) -> None:
        """For this machine, and for keys with the scope metrics: they name tools and count what is done with them."""
        headers: Headers = dict(scope["headers"])
        self.door.check_place(headers)
        if b"authorization" in headers or not is_local(scope, headers):
            credential = await self.door.check(scope, headers)
            if not credential.has("metrics"):
                raise HttpProblem(403, "This key does not have the scope metrics.")
        await answer(send, self._metering.text(), media=self._metering.media)

    async def _runs_this(self, scope: Scope) -> bool:
        headers: Headers = dict(scope["headers"])
        try:
            _check_once(scope["headers"])
            self.door.check_place(headers)
            credential = await self.door.check(scope, headers)
        except HttpProblem:
            return False
        return credential.has("metrics")


class _Gone(Exception):
    """The client left before it had sent its request."""


class _Replying:
    """A `send` that knows whether an answer has begun."""

    __slots__ = ("_send", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    def __call__(self, message: Any) -> Any:
        self.started = True
        return self._send(message)


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives a body that was read already, and after that what else there is."""
    given = False

    async def receive_again() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _check_once(pairs: list[tuple[bytes, bytes]]) -> None:
    seen: set[bytes] = set()
    for name, _ in pairs:
        if name in ONCE and name in seen:
            raise HttpProblem(400, f"There is more than one {name.decode()} header.")
        seen.add(name)


def _check_method(method: str, allowed: tuple[str, ...]) -> None:
    if method not in allowed:
        listed = ", ".join(allowed)
        raise HttpProblem(405, f"Only {listed} can be used here.", headers=[(b"allow", listed.encode())])


def _is_json(content_type: bytes) -> bool:
    return content_type == b"application/json" or content_type.partition(b";")[0].strip().lower() == b"application/json"

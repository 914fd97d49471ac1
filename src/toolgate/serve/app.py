"""The HTTP server as an ASGI app: the routes of `ROUTES` on Starlette, and /mcp in front of them.

/mcp is the hot path: its path is compared with one string, and a bare ASGI function serves it (`serve.mcp`). Everything else
is a route. A resource has a module of its own with its `routes`, whose handlers find this in `request.app`, and raise an
`HttpProblem` for a request that they refuse.
"""

import logging
from contextlib import nullcontext
from functools import cached_property
from time import perf_counter
from typing import Any, Self

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from toolgate.app.app import App
from toolgate.app.checks.readiness import Readiness
from toolgate.mcp.server.fast_path import REPLY_KEY
from toolgate.mcp.server.identity import REQUEST_ID_KEY
from toolgate.serve import health_metrics, protected_resource, qstash, sign_in, workflow_callbacks
from toolgate.serve.authentication import Authenticator
from toolgate.serve.console import site
from toolgate.serve.console.unknown import refused_link, unknown_page
from toolgate.serve.http import openapi, resources
from toolgate.serve.http.endpoint import Resource
from toolgate.serve.http.pages import CURSOR_PURPOSE
from toolgate.serve.known_personas import KnownPersonas
from toolgate.serve.mcp import McpRoute
from toolgate.serve.problems import HttpProblem
from toolgate.serve.protected_resource import MCP_PATH
from toolgate.serve.request_log import REQUEST_ID_HEADER, ServerLog, request_id_of
from toolgate.serve.request_telemetry import RequestMetrics, current_trace
from toolgate.serve.streams import OpenStreams
from toolgate.store.database import now
from toolgate.tasks import start_task

logger = logging.getLogger("toolgate")


ROUTES = [
    *resources.routes, *health_metrics.routes, *workflow_callbacks.routes, *qstash.routes, *sign_in.routes, *site.routes,
    *protected_resource.routes,
]  # fmt: skip


class HttpApp:
    """The ASGI app of an open App: `async with HttpApp(app) as http`."""

    def __init__(self, app: App, log: ServerLog | None = None) -> None:
        """`log`: where requests are noted, if anywhere."""
        self.app = app
        self._log = log
        self.authenticator = Authenticator(app)
        self.streams = OpenStreams(self.authenticator)
        self.mcp = McpRoute(app, self.authenticator, self.streams)
        self.readiness = Readiness(app, self.mcp.check)
        self.personas = KnownPersonas(app)
        self.started_at = now()
        self.cursor_key = b""
        """Seals the cursors of pages; the same in all processes."""
        self.collector = health_metrics.ServerCollector(app)
        self.request_metrics = None if app.metrics is None else RequestMetrics(app.metrics.registry, ROUTES)
        self._is_traced = app.settings.tracing or app.settings.otlp_url is not None
        self._routes = Router(ROUTES, redirect_slashes=False)  # an address is one address, as for /mcp

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The resources of /v1."""
        return resources.RESOURCES

    @cached_property
    def openapi(self) -> dict[str, Any]:
        """The description of /v1."""
        return openapi.document(resources.RESOURCES)

    async def __aenter__(self) -> Self:
        self.cursor_key = bytes.fromhex(await self.app.keys.sealing_key(CURSOR_PURPOSE))
        await self.mcp.__aenter__()
        self._watching = start_task(self.streams.watch())
        self._counting = self.app.statistics.counting()
        await self._counting.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.streams.end()
        self._watching.cancel()
        await self._counting.__aexit__(None, None, None)
        await self.mcp.__aexit__()
        await self.app.audit.tail.close()
        if self.request_metrics is not None:
            self.request_metrics.close()
        self.collector.close()
        await self.app.keys.close()
        await self.app.sign_ins.close()
        await self.app.issuers.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served, not {scope['type']}")
        is_mcp = scope["path"] == MCP_PATH
        begun = perf_counter()
        answer = _Answer(send, self._request_id(scope, is_mcp))
        try:
            await self._answer(scope, receive, answer, is_mcp)
        finally:
            if self._log is not None and (self._log.verbose or not is_mcp):
                self._log.request(scope, answer.status, answer.sent, begun)
            if self.request_metrics is not None:
                self.request_metrics.count(scope, answer.status, perf_counter() - begun)

    def _request_id(self, scope: Scope, is_mcp: bool) -> str | None:
        """The id of a request, for its answer. On /mcp a request has one only if its client gave it one or it is logged: the
        hot path answers without headers of ours, which then is not taken."""
        is_logged = self._log is not None and (self._log.verbose or not is_mcp)
        if is_mcp and not is_logged and all(name != REQUEST_ID_HEADER for name, _ in scope["headers"]):
            return None
        scope.pop(REPLY_KEY, None)
        scope[REQUEST_ID_KEY] = id = request_id_of(scope["headers"])
        return id

    async def _answer(self, scope: Scope, receive: Receive, answer: "_Answer", is_mcp: bool) -> None:
        try:
            if is_mcp:
                await self.mcp(scope, receive, answer)
            else:
                scope["app"] = self  # which the handlers ask, and without which routing would answer by itself
                with current_trace(scope["headers"]) if self._is_traced else nullcontext():
                    await self._routes(scope, receive, answer)
        except HttpProblem as problem:
            refused = refused_link(scope, problem) or problem.response(answer.request_id)
            await refused(scope, receive, answer)
        except HTTPException as error:
            page = await unknown_page(scope, receive) if error.status_code == 404 else None
            found = page or _problem(scope["method"], error).response(answer.request_id)
            await found(scope, receive, answer)
        except ClientDisconnect:
            pass
        except Exception:
            logger.exception("a request failed")
            if answer.started:
                raise
            await UNEXPECTED.response(answer.request_id)(scope, receive, answer)


class _Answer:
    """A `send` that knows whether an answer has begun, and gives it the id of its request."""

    __slots__ = ("_send", "request_id", "sent", "started", "status")

    def __init__(self, send: Send, request_id: str | None) -> None:
        self._send = send
        self.request_id = request_id
        self.started = False
        self.status = 0
        self.sent = 0
        """Bytes of the body."""

    def __call__(self, message: Message) -> Any:
        self.started = True
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.request_id is not None:
                message["headers"] = [*message.get("headers", ()), (REQUEST_ID_HEADER, self.request_id.encode())]
        elif message["type"] == "http.response.body":
            self.sent += len(message.get("body", b""))
        return self._send(message)


UNEXPECTED = HttpProblem(500, "The server failed to handle the request. Its log has the cause.")


def _problem(method: str, error: HTTPException) -> HttpProblem:
    """The problem document for what Starlette's routing refuses."""
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {})["Allow"].split(", ")))
        return HttpProblem(405, f"{method} is not allowed at this address: use {allowed}.", headers={"allow": allowed})
    return HttpProblem(error.status_code, "There is nothing at this address.")

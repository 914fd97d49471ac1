"""The HTTP server as an ASGI app: the routes of `ROUTES` on Starlette, and /mcp in front of them.

/mcp is the hot path: its path is compared with one string, and a bare ASGI function serves it (`serve.mcp`). Everything else
is a route. A resource has a module of its own with its `routes`, whose handlers find this in `request.app`, and raise an
`HttpProblem` for a request that they refuse.
"""

import logging
from functools import cached_property
from typing import Any, Self

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from toolgate.app.app import App
from toolgate.app.checks.readiness import Readiness
from toolgate.model import check_request_id, new_id
from toolgate.serve import health_metrics, qstash, workflow_callbacks
from toolgate.serve.authentication import Authenticator
from toolgate.serve.http import (
    artifacts,
    attachments,
    audit,
    canvas,
    documents,
    health,
    invocations,
    jobs,
    notifications,
    openapi,
    push_tokens,
    schedules,
    servers,
    tools,
)
from toolgate.serve.http.endpoint import Endpoint
from toolgate.serve.http.handler import PathHandler
from toolgate.serve.http.pages import CURSOR_PURPOSE
from toolgate.serve.mcp import MCP_PATH, McpRoute
from toolgate.serve.problems import HttpProblem

RESOURCES = (
    tools.resource,
    invocations.resource,
    audit.resource,
    artifacts.resource,
    jobs.resource,
    schedules.resource,
    canvas.resource,
    notifications.resource,
    push_tokens.resource,
    documents.resource,
    attachments.resource,
    servers.resource,
    health.resource,
    openapi.resource,
)
"""The resources of /v1. Calls come first: the routes are compared in this order."""

REQUEST_ID_KEY = "toolgate.request_id"
"""In a request's scope: its id, which the client gave or which is new."""

logger = logging.getLogger("toolgate")


def _paths() -> list[Route]:
    """A route for each path of /v1."""
    found: dict[str, list[Endpoint]] = {}
    for resource in RESOURCES:
        for endpoint in resource.endpoints:
            found.setdefault(endpoint.path, []).append(endpoint)
    return [Route(path, PathHandler(endpoints)) for path, endpoints in found.items()]


ROUTES = [*_paths(), *health_metrics.routes, *workflow_callbacks.routes, *qstash.routes]


class HttpApp:
    """The ASGI app of an open App: `async with HttpApp(app) as http`."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.authenticator = Authenticator(app)
        self.mcp = McpRoute(app, self.authenticator)
        self.readiness = Readiness(app, self.mcp.check)
        self._collector = health_metrics.ServerCollector(app)
        self.cursor_key = b""
        """Seals the cursors of pages; the same in all processes."""
        self._routes = Router(ROUTES, redirect_slashes=False)  # an address is one address, as for /mcp

    @cached_property
    def openapi(self) -> dict[str, Any]:
        """The description of /v1."""
        return openapi.document(RESOURCES)

    async def __aenter__(self) -> Self:
        self.cursor_key = bytes.fromhex(await self.app.keys.sealing_key(CURSOR_PURPOSE))
        await self.mcp.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.mcp.__aexit__()
        self._collector.close()
        await self.app.keys.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served, not {scope['type']}")
        answer = _Answer(send)
        try:
            if scope["path"] == MCP_PATH:
                await self.mcp(scope, receive, answer)
            else:
                scope["app"] = self  # which the handlers ask, and without which routing would answer by itself
                scope[REQUEST_ID_KEY] = answer.request_id = _request_id(scope)
                await self._routes(scope, receive, answer)
        except HttpProblem as problem:
            await problem.response(answer.request_id)(scope, receive, answer)
        except HTTPException as error:
            await _problem(scope["method"], error).response(answer.request_id)(scope, receive, answer)
        except ClientDisconnect:
            pass
        except Exception:
            logger.exception("a request failed")
            if answer.started:
                raise
            await UNEXPECTED.response(answer.request_id)(scope, receive, answer)


class _Answer:
    """A `send` that knows whether an answer has begun, and tells the request's id with it."""

    __slots__ = ("_send", "request_id", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.request_id: str | None = None

    def __call__(self, message: Message) -> Any:
        self.started = True
        if self.request_id is not None and message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"x-request-id", self.request_id.encode())]
        return self._send(message)


def _request_id(scope: Scope) -> str:
    """The id that the client gave a request, if it is one that a record may hold; else a new one."""
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), None)
    if given is not None:
        try:
            text: str = given.decode("ascii")
            check_request_id(text)
        except ValueError:
            pass
        else:
            return text
    return new_id()


UNEXPECTED = HttpProblem(500, "The server failed to handle the request. Its log has the cause.")


def _problem(method: str, error: HTTPException) -> HttpProblem:
    """The problem document for what Starlette's routing refuses."""
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {})["Allow"].split(", ")))
        return HttpProblem(405, f"{method} is not allowed at this address: use {allowed}.", headers={"allow": allowed})
    return HttpProblem(error.status_code, "There is nothing at this address.")

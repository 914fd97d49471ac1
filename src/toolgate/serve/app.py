"""The HTTP server as an ASGI app: the routes of `ROUTES` on Starlette, and /mcp in front of them.

/mcp is the hot path: its path is compared with one string, and a bare ASGI function serves it (`serve.mcp`). Everything else
is a route. A resource has a module of its own with its `routes`, whose handlers find this in `request.app`, and raise an
`HttpProblem` for a request that they refuse.
"""

import logging
from typing import Any, Self

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from toolgate.app.app import App
from toolgate.app.checks.readiness import Readiness
from toolgate.serve import health_metrics, protected_resource, qstash, sign_in, workflow_callbacks
from toolgate.serve.authentication import Authenticator
from toolgate.serve.mcp import McpRoute
from toolgate.serve.problems import HttpProblem
from toolgate.serve.protected_resource import MCP_PATH

ROUTES = [*health_metrics.routes, *workflow_callbacks.routes, *qstash.routes, *sign_in.routes, *protected_resource.routes]

logger = logging.getLogger("toolgate")


class HttpApp:
    """The ASGI app of an open App: `async with HttpApp(app) as http`."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.authenticator = Authenticator(app)
        self.mcp = McpRoute(app, self.authenticator)
        self.readiness = Readiness(app, self.mcp.check)
        self._collector = health_metrics.ServerCollector(app)
        self._routes = Router(ROUTES, redirect_slashes=False)  # an address is one address, as for /mcp

    async def __aenter__(self) -> Self:
        await self.mcp.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.mcp.__aexit__()
        self._collector.close()
        await self.app.keys.close()
        await self.app.sign_ins.close()
        await self.app.issuers.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served, not {scope['type']}")
        answer = _Answer(send)
        try:
            if scope["path"] == MCP_PATH:
                await self.mcp(scope, receive, answer)
            else:
                scope["app"] = self  # which the handlers ask, and without which routing would answer by itself
                await self._routes(scope, receive, answer)
        except HttpProblem as problem:
            await problem.response()(scope, receive, answer)
        except HTTPException as error:
            await _problem(scope["method"], error).response()(scope, receive, answer)
        except ClientDisconnect:
            pass
        except Exception:
            logger.exception("a request failed")
            if answer.started:
                raise
            await UNEXPECTED.response()(scope, receive, answer)


class _Answer:
    """A `send` that knows whether an answer has begun."""

    __slots__ = ("_send", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    def __call__(self, message: Message) -> Any:
        self.started = True
        return self._send(message)


UNEXPECTED = HttpProblem(500, "The server failed to handle the request. Its log has the cause.")


def _problem(method: str, error: HTTPException) -> HttpProblem:
    """The problem document for what Starlette's routing refuses."""
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {})["Allow"].split(", ")))
        return HttpProblem(405, f"{method} is not allowed at this address: use {allowed}.", headers={"allow": allowed})
    return HttpProblem(error.status_code, "There is nothing at this address.")

"""The fixture upstream over the older SSE transport: `python -m tests.mcp_sse_server` prints its address first."""

import asyncio
import socket
import sys
import warnings

import uvicorn
from mcp.server.sse import SseServerTransport
from mcp.shared.exceptions import MCPDeprecationWarning
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from tests.conformance.upstream import build


async def main() -> None:
    server, transport = build(), SseServerTransport("/messages/")

    async def listen(request: Request) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    app = Starlette(routes=[Route("/sse", listen), Mount("/messages/", app=transport.handle_post_message)])
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}/sse\n")
        sys.stdout.flush()
        await uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)).serve([listening])


if __name__ == "__main__":
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    asyncio.run(main())

"""`toolgate serve`: Toolgate over HTTP."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from toolgate.cli.context import opened, option
from toolgate.cli.output import answered, note
from toolgate.extras import require

if TYPE_CHECKING:
    from toolgate.serve.app import HttpApp

LOOPBACK = ("http://127.", "http://[::1]")
EXPOSED = (
    "Warning: reachable from other machines without encryption. Put a TLS proxy in front of it and add its hostname to "
    "mcp.hosts."
)


def serve(
    ctx: typer.Context,
    host: Annotated[str | None, option("--host H", "Listen here; without it, 127.0.0.1.")] = None,
    port: Annotated[int | None, option("--port N", "Without it, 8700; 0 takes a free one.", min=0, max=65_535)] = None,
) -> int:
    """Serve MCP over HTTP until it is stopped. Health and metrics are served beside it."""

    require("serve")
    from toolgate.app.event_stream import taking_events
    from toolgate.serve import http_server, open_files  # with Starlette and uvicorn, which no other command needs

    async def ready(url: str, http: "HttpApp") -> None:
        if not answered({"url": url, "mcp": f"{url}/mcp", "pid": os.getpid()}):
            note(("Toolgate listens on ", "green"), f"{url} (MCP at {url}/mcp). Stop it with Ctrl-C.")
        if not url.startswith(LOOPBACK):
            note((EXPOSED, "yellow"))
        if not await http.app.keys.any():
            note(("There is no API key yet, so every call is refused. Create one: toolgate keys create NAME", "yellow"))

    async def main() -> int:
        given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
        async with opened(ctx, serving=True, **({"serve": given} if given else {})) as app, taking_events(app):
            await http_server.serve(app, ready)
        return 0

    open_files.raise_limit()
    return http_server.run_loop(main())

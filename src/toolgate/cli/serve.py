"""`toolgate serve`: Toolgate over HTTP."""

import os
from typing import Annotated

import typer

from toolgate.cli.context import AsJson, opened
from toolgate.cli.output import emit, note
from toolgate.serve.asgi import MCP, HttpApp
from toolgate.serve.run import run
from toolgate.serve.run import serve as serve_app

LOOPBACK = ("http://127.", "http://[::1]")


def serve(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Option("--host", metavar="H", help="Listen here; without it, 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="N", min=0, max=65_535, help="Without it, 8700; 0 takes a free one.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Serve MCP over HTTP until it is stopped. Health and metrics are served beside it."""

    async def ready(url: str, front: HttpApp) -> None:
        if as_json:
            emit({"url": url, "mcp": f"{url}{MCP}", "pid": os.getpid()})
        else:
            note(("Toolgate listens on ", "green"), f"{url} (MCP at {url}{MCP}). Ctrl-C ends it.")
        if not url.startswith(LOOPBACK):
            note(
                (
                    "Others reach it, and nothing is encrypted: put a proxy with TLS before it, its name into mcp.hosts.",
                    "yellow",
                )
            )
        if not await front.keys.any():
            note(("There is no key yet, so nobody can call: `toolgate keys create NAME` makes one.", "yellow"))

    async def main() -> int:
        async with opened(ctx, serving=True) as app:
            given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
            app.settings = app.settings.with_overrides({"serve": given})
            await serve_app(app, ready)
        return 0

    return run(main())

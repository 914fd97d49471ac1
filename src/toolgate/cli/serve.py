"""`toolgate serve`: Toolgate over HTTP."""

import logging
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolgate.cli.context import Usage, opened, option
from toolgate.cli.output import answered, note
from toolgate.cli.sign_in import new_link
from toolgate.cli.times import shown
from toolgate.extras import require

if TYPE_CHECKING:
    from toolgate.serve.app import HttpApp
    from toolgate.serve.request_log import ServerLog

LOOPBACK = ("http://127.", "http://[::1]")
EXPOSED = (
    "Warning: reachable from other machines without encryption. Put a TLS proxy in front of it and add its hostname to "
    "mcp.hosts."
)


def serve(
    ctx: typer.Context,
    host: Annotated[str | None, option("--host H", "Listen here; without it, 127.0.0.1.")] = None,
    port: Annotated[int | None, option("--port N", "Without it, 8700; 0 takes a free one.", min=0, max=65_535)] = None,
    verbose: Annotated[
        bool, option("-v --verbose", "Log requests of /mcp and what Toolgate notes for developers as well.")
    ] = False,
    quiet: Annotated[bool, option("-q --quiet", "Log neither requests nor calls.")] = False,
    log_format: Annotated[Literal["text", "json"], option("--log-format FORM", "text or json.")] = "text",
) -> int:
    """Serve MCP over HTTP until it is stopped. Health and metrics are served beside it."""

    require("serve")
    from toolgate.app.event_stream import taking_events
    from toolgate.serve import http_server  # with Starlette and uvicorn, which no other command needs

    log = _make_log(log_format, verbose=verbose, quiet=quiet)

    async def ready(url: str, http: "HttpApp") -> None:
        await http.app.sign_ins.serve_at(_from_here(url))
        link = await new_link(http.app, http.app.settings.serve.public_url or _from_here(url))
        if not answered({"url": url, "mcp": f"{url}/mcp", "pid": os.getpid(), "sign_in": link["url"]}):
            note(("Toolgate listens on ", "green"), f"{url} (MCP at {url}/mcp). Stop it with Ctrl-C.")
            note(("Sign in as operator, once, until ", "green"), f"{shown(link['until'])}: {link['url']}")
        if not url.startswith(LOOPBACK):
            note((EXPOSED, "yellow"))
        if not http.app.issuers.names and not await http.app.keys.any():
            note(("There is no API key yet, so programs are refused. Create one: toolgate keys create NAME", "yellow"))

    async def main() -> int:
        given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
        async with (
            opened(ctx, serving=True, **({"serve": given} if given else {})) as app,
            taking_events(app),
            log.of(app) if log is not None else nullcontext(),
        ):
            await http_server.serve(app, ready, log)
        return 0

    return http_server.run_loop(main())


def _from_here(url: str) -> str:
    """The address of a server as this machine reaches it: not that of all its addresses."""
    return url.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:")


def _make_log(form: Literal["text", "json"], *, verbose: bool, quiet: bool) -> "ServerLog | None":
    """The log of requests and calls; other messages of the program get its form."""
    from toolgate.serve.request_log import LogFormatter, ServerLog

    if verbose and quiet:
        raise Usage("-v and -q contradict each other.")
    for handler in logging.getLogger().handlers:
        handler.setFormatter(LogFormatter(form))
        if verbose:
            handler.setLevel(logging.DEBUG)
            logging.getLogger("toolgate").setLevel(logging.DEBUG)
    return None if quiet else ServerLog(form, verbose=verbose)

"""`toolgate serve`: Toolgate over HTTP."""

import asyncio
import logging
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from toolgate.cli.context import Usage, opened, option, trusted
from toolgate.cli.demo import demo_content
from toolgate.cli.output import answered, note
from toolgate.cli.sign_in import new_link
from toolgate.cli.times import shown
from toolgate.errors import NotServing
from toolgate.extras import require
from toolgate.model import LOCAL, Actor

if TYPE_CHECKING:
    from toolgate.serve.app import HttpApp
    from toolgate.serve.request_log import ServerLog
    from toolgate.serve.workers import ServeWorker

LOOPBACK = ("http://127.", "http://[::1]")
EXPOSED = (
    "Warning: reachable from other machines without encryption. Put a TLS proxy in front of it and add its hostname to "
    "mcp.hosts."
)


def serve(
    ctx: typer.Context,
    host: Annotated[str | None, option("--host H", "Listen here; without it, 127.0.0.1.")] = None,
    port: Annotated[int | None, option("--port N", "Without it, 8700; 0 takes a free one.", min=0, max=65_535)] = None,
    workers: Annotated[
        int | None, option("--workers N", "Serve with so many processes; without it, 1.", min=1, max=256)
    ] = None,
    verbose: Annotated[
        bool, option("-v --verbose", "Log requests of /mcp and what Toolgate notes for developers as well.")
    ] = False,
    quiet: Annotated[bool, option("-q --quiet", "Log neither requests nor calls.")] = False,
    log_format: Annotated[Literal["text", "json"], option("--log-format FORM", "text or json.")] = "text",
    demo: Annotated[
        bool, option("--demo", "Serve demo content, in a folder of its own; `toolgate demo remove` removes it.")
    ] = False,
) -> int:
    """Serve the HTTP API and MCP, and run jobs, until stopped."""

    require("serve")
    with demo_content(ctx) if demo else nullcontext(LOCAL) as person:
        given = {name: value for name, value in (("host", host), ("port", port), ("workers", workers)) if value is not None}
        log = _make_log(log_format, verbose=verbose, quiet=quiet)
        return _serve(ctx, {"serve": given} if given else {}, log, person)


def _serve(ctx: typer.Context, overrides: dict[str, Any], log: "ServerLog | None", person: Actor) -> int:
    """Serves until it is stopped. `person`: whom the link that it prints signs in, as operator."""
    from toolgate.app.event_stream import taking_events
    from toolgate.serve import http_server, open_files  # with Starlette and uvicorn, which no other command needs

    worker = _fork_workers(ctx, overrides)
    if isinstance(worker, int):
        return worker

    async def ready(url: str, http: "HttpApp") -> None:
        await http.app.sign_ins.serve_at(_from_here(url))
        if worker is not None and not worker.is_new:
            worker.is_ready({})
            return
        link = await new_link(http.app, http.app.settings.serve.public_url or _from_here(url), person)
        has_keys = bool(http.app.issuers.names) or await http.app.keys.any()
        said = {"sign_in": link["url"], "until": shown(link["until"]), "has_keys": has_keys}
        if worker is None:
            _tell(url, said, {"pid": os.getpid()})
        else:
            worker.is_ready(said)

    async def main() -> int:
        keeps = worker is None or worker.is_first
        async with (
            opened(ctx, serving=True, keeps_servers=keeps, **overrides) as app,
            taking_events(app),
            log.of(app) if log is not None else nullcontext(),
        ):
            if worker is None:
                await http_server.serve(app, ready, log)
            else:
                await http_server.serve(app, ready, log, worker.listening, worker.stopped)
        return 0

    open_files.raise_limit()
    return http_server.run_loop(main())


def _fork_workers(ctx: typer.Context, overrides: dict[str, Any]) -> "ServeWorker | int | None":
    """Serves with several processes, if the settings say so: gives, in each, its worker; in the one that has started them,
    the exit code, at the end. None: there is one process, this one."""
    from toolgate.serve import http_server
    from toolgate.serve.workers import Supervisor

    settings = asyncio.run(trusted(ctx, overrides, lambda settings: settings))
    count = settings.serve.workers
    if count == 1:
        return None
    if settings.in_memory:
        raise NotServing(
            "A database in memory belongs to one process.", suggestion="Leave --workers away, or set database_url."
        )
    import toolgate.mcp.server.http_sessions  # noqa: F401 - before the forks, so that all share its memory, and start quickly

    sockets = http_server.bind(settings.serve, count)
    url = http_server.url_of(sockets[0])
    return Supervisor(sockets, lambda pids, said: _tell(url, said, {"pid": os.getpid(), "workers": pids})).run()


def _tell(url: str, said: dict[str, Any], process: dict[str, Any]) -> None:
    """Says that requests are taken, and how to sign in."""
    if not answered({"url": url, "mcp": f"{url}/mcp", **process, "sign_in": said["sign_in"]}):
        many = f" with {len(process['workers'])} processes" if "workers" in process else ""
        note(("Toolgate listens on ", "green"), f"{url}{many} (MCP at {url}/mcp). Stop it with Ctrl-C.")
        note(("Sign in as operator, once, until ", "green"), f"{said['until']}: {said['sign_in']}")
    if not url.startswith(LOOPBACK):
        note((EXPOSED, "yellow"))
    if not said["has_keys"]:
        note(("There is no API key yet, so programs are refused. Create one: toolgate keys create NAME", "yellow"))


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

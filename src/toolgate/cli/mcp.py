"""`toolgate mcp`: the tools of this installation for an MCP client that starts this command and talks to it over a pipe."""

import asyncio
import contextlib
import signal
from typing import Annotated

import typer

from toolgate.cli.context import CallerOptions, WorkspaceFolder, check_workspace, global_options, option, text_option
from toolgate.extras import require


async def mcp(
    ctx: typer.Context,
    whose: CallerOptions,
    workspace: WorkspaceFolder = None,
    session: Annotated[
        str | None, text_option("--session S", "The name of the client's session; without it, a new one of its own.")
    ] = None,
    may_speak: Annotated[
        bool,
        option(
            "--may-speak-for-the-user",
            "The client may pass on what its user typed (_meta toolgate/user_words), as the user's own words.",
        ),
    ] = False,
) -> int:
    """Serve MCP on stdin and stdout for a local client. Ends when the client closes the pipe.

    The client's person is the one at this machine: where a call needs an approval, the client is asked to ask them.
    """
    require("mcp")
    check_workspace(workspace)
    from toolgate.app.app import App
    from toolgate.mcp.server.stdio import claim_stdio, serve

    actor, place, this = whose.actor, global_options(ctx), asyncio.current_task()
    assert this is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, this.cancel)
    with claim_stdio() as wire, contextlib.suppress(asyncio.CancelledError):
        async with App.open(place.settings, **place.overrides) as app:
            await serve(app, actor, wire, workspace, session, may_speak=may_speak)
    return 0

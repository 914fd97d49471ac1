"""`toolgate mcp`: the tools of this installation for an MCP client that starts this command and talks to it over a pipe."""

import asyncio
import contextlib
import signal

import typer

from toolgate.cli.context import Persona, Scopes, Tenant, User, actor_of, global_options
from toolgate.extras import require
from toolgate.model import Actor


async def mcp(
    ctx: typer.Context, tenant: Tenant = None, persona: Persona = None, user: User = None, scope: Scopes = None
) -> int:
    """Serve MCP on stdin and stdout, for a client on this machine. Ends when the client closes the pipe.

    The client's person is the one at this machine: where a call needs an approval, the client is asked to ask them.
    """
    require("mcp")
    actor = actor_of(tenant, persona, user, scope or ())
    return await _serve(ctx, actor)


async def _serve(ctx: typer.Context, actor: Actor) -> int:
    from toolgate.app.app import App
    from toolgate.mcp.server.stdio import claim_stdio, serve

    place, this = global_options(ctx), asyncio.current_task()
    assert this is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, this.cancel)
    with claim_stdio() as wire, contextlib.suppress(asyncio.CancelledError):
        async with App.open(place.settings, **place.overrides) as app:
            await serve(app, actor, wire)
    return 0

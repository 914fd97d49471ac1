"""The doctor's probes of MCP servers: each is started and asked what it has, but for those that nobody has started yet."""

import asyncio
from collections.abc import AsyncIterator

from toolgate.app.app import App
from toolgate.app.checks.check import Check
from toolgate.app.server_status import ServerStatus
from toolgate.cli.output import plural
from toolgate.errors import ToolgateError, described

SECONDS = 60.0
"""What one server may take, the installation of its package included."""


async def server_checks(app: App) -> AsyncIterator[Check]:
    """One for each server, all asked at once, and one for what can't be used of them."""
    servers = await app.servers.list()
    if not app.settings.mcp.enabled:
        words = f"{plural(len(servers), 'MCP server')}, none of which is used: mcp.enabled is false"
        yield Check("servers", "unused", words)
        return
    for check in await asyncio.gather(*(_check(app, status) for status in servers)):
        yield check
    for problem in app.parts.mcp_tools.problems:
        yield Check("servers", "warning", f"{problem.where}: {problem.why}")
    if not servers and not app.parts.mcp_tools.problems:
        yield Check("servers", "unused", "no MCP servers: `toolgate servers add` adds one")


async def _check(app: App, before: ServerStatus) -> Check:
    name = before.name
    if not before.settings.enabled:
        return Check("servers", "unused", f"{name} is disabled")
    lacking = app.servers.missing_secrets(before.settings)
    if lacking:
        advice = f"toolgate secrets set {lacking[0]} --servers"
        return Check("servers", "warning", f"{name} needs the secret {lacking[0]}", advice)
    if before.origin == "store" and before.listed_at is None:  # it may come from a file or an agent: nobody has agreed to it
        advice = f"toolgate servers show {name} shows what it is; toolgate servers refresh {name} starts it."
        return Check(
            "servers", "warning", f"{name} was added, but nobody has started it: it is not started here either", advice
        )
    try:
        async with asyncio.timeout(SECONDS):
            await app.servers.refresh(name)
    except TimeoutError:
        return Check("servers", "fault", f"{name} did not answer within {SECONDS:g} s")
    except ToolgateError as error:
        return Check("servers", "fault", f"{name}: {error.message}", error.suggestion)
    except Exception as error:  # noqa: BLE001 - one server, whatever it does, does not end the report on all others
        return Check("servers", "fault", f"{name} can't be checked: {described(error)[:300]}")
    status = await app.servers.get(name)
    jail = status.standing.jail if status.standing is not None else None
    held = f"in {jail}" if jail else "not in a jail" if status.settings.url is None else "remote"
    words = f"{name}: {plural(status.accepted, 'tool')}, protocol {status.about.get('protocol')}, {held}"
    if status.waiting:
        return Check("servers", "warning", f"{words}; {status.waiting:,} to be accepted", f"toolgate tools accept {name}")
    return Check("servers", "ok", words)

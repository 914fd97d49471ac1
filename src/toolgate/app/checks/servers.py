"""Checks of MCP servers: their state as it is known, and, for the doctor, whether each starts and says what it has."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from toolgate.app.app import App
from toolgate.app.checks import Check
from toolgate.app.server_status import ServerStatus
from toolgate.errors import ToolgateError, described, plural
from toolgate.mcp.method_tools import METHOD_CAPABILITIES

START_SECONDS = 60.0
"""The time that one server has, the installation of its package included."""


def server_state(one: ServerStatus, lacking: Sequence[str]) -> Check:
    """The state of a server, without asking it, and the command that brings it further; `lacking` are secrets not set."""
    if not one.settings.enabled:
        return Check("servers", "unused", "disabled in its settings")
    if lacking:
        return Check("servers", "warning", f"needs the secret {lacking[0]}", f"toolgate secrets set {lacking[0]} --servers")
    if one.problem is not None:
        return Check("servers", "fault", f"cannot be used: {one.problem}", f"toolgate servers refresh {one.name}")
    if one.listed_at is None:
        return Check("servers", "warning", "not started yet", f"toolgate servers refresh {one.name}")
    in_use = f"{plural(one.accepted, 'tool')} in use" if one.accepted else ""
    if one.waiting:
        words = ", ".join(filter(None, (in_use, f"{waiting_words(one)} to be accepted")))
        return Check("servers", "warning", words, f"toolgate tools accept {one.name}")
    return Check("servers", "ok", in_use or "has no tools")


def waiting_words(one: ServerStatus) -> str:
    """The number of definitions that wait to be accepted, by what they are."""
    has_methods = not set(METHOD_CAPABILITIES.values()).isdisjoint(one.about.get("capabilities") or ())
    return plural(one.waiting, "definition" if one.items.waiting or has_methods else "tool")


async def server_checks(app: App) -> AsyncIterator[Check]:
    """Starts every server and asks what it has, all at once, but for those that were added and never started."""
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
    name, lacking = before.name, app.servers.missing_secrets(before.settings)
    if not before.settings.enabled or lacking:
        state = server_state(before, lacking)
        return state._replace(message=f"{name}: {state.message}")
    if before.origin == "store" and before.listed_at is None:  # it may come from a file or an agent: nobody has agreed to it
        advice = f"toolgate servers show {name} shows what it is; toolgate servers refresh {name} starts it."
        return Check("servers", "warning", f"{name}: added, but never started; the doctor does not start it either", advice)
    try:
        async with asyncio.timeout(START_SECONDS):
            await app.servers.refresh(name)
    except TimeoutError:
        return Check("servers", "fault", f"{name} did not answer within {START_SECONDS:g} s")
    except ToolgateError as error:
        return Check("servers", "fault", f"{name}: {error.message}", error.suggestion)
    except Exception as error:  # noqa: BLE001 - one server, whatever it does, does not end the report on all others
        return Check("servers", "fault", f"{name} cannot be checked: {described(error)[:300]}")
    status = await app.servers.get(name)
    jail = status.standing.jail if status.standing is not None else None
    held = f"in {jail}" if jail else "not in a jail" if status.settings.url is None else "remote"
    words = f"{name}: {plural(status.accepted, 'tool')}, protocol {status.about.get('protocol')}, {held}"
    if status.waiting:
        return Check("servers", "warning", f"{words}; {status.waiting:,} to be accepted", f"toolgate tools accept {name}")
    return Check("servers", "ok", words)

"""The state of an MCP server in words: what a person reads of it, and what a new listing has changed."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from toolgate.app.app import App
from toolgate.app.server_status import ServerStatus
from toolgate.cli.completion import server_names
from toolgate.cli.context import NotFound
from toolgate.cli.output import note, plural, say
from toolgate.errors import SettingsError
from toolgate.mcp.definitions import ITEM_KINDS, Comparison
from toolgate.mcp.method_tools import METHOD_CAPABILITIES
from toolgate.mcp.prompts_resources import label

MOST_NAMED = 20
METHOD_WORDS = {
    "resources/read": "reading its resources",
    "prompts/get": "getting its prompts",
    "completion/complete": "completing arguments",
}
"""Requests to a server besides calls of its tools, for people: each has to be accepted as a tool has."""
Name = Annotated[str, typer.Argument(metavar="NAME", help="The server.", show_default=False, autocompletion=server_names)]


async def known(app: App, name: str) -> ServerStatus:
    """The server of a name."""
    try:
        return await app.servers.get(name)
    except SettingsError as error:
        raise NotFound(error.message, suggestion=error.suggestion) from None


def state_of(one: ServerStatus, lacking: Sequence[str]) -> str:
    """The state of a server, as a person reads it."""
    if not one.settings.enabled:
        return "disabled in its settings"
    if lacking:
        return f"needs the secret {lacking[0]}"
    if one.problem is not None:
        return f"can't be used: {one.problem}"
    if one.listed_at is None:
        return "not started yet"
    in_use = f"{plural(one.accepted, 'tool')} in use" if one.accepted else ""
    waits = f"{_definitions(one, one.waiting)} to be accepted" if one.waiting else ""
    return ", ".join(filter(None, (in_use, waits))) or "has no tools"


def next_step(one: ServerStatus, lacking: Sequence[str]) -> str | None:
    """The command that brings a server further; None: nothing has to be done."""
    if not one.settings.enabled:
        return None
    if lacking:
        return f"{one.name} needs a secret: toolgate secrets set {lacking[0]} --servers"
    if one.problem is not None or one.listed_at is None:
        return f"See what {one.name} has: toolgate servers refresh {one.name}"
    return f"Look at what {one.name} offers, and accept it: toolgate tools accept {one.name}" if one.waiting else None


def _definitions(one: ServerStatus, number: int) -> str:
    has_methods = not set(METHOD_CAPABILITIES.values()).isdisjoint(one.about.get("capabilities") or ())
    return plural(number, "definition" if one.items.waiting or has_methods else "tool")


def compared_words(compared: Comparison | None) -> dict[str, Any]:
    """What a listing has changed, for programs."""
    return {} if compared is None else {what: [label(key) for key in keys] for what, keys in compared._asdict().items()}


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def say_compared(status: ServerStatus, compared: Comparison) -> None:
    """What a listing has changed, for people."""
    words = {"new": "new", "changed": "changed", "gone": "gone", "taken": "in use from now on"}
    for what, keys in compared._asdict().items():
        tools = [label(key) for key in keys if key[0] == "tools/call"]
        items = [label(key) for key in keys if key[0] in ITEM_KINDS]
        methods = [METHOD_WORDS[key[0]] for key in keys if key[0] in METHOD_WORDS]
        if tools:
            say(f"  {plural(len(tools), 'tool')} {words[what]}: {_some(tools)}")
        if items:
            say(f"  {plural(len(items), 'definition')} of prompts and resources {words[what]}: {_some(items)}")
        if methods:
            say(f"  {'also ' if tools or items else ''}{words[what]}: {', '.join(methods)}")
    if not compared.any:
        has_any = any((*status.tools, *status.items))
        say(f"  Nothing has changed: {plural(status.accepted, 'tool')} in use." if has_any else "  It has no tools.")
    if status.waiting:
        note((f"{_definitions(status, status.waiting)} to look at: toolgate tools accept {status.name}", "yellow"))

"""The changes that a new listing of an MCP server brought, in words."""

from typing import Annotated, Any

from toolgate.app.app import App
from toolgate.app.checks.servers import waiting_words
from toolgate.app.server_status import ServerStatus
from toolgate.cli.completion import server_names
from toolgate.cli.context import NotFound, argument
from toolgate.cli.output import note, say
from toolgate.errors import SettingsError, plural
from toolgate.mcp.definitions import ITEM_KINDS, Comparison
from toolgate.mcp.pins import label

MAX_NAMED_TOOLS = 20
METHOD_WORDS = {
    "resources/read": "reading its resources",
    "prompts/get": "getting its prompts",
    "completion/complete": "completing arguments",
}
"""Requests to a server besides calls of its tools, for people: each has to be accepted as a tool has."""
Name = Annotated[str, argument("NAME", "The server.", autocompletion=server_names)]


async def known(app: App, name: str) -> ServerStatus:
    """The server of a name."""
    try:
        return await app.servers.get(name)
    except SettingsError as error:
        raise NotFound(error.message, suggestion=error.suggestion) from None


def compared_words(compared: Comparison | None) -> dict[str, Any]:
    """The changes of a listing, for programs."""
    return {} if compared is None else {what: [label(key) for key in keys] for what, keys in compared._asdict().items()}


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED_TOOLS:,} more" if len(names) > MAX_NAMED_TOOLS else ""
    return f"{', '.join(names[:MAX_NAMED_TOOLS])}{more}"


def say_compared(status: ServerStatus, compared: Comparison) -> None:
    """Prints the changes of a listing, for people."""
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
        note((f"{waiting_words(status)} to look at: toolgate tools accept {status.name}", "yellow"))

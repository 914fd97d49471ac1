"""Why a tool was not found, told to the operator at the terminal, with the command that helps.

A caller is told the same of a tool that is missing and of one that is hidden (decision 5), at every door. Whoever runs the
CLI reads the store anyway, so that keeping the cause from them would only cost time. It is for people: `--json` gives the
pipeline's answer alone, because programs pass it on.
"""

import re
import shlex
from contextlib import suppress
from pathlib import Path

from toolgate.app.app import App
from toolgate.cli.context import entry_named, naming
from toolgate.cli.listing import why_off
from toolgate.cli.output import clean
from toolgate.errors import did_you_mean
from toolgate.model import Actor, Entry
from toolgate.registry.catalog import Problem
from toolgate.trust import read_regular

LIST = "`toolgate tools list` shows all tools."


async def why_missing(app: App, name: str, actor: Actor) -> str:
    """The cause, as a sentence or two: hidden from this actor, not accepted, not loaded, or no such name."""
    entry = entry_named(app, name, actor)
    if entry is not None:
        return await _hidden(app, entry, actor)
    if name in app.mcp_tools.withheld:
        return (
            f"{clean(name)} is offered by an MCP server, but {app.mcp_tools.withheld[name]}: `toolgate tools accept {name}`."
        )
    owners = sorted({str(one.tool.tenant) for one in app.catalog.entries() if one.name == name})
    if owners:
        return f"{clean(name)} is a tool of tenant {clean(', '.join(owners))}: add --tenant {shlex.quote(owners[0])}."
    server = next((one for one in app.settings.servers if name.startswith(f"mcp_{one}_")), None)
    if server is not None and (why := app.mcp_tools.why_unusable(server)) is not None:
        return f"Server {server} can't be used: {clean(why).rstrip('.')}. Correct its settings (servers.{server})."
    problem = next((one for one in app.problems if _may_hold(one, name)), None)
    if problem is not None:
        return f"{problem.where} could not be loaded: {problem.why}. Correct it and call again."
    idle = _file_without(app, name)
    if idle is not None:
        return f"{idle} was loaded, but has no tool of this name: put `@tool` (from toolgate) above its function or class."
    near = did_you_mean(name, [one.name for one in app.catalog.entries() if await why_off(app, one, actor) is None])
    if near is not None:
        return near
    waiting = did_you_mean(name, app.mcp_tools.withheld)
    return f"{waiting} It has to be accepted first: `toolgate tools accept --all`." if waiting else LIST


async def _hidden(app: App, entry: Entry, actor: Actor) -> str:
    """What keeps a tool that is there from an actor."""
    reason = await why_off(app, entry, actor)
    if reason is None:  # it was not for whoever called, and is for this actor: it has changed since
        return LIST
    command = f"toolgate explain {entry.name}{naming(actor, user=True)}"
    if actor.persona is not None:
        command += f" --persona {shlex.quote(actor.persona)}"
    if app.catalog.why_off(entry, actor.tenant) is None:
        return f"The tool is there, but hidden from this caller: {reason}. `{command}` says which rule decides."
    only = "" if app.catalog.tenant_flag(entry.name, actor.tenant) is None else f" --tenant {shlex.quote(actor.tenant)}"
    return f"The tool is there, but {reason}: `toolgate tools enable {entry.name}{only}`."


def _may_hold(problem: Problem, name: str) -> bool:
    """Whether a tool of a name could be in what did not load: its file is called so, or names it."""
    word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    if word.search(f"{problem.where} {problem.why}"):
        return True
    return bool(word.search(_text(Path(problem.where.split(":")[0]))))


def _file_without(app: App, name: str) -> Path | None:
    """A file of the tools folder that defines something of a name, and yet no tool of that name."""
    defined = re.compile(rf"^(async def|def|class) {re.escape(name)}\b", re.MULTILINE)
    files = (file for folder in app.settings.python_folders for file in sorted(folder.glob("[!_.]*.py")))
    return next((file for file in files if defined.search(_text(file))), None)


def _text(file: Path) -> str:
    with suppress(OSError, ValueError):  # a pipe is not waited for
        return read_regular(file).decode(errors="replace")
    return ""

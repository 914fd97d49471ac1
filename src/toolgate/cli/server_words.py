"""What the `servers` commands read and write: options as settings, with the credentials among them taken out, and what a new
listing of a server has changed.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from toolgate.app.app import App
from toolgate.app.servers import ServerStatus
from toolgate.cli.completion import server_names
from toolgate.cli.context import NotFound, Usage
from toolgate.cli.output import note, plural, say
from toolgate.errors import SettingsError
from toolgate.mcp.client.executables import INTERPRETERS, RUNNERS, find_program, script_in
from toolgate.mcp.client.mounts import is_shared
from toolgate.mcp.definitions import ITEMS, Compared
from toolgate.mcp.import_files import kept, packaged, without_secrets
from toolgate.mcp.methods import CAPABILITIES
from toolgate.mcp.prompts_resources import label
from toolgate.model import NAME

MOST_NAMED = 20
STARTERS = frozenset((*RUNNERS, *INTERPRETERS, "docker"))
"""First words of commands: somebody who gives such a name to a server has mostly left the name out."""
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
        return await app.server(name)
    except SettingsError as error:
        raise NotFound(error.message, suggestion=error.suggestion) from None


def pairs(option: str, given: Iterable[str], between: str = "=") -> dict[str, str]:
    """NAME=VALUE options as a mapping."""
    read = {}
    for text in given:
        name, found, value = text.partition(between)
        if not found or not name.strip():
            raise Usage(f"{option} wants NAME{between}VALUE.")
        read[name.strip()] = value.strip() if between == ":" else value
    return read


def check_words(name: str, command: Sequence[str], *, is_named: bool) -> None:
    """Refuses words that are mistyped in a way that would otherwise be blamed on the server. `is_named`: an option says what
    it is, and the command holds only arguments."""
    if not NAME.match(name):
        if "://" in name:
            raise Usage(
                "The name of a server comes first, not its address.", suggestion="toolgate servers add NAME --url URL"
            )
        raise Usage(
            f"The name of a server is a letter, then letters, digits, _ and -, at most 64 in all: not {name[:64]!r}."
        )
    if is_named:
        return
    if not command:
        raise Usage(
            f"Nothing says what server {name} is: neither what to start nor what to reach.",
            suggestion=f"`toolgate servers add {name} -- COMMAND …`, or with --url URL, --npm PACKAGE, --pypi PACKAGE or "
            "--preset P (`toolgate servers presets` lists them).",
        )
    if find_program(command[0]) is None and (command[0].startswith("-") or name in STARTERS):
        words = shlex.join([name, *command])
        raise Usage(
            f"{name} would be the name of the server, and {command[0]} its program, which is not here.",
            suggestion=f"The name comes first: toolgate servers add NAME -- {words}",
        )


def settings_of(
    name: str,
    command: list[str],
    options: Mapping[str, Any],
    *,
    env: Iterable[str],
    headers: Iterable[str],
) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings that options describe, and the secrets that were among them. What was not said is not in it."""
    values = {key: value for key, value in options.items() if value is not None and value is not False and value != []}
    for folders in ("read", "write"):
        if folders in values:
            values[folders] = [str(Path(folder).expanduser().resolve()) for folder in values[folders]]
    if "cwd" in values:
        values["cwd"] = str(Path(values["cwd"]).expanduser().resolve())
    secrets: dict[str, str] = {}
    if command:
        starts, words = values.keys() & {"npm", "pypi", "preset"}, without_secrets(name, command, secrets)
        values |= {"command": words} if starts else packaged(words)
        if values.keys().isdisjoint({"npm", "pypi", "preset", "cwd"}):
            values |= _begun(words, Path.cwd())
    named_env, named_headers = pairs("--env", env), pairs("--header", headers, ":")
    if named_env:
        values["env"] = kept(name, named_env, secrets)
    if named_headers:
        values["headers"] = kept(name, named_headers, secrets, header=True)
    return values, secrets


def _begun(command: list[str], here: Path) -> dict[str, Any]:
    """Where a command that is typed in a folder, and runs a script of it, begins: in that folder, which it may then read.
    From a folder that no server is given whole, a home for one, it begins in the script's own."""
    script = script_in(command, here)
    if script is None:
        return {}
    if not is_shared(here):
        return {"cwd": str(here.resolve())}
    folder = script.parent
    if is_shared(folder):
        raise Usage(
            f"{script.name} lies in {folder}, which no server is given as a whole.",
            suggestion=f"Give it a folder of its own: mkdir my-server && mv {script.name} my-server/ and name it there.",
        )
    whole = [str(script) if Path(here, word).expanduser().resolve() == script else word for word in command]
    return {"command": whole, "cwd": str(folder)}


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
    has_methods = not set(CAPABILITIES.values()).isdisjoint(one.about.get("capabilities") or ())
    return plural(number, "definition" if one.items.waiting or has_methods else "tool")


def compared_words(compared: Compared | None) -> dict[str, Any]:
    """What a listing has changed, for programs."""
    return {} if compared is None else {what: [label(key) for key in keys] for what, keys in compared._asdict().items()}


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def say_compared(status: ServerStatus, compared: Compared) -> None:
    """What a listing has changed, for people."""
    words = {"new": "new", "changed": "changed", "gone": "gone", "taken": "in use from now on"}
    for what, keys in compared._asdict().items():
        tools = [label(key) for key in keys if key[0] == "tools/call"]
        items = [label(key) for key in keys if key[0] in ITEMS]
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

"""Options of `toolgate servers add` as settings, with the credentials among them taken out."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolgate.cli.context import Usage
from toolgate.mcp.client.executables import INTERPRETERS, PACKAGE_RUNNERS, find_program, script_in
from toolgate.mcp.client.mounts import is_shared
from toolgate.mcp.import_files import packaged, with_secret_references, without_secrets
from toolgate.model import TOOL_NAME

STARTERS = frozenset((*PACKAGE_RUNNERS, *INTERPRETERS, "docker"))
"""First words of commands: somebody who gives such a name to a server has mostly left the name out."""


def pairs(option: str, given: Iterable[str], between: str = "=") -> dict[str, str]:
    """NAME=VALUE options as a mapping."""
    read = {}
    for text in given:
        name, found, value = text.partition(between)
        if not found or not name.strip():
            raise Usage(f"{option} must be NAME{between}VALUE.")
        read[name.strip()] = value.strip() if between == ":" else value
    return read


def check_words(name: str, command: Sequence[str], *, is_named: bool) -> None:
    """Refuses words that are mistyped in a way that would otherwise be blamed on the server. `is_named`: an option says what
    it is, and the command holds only arguments."""
    if not TOOL_NAME.match(name):
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
            f"Server {name} has neither a program nor a url.",
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
        values["env"] = with_secret_references(name, named_env, secrets)
    if named_headers:
        values["headers"] = with_secret_references(name, named_headers, secrets, header=True)
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

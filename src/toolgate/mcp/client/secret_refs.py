"""Fills references to secrets (`{{secret:NAME}}`) in a server's headers, variables, arguments and url.

They are filled when the value is needed, not when the settings are read: a changed secret holds from then on.
"""

import re
from base64 import b64encode
from collections.abc import Callable
from pathlib import PurePath
from urllib.parse import quote

from toolgate.errors import StoreError
from toolgate.mcp.client.errors import Unreachable
from toolgate.mcp.client.executables import LaunchCommand
from toolgate.settings import ServerSettings

ReadSecret = Callable[[str], str | None]
"""The value of a secret by name; None if there is none."""

SECRET_REFERENCE = re.compile(r"\{\{\s{0,8}secret:([^{}]{0,200})\}\}")


ARGUMENT_VARIABLE = "TOOLGATE_ARGUMENT_"
ARGUMENT_FILLER = f"""
const values = Object.entries(process.env).filter(([name]) => name.startsWith("{ARGUMENT_VARIABLE}"));
for (const [name, value] of values) {{
  process.argv.forEach((word, at) => {{ process.argv[at] = word.split(`{{{{${{name}}}}}}`).join(value); }});
  delete process.env[name];
}}
"""
"""Run by Node before the program: fills variables of ours into the arguments that name them. So the values are in no command
line, which every user of the machine can read."""


class SecretMissing(Unreachable):
    """A secret that a server's settings refer to is not set."""

    code = "MISSING_AUTH"


def fill(text: str, secrets: ReadSecret, what: str) -> str:
    """Fills the references in a text. `what` names it in the error for a missing secret."""
    return SECRET_REFERENCE.sub(lambda found: _value(found[1].strip(), secrets, what), text) if "{{" in text else text


def fill_url(url: str, secrets: ReadSecret, server: str) -> str:
    """Fills references in the path and query of a URL. Values are quoted: none changes what is reached."""
    what = f"The url of server {server}"
    return SECRET_REFERENCE.sub(lambda found: quote(_value(found[1].strip(), secrets, what), safe=""), url)


def node_runs(settings: ServerSettings) -> bool:
    """True if Node runs the program of a server."""
    return settings.npm is not None or bool(settings.command and _is_node(settings.command[0]))


def _is_node(program: str) -> bool:
    return PurePath(program).name in ("node", "nodejs")


def hide_argument_secrets(name: str, command: LaunchCommand, secrets: ReadSecret) -> tuple[LaunchCommand, dict[str, str]]:
    """A command without references to secrets, and the variables that hold their values. Only Node can be given them so."""
    words = command.argv
    if not any(SECRET_REFERENCE.search(word) for word in words):
        return command, {}
    if not _is_node(words[0]):
        raise Unreachable(
            message=f"The command of server {name!r} refers to a secret, which the process list would show.",
            suggestion="Pass it in `env` (`--env NAME=VALUE`).",
        )
    values: dict[str, str] = {}

    def variable(found: re.Match[str]) -> str:
        key = f"{ARGUMENT_VARIABLE}{len(values)}"
        values[key] = _value(found[1].strip(), secrets, f"The command of server {name!r}")
        return f"{{{{{key}}}}}"

    filled = [SECRET_REFERENCE.sub(variable, word) for word in words]
    code = f"data:text/javascript;base64,{b64encode(ARGUMENT_FILLER.encode()).decode()}"
    return command._replace(argv=(filled[0], "--import", code, *filled[1:])), values


def _value(name: str, secrets: ReadSecret, what: str) -> str:
    try:
        value = secrets(name)
    except StoreError as error:
        words = f"{what} needs the secret {name!r}, which cannot be looked up: {error.message}"
        raise SecretMissing(message=words, suggestion=error.suggestion, details={"missing": name}) from None
    if not value:
        raise SecretMissing(
            message=f"{what} needs the secret {name!r}, which is not set for servers.",
            suggestion=f"Run `toolgate secrets set {name} --servers`.",
            details={"missing": name},
        )
    return value

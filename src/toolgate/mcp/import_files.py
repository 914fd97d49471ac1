"""Reads the files in which desktop clients (`mcpServers`) and editors (`servers`) keep their MCP servers.

What such a file would download each time (`npx -y PACKAGE`, `uvx PACKAGE`) becomes a package that is installed once. Values
that are credentials become secrets: the settings then only name them. The file is untrusted, so it can't refer to a secret
of ours itself; what it leaves open (`${TOKEN}`) becomes the name of one that belongs to the server.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from pydantic import ValidationError

from toolgate.errors import SettingsError
from toolgate.model import TOOL_NAME
from toolgate.registry.catalog import ToolProblem
from toolgate.settings import ServerSettings

SERVER_SECTIONS = ("mcpServers", "servers", "mcp_servers", "context_servers")
SECRET_NAMES = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|PAT|CREDENTIALS?|AUTH|AUTHORIZATION|BEARER|DSN)(?:_|$)|"
    r"CONNECTION_STRING|DATABASE_URL|APIKEY"
)
"""Names of variables whose values are credentials."""
SECRET_VALUES = re.compile(
    r"(?:sk|pk|rk|ghp|gho|ghs|glpat|xox[abprs]|BSA|AKIA|hf|npm|tg)[-_A-Za-z0-9]{12,}\Z|github_pat_\w{20,}|eyJ[\w-]{10,}\.|"
    r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[A-Za-z0-9_+=-]{32,}\Z"
)
"""Values that are credentials whatever they are called."""
PASSWORD_IN_URL = re.compile(r"[a-z][a-z0-9+]*://[^/\s:@]+:[^/\s@]+@", re.IGNORECASE)
VARIABLE_REFERENCE = re.compile(r"\$\{(?:env:|input:)?([A-Za-z_][\w-]*)\}")
"""A reference to a variable, or to an input that the editor asks for."""
AUTH_SCHEME = re.compile(r"(Bearer|Basic|token)\s+(\S+)\Z", re.IGNORECASE)


class ImportedServer(NamedTuple):
    name: str
    settings: ServerSettings
    secrets: dict[str, str]
    """Values that were found in it, by the names of their secrets."""
    missing: tuple[str, ...] = ()
    """Secrets that it refers to, without a value in the file."""


def read_servers(document: Any) -> tuple[list[ImportedServer], list[ToolProblem]]:
    """The servers of a file, and the invalid ones. Raises SettingsError if it has none at all."""
    group = _group(document)
    taken: dict[str, ImportedServer] = {}
    problems: list[ToolProblem] = []
    for given_name, given in group.items():
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", str(given_name)).strip("-_")[:64]
        try:
            if not TOOL_NAME.match(name):
                raise SettingsError("its name has no letters")
            if name in taken:
                raise SettingsError(f"another server of this file has the name {name} too")
            taken[name] = _server(name, given)
        except (SettingsError, ValidationError) as error:
            words = error.message if isinstance(error, SettingsError) else first_fault(error)
            problems.append(ToolProblem(f"server {str(given_name)[:64]}", words))
    return list(taken.values()), problems


def _group(document: Any) -> Mapping[str, Any]:
    """The servers of a document; they may be in its `mcp` section."""
    if isinstance(document, Mapping):
        section = document.get("mcp")
        for holder in (document, section if isinstance(section, Mapping) else {}):
            found = next((holder[name] for name in SERVER_SECTIONS if isinstance(holder.get(name), Mapping)), None)
            if found is not None:
                return dict(found)
        if document and all(isinstance(one, Mapping) and ({"command", "url"} & one.keys()) for one in document.values()):
            return document
    raise SettingsError(
        "The file contains no MCP servers.",
        suggestion='It should have {"mcpServers": {"NAME": {"command": "…", "args": […]}}}, as desktop clients write it.',
    )


def _server(name: str, given: Any) -> ImportedServer:
    if not isinstance(given, Mapping):
        raise SettingsError("it is not a JSON object")
    if _refers(given):
        raise SettingsError("it contains {{…}}, which would refer to a secret of this installation")
    secrets: dict[str, str] = {}
    missing: list[str] = []
    values: dict[str, Any] = {}
    url = given.get("url") or given.get("serverUrl") or given.get("httpUrl")
    if isinstance(url, str):
        values["url"] = url
        values["headers"] = with_secret_references(
            name, _texts("headers", given.get("headers")), secrets, missing, header=True
        )
        if given.get("type") == "sse" or given.get("transport") == "sse":
            values["transport"] = "sse"
    else:
        command = given.get("command")
        program = command.get("path") if isinstance(command, Mapping) else command
        arguments = command.get("args") if isinstance(command, Mapping) else given.get("args")
        if not isinstance(program, str) or not program:
            raise SettingsError("it has neither a command nor a url")
        if not isinstance(arguments or [], list) or not all(isinstance(word, str | int | float) for word in arguments or ()):
            raise SettingsError("its args are not a list of strings")
        words = [program, *(str(word) for word in arguments or ())]
        values |= packaged(without_secrets(name, words, secrets))
        values["env"] = with_secret_references(name, _texts("env", given.get("env")), secrets, missing)
        if isinstance(given.get("cwd"), str):
            values["cwd"] = given["cwd"]
    if given.get("disabled") is True or given.get("enabled") is False:
        values["enabled"] = False
    return ImportedServer(name, ServerSettings.model_validate(values), secrets, tuple(dict.fromkeys(missing)))


def packaged(command: Sequence[str]) -> dict[str, Any]:
    """The settings of a command: as a package, if all that it does is to download one and start it."""
    program, words = PurePath(command[0]).name.removesuffix(".cmd").removesuffix(".exe"), list(command[1:])
    if program in ("npx", "bunx", "pnpx"):
        return _package("npm", words, ("-y", "--yes", "-q", "--quiet"), ("-p", "--package"), command)
    if program == "uvx":
        return _package("pypi", words, ("-q", "--quiet"), ("--from",), command)
    if (program, *words[:2]) == ("uv", "tool", "run"):
        return _package("pypi", words[2:], ("-q", "--quiet"), ("--from",), command)
    if (program, *words[:1]) == ("pipx", "run"):
        return _package("pypi", words[1:], (), ("--spec",), command)
    return {"command": list(command)}


def _package(
    kind: str, words: list[str], idle: Sequence[str], naming: Sequence[str], whole: Sequence[str]
) -> dict[str, Any]:
    package = None
    while words and words[0].startswith("-"):
        word = words.pop(0)
        option, equals, value = word.partition("=")
        if option in naming:
            package = value if equals else words.pop(0) if words else None
        elif word not in idle:
            return {"command": list(whole)}  # an option that we don't know may change what runs
    if not words:
        return {"command": list(whole)}
    started = words.pop(0)
    if package is not None and package.split("@")[0].split("==")[0] != started:
        return {"command": list(whole)}
    package = package or started
    if kind == "pypi" and "@" in package and "/" not in package:
        named, _, version = package.partition("@")
        package = named if version == "latest" else f"{named}=={version}"
    return {kind: package.removesuffix("@latest"), "command": words}


# -- secrets


def secret_name(server: str, variable: str) -> str:
    """The name of a server's secret: with the server's, because others may have a variable of that name too."""
    owner, plain = (re.sub(r"[^A-Za-z0-9]+", "_", text).upper().strip("_") for text in (server, variable))
    return (plain if plain.startswith(f"{owner}_") else f"{owner}_{plain}")[:128]


def is_secret(name: str, value: str) -> bool:
    """True for credentials, by their name or by what they look like."""
    if not value or "{{" in value:
        return False
    return bool(
        SECRET_NAMES.search(re.sub(r"\W", "_", name).upper()) or SECRET_VALUES.match(value) or PASSWORD_IN_URL.search(value)
    )


def with_secret_references(
    server: str,
    values: Mapping[str, str],
    secrets: dict[str, str],
    missing: list[str] | None = None,
    *,
    header: bool = False,
) -> dict[str, str]:
    """Replaces credentials by references and puts them into `secrets`; references without a value go into `missing`."""
    named = {}
    for name, value in values.items():
        scheme = AUTH_SCHEME.match(value) if header else None
        plain = scheme[2] if scheme is not None else value
        if VARIABLE_REFERENCE.search(plain):
            names = [secret_name(server, found) for found in VARIABLE_REFERENCE.findall(plain)]
            if missing is not None:
                missing += names
            named[name] = VARIABLE_REFERENCE.sub(lambda found: _named(secret_name(server, found[1])), value)
        elif scheme is not None or is_secret(name, plain):
            secret = secret_name(server, name)
            secrets[secret] = plain
            named[name] = value.replace(plain, _named(secret))
        else:
            named[name] = value
    return named


def without_secrets(server: str, words: Sequence[str], secrets: dict[str, str]) -> list[str]:
    def name(option: str, value: str) -> str:
        secret = secret_name(server, option or ("URL" if "://" in value else "KEY"))
        secrets[secret] = value
        return _named(secret)

    return _replaced(words, name)


def without_values(words: Sequence[str], mask: str) -> list[str]:
    return _replaced(words, lambda _option, _value: mask)


def _replaced(words: Sequence[str], by: Callable[[str, str], str]) -> list[str]:
    """Words with their credentials replaced; `by` is given the option and the value."""
    new = []
    for number, word in enumerate(words):
        option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        before = words[number - 1] if number and words[number - 1].startswith("--") else ""
        named = (option or before).lstrip("-")
        if is_secret(named, value) and not value.startswith(("/", "-")):
            word = f"{option}{equals}{by(named, value)}"
        new.append(word)
    return new


def _named(secret: str) -> str:
    return f"{{{{secret:{secret}}}}}"


def _refers(value: Any) -> bool:
    """True if a value would be taken for a reference to a secret."""
    if isinstance(value, Mapping):
        return any(_refers(part) for part in value.values())
    return any(map(_refers, value)) if isinstance(value, list) else isinstance(value, str) and "{{" in value


def _texts(what: str, given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(value, str | int | float) for value in given.values()):
        raise SettingsError(f"its {what} is not an object of strings")
    return {str(name): str(value) for name, value in given.items()}


def first_fault(error: ValidationError) -> str:
    """The first fault in settings, and its place, without the value, which may be secret."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}"

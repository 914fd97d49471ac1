"""The settings of a server: completed by its preset, validated, and described for people."""

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from toolgate.errors import SettingsError, did_you_mean
from toolgate.mcp.catalog_entries import Upstream
from toolgate.mcp.client.secret_refs import SECRET_REFERENCE, node_runs
from toolgate.mcp.import_files import first_fault, without_values
from toolgate.model import MASK
from toolgate.settings import ServerSettings, Settings

if TYPE_CHECKING:
    from toolgate.mcp.presets import Preset

NUL = re.compile("\x00")
CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
KEY_IN_PATH = re.compile(r"(?=.*\d)(?=.*[A-Za-z]).{10,}\Z|.{32,}\Z")
"""Parts of a path that may be keys."""


def validated(name: str, settings: Mapping[str, Any]) -> ServerSettings:
    try:
        return ServerSettings.model_validate(dict(settings))
    except ValidationError as error:
        raise SettingsError(f"The settings of server {name} are invalid: {first_fault(error)}.") from None


def _check_texts(name: str, settings: ServerSettings) -> None:
    """Refuses texts that no program or request can be given. Raises SettingsError."""
    texts: list[tuple[str, str, re.Pattern[str]]] = [
        ("command", " ".join(settings.command), NUL),
        ("cwd", str(settings.cwd or ""), NUL),
        ("url", settings.url or "", CONTROL_CHARACTERS),
        *(("env", text, NUL) for text in (*settings.env, *settings.env.values())),
        *(("headers", text, CONTROL_CHARACTERS) for text in (*settings.headers, *settings.headers.values())),
    ]
    wrong = next((what for what, text, pattern in texts if pattern.search(text)), None)
    if wrong is None and any(not variable or "=" in variable for variable in settings.env):
        wrong = "env"
    if wrong is None and not all(HEADER_NAME.match(header) for header in settings.headers):
        wrong = "headers"
    if wrong is not None:
        raise SettingsError(f"Server {name}: its `{wrong}` contains invalid characters (control characters?).")


def secrets_in(settings: ServerSettings) -> dict[str, None]:
    login = (settings.oauth.client_secret or "",) if settings.oauth is not None else ()
    texts = (*settings.env.values(), *settings.headers.values(), *settings.command, settings.url or "", *login)
    return dict.fromkeys(found.strip() for text in texts for found in SECRET_REFERENCE.findall(text))


def described(settings: ServerSettings, version: str | None = None) -> str:
    """A server's program or url, without anything that may be secret. `version`: the installed one."""
    if settings.url is not None:
        return _address(settings.url)
    if settings.npm is not None or settings.pypi is not None:
        kind, between = ("pypi", "==") if settings.npm is None else ("npm", "@")
        found = "" if version is None or not lacks_version(settings) else f"{between}{version}"
        return f"{kind} {settings.npm or settings.pypi}{found}"
    return " ".join(without_values(settings.command, MASK))


def lacks_version(settings: ServerSettings) -> bool:
    if settings.npm is not None:
        return "@" not in settings.npm[1:]
    return settings.pypi is not None and "==" not in settings.pypi


def _address(url: str) -> str:
    """A URL without credentials and query; what in its path may be a key is masked."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(an address that cannot be read)"
    path = "/".join(MASK if _may_be_key(part) else part for part in parts.path.split("/"))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"


def _may_be_key(part: str) -> bool:
    return KEY_IN_PATH.match(part) is not None and SECRET_REFERENCE.fullmatch(part) is None


def _check_references(name: str, settings: ServerSettings) -> None:
    """Refuses references to secrets where their values would be seen, or decide what is reached. Raises SettingsError."""
    if any(SECRET_REFERENCE.search(word) for word in settings.command) and not node_runs(settings):
        raise SettingsError(
            f"The command of server {name} refers to a secret, which the process list would show to every user.",
            suggestion="Pass it in `env`: `--env NAME=VALUE`, or `env: {NAME: '{{secret:NAME}}'}`.",
        )
    if settings.url is None or SECRET_REFERENCE.search(settings.url) is None:
        return
    host = settings.url.partition("://")[2]
    host = re.split(r"[/?#]", host, maxsplit=1)[0]
    if "{{" in host or "{{" in settings.url.partition("#")[2]:
        raise SettingsError(f"The url of server {name} can refer to a secret in its path and its query only.")
    if settings.oauth is not None:
        raise SettingsError(
            f"Server {name} has oauth and a secret in its url, which the authorization server would be told.",
            suggestion="Use only one of them.",
        )


def preset_of(settings: ServerSettings) -> "Preset | None":
    """The preset that settings name. Raises SettingsError for an unknown one."""
    if settings.preset is None:
        return None
    from toolgate.mcp.presets import PRESETS  # which takes a while to make, and most need none

    if settings.preset in PRESETS:
        return PRESETS[settings.preset]
    raise SettingsError(
        f"There is no preset named {settings.preset!r}: see toolgate servers presets.",
        suggestion=did_you_mean(settings.preset, PRESETS),
    )


def resolved(settings: ServerSettings) -> ServerSettings:
    """Settings with their preset below them."""
    preset = preset_of(settings)
    if preset is None:
        return settings
    said = settings.model_dump(exclude_unset=True)
    values = _merged(preset.settings, said)
    if "url" in said:
        values = {key: value for key, value in values.items() if key not in ("npm", "pypi", "command")} | said
    if preset.folders == "arguments" and not settings.command:
        values["command"] = [str(folder) for folder in dict.fromkeys((*settings.write, *settings.read))]
    return ServerSettings.model_validate(values)


def names_program(settings: ServerSettings) -> bool:
    """True for settings that make a server; others only complete one that was added."""
    return bool(settings.preset or settings.command or settings.npm or settings.pypi or settings.url)


def named_servers(settings: Settings) -> frozenset[str]:
    """The servers that the operator's settings name, also as the target of a secret. A server that an actor adds under such
    a name is not used."""
    uses = (use.server for allowed in settings.secrets.use.values() for use in allowed)
    return frozenset((*settings.servers, *filter(None, uses)))


def completed(added: ServerSettings, said: ServerSettings | None) -> ServerSettings:
    """An added server, with the operator's settings of its name on top."""
    if said is None:
        return added
    return ServerSettings.model_validate(_merged(added.model_dump(exclude_unset=True), said.model_dump(exclude_unset=True)))


def upstream_of(name: str, settings: ServerSettings, jail: str | None = None) -> Upstream:
    """Checks and completes the settings of a server. Raises SettingsError."""
    preset, whole = preset_of(settings), resolved(settings)
    said = [what for what in ("npm", "pypi", "url") if getattr(whole, what) is not None]
    if len(said) > 1 or (whole.url is not None and whole.command):
        both = " and ".join(said if len(said) > 1 else ("url", "command"))
        raise SettingsError(f"Server {name} has {both}: set only one of them.")
    if not said and not whole.command:
        raise SettingsError(
            f"Server {name} has neither a program nor a url.",
            suggestion=f"Set one of command, npm, pypi, url and preset, or add it: `toolgate servers add {name} …`.",
        )
    if preset is not None and whole.url is None and _lacks_folders(preset, whole):
        raise SettingsError(
            f"Server {name} needs a folder to work on.",
            suggestion="Name one that it may change, `--write ./notes`, or only read, `--read ./notes` (settings: `write`, "
            "`read`).",
        )
    _check_texts(name, whole)
    _check_references(name, whole)
    if whole.url is not None and not whole.url.startswith(("http://", "https://")):
        raise SettingsError(f"The url of server {name} must begin with https:// or http://.")
    if (whole.transport or "") in (("stdio",) if whole.url is not None else ("http", "sse")):
        kind = "an address" if whole.url is not None else "a program"
        raise SettingsError(f"Server {name} is {kind}, which does not use the transport {whole.transport}.")
    return Upstream(name, whole, jail, {} if preset is None else preset.extras)


def _lacks_folders(preset: "Preset", whole: ServerSettings) -> bool:
    """True for a server that works on folders and has none. Without a jail it sees whatever the calls name."""
    if preset.folders == "arguments":
        return not whole.command
    return preset.folders == "calls" and whole.isolation != "none" and not (whole.read or whole.write or whole.cwd)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        held = merged.get(key)
        merged[key] = _merged(held, value) if isinstance(held, Mapping) and isinstance(value, Mapping) else value
    return merged


def check_brought(settings: ServerSettings, known: Collection[str]) -> None:
    """Refuses settings that refer to a secret which whoever gives them did not bring along: others put it there, and its
    value would be sent to an address or a program of this actor's choice."""
    foreign = next((name for name in secrets_in(settings) if name not in known), None)
    if foreign is not None:
        raise SettingsError(
            f"The settings refer to the secret {foreign}, whose value was not given with them.",
            suggestion="Give its value, or have the operator add the server (`toolgate servers add`).",
        )

"""Reads settings: the file, if a person named or trusted it, then TOOLGATE_* in the environment, then arguments.

The file is strict YAML, with names in snake_case or camelCase, and paths taken from the folder that it is in.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from toolgate.discovery import DATA_FOLDER, SETTINGS_FILE, discover
from toolgate.errors import SettingsError
from toolgate.settings.layers import ARGUMENTS, Layer, line_of, validated
from toolgate.settings.root import Settings, names_in
from toolgate.settings.section import Name, anchored, snake, without_empty_groups
from toolgate.trust import TRUST_ADVICE, TrustRecords, Untrusted, digest, is_named, read_regular, working_directory
from toolgate.trust import TRUST_VARIABLE as TRUST
from toolgate.yamltext import EmptyYaml, YamlDocument, YamlError, read_yaml

VARIABLE_PREFIX = "TOOLGATE_"
NOT_SETTINGS = {"TOOLGATE_SETTINGS", "TOOLGATE_DEBUG", "TOOLGATE_SECRETS_KEY", TRUST}
"""Variables with our prefix that are read elsewhere."""
SECRET_PREFIXES = ("TOOLGATE_SECRET_", "TOOLGATE_SERVER_SECRET_")
BY_NAME = {
    "tools", "tier_overrides", "tierOverrides", "servers", "env", "headers", "use", "tenants", "workflows", "keys", "take",
}  # fmt: skip
"""Groups whose names somebody else gave: of tools, servers, variables, headers, secrets, tenants, workflows, keys, types of
jobs."""
VERBATIM = {"input_schema", "output_schema"}
"""Settings that are JSON Schemas, in which names are what they are."""
AMONG_TOOLS = {"show_token_costs", "auto_load_custom_tools", "max_execution_time"}
"""Settings that are also read among the tools, where other programs keep them."""


def load_settings(
    path: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    untrusted: bool = False,
) -> Settings:
    """Reads the settings: file (given, or toolgate.yaml of the project folder), environment, overrides. A file that is found
    is read only if a person trusted it; `untrusted`: also if not, to show what it would do. Raises SettingsError."""
    environment = os.environ if environment is None else environment
    given = path or environment.get("TOOLGATE_SETTINGS")
    project = discover().folder
    file = Path(given) if given else project / SETTINGS_FILE
    content = _read(file, named=True) if given else _found_content(file, untrusted=untrusted)
    if given and content is None:
        raise SettingsError(f"The settings file {file} does not exist.")
    from_file = Layer(str(file), {}) if content is None else _read_file(file, content)
    from_variables = Layer("the environment", anchored(_read_environment(environment), Settings, None))
    from_code = Layer(ARGUMENTS, dict(overrides or {}))
    layers = [from_file, from_variables, from_code]
    if project != working_directory() and not any("home" in layer.values for layer in layers):
        layers.append(Layer(str(project), {"home": project / DATA_FOLDER}))
    settings = validated(Settings, layers)
    settings._read_from = file if file.is_file() else None
    settings._read_digest = None if given or content is None else digest(content)
    settings._project = project
    named = (from_file, from_variables, from_code) if given else (from_variables, from_code)
    settings._named = frozenset().union(*(names_in(layer.values) for layer in named))
    return settings


def _found_content(file: Path, *, untrusted: bool) -> bytes | None:
    """The settings file of the project folder, if there is one and a person trusted it as it is. What nobody trusted is not
    even parsed. Raises Untrusted."""
    folder, content = file.parent, _read(file, named=False)
    if content is None and file.is_symlink():  # it would make its folder a project, away from the settings above
        raise SettingsError(f"The settings file {file} cannot be read: it is a link to nothing.")
    if untrusted or is_named(folder, os.environ):
        return content
    agreed = TrustRecords(os.environ).of(folder)
    known = agreed.files.get(SETTINGS_FILE) if agreed is not None else None
    if known != (None if content is None else digest(content)):
        happened = "is not trusted" if known is None else "is gone" if content is None else "changed since it was trusted"
        raise Untrusted(
            f"The settings file {SETTINGS_FILE} in {folder} {happened}, so Toolgate does nothing here.",
            suggestion=TRUST_ADVICE,
        )
    return content


def _read(file: Path, *, named: bool) -> bytes | None:
    """A settings file; None if it is not there. One that nobody named has to be a regular file."""
    try:
        return file.read_bytes() if named else read_regular(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"The settings file {file} cannot be read: {error.strerror or error}.") from error


def variables_of_settings(environment: Mapping[str, str]) -> dict[str, list[str]]:
    """The variables with our prefix that would be settings, and the names of the settings that each leads to."""
    names = (name for name in sorted(environment) if name.startswith(VARIABLE_PREFIX) and name not in NOT_SETTINGS)
    ours = (name for name in names if not name.startswith(SECRET_PREFIXES))
    return {name: name.removeprefix(VARIABLE_PREFIX).lower().split("__") for name in ours}


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, path in variables_of_settings(environment).items():
        if path[0] not in Settings.model_fields:
            continue  # TOOLGATE_ is also the prefix of what later parts and other programs read
        inner = read
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise SettingsError(f"{name} is set, and so is a variable for all of {part!r}: one of them has to go.")
        inner[path[-1]] = _parse(environment[name])
    return read


def _parse(text: str) -> Any:
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(text) if text.startswith(("[", "{")) else text
    return text


def _read_file(file: Path, content: bytes) -> Layer:
    """The values in a settings file; an empty one has none. Raises SettingsError with line and column."""
    try:
        document = read_yaml(content)
    except EmptyYaml:
        return Layer(str(file), {})
    except YamlError as error:
        where = f" at line {error.position.line}, column {error.position.column}" if error.position else ""
        raise SettingsError(f"The settings file {file} is refused{where}: {error.message}.") from None
    if document.value is None:
        return Layer(str(file), {})
    if not isinstance(document.value, dict):
        raise SettingsError(
            f"The settings file {file} must hold names and values, not a {type(document.value).__name__}.",
            suggestion="See docs/reference/settings.md.",
        )
    values = _SettingNames(file, document).read()
    base = Path(os.path.abspath(file)).parent  # noqa: PTH100 - the folder in which it is named, also if it is a link
    return Layer(str(file), anchored(without_empty_groups(values, Settings), Settings, base), document)


class _SettingNames:
    """Brings the names of a file into the one form that Settings knows. One setting under two spellings is refused: to
    take the last of them would drop the other without a word."""

    def __init__(self, file: Path, document: YamlDocument) -> None:
        self._file, self._document = file, document

    def read(self) -> dict[str, Any]:
        whole = dict(self._document.value)
        if "maxExecutionTime" in whole:
            whole["maxExecutionTime"] = _milliseconds(whole["maxExecutionTime"])
        values: dict[str, Any] = self._snake(whole)
        tools = values.get("tools")
        if isinstance(tools, dict):
            for name in [one for one in tools if snake(one) in AMONG_TOOLS]:
                moved, part = snake(name), tools.pop(name)
                if moved in values:
                    raise self._twice(moved, line_of(self._document, (moved,)), ("tools", name))
                values[moved] = _milliseconds(part) if moved == "max_execution_time" else part
        return values

    def _snake(self, value: Any, path: tuple[Name, ...] = (), *, by_name: bool = False) -> Any:
        """Names in snake_case, except where they are names of tools and the like."""
        if not isinstance(value, dict):
            return value
        names: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        for key, part in value.items():
            name = key if by_name else snake(key)
            if name in names:
                raise self._twice(name, self._line((*path, spelled[name])), (*path, key))
            names[name] = part
            if by_name or name not in VERBATIM:
                names[name] = self._snake(part, (*path, key), by_name=not by_name and key in BY_NAME)
            spelled[name] = key
        return names

    def _line(self, path: tuple[Name, ...]) -> int:
        return self._document.positions[path].line

    def _twice(self, name: str, line: int | None, again: tuple[Name, ...]) -> SettingsError:
        return SettingsError(
            f"The settings file {self._file} has {name!r} twice, in lines {line} and {self._line(again)}.",
            suggestion="Keep one of them.",
        )


def _milliseconds(value: Any) -> Any:
    return value / 1000 if type(value) in (int, float) else value

"""The settings file: strict YAML, names in snake_case or camelCase, and paths taken from the folder that it is in."""

import os
from pathlib import Path
from typing import Any

from toolgate.errors import SettingsError
from toolgate.settings.layers import Layer, line_of
from toolgate.settings.root import Settings
from toolgate.settings.section import Name, anchored, snake, without_empty_groups
from toolgate.yamltext import EmptyYaml, YamlDocument, YamlError, read_yaml

BY_NAME = {"tools", "tier_overrides", "tierOverrides", "servers", "env", "headers", "use"}
"""Groups whose names somebody else gave: of tools, servers, variables, headers, secrets."""
AMONG_TOOLS = {"show_token_costs", "auto_load_custom_tools", "max_execution_time"}
"""Settings that are also read among the tools, where other programs keep them."""


def read_settings_file(file: Path, content: bytes) -> Layer:
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
    return Layer(str(file), anchored(without_empty_groups(values, Settings), Settings, base_of(file)), document)


def base_of(file: Path) -> Path:
    """The folder that relative paths in a file lead from: the one in which it is named, also if it is a link."""
    return Path(os.path.abspath(file)).parent  # noqa: PTH100 - a link counts as what it is


class _SettingNames:
    """Brings the names of a file into the one form that Settings knows. One setting under two spellings is refused: to
    take the last of them would drop the other without a word."""

    def __init__(self, file: Path, document: YamlDocument) -> None:
        self._file, self._document = file, document

    def read(self) -> dict[str, Any]:
        whole = self._document.value
        values: dict[str, Any] = self._snake({name: _in_seconds(name, part) for name, part in whole.items()})
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


def _in_seconds(name: str, value: Any) -> Any:
    return _milliseconds(value) if name == "maxExecutionTime" else value


def _milliseconds(value: Any) -> Any:
    return value / 1000 if type(value) in (int, float) else value

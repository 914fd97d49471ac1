"""One Settings for all of Toolgate: defaults, then `toolgate.yaml`, then TOOLGATE_* in the environment, then arguments.

Read here and nowhere else. Names are snake_case; the camelCase spelling of document E is read as well. A key that does not
exist is refused with the nearest one that does.
"""

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from toolgate.errors import SettingsError
from toolgate.model import Tier

FILE = "toolgate.yaml"
PREFIX = "TOOLGATE_"
NOT_SETTINGS = {"TOOLGATE_SETTINGS", "TOOLGATE_DEBUG"}
"""Variables with our prefix that are read elsewhere."""
BY_TOOL = {"tools", "tier_overrides", "tierOverrides"}
SECRET_PREFIX = "TOOLGATE_SECRET_"


class Section(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolSettings(Section):
    """What the settings file says of one tool; what the store says (CLI, API, console) wins over it."""

    enabled: bool | None = None


class Enforcement(Section):
    """What an organisation decides for everyone who uses this installation."""

    disable_local_tools: bool = False
    """Refuse tools that people keep in their own folders (`python_tools` and, later, YAML tools)."""
    enforced_tools: tuple[str, ...] = ()
    """Tools that nobody can disable."""


class Limits(Section):
    """How big a call may be."""

    input_bytes: int = Field(default=4_194_304, ge=1024)
    """Arguments larger than this, as JSON, are refused."""
    output_string: int = Field(default=10_000, ge=1)
    """Characters of one string of the output."""
    output_items: int = Field(default=100, ge=1)
    """Items of one list of the output."""
    output_bytes: int = Field(default=1_000_000, ge=1024)
    """The whole output, as JSON. What is cut is kept as an artifact."""
    artifact_bytes: int = Field(default=64_000_000, ge=1024)
    """An output larger than this is not kept, only cut."""
    artifact_days: float = Field(default=7, gt=0)
    """How long an artifact can be fetched."""
    tenant_concurrency: int | None = Field(default=None, ge=1)
    """Calls of one tenant that may run at once; None is without limit."""
    threads: int = Field(default=32, ge=1)
    """Synchronous tools that may run at once."""


class Breaker(Section):
    """When a failing target is left alone."""

    failures: int = Field(default=5, ge=1)
    """Consecutive failures that open the circuit."""
    reset_seconds: float = Field(default=30, gt=0)
    """After this long one call may try again."""


class Settings(Section):
    """Everything that can be set."""

    home: Path = Path(".toolgate")
    """Where data is kept: database, audit head, custom tools."""
    database_url: str | None = None
    """None: SQLite in `home`. `sqlite:///path/file.db`, `memory://`, or `postgresql://user:password@host/database`."""
    tools: dict[str, ToolSettings] = Field(default_factory=dict)
    """Per tool: `enabled`."""
    python_tools: tuple[Path, ...] | None = None
    """Folders of Python files with tools; None: `tools` in `home`."""
    auto_load_custom_tools: bool = True
    """Whether to look into those folders."""
    entry_points: bool = True
    """Whether to load tools that installed packages offer under the entry point group `toolgate.tools`."""
    max_execution_time: float = Field(default=60, gt=0, le=86_400)
    """Seconds that a tool without a timeout of its own may take. E's maxExecutionTime is in milliseconds."""
    shutdown_seconds: float = Field(default=10, ge=0, le=3_600)
    """How long calls that are running when the App closes may take to end."""
    show_token_costs: bool = True
    """Whether lists of tools show what each costs a model to read."""
    token_price: float = Field(default=1.0, ge=0)
    """Dollars for a million tokens of system prompt, for the estimate that `toolgate tools tokens` shows."""
    tier_overrides: dict[str, Tier] = Field(default_factory=dict)
    """Raise the tier of a tool: `{echo: write}`. A tier can't be lowered."""
    sensitive_keys: tuple[str, ...] = ()
    """More key names whose values are masked in records and outputs."""
    scan_secrets: bool = True
    """Whether values are searched for secrets as well (with kingfisher if it is installed)."""
    audit_head_file: Path | None = None
    """Where the head of the audit log is noted outside the database; None: `audit.head` in `home`."""
    metrics: bool = False
    """Count calls for Prometheus."""
    tracing: bool = False
    """Make OpenTelemetry spans."""
    enforcement: Enforcement = Enforcement()
    limits: Limits = Limits()
    breaker: Breaker = Breaker()

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("sqlite:///", "memory://", "postgresql://", "postgres://")):
            raise ValueError("must begin with sqlite:///, memory:// or postgresql://")
        return url

    def with_overrides(self, overrides: Mapping[str, Any]) -> "Settings":
        """These settings, with some of them changed; of a group, only what is named."""
        values = self.model_dump(exclude_unset=True)
        _merge(values, overrides)
        return load_settings(os.devnull, values, {})

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'toolgate.db'}"

    @property
    def in_memory(self) -> bool:
        return self.database.startswith("memory://")

    @property
    def python_folders(self) -> tuple[Path, ...]:
        return self.python_tools if self.python_tools is not None else (self.home / "tools",)


SECTIONS: dict[str, type[Section]] = {
    "tools": ToolSettings, "enforcement": Enforcement, "limits": Limits, "breaker": Breaker,
}  # fmt: skip


def load_settings(
    path: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read the settings: file (given, or ./toolgate.yaml if it is there), environment, overrides."""
    environment = os.environ if environment is None else environment
    given = path or environment.get("TOOLGATE_SETTINGS")
    file = Path(given) if given else Path(FILE)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, layer in (
        (str(file), _read_file(file, required=given is not None)),
        ("the environment", _read_environment(environment)),
        ("the arguments", dict(overrides or {})),
    ):
        _merge(values, layer)
        origins.update(dict.fromkeys(layer, origin))
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise _explain(error, origins) from None  # its own words quote the value, which may be a password


def _read_file(file: Path, *, required: bool) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        if required:
            raise SettingsError(f"The settings file {file} does not exist.") from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"The settings file {file} can't be read: {error}.") from error
    import yaml  # 40 ms, and most installations have no file

    try:
        read = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: {getattr(error, 'problem', '')}" if mark else type(error).__name__
        raise SettingsError(f"The settings file {file} is not valid YAML: {where}") from None
    if read is None:
        return {}
    if not isinstance(read, dict):
        raise SettingsError(f"The settings file {file} must hold names and values, not a {type(read).__name__}.")
    if "maxExecutionTime" in read:
        read["max_execution_time"] = _seconds(read.pop("maxExecutionTime"))
    return _document_e(_snake(read))


def _snake(value: Any, *, of_tools: bool = False) -> Any:
    """Names in snake_case, except where they are names of tools."""
    if not isinstance(value, dict):
        return value
    names = {str(key): _snake(part, of_tools=key in BY_TOOL) for key, part in value.items()}
    if of_tools:
        return names
    return {re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).lower(): part for key, part in names.items()}


def _document_e(values: dict[str, Any]) -> dict[str, Any]:
    """Document E keeps some settings among the tools, and counts time in milliseconds."""
    tools = values.get("tools")
    if not isinstance(tools, dict):
        return values
    renamed = {"showTokenCosts": "show_token_costs", "autoLoadCustomTools": "auto_load_custom_tools"}
    for theirs, ours in (*renamed.items(), *((name, name) for name in renamed.values())):
        if theirs in tools:
            values.setdefault(ours, tools.pop(theirs))
    for theirs in ("maxExecutionTime", "max_execution_time"):
        if theirs in tools:
            values.setdefault("max_execution_time", _seconds(tools.pop(theirs)))
    return values


def _seconds(milliseconds: Any) -> Any:
    return milliseconds / 1000 if type(milliseconds) in (int, float) else milliseconds


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX) or name.startswith(SECRET_PREFIX) or name in NOT_SETTINGS:
            continue
        path = name.removeprefix(PREFIX).lower().split("__")
        if path[0] not in Settings.model_fields:
            continue  # TOOLGATE_ is also the prefix of what later parts and other programs read
        inner = read
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise SettingsError(f"{name} is set, and so is a variable for all of {part!r}: one of them has to go.")
        inner[path[-1]] = _parse(text)
    return read


def _parse(text: str) -> Any:
    if text[:1] in "[{" and text:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
    return text


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def _explain(error: ValidationError, origins: Mapping[str, str]) -> SettingsError:
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    origin = origins.get(str(first["loc"][0]), "the settings") if first["loc"] else "the settings"
    if first["type"] == "extra_forbidden":
        names = SECTIONS.get(str(first["loc"][0]), Settings).model_fields if len(first["loc"]) > 1 else Settings.model_fields
        near = difflib.get_close_matches(str(first["loc"][-1]), names, 1)
        return SettingsError(
            f"There is no setting {name!r} (read from {origin}).",
            suggestion=f"Did you mean {near[0]!r}?" if near else "See docs/reference/settings.md.",
        )
    return SettingsError(
        f"The setting {name!r} (read from {origin}) is wrong: {first['msg'].removeprefix('Value error, ')}."
    )

"""The presets: servers that Toolgate knows by name, with settings, prices and tiers, read from `presets.yaml`."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple

from toolgate.mcp.catalog_entries import PresetTool
from toolgate.model import UnitCost
from toolgate.yamltext import read_yaml


class RequiredSecret(NamedTuple):
    """A secret that only the person who adds a server has."""

    secret: str
    """The name that it is kept under."""
    what: str
    url: str | None = None
    """The page to get it from."""


class Preset(NamedTuple):
    name: str
    about: str
    settings: dict[str, Any]
    needs: tuple[RequiredSecret, ...] = ()
    folders: Literal["arguments", "calls"] | None = None
    """The folders of `read` and `write` are named in its command's arguments, or in calls; None: it works on none."""
    extras: Mapping[str, PresetTool] = {}
    advice: str | None = None
    reaches: str | None = None
    """The secret that holds the address of what it works on."""


def _preset(name: str, given: dict[str, Any]) -> Preset:
    tools = {tool: {"tier": tier} for tier, listed in given.pop("tiers", {}).items() for tool in listed}
    settings, needs, extras = given.pop("settings"), given.pop("needs", ()), given.pop("extras", {})
    if tools:
        settings["tools"] = {**settings.get("tools", {}), **tools}
    return Preset(
        name=name,
        settings=settings,
        needs=tuple(RequiredSecret(**need) for need in needs),
        extras={tool: _tool(**extra) for tool, extra in extras.items()},
        **given,
    )


def _tool(per_unit: dict[str, Any] | None = None, queries: list[str] | None = None, **rest: Any) -> PresetTool:
    price = None if per_unit is None else UnitCost(**{**per_unit, "price": Decimal(per_unit["price"])})
    return PresetTool(price, queries=tuple(queries or ()), **rest)


_FILE = read_yaml(Path(__file__).with_name("presets.yaml").read_bytes()).value
PRESETS: dict[str, Preset] = {name: _preset(name, given) for name, given in _FILE.items()}

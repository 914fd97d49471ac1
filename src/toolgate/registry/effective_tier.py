"""The tier that a definition has in effect: never less than it declares, and than tools of its kind risk."""

from collections.abc import Mapping

from toolgate.errors import DefinitionError, Fault
from toolgate.model import TIERS, Tier, Tool
from toolgate.model.http_endpoint import BODILESS_METHODS, endpoint_fault


def tier_of(tool: Tool, tiers: Mapping[str, str], kinds: Mapping[str, Tier]) -> Tier:
    """The tier in effect of a definition that does not contradict itself. `tiers`: overrides by name; `kinds`: what a call
    of a dynamic tool risks at least, by its kind."""

    def refuse(field: str, why: str) -> DefinitionError:
        return DefinitionError(tool.name, [Fault(field, why)])

    overrides = [tiers[name] for name in (tool.name, tool.alias_of or tool.name) if name in tiers]
    for override in overrides:
        if override not in TIERS:
            raise refuse("tier", f"the override {override!r} is not one of {', '.join(TIERS)}")
    contradiction = _contradiction_of_kind(tool)
    if contradiction is not None:
        raise refuse(*contradiction)
    if tool.pure and tool.requires_auth is not None:
        raise refuse("pure", "a pure tool is given no secret, so it cannot require one")
    if tool.route is not None and tool.source in ("dynamic", "teams"):
        whose = "a dynamic tool" if tool.source == "dynamic" else "a tool of an organisation"
        raise refuse("route", f"{whose} runs here: who sends one in does not choose where calls go")
    floor = kinds.get(tool.kind, TIERS[-1]) if tool.source == "dynamic" else None
    if tool.http is not None:
        floor = TIERS[-1]  # whatever its method: a service is asked for something that leaves this machine
    if tool.source == "dynamic" and tool.requires_auth is not None:
        raise refuse("requires_auth", "a dynamic tool cannot name a credential")
    tier = effective_tier(tool, max(overrides, key=TIERS.index, default=None), floor)
    if tool.cache is not None and tier in ("write", "execute"):
        raise refuse("cache", f"a tool of tier {tier} has effects, which a cache would skip")
    return tier


def _contradiction_of_kind(tool: Tool) -> tuple[str, str] | None:
    """The field that does not fit the kind of a tool, and why; None if all do."""
    if (tool.kind == "sandbox") != (tool.program is not None):
        return "program", "a tool of kind sandbox has a program, and no other has one"
    if (tool.kind == "http") != (tool.http is not None):
        return "http", "a tool of kind http has an endpoint, and no other has one"
    if tool.program is not None and tool.retry is not None:
        return "retry", "what code did before it failed would be done again"
    if tool.http is None:
        return None
    if tool.cache is not None and tool.http.method not in BODILESS_METHODS:
        return "cache", f"a {tool.http.method} request has effects, which a cache would skip"
    needed = tool.http.credentials[0].secret if tool.http.credentials else None
    if needed != (None if tool.requires_auth is None else tool.requires_auth.config_key):
        return "requires_auth", "it must name the first credential of the endpoint"
    return endpoint_fault(tool.http, tool.input_schema, is_repeated=tool.retry is not None)


def effective_tier(tool: Tool, override: str | None = None, floor: Tier | None = None) -> Tier:
    """The declared tier, raised by what annotations and capabilities admit, by an override and by what tools of its kind
    risk (`floor`); never lowered."""
    hints = tool.annotations
    raised: list[Tier] = [tool.tier]
    if hints.get("readOnlyHint") is False or hints.get("destructiveHint") is True or tool.destructive:
        raised.append("write")
    if hints.get("openWorldHint") is True:
        raised.append("external_api")
    if floor is not None:
        raised.append(floor)
    if override is not None:
        raised.extend(tier for tier in TIERS if tier == override)
    return max(raised, key=TIERS.index)

"""Makes catalog entries of an MCP server's tool definitions and settings.

A server's definitions are untrusted data. Descriptions are bounded and cleaned of invisible characters; annotations can
raise the tier of a tool and never lower it, unless its settings trust them. Reading a resource, getting a prompt and
completing an argument are tools as well (`method_tools`).
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
import orjson

from toolgate.errors import DefinitionError, Fault
from toolgate.mcp.client.model import Target
from toolgate.mcp.definitions import DefinitionKey
from toolgate.mcp.method_tools import METHOD_TAG, METHOD_TOOLS
from toolgate.mcp.pins import cleaned
from toolgate.mcp.runner import StructuredOutputValidator
from toolgate.model import TOOL_NAME, CacheRule, Category, Cost, Entry, RateLimit, Tier, UnitCost
from toolgate.registry.compile import DefinitionRules, compile_entry, definition
from toolgate.settings import ServerSettings, ServerToolSettings

ANNOTATION_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
MAX_DESCRIPTION_CHARS = 8_192
MAX_NAME_CHARS = 64
MAX_TITLE_CHARS = 256


class PresetTool(NamedTuple):
    """The facts on a tool in a preset that settings can't say."""

    per_unit: UnitCost | None = None
    category: Category | None = None
    queries: tuple[str, ...] = ()
    """Arguments that are SQL, of a database that is only to be read."""


NO_PRESET = PresetTool()
NOTHING_SAID = ServerToolSettings()


class Upstream(NamedTuple):
    """A server, as far as its tools depend on it. `settings` has its preset applied."""

    name: str
    settings: ServerSettings
    jail: str | None = None
    """Its jail when it was last listed."""
    extras: Mapping[str, PresetTool] = {}
    """By the server's own name of a tool."""

    @property
    def identity(self) -> str:
        """The program or URL, whatever its version and options."""
        settings = self.settings
        kind: tuple[object, ...] = ("command", settings.command)
        if settings.cwd is not None:  # `python server.py` is another program in another folder
            kind = (*kind, str(settings.cwd))
        if settings.url is not None:
            kind = ("url", settings.url)
        elif settings.npm is not None:
            kind = ("npm", settings.npm[:1] + settings.npm[1:].split("@")[0])
        elif settings.pypi is not None:
            kind = ("pypi", re.split(r"[\s\[<>=!~;@]", settings.pypi.strip(), maxsplit=1)[0].lower())
        return sha256(orjson.dumps(kind)).hexdigest()

    def fingerprint(self, of: str, key: DefinitionKey) -> str:
        """Of a tool and its server: an approval does not hold for another program, another url, or more reach."""
        said = self.settings
        runs = (said.npm, said.pypi, said.url, said.command, said.cwd)
        reaches = (said.network, said.domains, said.isolation, said.read, said.write)
        return sha256(repr((of, self.name, key, runs, reaches)).encode("utf-8", "surrogatepass")).hexdigest()

    def said_of(self, key: DefinitionKey) -> ServerToolSettings:
        method, name = key
        return self.settings.tools.get(name if method == "tools/call" else method) or NOTHING_SAID

    @property
    def tier(self) -> Tier:
        """The tier of tools of which nothing else is said: in a jail without network nothing outside can be reached."""
        if self.settings.tier is not None:
            return self.settings.tier
        return "write" if self._is_enclosed else "external_api"

    @property
    def tier_of_methods(self) -> Tier:
        """The tier of reading a resource, getting a prompt and completing an argument. That this has no effect is the
        server's claim: it counts if its annotations are trusted, or if it can pass on to nobody what it is asked."""
        if self.settings.tier is None and (self.settings.trust_annotations or self._is_enclosed):
            return "read_only"
        return self.tier

    @property
    def _is_enclosed(self) -> bool:
        settings = self.settings
        network = settings.network or ("domains" if settings.domains else "none")
        return self.jail is not None and settings.url is None and network == "none"

    @property
    def category(self) -> Category:
        if self.settings.url is not None:
            return "service"
        return "filesystem" if self.settings.read or self.settings.write else "custom"


def entry_of(upstream: Upstream, key: DefinitionKey, text: str, rules: DefinitionRules) -> Entry:
    """Builds the entry of an accepted definition. Raises DefinitionError."""
    method, name = key
    given = orjson.loads(text)
    extra = upstream.extras.get(name, NO_PRESET) if method == "tools/call" else NO_PRESET
    tool = definition(_fields(upstream, key, given, extra))
    target = Target(upstream.name, name if method == "tools/call" else method, method)  # type: ignore[arg-type]
    entry = compile_entry(tool, target, (), rules)
    if entry.check_output is not None:
        entry = msgspec.structs.replace(entry, check_output=StructuredOutputValidator(entry.check_output))
    guards, fingerprint = _guards(entry, upstream, extra), upstream.fingerprint(entry.fingerprint, key)
    return msgspec.structs.replace(entry, guards=guards, fingerprint=fingerprint)


def _guards(entry: Entry, upstream: Upstream, extra: PresetTool) -> Any:
    """The checks of the arguments, with those of this server alone."""
    guards = entry.guards
    if extra.queries and guards is None:
        raise DefinitionError(entry.name, [Fault("inputSchema", f"it has no {extra.queries[0]}, which would be checked")])
    if guards is not None and upstream.settings.blocked:
        guards = msgspec.structs.replace(guards, blocked=upstream.settings.blocked)
    return guards if not extra.queries else msgspec.structs.replace(guards, queries=extra.queries)


def _fields(upstream: Upstream, key: DefinitionKey, given: Mapping[str, Any], extra: PresetTool) -> dict[str, Any]:
    method, name = key
    settings, said = upstream.settings, upstream.said_of(key)
    schema = given.get("inputSchema")
    if not isinstance(schema, dict):
        raise DefinitionError(name, [Fault("inputSchema", "it is missing, or not an object")])
    if not isinstance(given.get("outputSchema", {}), dict):
        raise DefinitionError(name, [Fault("outputSchema", "it is not an object")])
    is_tool = method == "tools/call"
    return {
        "name": name_here(upstream, key),
        "description": _description(upstream.name, name, given),
        "category": extra.category or (upstream.category if is_tool else "service"),
        "tier": _tier(upstream, said, given) if is_tool else said.tier or upstream.tier_of_methods,
        "kind": "mcp",
        "source": "mcp",
        "requires_permission": said.requires_permission or settings.requires_permission,
        "cost": _cost(said, extra),
        "input_schema": schema,
        "output_schema": given.get("outputSchema"),
        "timeout": said.timeout or settings.timeout,
        "cache": None if said.cache_seconds is None else CacheRule(ttl=said.cache_seconds),
        "rate_limit": None if said.per_minute is None else RateLimit(per_minute=said.per_minute),
        "target": f"mcp:{upstream.name}",
        "tags": ("mcp",) if is_tool else ("mcp", METHOD_TAG),
        "enabled": said.enabled is not False,
        "annotations": _annotations(given),
    }


def name_here(upstream: Upstream, key: DefinitionKey) -> str:
    method, name = key
    settings, said = upstream.settings, upstream.said_of(key)
    if said.name is not None:
        return said.name
    if method != "tools/call":
        return prefixed(upstream.name, METHOD_TOOLS[method]["name"])  # type: ignore[index]
    if settings.prefix is None:
        return prefixed(upstream.name, name)
    full = settings.prefix + name
    if TOOL_NAME.match(full):
        return full
    mark = sha256(f"{len(upstream.name)} {upstream.name}{name}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", full)
    start = plain if TOOL_NAME.match(plain[:1]) else f"mcp_{plain}"
    return f"{start[: MAX_NAME_CHARS - 9]}_{mark}"


def _tier(upstream: Upstream, said: ServerToolSettings, given: Mapping[str, Any]) -> Tier:
    """The tier of the tool's settings, else of the server; an annotation counts only where the settings trust it."""
    settings = upstream.settings
    if said.tier is not None:
        return said.tier
    if settings.tier is None and settings.trust_annotations and _annotations(given).get("readOnlyHint") is True:
        return "read_only"
    return upstream.tier


def _annotations(given: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations that a server states. One that it leaves out says nothing: MCP's own defaults would make every tool
    destructive and open to the world."""
    stated = given.get("annotations")
    stated = stated if isinstance(stated, Mapping) else {}
    hints: dict[str, Any] = {hint: stated[hint] for hint in ANNOTATION_HINTS if isinstance(stated.get(hint), bool)}
    title = given.get("title") or stated.get("title")
    if isinstance(title, str) and cleaned(title).strip():
        hints["title"] = cleaned(title)[:MAX_TITLE_CHARS].strip()
    return hints


def _description(server: str, name: str, given: Mapping[str, Any]) -> str:
    words = given.get("description")
    words = cleaned(words).strip() if isinstance(words, str) else ""
    if len(words) > MAX_DESCRIPTION_CHARS:
        words = f"{words[: MAX_DESCRIPTION_CHARS - 2]} …"
    return words or f"{cleaned(name)[:64]} of the MCP server {server}."


def _cost(said: ServerToolSettings, extra: PresetTool) -> Cost:
    if said.cost is None and extra.per_unit is None:
        return Cost(model="free")
    return Cost(fixed=said.cost or Decimal(0), per_unit=extra.per_unit)


def prefixed(server: str, tool: str) -> str:
    """`mcp_{server}_{tool}`; where that is too long, cut and closed with a piece of its hash, always the same."""
    full = "_".join(["mcp", *(_letters(part) for part in (server, tool))])
    if len(full) <= MAX_NAME_CHARS and full == f"mcp_{server}_{tool}" and TOOL_NAME.match(full):
        return full
    mark = sha256(f"{len(server)} {server}{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{full[: MAX_NAME_CHARS - 9]}_{mark}"


def _letters(text: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in text) or "_"

"""Rules for tools that are registered at run time: the fields that may be given, their names, and the texts in them.

Whoever registers a tool is not trusted: an agent may, and what it writes may come from a page that it read. So there is a
list of fields that may be given, and nothing else is taken. What a call risks follows from the tool's kind (`compile`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import orjson

from toolgate.errors import DefinitionError, Fault
from toolgate.jsontext import MAX_DEFINITION_DEPTH, is_deeper
from toolgate.model import Actor, Tool

COMMON_FIELDS = frozenset(
    {
        "name", "description", "kind", "tier", "version", "category", "documentation", "input_schema", "output_schema",
        "timeout", "tags", "requires_permission", "cost", "cache", "rate_limit", "concurrency", "background",
        "annotations", "target",
    }
)  # fmt: skip
KIND_FIELDS = {"sandbox": "program", "http": "http", "mcp": "mcp", "workflow": "workflow"}
"""The field that says how a tool of a kind runs."""
PART_FIELDS = {
    "program": frozenset({"runtime", "code"}),
    "http": frozenset({"method", "url", "parameters", "body"}),
    "mcp": frozenset({"url", "tool"}),
    "workflow": frozenset({"webhook"}),
    "cache": frozenset({"ttl"}),
    "annotations": frozenset({"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}),
}
REFUSED_FIELDS = {
    "requires_auth": "a dynamic tool cannot name a credential",
    "source": "it is always dynamic",
    "tenant": "it is the tenant of whoever registers the tool",
    "enabled": "it is enabled and disabled by flags: `toolgate tools disable`",
    "retry": "what a failed call did would be done again",
    "alias_of": "a dynamic tool is no second name of another",
    "pure": "only the operator's own code is taken at its word",
    "internal": "only the operator's own code has tools that no list shows",
    "route": "a dynamic tool runs here: whoever registers it does not choose where calls go",
    "program.allowlist": "the commands that a dynamic tool may run are those of the setting commands.allow",
    "program.auto_accept": "whether a person is asked is not decided by the tool",
    "program.risk_level": "the tier of a dynamic tool follows from its kind",
    "http.credentials": "a dynamic tool cannot name a credential",
    "cache.scope": "results of a dynamic tool are kept for each user",
    "mcp.sha256": "it is taken from the server's definition",
    "mcp.command": "only an address can be registered; programs are added by the operator: `toolgate servers add`",
}
UNSCREENED_FIELDS = frozenset({"program", "http", "mcp", "workflow"})
"""Fields that no model reads."""
LOOK_ALIKES = str.maketrans({"0": "o", "1": "i", "l": "i", "5": "s", "-": None, "_": None})


class ToolRegistrar(Protocol):
    """Registers and removes tools at run time, for built-in tools that do so on behalf of an agent."""

    async def check(self, fields: Mapping[str, Any], actors: Sequence[Actor], *, replace: bool) -> None: ...

    async def check_removal(self, name: str, actors: Sequence[Actor]) -> None: ...

    async def add(self, fields: Mapping[str, Any], actors: Sequence[Actor], *, replace: bool, door: str) -> Tool: ...

    async def remove(self, name: str, actors: Sequence[Actor]) -> Tool: ...


def checked_fields(fields: Mapping[str, Any], max_bytes: int) -> dict[str, Any]:
    """The fields of a registration, if all of them may be given. Raises DefinitionError."""
    name = str(fields.get("name") or "?")[:64]
    if is_deeper(fields, MAX_DEFINITION_DEPTH):
        raise DefinitionError(name, [Fault("", f"its definition is nested more than {MAX_DEFINITION_DEPTH} levels deep")])
    try:
        size = len(orjson.dumps(fields))
    except (TypeError, ValueError) as error:
        raise DefinitionError(name, [Fault("", f"it is not JSON: {error}")]) from None
    if size > max_bytes:
        words = f"its definition has {size:,} bytes; {max_bytes:,} are allowed (setting registration.definition_bytes)"
        raise DefinitionError(name, [Fault("", words)])
    faults = [*_unknown_fields(fields)]
    if faults:
        raise DefinitionError(name, faults)
    return dict(fields)


def _unknown_fields(fields: Mapping[str, Any]) -> Iterable[Fault]:
    own = KIND_FIELDS.get(str(fields.get("kind")))
    for field, given in fields.items():
        if field in KIND_FIELDS.values() and field != own:
            yield Fault(field, f"a tool of kind {str(fields.get('kind'))[:64]} has none")
        elif field != own and field not in COMMON_FIELDS:
            yield Fault(field, REFUSED_FIELDS.get(field, "it cannot be given when a tool is registered at run time"))
        elif field in PART_FIELDS and isinstance(given, Mapping):
            for part in sorted(map(str, given.keys() - PART_FIELDS[field])):
                path = f"{field}.{part}"
                yield Fault(path, REFUSED_FIELDS.get(path, "it cannot be given when a tool is registered at run time"))
    if own is not None and not isinstance(fields.get(own), Mapping):
        yield Fault(own, f"a tool of kind {fields['kind']} says here how it runs")


def skeleton(name: str) -> str:
    """The form of a name in which names that a reader takes for each other are the same: readFile, read-file, read_fi1e."""
    return name.lower().translate(LOOK_ALIKES).replace("rn", "m").replace("vv", "w")


def look_alike(name: str, others: Iterable[str]) -> str | None:
    """Another name that a reader would take for this one; None: there is none."""
    form = skeleton(name)
    return next((other for other in others if other != name and skeleton(other) == form), None)

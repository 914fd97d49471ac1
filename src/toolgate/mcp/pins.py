"""Reads what MCP servers list: tools, prompts, resources and resource templates, each with the hash of its pinned fields.

Whatever a client's model reads is pinned: a new or changed definition is neither listed nor served until somebody accepts
it. An invalid one is a ToolProblem, and the others load. What a prompt or resource returns is data, like the result of a
call, and not pinned.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from toolgate.jsontext import MAX_DEFINITION_DEPTH, is_deeper
from toolgate.mcp.client.model import ListKind
from toolgate.mcp.definitions import ITEM_KINDS, DefinitionKey, DefinitionPin, FoundDefinition, ItemKind
from toolgate.mcp.method_tools import METHOD_CAPABILITIES, definition_of
from toolgate.registry.catalog import ToolProblem

INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ud800-\udfff]"
)
"""Control characters, bidirectional marks, zero-width characters, and blank letters."""


class DefinitionShape(NamedTuple):
    """The fields of a kind of definition."""

    word: str
    """For people."""
    name: str
    """The field that identifies it."""
    longest: int
    pinned: tuple[str, ...]
    """All that a model reads and we decide by. Not `_meta`, `icons` and `size`, which servers fill as they like."""
    max_bytes: int = 65_536


_RESOURCE = ("name", "title", "description", "mimeType", "annotations")
DEFINITION_SHAPES: dict[ListKind, DefinitionShape] = {
    "tools": DefinitionShape(
        "tool", "name", 256, ("name", "title", "description", "inputSchema", "outputSchema", "annotations"), 524_288
    ),
    "prompts": DefinitionShape("prompt", "name", 256, ("name", "title", "description", "arguments")),
    "resources": DefinitionShape("resource", "uri", 8_192, ("uri", *_RESOURCE)),
    "templates": DefinitionShape("resource template", "uriTemplate", 8_192, ("uriTemplate", *_RESOURCE)),
}


def found_in(
    server: str, capabilities: Mapping[str, Any], listed: Mapping[ListKind, Iterable[Any]]
) -> tuple[dict[DefinitionKey, FoundDefinition], list[ToolProblem]]:
    """The definitions of a server, each with its hash: first those of its methods, so that these have their names first; and
    the invalid ones. Of a name that comes twice the first counts."""
    found: dict[DefinitionKey, FoundDefinition] = {}
    problems: list[ToolProblem] = []
    for method, capability in METHOD_CAPABILITIES.items():
        if isinstance(capabilities.get(capability), Mapping):
            found[method, ""] = hashed(definition_of(server, method), DEFINITION_SHAPES["tools"])
    for kind, definitions in listed.items():
        shape = DEFINITION_SHAPES[kind]
        for given in definitions:
            try:
                name, definition = _pinned(kind, given)
                before = found.setdefault(("tools/call" if kind == "tools" else kind, name), definition)
                if before is not definition and (kind == "tools" or before != definition):
                    raise ValueError(f"the server has two {shape.word}s of this {shape.name}; the first counts")
            except ValueError as error:
                told = given.get(shape.name) if isinstance(given, Mapping) else None
                words = cleaned(told)[:64] if isinstance(told, str) and told else f"without a {shape.name}"
                problems.append(ToolProblem(f"server {server}, {shape.word} {words}", str(error)))
    return found, problems


def _pinned(kind: ListKind, given: Any) -> tuple[str, FoundDefinition]:
    """The name of a definition, and its pinned fields with their hash. Raises ValueError if it is invalid."""
    shape = DEFINITION_SHAPES[kind]
    name = given.get(shape.name) if isinstance(given, Mapping) else None
    if not isinstance(name, str) or not 0 < len(name) <= shape.longest:
        raise ValueError(f"its {shape.name} must be text of 1 to {shape.longest:,} characters")
    fields = {field: given[field] for field in shape.pinned if given.get(field) is not None}
    if kind != "tools":  # which get a plain name in the catalog; these keep theirs
        if INVISIBLE.search(name):
            raise ValueError(f"its {shape.name} has characters that a reader does not see")
        if isinstance(fields.get("annotations"), Mapping):  # when it was last changed is no part of what it is
            fields["annotations"] = {key: value for key, value in fields["annotations"].items() if key != "lastModified"}
    return name, hashed(fields, shape)


def hashed(fields: Mapping[str, Any], shape: DefinitionShape) -> FoundDefinition:
    """Pinned fields, always written in the same way. Raises ValueError if they can't be."""
    if is_deeper(fields, MAX_DEFINITION_DEPTH):
        raise ValueError(f"its definition is nested more than {MAX_DEFINITION_DEPTH} levels deep")
    try:
        text = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError, RecursionError) as error:  # half surrogates, integers of more than 64 bits
        raise ValueError(f"its definition is not JSON: {error}") from None
    if len(text) > shape.max_bytes:
        raise ValueError(f"its definition has more than {shape.max_bytes:,} bytes")
    return FoundDefinition(text.decode(), sha256(text).hexdigest())


def cleaned(text: str) -> str:
    return INVISIBLE.sub("", text)


class AcceptedItems:
    """The accepted items of all servers, by server and kind: name and hash."""

    def __init__(self, pins: Iterable[DefinitionPin] = ()) -> None:
        self._hashes: dict[tuple[str, str], dict[str, str | None]] = {}
        for pin in pins:
            self._hashes.setdefault((pin.server, pin.method), {})[pin.tool] = pin.accepted_hash

    def of(self, server: str, kind: str) -> Mapping[str, str | None]:
        return self._hashes.get((server, kind), {})

    def labels(self, server: str) -> list[str]:
        return [label((kind, name)) for kind in ITEM_KINDS for name in self.of(server, kind)]

    def differ(self, other: "AcceptedItems") -> set[tuple[str, str]]:
        return {key for key in self._hashes.keys() | other._hashes.keys() if self.of(*key) != other.of(*key)}

    def is_accepted(self, server: str, kind: ItemKind, given: Any) -> bool:
        try:
            name, found = _pinned(kind, given)
        except ValueError:
            return False
        return self.of(server, kind).get(name) == found.hash

    def may_ask(self, server: str, method: str, params: Mapping[str, Any]) -> bool:
        """True if a request is for, or about an argument of, an accepted prompt, resource or template."""
        match method, params:
            case ("prompts/get", {"name": str(name)}) | (
                "completion/complete",
                {"ref": {"type": "ref/prompt", "name": str(name)}},
            ):
                return name in self.of(server, "prompts")
            case "completion/complete", {"ref": {"uri": str(uri)} as ref} if ref.get("type") != "ref/prompt":
                return uri in self.of(server, "templates") or self._has_resource(server, uri)
            case "resources/read", {"uri": str(uri)}:
                return self._has_resource(server, uri)
        return False

    def _has_resource(self, server: str, uri: str) -> bool:
        return uri in self.of(server, "resources") or any(fits(one, uri) for one in self.of(server, "templates"))


@lru_cache(maxsize=4_096)
def _template(text: str) -> Any:
    """A template that can be matched; None if it can't, or does not even name its scheme."""
    from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate

    scheme, colon, _ = text.partition(":")
    if not colon or not scheme.isascii() or not scheme[:1].isalpha() or not scheme.translate(SCHEME_SIGNS).isalnum():
        return None
    try:
        return UriTemplate.parse(text)
    except InvalidUriTemplate:
        return None


SCHEME_SIGNS = str.maketrans("", "", "+.-")


def fits(template: str, uri: str) -> bool:
    parsed = _template(template)
    return parsed is not None and parsed.match(uri) is not None


def label(key: DefinitionKey) -> str:
    """The name of a definition among those of its server: `say`, `prompts/say`, `resources/read`."""
    method, name = key
    return f"{method}/{name}" if method in ITEM_KINDS else name or method


def word_for(method: str) -> str:
    """The kind of a definition of this method: tool, prompt …"""
    return next((shape.word for kind, shape in DEFINITION_SHAPES.items() if kind == method), "tool")

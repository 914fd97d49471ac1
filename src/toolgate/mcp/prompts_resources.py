"""Prompts, resources and resource templates of MCP servers. They are pinned as tools are: a new or changed one is neither
listed nor served until somebody accepts it, because a client's model reads it as it reads a tool.

What a prompt or resource returns is data, like the result of a call, and not pinned.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal, NamedTuple, cast

from toolgate.mcp.definitions import ITEM_KINDS, DefinitionPin, FoundDefinition
from toolgate.mcp.entries import INVISIBLE, DefinitionKey, canonical_json, cleaned
from toolgate.registry.catalog import ToolProblem

ItemKind = Literal["prompts", "resources", "templates"]
MAX_ITEM_BYTES = 65_536


class ItemShape(NamedTuple):
    """The fields of a kind of item."""

    word: str
    """For people."""
    name: str
    """The field that identifies it."""
    longest: int
    pinned: tuple[str, ...]
    """All that a model reads of it. Not `_meta`, `icons` and `size`, which servers fill as they like."""


ITEM_SHAPES: dict[ItemKind, ItemShape] = {
    "prompts": ItemShape("prompt", "name", 256, ("name", "title", "description", "arguments")),
    "resources": ItemShape("resource", "uri", 8_192, ("uri", "name", "title", "description", "mimeType", "annotations")),
    "templates": ItemShape(
        "resource template", "uriTemplate", 8_192, ("uriTemplate", "name", "title", "description", "mimeType", "annotations")
    ),
}
assert tuple(ITEM_SHAPES) == ITEM_KINDS


def pinned(kind: ItemKind, given: Any) -> tuple[str, FoundDefinition]:
    """The name of an item, and its pinned fields with their hash. Raises ValueError if it is invalid."""
    shape = ITEM_SHAPES[kind]
    name = given.get(shape.name) if isinstance(given, Mapping) else None
    if not isinstance(name, str) or not 0 < len(name) <= shape.longest:
        raise ValueError(f"its {shape.name} must be text of 1 to {shape.longest:,} characters")
    if INVISIBLE.search(name):
        raise ValueError(f"its {shape.name} has characters that a reader does not see")
    fields = {field: given[field] for field in shape.pinned if given.get(field) is not None}
    if isinstance(fields.get("annotations"), Mapping):  # when it was last changed is no part of what it is
        fields["annotations"] = {key: value for key, value in fields["annotations"].items() if key != "lastModified"}
    text = canonical_json(fields, MAX_ITEM_BYTES)
    return name, FoundDefinition(text.decode(), sha256(text).hexdigest())


def items_in(
    server: str, listed: Mapping[ItemKind, Iterable[Any]]
) -> tuple[dict[DefinitionKey, FoundDefinition], list[ToolProblem]]:
    """The items of a server, each with its hash, and the invalid ones. Of an item that comes twice the first counts."""
    found: dict[DefinitionKey, FoundDefinition] = {}
    problems: list[ToolProblem] = []
    for kind, items in listed.items():
        for given in items:
            try:
                name, definition = pinned(kind, given)
                if found.setdefault((kind, name), definition) != definition:
                    raise ValueError(f"the server has two of this {ITEM_SHAPES[kind].name}; the first counts")
            except ValueError as error:
                told = given.get(ITEM_SHAPES[kind].name) if isinstance(given, Mapping) else None
                words = cleaned(told)[:64] if isinstance(told, str) else "without a name"
                problems.append(ToolProblem(f"server {server}, {ITEM_SHAPES[kind].word} {words}", str(error)))
    return found, problems


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
        """The servers and kinds in which the two differ."""
        return {key for key in self._hashes.keys() | other._hashes.keys() if self.of(*key) != other.of(*key)}

    def is_accepted(self, server: str, kind: ItemKind, given: Any) -> bool:
        """True if an item is as it was accepted."""
        try:
            name, found = pinned(kind, given)
        except ValueError:
            return False
        return self.of(server, kind).get(name) == found.hash

    def may_ask(self, server: str, method: str, params: Mapping[str, Any]) -> bool:
        """True if a request is for an accepted prompt, an accepted resource or one of an accepted template, or about an
        argument of one."""
        asked = _PERMITTED_REQUESTS.get(method)
        return asked is not None and asked(self, server, params)

    def has_prompt(self, server: str, name: Any) -> bool:
        return isinstance(name, str) and name in self.of(server, "prompts")

    def has_resource(self, server: str, uri: Any) -> bool:
        if not isinstance(uri, str):
            return False
        return uri in self.of(server, "resources") or any(fits(one, uri) for one in self.of(server, "templates"))

    def _has_reference(self, server: str, ref: Any) -> bool:
        if not isinstance(ref, Mapping):
            return False
        if ref.get("type") == "ref/prompt":
            return self.has_prompt(server, ref.get("name"))
        uri = ref.get("uri")
        return isinstance(uri, str) and (uri in self.of(server, "templates") or self.has_resource(server, uri))


_PERMITTED_REQUESTS: dict[str, Callable[[AcceptedItems, str, Mapping[str, Any]], bool]] = {
    "prompts/get": lambda items, server, params: items.has_prompt(server, params.get("name")),
    "resources/read": lambda items, server, params: items.has_resource(server, params.get("uri")),
    "completion/complete": lambda items, server, params: items._has_reference(server, params.get("ref")),
}


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
    return ITEM_SHAPES[cast("ItemKind", method)].word if method in ITEM_KINDS else "tool"

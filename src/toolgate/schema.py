"""The one walker of JSON Schemas: what a schema holds, what speaks of the same value, and where references lead.

A schema may come from anybody: its references form circles, lead nowhere, or are written to be read in two ways. So every
walk visits a part once, none calls itself, and nothing is ever fetched. `refer_strictly` reads a reference as most schemas
mean it, for those who show a schema; `SchemaDocument` reads it in every way it can be read, for those who guard against one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import unquote

Schema = Mapping[str, Any]
Schemas = tuple[Schema, ...]
Refer = Callable[[str], Iterable[Any]]
"""The target of a reference: nothing, or one part, or several where it can be read in several ways."""

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
CHOICES = ("allOf", "anyOf", "oneOf")
SAME_VALUE = (*CHOICES, "if", "then", "else", "not", "dependentSchemas", "dependencies")
"""Keywords by which a schema speaks of its value through other schemas, besides references."""
ITEMS = ("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains")
REST = ("additionalProperties", "unevaluatedProperties")
PARTS_OF_VALUE = ("properties", "patternProperties", *REST, "propertyNames", *ITEMS)
"""Keywords by which it speaks of what its value holds."""
_BY_NAME = {"properties", "patternProperties", "dependentSchemas", "dependencies"}
ANY_SCHEMA: Schema = {}


# -- what stands where


def located(value: Any) -> Iterator[tuple[tuple[Any, ...], Schema]]:
    """All objects in a document with their paths, whatever they stand for."""
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while waiting:
        path, part = waiting.pop()
        if isinstance(part, Mapping):
            yield path, part
            waiting.extend([((*path, key), inner) for key, inner in part.items()][::-1])
        elif isinstance(part, list | tuple):
            waiting.extend([((*path, index), inner) for index, inner in enumerate(part)][::-1])


def subschemas(schema: Schema, keywords: Sequence[str]) -> Iterator[Any]:
    """The schemas under some keywords: one, several, or by name."""
    for keyword in keywords:
        held = schema.get(keyword)
        if isinstance(held, list):
            yield from held
        elif isinstance(held, Mapping):
            if keyword in _BY_NAME:
                yield from held.values()
            else:
                yield held


def same_value(schemas: Iterable[Any], refer: Refer, keywords: Sequence[str] = SAME_VALUE) -> list[Schema]:
    """Some schemas and all that they refer to and choose from for the same value, each once."""
    found: dict[int, Schema] = {}
    waiting = list(schemas)[::-1]
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, Mapping) and id(schema) not in found:
            found[id(schema)] = schema
            parts = [part for reference in references(schema) for part in refer(reference)]
            waiting += [*parts, *subschemas(schema, keywords)][::-1]
    return list(found.values())


# -- references


def references(schema: Schema) -> list[str]:
    return [schema[keyword] for keyword in REFERENCES if isinstance(schema.get(keyword), str)]


def pointed(part: Any, pointer: str) -> list[Any]:
    """The part that a JSON pointer leads to, as a list of one; none if it leads nowhere."""
    for key in pointer.split("/")[1:]:
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(part, Mapping) and key in part:
            part = part[key]
        elif isinstance(part, list) and key.isdecimal() and int(key) < len(part):
            part = part[int(key)]
        else:
            return []
    return [part]


def refer_strictly(root: Schema) -> Refer:
    """Follows references that are pointers into the schema itself, and no others."""

    def refer(reference: str) -> list[Any]:
        return pointed(root, unquote(reference[1:])) if reference == "#" or reference.startswith("#/") else []

    return refer


def target(root: Schema, reference: str) -> dict[str, Any]:
    """The part of a schema that a reference leads to; empty if it leads nowhere."""
    return next((dict(part) for part in refer_strictly(root)(reference) if isinstance(part, Mapping)), {})


class SchemaDocument:
    """A schema, with all that its parts may refer to, in any draft."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self._known: dict[int, Schemas] = {}

    def whole(self, schema: Any) -> Schemas:
        """A schema with everything that it refers to and chooses from, found once."""
        if not isinstance(schema, Mapping):
            return ()
        known = self._known.get(id(schema))
        if known is None:
            known = self._known[id(schema)] = tuple(same_value((schema,), self.refer))
        return known

    def refer(self, reference: str) -> list[Any]:
        """All that a reference may mean, whatever it is relative to. One that leads nowhere may be anything."""
        found: dict[int, Any] = {}
        for text in {reference, unquote(reference)}:
            address, _, fragment = text.partition("#")
            starts, by_name = self._resources_of(address)
            if not by_name:
                found[id(ANY_SCHEMA)] = ANY_SCHEMA
            parts = [part for start in starts if not fragment or fragment[0] == "/" for part in pointed(start, fragment)]
            found.update((id(part), part) for part in (*parts, *(self._anchors.get(fragment, ()) if fragment else ())))
        return list(found.values()) or [ANY_SCHEMA]

    def _resources_of(self, address: str) -> tuple[list[Schema], bool]:
        """The schemas that an address may mean, and whether their names say so. Of an address that is relative in a way that
        is not followed here, that is any of them."""
        if not address:
            return [self.root, *(schema for _, schema in self._resources)], True
        last = _last_name(address)
        named = [schema for name, schema in self._resources if _last_name(name) == last]
        return named or [schema for _, schema in self._resources], bool(named)

    @cached_property
    def _resources(self) -> list[tuple[str, Schema]]:
        """Schemas that have an address of their own; looked for only once there is a reference."""
        return [
            (schema[key], schema)
            for _, schema in located(self.root)
            for key in ("$id", "id")
            if isinstance(schema.get(key), str)
        ]

    @cached_property
    def _anchors(self) -> dict[str, list[Schema]]:
        found: dict[str, list[Schema]] = defaultdict(list)
        for _, schema in located(self.root):
            for key in ("$anchor", "$dynamicAnchor"):
                if isinstance(schema.get(key), str):
                    found[schema[key]].append(schema)
        for name, schema in self._resources:
            found[name.removeprefix("#")].append(schema)
        return found


def _last_name(address: str) -> str:
    return address.rstrip("#/").rpartition("/")[2]


def types_of(schema: Schema) -> set[str]:
    """The types that a schema names outright."""
    given = schema.get("type")
    return set(given) if isinstance(given, list) else {given} if isinstance(given, str) else set()


# -- whole numbers

HOLDS_NUMBERS = (float, dict, list, tuple)


def whole_numbers(value: Any, schema: Schema) -> Any:
    """The value with 3 where it has 3.0 and the schema takes it for an integer; the same object if there is none."""
    refer = refer_strictly(schema)
    return _whole(value, same_value([schema], refer, CHOICES), refer)


def _whole(value: Any, known: Sequence[Schema], refer: Refer) -> Any:
    """`known`: all that is said of the value, found once for all items of a list."""
    if isinstance(value, float):
        types = {name for schema in known for name in types_of(schema)}
        return int(value) if "integer" in types and "number" not in types and value.is_integer() else value
    if isinstance(value, dict):
        changed = {}
        for key, part in value.items():
            if isinstance(part, HOLDS_NUMBERS):
                whole = _whole(part, same_value(_of_property(known, key), refer, CHOICES), refer)
                if whole is not part:
                    changed[key] = whole
        return {**value, **changed} if changed else value
    inside = same_value([schema["items"] for schema in known if "items" in schema], refer, CHOICES)
    parts = [_whole(part, inside, refer) if isinstance(part, HOLDS_NUMBERS) else part for part in value] if inside else value
    return parts if any(new is not old for new, old in zip(parts, value, strict=True)) else value


def _of_property(schemas: Iterable[Schema], key: str) -> list[Any]:
    return [schema.get("properties", {}).get(key, schema.get("additionalProperties")) for schema in schemas]

"""All that a JSON Schema says of a value: through references, choices and conditions, in any draft.

It errs on the side of more: what one branch says counts whether that branch applies or not, a reference that can be read in
two ways is read in both, and one that leads nowhere may be anything.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

Schema = Mapping[str, Any]
Schemas = tuple[Schema, ...]

NO_TEXT = {"integer", "number", "boolean", "null"}
SEVERAL, ONE, REFERENCES = (
    ("allOf", "anyOf", "oneOf"),
    ("if", "then", "else", "not"),
    ("$ref", "$dynamicRef", "$recursiveRef"),
)
DEPENDENT = ("dependentSchemas", "dependencies")
"""Where a schema speaks of the same value by other schemas."""
SPEAKS = {*SEVERAL, *REFERENCES, "enum", "const"}
"""What says of which kind a value is, if its type does not. A condition speaks of some values only."""
ITEMS = ("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains")
REST = ("additionalProperties", "unevaluatedProperties")
ANYTHING: Schema = {}


class Document:
    """A schema, with all that its parts refer to."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self._known: dict[int, Schemas] = {}
        self._anchors: dict[str, list[Schema]] = defaultdict(list)
        self._resources: list[tuple[str, Schema]] = []
        for part in everything(root):
            self._note_names(part)

    def whole(self, schema: Any) -> Schemas:
        """A schema with everything that it refers to and chooses from, found once."""
        if not isinstance(schema, Mapping):
            return ()
        known = self._known.get(id(schema))
        if known is None:
            found: dict[int, Schema] = {}
            self._collect(schema, found)
            known = self._known[id(schema)] = tuple(found.values())
        return known

    def of_property(self, schemas: Schemas, name: str) -> Iterator[Schema]:
        """What is said of a property's value."""
        for schema in schemas:
            properties, patterns = schema.get("properties"), schema.get("patternProperties")
            declared = isinstance(properties, Mapping) and name in properties
            if isinstance(properties, Mapping) and declared:
                yield from self.whole(properties[name])
            for pattern, part in patterns.items() if isinstance(patterns, Mapping) else ():
                if _may_match(pattern, name):
                    yield from self.whole(part)
            for key in () if declared else REST:
                yield from self.whole(schema.get(key))

    def of_names(self, schemas: Schemas) -> Iterator[Schema]:
        """What is said of the names of an object's properties."""
        for schema in schemas:
            yield from self.whole(schema.get("propertyNames"))

    def of_items(self, schemas: Schemas) -> Iterator[Schema]:
        """What is said of any item of a list."""
        for schema in schemas:
            for key in ITEMS:
                part = schema.get(key)
                for item in part if isinstance(part, list) else (part,):
                    yield from self.whole(item)

    def declares(self, schemas: Schemas, name: str) -> bool:
        return any(name in (schema.get("properties") or ()) for schema in schemas)

    def is_open(self, schema: Any, seen: set[int] | None = None) -> bool:
        """Whether a value may hold things of which the schema does not say what they are."""
        seen = set() if seen is None else seen
        if not isinstance(schema, Mapping):
            return schema is not False
        if id(schema) in seen:
            return False
        seen.add(id(schema))
        parts = self.whole(schema)
        if any(not types(part) and SPEAKS.isdisjoint(part) for part in parts):
            return True
        return any(
            ("object" in types(part) and self._open_object(part, seen))
            or ("array" in types(part) and self._open_list(part, seen))
            for part in parts
        )

    def _open_object(self, schema: Schema, seen: set[int]) -> bool:
        properties = schema.get("properties")
        if any(self.is_open(rule, seen) for rule in (properties.values() if isinstance(properties, Mapping) else ())):
            return True
        rest = next((schema[key] for key in REST if key in schema), True)
        closed = rest is False or (isinstance(rest, Mapping) and bool(types(rest)) and types(rest) <= NO_TEXT)
        return not closed or bool(schema.get("patternProperties"))

    def _open_list(self, schema: Schema, seen: set[int]) -> bool:
        items = schema.get("items", schema.get("unevaluatedItems", True))
        rest = [*items, schema.get("additionalItems", True)] if isinstance(items, list) else [items]
        return any(self.is_open(part, seen) for part in (*rest, *(schema.get("prefixItems") or ())))

    def _collect(self, schema: Any, found: dict[int, Schema]) -> None:
        if not isinstance(schema, Mapping) or id(schema) in found:
            return
        found[id(schema)] = schema
        for key in REFERENCES:
            if isinstance(schema.get(key), str):
                for part in self._referred(schema[key]):
                    self._collect(part, found)
        for key in SEVERAL:
            for part in schema.get(key) or ():
                self._collect(part, found)
        for key in ONE:
            self._collect(schema.get(key), found)
        for key in DEPENDENT:
            parts = schema.get(key)
            for part in parts.values() if isinstance(parts, Mapping) else ():
                self._collect(part, found)

    def _note_names(self, schema: Schema) -> None:
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(key), str):
                self._anchors[schema[key]].append(schema)
        for key in ("$id", "id"):
            name = schema.get(key)
            if isinstance(name, str):
                self._resources.append((name, schema))
                self._anchors[name.removeprefix("#")].append(schema)

    def _referred(self, reference: str) -> list[Any]:
        """What a reference may mean, whatever it is relative to."""
        found: list[Any] = []
        for text in {reference, unquote(reference)}:
            address, _, fragment = text.partition("#")
            for start in self._named(address):
                if not fragment or fragment.startswith("/"):
                    found += _pointed(start, fragment)
            found += self._anchors.get(fragment, ()) if fragment else ()
        return found or [ANYTHING]

    def _named(self, address: str) -> Iterator[Schema]:
        if not address:
            yield self.root
            yield from (schema for _, schema in self._resources)
            return
        last = address.rstrip("/").rpartition("/")[2]
        yield from (schema for name, schema in self._resources if name.rstrip("#/").rpartition("/")[2] == last)


def everything(value: Any) -> Iterator[Schema]:
    """All objects in a document, whatever they stand for."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            yield part
            waiting.extend(part.values())
        elif isinstance(part, list | tuple):
            waiting.extend(part)


def types(schema: Schema) -> set[str]:
    given = schema.get("type")
    said = set(given) if isinstance(given, list) else {given} if isinstance(given, str) else set()
    lists = any(key in schema for key in ("items", "prefixItems"))
    return said or ({"object"} if "properties" in schema else {"array"} if lists else set())


def takes_free_text(schemas: Iterable[Schema]) -> bool:
    """Whether a value can be a text that the schema does not spell out."""
    schemas = tuple(schemas)
    return not schemas or any(
        not (types(schema) and types(schema) <= NO_TEXT) and "enum" not in schema and "const" not in schema
        for schema in schemas
    )


def _may_match(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except (re.error, RecursionError):
        return True


def _pointed(start: Schema, pointer: str) -> list[Any]:
    part: Any = start
    for key in pointer.split("/")[1:]:
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(part, Mapping) and key in part:
            part = part[key]
        elif isinstance(part, list) and key.isdecimal() and int(key) < len(part):
            part = part[int(key)]
        else:
            return []
    return [part]

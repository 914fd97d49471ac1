"""All that a JSON Schema says of a value: through references, choices and conditions, in any draft.

It errs on the side of more: what one branch says counts whether that branch applies or not, a reference that can be read in
two ways is read in both, and one that leads nowhere may be anything.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from toolgate.schema import CHOICES, ITEMS, REFERENCES, REST, Schema, SchemaDocument, Schemas, subschemas, types_of

NO_TEXT = {"integer", "number", "boolean", "null"}
SPEAKS = {*CHOICES, *REFERENCES, "enum", "const"}
"""What says of which kind a value is, if its type does not. A condition speaks of some values only."""


class ArgumentSchema(SchemaDocument):
    """The schema of a tool's arguments, asked about one value after another."""

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
            for item in subschemas(schema, ITEMS):
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


def types(schema: Schema) -> set[str]:
    """The types that a schema names, or that its other words imply."""
    lists = any(key in schema for key in ("items", "prefixItems"))
    return types_of(schema) or ({"object"} if "properties" in schema else {"array"} if lists else set())


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

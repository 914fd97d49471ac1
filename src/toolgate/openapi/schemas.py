"""Turns the schemas of an OpenAPI document into JSON Schemas that stand for themselves.

Only the keywords that are listed here are taken over. References are written out, down to a depth and a number of parts;
what is beyond, as all of a circle is at last, is any value: the service checks what it is sent. `format` and `pattern` are
left out for the same reason: documents have them wrong often enough that honest calls would be refused.
"""

from collections.abc import Mapping
from typing import Any

from toolgate.mcp.pins import cleaned
from toolgate.openapi.document import Document, DocumentError

MAX_SCHEMA_LEVELS = 10
MAX_SCHEMA_PARTS = 600
MAX_TEXT_CHARS = 600
MAX_READ_CHARS = 10_000
"""Characters of a text that are looked at: one text may be referred to from thousands of operations."""
MAX_ENUM_VALUES = 200
MAX_OPERATION_SIZE = 1_000_000
MAX_DOCUMENT_SIZE = 128_000_000
"""Characters, about, of the schemas of one operation, and of all: a short reference may stand for a long text."""
PART_SIZE = 50
PLAIN_KEYWORDS = (
    "minimum", "maximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties",
    "maxProperties", "const", "default",
)  # fmt: skip
TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
TYPE_CHECKS: dict[str, Any] = {
    "string": str, "number": (int, float), "integer": int, "boolean": bool, "array": list, "object": dict,
    "null": type(None),
}  # fmt: skip


class SchemaWriter:
    """Writes the schemas of one operation as JSON Schemas, which share the number of parts that they may have."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._left = MAX_SCHEMA_PARTS
        self._size = 0

    def read(self, given: Any, place: str, levels: int = MAX_SCHEMA_LEVELS) -> dict[str, Any]:
        """A schema as JSON Schema. Raises DocumentError for a reference that leads nowhere."""
        self._left -= 1
        self._grow(PART_SIZE, place)
        if not isinstance(given, Mapping) or levels <= 0 or self._left <= 0:
            return {}
        schema = given if "$ref" not in given else self._document.resolved(given, place)
        made = self._plain(schema, place)
        for keyword in ("allOf", "anyOf", "oneOf"):
            listed = schema.get(keyword)
            if isinstance(listed, list) and listed:
                parts = [self.read(one, f"{place}.{keyword}", levels - 1) for one in listed]
                # Of overlapping branches, more than one may fit a value: documents mean that one of them does.
                made["anyOf" if keyword == "oneOf" else keyword] = parts
        self._add_properties(made, schema, place, levels)
        if isinstance(schema.get("items"), Mapping):
            made["items"] = self.read(schema["items"], f"{place}.items", levels - 1)
        return _nullable(made) if schema.get("nullable") is True else made

    def _grow(self, size: int, place: str) -> None:
        """Counts what is written out. Raises DocumentError if it is too much, for this operation or for all."""
        self._size += size
        self._document.written_size += size
        if self._size > MAX_OPERATION_SIZE or self._document.written_size > MAX_DOCUMENT_SIZE:
            raise DocumentError(place, "its schemas are too large once their references are written out")

    def _plain(self, schema: Mapping[str, Any], place: str) -> dict[str, Any]:
        made: dict[str, Any] = {}
        types = schema.get("type")
        listed = types if isinstance(types, list) else [types]
        if types is not None and len(listed) <= len(TYPES) and all(isinstance(one, str) and one in TYPES for one in listed):
            made["type"] = types
        for keyword in ("description", "title"):
            words = schema.get(keyword)
            if isinstance(words, str) and "description" not in made and (shown := cleaned(words[:MAX_READ_CHARS]).strip()):
                made["description"] = shown[:MAX_TEXT_CHARS]
                self._grow(len(made["description"]), place)
        made |= {keyword: schema[keyword] for keyword in PLAIN_KEYWORDS if _is_usable(keyword, schema)}
        self._grow(sum(len(repr(made[keyword])) for keyword in ("const", "default") if keyword in made), place)
        for keyword, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            said = schema.get(keyword)
            if said is True and bound in made:  # as OpenAPI 3.0 has it
                made[keyword] = made.pop(bound)
            elif isinstance(said, int | float) and not isinstance(said, bool):
                made[keyword] = said
        values = schema.get("enum")
        if isinstance(values, list) and 0 < len(values) <= MAX_ENUM_VALUES:
            different = {repr(value): value for value in values}
            self._grow(sum(map(len, different)), place)
            made["enum"] = list(different.values())
        return made

    def _add_properties(self, made: dict[str, Any], schema: Mapping[str, Any], place: str, levels: int) -> None:
        properties, required = schema.get("properties"), schema.get("required")
        if isinstance(properties, Mapping):
            self._grow(PART_SIZE * len(properties) + sum(map(len, properties)), place)
            read = {name: self._property(part, f"{place}.{name}", levels) for name, part in properties.items()}
            made["properties"] = {name: part for name, part in read.items() if part is not None}
            made.setdefault("type", "object")
        if isinstance(required, list):
            known = made.get("properties", {})
            hidden = {name for name in (properties or {}) if name not in known} if isinstance(properties, Mapping) else set()
            self._grow(PART_SIZE * len(required), place)
            names = [name for name in dict.fromkeys(map(str, required)) if name not in hidden]
            if names:
                made["required"] = names
        further = schema.get("additionalProperties")
        if further is False:
            made["additionalProperties"] = False
        elif isinstance(further, Mapping):
            made["additionalProperties"] = self.read(further, f"{place}.additionalProperties", levels - 1)

    def _property(self, given: Any, place: str, levels: int) -> dict[str, Any] | None:
        """A property; None for one that only the service fills."""
        if isinstance(given, Mapping) and "$ref" in given and "readOnly" not in given:
            given = self._document.resolved(given, place)
        return None if isinstance(given, Mapping) and given.get("readOnly") is True else self.read(given, place, levels - 1)


def _is_usable(keyword: str, schema: Mapping[str, Any]) -> bool:
    """True for a keyword that holds what JSON Schema lets it hold."""
    if keyword not in schema:
        return False
    value, types = schema[keyword], schema.get("type")
    if keyword in ("default", "const"):
        expected = TYPE_CHECKS.get(types) if isinstance(types, str) else None
        fits = expected is not None and isinstance(value, expected) and (isinstance(value, bool) == (types == "boolean"))
        return fits and (not isinstance(schema.get("enum"), list) or value in schema["enum"][:MAX_ENUM_VALUES])
    if keyword == "uniqueItems":
        return isinstance(value, bool)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return (
        value > 0 if keyword == "multipleOf" else keyword in ("minimum", "maximum") or (value >= 0 and value == int(value))
    )


def _nullable(made: dict[str, Any]) -> dict[str, Any]:
    if "enum" in made and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    if isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    elif any(keyword in made for keyword in ("allOf", "anyOf")):
        words = {"description": made.pop("description")} if "description" in made else {}
        return {"anyOf": [made, {"type": "null"}], **words}
    return made

"""The JSON Schemas of a tool, compiled once: what checks a value against them, and what an entry reads off them."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import jsonschema_rs
import orjson

from toolgate.errors import DefinitionError, Fault
from toolgate.model import Tool, Validator
from toolgate.registry.schema_limits import BoundedValidator, SchemaWork, TooMuchWork, measure
from toolgate.schema import REFERENCES, located

MAX_SCHEMA_BYTES = 262_144
LONG_SCHEMA = 20_000
REFERS = b'ef":'
"""What a schema with a reference has in it: `$ref`, `$dynamicRef`, `$recursiveRef`."""
NO_DEFAULTS: dict[str, Any] = {}
"""Shared by all entries without defaults: with 100,000 tools, an object less to fetch is time."""
DRAFTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    *(f"http://json-schema.org/draft-0{number}/schema{end}" for number in (7, 6, 4) for end in ("#", "")),
)


class CompiledSchema(NamedTuple):
    """A JSON Schema, compiled, and what an entry reads off it. Tools with the very same text share it, whoever they belong
    to: nothing in it changes."""

    text: bytes
    check: Validator
    takes_text: bool
    public_fields: frozenset[str]
    literal_fields: frozenset[str]


def compile_schema(tool: Tool, field: str, schema: dict[str, Any]) -> CompiledSchema:
    def refuse(path: str, message: str) -> DefinitionError:
        return DefinitionError(tool.name, [Fault(".".join(part for part in (field, path) if part), message)])

    try:
        text = orjson.dumps(schema)
        if len(text) > MAX_SCHEMA_BYTES:
            raise refuse("", f"a schema may have {MAX_SCHEMA_BYTES:,} bytes at most")
    except orjson.JSONEncodeError as error:
        raise refuse("", f"the schema is not JSON: {error}") from error
    if field == "input_schema" and schema.get("type", "object") != "object":
        raise refuse("type", "arguments are named, so the schema's type must be 'object'")
    if schema.get("$schema", DRAFTS[0]) not in DRAFTS:  # before `meta` sees it, which would fetch it
        raise refuse("$schema", f"{schema['$schema']!r} is no known draft of JSON Schema")
    try:
        return _compiled(text)
    except TooMuchWork as error:
        raise refuse("", error.message) from error
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        words = getattr(error, "message", str(error)).split("\n", 1)[0]
        path = list(getattr(error, "instance_path", None) or ()) or _reference_in(schema, words) or []
        raise refuse(".".join(str(part) for part in path), words) from error


@lru_cache(maxsize=4096)
def _compiled(schema: bytes) -> CompiledSchema:
    read = orjson.loads(schema)
    jsonschema_rs.meta.validate(read)
    work = measure(read) if REFERS in schema or len(schema) > LONG_SCHEMA else SchemaWork()
    validator: Validator = jsonschema_rs.validator_for(read, validate_formats=True, offline=True)
    check = validator if work == SchemaWork() else BoundedValidator(validator, work)
    return CompiledSchema(schema, check, _takes_text(read), _public_fields(read), _literal_fields(read))


def _reference_in(schema: Any, words: str) -> list[str] | None:
    """The path of the reference that an error speaks of: it names the reference, but not its place."""
    for path, part in located(schema):
        for key in REFERENCES:
            if isinstance(part.get(key), str) and part[key].lstrip("#") in words:
                return [*map(str, path), key]
    return None


def properties_of(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {name: rule for name, rule in properties.items() if isinstance(rule, Mapping)}


def defaults_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: rule["default"] for name, rule in properties_of(schema).items() if "default" in rule} or NO_DEFAULTS


def _takes_text(schema: Mapping[str, Any]) -> bool:
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    rules = properties_of(schema)
    numbers = all(rule.get("type") in ("integer", "number", "boolean", "null") for rule in rules.values())
    described = len(rules) == len(schema.get("properties") or {})  # the schema `true` is no rule, and allows all
    return not (closed and numbers and described)


def _literal_fields(schema: Mapping[str, Any]) -> frozenset[str]:
    """The names of the arguments that a schema marks as `x-literal`."""
    return frozenset(name for name, rule in properties_of(schema).items() if rule.get("x-literal") is True)


def _public_fields(schema: Mapping[str, Any]) -> frozenset[str]:
    """The names of the fields that a schema marks as `x-public`, at any depth."""
    return frozenset(
        name for _, part in located(schema) for name, rule in properties_of(part).items() if rule.get("x-public")
    )

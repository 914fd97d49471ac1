"""Checks one JSON or YAML document, by its syntax and by a JSON Schema, and says where it is wrong.

`validate_json` has this done in a process of its own: a schema and a document of others can keep a validator busy for hours
or exhaust its stack, and a thread can't be ended.
"""

import re
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from toolgate.jsontext import UNKNOWN_ARGUMENT, is_deeper, json_path, located_faults, valid_text
from toolgate.tools.parsers.json_reader import JsonReader, MalformedJson
from toolgate.yamltext import YamlError, read_yaml

MAX_FAULTS = 50
MAX_SCHEMA_DEPTH = 100
DRAFT = re.compile(r"https?://json-schema\.org/(?:draft/20(?:19-09|20-12)|draft-0[467])/schema#?\Z")

SourceFault = dict[str, Any]
Place = tuple[int, int]
"""Line and column."""


class LocatedDocument(NamedTuple):
    """A document that was read, and how the place of a part is found."""

    value: Any
    place: Callable[[list[Any]], Place | None]


def read_document(data: str, form: str, faults: list[SourceFault]) -> LocatedDocument | None:
    """Reads a document and notes what is wrong with it; None if it can't be read to its end."""
    return _read_yaml(data, faults) if form == "yaml" else _read_json(data, faults)


def _read_json(data: str, faults: list[SourceFault]) -> LocatedDocument | None:
    reader = JsonReader(data)
    try:
        reader.read()
    except MalformedJson as error:
        faults.append(_fault(error.parts, error.message, _line_column(data, error.offset)))
        return None
    faults += [_fault(one.parts, one.message, _line_column(data, one.offset)) for one in reader.repeated[:MAX_FAULTS]]
    return LocatedDocument(reader.value, lambda parts: _line_column(data, reader.offset_of(parts)))


def _read_yaml(data: str, faults: list[SourceFault]) -> LocatedDocument | None:
    try:
        read = read_yaml(data.encode())
    except YamlError as error:
        faults.append(_fault((), error.message, error.position))
        return None
    return LocatedDocument(read.value, lambda parts: read.position(tuple(parts)))


def _line_column(text: str, offset: int) -> Place:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _fault(parts: Any, message: str, place: Place | None) -> SourceFault:
    found: SourceFault = {"path": valid_text(json_path(parts)), "message": valid_text(message)}
    return found if place is None else {**found, "line": place[0], "column": place[1]}


# -- its schema


def check_schema(document: LocatedDocument, text: str, faults: list[SourceFault]) -> str | None:
    """Notes where the document does not fit its schema. Gives what is wrong with the schema itself, if anything is."""
    import jsonschema_rs

    read: list[SourceFault] = []
    schema = read_document(text, "json", read) or read_document(text, "yaml", [])
    if schema is None:
        return f"line {read[0]['line']}: {read[0]['message']}"
    if not isinstance(schema.value, dict | bool):
        return "it must be an object"
    named = schema.value.get("$schema", "") if isinstance(schema.value, dict) else ""
    if named and not (isinstance(named, str) and DRAFT.match(named)):
        return "its $schema is no known draft of JSON Schema"
    if is_deeper(schema.value, MAX_SCHEMA_DEPTH):
        return "it is nested too deeply"
    try:
        jsonschema_rs.meta.validate(schema.value)
        validator = jsonschema_rs.validator_for(schema.value, validate_formats=True, offline=True)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        return str(getattr(error, "message", error)).split("\n", 1)[0][:300]
    for parts, message in islice(located_faults(validator, document.value), MAX_FAULTS):
        words = "the schema does not allow this name" if message == UNKNOWN_ARGUMENT else message
        faults.append(_fault(parts, words, document.place(parts)))
    return None


def check(asked: dict[str, Any]) -> dict[str, Any]:
    """Checks {data, format, schema}; the schema is text, or None. `refusal`: what is wrong with the schema itself."""
    faults: list[SourceFault] = []
    document = read_document(asked["data"], asked["format"], faults)
    refusal = None
    if document is not None and asked["schema"] is not None:
        refusal = check_schema(document, asked["schema"], faults)
    return {"valid": not faults and refusal is None, "errors": faults[:MAX_FAULTS], "refusal": refusal}

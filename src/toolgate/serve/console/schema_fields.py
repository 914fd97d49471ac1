"""A JSON Schema as people read it: the rows of a table, and the fields of a form.

Schemas come from anybody. So what is shown is bounded, in depth and in number, and references are followed only within the
schema and never in a circle; what is beyond that is typed as JSON.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from urllib.parse import quote

import msgspec

MAX_DEPTH = 3
"""Objects within objects that have fields of their own."""
MAX_FIELDS = 60
MAX_ROWS, MAX_ROW_DEPTH = 200, 8
MAX_OPTIONS, MAX_TICKS = 200, 20
"""Values of an enum that are offered as a list, and as boxes to tick."""
MAX_REFERENCES = 20
SHORT_TEXT_CHARS = 200
Kind = Literal["text", "line", "number", "boolean", "choice", "ticks", "lines", "json", "group", "password"]
NUMERIC = ("integer", "number")
LINE_FORMATS = {"email": "email", "uri": "url", "url": "url", "date": "date", "time": "time"}
LIMITS = {
    "minLength": "at least {} characters", "maxLength": "at most {} characters", "pattern": "fits {}",
    "minimum": "at least {}", "maximum": "at most {}", "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}", "minItems": "at least {} items", "maxItems": "at most {} items", "format": "{}",
}  # fmt: skip


class ArgumentRow(msgspec.Struct, frozen=True):
    """An argument in the table."""

    name: str
    depth: int
    type: str
    required: bool
    description: str
    default: str
    limits: str


class ArgumentField(msgspec.Struct, frozen=True):
    """An argument in the form."""

    name: str
    """Its name in the form: the path of the argument as a JSON pointer; percent-encoded if not all of that is seen."""
    id: str
    label: str
    kind: Kind
    type: str
    """As the table has it."""
    required: bool
    description: str
    hint: str
    depth: int
    options: tuple[tuple[str, str], ...] = ()
    """JSON of each value, and the words for it."""
    fields: tuple["ArgumentField", ...] = ()
    schema_type: str = ""
    """Of numbers, and of the items of a list."""
    input: str = "text"


class Form(msgspec.Struct, frozen=True):
    """The fields of a schema; `rest`: how many arguments more there are, which are typed as one JSON object."""

    fields: tuple[ArgumentField, ...]
    rest: tuple[str, ...] = ()

    def all(self) -> Iterator[ArgumentField]:
        """Every field, groups before what is in them."""
        waiting = [*self.fields]
        while waiting:
            one = waiting.pop(0)
            yield one
            waiting[:0] = one.fields


class SchemaReader:
    """A schema whose references can be followed."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root

    def resolved(self, part: Any, seen: tuple[str, ...] = ()) -> tuple[dict[str, Any], tuple[str, ...], bool]:
        """A part without its reference and without null beside one type; the references that were followed, and whether it
        goes in a circle."""
        if not isinstance(part, Mapping):
            return {}, seen, False
        found = dict(part)
        for _ in range(MAX_REFERENCES):
            pointer = found.get("$ref")
            if isinstance(pointer, str):
                if pointer in seen:
                    return found, seen, True
                seen = (*seen, pointer)
                found = {**self._at(pointer), **{name: value for name, value in found.items() if name != "$ref"}}
                continue
            inner = _only_one(found)
            if inner is None:
                return found, seen, False
            found = {**inner, **{name: value for name, value in found.items() if name not in ("anyOf", "oneOf", "allOf")}}
        return {}, seen, True

    def _at(self, pointer: str) -> dict[str, Any]:
        place: Any = self.root
        if not pointer.startswith("#"):
            return {}
        for step in pointer[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            place = place.get(name) if isinstance(place, Mapping) else None
        return dict(place) if isinstance(place, Mapping) else {}


def _only_one(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """The one schema of anyOf, oneOf or allOf that is not null; None: there is none of them, or several."""
    for word in ("anyOf", "oneOf", "allOf"):
        listed = part.get(word)
        if isinstance(listed, list):
            some = [one for one in listed if not (isinstance(one, Mapping) and one.get("type") == "null")]
            return dict(some[0]) if len(some) == 1 and isinstance(some[0], Mapping) else None
    return None


def type_of(part: Mapping[str, Any]) -> str:
    """The one type of a part, null beside it not counted; empty: several, or none is said."""
    given = part.get("type")
    if isinstance(given, list):
        some = [one for one in given if one != "null"]
        return str(some[0]) if len(some) == 1 else ""
    if isinstance(given, str):
        return given
    return "object" if isinstance(part.get("properties"), Mapping) else ""


def values_of(part: Mapping[str, Any]) -> list[Any]:
    """The values that are allowed; none: all that fit."""
    if "const" in part:
        return [part["const"]]
    listed = part.get("enum")
    return listed if isinstance(listed, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _json(value: Any, limit: int = 200) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[:limit]}…"


def type_words(schema: SchemaReader, part: Mapping[str, Any], seen: tuple[str, ...]) -> str:
    """The type as people say it."""
    found = type_of(part)
    if values := values_of(part):
        return f"one of {len(values):,} values" if len(values) > 1 else "one value"
    if found == "array":
        items, _, _ = schema.resolved(part.get("items"), seen)
        inner = "values" if not items else type_words(schema, items, seen) if type_of(items) != "array" else "lists"
        return f"list of {inner}"
    words = {"string": "text", "integer": "whole number", "boolean": "yes or no"}.get(found, found)
    return words or (" or ".join(map(str, part["type"][:5])) if isinstance(part.get("type"), list) else "any value")


def limits_of(part: Mapping[str, Any]) -> str:
    """The limits of a value, in words."""
    told = [_counted(words, part[name]) for name, words in LIMITS.items() if name in part]
    if values := values_of(part):
        told.insert(0, ", ".join(_json(one, 60) for one in values[:12]) + (" …" if len(values) > 12 else ""))
    return "; ".join(told)


def _counted(words: str, value: Any) -> str:
    one = words.removesuffix("s") if value == 1 else words
    return one.format(_plain(value))


def _plain(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)[:200]


def _properties(part: Mapping[str, Any]) -> tuple[Mapping[str, Any], set[str]]:
    properties, required = part.get("properties"), part.get("required")
    needed = {one for one in required if isinstance(one, str)} if isinstance(required, list) else set()
    return properties if isinstance(properties, Mapping) else {}, needed


# -- the table


def rows_of(root: Mapping[str, Any]) -> tuple[list[ArgumentRow], int]:
    """The arguments with those within them, and how many are left out, where that is known."""
    rows: list[ArgumentRow] = []
    schema = SchemaReader(root)
    left_out = _rows(schema, root, (), 0, rows)
    return rows, left_out


def _rows(schema: SchemaReader, part: Mapping[str, Any], seen: tuple[str, ...], depth: int, rows: list[ArgumentRow]) -> int:
    properties, required = _properties(part)
    left_out = 0
    for name, given in properties.items():
        if len(rows) >= MAX_ROWS:
            left_out += 1
            continue
        found, followed, circular = schema.resolved(given, seen)
        words = "as above, again" if circular else type_words(schema, found, followed)
        default = _json(found["default"]) if "default" in found else ""
        rows.append(
            ArgumentRow(name, depth, words, name in required, _text(found.get("description")), default, limits_of(found))
        )
        if circular or depth >= MAX_ROW_DEPTH:
            continue
        within = found
        if type_of(found) == "array":
            within, followed, circular = schema.resolved(found.get("items"), followed)
        if not circular and type_of(within) == "object":
            left_out += _rows(schema, within, followed, depth + 1, rows)
    return left_out


# -- the form


def form_of(root: Mapping[str, Any]) -> Form:
    """The fields of a form. Where there are too many, required ones come first, and the others are typed as JSON."""
    schema = SchemaReader(root)
    found, seen, _ = schema.resolved(root)
    properties, required = _properties(found)
    names = [*properties]
    if len(names) > MAX_FIELDS:
        names.sort(key=lambda name: name not in required)
    counted = [0]
    fields = []
    while names and counted[0] < MAX_FIELDS:
        name = names.pop(0)
        fields.append(_field(schema, name, properties[name], name in required, "", seen, 0, counted))
    return Form(tuple(fields), tuple(names))


def _field(
    schema: SchemaReader,
    name: str,
    given: Any,
    required: bool,
    within: str,
    seen: tuple[str, ...],
    depth: int,
    counted: list[int],
) -> ArgumentField:
    counted[0] += 1
    part, followed, circular = schema.resolved(given, seen)
    kind: Kind = "json" if circular else _kind(schema, part, followed)
    path = f"{within}/{name.replace('~', '~0').replace('/', '~1')}"
    number = counted[0]
    fields: tuple[ArgumentField, ...] = ()
    if kind == "group":
        properties, needed = _properties(part)
        if depth + 1 >= MAX_DEPTH or counted[0] + len(properties) > MAX_FIELDS:
            kind = "json"
        else:
            fields = tuple(
                _field(schema, one, inner, one in needed, path, followed, depth + 1, counted)
                for one, inner in properties.items()
            )
    items = schema.resolved(part.get("items"), followed)[0] if type_of(part) == "array" else part
    return ArgumentField(
        name=_form_name(path), id=f"a{number}", label=name, kind=kind,
        type=type_words(schema, part, followed), required=required,
        description=_text(part.get("description")), hint=_hint(part), depth=depth,
        options=_options(items) if kind in ("choice", "ticks") else (), fields=fields, schema_type=type_of(items),
        input=LINE_FORMATS.get(_text(part.get("format")), "text"),
    )  # fmt: skip


def _form_name(path: str) -> str:
    return path if path.isascii() and path.isprintable() else quote(path, safe="/~")


def _kind(schema: SchemaReader, part: Mapping[str, Any], seen: tuple[str, ...]) -> Kind:
    found, values = type_of(part), values_of(part)
    if values:
        return "choice" if len(values) <= MAX_OPTIONS else "line" if _are_texts(values) else "json"
    if found == "array":
        items, _, circular = schema.resolved(part.get("items"), seen)
        allowed = values_of(items)
        if circular or (allowed and not _are_texts(allowed)):
            return "json"
        if allowed and len(allowed) <= MAX_TICKS:
            return "ticks"
        return "lines" if type_of(items) in ("string", *NUMERIC) else "json"
    if found == "object":
        return "group" if part.get("properties") else "json"
    if found == "string":
        return _text_kind(part)
    return "boolean" if found == "boolean" else "number" if found in NUMERIC else "json"


def _text_kind(part: Mapping[str, Any]) -> Kind:
    if part.get("format") == "password" or part.get("writeOnly") is True:
        return "password"
    longest = part.get("maxLength")
    is_short = isinstance(longest, int) and longest <= SHORT_TEXT_CHARS
    return "line" if is_short or part.get("format") in LINE_FORMATS else "text"


def _are_texts(values: list[Any]) -> bool:
    return all(isinstance(one, str) for one in values)


def _options(part: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((json.dumps(one), one if isinstance(one, str) else _json(one, 80)) for one in values_of(part))


def _hint(part: Mapping[str, Any]) -> str:
    default = f"without it {_json(part['default'], 80)}" if part.get("default") is not None else ""
    limits = "" if values_of(part) and len(values_of(part)) <= MAX_OPTIONS else limits_of(part)
    return "; ".join(one for one in (limits, default) if one)

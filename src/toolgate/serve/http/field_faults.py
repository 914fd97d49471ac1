"""A field of a request that is wrong, in a sentence: which field it is, and what it may be.

msgspec says what it found in words of its own types (Expected `str` of length >= 1 - at `$.q[0]`), not what would be right.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import inspect

MAX_SAID_CHARS = 500
"""Of msgspec's own message: it quotes names and values of the request."""
MAX_NAMED = 20
"""Values or fields that are listed in one message."""
TYPES = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
    "object": "an object", "null": "null", "datetime": "an instant such as 2026-11-01T00:00:00Z",
}  # fmt: skip
BACKSLASH = "\\"
BACKSLASHES = 2 * BACKSLASH
"""A backslash of a pattern, as msgspec quotes it."""
ITEMS = {"str": "character", "array": "item", "object": "field"}
LIMITS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}

PLACE = re.compile(r"(?s)(.*?) - at (?:`(key)` in )?`\$([^`]*)`")
STEP = re.compile(r"\.([^.\[\]]+)|\[(?:\d+|\.\.\.)\]")
UNKNOWN = re.compile(r"(?s)Object contains unknown field `(.+)`")
MISSING = re.compile(r"Object missing required field `([^`]+)`")
TYPE = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
LENGTH = re.compile(r"Expected `(str|array|object)` of length (>=|<=) (\d+)")
AMOUNT = re.compile(r"Expected `(?:int|float)` (>=|<=|>|<) (-?[\d.e+]+)")
PATTERN = re.compile(r"(?s)Expected `str` matching regex '(.+)'")


def fault_of(error: msgspec.ValidationError, kind: type[msgspec.Struct]) -> str:
    """Says what is wrong with a body or query of a kind; without a full stop."""
    said = str(error)
    if len(said) > MAX_SAID_CHARS or not said.isprintable():
        return "a field is wrong"
    placed = PLACE.fullmatch(said)
    words, key, path = (placed[1], placed[2], placed[3]) if placed else (said, None, "")
    name = path.removeprefix(".")
    if found := UNKNOWN.fullmatch(words):
        known = _listed(_field_names(_types_at(kind, path)))
        return f"unknown field `{found[1]}`{_within(name)}" + (f"; the fields are {known}" if known else "")
    if found := MISSING.fullmatch(words):
        return f"the field `{found[1]}`{_within(name)} is missing"
    subject = f"a key of `{name}`" if key else f"`{name}`" if name else "it"
    if words.startswith("Invalid enum value "):
        allowed = _listed(_values(_types_at(kind, path)))
        return f"{subject} must be one of {allowed}" if allowed else f"{subject} has a value that it cannot have"
    return f"{subject} {_requirement(words)}"


def _requirement(words: str) -> str:
    """What a value must be; what is not known here stays as msgspec says it."""
    if found := TYPE.fullmatch(words):
        wanted = [TYPES.get(one, one) for one in found[1].split(" | ") if one != "null"]
        return f"must be {' or '.join(wanted) or 'null'}, not {TYPES.get(found[2], found[2])}"
    if found := LENGTH.fullmatch(words):
        item = ITEMS[found[1]] if found[3] == "1" else f"{ITEMS[found[1]]}s"
        return f"must have {LIMITS[found[2]]} {int(found[3]):,} {item}"
    if found := AMOUNT.fullmatch(words):
        return f"must be {LIMITS[found[1]]} {found[2].removesuffix('.0')}"
    if found := PATTERN.fullmatch(words):
        return f"must match the pattern {found[1].replace(BACKSLASHES, BACKSLASH)}"
    if "RFC3339" in words or "`datetime`" in words:
        return f"must be {TYPES['datetime']}"
    return f"is wrong: {words[0].lower()}{words[1:]}"


def _within(name: str) -> str:
    return f" in `{name}`" if name else ""


def _listed(names: Iterable[str]) -> str:
    known = list(names)
    return ", ".join(known[:MAX_NAMED]) + (f" and {len(known) - MAX_NAMED} more" if len(known) > MAX_NAMED else "")


# -- what the kind of the request has at a place


def _types_at(kind: type[msgspec.Struct], path: str) -> list[inspect.Type]:
    """The types that the value at a path may have. Of several that a step could lead to, it leads to all."""
    types = list(_alternatives(inspect.type_info(kind)))
    for step in STEP.finditer(path):
        types = [one for outer in types for inner in _inner(outer, step[1]) for one in _alternatives(inner)]
    return types


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.Metadata):
        yield from _alternatives(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _alternatives(one)
    else:
        yield kind


def _inner(kind: inspect.Type, field: str | None) -> Iterator[inspect.Type]:
    if field is not None and isinstance(kind, inspect.StructType):
        yield from (one.type for one in kind.fields if one.encode_name == field)
    elif field is None and isinstance(kind, inspect.CollectionType):
        yield kind.item_type
    elif field is None and isinstance(kind, inspect.DictType):
        yield kind.value_type


def _field_names(types: Iterable[inspect.Type]) -> list[str]:
    return [field.encode_name for one in types if isinstance(one, inspect.StructType) for field in one.fields]


def _values(types: Iterable[inspect.Type]) -> list[str]:
    return [str(value) for one in types if isinstance(one, inspect.LiteralType) for value in one.values]

"""JSON as all steps see it: what is none, how a place in a value is written, and what a schema finds wrong with one.

Words about a value never quote it: it may be a secret, and whoever sent it has it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from json import JSONEncoder
from typing import Any, NamedTuple

import orjson

_strictly = JSONEncoder(allow_nan=False, check_circular=False).encode
MAX_JSON_DEPTH = 254
"""Levels that orjson writes."""
MAX_DEFINITION_DEPTH = 128
"""Levels of a tool's definition: a schema takes two for each level of the values it describes."""
MAX_SCHEMA_FAULTS = 20
MAX_PATH_CHARS = 200
MAX_MESSAGE_CHARS = 300
MANY_BYTES, MANY_VALUES = 200_000, 5_000
"""Of a larger value only the first fault is looked for: to find all of them could take seconds."""
MAX_JSON_VALUES = 300_000
"""Of one message."""
NOT_A_NUMBER = "is NaN or infinite, which JSON has no word for"
JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", tuple: "array", dict: "object"}


class ValueFault(NamedTuple):
    """One thing that is wrong with a value: where, and what."""

    path: str
    message: str


# -- places


def json_path(parts: Iterable[Any]) -> str:
    """`rows[3].name`, from the parts of a path."""
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
        if len(path) > MAX_PATH_CHARS:
            return path[:MAX_PATH_CHARS] + "…"
    return path


def _search(value: Any, wrong: Callable[[Any], str | None], depth: int = 0) -> tuple[str, list[Any]] | None:
    """Finds the first part of a value that has something wrong: what it is, and the way back from it."""
    words = wrong(value) if depth <= MAX_JSON_DEPTH else f"is nested more than {MAX_JSON_DEPTH} levels deep"
    if words is not None:
        return words, []
    children: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list | tuple):
        children = enumerate(value)
    for key, part in children:
        found = _search(part, wrong, depth + 1)
        if found is not None:
            found[1].append(key)
            return found
    return None


def _first(value: Any, wrong: Callable[[Any], str | None]) -> ValueFault | None:
    found = _search(value, wrong)
    return ValueFault(json_path(_printable(part) for part in reversed(found[1])), found[0]) if found else None


def _printable(part: Any) -> Any:
    return part if isinstance(part, int) else str(part)[: MAX_PATH_CHARS + 1].encode(errors="backslashreplace").decode()


# -- values


def valid_text(text: str) -> str:
    """Text that can be written as UTF-8: half of a surrogate pair is written out."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def with_texts(value: Any, change: Callable[[str], str], *, names: bool = False) -> Any:
    """A JSON value with every text in it changed, at any depth; `names`: those of fields as well."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key) if names else key: with_texts(part, change, names=names) for key, part in value.items()}
    return [with_texts(part, change, names=names) for part in value] if isinstance(value, list | tuple) else value


def texts_in(value: Any) -> Iterator[str]:
    """Every text in a JSON value, at any depth; no names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from texts_in(part)


def holds_too_much(text: bytes, most: int = MAX_JSON_VALUES) -> bool:
    """Tells whether JSON holds more values than are read: told by what stands between them, other than in texts."""
    if len(text) <= most or _marks(text) <= most:
        return False
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > most * 4:  # two for each text, and of texts at most every other one is a field's name
        return True
    return _marks(b"".join(plain.split(b'"')[::2])) > most


def _marks(text: bytes) -> int:
    return sum(text.count(mark) for mark in (b",", b"[", b"{"))


def is_deeper(value: Any, levels: int) -> bool:
    """Tells whether a value is nested deeper than so many levels. It calls nothing that calls itself, for any depth."""
    waiting = [value]
    for _ in range(levels + 1):
        inner: dict[int, Any] = {}
        for part in waiting:
            held = part.values() if isinstance(part, Mapping) else part if isinstance(part, list | tuple) else ()
            inner.update((id(one), one) for one in held)  # each once: what is shared would count again and again
        if not inner:
            return False
        waiting = list(inner.values())
    return True


def find_nan(value: Any) -> str | None:
    """The path of a number that is none (orjson writes it as null), or None."""
    try:
        _strictly(value)  # far quicker than to look by hand, which only has to say where it is
        return None
    except (ValueError, TypeError, RecursionError):
        pass
    found = _first(value, _not_a_number)
    return None if found is None else found.path


def find_not_json(value: Any) -> ValueFault | None:
    """The first part of a value that JSON can't hold."""
    return _first(value, _not_json)


def _not_a_number(value: Any) -> str | None:
    return NOT_A_NUMBER if isinstance(value, float) and value - value != 0 else None


def _not_json(value: Any) -> str | None:
    kind = type(value)
    if kind is str:
        return (
            None if value.isascii() or _is_unicode(value) else "holds half of a surrogate pair, which is not valid Unicode"
        )
    if kind is int:
        return None if -(2**63) <= value < 2**64 else "is an integer of more than 64 bits; send it as text"
    if kind is float:
        return _not_a_number(value)
    if kind is dict:
        if all(type(key) is str and _is_unicode(key) for key in value):
            return None
        return "has a name that is not text, or not valid Unicode"
    return None if kind in (bool, list, tuple) or value is None else f"is a {kind.__name__}, which JSON has no word for"


def _is_unicode(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


# -- schemas


def schema_faults(validator: Any, value: Any, *, every: bool = True) -> list[ValueFault]:
    """The faults that a compiled schema finds, at most MAX_SCHEMA_FAULTS. Finding every fault takes microseconds for each
    there is, shown or not; `every=False` stops at the first."""
    words = (ValueFault(json_path(where), message) for where, message in located_faults(validator, value, every=every))
    return list(islice(words, MAX_SCHEMA_FAULTS))


def located_faults(validator: Any, value: Any, *, every: bool = True) -> Iterator[tuple[list[Any], str]]:
    """The faults that a compiled schema finds, each with the parts of its path."""
    for error in _errors(validator, value, every):
        for where, message in _explain(error, value):
            yield where, _short(message)


def _errors(validator: Any, value: Any, every: bool) -> Iterator[Any]:
    if every:
        yield from validator.iter_errors(value)
        return
    try:
        validator.validate(value)
    except ValueError as error:
        yield error


def _short(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARS else text[:MAX_MESSAGE_CHARS] + "…"


def _explain(error: Any, whole: Any) -> Iterator[tuple[list[Any], str]]:
    kind, where = error.kind, _names(whole, error.instance_path)
    name = kind.name
    if name == "required":
        yield [*where, kind.property], "is required"
    elif name in ("additionalProperties", "unevaluatedProperties"):
        yield from (([*where, key], UNKNOWN_ARGUMENT) for key in kind.unexpected)
    elif name == "falseSchema" and list(error.schema_path)[-1:] == ["additionalProperties"]:
        yield from (([*where, key], UNKNOWN_ARGUMENT) for key in _at(whole, where))
    elif name in ("anyOf", "oneOf"):
        yield from _explain_choice(kind, where, whole)
    else:
        yield where, _words(kind, _at(whole, where))


UNKNOWN_ARGUMENT = "unknown argument"


def _explain_choice(kind: Any, where: list[Any], whole: Any) -> Iterator[tuple[list[Any], str]]:
    """Of several schemas none fits. Where all but one ask for another type altogether, that one says what is wrong."""
    branches = [branch for branch in kind.context if branch]
    types: list[str] = []
    others = []
    for branch in branches:
        first = branch[0]
        if len(branch) == 1 and first.kind.name == "type" and _names(whole, first.instance_path) == where:
            types += first.kind.types
        else:
            others.append(branch)
    if len(others) == 1 and len(branches) > 1:
        for error in others[0]:
            yield from _explain(error, whole)
    elif branches and not others:
        yield where, _type_words(types, _at(whole, where))
    elif branches:
        yield where, f"fits none of the {len(branches)} forms that the schema allows"
    else:
        yield where, "fits more than one of the forms of which the schema allows exactly one"


def _words(kind: Any, value: Any) -> str:
    if kind.name == "type":
        return _type_words(kind.types, value)
    if kind.name == "enum":
        return f"must be one of {orjson.dumps(kind.options).decode()[1:-1]}"
    if kind.name == "propertyNames":
        return f"has a name that {_words(kind.error.kind, '')}"
    words = FAULT_MESSAGES.get(kind.name)
    return words.format(**kind.as_dict()) if words else f"does not fit the schema's {kind.name!r}"


def _type_words(types: Sequence[str], value: Any) -> str:
    return f"must be of type {' or '.join(dict.fromkeys(types))}, not {JSON_TYPES.get(type(value), 'null')}"


def _at(value: Any, where: Iterable[Any]) -> Any:
    """The value at a place, or as near to it as can be told: a validator's path leaves out empty names."""
    for part in where:
        try:
            value = value[part]
        except (LookupError, TypeError):
            break
    return value


def _names(value: Any, where: Iterable[Any]) -> list[Any]:
    """A validator's path, in which a name of digits is no number."""
    found: list[Any] = []
    for part in where:
        found.append(str(part) if isinstance(value, dict) and str(part) in value else part)
        value = _at(value, found[-1:])
    return found


FAULT_MESSAGES = {
    "unfit": "{message}",
    "const": "must be {expected_value!r}",
    "pattern": "does not match the pattern {pattern}",
    "format": "is not a valid {format}",
    "minLength": "must have at least {limit} characters",
    "maxLength": "must have at most {limit} characters",
    "minItems": "must have at least {limit} items",
    "maxItems": "must have at most {limit} items",
    "minProperties": "must have at least {limit} names",
    "maxProperties": "must have at most {limit} names",
    "minimum": "must be {limit} or more",
    "maximum": "must be {limit} or less",
    "exclusiveMinimum": "must be more than {limit}",
    "exclusiveMaximum": "must be less than {limit}",
    "multipleOf": "must be a multiple of {multiple_of}",
    "uniqueItems": "has items that are the same",
    "contains": "has too few or too many items of the kind that the schema asks for",
    "falseSchema": "is not allowed",
    "not": "is what the schema excludes",
}

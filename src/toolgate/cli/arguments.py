"""Arguments of a call as a person writes them: `key=value`, `key:=JSON`, and `--args` with a whole object.

`key=value` means what the tool's schema says of `key`: text is taken as it stands, anything else is read as JSON. What
can't be read so is passed on as text, and the schema says what is wrong with it, as it does at every door.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from toolgate.app import App
from toolgate.cli.opening import Usage, entry_named
from toolgate.model import Actor

MOST_BYTES = 64 * 1024 * 1024
"""What is read of a file or of stdin. How much a call may have is the pipeline's business, and less."""
_INTEGER = re.compile(r"-?[0-9]{1,4000}\Z")


class Given(NamedTuple):
    """One argument, not yet read: whether its value is text or JSON depends on the schema, unless it must be JSON."""

    key: str
    text: str
    must_be_json: bool


def split(word: str) -> Given:
    """A word of the command line."""
    key, equals, text = word.partition("=")
    forced = key.endswith(":")
    key = key.removesuffix(":")
    if not equals or not key:
        raise Usage(
            f"{word!r:.80} is not an argument.",
            suggestion="Write key=value, key:=JSON, or pass all arguments with --args JSON.",
        )
    return Given(key, text, forced)


def read_object(source: str, option: str = "--args") -> dict[str, Any]:
    """The object that an option names: JSON, `@file`, or `-` for stdin."""
    text = _content(source, option)
    try:
        read = orjson.loads(text.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise Usage(f"{option} is not JSON: {error}.") from None
    if not isinstance(read, dict):
        raise Usage(f"{option} must be a JSON object, not {_kind(read)}.", suggestion="""Write it as '{"key": "value"}'.""")
    return read


def _content(source: str, option: str) -> bytes:
    try:
        if source == "-":
            text = sys.stdin.buffer.read(MOST_BYTES + 1) if sys.stdin is not None else b""
        elif source.startswith("@"):
            with Path(source[1:]).open("rb") as file:
                text = file.read(MOST_BYTES + 1)
        else:
            text = source.encode("utf-8", "surrogatepass")
    except OSError as error:
        raise Usage(f"{option} can't be read: {error.strerror or error}: {source[1:] or 'stdin'}.") from None
    if len(text) > MOST_BYTES:
        raise Usage(f"{option} has more than {MOST_BYTES:,} bytes.")
    return text


def schema_of(app: App, tool: str, actor: Actor) -> Mapping[str, Any]:
    """What a tool says of its arguments; nothing if there is no such tool, which the pipeline will say."""
    entry = entry_named(app, tool, actor)
    return {} if entry is None else entry.tool.input_schema


def merge(whole: Mapping[str, Any], words: Iterable[Given], schema: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments; what is given by key wins."""
    return {**whole, **{given.key: _value(given, schema) for given in words}}


def _value(given: Given, schema: Mapping[str, Any]) -> Any:
    if given.must_be_json:
        try:
            return _json(given.text)
        except ValueError as error:
            raise Usage(f"{given.key}:= is not followed by JSON: {error}.", suggestion="Write key=value for text.") from None
    if "string" in types_of(_rule(given.key, schema), schema):
        return given.text
    try:
        return _json(given.text)
    except ValueError:
        return given.text


def _json(text: str) -> Any:
    """A long whole number stays one (orjson would make a float of it), so that the pipeline can say that it is too long."""
    return int(text) if _INTEGER.match(text) else orjson.loads(text)


def _rule(key: str, schema: Mapping[str, Any]) -> Any:
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        return properties[key]
    return schema.get("additionalProperties")


def types_of(rule: Any, schema: Mapping[str, Any], depth: int = 0) -> set[str]:
    """The JSON types that a rule names, through unions and references; none if it names none."""
    if not isinstance(rule, Mapping) or depth > 8:
        return set()
    named = rule.get("type", ())
    found = {named} if isinstance(named, str) else set(named)
    found |= {"string" for value in (*rule.get("enum", ()), rule.get("const")) if isinstance(value, str)}
    parts = [part for word in ("anyOf", "oneOf", "allOf") for part in rule.get(word, ())]
    reference = rule.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        parts.append(schema.get("$defs", {}).get(reference.removeprefix("#/$defs/")))
    return found.union(*(types_of(part, schema, depth + 1) for part in parts))


def _kind(value: Any) -> str:
    return {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(type(value), "a number")

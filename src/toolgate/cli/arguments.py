"""Arguments of a call as a person writes them: `key=value`, `key:=JSON`, `key=@FILE`, and `--args` with a whole object.

`key=value` means what the tool's schema says of `key`: text is taken as it stands, anything else is read as JSON. What
can't be read so is passed on as text, and the schema says what is wrong with it, as it does at every door. `key=@FILE` is
the text of a file, `key=@-` of stdin; `@@` begins a text with an at sign. A key may be a path: see `paths`.

Only the command line is read so. What comes through another door is a JSON object, and `@` in it is an at sign.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from toolgate.app.app import App
from toolgate.cli.context import Usage, entry_named
from toolgate.cli.paths import place, rule_at, steps_of, types_of
from toolgate.model import Actor

MOST_BYTES = 64 * 1024 * 1024
"""What is read of a file or of stdin. How much a call may have is the pipeline's business, and less."""
STDIN = "-"
BOM = b"\xef\xbb\xbf"
_INTEGER = re.compile(r"-?[0-9]{1,4000}\Z")


class Given(NamedTuple):
    """One argument, not yet read: whether its value is text or JSON depends on the schema, unless it must be JSON."""

    key: str
    text: str
    must_be_json: bool


def read_words(words: Iterable[str], args: str | None) -> tuple[list[Given], dict[str, Any] | None]:
    """The arguments of a command line: those by key, and the object of `--args`. Stdin is there for one of them."""
    split_words = [split(word) for word in words]
    named = [f"{given.key}=@-" for given in split_words if given.text == f"@{STDIN}"]
    if args == STDIN:
        named.append("--args -")
    if len(named) > 1:
        raise Usage(f"Stdin can be read once, but is asked for by {' and '.join(named[:3])}.")
    given = [one._replace(text=_text(one)) for one in split_words]
    return given, None if args is None else read_object(args)


def split(word: str) -> Given:
    """A word of the command line."""
    key, equals, text = word.partition("=")
    forced = key.endswith(":")
    key = key.removesuffix(":")
    if not equals or not key:
        raise Usage(
            f"{word!r:.80} is not an argument.",
            suggestion="Write key=value, key:=JSON, key=@FILE, or pass all arguments with --args JSON.",
        )
    return Given(key, text, forced)


def _text(given: Given) -> str:
    """The value as it was typed, or what the file that it names holds."""
    if not given.text.startswith("@"):
        return given.text
    if given.text.startswith("@@"):
        return given.text[1:]
    if given.text == "@":
        raise Usage(
            f"{given.key}=@ names no file.", suggestion=f"Write {given.key}=@FILE, or {given.key}=@@ for an at sign."
        )
    name = given.text[1:]
    try:
        content = _read(None if name == STDIN else Path(name))
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        raise Usage(
            f"{given.key}=@{name:.200} can't be read: {getattr(error, 'strerror', None) or error}.",
            suggestion=f"Paths are relative to the folder you are in. For a text that begins with @, write {given.key}=@@…",
        ) from None
    if len(content) > MOST_BYTES:
        raise Usage(f"{given.key}=@{name:.200} has more than {MOST_BYTES:,} bytes.")
    try:
        text = content.removeprefix(BOM).decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise Usage(
            f"{given.key}=@{name:.200} is not text in UTF-8.",
            suggestion="An argument is JSON, which holds no bytes: encode them, for example with base64.",
        )
    return text


def _read(path: Path | None) -> bytes:
    """The beginning of a file or of stdin, one byte more than may be read."""
    if path is None:
        return sys.stdin.buffer.read(MOST_BYTES + 1) if sys.stdin is not None else b""
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def read_object(source: str, option: str = "--args") -> dict[str, Any]:
    """The object that an option names: JSON, `@file`, or `-` for stdin."""
    text = _content(source, option)
    try:
        read = orjson.loads(text.removeprefix(BOM))
    except orjson.JSONDecodeError as error:
        raise Usage(f"{option} is not JSON: {error}.") from None
    if not isinstance(read, dict):
        raise Usage(f"{option} must be a JSON object, not {_kind(read)}.", suggestion="""Write it as '{"key": "value"}'.""")
    return read


def _content(source: str, option: str) -> bytes:
    try:
        if source == STDIN or source.startswith("@"):
            text = _read(None if source == STDIN else Path(source[1:]))
        else:
            text = source.encode("utf-8", "surrogatepass")
    except (OSError, ValueError) as error:
        raise Usage(
            f"{option} can't be read: {getattr(error, 'strerror', None) or error}: {source[1:] or 'stdin'}."
        ) from None
    if len(text) > MOST_BYTES:
        raise Usage(f"{option} has more than {MOST_BYTES:,} bytes.")
    return text


def schema_of(app: App, tool: str, actor: Actor) -> Mapping[str, Any]:
    """What a tool says of its arguments; nothing if there is no such tool, which the pipeline will say."""
    entry = entry_named(app, tool, actor)
    return {} if entry is None else entry.tool.input_schema


def merge(whole: Mapping[str, Any], words: Iterable[Given], schema: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments; what is given by key wins."""
    merged = dict(whole)
    for given in words:
        steps = steps_of(given.key, schema)
        place(merged, steps, _value(given, rule_at(steps, schema), schema), given.key)
    return merged


def _value(given: Given, rule: Any, schema: Mapping[str, Any]) -> Any:
    if given.must_be_json:
        try:
            return _json(given.text)
        except ValueError as error:
            raise Usage(f"{given.key}:= is not followed by JSON: {error}.", suggestion="Write key=value for text.") from None
    if "string" in types_of(rule, schema):
        return given.text
    try:
        return _json(given.text)
    except ValueError:
        return given.text


def _json(text: str) -> Any:
    """A long whole number stays one (orjson would make a float of it), so that the pipeline can say that it is too long."""
    return int(text) if _INTEGER.match(text) else orjson.loads(text)


def _kind(value: Any) -> str:
    return {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(type(value), "a number")

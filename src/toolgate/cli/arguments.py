"""Arguments of a call as a person writes them: `key=value`, `key:=JSON`, `key=@FILE`, and `--args` with a whole object.

`key=value` means what the tool's schema says of `key`: text is taken as it stands, anything else is read as JSON. What
cannot be read so is passed on as text, and the schema says what is wrong with it, as it does at every door. `key=@FILE` is
the text of a file, `key=@-` of stdin; `@@` begins a text with an at sign. A key may be a path:
`a.b=x` is a member of an object, `a[]=x` one more item of a list, `a[0]=x` or `a.0=x` the first.

Only the command line is read so. What comes through another door is a JSON object, and `@` in it is an at sign.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from toolgate.app.app import App
from toolgate.cli.context import Usage, entry_named
from toolgate.cli.files import MAX_INPUT_BYTES, STDIN, content_of, json_of
from toolgate.model import Actor
from toolgate.schema import CHOICES, refer_strictly, same_value

_INTEGER = re.compile(r"-?[0-9]{1,4000}\Z")


class RawArgument(NamedTuple):
    """One argument, not yet read: whether its value is text or JSON depends on the schema, unless it must be JSON."""

    key: str
    text: str
    must_be_json: bool


def read_words(words: Iterable[str], args: str | None) -> tuple[list[RawArgument], dict[str, Any] | None]:
    """The arguments of a command line: those by key, and the object of `--args`. Stdin is there for one of them."""
    split_words = [split(word) for word in words]
    named = [f"{given.key}=@-" for given in split_words if given.text == f"@{STDIN}"]
    if args == STDIN:
        named.append("--args -")
    if len(named) > 1:
        raise Usage(f"Stdin can be read once, but is asked for by {' and '.join(named[:3])}.")
    given = [one._replace(text=_text(one)) for one in split_words]
    return given, None if args is None else read_object(args)


def split(word: str) -> RawArgument:
    """A word of the command line."""
    key, equals, text = word.partition("=")
    forced = key.endswith(":")
    key = key.removesuffix(":")
    if not equals or not key:
        raise Usage(
            f"{word!r:.80} is not an argument.",
            suggestion="Write key=value, key:=JSON, key=@FILE, or pass all arguments with --args JSON.",
        )
    return RawArgument(key, text, forced)


def _text(given: RawArgument) -> str:
    """The value as it was typed, or what the file that it names holds."""
    if not given.text.startswith("@"):
        return given.text
    if given.text.startswith("@@"):
        return given.text[1:]
    if given.text == "@":
        raise Usage(
            f"{given.key}=@ names no file.", suggestion=f"Write {given.key}=@FILE, or {given.key}=@@ for an at sign."
        )
    what = f"{given.key}={given.text}"
    advice = f"Paths are relative to the folder you are in. For a text that begins with @, write {given.key}=@@…"
    try:
        text = content_of(given.text[1:], what, advice=advice).decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise Usage(
            f"{what:.200} is not text in UTF-8.",
            suggestion="An argument is JSON, which holds no bytes: encode them, for example with base64.",
        )
    return text


def read_object(source: str, option: str = "--args") -> dict[str, Any]:
    """The object that an option names: JSON, `@file`, or `-` for stdin."""
    if source == STDIN or source.startswith("@"):
        content = content_of(STDIN if source == STDIN else Path(source[1:]), f"{option} {source}")
    else:
        content = source.encode("utf-8", "surrogatepass")
    if len(content) > MAX_INPUT_BYTES:
        raise Usage(f"{option} has more than {MAX_INPUT_BYTES:,} bytes.")
    read = json_of(content, option)
    if not isinstance(read, dict):
        raise Usage(f"{option} must be a JSON object, not {_kind(read)}.", suggestion="""Write it as '{"key": "value"}'.""")
    return read


def schema_of(app: App, tool: str, actor: Actor) -> Mapping[str, Any]:
    """The schema of a tool's arguments; empty if there is no such tool, which the pipeline will say."""
    entry = entry_named(app, tool, actor)
    return {} if entry is None else entry.tool.input_schema


def merge(whole: Mapping[str, Any], words: Iterable[RawArgument], schema: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments; what is given by key wins."""
    merged = dict(whole)
    for given in words:
        steps = steps_of(given.key, schema)
        place(merged, steps, _value(given, rule_at(steps, schema), schema), given.key)
    return merged


def _value(given: RawArgument, rule: Any, schema: Mapping[str, Any]) -> Any:
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


# -- keys that are paths
#
# A name that stands in the tool's schema is taken as it stands there, dots and brackets included; `\\.` and `\\[` are never
# part of a path.

MAX_STEPS = 32
NEXT: Final = -1
"""The step to one item more than a list has."""
Step = str | int
_STEP = re.compile(r"((?:[^.\[\\]|\\.|\\\Z)+)|\[([0-9]{0,9})\]")
_ESCAPED = re.compile(r"\\([.\[\\])")


def steps_of(key: str, schema: Mapping[str, Any]) -> list[Step]:
    """The steps to which a key leads: names of members and numbers of items, the first of which is a name."""
    rule: Any = schema
    steps: list[Step] = []
    rest = key
    while rest:
        if len(steps) == MAX_STEPS:
            raise Usage(f"{key[:80]}… leads more than {MAX_STEPS} steps into an argument.")
        step, rest = _first(rest, key, rule, schema, first=not steps)
        steps.append(step)
        rule = _below(rule, step, schema)
    return steps


def rule_at(steps: Sequence[Step], schema: Mapping[str, Any]) -> Any:
    """The rule of the schema for the value that steps lead to."""
    rule: Any = schema
    for step in steps:
        rule = _below(rule, step, schema)
    return rule


def place(value: dict[str, Any], steps: Sequence[Step], put: Any, key: str) -> None:
    """Put something where steps lead, making the objects and lists on the way."""
    holder: Any = value
    for number, step in enumerate(steps):
        if not isinstance(holder, list if isinstance(step, int) else dict):
            kind = "a list" if isinstance(step, int) else "an object"
            raise Usage(f"{key[:80]}: what it leads into is given as something else than {kind}.")
        if isinstance(step, int) and step > len(holder):
            raise Usage(
                f"{key[:80]}: the list has only {len(holder)} items before it.", suggestion="Begin with [0], or use []."
            )
        last = number == len(steps) - 1
        made = put if last else [] if isinstance(steps[number + 1], int) else {}
        holder = _put(holder, step, made, keep=not last)


def _put(holder: Any, step: Step, made: Any, *, keep: bool) -> Any:
    """The member or item that is there, or else, and without `keep`, what was made for it."""
    if isinstance(step, int) and (step == NEXT or step == len(holder)):
        holder.append(made)
    elif not keep or (isinstance(step, str) and step not in holder):
        holder[step] = made
    return holder[step]


def _first(rest: str, key: str, rule: Any, schema: Mapping[str, Any], *, first: bool) -> tuple[Step, str]:
    """The step with which a path begins, and what follows it."""
    if not rest.startswith("["):
        known = _longest(rest, _names(rule, schema))
        if known is not None:
            return known, _after(rest[len(known) :], key)
    found = _STEP.match(rest)
    if found is None or (first and found[1] is None):
        raise Usage(f"{key!r:.80} is not a path to an argument.", suggestion=r"Write a.b or a[0]; \. and \[ are no path.")
    after = _after(rest[found.end() :], key)
    if found[1] is None:
        return int(found[2]) if found[2] else NEXT, after
    types = types_of(rule, schema)
    if found[1].isdecimal() and found[1].isascii() and len(found[1]) < 10 and "array" in types and "object" not in types:
        return int(found[1]), after
    return _ESCAPED.sub(r"\1", found[1]), after


def _longest(rest: str, names: set[str]) -> str | None:
    """The longest name with which a path begins."""
    fitting = [name for name in names if name and rest.startswith(name) and rest[len(name) :][:1] in ("", ".", "[")]
    return max(fitting, key=len, default=None)


def _after(rest: str, key: str) -> str:
    """The text after a step, without the dot between them."""
    if rest.startswith("[") or not rest:
        return rest
    if len(rest) == 1 or rest[0] != "." or rest[1] in ".[":
        raise Usage(f"{key!r:.80} is not a path to an argument.", suggestion=r"Write a.b or a[0]; \. and \[ are no path.")
    return rest[1:]


# -- what a schema says


def types_of(rule: Any, schema: Mapping[str, Any]) -> set[str]:
    """The JSON types that a rule names, through unions and references; none if it names none."""
    found: set[str] = set()
    for part in parts_of(rule, schema):
        named = part.get("type", ())
        found |= {named} if isinstance(named, str) else set(named)
        found |= {"string" for value in (*part.get("enum", ()), part.get("const")) if isinstance(value, str)}
    return found


def parts_of(rule: Any, schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A rule, and those that it joins by unions and references."""
    return same_value([rule], refer_strictly(schema), CHOICES)


def properties_of(rule: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The members that a rule names, and what it says of each."""
    found: dict[str, Any] = {}
    for part in parts_of(rule, schema):
        properties = part.get("properties")
        if isinstance(properties, Mapping):
            found = {**properties, **found}
    return found


def _names(rule: Any, schema: Mapping[str, Any]) -> set[str]:
    return set(properties_of(rule, schema))


def _below(rule: Any, step: Step, schema: Mapping[str, Any]) -> Any:
    """The part of a rule that is about a member or an item."""
    if isinstance(step, str):
        named = properties_of(rule, schema)
        if step in named:
            return named[step]
    word = "items" if isinstance(step, int) else "additionalProperties"
    return {"anyOf": [part[word] for part in parts_of(rule, schema) if isinstance(part.get(word), Mapping)]}

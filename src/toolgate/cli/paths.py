"""Keys that lead into an argument: `a.b=x` is a member of an object, `a[]=x` one more item of a list, `a[0]=x` or `a.0=x`
the first.

A name that stands in the tool's schema is taken as it stands there, dots and brackets included; `\\.` and `\\[` are never
part of a path.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from toolgate.cli.context import Usage

MAX_STEPS = 32
MAX_UNIONS = 8
"""Unions and references within each other that are followed."""
NEXT: Final = -1
"""The step to one item more than a list has."""
Step = str | int
_STEP = re.compile(r"((?:[^.\[\\]|\\.|\\\Z)+)|\[([0-9]{0,9})\]")
_ESCAPED = re.compile(r"\\([.\[\\])")


def steps_of(key: str, schema: Mapping[str, Any]) -> list[Step]:
    """Where a key leads: names of members and numbers of items, the first of which is a name."""
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
    """What the schema says of the value that steps lead to."""
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
    """What follows a step, without the dot between them."""
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


def parts_of(rule: Any, schema: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """A rule, and those that it joins by unions and references."""
    if not isinstance(rule, Mapping) or depth > MAX_UNIONS:
        return
    yield rule
    for word in ("anyOf", "oneOf", "allOf"):
        for part in rule.get(word, ()):
            yield from parts_of(part, schema, depth + 1)
    reference = rule.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        yield from parts_of(schema.get("$defs", {}).get(reference.removeprefix("#/$defs/")), schema, depth + 1)


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
    """What a rule says of a member or an item."""
    if isinstance(step, str):
        named = properties_of(rule, schema)
        if step in named:
            return named[step]
    word = "items" if isinstance(step, int) else "additionalProperties"
    return {"anyOf": [part[word] for part in parts_of(rule, schema) if isinstance(part.get(word), Mapping)]}

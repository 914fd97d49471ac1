"""How much work a JSON Schema makes of one value, so that none makes more than there is time for.

A validator tries every branch of `anyOf` and follows every `$ref`: thirty lines that refer to each other can keep it busy
for years, in the thread that everybody shares. Whoever writes a tool's definition may be anybody. So the work is counted
when a schema is compiled: for a value of one level, of two, and so on. One that is too much for any value is refused; one
that gets too much with the depth of the value takes values only down to the depth it can bear.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from toolgate.errors import ToolgateError
from toolgate.model import Validator

MOST = 20_000
"""Subschemas that one value may be held against, a microsecond each at most."""
EXPLAINED = 2_000
"""Where there are more, it is only said that a value does not fit, not why: that takes a hundred times as long."""
DEEP = 64
"""Levels beyond which a value is refused anyhow, or its own size is the greater trouble."""
LEAST_LEVELS = 2

IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
BELOW = (
    "properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames",
    "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "dependencies",
)  # fmt: skip
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class TooMuchWork(ToolgateError):
    """The schema takes too long to check: its parts refer to each other in too many ways."""


class Work(NamedTuple):
    """What a schema asks for."""

    levels: int | None = None
    """How deep a value may be; None: as deep as any."""
    explains: bool = True


def measure(schema: Any) -> Work:
    """Count. A schema without references is no more work than it is long."""
    try:
        count = _Count(schema)
        whole = count.of(schema, DEEP)
    except RecursionError:  # it is nested deeper than any value will be
        raise TooMuchWork from None
    if whole <= MOST:
        return Work(explains=whole <= EXPLAINED)
    levels = max((level for level in range(DEEP) if count.of(schema, level) <= MOST), default=0)
    if levels < LEAST_LEVELS:
        raise TooMuchWork
    return Work(levels, explains=False)


class _Count:
    """By part and level, the work; each is counted once."""

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._known: dict[tuple[int, int], int] = {}
        self._anchors: dict[str, Any] = {}
        _note_anchors(schema, self._anchors)

    def of(self, part: Any, levels: int) -> int:
        """What a value of so many levels has to be held against, from this part on; no more than just too much."""
        if not isinstance(part, Mapping):
            return 1
        key = (id(part), levels)
        if key not in self._known:
            self._known[key] = 1  # a part that is its own part in place: whoever compiles it says so
            work = 1 + sum(self.of(inner, levels) for inner in self._in_place(part))
            if levels > 0:
                work += sum(self.of(inner, levels - 1) for inner in _parts(part, BELOW))
            self._known[key] = min(work, MOST + 1)
        return self._known[key]

    def _in_place(self, part: Mapping[str, Any]) -> Iterator[Any]:
        yield from _parts(part, IN_PLACE)
        for name in REFERENCES:
            if isinstance(part.get(name), str):
                yield self._found(part[name])

    def _found(self, reference: str) -> Any:
        if reference in self._anchors:
            return self._anchors[reference]
        base, _, pointer = reference.partition("#")
        found: Any = self._anchors.get(base, self._root) if base else self._root
        for step in pointer.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping):
                found = found.get(step)
            elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            else:
                return None  # it leads nowhere: whoever compiles it says so
        return found


def _parts(part: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[Any]:
    """The schemas under these names: one, several, or by name."""
    for name in names:
        held = part.get(name)
        if isinstance(held, list):
            yield from held
        elif isinstance(held, Mapping):
            if name in ("properties", "patternProperties", "dependentSchemas", "dependencies"):
                yield from held.values()
            else:
                yield held


def _note_anchors(part: Any, into: dict[str, Any]) -> None:
    if isinstance(part, Mapping):
        for name in ("$anchor", "$dynamicAnchor"):
            if isinstance(part.get(name), str):
                into[f"#{part[name]}"] = part
        for name in ("$id", "id"):
            if isinstance(part.get(name), str):
                into[part[name].rstrip("#")] = part
    for inner in part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ():
        _note_anchors(inner, into)


class Bounded:
    """A compiled schema that is asked no more than it can answer in time."""

    def __init__(self, validator: Validator, work: Work) -> None:
        self._validator = validator
        self._work = work

    def is_valid(self, instance: Any, /) -> bool:
        return not self._is_too_deep(instance) and self._validator.is_valid(instance)

    def iter_errors(self, instance: Any, /) -> Iterator[Any]:
        if self._is_too_deep(instance):
            yield Unfit(f"is nested more than {self._work.levels} levels deep, which is more than its schema can check")
        elif self._work.explains:
            yield from self._validator.iter_errors(instance)
        elif not self._validator.is_valid(instance):
            yield Unfit("does not fit its schema, which is too involved to say why")

    def validate(self, instance: Any, /) -> None:
        for error in self.iter_errors(instance):
            raise error

    def _is_too_deep(self, instance: Any) -> bool:
        return self._work.levels is not None and _is_deeper(instance, self._work.levels)


class Unfit(ValueError):
    """A fault in the shape of a validator's own."""

    instance_path: tuple[()] = ()
    schema_path: tuple[()] = ()

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.kind = _Kind("unfit", message)


class _Kind(NamedTuple):
    name: str
    message: str

    def as_dict(self) -> dict[str, str]:
        return self._asdict()


def _is_deeper(value: Any, levels: int) -> bool:
    held = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else None
    if held is None:
        return False
    return levels == 0 or any(_is_deeper(part, levels - 1) for part in held)

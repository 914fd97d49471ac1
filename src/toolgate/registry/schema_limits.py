"""The work that a JSON Schema makes of checking one value, bounded so that none takes more than there is time for.

A validator tries every branch of `anyOf` and follows every `$ref`: thirty lines that refer to each other can keep it busy
for years, in the thread that everybody shares. Whoever writes a tool's definition may be anybody. So the work is counted
when a schema is compiled: for a value of one level, of two, and so on. One that is too much for any value is refused; one
that gets too much with the depth of the value takes values only down to the depth it can bear.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from toolgate.errors import ToolgateError
from toolgate.jsontext import is_deeper
from toolgate.model import Validator
from toolgate.schema import PARTS_OF_VALUE, SAME_VALUE, SchemaDocument, references, subschemas

MAX_SUBSCHEMAS = 20_000
"""Subschemas that one value may be checked against, a microsecond each at most."""
MAX_EXPLAINED = 2_000
"""The subschemas beyond which it is only said that a value does not fit, not why: that takes a hundred times as long."""
MAX_LEVELS = 64
"""Levels beyond which a value is refused anyhow, or its own size is the greater trouble."""
MIN_LEVELS = 2


class TooMuchWork(ToolgateError):
    """The schema takes too long to check: its parts refer to each other in too many ways."""


class SchemaWork(NamedTuple):
    """The work of a schema: how deep a value may be for it, and whether there is time to say what is wrong."""

    levels: int | None = None
    """Levels of a value; None: as many as any value has."""
    explains: bool = True


def measure(schema: Any) -> SchemaWork:
    """Counts the work of a schema; raises TooMuchWork. One without references is no more work than it is long."""
    try:
        count = _WorkCount(schema)
        whole = count.of(schema, MAX_LEVELS)
    except RecursionError:  # it is nested deeper than any value will be
        raise TooMuchWork from None
    if whole <= MAX_SUBSCHEMAS:
        return SchemaWork(explains=whole <= MAX_EXPLAINED)
    levels = max((level for level in range(MAX_LEVELS) if count.of(schema, level) <= MAX_SUBSCHEMAS), default=0)
    if levels < MIN_LEVELS:
        raise TooMuchWork
    return SchemaWork(levels, explains=False)


class _WorkCount:
    """The work by part and level; each is counted once. A reference that can be read in several ways counts with all of
    them: the validator knows which one holds, and whoever wrote the schema chose it."""

    def __init__(self, schema: Any) -> None:
        self._document = SchemaDocument(schema)
        self._known: dict[tuple[int, int], int] = {}
        self._parts: dict[int, tuple[list[Any], list[Any]]] = {}

    def of(self, part: Any, levels: int) -> int:
        """The subschemas that a value of so many levels is checked against, from this part on; at most just too many."""
        if not isinstance(part, dict):
            return 1
        key = (id(part), levels)
        if key not in self._known:
            in_place, inside = self._parts.get(id(part)) or self._find_parts(part)
            if not in_place and not inside:  # most parts are such: nothing to note for each level
                return 1
            self._known[key] = MAX_SUBSCHEMAS + 1  # a part that is its own part in place has no end
            work = 1 + sum(self.of(inner, levels) for inner in in_place)
            if levels > 0:
                work += sum(self.of(inner, levels - 1) for inner in inside)
            self._known[key] = min(work, MAX_SUBSCHEMAS + 1)
        return self._known[key]

    def _find_parts(self, part: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        """What speaks of the same value as a part, and what of the parts of that value."""
        in_place = [*subschemas(part, SAME_VALUE)]
        for reference in references(part):
            in_place += self._document.refer(reference)
        self._parts[id(part)] = found = (in_place, [*subschemas(part, PARTS_OF_VALUE)])
        return found


class BoundedValidator:
    """A compiled schema that is asked no more than it can answer in time."""

    def __init__(self, validator: Validator, work: SchemaWork) -> None:
        self._validator = validator
        self._work = work

    def is_valid(self, instance: Any, /) -> bool:
        return not self._is_too_deep(instance) and self._validator.is_valid(instance)

    def iter_errors(self, instance: Any, /) -> Iterator[Any]:
        if self._is_too_deep(instance):
            yield SchemaFault(
                f"is nested more than {self._work.levels} levels deep, which is more than its schema can check"
            )
        elif self._work.explains:
            yield from self._validator.iter_errors(instance)
        elif not self._validator.is_valid(instance):
            yield SchemaFault("does not fit its schema, which is too involved to say why")

    def validate(self, instance: Any, /) -> None:
        for error in self.iter_errors(instance):
            raise error

    def _is_too_deep(self, instance: Any) -> bool:
        return self._work.levels is not None and is_deeper(instance, self._work.levels)


class SchemaFault(ValueError):
    """A fault in the shape of a validator's own."""

    instance_path: tuple[()] = ()
    schema_path: tuple[()] = ()

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.kind = _SchemaFaultKind("unfit", message)


class _SchemaFaultKind(NamedTuple):
    name: str
    message: str

    def as_dict(self) -> dict[str, str]:
        return self._asdict()

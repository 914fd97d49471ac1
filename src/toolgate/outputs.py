"""What a tool returned, on its way out: made JSON, checked against the schema, and cut to the limits.

What is cut is not lost: the whole output goes to `keep`, which gives an id under which it can be fetched.
"""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import PurePath
from typing import Any

import orjson
from pydantic import BaseModel

from toolgate.context import InvokeContext
from toolgate.errors import Failed
from toolgate.jsontext import find_nan, json_path
from toolgate.model import Entry

STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
SCALARS = frozenset({int, bool, type(None)})
CUT = "...[truncated]"
MOST_CUTS = 50


class Outputs:
    """The step; its state is the limits."""

    def __init__(self, most_string: int, most_items: int, most_bytes: int) -> None:
        self._string = most_string
        self._items = most_items
        self._bytes = most_bytes
        self._surely_small = min(most_string, most_items * 2, most_bytes)
        """JSON shorter than this can hold neither a string nor a list that is too long."""

    def validate(self, ctx: InvokeContext, entry: Entry) -> None:
        """Make the output plain JSON values, and check them against what the tool promised."""
        output = ctx.result
        if type(output) not in SCALARS:
            ctx.result = output = self._plain(output)
        elif type(output) is int and not -(2**63) <= output < 2**64:
            raise _invalid("an integer has more than 64 bits; return it as text")
        if entry.check_output is not None and not entry.check_output.is_valid(output):
            error = next(entry.check_output.iter_errors(output))
            where = json_path(error.instance_path)
            raise _invalid(f"{where}: {error.message:.300}" if where else f"{error.message:.300}")

    def _plain(self, output: Any) -> Any:
        try:
            text = orjson.dumps(output, option=STRICT)
            plain = output
        except (orjson.JSONEncodeError, RecursionError):
            try:
                text = orjson.dumps(output, default=_known_types)
                plain = orjson.loads(text)
            except (orjson.JSONEncodeError, RecursionError, ValueError) as error:
                raise _invalid(f"it is not JSON: {error}") from error
        if b"null" in text:
            where = find_nan(output)
            if where is not None:
                raise _invalid(f"{where or 'it'}: NaN and infinite numbers are not JSON")
        return plain

    def too_long(self, ctx: InvokeContext) -> bytes | None:
        """The whole output as JSON if any of it is over a limit, else None."""
        output = ctx.result
        if type(output) in SCALARS:
            return None
        text = orjson.dumps(output)
        if len(text) < self._surely_small:
            return None
        return text if len(text) > self._bytes or self._over(output) else None

    def _over(self, value: Any) -> bool:
        if isinstance(value, str):
            return len(value) > self._string
        if isinstance(value, list | tuple):
            return len(value) > self._items or any(self._over(part) for part in value)
        if isinstance(value, dict):
            return any(self._over(part) for part in value.values()) or any(len(key) > self._string for key in value)
        return False

    def cut(self, output: Any) -> tuple[Any, tuple[str, ...]]:
        """The output within the limits, and a line for each thing that was cut."""
        cuts: list[str] = []
        items, string = self._items, self._string
        while True:
            shortened = _shorten(output, "", string, items, cuts)
            if len(orjson.dumps(shortened)) <= self._bytes:
                return shortened, tuple(cuts[:MOST_CUTS])
            if items == 1 and string <= 16:
                return "[too large to show; fetch the artifact]", ("the whole output",)
            cuts = [f"the whole output, to {self._bytes:,} bytes"]
            items, string = max(items // 2, 1), max(string // 2, 16)


def _shorten(value: Any, path: str, string: int, items: int, cuts: list[str]) -> Any:
    if isinstance(value, str):
        if len(value) <= string:
            return value
        cuts.append(f"{path or 'the text'}: {len(value):,} characters, {string:,} shown")
        return value[:string] + CUT
    if isinstance(value, list | tuple):
        if len(value) > items:
            cuts.append(f"{path or 'the list'}: {len(value):,} items, {items:,} shown")
        return [_shorten(part, f"{path}[{index}]", string, items, cuts) for index, part in enumerate(value[:items])]
    if isinstance(value, dict):
        return {
            key if len(key) <= string else key[:string] + CUT: _shorten(
                part, f"{path}.{key:.40}" if path else f"{key:.40}", string, items, cuts
            )
            for key, part in value.items()
        }
    return value


def _known_types(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Decimal | PurePath):
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _invalid(words: str) -> Failed:
    return Failed("OUTPUT_INVALID", f"The tool's output is not what it promised: {words}")

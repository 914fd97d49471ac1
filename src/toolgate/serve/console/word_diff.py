"""Two definitions word by word: what was taken out, what was put in, what stayed. The work is bounded, in any case."""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any, Literal

import msgspec

from toolgate.mcp.review import SHOWN_FIELDS

WORD = re.compile(r"\s+|\w+|[^\w\s]")
MAX_LINES = 1_000
"""Lines that are matched with each other; beyond, all is shown as taken out and put in."""
MAX_WORDS = 400
"""Words of lines that are matched with each other."""
MAX_ALL_WORDS = 6_000
CONTEXT = 2
"""Lines around a change that are shown."""
Sign = Literal["same", "del", "add", "gap"]


class Piece(msgspec.Struct, frozen=True):
    """Words of a line, and whether they are what changed."""

    text: str
    changed: bool = False


class DiffLine(msgspec.Struct, frozen=True):
    """A line of one of the two; of a gap, the text says how many are left out."""

    sign: Sign
    pieces: tuple[Piece, ...]


class FieldDiff(msgspec.Struct, frozen=True):
    """A field of a definition that differs, or that is new."""

    field: str
    lines: tuple[DiffLine, ...]


def diff_of(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[FieldDiff]:
    """The fields that differ, line by line and word by word; of a new definition all of it, as it is."""
    budget = [MAX_ALL_WORDS]
    found = []
    for field in SHOWN_FIELDS:
        old, new = (before or {}).get(field), after.get(field)
        if _json(old) == _json(new):
            continue
        if before is None:
            lines = tuple(DiffLine("same", (Piece(text),)) for text in _lines(new))
        else:
            lines = tuple(_folded(_compared(_lines(old), _lines(new), budget)))
        found.append(FieldDiff(field, lines))
    return found


def text_diff(field: str, before: str | None, after: str) -> list[FieldDiff]:
    """The same of one text, such as a file."""
    if before is None:
        return [FieldDiff(field, tuple(DiffLine("same", (Piece(text),)) for text in _lines(after)))]
    return [FieldDiff(field, tuple(_folded(_compared(_lines(before), _lines(after), [MAX_ALL_WORDS]))))]


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False)


def _lines(value: Any) -> list[str]:
    if value is None:
        return []
    return (value if isinstance(value, str) else _json(value)).split("\n")


def _compared(old: list[str], new: list[str], budget: list[int]) -> Iterator[DiffLine]:
    if len(old) + len(new) > MAX_LINES:
        yield from _whole(old, new)
        return
    for word, a, b, c, d in SequenceMatcher(None, old, new).get_opcodes():
        if word == "equal":
            yield from (DiffLine("same", (Piece(text),)) for text in old[a:b])
        elif word == "replace":
            yield from _replaced("\n".join(old[a:b]), "\n".join(new[c:d]), budget)
        else:
            yield from _whole(old[a:b], new[c:d])


def _whole(old: list[str], new: list[str]) -> Iterator[DiffLine]:
    yield from (DiffLine("del", (Piece(text, True),)) for text in old)
    yield from (DiffLine("add", (Piece(text, True),)) for text in new)


def _replaced(old: str, new: str, budget: list[int]) -> Iterator[DiffLine]:
    before, after = WORD.findall(old), WORD.findall(new)
    budget[0] -= len(before) + len(after)
    if len(before) + len(after) > MAX_WORDS or budget[0] < 0:
        yield from _whole(old.split("\n"), new.split("\n"))
        return
    opcodes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    yield from _split("del", [("".join(before[a:b]), word != "equal") for word, a, b, _, _ in opcodes])
    yield from _split("add", [("".join(after[c:d]), word != "equal") for word, _, _, c, d in opcodes])


def _split(sign: Sign, pieces: list[tuple[str, bool]]) -> Iterator[DiffLine]:
    """Pieces as lines."""
    line: list[Piece] = []
    for text, changed in pieces:
        first, *more = text.split("\n")
        line.append(Piece(first, changed))
        for one in more:
            yield DiffLine(sign, tuple(piece for piece in line if piece.text))
            line = [Piece(one, changed)]
    yield DiffLine(sign, tuple(piece for piece in line if piece.text))


def _folded(lines: Iterator[DiffLine]) -> Iterator[DiffLine]:
    """The lines without those that are the same and far from a change."""
    every = [*lines]
    near = {place for at, line in enumerate(every) if line.sign != "same" for place in range(at - CONTEXT, at + CONTEXT + 1)}
    left_out = 0
    for at, line in enumerate(every):
        if at not in near:
            left_out += 1
            continue
        if left_out:
            yield _gap(left_out)
            left_out = 0
        yield line
    if left_out:
        yield _gap(left_out)


def _gap(count: int) -> DiffLine:
    return DiffLine("gap", (Piece(f"{count:,} more {'line' if count == 1 else 'lines'} that did not change"),))

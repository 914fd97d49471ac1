"""The outputs of earlier calls in which values of a question's arguments stand: for an approver, who should know what came
from a page or a file that the caller has read.

It tells, and decides nothing: a value that was disguised is not found, and outputs that are not kept cannot be looked at.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from toolgate.gates.approval.request import ApprovalRequest
from toolgate.model import MASK
from toolgate.store import log_pages
from toolgate.store.log_pages import CallFilter
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

MAX_CALLS = 20
"""Calls of the session that are looked at, the latest before the question."""
MAX_VALUES, MAX_FOUND = 100, 10
MIN_CHARS, MAX_CHARS = 6, 400
MAX_DEPTH = 20
WORD = re.compile(r"[^\s\"'`<>()\[\]{},;|]+")
MARKED = re.compile(r"[0-9@/:_.-]")
"""Signs that make a word more than one of a language: an address, a path, a number, an id."""


class ArgumentOrigin(msgspec.Struct, frozen=True):
    """A value of an argument, and the first output in which it stands."""

    argument: str
    value: str
    call: str
    tool: str
    ended_at: datetime


class ArgumentOrigins(msgspec.Struct, frozen=True):
    """The values that were found, and how much was looked at."""

    found: list[ArgumentOrigin]
    calls: int
    """Calls of the session that succeeded before the question, of the latest twenty."""
    outputs: int
    """Those of them whose output is kept."""


NO_ORIGINS = ArgumentOrigins([], 0, 0)


async def origins(parts: "Parts", asked: ApprovalRequest) -> ArgumentOrigins:
    """Looks for the values of a question's arguments in what its session has read."""
    if asked.session is None:
        return NO_ORIGINS
    actor = asked.actor
    wanted = CallFilter(
        tenant=actor.tenant, user=actor.user, status="success", session=asked.session, until=asked.created_at
    )
    await parts.store.flush()
    rows = [*(await parts.store.read(log_pages.calls(wanted, None, MAX_CALLS))).rows]
    values = [*values_of(asked.arguments)][:MAX_VALUES]
    found: dict[tuple[str, str], ArgumentOrigin] = {}
    outputs = 0
    for seq, at, _, call_id, _, tool, _, body, _ in reversed(rows):  # the first that had it, not one that repeats it
        kept = await parts.details.of_record(seq, body)
        if kept is None or kept.output_bytes is None:
            continue
        outputs += 1
        text = kept.output_beginning if kept.output_beginning is not None else await to_thread(_text, kept.output)
        for argument, value in values:
            if value in text:
                ended = datetime.fromtimestamp(at / 1_000_000, UTC)
                found.setdefault((argument, value), ArgumentOrigin(argument, value, call_id, tool, ended))
    return ArgumentOrigins([*_largest(found.values())][:MAX_FOUND], len(rows), outputs)


def values_of(arguments: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The values that are looked for, each with its argument: short texts as a whole, and words that no language has."""
    for name, value in arguments.items():
        for text in _strings(value):
            whole = text.strip()
            if MIN_CHARS <= len(whole) <= MAX_CHARS and MASK not in whole:
                yield name, whole
            for word in WORD.findall(text):
                plain = word.strip(".:!?")
                if plain != whole and MIN_CHARS <= len(plain) <= MAX_CHARS and MARKED.search(plain) and MASK not in plain:
                    yield name, plain


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < MAX_DEPTH and isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one, depth + 1)


def _text(output: Any) -> str:
    """All texts of an output, each on a line of its own."""
    return "\n".join(_strings(output))


def _largest(found: Any) -> Iterator[ArgumentOrigin]:
    """Without values that are part of another of the same argument and output."""
    every = [*found]
    for one in every:
        if not any(
            other is not one and one.value in other.value and (other.argument, other.call) == (one.argument, one.call)
            for other in every
        ):
            yield one

"""The directory in which tools look up other tools for the actors of a call: those that all of them may see."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from toolgate.model import Actor, Entry


class FoundEntry(NamedTuple):
    """A tool that a search found."""

    entry: Entry
    score: float
    """From 0 to 1, to compare tools of one search with."""
    tokens: int
    """Of its definition."""


class FoundEntries(NamedTuple):
    """The tools that a search found, best first; none if nothing fits."""

    entries: Sequence[FoundEntry]
    is_sure: bool
    """False if even the best is a doubtful fit."""


class ToolDirectory(NamedTuple):
    """Found by a tool with `ctx.get(ToolDirectory)`."""

    search: Callable[[Sequence[str], Sequence[Actor], int], Awaitable[FoundEntries]]
    """By phrasings of one task, at most so many."""
    find: Callable[[str, Sequence[Actor]], Awaitable[Entry | None]]
    """By name; None if it is missing, or hidden from one of the actors. Its description is the one that models are given."""

"""The answer of a search."""

from typing import Literal, NamedTuple

from toolgate.model import Tool

Basis = Literal["meaning", "words"]


class RankedTool(NamedTuple):
    """A tool that a search found."""

    tool: Tool
    score: float
    """From 0 to 1, to compare tools of one search with."""


class Ranking(NamedTuple):
    """The tools that fit what was searched for, best first."""

    found: tuple[RankedTool, ...]
    """Empty if nothing fits: a search gives nothing rather than the least bad."""
    basis: Basis = "words"
    """meaning: what the tools do was compared with the task. words: only the words, since the index is not ready yet or the
    extra `embeddings` is not installed."""
    pending: int = 0
    """Tools of the actor that are not in the index yet."""
    is_sure: bool = True
    """False if even the best is a doubtful fit."""

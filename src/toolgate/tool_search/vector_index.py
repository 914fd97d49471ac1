"""The vectors and words of tools in memory, and the comparison of all of them with a task.

Two models say how near a tool is to a task: one knows English better, one knows sixteen languages. What the tool's server is
for counts half as much again. Words that both have in common only add a little: paraphrases share few with what is meant.
`docs/explanation/discovery.md` has what each of these brings.

numpy is imported here: this module is imported with the first search.
"""

import os
from array import array
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from toolgate.tool_search.language import FUNCTION_WORDS
from toolgate.tool_search.text import ToolText

Floats = NDArray[numpy.float32]

ENGLISH_WEIGHT = 0.55
"""The share of the model that knows English alone, in a task that is said in English."""
CONTEXT_WEIGHT = 0.5
UNKNOWN_CONTEXT = 0.5
"""A tool whose server says nothing of itself is taken to fit there half as well as by its own text."""
WORDS_WEIGHT = 0.3
LONG_TEXT_WORDS = 40
"""A text of so many words is worth half for each word that it shares: a list of keywords must not win."""
DENSE_SHARE = 0.25
"""From this share of all tools on, all are compared and the actor's taken out; below, its rows are copied first."""

LARGE_ROWS = 2_000
"""From so many tools on, two threads are quicker than one."""
_products = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="toolgate-search")


class TaskVectors(NamedTuple):
    """One model's vectors of phrasings, a row for each."""

    purpose: Floats
    """To be compared with what tools are for."""
    context: Floats
    """To be compared with what servers are for."""


class SearchTask(NamedTuple):
    """What is searched for, in one phrasing or several."""

    shares: Floats
    """From 0 to 1 for each phrasing: how much the model for English counts."""
    english: TaskVectors
    multilingual: TaskVectors
    words: Sequence[frozenset[str]]


def compute_both(one: Callable[[], Floats], other: Callable[[], Floats], *, is_large: bool) -> tuple[Floats, Floats]:
    """Two products; large ones in two threads at once, since they wait for memory more than for a core."""
    if not is_large:
        return one(), other()
    second = _products.submit(other)
    return one(), second.result()


class GrowingArray:
    """An array to which rows are added. What was read from it before stays as it was."""

    def __init__(self, dtype: Any, *shape: int) -> None:
        self._held: NDArray[Any] = numpy.zeros((64, *shape), dtype)
        self._size = 0

    def append(self, rows: NDArray[Any]) -> None:
        needed = self._size + len(rows)
        if needed > len(self._held):
            grown = numpy.zeros((max(needed, 2 * len(self._held)), *self._held.shape[1:]), self._held.dtype)
            grown[: self._size] = self._held[: self._size]
            self._held = grown
        self._held[self._size : needed] = rows
        self._size = needed

    @property
    def rows(self) -> NDArray[Any]:
        return self._held[: self._size]


class ToolVectorIndex:
    """All tools of the catalog that were read so far, each distinct text once."""

    def __init__(self, english_dimensions: int, multilingual_dimensions: int) -> None:
        self.rows: dict[bytes, int] = {}
        """Numbers of rows, by `ToolText.key`."""
        self.contexts: dict[str, int] = {}
        self._purposes_english = GrowingArray(numpy.float32, english_dimensions)
        self._purposes = GrowingArray(numpy.float32, multilingual_dimensions)
        self._contexts_english = GrowingArray(numpy.float32, english_dimensions)
        self._contexts = GrowingArray(numpy.float32, multilingual_dimensions)
        self._context_of = GrowingArray(numpy.int32)
        self._has_english = GrowingArray(numpy.float32)
        self._lengths = GrowingArray(numpy.float32)
        self._found_at: dict[str, array[int]] = {}

    def add_contexts(self, texts: Sequence[str], english: Floats, multilingual: Floats) -> None:
        self._contexts_english.append(english)
        self._contexts.append(multilingual)
        for text in texts:
            self.contexts[text] = len(self.contexts)

    def add(self, texts: Mapping[bytes, ToolText], multilingual: Floats) -> None:
        """Adds tools whose contexts are there, by key. Their vectors of the model for English follow."""
        first = len(self.rows)
        self._purposes.append(multilingual)
        self._purposes_english.append(numpy.zeros((len(texts), self._purposes_english.rows.shape[1]), numpy.float32))
        self._has_english.append(numpy.zeros(len(texts), numpy.float32))
        self._lengths.append(numpy.array([len(text.words) for text in texts.values()], numpy.float32))
        places = [self.contexts[text.context] if text.context else -1 for text in texts.values()]
        self._context_of.append(numpy.array(places, numpy.int32))
        for row, (key, text) in enumerate(texts.items(), first):
            for word in text.words - FUNCTION_WORDS:
                self._found_at.setdefault(word, array("I")).append(row)
            self.rows[key] = row

    def set_english(self, rows: Sequence[int], vectors: Floats) -> None:
        """Adds the vectors of the model for English."""
        self._purposes_english.rows[rows] = vectors
        self._has_english.rows[rows] = 1.0

    def scores(self, chosen: NDArray[numpy.int32], task: SearchTask) -> Floats:
        """How well the chosen rows fit, by the mean over all phrasings of a task. Nothing else has any influence."""
        size = len(self._context_of.rows)  # added last: while another thread adds tools, the others may be longer
        is_dense = len(chosen) >= DENSE_SHARE * size
        rows: Any = slice(None, size) if is_dense else chosen
        shares = ENGLISH_WEIGHT * task.shares
        if shares.any():
            # Looked at first: whatever is marked as read by then has its vector.
            counts = self._has_english.rows[rows][:, None] * shares
            near, english = compute_both(
                lambda: self._purposes.rows[rows] @ task.multilingual.purpose.T,
                lambda: self._purposes_english.rows[rows] @ task.english.purpose.T,
                is_large=len(chosen) >= LARGE_ROWS,
            )
            near += counts * (english - near)
        else:
            near = self._purposes.rows[rows] @ task.multilingual.purpose.T
        places = self._context_of.rows[rows]
        around = UNKNOWN_CONTEXT * near
        known = self._contexts.rows
        if len(known):
            contexts = known @ task.multilingual.context.T
            contexts += shares * (self._contexts_english.rows[: len(known)] @ task.english.context.T - contexts)
            around = numpy.where(places[:, None] >= 0, contexts[places], around)
        fit = (near + CONTEXT_WEIGHT * around).mean(axis=1)
        if is_dense:
            fit = fit[chosen]
        for words in task.words:
            fit += WORDS_WEIGHT / len(task.words) * self._shared_words(words, chosen)
        return numpy.asarray(fit, numpy.float32)

    def _shared_words(self, words: frozenset[str], chosen: NDArray[numpy.int32]) -> Floats:
        """The share of a task's words that each chosen row has, a rare word counting more. Rare is what few of these have:
        how many others have it would tell about tools that are hidden from an actor."""
        size = len(self._context_of.rows)
        is_chosen = numpy.zeros(size, bool)
        is_chosen[chosen] = True
        shared, all_words = numpy.zeros(size, numpy.float32), 0.0
        for word in words - FUNCTION_WORDS:
            rows = numpy.array(self._found_at.get(word, ()), numpy.int64)
            rows = rows[rows < size]
            rows = rows[is_chosen[rows]]
            rarity = float(numpy.log1p(len(chosen) / (1 + len(rows))))
            shared[rows] += rarity
            all_words += rarity
        if not all_words:
            return shared[chosen]
        lengths = 1 + self._lengths.rows[chosen] / LONG_TEXT_WORDS
        return numpy.asarray(shared[chosen] / all_words / lengths, numpy.float32)

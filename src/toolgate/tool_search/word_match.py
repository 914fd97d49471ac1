"""Search of tools by words in their names, tags and descriptions."""

import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher

from toolgate.model import Tool

NAME_WEIGHT, TAG_WEIGHT, CATEGORY_WEIGHT, DESCRIPTION_WEIGHT = 4.0, 3.0, 2.0, 1.0
"""The worth of a word by where it is found."""
EXACT, BEGINS, INSIDE = 1.0, 0.8, 0.5
ALIKE = 0.75
"""The likeness from which one word counts as a misspelling of another."""
MAX_MISSPELLED_CHARS = 32
"""Longer words are not compared letter by letter, which takes long: people misspell shorter ones."""
MAX_WANTED_WORDS = 16
MAX_DESCRIPTION_CHARS_READ = 1_000
"""Each wanted word is compared with each word of each tool, which takes long if somebody makes them many."""
_WORDS = re.compile(r"[a-z0-9]+")


def rank(query: str, tools: Iterable[Tool]) -> list[tuple[Tool, float]]:
    """The tools in which words of the query are found, best first, with a score from 0 to 1."""
    wanted = list(dict.fromkeys(_words(query)))[:MAX_WANTED_WORDS]
    scored = [(tool, round(_score(wanted, tool), 4)) for tool in tools] if wanted else []
    return sorted([(tool, score) for tool, score in scored if score], key=lambda found: (-found[1], found[0].name))


def _score(wanted: list[str], tool: Tool) -> float:
    fields = list(_search_fields(tool))
    best = [max((weight * _likeness(word, other) for other, weight in fields), default=0.0) for word in wanted]
    return sum(best) / (NAME_WEIGHT * len(wanted))


def _search_fields(tool: Tool) -> Iterator[tuple[str, float]]:
    yield tool.name.lower(), NAME_WEIGHT
    for text, weight in (
        (tool.name, NAME_WEIGHT),
        (" ".join(tool.tags), TAG_WEIGHT),
        (tool.category, CATEGORY_WEIGHT),
        (tool.description[:MAX_DESCRIPTION_CHARS_READ], DESCRIPTION_WEIGHT),
        (" ".join(capability.action for capability in tool.capabilities), DESCRIPTION_WEIGHT),
    ):
        yield from ((word, weight) for word in set(_words(text)))


def _likeness(wanted: str, word: str) -> float:
    if wanted == word:
        return EXACT
    if len(wanted) >= 2 and word.startswith(wanted):
        return BEGINS
    if len(wanted) >= 3 and wanted in word:
        return INSIDE
    short, long = sorted((len(wanted), len(word)))
    if short < 4 or long > MAX_MISSPELLED_CHARS or long - short > 2:
        return 0.0
    alike = SequenceMatcher(None, wanted, word)
    return INSIDE * alike.ratio() if alike.quick_ratio() >= ALIKE and alike.ratio() >= ALIKE else 0.0


def _words(text: str) -> list[str]:
    return _WORDS.findall(text.lower())

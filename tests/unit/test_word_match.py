"""The search by words, where no model is there."""

import pytest

from toolgate.model import Tool
from toolgate.tool_search.word_match import MAX_MISSPELLED_CHARS, rank

pytestmark = pytest.mark.requirement("AGENT-3")


def _found(query: str, description: str) -> list[str]:
    return [tool.name for tool, _ in rank(query, [Tool(name="one", description=description)])]


def test_a_misspelt_word_is_found() -> None:
    assert _found("calender", "The calendar of a team.") == ["one"]


@pytest.mark.requirement("AGENT-3", "POL-7")
def test_words_that_nobody_would_misspell_are_not_compared_letter_by_letter() -> None:
    """Each pair of words of 199 letters took 50 ms: a search among a hundred such tools half a minute of a thread."""
    letters = "abcdefghij" * MAX_MISSPELLED_CHARS
    for length in (MAX_MISSPELLED_CHARS - 1, MAX_MISSPELLED_CHARS):
        assert _found(f"x{letters[: length - 1]}", letters[:length]) == (["one"])
    assert _found(f"x{letters[:MAX_MISSPELLED_CHARS]}", letters[: MAX_MISSPELLED_CHARS + 1]) == []
    assert _found(letters[:199], letters[:199]) == ["one"]

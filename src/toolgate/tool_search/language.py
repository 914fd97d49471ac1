"""Tells English from other languages, for one model knows English alone."""

from toolgate.tool_search.text import words_of

FUNCTION_WORDS = frozenset(
    words_of(
        "the an of to in is it my me we our you your for on at with that this what how which who do does did are was be not "
        "and or from so as can if where when why have has had will would should these those there their its by all any into "
        "get give make find show tell let put take some please need want"
    )
)
FIRST_OTHER_LETTER = "\u0250"
"""From here on letters are not Latin ones."""
OTHER_LETTERS = 0.3
ENGLISH_WORDS = 0.15


def english_share(text: str) -> float:
    """From 0 (another language) to 1 (English); 0.5 where a few words, such as names of products, could be either."""
    letters = [char for char in text if char.isalpha()]
    if not letters or sum(char >= FIRST_OTHER_LETTER for char in letters) > OTHER_LETTERS * len(letters):
        return 0.0
    words = words_of(text)
    known = sum(word in FUNCTION_WORDS for word in words) / max(1, len(words))
    if known >= ENGLISH_WORDS:
        return 1.0
    return 0.5 if text.isascii() and len(words) <= 5 else 0.0

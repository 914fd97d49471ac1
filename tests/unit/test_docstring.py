"""What is read off a docstring."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.registry.signature import read_docstring

GOOGLE = """
    Find things
    that are kept.

    More words, which a model is not given.

    Args:
        query: What to look for: words
            or a pattern.
        limit (int, optional): How many.
        *rest: What else.
        **options: How.
        silent:

    A closing paragraph: it belongs to nobody.

    Returns:
        found: Not an argument.

    Arguments:
      late: In a second section.
"""
SPHINX = """Find things.

    :param query: What to look for,
        also over two lines.
    :param int limit: How many.
    :param dict[str, int] table: Where.
    :type query: str
    :returns: A list,
        which is no argument.
    :raises ValueError: never
"""


def test_google_style() -> None:
    read = read_docstring(inspect.cleandoc(GOOGLE))
    assert read.summary == "Find things that are kept."
    assert read.arguments == {
        "query": "What to look for: words or a pattern.",
        "limit": "How many.",
        "rest": "What else.",
        "options": "How.",
        "late": "In a second section.",
    }


def test_sphinx_style() -> None:
    read = read_docstring(inspect.cleandoc(SPHINX))
    assert read.summary == "Find things."
    assert read.arguments == {"query": "What to look for, also over two lines.", "limit": "How many.", "table": "Where."}


@pytest.mark.parametrize("text", ["", "\n\n", "Args:\n    a: Only an argument."])
def test_without_a_first_paragraph_there_is_no_summary(text: str) -> None:
    assert read_docstring(text).summary == ""


def test_a_word_with_a_colon_in_the_summary_is_no_argument() -> None:
    read = read_docstring("Convert units.\n    note: metric only\n\nArgs:\n    a: First.")
    assert (read.summary, read.arguments) == ("Convert units. note: metric only", {"a": "First."})


@given(text=st.text(st.sampled_from("ab:() \n\t*Args:param")))
def test_any_text_can_be_read(text: str) -> None:
    read = read_docstring(text)
    assert "\n" not in read.summary
    assert all(name.isidentifier() or name.isalnum() for name in read.arguments)
    assert all(said and "\n" not in said for said in read.arguments.values())

"""Conditions on metadata: what they mean, and that no text makes one run anything, hang, or fail without saying so."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import InvalidInput
from toolgate.memory.conditions import MAX_CONDITION_CHARS, MAX_DEPTH, read_condition

pytestmark = pytest.mark.requirement("BUILTIN-4")
NOTE: dict[str, Any] = {
    "topic": "billing", "priority": 2, "share": 0.5, "done": False, "tags": ["a", 1, None], "quote": "it's", "from": "ann",
    "größe": 3, "empty": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("topic == 'billing'", True),
        ('topic = "billing"', True),
        ("topic != 'billing'", False),
        ("'billing' == topic", True),
        ("priority == 2.0 and priority >= 2 and priority <= 2", True),
        ("priority < 2 or priority > 2", False),
        ("priority > -1", True),
        ("share < 0.75", True),
        ("topic < 'c' and topic > 'a'", True),
        ("done == false and not done", True),
        ("done == 0", False),  # false is no number
        ("missing == null and missing == None and not missing", True),
        ("missing != 'x'", True),
        ("missing > 1 or missing < 1 or missing >= 'a'", False),
        ("topic > 1", False),
        ("'a' in tags and 1 in tags and null in tags", True),
        ("true in tags", False),  # true is not 1
        ("'c' not in tags", True),
        ("'ill' in topic", True),
        ("1 in topic", False),
        ("topic in ['x', 'billing']", True),
        ("topic in []", False),
        ("priority in [1, 2,]", True),
        ("'a' in priority", False),
        ("quote == 'it\\'s' and quote == \"it's\"", True),
        ("from == 'ann'", True),
        ("größe == 3", True),
        ("empty", False),
        ("NOT done AND (topic == 'x' OR priority == 2)", True),
        ("not not (not done)", True),
        ("topic == 'x' or priority == 2 and done", False),  # and binds more
        ("topic == '%' or topic == 'bill%'", False),  # no wildcard
    ],
)
def test_what_a_condition_means(text: str, holds: bool) -> None:
    assert read_condition(text)(NOTE) is holds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topic ==", "at its end: a name, a text in quotation marks or a number is expected"),
        ("topic == 'a", '"\'" is not understood'),
        ("(topic", "a parenthesis is not closed"),
        ("topic)", "')' is not expected there"),
        ("topic == 1 priority == 2", "'priority' is not expected there"),
        ("topic; drop table memories", "';' is not understood"),
        ("topic not 'a'", "`in` is expected after `not`"),
        ("topic in [1", "a list of texts and numbers is not closed"),
        ("topic in [tags]", "a list of texts and numbers is not closed"),
        ("__import__('os').system('true')", "'(' is not expected there"),
        ("topic.__class__", "'.' is not understood"),
        ("topic == 1.5.2", "not understood"),
        ("1e999 == 1", "not understood"),
        ("topic == $1", "'$' is not understood"),
        ("(" * (MAX_DEPTH + 1) + "topic" + ")" * (MAX_DEPTH + 1), "nested more than 32 deep"),
        ("not " * (MAX_DEPTH + 1) + "topic", "nested more than 32 deep"),
        ("a" * (MAX_CONDITION_CHARS + 1), "more than 1,000 characters"),
    ],
)
def test_what_is_no_condition_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_condition(text)
    assert words in refused.value.message
    assert refused.value.suggestion is not None
    assert len(refused.value.message) < 200


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
NOTES = st.dictionaries(st.sampled_from(["a", "b", "tags"]), VALUES | st.lists(VALUES, max_size=4))
SIGNS = ("(", ")", "[", "]", ",", "==", "!=", "<", "<=", ">", ">=", "=", "1", "-2.5", "'x'", '"y"')
TOKENS = ("a", "b", "tags", "and", "or", "not", "in", "null", "true", *SIGNS)
WORDS = st.lists(st.sampled_from(TOKENS), max_size=30).map(" ".join)


@given(text=st.text(max_size=200) | WORDS, note=NOTES)
def test_any_text_is_a_condition_or_is_refused(text: str, note: dict[str, Any]) -> None:
    try:
        condition = read_condition(text)
    except InvalidInput:
        return
    assert condition(note) in (True, False)


@given(value=st.text(max_size=40).filter(lambda text: "\\" not in text), note=NOTES)
def test_a_text_in_quotation_marks_is_that_text(value: str, note: dict[str, Any]) -> None:
    escaped = value.replace("'", "\\'")
    assert read_condition(f"a == '{escaped}'")({**note, "a": value})
    assert not read_condition(f"a == '{escaped}'")({**note, "a": value + "x"})


@given(one=st.integers(-1000, 1000), other=st.integers(-1000, 1000))
def test_comparisons_are_those_of_python(one: int, other: int) -> None:
    for sign, expected in (
        ("==", one == other), ("!=", one != other), ("<", one < other), ("<=", one <= other), (">", one > other),
        (">=", one >= other),
    ):  # fmt: skip
        assert read_condition(f"a {sign} {other}")({"a": one}) is expected
        assert read_condition(f"not (a {sign} {other})")({"a": one}) is not expected

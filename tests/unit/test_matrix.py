"""Which cases `make test` leaves to `make test-matrix`."""

from typing import Any

import pytest

from tests.matrix import axes, is_left_to_matrix, not_sampled

AXES = (("sqlite", "postgres"), ("root", "ordinary"))
ONE, TWO = object(), object()


@pytest.mark.parametrize(
    ("cases", "left"),
    [
        pytest.param([{"database": "sqlite"}, {"database": "postgres"}], [False, True], id="the first along the axis stays"),
        pytest.param([{"to": "postgres"}, {"to": "sqlite"}], [True, False], id="whatever the name and the order"),
        pytest.param([{"database": "postgres"}], [False], id="the only choice stays"),
        pytest.param([{"name": "sqlite"}, {"name": "ada"}], [False, False], id="other values are no choice"),
        pytest.param([{"name": "sqlite"}, {"name": ["postgres"]}], [False, False], id="also if they are no text"),
        pytest.param(
            [{"a": "sqlite", "b": 1}, {"a": "postgres", "b": 2}], [False, False], id="a case on one choice only stays"
        ),
        pytest.param(
            [{"a": store, "user": user, "c": case} for store in AXES[0] for user in AXES[1] for case in (ONE, TWO)],
            [False, False, True, True, True, True, True, True],
            id="each case stays once",
        ),
        pytest.param(
            [{"a": "sqlite", "user": "ordinary"}, {"a": "postgres", "user": "root"}],
            [False, True],
            id="also if none is best",
        ),
    ],
)
def test_a_case_stays_on_the_choices_that_come_first(cases: list[dict[str, Any]], left: list[bool]) -> None:
    assert is_left_to_matrix(cases, AXES) == left


def test_no_word_stands_on_two_axes() -> None:
    """Or a parameter would be a choice along both."""
    words = [word for axis in axes() for word in axis]
    assert len(words) == len(set(words))


@pytest.mark.parametrize(
    ("cases", "most", "left"),
    [("abc", 3, ""), ("abcd", 3, "b"), ("abcdefghi", 2, "bcdefgh"), ("abcdefghi", 5, "bdfh"), ("", 4, "")],
)
def test_a_sample_has_so_many_cases_that_stand_far_apart(cases: str, most: int, left: str) -> None:
    assert "".join(not_sampled(list(cases), most)) == left

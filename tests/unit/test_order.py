"""The order of the tests: each of them once, the long ones at the beginning of a worker's part."""

from hypothesis import given
from hypothesis import strategies as st

from tests.order import long_ones_first

Test = tuple[int, str, float]


def parts(items: list[Test], workers: int) -> list[list[Test]]:
    """As pytest-xdist divides them at first."""
    left = list(items)
    return [[left.pop(0) for _ in range(len(left) // (workers - worker))] for worker in range(workers)]


def ordered(items: list[Test], workers: int) -> list[Test]:
    return long_ones_first(items, workers, lambda item: item[2], lambda item: item[1])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.0, 600.0, 900.0]))), st.integers(1, 5))
def test_each_is_taken_once_and_the_usual_ones_keep_their_order(given: list[tuple[str, float]], workers: int) -> None:
    items = [(number, *rest) for number, rest in enumerate(given)]
    found = ordered(items, workers)
    assert sorted(found) == items
    assert [item for item in found if not item[2]] == [item for item in items if not item[2]]


def test_each_worker_begins_with_long_ones_the_longest_of_all_first() -> None:
    usual = [(number, "usual", 0.0) for number in range(40)]
    long = [(50, "a", 600.0), (51, "b", 900.0), (52, "b", 600.0), (53, "c", 600.0)]
    first, second, third = parts(ordered([*usual[:20], *long, *usual[20:]], 3), 3)
    assert [item[0] for item in first[:3]] == [51, 52, 0]
    assert (second[0][0], third[0][0]) == (50, 53)
    assert not any(item[2] for item in (*first[2:], *second[1:], *third[1:]))

"""Arguments edited by a person who sees them masked: what was left alone is what it was."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.gates.approval.edits import restore, typed_secret, unknowable
from toolgate.model import MASK

pytestmark = pytest.mark.requirement("TIER-7")

names = st.sampled_from(["a", "b", "c", "password", "token"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("xyz", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)
objects = st.dictionaries(names, values, max_size=4)


def hidden(value: Any) -> Any:
    """As a person sees it."""
    if isinstance(value, dict):
        return {
            key: MASK if key in ("password", "token") and part and isinstance(part, str | list | dict) else hidden(part)
            for key, part in value.items()
        }
    return [hidden(part) for part in value] if isinstance(value, list) else value


@given(objects)
def test_an_edit_that_changes_nothing_gives_the_original(original: dict[str, Any]) -> None:
    shown = hidden(original)
    assert unknowable(shown, shown) is None
    assert restore(shown, shown, original) == original


@given(objects, values)
def test_an_edit_changes_what_was_edited_and_nothing_else(original: dict[str, Any], new: Any) -> None:
    shown = hidden(original)
    edited = {**shown, "new": new}
    assert restore(edited, shown, original) == {**original, "new": new}
    for name in shown:
        less = {key: part for key, part in shown.items() if key != name}
        assert restore(less, shown, original) == {key: part for key, part in original.items() if key != name}


def test_true_is_not_one() -> None:
    assert restore({"a": 1, "password": MASK}, {"a": True, "password": MASK}, {"a": True, "password": "x"}) == {
        "a": 1,
        "password": "x",
    }
    assert type(restore({"a": 1}, {"a": True}, {"a": True})["a"]) is int


@given(objects, objects)
def test_no_mask_is_left_in_what_runs(original: dict[str, Any], other: dict[str, Any]) -> None:
    """Whatever is edited: either it is refused, or nothing in it is a mask that stands for nothing."""
    shown, edited = hidden(original), hidden(other)
    if unknowable(edited, shown) is None:
        assert MASK not in str(restore(edited, shown, original))


@pytest.mark.parametrize(
    ("edited", "where"),
    [
        ({"a": MASK}, "a"),
        ({"password": MASK, "a": MASK}, "a"),
        ({"password": f"x{MASK}"}, "password"),
        ({"list": [MASK, "x"]}, "list[0]"),
        ({"deep": {"er": [{"x": MASK}]}}, "deep.er[0].x"),
        ({MASK: 1}, "(top)"),
        ({"password": MASK}, None),
        ({"a": "b"}, None),
    ],
)
def test_a_mask_that_was_moved_is_found(edited: dict[str, Any], where: str | None) -> None:
    assert unknowable(edited, {"password": MASK, "list": ["x", MASK]}) == where


@pytest.mark.parametrize(
    ("edited", "masked", "where"),
    [
        ({"password": "hunter2"}, {"password": MASK}, "password"),
        ({"password": "{{secret:DB}}"}, {"password": MASK}, None),
        ({"password": "{{secret:DB}} hunter2"}, {"password": MASK}, "password"),
        ({"a": [{"token": "t"}]}, {"a": [{"token": MASK}]}, "a[0].token"),
        ({"ghp_x": 1}, {MASK: 1}, "(top)"),
        ({"password": MASK}, {"password": MASK}, None),
    ],
)
def test_a_secret_that_was_typed_is_found(edited: dict[str, Any], masked: dict[str, Any], where: str | None) -> None:
    assert typed_secret(edited, masked) == where

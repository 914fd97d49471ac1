"""The reader of JSON that knows positions: it takes what Python's takes, and refuses what that refuses."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.tools.parsers.json_reader import MAX_DEPTH, JsonReader, MalformedJson

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def read(text: str) -> JsonReader:
    reader = JsonReader(text)
    reader.read()
    return reader


def clean(value: Any) -> Any:
    """Without halves of surrogate pairs, which the reader writes out."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, list):
        return [clean(part) for part in value]
    return {clean(key): clean(part) for key, part in value.items()} if isinstance(value, dict) else value


@given(VALUES, st.sampled_from([None, 2]), st.booleans())
def test_what_json_writes_is_read_back(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    reader = read(text)
    assert reader.value == clean(value)
    assert reader.repeated == []


@given(st.text(alphabet='{}[]",:0123456789.eE+-truefalsn \\u\n', max_size=40))
def test_it_takes_exactly_what_python_takes(text: str) -> None:
    def strict(word: str) -> Any:
        raise ValueError(word)

    try:
        expected = json.loads(text, parse_constant=strict)
    except ValueError:
        with pytest.raises(MalformedJson):
            read(text)
        return
    try:
        found = read(text).value
    except MalformedJson as error:
        assert "too large" in error.message
        return
    assert found == clean(expected)


@given(VALUES)
def test_every_value_is_found_where_it_stands(value: Any) -> None:
    text = json.dumps([0, {"key": value}], ensure_ascii=False)
    offset = read(text).offset_of([1, "key"])
    assert text[offset:].startswith(json.dumps(value, ensure_ascii=False))


@pytest.mark.parametrize(
    ("text", "offset", "words"),
    [
        ('{"a": 1,}', 8, "after the comma"), ("[1, 2,]", 6, "after the comma"), ("{'a': 1}", 1, "double quotation marks"),
        ('{"a" 1}', 5, "colon"), ('{"a": 1 "b": 2}', 8, "comma or }"), ("[1 2]", 3, "comma or ]"),
        ("// x\n1", 0, "comments"),
        ('{"a": undefined}', 6, "undefined is no value"), ("NaN", 0, "NaN is no value"), ('["a\nb"]', 1, "no end"),
        ('["a\\x"]', 3, "escape"), ('["a\tb"]', 3, "control character"), ("[1] 2", 4, "more text"),
        ("", 0, "ends too early"),
        ('{"a":', 5, "ends too early"), ("[01]", 1, "no number"), ("1e999", 0, "too large"), ("9" * 2_000, 0, "digits"),
        ("[" * 1_000, MAX_DEPTH, "levels deep"), ('{"a":' * 1_000, 5 * MAX_DEPTH, "levels deep"),
        ('"' + "a" * 500_000, 0, "no end"),
    ],
)  # fmt: skip
def test_a_mistake_is_found_at_its_place(text: str, offset: int, words: str) -> None:
    with pytest.raises(MalformedJson, match=words) as found:
        read(text)
    assert found.value.offset == offset

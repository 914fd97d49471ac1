"""Arguments on the command line: what a key leads to, and that every word gives arguments or is a usage error."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.cli.arguments import merge, read_words
from toolgate.cli.context import Usage

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "a.b": {"type": "string"},
        "a[]": {"type": "string"},
        "a": {"type": "object", "properties": {"b": {"type": "integer"}, "s": {"type": "string"}}},
        "user": {"anyOf": [{"$ref": "#/$defs/User"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/User"}},
    },
    "$defs": {
        "User": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            "additionalProperties": {"type": "string"},
        }
    },
}


def read(*words: str, args: str | None = None, schema: dict[str, Any] = SCHEMA) -> dict[str, Any]:
    found, whole = read_words(words, args)
    return merge(whole or {}, found, schema)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["text=1", "count=1"], {"text": "1", "count": 1}),
        (["a.b=x"], {"a.b": "x"}),  # as the schema spells it
        (["a.s=1"], {"a": {"s": "1"}}),
        (["a[]=x"], {"a[]": "x"}),
        (["user.name=1", "user.age=2", "user.other=3"], {"user": {"name": "1", "age": 2, "other": "3"}}),
        (["tags[]=1", "tags[]=b"], {"tags": ["1", "b"]}),
        (["tags.0=a", "tags.1=b", "tags[0]=c"], {"tags": ["c", "b"]}),
        (["rows[].name=1", "rows[0].age=2", "rows[].name=b"], {"rows": [{"name": "1", "age": 2}, {"name": "b"}]}),
        (["new.x.y=1"], {"new": {"x": {"y": 1}}}),
        ([r"new\.x=1", r"li\[st=2"], {"new.x": 1, "li[st": 2}),
        (["new.0=1"], {"new": {"0": 1}}),  # nothing says that it is a list
        (["user:=null"], {"user": None}),
        (["text=@@me"], {"text": "@me"}),
        (["text=@@@me", "tags[]=@@"], {"text": "@@me", "tags": ["@"]}),
        (["text=a=b", "text.x:=1"], None),
        (["tags[1]=a"], None),
        (["tags.name=a"], {"tags": {"name": "a"}}),  # which the schema refuses
        (["[]=a"], None),
        (["a..s=1"], None),
        (["user.=1"], None),
        ([".user=1"], None),
        (["user[x]=1"], None),
        (["text=@"], None),
        (["text=@/no/such/file"], None),
        (["text=@\0"], None),
        (["text=@-", "count=@-"], None),
        ([".".join("x" * 100) + "=1"], None),
    ],
)  # fmt: skip
def test_a_key_leads_into_an_argument(words: list[str], arguments: dict[str, Any] | None) -> None:
    if arguments is None:
        with pytest.raises(Usage):
            read(*words)
    else:
        assert read(*words) == arguments


def test_a_key_wins_over_the_whole_object_and_leaves_the_rest_of_it() -> None:
    whole = '{"user": {"name": "a", "age": 1}, "tags": ["x"]}'
    assert read("user.age=2", "tags[]=y", args=whole) == {"user": {"name": "a", "age": 2}, "tags": ["x", "y"]}


names = st.text(st.characters(exclude_characters=".[]\\=:", exclude_categories=["Cs"]), min_size=1, max_size=8)
leaves = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"]))
trees = st.dictionaries(
    names,
    st.recursive(leaves, lambda inner: st.dictionaries(names, inner, min_size=1, max_size=3), max_leaves=6),
    max_size=4,
)


def spelled(tree: dict[str, Any], before: str = "") -> list[str]:
    """A tree as words that lead to each of its leaves."""
    words = []
    for name, value in tree.items():
        key = f"{before}{name}"
        words += spelled(value, f"{key}.") if isinstance(value, dict) else [f"{key}:={json.dumps(value)}"]
    return words


@given(trees)
def test_any_object_can_be_written_leaf_by_leaf(tree: dict[str, Any]) -> None:
    assert read(*spelled(tree), schema={}) == tree


@given(st.dictionaries(st.text(".[]\\ab01", min_size=1, max_size=6), st.just({"type": "string"}), min_size=1, max_size=4))
def test_a_name_of_the_schema_is_always_taken_as_it_stands(properties: dict[str, Any]) -> None:
    for name in properties:
        if not name.startswith("["):
            assert read(f"{name}=x", schema={"type": "object", "properties": properties}) == {name: "x"}


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.text(".[]=:@\\ab0\0", max_size=12), max_size=4
    )
)
def test_whatever_is_written_gives_arguments_or_is_usage(words: list[str]) -> None:
    words = [word for word in words if "=@" not in word or "=@@" in word]
    try:
        assert isinstance(read(*words), dict)
    except Usage as error:
        assert error.message


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_can_be_written(text: str) -> None:
    assert read(f"text={text.replace('@', '@@', 1) if text.startswith('@') else text}") == {"text": text}

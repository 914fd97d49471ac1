"""The walker of JSON Schemas ends, visits each part once, and follows references however they are written."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.schema import (
    ANY_SCHEMA,
    CHOICES,
    PARTS_OF_VALUE,
    SAME_VALUE,
    SchemaDocument,
    located,
    pointed,
    refer_strictly,
    references,
    same_value,
    subschemas,
)

NAMES = ("x", "y", "a/b", "c~d", "e f")
POINTERS = st.sampled_from(
    ["#", "#/$defs/x", "#/$defs/y", "#/$defs/a~1b", "#/$defs/c~0d", "#/$defs/e%20f", "#here", "https://e.com/r#/$defs/x",
     "r", "#/nowhere", "https://elsewhere.org/s", "?q#/$defs/y", "#/properties/p"]
)  # fmt: skip


def _held(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=3)
    return (
        st.builds(lambda keyword, parts: {keyword: parts}, st.sampled_from([*CHOICES, "prefixItems", "items"]), lists)
        | st.builds(lambda keyword, part: {keyword: part}, st.sampled_from(["not", "if", "items", "contains"]), inner)
        | st.builds(lambda part: {"properties": {"p": part}, "dependencies": {"p": part, "q": ["p"]}}, inner)
        | st.builds(lambda part: {"$id": "https://e.com/r", "$anchor": "here", "$defs": {"x": part}}, inner)
        | st.builds(
            lambda part, reference: {**part, "$ref": reference}, inner.filter(lambda p: isinstance(p, dict)), POINTERS
        )
    )


PARTS = st.recursive(
    st.sampled_from([{"type": "string"}, True, False, {}, 5, None, "text"])
    | st.builds(
        lambda key, to: {key: to}, st.sampled_from(["$ref", "$dynamicRef", "$recursiveRef"]), POINTERS | st.integers()
    ),
    _held,
    max_leaves=8,
)
SCHEMAS = st.builds(
    lambda whole, parts: {**(whole if isinstance(whole, dict) else {}), "$defs": dict(zip(NAMES, parts, strict=True))},
    PARTS,
    st.lists(PARTS, min_size=5, max_size=5),
)


@given(SCHEMAS)
def test_every_walk_ends_and_visits_each_part_once(schema: dict[str, Any]) -> None:
    document, parts = SchemaDocument(schema), [part for _, part in located(schema)]
    inside = {id(part) for part in parts} | {id(ANY_SCHEMA)}
    for part in parts:
        whole = document.whole(part)
        assert len({id(one) for one in whole}) == len(whole)
        assert {id(one) for one in whole} <= inside, "it makes nothing up"
        assert whole[0] is part
        strictly = {id(one) for one in same_value([part], refer_strictly(schema), CHOICES)}
        assert strictly <= {id(one) for one in whole}, "who guards sees all that who shows sees"


@given(SCHEMAS)
def test_whole_is_closed_under_each_step(schema: dict[str, Any]) -> None:
    document = SchemaDocument(schema)
    whole = document.whole(schema)
    seen = {id(part) for part in whole}
    for part in whole:
        steps = [*subschemas(part, SAME_VALUE), *(one for to in references(part) for one in document.refer(to))]
        assert all(id(one) in seen for one in steps if isinstance(one, Mapping))


@given(SCHEMAS)
def test_a_location_leads_to_its_part(schema: dict[str, Any]) -> None:
    found = list(located(schema))
    assert len({path for path, _ in found}) == len(found)
    for path, part in found:
        pointer = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
        assert pointed(schema, pointer)[0] is part


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("#/$defs/plain", "plain"),
        ("#/$defs/a~1b", "a/b"),
        ("#/$defs/c~0d", "c~d"),
        ("#/$defs/e%20f", "e f"),
        ("#here", "anchored"),
        ("https://e.com/r", "resource"),
        ("r", "resource"),
        ("https://e.com/r#/$defs/inner", "inner"),
        ("#/$defs/inner", "inner"),
        ("?q#/$defs/inner", "inner"),
    ],
)
def test_a_reference_is_followed_however_it_is_written(reference: str, name: str) -> None:
    parts: dict[str, Any] = {one: {"title": one} for one in ("plain", "a/b", "c~d", "e f", "inner")}
    inner = parts.pop("inner")
    parts["anchored"] = {"title": "anchored", "$anchor": "here"}
    parts["resource"] = {"title": "resource", "$id": "https://e.com/r", "$defs": {"inner": inner}}
    found = SchemaDocument({"$defs": parts}).refer(reference)
    assert name in [part.get("title") for part in found]


@pytest.mark.parametrize("reference", ["#/nowhere", "#nowhere", "https://elsewhere.org/s", "file:///etc/passwd", "x#/y"])
def test_a_reference_that_leads_nowhere_may_be_anything_and_is_not_fetched(reference: str) -> None:
    schema = {"$ref": reference, "$defs": {"x": {"type": "string"}}}
    assert SchemaDocument(schema).refer(reference) == [ANY_SCHEMA]
    assert list(refer_strictly(schema)(reference)) == []


def test_every_keyword_with_schemas_is_walked() -> None:
    """Those of all drafts that say something of a value; $defs and definitions are reached by references."""
    inner = {"title": "inner"}
    by_name = ("properties", "patternProperties", "dependentSchemas", "dependencies")
    for keyword in (*SAME_VALUE, *PARTS_OF_VALUE):
        held = {"n": inner} if keyword in by_name else [inner] if keyword in (*CHOICES, "prefixItems") else inner
        assert list(subschemas({keyword: held}, (keyword,))) == [inner]

"""No schema keeps everybody waiting: neither one that is a bomb, nor one that becomes one with what it is given."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import DefinitionError
from toolgate.jsontext import schema_faults
from toolgate.model import Tool, Validator
from toolgate.registry.compile import compile_entry
from toolgate.registry.schema_limits import MAX_SUBSCHEMAS, BoundedValidator, SchemaWork, TooMuchWork, measure


def doubling(levels: int) -> dict[str, Any]:
    """Each definition refers twice to the next."""
    chain = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**chain, f"d{levels}": {"type": "string"}}}


def tree(branches: int) -> dict[str, Any]:
    """A tree whose nodes are of several kinds, all with the same name for what is below them."""
    kinds = [
        {"properties": {"kind": {"const": f"k{n}"}, "below": {"$ref": "#/$defs/node"}}, "required": ["kind"]}
        for n in range(branches)
    ]
    return {"properties": {"root": {"$ref": "#/$defs/node"}}, "$defs": {"node": {"anyOf": kinds}}}


def compiled(schema: dict[str, Any]) -> Validator:
    tool = Tool(name="t", description="d", input_schema={"type": "object", **schema})
    return compile_entry(tool, None).check_input


def nested(depth: int, kind: str) -> dict[str, Any]:
    value: dict[str, Any] = {"kind": kind}
    for _ in range(depth):
        value = {"kind": "k0", "below": value}
    return {"root": value}


@pytest.mark.parametrize(
    "schema", [doubling(17), doubling(60), {"properties": {"a": {"$ref": "#/$defs/d0"}}, **doubling(30)}]
)
def test_a_bomb_is_no_definition(schema: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="takes too long to check"):
        compiled(schema)


def test_one_that_is_deeper_than_python_can_go_is_refused_too() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(5_000):
        schema = {"not": schema}
    with pytest.raises(TooMuchWork):
        measure(schema)


def test_what_refers_to_itself_once_is_as_deep_as_it_likes() -> None:
    schema = {"properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    assert measure(schema) == SchemaWork()
    value: dict[str, Any] = {}
    for _ in range(40):
        value = {"next": value}
    assert compiled(schema).is_valid(value)


def test_what_branches_at_each_level_is_checked_as_deep_as_that_can_be_done() -> None:
    check = compiled(tree(8))
    assert isinstance(check, BoundedValidator)
    begun = time.process_time()
    assert check.is_valid(nested(2, "k3"))
    assert not check.is_valid(nested(2, "unknown"))
    assert not check.is_valid(nested(60, "k3"))
    [fault] = schema_faults(check, nested(60, "k3"))
    assert "nested more than" in fault.message
    [fault] = schema_faults(check, nested(60, "k3"), every=False)
    assert "nested more than" in fault.message
    [fault] = schema_faults(check, nested(2, "unknown"))
    assert "too involved to say why" in fault.message
    assert time.process_time() - begun < 20, "it takes hours if it is tried"


@pytest.mark.parametrize(
    "reference",
    ["#/$defs/a~1b", "#here", "https://example.com/x", "https://example.com/x#/$defs/inner", "#/allOf/0", "#/nowhere"],
)
def test_references_are_found_however_they_are_written(reference: str) -> None:
    big = {"anyOf": [{"type": "string"}] * 100}
    schema = {
        "properties": {"p": {"$ref": reference}},
        "allOf": [big],
        "$defs": {
            "a/b": big,
            "c": {**big, "$anchor": "here"},
            "d": {"$id": "https://example.com/x", "$defs": {"inner": big}, **big},
        },
    }
    plain = {key: value for key, value in schema.items() if key != "properties"}
    more = _work(schema) - _work(plain)
    assert more >= 100 or reference == "#/nowhere"


def _work(schema: Any) -> int:
    from toolgate.registry.schema_limits import MAX_LEVELS, _WorkCount

    return _WorkCount(schema).of(schema, MAX_LEVELS)


SCHEMAS = st.recursive(
    st.sampled_from([{"type": "string"}, {"type": "integer"}, True, {"$ref": "#/$defs/x"}, {"$ref": "#/$defs/y"}]),
    lambda inner: (
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=3))
        | st.builds(lambda part: {"properties": {"p": part}}, inner)
        | st.builds(lambda part: {"items": part}, inner)
    ),
    max_leaves=6,
)


@given(SCHEMAS, SCHEMAS)
def test_counting_always_ends_and_never_gives_more_than_just_too_much(first: Any, second: Any) -> None:
    schema = {"properties": {"v": first}, "$defs": {"x": first, "y": second}}
    assert 1 <= _work(schema) <= MAX_SUBSCHEMAS + 1


def _doubled(write: Any, names: Any = "d{}".format, levels: int = 40) -> dict[str, Any]:
    """Definitions of which each asks for the next one twice: a trillion checks of one value."""
    parts = {names(n): write(names(n + 1)) for n in range(levels)}
    return {**parts, names(levels): {"type": "string"}}


def _twice(reference: str) -> dict[str, Any]:
    return {"anyOf": [{"$ref": reference}] * 2}


OWN_ADDRESS = {"$ref": "#/$defs/d0", "$defs": _doubled(lambda name: _twice(f"#/$defs/{name}"))}
BOMBS = {
    "in a resource with an address of its own": {
        "properties": {"a": {"$ref": "https://e.com/in"}},
        "$defs": {"r": {"$id": "https://e.com/in", **OWN_ADDRESS}},
    },
    "in a resource with a relative address": {
        "$id": "https://e.com/root",
        "properties": {"a": {"$ref": "in"}},
        "$defs": {"r": {"$id": "in", **OWN_ADDRESS}},
    },
    "behind a query": {
        "$id": "https://e.com/root",
        "properties": {"a": {"$ref": "?x=1#/$defs/d0"}},
        "$defs": {"r": {"$id": "https://e.com/root?x=1", **OWN_ADDRESS}},
    },
    "with names that are written with percent signs": {
        "properties": {"a": {"$ref": "#/$defs/d%200"}},
        "$defs": _doubled(lambda name: _twice(f"#/$defs/{name.replace(' ', '%20')}"), "d {}".format),
    },
    "by dependencies": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "allOf": [{"$ref": "#/definitions/d0"}],
        "definitions": _doubled(lambda name: {"dependencies": {key: {"$ref": f"#/definitions/{name}"} for key in "ab"}}),
    },
    "by dependent schemas": {
        "allOf": [{"$ref": "#/$defs/d0"}],
        "$defs": _doubled(lambda name: {"dependentSchemas": {key: {"$ref": f"#/$defs/{name}"} for key in "ab"}}),
    },
    "behind a circle that hides what it costs": {
        "allOf": [{"$ref": "#/$defs/s"}, {"$ref": "#/$defs/d0"}],
        "$defs": {
            "s": {"anyOf": [*({"type": "string"} for _ in range(9_000)), {"$ref": "#/$defs/d0"}]},
            **_doubled(lambda name: _twice(f"#/$defs/{name}"), levels=11),
            "d11": {"$ref": "#/$defs/s"},
        },
    },
}


@pytest.mark.parametrize("schema", BOMBS.values(), ids=BOMBS)
@pytest.mark.sample(4)
def test_a_bomb_is_seen_wherever_it_is_hidden(schema: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="takes too long to check"):
        compiled(schema)

"""Arguments: what is refused and with which words, and the one form in which the rest is hashed, cached and run."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from toolgate import App, CacheRule, tool
from toolgate.model import Tool
from toolgate.registry.compile import compile_entry
from toolgate.store.audit_log import latest
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("IO-1")


class Row(BaseModel):
    """A row."""

    name: str
    size: int = Field(ge=0)


class Sheet(BaseModel):
    """Rows in rows."""

    rows: list[Row]


@tool(tier="read_only")
async def count(sheet: Sheet, title: Annotated[str, Field(min_length=3)], mode: int | None = None) -> int:
    """Count the rows."""
    return len(sheet.rows) + len(title) + (mode or 0)


@tool(tier="read_only")
async def no_arguments() -> str:
    """Take nothing."""
    return "ok"


@tool(tier="read_only", cache=CacheRule(ttl=60))
async def kinds(number: int = 0, maybe: int | None = None, several: list[int] | None = None, ratio: float = 0.5) -> str:
    """Say what came."""
    return f"{number!r} {maybe!r} {several!r} {ratio!r}"


@tool(tier="read_only")
async def keep(value: Any) -> Any:
    """Give back."""
    return value


class Runner:
    """Gives the arguments back: for tools that are only a schema."""

    async def run(self, _ctx: Any, _entry: Any, arguments: dict[str, Any]) -> Any:
        return arguments

    async def close(self) -> list[str]:
        return []


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        app.tools.register_many([count, no_arguments, kinds, keep])
        app.add_runner("plain", Runner())
        yield app


def by_schema(app: App, properties: dict[str, Any], **more: Any) -> None:
    """Register a tool `plain` that has this schema and gives back its arguments."""
    schema = {"type": "object", "properties": properties, **more}
    app.register(
        compile_entry(Tool(name="plain", description="x", tier="read_only", kind="plain", input_schema=schema), None)
    )


async def faults(app: App, name: str, arguments: Any) -> dict[str, str]:
    outcome = await app.invoke(name, arguments)
    assert outcome.error is not None
    assert outcome.error.code == "VALIDATION_ERROR"
    assert outcome.error.details is not None
    errors = outcome.error.details["errors"]
    for error in errors:
        assert error["path"] in outcome.error.message
        assert error["message"] in outcome.error.message
    return {error["path"]: error["message"] for error in errors}


async def test_every_fault_is_told_with_its_path(app: App) -> None:
    arguments = {
        "sheet": {"rows": [{"name": "a", "size": 1}, {"name": 5}, {"name": "c", "size": -1}]},
        "title": "x",
        "odd": 1,
    }
    assert await faults(app, "count", arguments) == {
        "sheet.rows[1].name": "must be of type string, not integer",
        "sheet.rows[1].size": "is required",
        "sheet.rows[2].size": "must be 0 or more",
        "title": "must have at least 3 characters",
        "odd": "unknown argument",
    }


async def test_the_path_of_what_is_missing_names_it(app: App) -> None:
    assert await faults(app, "count", {}) == {"sheet": "is required", "title": "is required"}


async def test_what_a_tool_without_arguments_is_given_is_named(app: App) -> None:
    unknown = "unknown argument"
    assert await faults(app, "no_arguments", {"a": 1, "b": 2}) == {"a": unknown, "b": unknown}


async def test_of_several_types_all_are_named(app: App) -> None:
    arguments = {"sheet": {"rows": []}, "title": "abc", "mode": "x"}
    assert await faults(app, "count", arguments) == {"mode": "must be of type integer or null, not string"}


async def test_of_an_object_or_nothing_the_fault_inside_the_object_is_told(app: App) -> None:
    row = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    by_schema(
        app, {"row": {"anyOf": [row, {"type": "null"}]}, "either": {"anyOf": [row, {"type": "string", "minLength": 3}]}}
    )
    assert await faults(app, "plain", {"row": {"name": 1}}) == {"row.name": "must be of type string, not integer"}
    assert await faults(app, "plain", {"either": "x"}) == {"either": "must have at least 3 characters"}


@pytest.mark.parametrize(
    ("rule", "value", "words"),
    [
        ({"format": "uri"}, "no uri", "is not a valid uri"),
        ({"format": "date-time"}, "2024-13-01T00:00:00Z", "is not a valid date-time"),
        ({"format": "email"}, "nobody", "is not a valid email"),
        ({"enum": ["a", 2]}, "c", 'must be one of "a",2'),
        ({"const": 5}, 6, "must be 5"),
        ({"pattern": "^a"}, "b", "does not match the pattern ^a"),
        ({"maxLength": 2}, "abc", "must have at most 2 characters"),
        ({"minItems": 1}, [], "must have at least 1 items"),
        ({"maxItems": 1}, [1, 2], "must have at most 1 items"),
        ({"uniqueItems": True}, [1, 1], "has items that are the same"),
        ({"contains": {"type": "string"}}, [1], "has too few or too many items of the kind that the schema asks for"),
        ({"minProperties": 1}, {}, "must have at least 1 names"),
        ({"maxProperties": 0}, {"a": 1}, "must have at most 0 names"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "has a name that must have at most 1 characters"),
        ({"maximum": 3}, 4, "must be 3 or less"),
        ({"exclusiveMinimum": 3}, 3, "must be more than 3"),
        ({"exclusiveMaximum": 3}, 3, "must be less than 3"),
        ({"multipleOf": 2}, 3, "must be a multiple of 2"),
        ({"not": {"type": "string"}}, "x", "is what the schema excludes"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 1, "fits more than one of the forms"),
        ({"anyOf": [{"minimum": 5}, {"multipleOf": 2}]}, 1, "fits none of the 2 forms that the schema allows"),
        ({"type": ["integer", "null"]}, 1.5, "must be of type null or integer, not number"),
    ],
)
@pytest.mark.sample(4)
async def test_the_words_say_what_the_schema_asks_for(app: App, rule: dict[str, Any], value: Any, words: str) -> None:
    by_schema(app, {"field": rule})
    told = await faults(app, "plain", {"field": value})
    assert list(told) == ["field"]
    assert told["field"].startswith(words)


@pytest.mark.parametrize(
    ("rule", "value"),
    [({"format": "uri"}, "https://example.org/a?b=c"), ({"format": "date-time"}, "2024-02-29T12:00:00+01:00")],
)
async def test_values_of_the_right_format_are_taken(app: App, rule: dict[str, Any], value: str) -> None:
    by_schema(app, {"field": rule})
    outcome = await app.invoke("plain", {"field": value})
    assert outcome.output == {"field": value}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"0": {"1": "x"}}, "field.0.1"),
        ({"": {"b": "x"}}, "field.b"),
        ({"": {"": "x"}}, "field"),
        ({"": {"0": []}}, "field[0]"),
    ],
)
async def test_faults_under_names_of_digits_or_none_are_told(app: App, value: dict[str, Any], path: str) -> None:
    """The validator's path has numbers for the former, and leaves out the latter."""
    by_schema(app, {"field": {"additionalProperties": {"type": "object", "additionalProperties": {"type": "integer"}}}})
    told = await faults(app, "plain", {"field": value})
    assert list(told) == [path]
    assert told[path].startswith("must be of type integer")


async def test_at_most_twenty_faults_are_told(app: App) -> None:
    by_schema(app, {"list": {"items": {"type": "string"}}})
    assert list(await faults(app, "plain", {"list": [1] * 500})) == [f"list[{index}]" for index in range(20)]


async def test_of_large_arguments_the_first_fault_is_told(app: App) -> None:
    by_schema(app, {"list": {"items": {"type": "string"}}})
    assert list(await faults(app, "plain", {"list": [1] * 90_000})) == ["list[0]"]


async def test_arguments_with_too_many_values_are_refused_and_long_text_is_not(app: App) -> None:
    by_schema(app, {"list": {"items": {"type": "integer"}}, "text": {"type": "string"}})
    assert "100,000 values" in (await faults(app, "plain", {"list": [1] * 200_000}))[""]
    assert (await app.invoke("plain", {"text": '1,[{",' * 100_000})).ok


async def test_a_long_name_is_not_repeated_at_length(app: App) -> None:
    outcome = await app.invoke("no_arguments", {"x" * 100_000: 1})
    assert outcome.error is not None
    assert len(outcome.error.message) < 1000


@given(number=st.integers(-(2**53), 2**53))
async def test_a_whole_float_reaches_the_function_as_an_integer(app: App, number: int) -> None:
    given_as = {"number": float(number), "maybe": float(number), "several": [float(number)], "ratio": float(number)}
    outcome = await app.invoke("kinds", given_as)
    assert outcome.output == f"{number!r} {number!r} {[number]!r} {float(number)!r}"


async def test_an_integer_and_the_same_as_a_float_share_a_cache_entry(app: App) -> None:
    first = await app.invoke("kinds", {"number": 3, "several": [1, 2]})
    second = await app.invoke("kinds", '{"several": [1.0, 2e0], "number": 3.0}')
    third = await app.invoke("kinds", {"number": 3, "several": [1, 2], "maybe": None})
    fourth = await app.invoke("kinds", {"number": 4, "several": [1, 2]})
    assert [outcome.metrics.cached for outcome in (first, second, third, fourth)] == [False, True, True, False]
    assert second.output == first.output


@pytest.mark.parametrize("number", [1e300, -1e20, 2.0**64])
async def test_a_float_too_large_for_an_integer_is_refused_with_its_path(app: App, number: float) -> None:
    told = await faults(app, "kinds", {"several": [1, number]})
    assert told == {"several[1]": "is an integer of more than 64 bits; send it as text"}


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        order.shuffle(keys)
        return {key: shuffled(value[key], order) for key in keys}
    return [shuffled(part, order) for part in value] if isinstance(value, list) else value


async def hashed(app: App, arguments: Any) -> str:
    """The hash of the arguments that the record of a call has."""
    outcome = await app.invoke("keep", arguments)
    await app.flush()
    [body] = [row[7] for row in await app.parts.store.read(latest(2)) if row[2] == "end" and row[3] == outcome.id]
    found = orjson.loads(body)["args_hash"]
    assert isinstance(found, str)
    return found


@given(value=values, order=st.randoms(use_true_random=False), indent=st.none() | st.integers(0, 4))
async def test_neither_the_order_of_names_nor_white_space_matters(
    app: App, value: Any, order: random.Random, indent: int | None
) -> None:
    text = json.dumps({"value": shuffled(value, order)}, indent=indent)
    assert await hashed(app, {"value": value}) == await hashed(app, text)


@given(one=values, other=values)
async def test_different_values_have_different_hashes(app: App, one: Any, other: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (await hashed(app, {"value": one}) == await hashed(app, {"value": other})) == same


@pytest.mark.parametrize("text", ['{"number": 1}', b'{"number": 1}', ' {"number" : 1 }\n', {"number": 1}])
async def test_arguments_may_be_json_text(app: App, text: Any) -> None:
    outcome = await app.invoke("kinds", text)
    assert outcome.output == "1 None None 0.5"


async def test_no_arguments_at_all_are_an_empty_object(app: App) -> None:
    outcome = await app.invoke("no_arguments")
    assert outcome.output == "ok"


async def test_what_runs_is_what_was_checked_though_the_caller_changes_its_object(app: App) -> None:
    @tool(tier="write")
    async def write(rows: list[int]) -> int:
        """Write rows."""
        return len(rows)

    app.register(write)
    rows = [1, 2]
    call = app.invoke("write", {"rows": rows})
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    rows.append(3)
    assert (await task).output == 2

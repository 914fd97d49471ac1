"""Outputs: checked against what the tool promised, cut to the limits, and kept whole where they were cut."""

import dataclasses
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from toolgate import Actor, App, CacheRule, Outcome, tool
from toolgate.gates.outputs import CUT
from toolgate.model import Tool
from toolgate.registry.compile import compile_entry
from toolgate.store.audit_log import latest
from toolgate.testing import memory_app


class Gives:
    """A runner whose tools give what it holds."""

    value: Any = None

    async def run(self, _ctx: Any, _entry: Any, _arguments: dict[str, Any]) -> Any:
        return self.value

    async def close(self) -> list[str]:
        return []


def entry(schema: dict[str, Any] | None = None, **more: Any) -> Any:
    return compile_entry(
        Tool(name="gives", description="x", tier="read_only", kind="plain", output_schema=schema, **more), None
    )


async def given_out(value: Any, schema: dict[str, Any] | None = None, **settings: Any) -> Outcome:
    """How a call ends whose tool gives this value."""
    async with memory_app(**settings) as app:
        runner = Gives()
        runner.value = value
        app.add_runner("plain", runner)
        app.register(entry(schema))
        return await app.invoke("gives")


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        yield app


# -- the promise


@pytest.mark.requirement("IO-1")
async def test_an_output_that_breaks_the_promise_is_refused_with_the_path_of_each_fault() -> None:
    row = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
    outcome = await given_out({"rows": [{"id": 1}, {"id": "x"}, {}]}, {"properties": {"rows": {"items": row}}})
    assert outcome.output is None
    assert outcome.error is not None
    assert outcome.error.code == "OUTPUT_INVALID"
    assert outcome.error.suggestion
    assert outcome.error.details == {
        "errors": [
            {"path": "rows[1].id", "message": "must be of type integer, not string"},
            {"path": "rows[2].id", "message": "is required"},
        ]
    }
    assert "rows[1].id: must be of type integer" in outcome.error.message


class Point(BaseModel):
    """A point."""

    x: float


@dataclasses.dataclass
class Pair:
    """A pair."""

    left: float
    right: Any = None


@pytest.mark.requirement("IO-1")
@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Point(x=1), {"x": 1.0}),
        ([Pair(1, Pair(2))], [{"left": 1, "right": {"left": 2, "right": None}}]),
        ({3, 1, 2}, [1, 2, 3]),
        ({"at": datetime(2024, 1, 2, tzinfo=UTC)}, {"at": "2024-01-02T00:00:00+00:00"}),
        (Decimal("1.10"), "1.10"),
    ],
)
async def test_models_dataclasses_and_dates_become_json(value: Any, plain: Any) -> None:
    outcome = await given_out(value)
    assert outcome.output == plain


@pytest.mark.requirement("IO-1")
@pytest.mark.parametrize(
    "value", [[Point(x=float("nan"))], {"a": Pair(float("inf"))}, [None, {"b": float("nan")}], float("nan")]
)
async def test_a_number_that_is_none_is_not_given_out_as_null(value: Any) -> None:
    outcome = await given_out(value)
    assert outcome.error is not None
    assert outcome.error.code == "OUTPUT_INVALID"
    assert "NaN" in outcome.error.message


@pytest.mark.requirement("IO-1")
async def test_a_deep_output_with_null_in_it_is_given_out() -> None:
    deep: Any = None
    for _ in range(253):
        deep = [deep]
    outcome = await given_out(deep)
    assert outcome.output == deep


# -- the limits


@pytest.mark.requirement("IO-3")
@pytest.mark.parametrize(
    ("value", "shown", "cut"),
    [
        ("x" * 10_001, "x" * 10_000 + CUT, "the text: 10,001 characters, 10,000 shown"),
        (list(range(101)), list(range(100)), "the list: 101 items, 100 shown"),
        ({"a": [{"b": "x" * 20_000}]}, {"a": [{"b": "x" * 10_000 + CUT}]}, "a[0].b: 20,000 characters, 10,000 shown"),
        ([[1], [0] * 200], [[1], [0] * 100], "[1]: 200 items, 100 shown"),
        ({"k" * 10_001: 1}, {"k" * 10_000 + CUT: 1}, f"{'k' * 40}: a name of 10,001 characters, 10,000 shown"),
    ],
)
async def test_what_is_too_long_is_cut_at_any_depth(value: Any, shown: Any, cut: str) -> None:
    outcome = await given_out(value)
    assert outcome.output == shown
    assert outcome.to_dict()["artifact"]["cut"] == [cut]


PNG = {"type": "image", "mimeType": "image/png"}
FILE = {"uri": "file:///a.bin", "mimeType": "application/octet-stream"}


@pytest.mark.requirement("IO-3")
async def test_an_image_is_given_out_whole_or_not_at_all() -> None:
    whole = {"content": [{**PNG, "data": "A" * 900_000}]}
    assert (await given_out(whole)).output == whole
    outcome = await given_out({"content": [{**PNG, "data": "A" * 1_000_001}, {"type": "text", "text": "beside it"}]})
    assert outcome.output["content"] == [
        {"type": "text", "text": "[image/png, 1,000,001 characters: left out]"},
        {"type": "text", "text": "beside it"},
    ]
    outcome = await given_out({"resource": {**FILE, "blob": "A" * 2_000_000}})
    assert outcome.output["resource"] == {**FILE, "text": "[application/octet-stream, 2,000,000 characters: left out]"}
    assert outcome.artifact is not None and outcome.artifact.id


@pytest.mark.requirement("IO-3")
@pytest.mark.parametrize(
    "value", ["x" * 10_000, list(range(100)), {str(number): number for number in range(1000)}, "é" * 10_000]
)
async def test_what_is_just_within_the_limits_is_whole(value: Any) -> None:
    outcome = await given_out(value)
    assert outcome.output == value
    assert "artifact" not in outcome.to_dict()


@pytest.mark.requirement("IO-3")
@pytest.mark.parametrize(
    "value",
    [
        {f"name {number}": "x" * 5000 for number in range(1000)},
        {f"name {number}": number for number in range(200_000)},
        [[["é" * 900] * 10] * 100] * 2,
    ],
)
async def test_an_output_of_more_than_a_megabyte_is_cut_until_it_is_less(value: Any) -> None:
    outcome = await given_out(value)
    assert 100_000 < len(orjson.dumps(outcome.output)) <= 1_000_000
    assert is_beginning(outcome.output, value)
    assert outcome.artifact is not None
    assert outcome.artifact.cut[0] == "the whole output, to 1,000,000 bytes"


def is_beginning(shown: Any, whole: Any) -> bool:
    """Whether a value shows nothing but what another has, in its order, from its beginning."""
    if isinstance(whole, str):
        return bool(
            shown == whole or (isinstance(shown, str) and shown.endswith(CUT) and whole.startswith(shown.removesuffix(CUT)))
        )
    if isinstance(whole, list):
        return isinstance(shown, list) and len(shown) <= len(whole) and all(map(is_beginning, shown, whole))
    if isinstance(whole, Mapping):
        if not isinstance(shown, Mapping):
            return False
        left = list(whole.items())
        for key, part in shown.items():
            while left and not (is_beginning(key, left[0][0]) and is_beginning(part, left[0][1])):
                left.pop(0)
            if not left:
                return False
        return True
    return bool(shown == whole)


def within(value: Any, string: int, items: int) -> bool:
    if isinstance(value, str):
        return len(value.removesuffix(CUT)) <= string
    if isinstance(value, list):
        return len(value) <= items and all(within(part, string, items) for part in value)
    if isinstance(value, dict):
        return all(within(key, string, items) and within(part, string, items) for key, part in value.items())
    return True


texts = st.text(max_size=60) | st.integers(0, 3000).map("ab".__mul__)
anything = st.recursive(
    st.none() | st.integers(0, 9) | texts,
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(texts, inner, max_size=8),
    max_leaves=60,
)


@pytest.fixture(params=[(1, 1), (5, 3), (40, 8)], ids=str)
async def small(request: pytest.FixtureRequest) -> AsyncIterator[tuple[App, Gives]]:
    """An app that gives out little."""
    string, items = request.param
    limits = {"output_string": string, "output_items": items, "output_bytes": 1024}
    async with memory_app(limits=limits, scan_secrets=False) as app:
        runner = Gives()
        app.add_runner("plain", runner)
        app.register(entry())
        yield app, runner


@pytest.mark.requirement("IO-3")
@given(value=anything)
async def test_what_is_given_out_is_within_the_limits_and_the_beginning_of_the_whole(
    small: tuple[App, Gives], value: Any
) -> None:
    app, runner = small
    runner.value = value
    value = app.parts.redactor.mask(value)  # Hypothesis thinks of names such as "Token"
    outcome = await app.invoke("gives")
    assert outcome.ok
    assert len(orjson.dumps(outcome.output)) <= 1024
    string, items = app.settings.limits.output_string, app.settings.limits.output_items
    if outcome.artifact is None:
        assert outcome.output == value
        assert within(value, string, items)
        return
    if outcome.output != "[too large to show]":
        assert is_beginning(outcome.output, value)
        assert within(outcome.output, string, items)
    whole = await app.parts.artifacts.fetch(outcome.artifact.id, Actor())
    assert whole is not None
    assert orjson.loads(whole) == value


# -- the artifact


ACME, OTHER = Actor(tenant="acme", user="ann"), Actor(tenant="other", user="ann")


@tool(tier="read_only", cache=CacheRule(ttl=60))
async def letters(count: int) -> str:
    """Give letters."""
    return "x" * count


@pytest.mark.requirement("IO-3")
async def test_what_was_cut_is_fetched_whole_by_the_same_tenant_only(app: App) -> None:
    app.register(letters)
    outcome = await app.invoke("letters", {"count": 50_000}, actor=ACME)
    assert outcome.artifact is not None
    assert outcome.artifact.bytes == 50_002
    identity = outcome.artifact.id
    assert await app.parts.artifacts.fetch(identity, ACME) == orjson.dumps("x" * 50_000)
    assert await app.parts.artifacts.fetch(identity, Actor(tenant="acme", user="bob")) is None
    assert await app.parts.artifacts.fetch(identity, OTHER) is None
    assert await app.parts.artifacts.fetch("art_unknown", ACME) is None
    assert await app.parts.artifacts.fetch("", ACME) is None


@pytest.mark.requirement("IO-3")
async def test_an_artifact_can_be_fetched_only_for_a_while() -> None:
    async with memory_app(limits={"artifact_days": 1e-12}) as app:
        app.register(letters)
        outcome = await app.invoke("letters", {"count": 50_000})
        assert outcome.artifact is not None
        assert outcome.artifact.id
        assert await app.parts.artifacts.fetch(outcome.artifact.id, Actor()) is None


@pytest.mark.requirement("IO-3")
async def test_an_output_too_large_to_keep_is_cut_and_says_so() -> None:
    async with memory_app(limits={"artifact_bytes": 20_000}) as app:
        app.register(letters)
        outcome = await app.invoke("letters", {"count": 50_000})
        assert outcome.output == "x" * 10_000 + CUT
        artifact = outcome.to_dict()["artifact"]
        assert artifact["id"] == ""
        assert artifact["cut"][-1] == "not kept: over 20,000 bytes"


@pytest.mark.requirement("IO-3")
async def test_a_cut_output_is_not_cached(app: App) -> None:
    app.register(letters)
    calls = [await app.invoke("letters", {"count": count}) for count in (10_001, 10_001, 10_000, 10_000)]
    assert [outcome.metrics.cached for outcome in calls] == [False, False, False, True]
    assert calls[1].artifact is not None


@pytest.mark.requirement("IO-3", "AUD-1")
async def test_the_record_of_the_call_names_the_artifact(app: App) -> None:
    app.register(letters)
    outcome = await app.invoke("letters", {"count": 50_000})
    await app.flush()
    [body] = [orjson.loads(row[7]) for row in await app.parts.store.read(latest(10)) if row[2] == "end"]
    assert outcome.artifact is not None
    assert body["artifact"] == outcome.artifact.id

"""A Python function as a tool: its schema read off its hints and docstring, its arguments made what the hints ask for."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Optional
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from toolgate import App, InvokeContext, tool
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TOOL-2")


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        yield app


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


class Line(BaseModel):
    """Two points."""

    start: Point
    ends: list[Point]


def read_only(function: Callable[..., Any], **more: Any) -> Any:
    return tool(tier="read_only", **more)(function)


async def output(app: App, function: Callable[..., Any], arguments: dict[str, Any] | None = None) -> Any:
    app.register(function)
    outcome = await app.invoke(function.__name__, arguments or {})
    assert outcome.ok, outcome.error
    return outcome.output


async def code(app: App, name: str, arguments: dict[str, Any]) -> str:
    outcome = await app.invoke(name, arguments)
    assert outcome.error is not None
    return outcome.error.code


async def test_the_schema_comes_from_hints_defaults_and_docstring(app: App) -> None:
    @tool
    async def find(
        query: str,
        limit: int = 5,
        how: Literal["exact", "fuzzy"] = "exact",
        tags: list[str] | None = None,
        score: float = 0.5,
    ) -> dict[str, int]:
        """Find things
        that are kept.

        At length.

        Args:
            query: What to
                look for.
            limit (int, optional): How many.
        """
        return {query: limit, how: 1, **dict.fromkeys(tags or (), int(score))}

    made = app.register(find)
    assert (made.name, made.description, made.tier, made.version) == ("find", "Find things that are kept.", "write", "1.0.0")
    assert made.input_schema == {
        "type": "object",
        "additionalProperties": False,
        "required": ["query"],
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "default": 5, "description": "How many."},
            "how": {"type": "string", "enum": ["exact", "fuzzy"], "default": "exact"},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
            "score": {"type": "number", "default": 0.5},
        },
    }
    assert made.output_schema == {"type": "object", "additionalProperties": {"type": "integer"}}


async def test_sphinx_docstrings_are_read_too(app: App) -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers.

        :param a: The first.
        :param int b: The second,
            with more to say.
        :returns: The sum,
            which is no argument.
        """
        return a + b

    properties = app.register(add).input_schema["properties"]
    assert {name: rule["description"] for name, rule in properties.items()} == {
        "a": "The first.", "b": "The second, with more to say.",
    }  # fmt: skip


async def test_what_a_user_changes_in_a_definition_stays_in_its_app(app: App) -> None:
    @tool(tier="read_only")
    async def greet(name: str) -> str:
        """Greet.

        Args:
            name: Whom.
        """
        return name

    made = app.register(greet)
    made.input_schema["properties"]["name"]["maxLength"] = 0
    made.input_schema["maxProperties"] = 0
    made.annotations["title"] = "Another"
    async with memory_app() as other:
        found = other.register(greet)
        assert found.input_schema["properties"]["name"] == {"type": "string", "description": "Whom."}
        assert "maxProperties" not in found.input_schema and "title" not in found.annotations
        assert (await other.invoke("greet", {"name": "Ada"})).output == "Ada"


async def test_annotated_says_more_than_the_docstring_and_its_bounds_hold(app: App) -> None:
    @read_only
    def half(
        number: Annotated[int, Field(description="An even one.", ge=0, le=10, multiple_of=2)],
        name: str = Field(default="x", max_length=3),
        names: list[str] = Field(default_factory=lambda: ["made"]),  # noqa: B008
    ) -> list[Any]:
        """Halve.

        Args:
            number: Overruled.
            name: A name.
        """
        return [number // 2, name, names]

    assert await output(app, half, {"number": 8}) == [4, "x", ["made"]]
    properties = (await app.tools.list())[[found.name for found in await app.tools.list()].index("half")].input_schema[
        "properties"
    ]
    assert properties["number"] == {
        "type": "integer",
        "description": "An even one.",
        "minimum": 0,
        "maximum": 10,
        "multipleOf": 2,
    }
    assert properties["name"] == {"type": "string", "default": "x", "maxLength": 3, "description": "A name."}
    for wrong in ({"number": 3}, {"number": 12}, {"number": -2}, {"number": 2, "name": "long"}):
        assert await code(app, "half", wrong) == "VALIDATION_ERROR"


async def test_models_go_in_and_come_out(app: App) -> None:
    @read_only
    async def mirror(line: Line, others: dict[str, Point], maybe: Point | None = None) -> Line:
        """Turn a line round."""
        assert isinstance(line.ends[0], Point)
        assert isinstance(others["o"], Point)
        assert maybe is None
        return Line(start=line.ends[-1], ends=[line.start, others["o"]])

    line = {"start": {"x": 1}, "ends": [{"x": 2, "y": 3}]}
    assert await output(app, mirror, {"line": line, "others": {"o": {"x": 9}}}) == {
        "start": {"x": 2, "y": 3}, "ends": [{"x": 1, "y": 0}, {"x": 9, "y": 0}],
    }  # fmt: skip
    made = (await app.tools.list(source="python"))[0]
    assert made.input_schema["$defs"]["Point"]["properties"] == {
        "x": {"type": "integer"},
        "y": {"type": "integer", "default": 0},
    }
    assert made.output_schema is not None
    assert made.output_schema["properties"]["start"] == {"$ref": "#/$defs/Point"}
    assert await code(app, "mirror", {"line": {"start": {}, "ends": []}, "others": {}}) == "VALIDATION_ERROR"


class Renamed(BaseModel):
    since: int = Field(alias="from")
    kind: str = Field(default="k", serialization_alias="class")


async def test_a_model_with_aliases_is_taken_by_them_and_given_out_by_its_field_names(app: App) -> None:
    @read_only
    async def rename(it: Renamed) -> list[Renamed]:
        """Give it back."""
        return [it]

    assert await output(app, rename, {"it": {"from": 3}}) == [{"since": 3, "kind": "k"}]


async def test_values_are_made_what_the_hints_ask_for(app: App) -> None:
    @read_only
    def kinds(
        day: date, moment: datetime, colour: Colour, price: Decimal, id: UUID, by_number: dict[int, str], unique: set[int]
    ) -> list[str]:
        """Say what came."""
        return [type(value).__name__ for value in (day, moment, colour, price, id, next(iter(by_number)), unique)]

    given = {
        "day": "2026-11-01", "moment": "2026-11-01T12:00:00Z", "colour": "red", "price": "1.10",
        "id": "12345678-1234-5678-1234-567812345678", "by_number": {"1": "one"}, "unique": [1, 2],
    }  # fmt: skip
    assert await output(app, kinds, given) == ["date", "datetime", "Colour", "Decimal", "UUID", "int", "set"]
    for name, wrong in (("day", "tomorrow"), ("colour", "green"), ("by_number", {"one": "1"}), ("price", "much")):
        assert await code(app, "kinds", {**given, name: wrong}) == "VALIDATION_ERROR"


async def test_outputs_of_python_types_become_json(app: App) -> None:
    @read_only
    def mixed() -> dict[str, Any]:
        """Give all kinds."""
        return {"day": date(2026, 1, 2), "colour": Colour.RED, "price": Decimal("1.10"), "point": Point(x=1), "set": {2, 1}}

    assert await output(app, mixed) == {
        "day": "2026-01-02", "colour": "red", "price": "1.10", "point": {"x": 1, "y": 0}, "set": [1, 2],
    }  # fmt: skip


@pytest.mark.parametrize("hint", [int, Optional[int], int | None, int | str, Annotated[int, Field(ge=0)]])  # noqa: UP045
async def test_three_point_nought_is_the_whole_number_that_the_hint_asks_for(app: App, hint: Any) -> None:
    async def count(n: Any, more: list[int]) -> str:
        """Say what came."""
        return f"{n!r} {more!r}"

    count.__annotations__["n"] = hint
    assert await output(app, read_only(count), {"n": 3.0, "more": [4.0]}) == "3 [4]"


async def test_parameters_may_have_any_name(app: App) -> None:
    @read_only
    async def odd(
        schema: str, json: str, copy: int, model_x: int, self_: int, p0: int, model_config: date, _hidden: int
    ) -> Any:
        """Give them back."""
        return [schema, json, copy, model_x, self_, p0, model_config.year, _hidden]

    given = {
        "schema": "s",
        "json": "j",
        "copy": 1,
        "model_x": 2,
        "self_": 3,
        "p0": 4,
        "model_config": "2026-01-01",
        "_hidden": 5,
    }
    assert await output(app, odd, given) == ["s", "j", 1, 2, 3, 4, 2026, 5]


async def test_a_keyword_with_an_underscore_is_the_argument_without_it(app: App) -> None:
    @tool(tier="read_only")
    async def route(from_: str, to: str = "here", **more: str) -> list[str]:
        """A way.

        Args:
            from_: Where it begins.
        """
        return [from_, to, *more.values()]

    app.register(route)
    schema = app.parts.catalog.resolve("route", "default").tool.input_schema
    assert schema["properties"]["from"]["description"] == "Where it begins."
    assert schema["required"] == ["from"]
    outcome = await app.invoke("route", {"from": "there", "via": "x"})
    assert outcome.output == ["there", "here", "x"]
    assert (await app.invoke("route", {"from_": "there"})).error is not None


async def test_keyword_arguments_are_passed_on_and_without_them_a_stranger_is_refused(app: App) -> None:
    @read_only
    def open_ended(a: date, **rest: Any) -> Any:
        """Take anything."""
        return [a.year, rest]

    @read_only
    def closed(a: int) -> int:
        """Take one."""
        return a

    assert await output(app, open_ended, {"a": "2026-01-01", "b": [1], "p0": 2}) == [2026, {"b": [1], "p0": 2}]
    app.register(closed)
    assert await code(app, "closed", {"a": 1, "b": 2}) == "VALIDATION_ERROR"


async def test_the_context_is_injected_and_is_no_argument(app: App) -> None:
    @read_only
    async def who(ctx: InvokeContext, **rest: Any) -> Any:
        """Say who calls."""
        return [ctx.user, sorted(rest)]

    @read_only
    def perhaps(ctx: InvokeContext | None = None) -> bool:
        """Say whether there is one."""
        return ctx is not None

    assert await output(app, who, {"a": 1, "ctx": "forged"}) == ["local", ["a"]]
    assert await output(app, perhaps) is True
    assert all("ctx" not in found.input_schema["properties"] for found in await app.tools.list(source="python"))


async def test_a_function_that_is_not_async_runs_off_the_event_loop(app: App) -> None:
    here = threading.get_ident()
    let_go = threading.Event()

    @read_only
    def wait() -> Any:
        """Wait in a thread."""
        return [let_go.wait(10), threading.get_ident() == here, threading.current_thread().name]

    app.register(wait)
    waiting = asyncio.ensure_future(app.invoke("wait"))
    quick = await app.invoke("echo", {"text": "meanwhile"})
    assert (quick.ok, waiting.done()) == (True, False)
    let_go.set()
    assert (await waiting).output == [True, False, "toolgate-tool"]


async def test_a_function_stays_what_it_was(app: App) -> None:
    @tool
    def plain(a: int) -> int:
        """Give it back."""
        return a

    @tool(name="named", tier="read_only")
    async def other(a: int) -> int:
        """Give it back."""
        return a

    assert (plain(2), await other(a=3), plain.__name__) == (2, 3, "plain")
    app.register(plain)
    app.register(other)
    assert {found.name for found in await app.tools.list(source="python")} == {"plain", "named"}
    assert (await app.invoke("named", {"a": 4})).output == 4


async def test_what_wraps_a_declared_function_is_not_gone_round(app: App) -> None:
    def twice(function: Any) -> Any:
        @functools.wraps(function)
        async def run(*args: Any, **named: Any) -> Any:
            return 2 * await function(*args, **named)

        return run

    @twice
    @tool(tier="read_only")
    async def one(a: int) -> int:
        """Give it back."""
        return a

    assert await output(app, one, {"a": 4}) == 8


async def test_hints_may_be_text(app: App) -> None:
    async def later(a: int, point: Point) -> "int":
        """Add."""
        return a + point.x

    later.__annotations__.update(a="int", point="Point")
    assert await output(app, read_only(later), {"a": 1, "point": {"x": 2}}) == 3

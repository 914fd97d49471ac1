"""The permitted tools, in the shapes that models and clients take."""

from collections.abc import AsyncIterator, Iterator
from datetime import date
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from toolgate import Actor, App, Capability, Tool, tool
from toolgate.registry.compile import compile_entry
from toolgate.registry.export import Shape
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TOOL-6")
SHAPES: tuple[Shape, ...] = ("openai", "anthropic", "gemini", "mcp")

# As in Google's reference of Schema; a field outside it is answered with 400.
GEMINI_FIELDS = {
    "type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems", "properties", "required",
    "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf", "propertyOrdering", "default",
    "items", "minimum", "maximum",
}  # fmt: skip


class Unit(Enum):
    METRE = "m"
    FOOT = "ft"


class Size(BaseModel):
    """How big."""

    width: int
    unit: Unit = Unit.METRE
    parts: list["Size"] = []


@tool(tier="external_api", capabilities=[Capability(action="delete")])
async def shape_up(
    size: Size, kind: Literal["a"], how: Literal[1, 2], day: date | None = None, many: str | int = "x"
) -> Size:
    """Make it that big.

    Args:
        size: The size.
    """
    raise NotImplementedError(size, kind, how, day, many)


@tool(tier="read_only")
async def now() -> str:
    """Say when."""
    return "now"


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        app.register(shape_up)
        app.register(now)
        yield app


async def exported(app: App, shape: Shape, name: str) -> dict[str, Any]:
    (found,) = [one for one in await app.tools.export(shape) if one.get("name", one.get("function", {}).get("name")) == name]
    return found


@pytest.mark.parametrize("shape", SHAPES)
async def test_only_what_the_actor_may_see_is_exported(app: App, shape: Shape) -> None:
    await app.tools.set_enabled("now", False, tenant="acme")
    await app.tools.set_enabled("echo", False, persona="intern", reason="not yet")
    await app.tools.set_enabled("timestamp", False)
    actor = Actor(tenant="acme", persona="intern")
    names = [one["function"]["name"] if shape == "openai" else one["name"] for one in await app.tools.export(shape, actor)]
    assert names == sorted(names)
    assert {"shape_up", "calculator"} <= set(names)
    assert not {"now", "echo", "timestamp"} & set(names)
    everyone = [one["function"]["name"] if shape == "openai" else one["name"] for one in await app.tools.export(shape)]
    assert set(everyone) - set(names) == {"now", "echo"}


async def test_openai(app: App) -> None:
    assert await exported(app, "openai", "now") == {
        "type": "function",
        "function": {
            "name": "now",
            "description": "Say when.",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    }


async def test_anthropic(app: App) -> None:
    assert await exported(app, "anthropic", "now") == {
        "name": "now",
        "description": "Say when.",
        "input_schema": {"type": "object", "properties": {}, "additionalProperties": False},
    }


async def test_mcp(app: App) -> None:
    assert await exported(app, "mcp", "now") == {
        "name": "now",
        "description": "Say when.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "annotations": {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False},
    }
    risky = await exported(app, "mcp", "shape_up")
    assert risky["annotations"] == {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True}


async def test_an_output_schema_is_told_to_mcp_clients_if_it_describes_an_object(app: App) -> None:
    @tool(tier="read_only")
    async def sizes() -> dict[str, int]:
        """List sizes."""
        return {}

    app.register(sizes)
    assert (await exported(app, "mcp", "sizes"))["outputSchema"] == {
        "type": "object",
        "additionalProperties": {"type": "integer"},
    }
    assert "outputSchema" not in await exported(app, "mcp", "now")


async def test_gemini_is_given_references_in_place_null_as_nullable_and_one_type_each(app: App) -> None:
    shown = await exported(app, "gemini", "shape_up")
    parameters = shown["parameters"]
    assert (shown["name"], shown["description"]) == ("shape_up", "Make it that big.")
    assert parameters["required"] == ["size", "kind", "how"]
    properties = parameters["properties"]
    assert properties["kind"] == {"type": "string", "enum": ["a"]}
    assert properties["how"] == {"type": "integer"}
    assert properties["day"] == {"type": "string", "nullable": True}
    assert properties["many"] == {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    size = properties["size"]
    assert (size["type"], size["description"], size["required"]) == ("object", "The size.", ["width"])
    assert size["properties"]["unit"] == {"type": "string", "enum": ["m", "ft"]}
    assert size["properties"]["parts"]["items"]["properties"]["width"] == {"type": "integer"}


def schemas(schema: Any) -> Iterator[dict[str, Any]]:
    assert isinstance(schema, dict)
    yield schema
    inner = [
        *schema.get("properties", {}).values(),
        *schema.get("anyOf", []),
        *([schema["items"]] if "items" in schema else []),
    ]
    for part in inner:
        yield from schemas(part)


async def test_gemini_is_told_nothing_that_its_subset_of_json_schema_lacks(app: App) -> None:
    odd = {
        "properties": {
            "a": {"type": ["string", "null"], "format": "uri", "x-public": True, "examples": ["b"]},
            "b": {"oneOf": [{"const": "x"}, {"const": "y"}], "$comment": "either"},
            "c": {"type": "array"},
            "d": {"enum": ["x", None]},
            "title": {"type": "string"},
            "e": {"$ref": "#/definitions/far"},
            "f": True,
        },
        "patternProperties": {"^x": {}},
        "definitions": {"far": {"type": "number", "exclusiveMinimum": 0}},
    }
    app.register(compile_entry(Tool(name="odd", description="Odd.", input_schema=odd), None))
    parameters = (await exported(app, "gemini", "odd"))["parameters"]
    assert parameters["properties"] == {
        "a": {"type": "string", "nullable": True},
        "b": {"anyOf": [{"type": "string", "enum": ["x"]}, {"type": "string", "enum": ["y"]}]},
        "c": {"type": "array", "items": {}},
        "d": {"type": "string", "enum": ["x"], "nullable": True},
        "title": {"type": "string"},
        "e": {"type": "number"},
        "f": {},
    }
    for shown in await app.tools.export("gemini"):
        for schema in schemas(shown.get("parameters", {})):
            assert set(schema) <= GEMINI_FIELDS
            assert isinstance(schema.get("type", ""), str)
            assert schema.get("format", "enum") in ("enum", "date-time", "float", "double", "int32", "int64")
            assert all(isinstance(value, str) for value in schema.get("enum", []))


async def test_gemini_is_told_of_no_parameters_where_there_are_none(app: App) -> None:
    assert await exported(app, "gemini", "now") == {"name": "now", "description": "Say when."}


async def test_a_schema_that_does_not_say_object_says_it_when_exported(app: App) -> None:
    app.register(compile_entry(Tool(name="bare", description="Bare.", input_schema={}), None))
    empty = {"type": "object", "properties": {}}
    assert (await exported(app, "openai", "bare"))["function"]["parameters"] == empty
    assert (await exported(app, "anthropic", "bare"))["input_schema"] == empty
    assert (await exported(app, "mcp", "bare"))["inputSchema"] == empty

"""An outcome as a value of Python's other tools: a web framework's response, a line of a failed assertion."""

import json

import pytest
from pydantic import TypeAdapter

from toolgate import Outcome, tool
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-6")


@tool(tier="read_only")
async def divide(a: int, b: int) -> int:
    """Divide."""
    return a // b


async def outcomes() -> list[Outcome]:
    """A success, a crash, bad arguments, a missing tool."""
    async with memory_app() as app:
        app.register(divide)
        return [
            await app.invoke("divide", {"a": 4, "b": 2}),
            await app.invoke("divide", {"a": 4, "b": 0}),
            await app.invoke("divide", {"a": "four", "b": 2}),
            await app.invoke("nothing"),
        ]


async def test_pydantic_writes_and_describes_its_json_as_a_response_model_needs_it() -> None:
    adapter = TypeAdapter(list[Outcome])
    made = await outcomes()
    assert json.loads(adapter.dump_json(made)) == [outcome.to_dict() for outcome in made]
    assert adapter.validate_python(made) == made
    schema = adapter.json_schema(mode="serialization")
    described = schema["$defs"]["Outcome"]
    told = made[0].to_dict()
    assert set(described["required"]) == set(told)
    assert set(described["properties"]) == {*told, "artifact"}
    assert set(schema["$defs"]["Metrics"]["required"]) == set(told["metrics"])


async def test_it_turns_into_a_dict_where_a_framework_knows_no_type() -> None:
    for outcome in await outcomes():
        assert dict(outcome) == outcome.to_dict()


async def test_its_repr_is_one_short_line_with_the_code_and_the_message() -> None:
    good, crashed, refused, missing = await outcomes()
    assert repr(good) == f"Outcome(divide: success, output=2, id={good.id})"
    assert "failure, INVOCATION_ERROR: The tool raised ZeroDivisionError" in repr(crashed)
    assert "VALIDATION_ERROR" in repr(refused)
    assert "TOOL_NOT_FOUND: There is no tool named 'nothing'" in repr(missing)
    long = Outcome("1", "t", "success", output=["words and words"] * 1_000)
    assert max(map(len, map(repr, [good, crashed, refused, missing, long]))) < 240

"""An outcome as a value of Python's other tools: a web framework's response, a line of a failed assertion."""

import io
import json
import logging
import pprint
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import pytest
from _pytest._io.pprint import PrettyPrinter
from _pytest._io.saferepr import saferepr
from pydantic import Field, TypeAdapter
from rich.console import Console

from toolgate import InvokeContext, Outcome, ToolError, ToolgateError, tool
from toolgate.model import CrashedOutcome
from toolgate.store.audit_log import latest
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


# -- secrets

TOKEN = "ghp_" + "a1B2" * 9
PASSWORD = "correct horse"


@tool(tier="read_only")
async def log_in(ctx: InvokeContext, password: Annotated[str, Field(min_length=3)], how: str = "", note: str = "") -> Any:
    """Log in, in one of several ways."""
    ctx.log(f"with {password}")
    if how == "crash":
        raise ValueError(f"{password} is wrong, {note}")
    if how == "fail":
        details = {"tried": [{password: f"<{password}>"}]}
        raise ToolError(f"{password} is wrong", suggestion=f"not {password}", details=details)
    return {"password": password, "note": note}


@tool(tier="execute")
async def deploy(password: str, note: str) -> None:
    """Wait for a person."""


def shown(outcome: Outcome) -> Iterator[str]:
    """An outcome in every form in which something displays it or sends it on."""
    console = Console(file=io.StringIO(), width=500)
    console.print(outcome, [outcome])
    assert isinstance(console.file, io.StringIO)
    yield console.file.getvalue()
    yield from (str(outcome), f"{outcome!r:.1000}", repr([outcome, outcome.error]), pprint.pformat([outcome], width=1))
    yield from (saferepr(outcome), PrettyPrinter(width=1).pformat([outcome]))  # a failed assertion of pytest
    yield str(dict(outcome))  # what FastAPI does to a value of no known type
    yield TypeAdapter(Outcome).dump_json(outcome).decode()  # what it does to one that is the response model
    yield from (str(msgspec.structs.asdict(outcome)), str(msgspec.structs.astuple(outcome)), outcome.to_json().decode())
    try:
        outcome.raise_for_status()
    except ToolgateError as error:
        yield f"{error} {error!r} {error.__dict__}"


@pytest.mark.requirement("DOOR-6", "IO-2")
async def test_no_form_of_it_shows_a_secret_that_is_masked_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    note = f"key {TOKEN}, password=swordfish1"
    async with memory_app() as app:
        app.tools.register_many([log_in, deploy])
        made = [
            await app.invoke("log_in", {"password": PASSWORD, "note": note}),
            await app.invoke("log_in", {"password": PASSWORD, "how": "crash", "note": note}),
            await app.invoke("log_in", {"password": PASSWORD, "how": "crash", "note": "password=swordfish1"}),
            await app.invoke("log_in", {"password": PASSWORD, "how": "fail"}),
            await app.invoke("log_in", {"password": {"is": PASSWORD}, "other": TOKEN}),
            await app.invoke("deploy", {"password": PASSWORD, "note": note}),
            await app.invoke(TOKEN, {}),
        ]
        await app.flush()
        rows = str(await app.parts.store.read(latest(50)))
    assert [outcome.status for outcome in made] == ["success", *["failure"] * 4, "pending", "failure"]
    assert isinstance(made[1], CrashedOutcome)
    texts = [*(text for outcome in made for text in shown(outcome)), rows, caplog.text]
    leaks = [text for text in texts if any(word in text for word in (TOKEN, PASSWORD, "swordfish1"))]
    assert leaks == []
    with pytest.raises(ToolgateError) as raised:
        made[1].raise_for_status()
    assert str(raised.value.__cause__).startswith(PASSWORD), "whoever runs the tool gets its own exception, as it was raised"

"""A class with `execute` as a tool, and the methods that it may have besides."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import date
from typing import Any

import pytest

from toolgate import App, DefinitionError, Hook, InvalidInput, InvokeContext, ToolError, tool
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TOOL-2")


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        yield app


def noting(log: list[str]) -> Any:
    """A tool that writes down what is asked of it."""

    @tool(tier="read_only")
    class Noting:
        """Note what happens.

        Args:
            text: What to give back.
        """

        name = "note"

        async def initialize(self) -> None:
            log.append("initialize")
            await asyncio.sleep(0)
            log.append("initialized")

        async def validate(self, arguments: dict[str, Any]) -> bool:
            log.append(f"validate {arguments['text']}")
            return True

        async def execute(self, text: str) -> str:
            log.append(f"execute {text}")
            await asyncio.sleep(0)
            return text

        async def cleanup(self) -> None:
            log.append("cleanup")

    return Noting


async def test_a_class_has_the_life_that_its_methods_describe() -> None:
    log: list[str] = []
    async with memory_app() as app:
        made = app.register(noting(log))
        assert (made.name, made.description) == ("note", "Note what happens.")
        assert made.input_schema["properties"] == {"text": {"type": "string", "description": "What to give back."}}
        assert log == []
        for text in "ab":
            assert (await app.invoke("note", {"text": text})).output == text
        assert log == ["initialize", "initialized", "validate a", "execute a", "validate b", "execute b"]
    assert log[6:] == ["cleanup"]


async def test_it_is_initialized_once_although_many_call_at_once() -> None:
    log: list[str] = []
    async with memory_app() as app:
        app.register(noting(log))
        outcomes = await asyncio.gather(*(app.invoke("note", {"text": str(number)}) for number in range(50)))
    assert sorted(int(outcome.output) for outcome in outcomes) == list(range(50))
    assert log[:2] == ["initialize", "initialized"]
    assert (log.count("initialize"), log.count("cleanup")) == (1, 1)


async def test_what_was_never_used_is_not_cleaned_up() -> None:
    log: list[str] = []
    async with memory_app() as app:
        app.register(noting(log))
    assert log == []


async def test_a_failed_initialize_fails_the_call_and_is_tried_again_by_the_next(app: App) -> None:
    tries: list[int] = []

    @tool(tier="read_only")
    class Shaky:
        """Fail at first."""

        async def initialize(self) -> None:
            tries.append(1)
            if len(tries) == 1:
                raise ConnectionError("not yet")

        async def execute(self) -> int:
            return len(tries)

    app.register(Shaky)
    first = await app.invoke("Shaky")
    assert first.error is not None
    assert first.error.code == "CONNECTION_ERROR"
    assert [(await app.invoke("Shaky")).output for _ in range(2)] == [2, 2]


@pytest.mark.parametrize(
    ("verdict", "words"),
    [(False, "refused by the tool"), ("too long", "too long"), (["a is odd", "b is even"], "a is odd; b is even")],
)
async def test_arguments_that_its_validate_refuses_are_a_validation_error(app: App, verdict: Any, words: str) -> None:
    ran: list[int] = []

    @tool(tier="read_only")
    class Picky:
        """Refuse."""

        def validate(self, arguments: dict[str, Any]) -> Any:
            return verdict if arguments["n"] else None

        def execute(self, n: int) -> int:
            ran.append(n)
            return n

    app.register(Picky)
    outcome = await app.invoke("Picky", {"n": 1})
    assert outcome.error is not None
    assert (outcome.error.code, ran) == ("VALIDATION_ERROR", [])
    assert words in outcome.error.message
    assert (await app.invoke("Picky", {"n": 0})).ok


async def test_handle_error_translates_what_execute_raises(app: App) -> None:
    @tool(tier="read_only")
    class Fragile:
        """Break."""

        async def execute(self, what: str) -> None:
            raise KeyError(what)

        def handle_error(self, error: Exception) -> Exception | None:
            if "name" in str(error):
                return InvalidInput("there is no such name", suggestion="try another")
            if "own" in str(error):
                return ToolError("it is full", code="DISK_FULL")
            return None

    app.register(Fragile)
    errors = [(await app.invoke("Fragile", {"what": what})).error for what in ("name", "own", "other")]
    assert [(error.code, error.message) for error in errors if error] == [
        ("INVALID_INPUT", "there is no such name"),
        ("INVOCATION_ERROR", "it is full"),
        ("INVOCATION_ERROR", "The tool raised KeyError: 'other'"),
    ]
    assert errors[0] is not None
    assert errors[1] is not None
    assert (errors[0].suggestion, errors[1].details) == ("try another", {"tool_code": "DISK_FULL"})


async def test_before_and_after_execution_are_the_innermost_hooks(app: App) -> None:
    seen: list[Any] = []

    class Outer(Hook):
        priority = -5

        def will_execute(self, _ctx: InvokeContext) -> None:
            seen.append("will_execute")

        def did_execute(self, _ctx: InvokeContext) -> None:
            seen.append("did_execute")

    @tool(tier="read_only", hooks=[Outer])
    class Framed:
        """Run between two methods."""

        async def before_execution(self, **arguments: Any) -> None:
            seen.append(("before", arguments))

        def execute(self, n: int = 1) -> int:
            seen.append("execute")
            return n + 1

        def after_execution(self, response: Any) -> None:
            seen.append(("after", response))

    app.register(Framed)
    assert (await app.invoke("Framed", {"n": 2})).output == 3
    assert seen == ["will_execute", ("before", {"n": 2}), "execute", ("after", 3), "did_execute"]


async def test_an_error_before_execution_stops_the_call_and_one_after_it_does_not(app: App) -> None:
    @tool(tier="read_only")
    class Early:
        """Break before."""

        def before_execution(self) -> None:
            raise RuntimeError("not now")

        def execute(self) -> int:
            raise AssertionError("must not run")

    @tool(tier="read_only")
    class Late:
        """Break after."""

        def execute(self) -> int:
            return 1

        async def after_execution(self, response: int) -> None:
            raise RuntimeError(f"too late for {response}")

    app.register(Early)
    app.register(Late)
    early, late = await app.invoke("Early"), await app.invoke("Late")
    assert early.error is not None
    assert (early.error.code, early.error.details) == ("UNEXPECTED_ERROR", {"hook": "Early", "stage": "will_execute"})
    assert (late.status, late.output) == ("success", 1)


async def test_execute_that_is_not_async_runs_in_a_thread_with_its_hints_served(app: App) -> None:
    @tool(tier="read_only")
    class Sync:
        """Say the year."""

        def execute(self, day: date, ctx: InvokeContext) -> list[Any]:
            return [day.year, ctx.user, threading.current_thread().name]

    app.register(Sync)
    assert (await app.invoke("Sync", {"day": "2026-05-01"})).output == [2026, "local", "toolgate-tool"]


async def test_an_object_may_be_registered_and_is_the_one_that_runs(app: App) -> None:
    @tool(tier="read_only")
    class Greeter:
        """Greet."""

        def __init__(self, greeting: str) -> None:
            self.greeting = greeting

        async def execute(self, name: str) -> str:
            return f"{self.greeting} {name}"

    app.register(Greeter("Good morning"))
    assert (await app.invoke("Greeter", {"name": "Ada"})).output == "Good morning Ada"
    with pytest.raises(DefinitionError, match="it cannot be made: TypeError"):
        memory_app().register(Greeter)


async def test_execute_may_be_static_or_of_the_class_and_may_hold_the_description(app: App) -> None:
    @tool(tier="read_only")
    class Static:
        @staticmethod
        async def execute(a: int, b: int) -> int:
            """Add.

            Args:
                a: The first.
            """
            return a + b

    @tool(tier="read_only")
    class OfClass:
        """Multiply."""

        factor = 3

        @classmethod
        async def execute(cls, a: int) -> int:
            return cls.factor * a

    made = app.register(Static)
    app.register(OfClass)
    assert (made.description, made.input_schema["required"]) == ("Add.", ["a", "b"])
    assert made.input_schema["properties"]["a"]["description"] == "The first."
    assert (await app.invoke("Static", {"a": 1, "b": 2})).output == 3
    assert (await app.invoke("OfClass", {"a": 2})).output == 6


def test_a_class_without_execute_is_refused_and_a_subclass_must_be_declared_itself() -> None:
    with pytest.raises(DefinitionError) as caught:

        @tool
        class Idle:
            """Do nothing."""

    assert [fault.path for fault in caught.value.faults] == ["execute"]

    class Louder(noting([])):  # type: ignore[misc]
        """Not declared."""

    with pytest.raises(DefinitionError, match="not declared as a tool"):
        memory_app().register(Louder)


@pytest.mark.requirement("PIPE-6", "PIPE-7", "TOOL-2")
@pytest.mark.parametrize("method", ["initialize", "validate", "execute"])
@pytest.mark.parametrize("trouble", ["exits", "hangs"])
async def test_whatever_a_method_does_the_call_ends_and_the_process_goes_on(method: str, trouble: str) -> None:
    async def act(*_arguments: Any) -> Any:
        if trouble == "exits":
            raise SystemExit(3)
        await asyncio.sleep(3600)

    class Troubled:
        """Makes trouble."""

        async def execute(self) -> str:
            return "fine"

    async def execute(self: Any) -> Any:
        """Make trouble."""
        return await act(self)

    setattr(Troubled, method, execute if method == "execute" else act)
    async with memory_app() as app:
        app.register(tool(name="troubled", tier="read_only", timeout=0.1)(Troubled))
        outcome = await asyncio.wait_for(app.invoke("troubled"), 30)
        assert outcome.status == ("failure" if trouble == "exits" else "timeout")
        assert (await app.invoke("echo", {"text": "still here"})).ok

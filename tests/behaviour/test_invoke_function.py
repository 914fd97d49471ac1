"""`app.invoke(add, …)` takes the function, class or object that was registered, and no other of its name."""

import pytest

from toolgate import Outcome, ToolgateError, tool
from toolgate.registry.decorator import declared
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-6")


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(name="sum_up", tier="read_only")
def other_name(numbers: list[int]) -> int:
    """Add many numbers."""
    return sum(numbers)


@tool(name="counter", tier="read_only")
class Counter:
    """Counts its calls."""

    def __init__(self, start: int = 0) -> None:
        self.count = start

    def execute(self) -> int:
        """Count."""
        self.count += 1
        return self.count


async def test_a_function_a_class_and_an_object_are_called_as_by_their_names() -> None:
    async with memory_app() as app:
        app.tools.register_many([add, other_name, Counter])
        assert (await app.invoke(add, {"a": 1, "b": 2})).output == 3
        assert (await app.invoke(other_name, {"numbers": [1, 2, 3]})).tool == "sum_up"
        assert (await app.invoke(Counter)).output == 1
        assert (await app.explain(add, {"a": 1, "b": 2})).tool == "add"
    async with memory_app() as app:
        counter = Counter(10)
        app.register(counter)
        assert (await app.invoke(counter)).output == 11
        with pytest.raises(ToolgateError, match=r"app\.register\(Counter\)"):
            await app.invoke(Counter(20))


async def test_what_is_not_registered_in_this_app_is_told_and_nothing_is_called() -> None:
    first = add

    @tool(name="add", tier="read_only")
    async def impostor(a: int, b: int) -> int:
        """Has the same name."""
        raise AssertionError(a, b)

    async def plain() -> None: ...

    async with memory_app() as one, memory_app() as two:
        one.register(first)
        two.register(impostor)
        for app, code in ((one, impostor), (two, first)):
            with pytest.raises(ToolgateError, match=rf"{code.__name__} is not registered in this App\. .*app\.register\("):
                await app.invoke(code, {"a": 1, "b": 2})
        with pytest.raises(ToolgateError, match=r"plain is not registered .*Put @tool"):
            await one.invoke(plain)


async def test_a_disabled_function_ends_as_by_its_name_and_what_is_no_code_as_a_missing_tool() -> None:
    async with memory_app() as app:
        app.register(add)
        await app.tools.set_enabled("add", False)
        for name in (add, ["add"], 7):
            outcome = await app.invoke(name, {"a": 1, "b": 2})  # type: ignore[arg-type]
            assert isinstance(outcome, Outcome)
            assert outcome.error is not None
            assert outcome.error.code == "TOOL_NOT_FOUND"


def test_the_function_stays_a_function() -> None:
    assert declared(add) is not None
    assert other_name([1, 2]) == 3

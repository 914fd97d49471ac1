"""Calls that no honest caller makes: each gives an outcome that says what is wrong, and the log stays whole."""

from collections import OrderedDict, UserDict
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate import Actor, App, Outcome, tool
from toolgate.store.audit_log import latest
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("PIPE-6", "IO-1")


@tool(tier="read_only")
async def take(value: Any = None, number: int = 0) -> str:
    """Take anything."""
    return f"{type(value).__name__} {number}"


@tool(tier="read_only")
async def refuse(text: str) -> None:
    """Raise what it was given, spoiled."""
    raise ValueError(text + "\ud800\0\x1b[31m")


class Checked:
    """An app; after each call its log must hold the call and verify."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def call(self, name: Any, arguments: Any = None, **more: Any) -> Outcome:
        outcome = await self.app.invoke(name, arguments, **more)
        await self.app.flush()
        rows = await self.app.parts.store.read(latest(5))
        assert [row[6] for row in rows if row[2] == "end" and row[3] == outcome.id] == [outcome.status]
        assert (await self.app.audit.verify()).ok
        outcome.to_json()
        return outcome

    async def fails(self, code: str, name: Any, arguments: Any = None, **more: Any) -> str:
        outcome = await self.call(name, arguments, **more)
        assert outcome.error is not None
        assert outcome.error.code == code
        assert outcome.error.message
        assert outcome.error.suggestion
        assert len(outcome.to_json()) < 5000
        return outcome.error.message


@pytest.fixture
async def app() -> AsyncIterator[Checked]:
    async with memory_app() as app:
        app.tools.register_many([take, refuse])
        yield Checked(app)


NAMES = ["", " ", "nothing", "TAKE", "take ", "take\n", "a\nb", "take\0", "../take", "🙂", "x" * 10_000, "\ud800", "'; --"]


@pytest.mark.parametrize("name", [*NAMES, None, 5, True, b"take", ("take",), ["take"], {}, object()], ids=count())
@pytest.mark.sample(4)
async def test_a_name_that_no_tool_has_is_not_found(app: Checked, name: Any) -> None:
    message = await app.fails("TOOL_NOT_FOUND", name, {})
    assert message.isprintable()


@given(name=st.text() | st.binary() | st.integers() | st.none() | st.floats())
async def test_any_name_gives_an_outcome(app: Checked, name: Any) -> None:
    await app.fails("TOOL_NOT_FOUND", name)


@pytest.mark.parametrize(
    "arguments",
    [[], [1], 5, 1.5, True, object(), {1, 2}, "", b"", "nonsense", b"\xff\xfe", "[1]", "null", "5", '{"value": 1',
     "{'a': 1}", '{"value": NaN}', '{"value": Infinity}', '{"value": "\\ud800"}', '{"value": "\ud800"}', '{"value": 01}',
     "{} {}", "[" * 10_000, '{"value":' * 10_000, '{"value":' + "[" * 10_000 + "]" * 10_000 + "}",
     '{"value":' + "[" * 500 + "]" * 500 + "}", '{"number": ' + "9" * 100 + "}"],
    ids=count(),
)  # fmt: skip
@pytest.mark.sample(4)
async def test_arguments_that_are_no_json_object_are_refused(app: Checked, arguments: Any) -> None:
    assert (await app.fails("VALIDATION_ERROR", "take", arguments)).startswith("Invalid arguments: ")


@pytest.mark.parametrize(
    "arguments", [{"value": "x" * 10_000_000}, '{"value": "' + "x" * 10_000_000 + '"}'], ids=["dict", "text"]
)
async def test_ten_megabytes_are_refused_with_the_limit(app: Checked, arguments: Any) -> None:
    assert "4,194,304 are allowed" in await app.fails("VALIDATION_ERROR", "take", arguments)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def cyclic() -> Any:
    value: list[Any] = []
    value.append({"again": value})
    return value


DEEP = "is nested more than 254 levels deep"
HALF = "holds half of a surrogate pair"


@pytest.mark.parametrize(
    ("value", "path", "words"),
    [
        ({"a": [1, float("nan")]}, "value.a[1]", "NaN"),
        ([None, {"b": float("-inf")}], "value[1].b", "infinite"),
        ({"a": "\ud800"}, "value.a", HALF),
        ({"a\udfff": 1}, "value", "not valid Unicode"),
        ([10**100], "value[0]", "64 bits"),
        ([-(2**63) - 1], "value[0]", "64 bits"),
        ({5: 1}, "value", "a name that is not text"),
        ({None: 1}, "value", "a name that is not text"),
        (cyclic(), "value[0].again", DEEP),
        (nested(10_000), "value[0][0]", DEEP),
        ({"at": datetime(2024, 1, 1, tzinfo=UTC)}, "value.at", "datetime"),
        ({"cost": Decimal(1)}, "value.cost", "Decimal"),
        ([object()], "value[0]", "object"),
        ([OrderedDict(a=1)], "value[0]", "OrderedDict"),
        ([{1, 2}], "value[0]", "set"),
        ([b"bytes"], "value[0]", "bytes"),
        ([lambda: 1], "value[0]", "function"),
    ],
    ids=count(),
)
@pytest.mark.sample(4)
async def test_a_value_that_json_can_not_hold_is_refused_with_its_path(
    app: Checked, value: Any, path: str, words: str
) -> None:
    message = await app.fails("VALIDATION_ERROR", "take", {"value": value})
    assert message.startswith(f"Invalid arguments: {path}")
    assert words in message


@pytest.mark.parametrize("name", [5, None, ("a",), "\ud800", b"value"], ids=count())
async def test_a_name_of_an_argument_that_is_no_text_is_refused(app: Checked, name: Any) -> None:
    assert "a name that is not text" in await app.fails("VALIDATION_ERROR", "take", {name: 1})


class Spiteful(Mapping[str, Any]):
    """Raises whenever it is looked into."""

    def __getitem__(self, _key: str) -> Any:
        raise SystemError("no")

    def __iter__(self) -> Iterator[str]:
        return iter(["value"])

    def __len__(self) -> int:
        return 1


async def test_a_mapping_that_raises_is_refused(app: Checked) -> None:
    assert "the Spiteful raised SystemError" in await app.fails("VALIDATION_ERROR", "take", Spiteful())


@pytest.mark.parametrize("kind", [OrderedDict, UserDict, type("Own", (dict,), {})])
async def test_other_mappings_are_taken_for_what_they_hold(app: Checked, kind: Any) -> None:
    outcome = await app.call("take", kind({"number": 3}))
    assert outcome.output == "NoneType 3"


async def test_what_a_tool_raises_may_be_no_valid_text(app: Checked, caplog: pytest.LogCaptureFixture) -> None:
    outcome = await app.call("refuse", {"text": "x"})
    assert caplog.text.encode()  # a log is a file, which takes text only
    assert outcome.error is not None
    assert outcome.error.code == "INVOCATION_ERROR"
    assert (await app.call("take")).ok


@pytest.mark.parametrize(
    "fields",
    [
        {"tenant": ""},
        {"tenant": None},
        {"user": 5},
        {"user": "a\nb"},
        {"persona": "\ud800"},
        {"tenant": "x" * 300},
        {"user": "\0"},
    ],
    ids=count(),
)
def test_an_actor_with_a_bad_name_can_not_be_made(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Actor\.\w+ must be 1 to 256 printable characters"):
        Actor(**fields)


@pytest.mark.parametrize("session", ["\ud800", "a\0b", "x" * 10_000], ids=count())
async def test_an_odd_session_does_not_spoil_the_log(app: Checked, session: Any) -> None:
    await app.call("take", {}, session=session)
    assert (await app.call("take")).ok


junk = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(st.characters(codec=None)) | st.binary() | st.sets(st.integers()),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(codec=None)) | st.integers(), inner) | st.tuples(inner)
    ),
    max_leaves=15,
)


@given(arguments=junk | st.dictionaries(st.sampled_from(["value", "number", "x"]), junk))
async def test_whatever_the_arguments_the_call_succeeds_or_says_why_not(app: Checked, arguments: Any) -> None:
    outcome = await app.call("take", arguments)
    assert outcome.ok or (
        outcome.error is not None and outcome.error.code == "VALIDATION_ERROR" and outcome.error.suggestion
    )

"""Redaction on a call's way: what the tool gets, and what records, outputs and errors show."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
import pytest
from pydantic import Field

from toolgate import App, CacheRule, InvokeContext, ToolError, tool
from toolgate.gates.redaction import Redactor
from toolgate.model import MASK, Tool
from toolgate.registry.compile import compile_entry
from toolgate.screening import secret_scanner
from toolgate.store.audit_log import latest
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("IO-2")
KEY = "ghp_" + "a1B2" * 9
seen: list[Any] = []


@tool(tier="read_only")
async def login(
    user: str, password: str = "", options: dict[str, Any] | None = None, note: Annotated[str, Field(max_length=100)] = ""
) -> str:
    """Log in."""
    seen.append({"user": user, "password": password, "options": options, "note": note})
    return "welcome"


@tool(tier="read_only", cache=CacheRule(ttl=60))
async def give(value: Any) -> Any:
    """Give back."""
    return value


@tool(tier="read_only")
async def fail(text: str) -> None:
    """Fail with the text."""
    raise ToolError(f"bad: {text}", suggestion=f"not {text}", details={"given": [text], "password": "hunter2"})


@tool(tier="read_only")
async def crash(text: str) -> None:
    """Crash with the text."""
    raise ValueError(text)


@pytest.fixture(params=[True, False], ids=["kingfisher", "forms"])
async def app(request: pytest.FixtureRequest) -> AsyncIterator[App]:
    seen.clear()
    async with memory_app(scan_secrets=request.param) as app:
        app.tools.register_many([login, give, fail, crash])
        yield app


async def on_record(app: App) -> str:
    """All that the log holds, as text."""
    await app.flush()
    return "\n".join(str(row) for row in await app.parts.store.read(latest(50)))


async def recorded(app: App) -> Any:
    """The arguments in the latest start record."""
    await app.flush()
    return next(orjson.loads(row[7])["arguments"] for row in await app.parts.store.read(latest(5)) if row[2] == "start")


async def test_the_tool_gets_its_arguments_unharmed_and_the_record_gets_them_masked(app: App) -> None:
    options = {"proxy": {"headers": [{"Authorization": f"Bearer {KEY}"}]}, "max_tokens": 5, "api_key": "x"}
    arguments = {"user": "ann", "password": "hunter2", "options": options, "note": f"my key is {KEY}."}
    outcome = await app.invoke("login", arguments)
    assert outcome.output == "welcome"
    assert seen == [arguments]
    masked = {"proxy": {"headers": [{"Authorization": MASK}]}, "max_tokens": 5, "api_key": MASK}
    assert await recorded(app) == {
        "user": "ann", "password": MASK, "options": masked, "note": f"my key is {MASK}.",
    }  # fmt: skip
    log = await on_record(app)
    assert KEY not in log
    assert "hunter2" not in log


async def test_a_secret_in_an_output_is_masked_and_the_output_not_cached(app: App) -> None:
    for _ in range(2):
        outcome = await app.invoke("give", {"value": {"rows": [{"text": f"key {KEY}", "secret": "s"}], "tokens_used": 3}})
        assert outcome.output == {"rows": [{"text": f"key {MASK}", "secret": MASK}], "tokens_used": 3}
        assert not outcome.metrics.cached
    assert KEY not in await on_record(app)


async def test_a_secret_used_as_a_name_is_masked(app: App) -> None:
    outcome = await app.invoke("give", {"value": {KEY: 1}})
    assert outcome.output == {MASK: 1}
    assert KEY not in await on_record(app)


async def test_fields_that_the_schema_marks_as_public_are_shown() -> None:
    class Mirror:
        async def run(self, _ctx: InvokeContext, _entry: Any, arguments: dict[str, Any]) -> Any:
            return arguments

        async def close(self) -> list[str]:
            return []

    schema = {"type": "object", "properties": {"token": {"type": "string", "x-public": True}, "secret": {"type": "string"}}}
    definition = Tool(
        name="mirror", description="x", tier="read_only", kind="mirror", input_schema=schema, output_schema=schema
    )
    async with memory_app() as app:
        app.add_runner("mirror", Mirror())
        app.register(compile_entry(definition, None))
        outcome = await app.invoke("mirror", {"token": "page two", "secret": "x"})
        assert outcome.output == {"token": "page two", "secret": MASK}
        assert await recorded(app) == {"token": "page two", "secret": MASK}


async def test_more_names_can_be_set() -> None:
    async with memory_app(sensitive_keys=["iban"]) as app:
        app.register(give)
        outcome = await app.invoke("give", {"value": {"IBAN": "DE02 1203"}})
        assert outcome.output == {"IBAN": MASK}


async def test_an_error_shows_no_secret_in_message_suggestion_or_details(app: App) -> None:
    outcome = await app.invoke("fail", {"text": KEY})
    assert outcome.error is not None
    assert outcome.error.message == f"bad: {MASK}"
    assert outcome.error.suggestion == f"not {MASK}"
    assert outcome.error.details == {"given": [MASK], "password": MASK}
    assert KEY not in await on_record(app)


async def test_what_an_exception_says_is_masked(app: App) -> None:
    outcome = await app.invoke("crash", {"text": f"could not connect to postgresql://ann:hunter2@db/x with {KEY}"})
    assert outcome.error is not None
    words = f"The tool raised ValueError: could not connect to postgresql://{MASK}@db/x with {MASK}"
    assert outcome.error.message == words
    log = await on_record(app)
    assert "hunter2" not in log
    assert words in log


@pytest.mark.parametrize(
    "arguments",
    [
        {"user": "a", "password": ["hunter2hunter2"]},
        {"user": "a", "password": 123456654321},
        {"user": "a", "note": f"{KEY} " * 10},
        {"user": {"password": "hunter2hunter2", "pin": 123456654321}},
        {"user": "a", "options": "hunter2hunter2"},
        {"user": "a", KEY: 1},
    ],
)
@pytest.mark.sample(4)
async def test_refused_arguments_are_not_quoted(app: App, arguments: dict[str, Any]) -> None:
    outcome = await app.invoke("login", arguments)
    assert outcome.error is not None
    assert outcome.error.code == "VALIDATION_ERROR"
    shown = f"{outcome.to_dict()} {await on_record(app)}"
    assert not any(secret in shown for secret in ("hunter2", "123456654321", KEY))


async def test_an_output_that_breaks_its_promise_is_not_quoted(app: App) -> None:
    @tool(tier="read_only")
    async def promise() -> dict[str, int]:
        """Give numbers."""
        return {"pin": "hunter2hunter2"}  # type: ignore[dict-item]

    app.register(promise)
    outcome = await app.invoke("promise")
    assert outcome.error is not None
    assert outcome.error.code == "OUTPUT_INVALID"
    assert "pin" in outcome.error.message
    assert "hunter2" not in f"{outcome.to_dict()} {await on_record(app)}"


async def test_innocent_arguments_are_recorded_as_they_are(app: App) -> None:
    value = {
        "id": "550e8400-e29b-41d4-a716-446655440000",
        "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "path": "/usr/lib/python3.11/site-packages/some_package/module.py",
        "url": "https://example.org/a/b?page=2&sort=name",
        "author": "the secretary",
        "tokens_used": 12,
        "password": 5,
    }
    outcome = await app.invoke("give", {"value": value})
    assert outcome.output == value
    assert await recorded(app) == {"value": value}


@pytest.mark.parametrize("name", ["give", "crash"])
async def test_other_calls_go_on_while_the_scanner_loads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first value that needs it may come in an argument, in an output or in an error."""
    monkeypatch.setattr(secret_scanner, "SHARED", secret_scanner.SecretScanner())

    @tool(tier="read_only")
    async def surprise() -> str:
        """Give or raise what may be a secret."""
        if name == "crash":
            raise ValueError("abcdefghijklmnop0123456789")
        return "abcdefghijklmnop0123456789"

    async with memory_app() as app:
        app.register(surprise)
        first = asyncio.ensure_future(app.invoke("surprise"))
        others = 0
        while not first.done():
            assert (await app.invoke("echo", {"text": "x"})).ok
            await asyncio.sleep(0)
            others += 1
        assert app.parts.redactor.ready
        assert others > 20


async def test_without_a_scanner_nothing_is_loaded() -> None:
    async with memory_app(scan_secrets=False) as app:
        app.register(give)
        outcome = await app.invoke("give", {"value": "abcdefghijklmnop0123456789"})
        assert outcome.output == "abcdefghijklmnop0123456789"
        assert app.parts.redactor.scanner_name is None
    assert Redactor().scanner_name == "kingfisher"

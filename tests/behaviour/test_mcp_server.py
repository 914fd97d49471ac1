"""Toolgate as an MCP server: the tools that an actor may see, called through the pipeline, in both protocol eras."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from tests.mcp_clients import ERAS, connected, key_for, meta, text_of
from tests.serving import Site, serving
from toolgate import Actor, App, InvalidInput, InvokeContext, tool
from toolgate.model import Cost
from toolgate.registry.compile import compile_entry, entry_of
from toolgate.store import audit_log
from toolgate.testing import memory_app

pytestmark = [pytest.mark.requirement("MCP-4", "DOOR-1", "PIPE-1"), pytest.mark.parametrize("era", ERAS)]

ADA = Actor("acme", "analyst", "ada")
BOB = Actor("other", None, "bob")


@tool(tier="read_only")
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(tier="read_only")
async def person(name: str) -> dict[str, Any]:
    """Look a person up."""
    return {"name": name, "friends": ["eve"]}


@tool(tier="write", cost=Cost(fixed=Decimal("0.25")))
async def wipe(what: str) -> str:
    """Wipe something."""
    return what


@tool(tier="read_only")
async def picky(value: str) -> str:
    """Likes nothing."""
    raise InvalidInput(f"not {value}", suggestion="Give something else.")


@tool(tier="read_only")
async def wait() -> str:
    """Wait for ever."""
    await asyncio.sleep(3600)
    return "done"


TOOLS = (add, person, wipe, picky, wait)


@asynccontextmanager
async def open_site(**settings: Any) -> AsyncIterator[tuple[App, Site]]:
    async with memory_app(**settings) as app:
        app.tools.register_many(TOOLS)
        async with serving(app) as site:
            yield app, site


async def all_tools(client: Any) -> list[types.Tool]:
    """What all pages have, in order."""
    found, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return found


async def test_tools_are_listed_with_what_a_client_should_know_of_them(era: str) -> None:
    async with open_site() as (app, site), connected(site, await key_for(app, ADA), era) as client:
        tools = {one.name: one for one in await all_tools(client)}
    assert list(tools) == sorted(tools)
    assert {"add", "wipe", "calculator"} <= tools.keys()
    assert tools["add"].description == "Add two numbers."
    assert tools["add"].input_schema["required"] == ["a"]
    assert tools["add"].output_schema is None  # a number, and no object
    wiping = tools["wipe"]
    assert wiping.annotations is not None
    assert wiping.annotations.model_dump(exclude_none=True) == {
        "read_only_hint": False, "destructive_hint": True, "idempotent_hint": False, "open_world_hint": False,
    }  # fmt: skip
    assert wiping.meta is not None
    told = wiping.meta["toolgate/tool"]
    assert (told["tier"], told["cost_usd"], told["asks"]) == ("write", 0.25, "it is destructive")
    hints = tools["calculator"].annotations
    assert hints is not None and hints.read_only_hint and hints.idempotent_hint
    assert tools["calculator"].output_schema is None  # built-in tools spare their readers the tokens


async def test_a_list_comes_in_pages_that_miss_and_repeat_nothing(era: str) -> None:
    async with open_site(mcp={"page": 3}) as (app, site), connected(site, await key_for(app, ADA), era) as client:
        first = await client.list_tools()
        assert len(first.tools) == 3
        assert [one.name for one in await all_tools(client)] == [one.name for one in (await app.tools.served(ADA)).tools]
        for bad in ("x", "!!", "A" * 5000, "\x00", "é"):
            with pytest.raises(MCPError) as refused:
                await client.list_tools(cursor=bad)
            assert refused.value.error.code == -32602


async def test_a_page_goes_on_where_the_last_one_ended_though_tools_came_and_went(era: str) -> None:
    async with open_site(mcp={"page": 2}) as (app, site), connected(site, await key_for(app, ADA), era) as client:
        first = await client.list_tools()
        await app.tools.set_enabled(first.tools[0].name, False)
        rest = await client.list_tools(cursor=first.next_cursor)
        names = [one.name for one in await app.tools.list(ADA)]
        assert rest.tools[0].name == names[names.index(first.tools[1].name) + 1]


async def test_a_call_gives_its_output_as_text_and_as_what_it_is(era: str) -> None:
    async with open_site() as (app, site), connected(site, await key_for(app, ADA), era) as client:
        number = await client.call_tool("add", {"a": 1, "b": 2})
        assert (text_of(number), number.structured_content, number.is_error) == ("3", None, False)
        found = await client.call_tool("person", {"name": "ada"})
        assert text_of(found) == '{"name":"ada","friends":["eve"]}'
        assert found.structured_content == {"name": "ada", "friends": ["eve"]}
        assert found.meta is not None
        id = found.meta["toolgate/call"]
        await app.flush()
        rows = [row for row in await app.parts.store.read(audit_log.latest(50)) if id in str(row)]
        assert rows and "mcp" in str(rows[-1])


async def test_a_tool_that_fails_is_a_result_that_says_what_to_do(era: str) -> None:
    async with open_site() as (app, site), connected(site, await key_for(app, ADA), era) as client:
        wrong = await client.call_tool("add", {"a": "one"})
        assert wrong.is_error and "VALIDATION_ERROR" in text_of(wrong)
        assert wrong.meta is not None and wrong.meta["toolgate/error"]["code"] == "VALIDATION_ERROR"
        refused = await client.call_tool("picky", {"value": "this"})
        assert refused.is_error and text_of(refused) == "INVALID_INPUT: not this\nGive something else."
        late = await client.call_tool("wait", {}, meta=meta({"toolgate/timeout": 0.05}))
        assert late.is_error and "TIMEOUT" in text_of(late)


@pytest.mark.requirement("DOOR-3")
async def test_a_tool_that_is_hidden_and_one_that_is_not_there_are_the_same_protocol_error(era: str) -> None:
    async with open_site() as (app, site), connected(site, await key_for(app, ADA), era) as client:
        await app.tools.set_enabled("add", False, tenant="acme")
        assert "add" not in {one.name for one in await all_tools(client)}
        told = []
        for name in ("add", "nope"):
            with pytest.raises(MCPError) as refused:
                await client.call_tool(name, {"a": 1})
            told.append((refused.value.error.code, refused.value.error.message.replace(name, "*"), refused.value.error.data))
        assert told[0] == told[1] == (-32602, "Unknown tool: *", None)
        async with connected(site, await key_for(app, BOB), era) as other:
            assert text_of(await other.call_tool("add", {"a": 1})) == "2"


async def test_what_a_call_is_told_in_meta_holds_for_it(era: str) -> None:
    calls: list[int] = []

    @tool(tier="write")
    async def count() -> int:
        """Count."""
        calls.append(1)
        return len(calls)

    async with open_site() as (app, site), connected(site, await key_for(app, ADA), era) as client:
        app.register(count)
        for _ in range(2):
            assert text_of(await client.call_tool("count", {}, meta=meta({"toolgate/idempotency_key": "once"}))) == "1"
        assert len(calls) == 1
        wrong: list[dict[str, Any]] = [
            {"toolgate/timeout": -1},
            {"toolgate/timeout": True},
            {"toolgate/idempotency_key": 7},
            {"toolgate/session": ""},
        ]
        for bad in wrong:
            with pytest.raises(MCPError) as refused:
                await client.call_tool("count", {}, meta=meta(bad))
            assert refused.value.error.code == -32602


async def test_a_call_that_its_client_gives_up_is_cancelled_and_recorded(era: str) -> None:
    async with open_site() as (app, site), connected(site, await key_for(app, ADA), era) as client:
        waiting = asyncio.create_task(client.call_tool("wait", {}))
        async with asyncio.timeout(30):
            while not app.parts.running.count:
                await asyncio.sleep(0.01)
            waiting.cancel()
            while app.parts.running.count:
                await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await app.flush()
        assert "CANCELLED" in str((await app.parts.store.read(audit_log.latest(1)))[-1])
        assert text_of(await client.call_tool("add", {"a": 1})) == "2"


async def test_an_output_that_is_too_long_is_a_preview_and_a_link_to_the_whole(era: str) -> None:
    @tool(tier="read_only")
    async def long(lines: int) -> dict[str, Any]:
        """Say a lot."""
        return {"lines": ["x" * 90] * lines}

    async with open_site(limits={"output_bytes": 5_000}) as (app, site):
        app.register(long)
        key = await key_for(app, ADA)
        async with connected(site, key, era) as client:
            result = await client.call_tool("long", {"lines": 400})
            link = result.content[-1]
            assert isinstance(link, types.ResourceLink) and not result.is_error
            assert len(text_of(result)) < 5_000
            [whole] = (await client.read_resource(str(link.uri))).contents
            assert isinstance(whole, types.TextResourceContents) and len(whole.text) == link.size
            assert whole.text.count("x" * 90) == 400
        for stranger in (BOB, Actor("acme", "analyst", "eve")):
            async with connected(site, await key_for(app, stranger), era) as client:
                with pytest.raises(MCPError) as refused:
                    await client.read_resource(str(link.uri))
                assert refused.value.error.code == -32602


async def test_what_was_cut_and_is_no_longer_what_was_promised_is_not_given_as_that(era: str) -> None:
    @tool(tier="read_only")
    async def five() -> dict[str, Any]:
        """Give five lines."""
        return {"lines": ["x" * 2_000] * 5}

    schema = {
        "type": "object",
        "properties": {"lines": {"type": "array", "minItems": 5, "items": {"type": "string", "minLength": 2_000}}},
        "required": ["lines"],
    }
    async with open_site(limits={"output_bytes": 3_000}) as (app, site):
        entry = entry_of(five, "python", app.parts.rules)
        app.register(
            compile_entry(entry.tool.model_copy(update={"output_schema": schema}), entry.implementation, (), app.parts.rules)
        )
        async with connected(site, await key_for(app, ADA), era) as client:
            await client.list_tools()  # from here on the client checks what it is given
            result = await client.call_tool("five", {})
            assert result.is_error and result.structured_content is None
            assert isinstance(result.content[-1], types.ResourceLink)


async def test_progress_of_a_tool_reaches_the_client_that_asked_for_it(era: str) -> None:
    @tool(tier="read_only")
    async def steps(ctx: InvokeContext) -> str:
        """Take three steps."""
        for step in (1, 2, 2, 3):
            await ctx.progress(step, 3, f"step {step}")
        return "there"

    seen: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with open_site() as (app, site), connected(site, await key_for(app, ADA), era) as client:
        app.register(steps)
        assert text_of(await client.call_tool("steps", {}, progress_callback=note)) == "there"
        assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]

"""What is behind the gateway, through the door: prompts, resources, completion, questions, news; governed like any call."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.subscriptions import ResourceUpdated

from tests.conformance.gateway import fixture_server
from tests.mcp_clients import ERAS, Person, connected, key_for, meta, text_of
from tests.patience import until
from tests.serving import META, Site, serving
from toolgate import Actor, App
from toolgate.mcp.pins import fits
from toolgate.store import audit_log
from toolgate.testing import memory_app

pytestmark = [pytest.mark.requirement("MCP-4", "MCP-2", "PIPE-1")]

EACH_ERA = pytest.mark.parametrize("era", ERAS)
ADA = Actor("acme", "analyst", "ada")
BOB = Actor("other", None, "bob")
SOON = 30.0
WATCHED = "test://watched-resource"


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of the newest protocol."""
    with fixture_server(log=tmp_path_factory.mktemp("new") / "log") as url:
        yield url


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """And of one that begins with a handshake."""
    with fixture_server("--old", log=tmp_path_factory.mktemp("old") / "log") as url:
        yield url


@pytest.fixture(params=["new", "old"])
def upstream(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


@asynccontextmanager
async def behind(*urls: str, **more: Any) -> AsyncIterator[tuple[App, Site]]:
    """A site with servers behind it, up and down, whose tools are in the catalog."""
    settings = {"isolation": "none", "trust_first_seen": True, "tier": "read_only"}
    servers = {name: {"url": url, **settings} for name, url in zip(("up", "down"), urls, strict=False)}
    async with memory_app(servers=servers, **more) as app, serving(app) as site:
        for name in servers:
            await app.servers.refresh(name)
        yield app, site


@EACH_ERA
async def test_prompts_are_named_as_tools_are_and_got_through_the_pipeline(era: str, new: str) -> None:
    async with behind(new) as (app, site), connected(site, await key_for(app, ADA), era) as client:
        names = {one.name for one in (await client.list_prompts()).prompts}
        assert {"mcp_up_test_simple_prompt", "mcp_up_test_prompt_with_arguments"} <= names
        given = await client.get_prompt("mcp_up_test_prompt_with_arguments", {"arg1": "one", "arg2": "two"})
        [message] = given.messages
        assert isinstance(message.content, types.TextContent) and "one" in message.content.text
        await app.flush()
        assert "mcp_up_get_prompt" in str((await app.parts.store.read(audit_log.latest(1)))[-1])
        for unknown in ("test_simple_prompt", "mcp_up_nothing", ""):
            with pytest.raises(MCPError) as refused:
                await client.get_prompt(unknown)
            assert refused.value.error.code == -32602


@EACH_ERA
async def test_resources_keep_their_addresses_and_are_read_through_the_pipeline(era: str, new: str) -> None:
    async with behind(new) as (app, site), connected(site, await key_for(app, ADA), era) as client:
        listed = {str(one.uri): one for one in (await client.list_resources()).resources}
        assert {"test://static-text", "test://static-binary", WATCHED} <= listed.keys()
        assert listed[WATCHED].meta == {"toolgate/server": "up"}
        templates = {one.uri_template for one in (await client.list_resource_templates()).resource_templates}
        assert {"test://template/{id}/data", "toolgate://artifacts/{id}"} <= templates
        [text] = (await client.read_resource("test://static-text")).contents
        [data] = (await client.read_resource("test://static-binary")).contents
        [made] = (await client.read_resource("test://template/7/data")).contents
        assert isinstance(text, types.TextResourceContents) and isinstance(data, types.BlobResourceContents)
        assert isinstance(made, types.TextResourceContents) and "7" in made.text
        await app.flush()
        assert "mcp_up_read_resource" in str((await app.parts.store.read(audit_log.latest(1)))[-1])
        for unknown in ("test://nothing", "toolgate://artifacts/art_1", "toolgate://artifacts/"):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(unknown)
            assert (refused.value.error.code, refused.value.error.data) == (-32602, {"uri": unknown})


@EACH_ERA
async def test_completion_is_asked_of_the_server_that_has_the_prompt(era: str, new: str) -> None:
    async with behind(new) as (app, site), connected(site, await key_for(app, ADA), era) as client:
        prompt = types.PromptReference(name="mcp_up_test_prompt_with_arguments")
        assert isinstance((await client.complete(prompt, {"name": "arg1", "value": "p"})).completion.values, list)
        await app.flush()
        assert "mcp_up_complete_argument" in str((await app.parts.store.read(audit_log.latest(1)))[-1])
        with pytest.raises(MCPError) as refused:
            await client.complete(types.PromptReference(name="nothing"), {"name": "arg1", "value": "p"})
        assert refused.value.error.code == -32602


@pytest.mark.requirement("DOOR-3")
@EACH_ERA
async def test_who_may_not_read_a_server_s_resources_does_not_see_them(era: str, new: str) -> None:
    async with behind(new) as (app, site):
        await app.tools.set_enabled("mcp_up_read_resource", False, tenant="acme")
        async with connected(site, await key_for(app, ADA), era) as client:
            assert (await client.list_resources()).resources == []
            assert (await client.list_prompts()).prompts != []
            with pytest.raises(MCPError) as refused:
                await client.read_resource("test://static-text")
            assert (refused.value.error.code, refused.value.error.message) == (-32602, "Resource not found")
        async with connected(site, await key_for(app, BOB), era) as client:
            assert (await client.list_resources()).resources != []


@EACH_ERA
async def test_tools_that_stand_for_methods_are_in_no_list(era: str, new: str) -> None:
    async with behind(new) as (app, site), connected(site, await key_for(app, ADA), era) as client:
        names = {one.name for one in (await client.list_tools()).tools}
        assert "mcp_up_test_simple_text" in names and not {"mcp_up_read_resource", "mcp_up_get_prompt"} & names


async def test_of_two_servers_with_one_address_none_is_guessed(new: str) -> None:
    async with behind(new, new) as (app, site):
        await site.with_key(app, ADA)
        for uri in ("test://static-text", "test://template/7/data"):
            named, asked = {"Mcp-Name": uri}, {"uri": uri}
            refused = (await site.mcp("resources/read", asked, headers=named)).json["error"]
            assert (refused["code"], refused["data"]) == (-32602, {"servers": ["down", "up"]})
            for server in ("up", "down"):
                chosen = {**META, "toolgate/server": server}
                read = (await site.mcp("resources/read", asked, headers=named, meta=chosen)).json["result"]
                assert read["contents"]
                await app.flush()
                assert f"mcp_{server}_read_resource" in str((await app.parts.store.read(audit_log.latest(1)))[-1])


@pytest.mark.parametrize("template", ["{+all}", "{scheme}://x", "{+all}/x"])
def test_a_template_that_names_no_scheme_fits_nothing(template: str) -> None:
    assert not fits(template, "bank://account") and fits("bank://{account}", "bank://account")


@pytest.mark.requirement("MCP-3")
@EACH_ERA
async def test_a_server_that_can_t_be_reached_hides_no_other_and_is_said_to_be_missing(era: str, new: str) -> None:
    async with behind(new, new) as (app, site):
        gone = app.parts.servers_engine["down"].settings.model_copy(
            update={"url": "http://127.0.0.1:9/mcp", "start_seconds": 5}
        )
        app.parts.servers_engine.set("down", gone)
        async with connected(site, await key_for(app, ADA), era) as client:
            async with asyncio.timeout(SOON):
                found = await client.list_prompts()
            names = {one.name for one in found.prompts}
            assert "mcp_up_test_simple_prompt" in names and "mcp_down_test_simple_prompt" not in names
            assert found.meta is not None and found.meta["toolgate/missing"] == {"down": "it is unreachable"}
            assert not (await client.call_tool("mcp_up_test_simple_text", {})).is_error
            assert (await client.call_tool("mcp_down_test_simple_text", {})).is_error


@EACH_ERA
async def test_what_a_tool_asks_reaches_the_client_s_person_whatever_protocols_are_spoken(era: str, upstream: str) -> None:
    person = Person(username="ada", email="ada@example.com")
    async with behind(upstream) as (app, site):
        async with connected(site, await key_for(app, ADA), era, elicitation_callback=person) as client:
            result = await client.call_tool("mcp_up_test_elicitation", {"message": "Who is it?"})
            assert person.shown == ["Who is it?"] and "ada" in text_of(result), result
        async with connected(site, await key_for(app, ADA), era) as client:
            unasked = await client.call_tool("mcp_up_test_elicitation", {"message": "Who is it?"})
            assert unasked.is_error or "action=cancel" in text_of(unasked)
        assert person.shown == ["Who is it?"]
        assert app.parts.running.count == 0


@EACH_ERA
async def test_a_prompt_that_asks_is_answered_likewise(era: str, upstream: str) -> None:
    person = Person(context="of the essence")
    async with behind(upstream) as (app, site):
        async with connected(site, await key_for(app, ADA), era, elicitation_callback=person) as client:
            given = await client.get_prompt("mcp_up_test_input_required_result_prompt")
        assert len(person.shown) == 1 and "of the essence" in str(given.messages)


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_person_who_is_slow_is_not_taken_for_a_server_that_is(upstream: str) -> None:
    for era in ERAS:
        # On a busy machine the time may be over before anybody is asked: then with more of it.
        for seconds in (1.0, 4.0, 16.0):
            if await is_asked_and_too_slow(upstream, era, seconds):
                break
        else:
            pytest.fail("nobody was asked")


async def is_asked_and_too_slow(upstream: str, era: str, seconds: float) -> bool:
    """Whether somebody was asked before the time was over; if so, others must not pay for it."""
    shown = asyncio.Event()

    async def never(*_: Any) -> Any:
        shown.set()
        await asyncio.sleep(3600)

    async with behind(upstream, breaker={"failures": 1}) as (app, site):
        key = await key_for(app, ADA)
        async with connected(site, key, era, elicitation_callback=never) as client:
            asking = client.call_tool("mcp_up_test_elicitation", {"message": "?"}, meta=meta({"toolgate/timeout": seconds}))
            calling = asyncio.create_task(asking)
            await until(lambda: shown.is_set() or calling.done(), "somebody is asked or the call is over")
            await until(lambda: not app.parts.running.count, "the call is over")
            calling.cancel()
            await asyncio.wait([calling])
            if shown.is_set():
                assert not (await client.call_tool("mcp_up_test_simple_text", {})).is_error
            return shown.is_set()


async def test_a_client_is_not_asked_what_it_does_not_know_whatever_the_server_wants(new: str) -> None:
    async with behind(new) as (app, site):
        await site.with_key(app, ADA)
        able = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        asks = {"name": "mcp_up_test_input_required_result_elicitation", "arguments": {}}
        assert (await site.mcp("tools/call", asks, meta=able)).json["result"]["resultType"] == "input_required"
        told = (await site.mcp("tools/call", asks)).json["result"]
        assert told["resultType"] == "complete" and told["isError"] is True


async def test_lists_of_a_server_come_in_pages_too(new: str) -> None:
    async with behind(new, mcp={"page": 2}) as (app, site), connected(site, await key_for(app, ADA), ERAS[-1]) as client:
        whole = [f"mcp_up_{one['name']}" for one in await app.parts.servers_engine["up"].listed("prompts")]
        found, cursor = list[str](), None
        while True:
            page = await client.list_prompts(cursor=cursor)
            found += [one.name for one in page.prompts]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == whole and len(whole) > 2
        for bad in ("LTE=", "eA==", "OTk5OTk5OTk5OTk5"):
            with pytest.raises(MCPError) as refused:
                await client.list_prompts(cursor=bad)
            assert refused.value.error.code == -32602


@EACH_ERA
async def test_progress_and_messages_of_a_server_s_tool_reach_the_client_that_called(era: str, upstream: str) -> None:
    seen: list[float] = []
    said: list[Any] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
        seen.append(progress)

    async def hear(message: types.LoggingMessageNotificationParams) -> None:
        said.append(message.data)

    able = {"logging_callback": hear} | ({"log_level": "info"} if era != "legacy" else {})
    async with behind(upstream) as (app, site), connected(site, await key_for(app, ADA), era, **able) as client:
        await client.call_tool("mcp_up_test_tool_with_progress", {}, progress_callback=note)
        await client.call_tool("mcp_up_test_tool_with_logging", {})
    assert len(seen) >= 2 and seen == sorted(seen)
    assert len(said) >= 2


@EACH_ERA
async def test_who_watches_a_resource_is_told_that_it_changed_and_nobody_else_is(era: str, upstream: str) -> None:
    told: dict[str, asyncio.Queue[str]] = {"ada": asyncio.Queue(), "bob": asyncio.Queue()}
    async with behind(upstream) as (app, site), AsyncExitStack() as stack:
        await _watch(stack, site, await key_for(app, ADA), era, WATCHED, told["ada"])
        await _watch(stack, site, await key_for(app, BOB), era, "test://static-text", told["bob"])
        await app.flush()
        assert str(await app.parts.store.read(audit_log.latest(20))).count("mcp.resource_watched") == 2
        async with connected(site, await key_for(app, ADA), era) as client:
            async with asyncio.timeout(SOON):
                await client.call_tool("mcp_up_test_trigger_resource_change", {})
                assert await told["ada"].get() == WATCHED
        await asyncio.sleep(0.3)
        assert told["bob"].empty()


async def _watch(stack: AsyncExitStack, site: Site, key: str, era: str, uri: str, told: "asyncio.Queue[str]") -> None:
    async def hear(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            told.put_nowait(str(message.params.uri))

    client = await stack.enter_async_context(connected(site, key, era, message_handler=hear))
    if era == "legacy":
        with pytest.warns(MCPDeprecationWarning):
            await client.subscribe_resource(uri)
        return
    stream = await stack.enter_async_context(client.listen(resource_subscriptions=[uri]))

    async def follow() -> None:
        async for event in stream:
            assert isinstance(event, ResourceUpdated)
            told.put_nowait(event.uri)

    stack.callback(asyncio.create_task(follow()).cancel)

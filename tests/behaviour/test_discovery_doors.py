"""Discovery at every door: MCP on both paths and over a pipe, agents, adapters, HTTP, the command line and the console."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.agents import SOON, agency, calls, did, of_kind, run, told
from tests.behaviour.nesting import BOSS, Bench, approve
from tests.behaviour.test_mcp_server_changes import QUIET, listening
from tests.console.plain_browser import signed_in
from tests.http_people import people
from tests.many_tools import made, many
from tests.mcp_clients import ERAS, Person, connected, key_for, text_of
from tests.mcp_pipe import piped
from tests.model_servers import Reply
from tests.serving import META, serving
from tests.terminal import Terminal
from toolgate import Actor
from toolgate.adapters.calls import HostCalls, approval_of
from toolgate.adapters.calls import text_of as text_of_outcome
from toolgate.client import AsyncClient
from toolgate.gates.approval.request import Answer
from toolgate.mcp.server.tool_calls import ClientCalls
from toolgate.model import CALL_TOOL, DISCOVERY_TOOLS
from toolgate.registry.export import count_tokens
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("AGENT-3")

ADA = Actor("acme", "analyst", "ada")
EACH_ERA = pytest.mark.parametrize("era", ERAS)
ABLE = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


def wanting(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": CALL_TOOL, "arguments": {"name": name, "arguments": arguments}}


# -- MCP


@pytest.mark.requirement("MCP-4")
@EACH_ERA
async def test_a_client_of_many_tools_is_listed_few_and_calls_any_of_them(era: str) -> None:
    async with memory_app() as app:
        app.tools.register_many(many())
        async with serving(app) as site, connected(site, await key_for(app, ADA), era) as client:
            listed = await client.list_tools()
            assert {one.name for one in listed.tools} == DISCOVERY_TOOLS and listed.next_cursor is None
            found = await client.call_tool("search_tools", {"phrasings": ["weigh a statue", "weight of a sculpture"]})
            assert json.loads(text_of(found))["tools"][0]["name"] == "weigh_statue"
            described = await client.call_tool("describe_tool", {"names": ["weigh_statue"]})
            assert '"number"' in text_of(described)
            through = await client.call_tool(CALL_TOOL, wanting("weigh_statue", number=7)["arguments"])
            direct = await client.call_tool("weigh_statue", {"number": 7})
            assert text_of(through) == text_of(direct) == "weigh statue 7"


@pytest.mark.requirement("MCP-4")
async def test_the_fast_path_lists_and_calls_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[str] = []
    through = ClientCalls.call

    async def noted(self: ClientCalls, ctx: Any, who: Any, asked: str, *more: Any) -> Any:
        slow.append(asked)
        return await through(self, ctx, who, asked, *more)

    monkeypatch.setattr(ClientCalls, "call", noted)
    async with memory_app() as app:
        app.tools.register_many(many())
        async with serving(app) as site:
            key = await key_for(app, ADA)
            await site.mcp("tools/call", {"name": "echo", "arguments": {"text": "x"}}, key=key)  # the SDK is loaded by it
            for _ in range(2):  # the second is the cached page
                answer = await site.mcp("tools/list", key=key)
                assert {one["name"] for one in answer.json["result"]["tools"]} == DISCOVERY_TOOLS
            slow.clear()
            for params in (wanting("weigh_statue", number=7), {"name": "weigh_statue", "arguments": {"number": 7}}):
                result = (await site.mcp("tools/call", params, key=key)).json["result"]
                assert result["content"][0]["text"] == "weigh statue 7"
            assert slow == []
            await site.mcp("tools/call", wanting("weigh_statue", number=7), key=key, meta=ABLE)
            assert slow == [CALL_TOOL]  # a tool of a server might ask the client
            missing = (await site.mcp("tools/call", wanting("ask_model", text="x"), key=key)).json["result"]
            assert missing["isError"] and "TOOL_NOT_FOUND" in missing["content"][0]["text"]


@pytest.mark.requirement("TIER-9", "MCP-4")
@EACH_ERA
async def test_the_client_s_person_is_asked_about_the_tool_that_is_called(tmp_path: Path, era: str) -> None:
    bench, person = Bench(tmp_path / "did"), Person(approve=True)
    async with memory_app() as app:
        bench.move_into(app)
        async with serving(app) as site:
            key = await key_for(app, ADA, may_approve=True)
            async with connected(site, key, era, elicitation_callback=person) as client:
                result = await client.call_tool(CALL_TOOL, {"name": "risky", "arguments": {"text": "now"}})
        assert text_of(result) == "did now" and bench.did == ["risky now"]
        [shown] = person.shown
        assert "risky" in shown and "now" in shown and "execute" in shown


@pytest.mark.requirement("MCP-4")
@EACH_ERA
async def test_clients_are_told_when_their_list_changes_and_not_of_tools_that_are_not_on_it(era: str) -> None:
    async with memory_app() as app, serving(app) as site, AsyncExitStack() as stack:
        news = await listening(stack, site, await key_for(app, ADA), era)
        app.tools.register_many(many(250))
        await news.once()  # from all of them to those of discovery
        app.register(made("polish", "statue"))
        await asyncio.sleep(QUIET)
        assert news.times == 1
        await app.tools.disable("describe_tool", tenant="acme")
        await news.once()  # who lacks one of them is listed all


SETTINGS = "discovery: {mode: MODE, above_tokens: 2000, pinned: [calculator]}\n"


@pytest.mark.requirement("MCP-4")
@pytest.mark.parametrize(
    ("mode", "expected"),
    [("auto", True), pytest.param("never", False, marks=pytest.mark.matrix("a process more; the setting is tested in one"))],
)
async def test_a_client_on_a_pipe_is_listed_by_size_and_by_setting(tmp_path: Path, mode: str, expected: bool) -> None:
    (tmp_path / "toolgate.yaml").write_text(SETTINGS.replace("MODE", mode))
    async with piped(tmp_path) as pipe:
        await pipe.hello()
        listed = {one["name"] for one in (await pipe.ask("tools/list"))["result"]["tools"]}
        assert listed == {*DISCOVERY_TOOLS, "calculator"} if expected else not listed & DISCOVERY_TOOLS
        params = wanting("echo", text="hello")
        assert "hello" in str((await pipe.ask("tools/call", params))["result"]["content"])
        assert "hello" in str((await pipe.ask("tools/call", {"name": "echo", "arguments": {"text": "hello"}}))["result"])


# -- agents


@pytest.mark.requirement("AGENT-1")
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_an_agent_searches_describes_and_calls_the_right_one_of_300_tools(tmp_path: Path, dialect: str) -> None:
    script = [
        calls(("search_tools", {"phrasings": ["weigh a statue", "how heavy is a sculpture", "statue weight"]})),
        calls(("describe_tool", {"names": ["weigh_statue"]})),
        calls((CALL_TOOL, {"name": "weigh_statue", "arguments": {"number": 7}})),
        Reply("It was weighed."),
    ]
    async with agency(tmp_path, dialect, *script) as (app, server):
        app.tools.register_many(many())
        result, events = await run(app, "How heavy is statue 7?")
        assert (result.status, result.text) == ("done", "It was weighed.")
        found, described, called = told(server.asked[3], dialect)
        assert "weigh_statue" in found and '"number"' in described and "weigh statue 7" in called
        assert [one["tool"] for one in of_kind(events, "call")] == ["search_tools", "describe_tool", CALL_TOOL]
        offered = [json.dumps(asked.json["tools"]) for asked in server.asked]
        assert len({*offered}) == 1  # what stands before the conversation stays as it is
        sent = sum(count_tokens(json.dumps(asked.json)) for asked in server.asked)
        listed = len(server.asked) * count_tokens(json.dumps(await app.tools.export("openai")))
        everything = sum((await app.tools.token_costs()).values())
        assert listed < sent < 0.3 * len(server.asked) * everything


@pytest.mark.requirement("TIER-9")
@pytest.mark.parametrize(
    ("answer", "ran", "words"),
    [
        (Answer("approve"), ["risky x"], ["did x"]),
        (Answer("edit", arguments={"text": "safe"}), ["risky safe"], ["did safe", '"run_with":{"text":"safe"}']),
        (Answer("reject", "Not now."), [], ["USER_CANCELLED", "Not now."]),
    ],
)
async def test_an_agent_waits_for_the_tool_that_is_called_and_is_told_what_became_of_it(
    tmp_path: Path, answer: Answer, ran: list[str], words: list[str]
) -> None:
    script = [calls((CALL_TOOL, {"name": "risky", "arguments": {"text": "x"}})), Reply("Done.")]
    async with agency(tmp_path, "openai", *script, discovery={"mode": "always"}) as (app, server):
        first, events = await run(app, session="s1")
        assert (first.status, first.reason) == ("waiting", "A person has to answer about risky.")
        assert did(tmp_path) == [] and of_kind(events, "pending")[0]["tool"] == "risky"
        await app.approvals.answer(first.pending[0], answer)
        await app.agents.resume(first.id)
        ended = await app.agents.wait(first.id, SOON)
        assert (ended.status, ended.text) == ("done", "Done.") and did(tmp_path) == ran
        [said] = told(server.asked[1], "openai")
        assert all(word in said for word in words), said


# -- frameworks


@pytest.mark.parametrize("how", ["app", "client"])
async def test_a_framework_pauses_for_the_tool_that_is_called(tmp_path: Path, how: str) -> None:
    bench = Bench(tmp_path / "did")
    async with memory_app(discovery={"mode": "always"}) as app, AsyncExitStack() as stack:
        bench.move_into(app)
        door: Any = app
        if how == "client":
            site = await stack.enter_async_context(serving(app))
            door = await stack.enter_async_context(AsyncClient.open(f"http://{site.host}", key=await key_for(app, ADA)))
        host = HostCalls(door, ADA if how == "app" else None, "s-1")
        assert {one.name for one in await host.tools()} == DISCOVERY_TOOLS
        for name, expected in (("risky", True), ("peek", False), ("nothing_of_the_kind", False)):
            assert await host.asks(CALL_TOOL, {"name": name, "arguments": {"text": "x"}}) is expected
        assert await host.asks(CALL_TOOL, '{"name": "risky", "arguments": {"text": "x"}}')
        assert not await host.asks(CALL_TOOL, "[]") and not await host.asks(CALL_TOOL, "{")
        arguments = {"name": "risky", "arguments": {"text": "x"}}
        id = host.id_of(CALL_TOOL, arguments, "host", "call-1")
        asked = approval_of(await host.call(CALL_TOOL, arguments, id))
        assert asked is not None
        await approve(app, asked, BOSS)
        waiting = await host.waiting(CALL_TOOL, id)
        assert waiting is not None and waiting.approval == asked
        assert text_of_outcome(await host.call(CALL_TOOL, arguments, id, waiting)) == "did x"
        assert bench.did == ["risky x"]


# -- people


async def test_people_search_over_http_in_several_phrasings_and_are_told_what_is_saved() -> None:
    async with memory_app() as app:
        app.tools.register_many(many())
        async with people(app) as all_of_them:
            ann = all_of_them.ann
            query = urlencode([("q", "how heavy is it"), ("q", "weigh statue"), ("limit", "2")])
            found = (await ann.get(f"/v1/tools/search?{query}")).json["items"]
            assert found[0]["tool"]["name"] == "weigh_statue" and len(found) == 2
            assert (await ann.get("/v1/tools/search", q="zzqqxxyy")).json["items"] == []
            assert (await ann.get("/v1/tools/search")).status == 422
            assert (await ann.get("/v1/tools/search?" + urlencode([("q", "x")] * 9))).status == 422
            assert (await ann.get("/v1/tools/search?q=a&limit=1&limit=2")).status == 400
            assert (await ann.get("/v1/tools/search?q=a&q=null")).status == 422
            report = (await ann.get("/v1/tools/tokens")).json
            assert report["served"]["discovery"] and set(report["served"]["tools"]) == DISCOVERY_TOOLS
            assert report["served"]["tokens"] < 1_000 < 20_000 < report["total"]
            assert not DISCOVERY_TOOLS & {one["name"] for one in report["tools"]}
            async with AsyncClient.open(f"http://{all_of_them.site.host}", key=ann.key) as client:
                several = await client.tools.search(["how heavy is it", "weigh statue"], limit=1)
                assert several.items[0].tool.name == "weigh_statue"
                assert (await client.tools.search("zzqqxxyy")).items == []


TOOLS = """
    from toolgate import tool

    @tool(tier="read_only")
    async def weigh_statue(number: int) -> str:
        \"\"\"Tell how heavy a sculpture is.\"\"\"
        return "heavy"
"""


@pytest.mark.requirement("REG-7")
def test_the_command_line_searches_and_shows_what_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    terminal.add_tools(dedent(TOOLS))
    found = terminal("tools", "search", "mass", "of", "marble", "--phrase", "heavy sculpture", "--phrase", "statue")
    assert "weigh_statue" in found.out
    nothing = terminal("tools", "search", "zzqqxxyy")
    assert nothing.code == 0 and "Nothing fits" in nothing.out + nothing.err
    plain = terminal("tools", "tokens")
    assert "Discovery" not in plain.out and "search_tools" not in plain.out
    monkeypatch.setenv("TOOLGATE_DISCOVERY__MODE", "always")
    for words in (("tools", "tokens"), ("tools", "list")):
        shown = terminal(*words).out
        assert "Discovery is on: a model is listed 3 tools of" in shown and "% fewer" in shown
        served = json.loads(terminal(*words, "--json").out)["served"]
        assert served["discovery"] and set(served["tools"]) == DISCOVERY_TOOLS and 0 < served["tokens"] < 1_000
    exported = json.loads(terminal("tools", "export", "--format", "anthropic", "--json").out)
    assert {one["name"] for one in exported} == DISCOVERY_TOOLS


@pytest.mark.requirement("DOOR-2")
async def test_the_console_finds_tools_by_what_they_are_for_and_shows_what_is_saved() -> None:
    async with memory_app() as app:
        app.register(made("weigh", "statue"))
        async with serving(app) as site:
            ann = await signed_in(app, site, Actor("acme", user="ann"), "viewer")
            page = (await ann.get("/tools?q=weigh+heavy+statue")).body.decode()
            assert 'id="fitting"' in page and "weigh_statue" in page
            nothing = (await ann.get("/tools?q=zzqqxxyy")).body.decode()
            assert 'id="fitting"' not in nothing and "No tool fits." in nothing
            assert "given all of them reads" in (await ann.get("/tools")).body.decode()
            app.tools.register_many(many(250))
            page = (await ann.get("/tools")).body.decode()
            assert "A model is listed 3 of them and reads" in page and "search_tools" in page

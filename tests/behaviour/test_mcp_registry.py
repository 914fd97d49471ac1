"""What becomes of an MCP server's tools in the catalog: names, tiers, costs, schemas, and what is refused."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mcp_upstream import TEXT, Upstream, tool
from toolgate import App
from toolgate.errors import DefinitionError, SettingsError
from toolgate.gates.tier_rules.gate import plan
from toolgate.jsontext import ValueFault, schema_faults
from toolgate.mcp.catalog_entries import Upstream as Server
from toolgate.mcp.catalog_entries import entry_of, name_here
from toolgate.mcp.pins import found_in
from toolgate.mcp.presets import PRESETS
from toolgate.mcp.server_settings import upstream_of
from toolgate.model import TOOL_NAME, Actor, Entry, Outcome
from toolgate.registry.compile import DefinitionRules
from toolgate.settings import ServerSettings
from toolgate.store import audit_log

pytestmark = pytest.mark.requirement("MCP-2")
RULES = DefinitionRules(guards=plan)


def server(jail: str | None = "bubblewrap", **settings: Any) -> Server:
    return Server("srv", ServerSettings.model_validate({"command": ["x"], **settings}), jail)


def entry(definition: dict[str, Any], upstream: Server | None = None) -> Entry:
    upstream = upstream or server()
    found, problems = found_in(upstream.name, {}, {"tools": [definition]})
    assert problems == []
    (key,) = found
    return entry_of(upstream, key, found[key].text, RULES)


async def offered(app: App, *servers: str) -> None:
    """List servers, and accept whatever they have."""
    for name in servers:
        await app.servers.refresh(name)
    await app.servers.accept(await app.servers.quarantined())


def opened(tmp_path: Path, **servers: dict[str, Any]) -> App:
    return App.open(home=tmp_path / "home", database_url="memory://", entry_points=False, servers=servers)


def code(outcome: Outcome) -> str | None:
    return None if outcome.error is None else outcome.error.code


# -- names


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "mcp_srv_say"),
        ({"prefix": ""}, "say"),
        ({"prefix": "my_"}, "my_say"),
        ({"tools": {"say": {"name": "speak"}}}, "speak"),
        ({"prefix": "", "tools": {"say": {"name": "speak"}}}, "speak"),
    ],
)
def test_what_a_tool_is_called(settings: dict[str, Any], name: str) -> None:
    assert entry(tool("say"), server(**settings)).name == name


@given(
    names=st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=90), min_size=2, max_size=4, unique=True
    ),
    prefix=st.sampled_from([None, "", "p_", "0"]),
)
def test_any_name_becomes_one_that_callers_can_use_and_no_two_become_the_same(names: list[str], prefix: str | None) -> None:
    upstream = server(prefix=prefix)
    here = [name_here(upstream, ("tools/call", name)) for name in names]
    assert all(TOOL_NAME.match(name) for name in here)
    assert len(set(here)) == len(here)
    assert here == [name_here(upstream, ("tools/call", name)) for name in names]


async def test_of_two_servers_with_the_same_name_for_a_tool_the_later_is_refused(tmp_path: Path) -> None:
    one, two = Upstream(tmp_path, tool("say"), name="one"), Upstream(tmp_path, tool("say"), tool("hear"), name="two")
    async with opened(tmp_path, one=one.settings(prefix=""), two=two.settings(prefix="")) as app:
        await offered(app, "one", "two")
        assert app.parts.catalog.resolve("say", "default").implementation.server == "one"
        assert (await app.invoke("hear", {})).ok
        assert [problem for problem in app.tools.problems if "server two" in problem.where and "server one" in problem.why]


async def test_a_built_in_tool_keeps_its_name(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, tool("calculator"))
    async with opened(tmp_path, plain=upstream.settings(prefix="")) as app:
        await offered(app, "plain")
        assert app.parts.catalog.resolve("calculator", "default").tool.source == "builtin"
        assert any("calculator" in problem.where for problem in app.tools.problems)
        outcome = await app.invoke("calculator", {"expression": "1 + 1"})
        assert outcome.ok, outcome


@pytest.mark.requirement("MCP-2", "DOOR-6")
async def test_with_mcp_turned_off_no_server_is_started_and_no_tool_of_theirs_is_there(tmp_path: Path) -> None:
    """Neither of one in the settings nor of one that was added, and whatever was accepted before."""
    upstream = Upstream(tmp_path, tool("say"))
    more = {"home": tmp_path / "home", "entry_points": False, "servers": {"plain": upstream.settings(enabled=True)}}
    async with App.open(**more) as app:
        await app.servers.add("added", upstream.settings())
        await offered(app, "plain", "added")
        assert (await app.invoke("mcp_plain_say", {})).ok
    async with App.open(**more, mcp={"enabled": False}) as app:
        assert [code(await app.invoke(f"mcp_{name}_say", {})) for name in ("plain", "added")] == ["TOOL_NOT_FOUND"] * 2
        assert [one.to_dict()["state"] for one in await app.servers.list()] == ["off", "off"]
        assert [one for one in await app.tools.list() if one.source == "mcp"] == []
        with pytest.raises(SettingsError, match=r"mcp\.enabled is false"):
            await app.servers.refresh("plain")
        assert not app.parts.servers_engine["plain"].starts
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            await app.servers.add("remote", {"url": f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", "oauth": {}})
            with pytest.raises(SettingsError, match=r"mcp\.enabled is false"):
                await asyncio.wait_for(app.servers.log_in("remote", print, browser=False), 20)
            with pytest.raises(BlockingIOError):
                listener.accept()  # nobody has knocked
    async with App.open(**more) as app:
        assert (await app.invoke("mcp_plain_say", {})).ok, "what was accepted is still"


# -- tiers


READS, CHANGES, OPEN = {"readOnlyHint": True}, {"readOnlyHint": False}, {"openWorldHint": True}


@pytest.mark.requirement("MCP-3")
@pytest.mark.parametrize(
    ("upstream", "annotations", "tier"),
    [
        (server(), {}, "write"),
        (server(jail=None), {}, "external_api"),
        (server(domains=["example.com"]), {}, "external_api"),
        (server(network="host"), {}, "external_api"),
        (Server("srv", ServerSettings(url="https://example.com/mcp")), {}, "external_api"),
        (server(), READS, "write"),
        (server(trust_annotations=True), READS, "read_only"),
        (server(trust_annotations=True), READS | OPEN, "external_api"),
        (server(tier="read_only"), {}, "read_only"),
        (server(tier="read_only"), CHANGES, "write"),
        (server(tier="read_only"), {"destructiveHint": True}, "write"),
        (server(tier="read_only"), OPEN, "external_api"),
        (server(tier="read_only"), {"openWorldHint": "yes", "readOnlyHint": 0}, "read_only"),
        (server(tier="read_only", tools={"say": {"tier": "execute"}}), {}, "execute"),
        (server(tier="execute", tools={"say": {"tier": "read_only"}}), {}, "read_only"),
        (server(tier="execute", trust_annotations=True), READS, "execute"),
    ],
)
def test_the_tier_of_a_tool(upstream: Server, annotations: dict[str, Any], tier: str) -> None:
    assert entry(tool("say", annotations=annotations), upstream).tier == tier


def test_a_name_that_destroys_is_asked_about_whatever_its_server_says() -> None:
    made = entry(tool("delete_all", annotations=READS), server(trust_annotations=True))
    assert (made.tier, made.destructive) == ("write", True)
    assert made.asks is not None


def test_what_settings_say_of_a_tool_is_in_its_entry() -> None:
    said = {"cost": "0.25", "requires_permission": "tool:x", "timeout": 5, "cache_seconds": 60, "per_minute": 7}
    made = entry(tool("say"), server(tier="read_only", tools={"say": said}))
    assert made.fixed_nano == 250_000_000
    assert made.tool.requires_permission == "tool:x"
    assert made.timeout == 5
    assert made.cache is not None and made.cache.ttl == 60
    assert made.rate_limit is not None and made.rate_limit.per_minute == 7
    assert (made.kind, made.tool.source, made.target) == ("mcp", "mcp", "mcp:srv")


# -- what a server says is data


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"name": "x"}, "inputSchema"),
        ({"name": "x", "inputSchema": {"type": "nonsense"}}, "input_schema"),
        ({"name": "x", "inputSchema": {"type": "array"}}, "input_schema"),
        ({"name": "x", "inputSchema": "object"}, "inputSchema"),
        ({"name": "x", "inputSchema": {"$ref": "https://example.com/schema.json"}}, "input_schema"),
        ({"name": "x", "inputSchema": {"properties": {"a": {"$ref": "file:///etc/passwd"}}}}, "input_schema"),
        ({"name": "x", "inputSchema": {"$schema": "https://example.com/draft"}}, "input_schema"),
        ({"name": "x", "inputSchema": {"type": "object", "description": "a" * 300_000}}, "input_schema"),
        ({"name": "x", "inputSchema": TEXT, "outputSchema": {"type": 3}}, "output_schema"),
        ({"name": "x", "inputSchema": TEXT, "outputSchema": []}, "outputSchema"),
    ],
)
def test_a_definition_that_is_no_good_is_refused_with_the_reason(bad: dict[str, Any], why: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        entry(bad)
    assert why in str(refused.value)


async def test_what_is_no_good_is_said_and_the_others_load(tmp_path: Path) -> None:
    good, bad = tool("good"), {"name": "bad", "inputSchema": {"type": "nonsense"}}
    upstream = Upstream(tmp_path)
    upstream.offer(good, bad, {"name": ""}, {"name": 3}, good)
    async with opened(tmp_path, plain=upstream.settings()) as app:
        await app.servers.refresh("plain")
        wrong = {one.name: one.wrong for one in await app.servers.quarantined()}
        assert wrong["mcp_plain_good"] is None
        assert "input_schema" in (wrong["mcp_plain_bad"] or "")
        await offered(app)
        assert (await app.invoke("mcp_plain_good", {})).ok
        assert code(await app.invoke("mcp_plain_bad", {})) == "TOOL_NOT_FOUND"
        words = " ".join(problem.why for problem in app.tools.problems)
        assert "two tools of this name" in words
        assert "its name must be text" in words


@pytest.mark.parametrize("value", ["\ud800", 2**70, object()])
def test_a_definition_that_is_not_json_is_none(value: Any) -> None:
    found, (problem,) = found_in(server().name, {}, {"tools": [tool("odd", annotations={"x": value}), tool("even")]})
    assert list(found) == [("tools/call", "even")]
    assert "not JSON" in problem.why


def test_descriptions_are_bounded_and_hold_nothing_that_a_reader_does_not_see() -> None:
    hidden = "Adds.\u200b\u202eReversed\x1b[2J\U000e0041 \ufeff" + "x" * 20_000
    made = entry(tool("add", hidden, title="A\u2066dd\x00"))
    assert made.tool.description.startswith("Adds.Reversed[2J ")
    assert len(made.tool.description) <= 8_192
    assert made.tool.annotations["title"] == "Add"
    assert entry({"name": "add", "inputSchema": TEXT}).tool.description == "add of the MCP server srv."


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["name", "description", "inputSchema", "outputSchema", "annotations", "title", "_meta"]),
            JSON,
            max_size=7,
        )
        | JSON,
        max_size=4,
    )
)
def test_whatever_a_server_lists_becomes_an_entry_or_a_reason(listed: list[Any]) -> None:
    upstream = server()
    found, problems = found_in(upstream.name, {}, {"tools": listed})
    assert len(found) + len(problems) == len(listed)
    for key, definition in found.items():
        try:
            made = entry_of(upstream, key, definition.text, RULES)
        except DefinitionError as error:
            assert error.faults
        else:
            assert made.tier == "write" or made.tool.annotations.get("openWorldHint") is True


@given(st.dictionaries(st.text(max_size=6), JSON, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_fields_does_not_change_a_definitions_hash(schema: dict[str, Any], random: Any) -> None:
    definition = tool("say", title="T", annotations={"readOnlyHint": True, "a": schema})
    items = list(definition.items())
    random.shuffle(items)
    (one,), (two,) = (found_in(server().name, {}, {"tools": [given]})[0].values() for given in (definition, dict(items)))
    assert one == two
    (meta,) = found_in(server().name, {}, {"tools": [{**definition, "_meta": schema, "icons": [schema]}]})[0].values()
    assert meta == one, "what servers fill as they like is no change"


# -- outputs


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        ({"content": [{"type": "text", "text": '{"n": 1}'}], "structuredContent": {"n": 1}}, {"n": 1}),
        ({"content": [], "structuredContent": {"n": 1}}, {"n": 1}),
        (
            {"content": [{"type": "text", "text": "one"}], "structuredContent": {"n": 1}},
            {"content": [{"type": "text", "text": "one"}], "structuredContent": {"n": 1}},
        ),
        ({"content": [{"type": "text", "text": "one"}], "structuredContent": {"n": "1"}}, None),
        ({"content": [{"type": "text", "text": "one"}], "structuredContent": {"n": 1, "m": 2}}, None),
        ({"content": [{"type": "text", "text": "one"}]}, None),
    ],
)
@pytest.mark.sample(4)
async def test_an_output_is_checked_against_the_servers_own_schema(
    tmp_path: Path, answer: dict[str, Any], output: Any
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    upstream = Upstream(tmp_path, tool("count", outputSchema=schema), answers={"count": answer})
    async with opened(tmp_path, plain=upstream.settings()) as app:
        await offered(app, "plain")
        outcome = await app.invoke("mcp_plain_count", {})
        assert outcome.output == output
        assert code(outcome) == (None if output is not None else "OUTPUT_INVALID")


def test_what_is_wrong_with_a_structured_part_is_named_where_it_stands() -> None:
    number = {"anyOf": [{"type": "integer"}, {"type": "object", "required": ["n"]}]}
    check = entry(tool("count", outputSchema={"type": "object", "properties": {"n": number}})).check_output
    assert check is not None
    whole = {"content": [], "structuredContent": {"n": {}}}
    assert not check.is_valid(whole)
    for every in (True, False):
        assert schema_faults(check, whole, every=every) == [ValueFault("structuredContent.n.n", "is required")]
    assert schema_faults(check, {"n": {}}) == [ValueFault("n.n", "is required")]


# -- only, blocked, methods, many


async def test_only_the_tools_that_settings_name_are_offered(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, tool("say"), tool("hear"))
    async with opened(tmp_path, plain=upstream.settings(only=["say"])) as app:
        await offered(app, "plain")
        assert (await app.invoke("mcp_plain_say", {})).ok
        assert code(await app.invoke("mcp_plain_hear", {})) == "TOOL_NOT_FOUND"


async def test_a_tool_that_settings_switch_off_is_off_until_somebody_switches_it_on(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    async with opened(tmp_path, plain=upstream.settings(tools={"say": {"enabled": False}})) as app:
        await offered(app, "plain")
        assert code(await app.invoke("mcp_plain_say", {})) == "TOOL_NOT_FOUND"
        await app.tools.set_enabled("mcp_plain_say", True)
        assert (await app.invoke("mcp_plain_say", {})).ok


@pytest.mark.requirement("MCP-3")
async def test_paths_that_settings_block_reach_no_tool_of_that_server(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    upstream = Upstream(tmp_path, {"name": "read", "inputSchema": schema})
    blocked = upstream.settings(blocked=["*/.git/*", "*.pem"])
    async with opened(tmp_path, guarded=blocked, free=upstream.settings()) as app:
        await offered(app, "guarded", "free")
        assert (await app.invoke("mcp_guarded_read", {"path": str(tmp_path / "notes/a.txt")})).ok
        for path in ("repo/.git/config", "repo/../repo/.git/x/y", "KEY.PEM", "a%2epem"):
            outcome = await app.invoke("mcp_guarded_read", {"path": str(tmp_path / path)})
            assert code(outcome) == "SECURITY_VIOLATION", path
        assert (await app.invoke("mcp_free_read", {"path": str(tmp_path / "repo/.git/HEAD")})).ok


async def test_reading_a_resource_and_getting_a_prompt_are_governed_calls(tmp_path: Path) -> None:
    resources = [{"uri": uri, "name": "a"} for uri in ("x://a", "file:///etc/shadow")]
    upstream = Upstream(
        tmp_path, capabilities={"resources": {}, "prompts": {}}, resources=resources, prompts=[{"name": "greet"}]
    )
    async with opened(tmp_path, plain=upstream.settings(tools={"prompts/get": {"requires_permission": "prompts"}})) as app:
        await app.servers.refresh("plain")
        assert code(await app.invoke("mcp_plain_read_resource", {"uri": "x://a"})) == "TOOL_NOT_FOUND"
        await offered(app)
        outcome = await app.invoke("mcp_plain_read_resource", {"uri": "x://a"})
        assert outcome.output == {"contents": [{"uri": "x://a", "text": "what is at x://a"}]}
        asked = {"name": "greet", "arguments": {"who": "Ann"}}
        assert code(await app.invoke("mcp_plain_get_prompt", asked, actor=Actor(user="ann"))) == "PERMISSION_DENIED"
        outcome = await app.invoke("mcp_plain_get_prompt", asked, actor=Actor(user="ann", scopes=("prompts",)))
        assert outcome.output["messages"][0]["content"]["text"] == 'greet {"who": "Ann"}'
        made = app.parts.catalog.resolve("mcp_plain_read_resource", "default")
        assert (made.tier, "mcp:method" in made.tool.tags, made.implementation.method) == (
            "read_only",
            True,
            "resources/read",
        )
        assert code(await app.invoke("mcp_plain_read_resource", {"uri": "file:///etc/shadow"})) == "SECURITY_VIOLATION"


@pytest.mark.requirement("MCP-2", "PIPE-1")
async def test_completing_an_argument_is_a_governed_call(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, capabilities={"completions": {}, "prompts": {}}, prompts=[{"name": "greet"}])
    asked = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "An"}}
    said = {"completion/complete": {"requires_permission": "prompts"}}
    async with opened(tmp_path, plain=upstream.settings(tools=said)) as app:
        await app.servers.refresh("plain")
        assert code(await app.invoke("mcp_plain_complete_argument", asked)) == "TOOL_NOT_FOUND"
        await offered(app)
        assert code(await app.invoke("mcp_plain_complete_argument", asked, actor=Actor(user="ann"))) == "PERMISSION_DENIED"
        outcome = await app.invoke("mcp_plain_complete_argument", asked, actor=Actor(user="ann", scopes=("prompts",)))
        assert outcome.output == {"completion": {"values": ["An!"], "hasMore": False}}
        await app.flush()
        ends = [row for row in await app.parts.store.read(audit_log.latest(100)) if row[2] == "end"]
        assert [row[5] for row in ends] == ["mcp_plain_complete_argument"] * 3


@pytest.mark.requirement("TIER-4")
@pytest.mark.parametrize("method", ["resources/read", "prompts/get", "completion/complete"])
@pytest.mark.parametrize(
    ("upstream", "tier"),
    [
        (server(), "read_only"),
        (server(jail=None), "external_api"),
        (server(domains=["example.com"]), "external_api"),
        (server(network="host"), "external_api"),
        (server(command=[], url="https://example.com/mcp"), "external_api"),
        (server(jail=None, trust_annotations=True), "read_only"),
        (server(jail=None, tier="read_only"), "read_only"),
        (server(jail=None, tier="write"), "write"),
        (server(trust_annotations=True, tier="execute"), "execute"),
    ],
)
def test_that_reading_has_no_effect_is_believed_only_of_what_can_reach_nobody(
    upstream: Server, tier: str, method: Any
) -> None:
    found, _ = found_in(upstream.name, {"resources": {}, "prompts": {}, "completions": {}}, {"tools": []})
    assert entry_of(upstream, (method, ""), found[method, ""].text, RULES).tier == tier


async def test_what_would_be_sent_to_anybody_is_asked_about_also_if_it_is_called_reading(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, tool("say"), capabilities={"resources": {}})
    async with opened(tmp_path, plain={"command": upstream.command, "isolation": "none"}) as app:
        await offered(app, "plain")
        for name, arguments in (("say", {}), ("read_resource", {"uri": "any://exfiltrate?data=x"})):
            outcome = await app.invoke(f"mcp_plain_{name}", arguments)
            assert outcome.pending is not None, outcome


@pytest.mark.parametrize("preset", ["postgres", "github", "filesystem", "brave-search"])
def test_a_presets_permission_holds_for_all_that_its_server_has(preset: str) -> None:
    upstream = upstream_of("it", ServerSettings(preset=preset, read=(Path("/data"),)), "bubblewrap")
    has: dict[str, Any] = {"resources": {}, "prompts": {}, "completions": {}}
    found, _ = found_in(upstream.name, has, {"tools": [tool("made_up_in_a_later_version")]})
    permissions = {entry_of(upstream, key, one.text, RULES).tool.requires_permission for key, one in found.items()}
    assert len(found) == 4
    assert permissions == {PRESETS[preset].settings["requires_permission"]}
    assert None not in permissions


async def test_a_thousand_tools(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, *(tool(f"tool_{number}", f"Number {number}.") for number in range(1000)))
    async with opened(tmp_path, plain=upstream.settings(trust_first_seen=True)) as app:
        await app.servers.refresh("plain")
        assert len([one for one in await app.tools.list() if one.source == "mcp"]) == 1000
        assert orjson.loads((await app.invoke("mcp_plain_tool_999", {})).output)["tool"] == "tool_999"


# -- one bad server


@pytest.mark.requirement("MCP-1")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_server_that_does_not_start_hides_nothing_and_is_named(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    dead = {"command": ["/bin/false"], "isolation": "none", "restarts": 0}
    hangs = {"command": ["/bin/sleep", "600"], "isolation": "none", "start_seconds": 600}
    async with opened(tmp_path, dead=dead, hangs=hangs, plain=upstream.settings()) as app:
        async with asyncio.timeout(30):
            await offered(app, "plain")
        assert (await app.invoke("mcp_plain_say", {})).ok
        async with asyncio.timeout(30):
            while "dead" not in app.servers.unreachable:
                await asyncio.sleep(0.02)
        status = {one.name: one for one in await app.servers.list()}
        assert status["dead"].problem
        assert status["plain"].problem is None


async def test_settings_that_can_not_work_are_a_problem_and_no_more(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    bad = {
        "two": {"npm": "a@1.0.0", "url": "https://example.com"},
        "none": {},
        "unknown": {"preset": "filesytem"},
        "ftp": {"url": "ftp://x"},
    }
    async with opened(tmp_path, plain=upstream.settings(), **bad) as app:
        await offered(app, "plain")
        assert (await app.invoke("mcp_plain_say", {})).ok
        words = {problem.where: problem.why for problem in app.tools.problems}
        assert words.keys() >= {"server two", "server none", "server unknown", "server ftp"}

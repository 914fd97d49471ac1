"""The quick way of /mcp says exactly what the SDK's way says, and takes only what it is sure of."""

import asyncio
import json
import sys
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import at_most
from tests.serving import ACCEPT, META, VERSION, Answer, Site, read_answer, serving
from toolgate import Actor, App, InvalidInput, tool
from toolgate.mcp.server import fast_path
from toolgate.mcp.server.fast_path import FastPath
from toolgate.store import audit_log
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("MCP-4", "PIPE-1")

SDK_ACCEPT = "application/json,text/event-stream;q=0.9"
"""Means the same, and is written so that only the SDK reads it."""


@tool(tier="read_only")
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(tier="read_only")
async def reflect(value: Any) -> Any:
    """Give back what was given."""
    return value


@tool(tier="read_only")
async def picky(value: Any) -> str:
    """Likes nothing."""
    raise InvalidInput(f"not {type(value).__name__}", suggestion="Give something else.")


@tool(tier="read_only")
async def broken(value: Any) -> str:
    """Fails."""
    raise RuntimeError(f"no good: {value!r:.20}")


@tool(tier="execute")
async def risky(value: Any) -> Any:
    """Asks before it runs."""
    return value


@tool(tier="read_only")
async def headed(region: str) -> str:
    """Wants an argument in a header too."""
    return region


TOOLS = (add, reflect, picky, broken, risky)


class Counted:
    """Counts what the quick way took."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.taken = 0
        quick: FastPath = site.http.mcp.fast_path
        serve = quick.serve

        async def counting(*args: Any) -> bool:
            took = await serve(*args)
            self.taken += took
            return took

        quick.serve = counting  # type: ignore[method-assign, assignment]

    async def both(self, method: str, params: Mapping[str, Any], **rest: Any) -> tuple[Answer, Answer]:
        """The same request by both ways."""
        headers = rest.pop("headers", {})
        return (
            await self.site.mcp(method, params, headers=headers, **rest),
            await self.site.mcp(method, params, headers={**headers, "Accept": SDK_ACCEPT}, **rest),
        )


@asynccontextmanager
async def a_site(app: App, *tools: Any) -> AsyncIterator[Counted]:
    async with app, serving(app) as site:
        app.tools.register_many(tools or TOOLS)
        await site.with_key(app, Actor("acme", "analyst", "u-1"))
        yield Counted(site)


def told(answer: Answer) -> tuple[int, Any]:
    """What an answer says, apart from what differs with each call."""
    said = answer.json
    if isinstance(said, dict) and isinstance(said.get("result"), dict):
        said["result"].get("_meta", {}).pop("toolgate/call", None)
        structured = said["result"].get("structuredContent")
        if isinstance(structured, dict) and structured.get("status") == "pending":
            said["result"] = {"pending": structured["kind"]}
    return answer.status, said


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PLAIN = st.fixed_dictionaries(
    {"name": st.just("add"), "arguments": st.fixed_dictionaries({"a": st.integers() | VALUES})}
) | (
    st.fixed_dictionaries(
        {"name": st.sampled_from(["reflect", "picky", "broken"]), "arguments": st.fixed_dictionaries({"value": VALUES})}
    )
)
ODD = st.fixed_dictionaries(
    {"name": st.sampled_from(["add", "reflect", "picky", "broken", "risky", "nothing", "reflect ", "ADD", "x" * 70])},
    optional={
        "arguments": st.fixed_dictionaries({"value": VALUES})
        | st.fixed_dictionaries({"a": st.integers() | VALUES}, optional={"b": st.integers(), "c": VALUES})
        | st.none()
        | VALUES,
        "task": st.just({"ttl": 1}),
        "inputResponses": st.just({}),
        "requestState": st.just("forged"),
        "other": VALUES,
    },
)


@given(request=PLAIN | ODD, id=st.integers() | st.text(max_size=5))
def test_every_request_is_answered_alike_by_both_ways(request: dict[str, Any], id: Any, shared: "Shared") -> None:
    quick, slow = shared.run(shared.site.both("tools/call", request, id=id, headers=_encoded_name(request["name"])))
    assert told(quick) == told(slow)


@given(request=PLAIN, id=VALUES | st.sampled_from([2**53, 2**70, -(2**63) - 1]))
@at_most(50)
def test_every_id_is_answered_alike_by_both_ways(request: dict[str, Any], id: Any, shared: "Shared") -> None:
    quick, slow = shared.run(shared.site.both("tools/call", request, id=id))
    assert told(quick) == told(slow)


def _encoded_name(name: str) -> dict[str, str]:
    return {"Mcp-Name": name}


class Shared:
    """One server for many examples: they are run by hypothesis, which is not asynchronous."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.context = a_site(memory_app())
        self.site = self.runner.run(self.context.__aenter__())

    def run(self, asking: Any) -> tuple[Answer, Answer]:
        answers: tuple[Answer, Answer] = self.runner.run(_asked(asking))
        return answers

    def close(self) -> None:
        self.runner.run(self.context.__aexit__(None, None, None))
        self.runner.close()


async def _asked(asking: Any) -> Any:
    return await asking


@pytest.fixture(scope="module")
def shared() -> Any:
    made = Shared()
    yield made
    made.close()
    assert made.site.taken >= settings().max_examples // 3, "the examples did not try the quick way"


META_KEYS = st.sampled_from(
    ["progressToken", "traceparent", "io.modelcontextprotocol/logLevel", "toolgate/timeout", "toolgate/approval", "x/y"]
)


@given(
    version=st.just(VERSION) | st.sampled_from(["2025-11-25", "1999-01-01", None, 7]),
    capabilities=st.sampled_from([{}, {"elicitation": {}}, {"sampling": {}, "roots": {}}])
    | st.sampled_from([{"extensions": {}}, {"roots": 5}, None, []]),
    info=st.just({"name": "x", "version": "1"}) | st.sampled_from([{"name": 1}, None, "x"]),
    extra=st.just({}) | st.dictionaries(META_KEYS, st.sampled_from(["x", 1, None, 0.5, "info"]), max_size=2),
    header=st.sampled_from([VERSION, VERSION, VERSION, "1999-01-01"]),
)
def test_whatever_a_client_says_of_itself_both_ways_agree(
    version: Any, capabilities: Any, info: Any, extra: dict[str, Any], header: str, shared: Shared
) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": info,
        **extra,
    }
    request = {"name": "add", "arguments": {"a": 1}}
    quick, slow = shared.run(shared.site.both("tools/call", request, meta=meta, headers={"MCP-Protocol-Version": header}))
    if quick.headers["content-type"].startswith("application/json"):
        assert told(quick) == told(slow)
    else:
        assert quick.headers["content-type"] == slow.headers["content-type"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Mcp-Name": "other"},
        {"Mcp-Name": ""},
        {"Mcp-Name": "=?base64?YWRk?="},
        {"Mcp-Method": "tools/list"},
        {"Mcp-Method": ""},
        {"MCP-Protocol-Version": "2025-11-25"},
        {"Mcp-Param-Region": "x"},
        {"Mcp-Session-Id": "x"},
        {"X-Other": "x"},
    ],
)
@pytest.mark.sample(4)
async def test_headers_that_are_not_as_they_should_be_get_the_same_answer(headers: dict[str, str]) -> None:
    async with a_site(memory_app()) as site:
        quick, slow = await site.both("tools/call", {"name": "add", "arguments": {"a": 1}}, headers=headers)
        assert told(quick) == told(slow)


@pytest.mark.parametrize(
    "accept", ["application/json", "text/event-stream", "*/*", "", "text/html", "application/json;q=0, text/event-stream"]
)
@pytest.mark.sample(4)
async def test_what_a_client_accepts_is_for_the_sdk_to_judge(accept: str) -> None:
    async with a_site(memory_app()) as site:
        await site.site.mcp("tools/call", {"name": "add", "arguments": {"a": 1}}, headers={"Accept": accept})
        assert site.taken == 0


async def test_plain_calls_and_lists_do_take_the_quick_way() -> None:
    async with a_site(memory_app()) as site:
        for method, params in (
            ("tools/call", {"name": "add", "arguments": {"a": 1}}),
            ("tools/call", {"name": "broken", "arguments": {"value": 1}}),
            ("tools/list", {}),
        ):
            before = site.taken
            quick, slow = await site.both(method, params)
            assert site.taken == before + 1, (method, quick.body)
            assert told(quick) == told(slow)


async def test_what_may_have_to_be_asked_about_takes_the_sdks_way() -> None:
    async with a_site(memory_app()) as site:
        answer = await site.site.mcp("tools/call", {"name": "risky", "arguments": {"value": 1}})
        assert answer.json["result"]["structuredContent"]["status"] == "pending"
        assert site.taken == 0


async def test_an_argument_that_must_be_in_a_header_is_checked_there() -> None:
    app = memory_app()
    async with a_site(app) as site:
        tool_ = app.register(headed)
        assert tool_.name == "headed"
        schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
        entry = app.parts.catalog.resolve("headed", "acme")
        entry.tool.input_schema.clear()
        entry.tool.input_schema.update(schema)
        params = {"name": "headed", "arguments": {"region": "eu"}}
        quick, slow = await site.both("tools/call", params)
        assert told(quick) == told(slow)
        assert site.taken == 0


# -- calls that do not end at once: each is made once, and answered by whoever made it

SERVER = Path(__file__).parents[1] / "mcp_wanting_server.py"
ABLE = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


@asynccontextmanager
async def a_wanting_site(folder: Path) -> AsyncIterator[tuple[App, Counted, Path]]:
    """A site with a server behind it; and where that notes its calls."""
    noted = folder / "calls.txt"
    noted.touch()
    app = memory_app()
    async with a_site(app) as site:
        settings = {
            "command": [sys.executable, str(SERVER), str(noted)], "isolation": "none", "trust_first_seen": True,
            "tools": {name: {"tier": "read_only"} for name in ("pay", "poll", "greet")},
        }  # fmt: skip
        await app.servers.add("up", settings)
        await app.servers.refresh("up")
        yield app, site, noted


async def _records(app: App) -> int:
    await app.flush()
    return len(await app.parts.store.read(audit_log.latest(1_000)))


async def test_a_tool_that_asks_something_is_called_once_and_answered_alike(tmp_path: Path) -> None:
    async with a_wanting_site(tmp_path) as (app, site, noted):
        before = await _records(app)
        quick = await site.site.mcp("tools/call", {"name": "mcp_up_pay", "arguments": {}})
        assert site.taken == 1
        assert noted.read_text() == "pay None\n", "one request, one call"
        between = await _records(app)
        slow = await site.site.mcp("tools/call", {"name": "mcp_up_pay", "arguments": {}}, headers={"Accept": SDK_ACCEPT})
        assert site.taken == 1
        assert between - before == await _records(app) - between > 0
        results = quick.json["result"], slow.json["result"]
        for result in results:
            assert result["isError"] is True and result["structuredContent"]["kind"] == "input"
            assert result["_meta"].pop("toolgate/call") == result["structuredContent"].pop("call")
            del result["structuredContent"]["input"]
        assert results[0] == results[1]


async def test_a_tool_that_wants_to_be_called_again_is_and_by_either_way(tmp_path: Path) -> None:
    params = {"name": "mcp_up_poll", "arguments": {"n": 1}}
    async with a_wanting_site(tmp_path) as (_, site, noted):
        quick, slow = await site.both("tools/call", params)
        assert site.taken == 1
        assert noted.read_text() == "poll None\n" * 2
        results = [answer.json["result"] for answer in (quick, slow)]
        states = [result.pop("requestState") for result in results]
        assert results[0] == results[1] and results[0]["resultType"] == "input_required"
        for state in states:
            ended = await site.site.mcp("tools/call", {**params, "requestState": state})
            assert ended.json["result"]["content"] == [{"type": "text", "text": "done"}]
            other = await site.site.mcp("tools/call", {**params, "arguments": {"n": 2}, "requestState": state})
            assert other.json["error"]["data"] == {"reason": "invalid_request_state"}
        stranger = (await site.site.http.app.keys.create("other", Actor("acme", "analyst", "u-2")))[1]
        stolen = await site.site.mcp("tools/call", {**params, "requestState": states[0]}, key=stranger)
        assert stolen.json["error"]["data"] == {"reason": "invalid_request_state"}
        assert noted.read_text() == "poll None\n" * 2 + "poll begun\n" * 2


async def test_what_a_tool_wants_to_have_back_is_each_call_s_own(tmp_path: Path) -> None:
    async with a_wanting_site(tmp_path) as (_, site, _):
        named = [{"name": f"mcp_up_{name}", "arguments": {}} for name in ("pay", "poll", "greet")]
        asked = [one for one in named for _ in range(4)]
        answers = await asyncio.gather(*(site.site.mcp("tools/call", one) for one in asked))
        assert site.taken == len(asked)
        kinds = [answer.json["result"].get("structuredContent", {}).get("kind") for answer in answers]
        assert kinds == ["input"] * 4 + [None] * 8
        assert [answer.json["result"]["resultType"] for answer in answers[4:]] == ["input_required"] * 4 + ["complete"] * 4


@pytest.mark.parametrize(("able", "may_approve"), [(False, True), (True, False), (True, True)])
async def test_a_call_that_waits_for_an_approval_inside_is_made_once_and_answered_alike(
    able: bool, may_approve: bool
) -> None:
    """Nothing of the tool says that it asks: the tool that it calls does."""
    app, begun = memory_app(), []

    @tool(tier="read_only")
    async def outer() -> Any:
        """Calls one that asks."""
        begun.append(1)
        return (await app.invoke("risky", {"value": 1}, actor=Actor("acme", "analyst", "u-1"))).raise_for_status().output

    async with a_site(app, outer, risky) as site:
        await site.site.with_key(app, Actor("acme", "analyst", "u-1"), may_approve=may_approve)
        meta = ABLE if able else META
        quick = await site.site.mcp("tools/call", {"name": "outer", "arguments": {}}, meta=meta)
        assert len(begun) == 1
        slow = await site.site.mcp(
            "tools/call", {"name": "outer", "arguments": {}}, meta=meta, headers={"Accept": SDK_ACCEPT}
        )
        asks = able and may_approve
        assert site.taken == (0 if asks else 1)
        for answer in (quick, slow):
            result = answer.json["result"]
            assert result["resultType"] == ("input_required" if asks else "complete")
            assert asks or result["structuredContent"]["kind"] == "approval"
        assert asks or told(quick) == told(slow)


# -- what is kept


async def test_what_is_kept_is_not_for_callers_to_choose() -> None:
    app = memory_app(mcp={"page": 5})
    async with a_site(app) as site:
        kept: FastPath = site.site.http.mcp.fast_path
        long = ", ".join([ACCEPT, *(f"x/{number}" for number in range(1_000))])
        await site.site.mcp("tools/list", headers={"Accept": long})
        await site.site.mcp("tools/list", headers={"Accept": "text/html"})
        assert kept._accepts == set()
        assert site.taken == 1
        first = await site.site.mcp("tools/list")
        size = kept._listed.size
        assert 0 < size <= len(first.body) and kept._accepts == {ACCEPT.encode()}
        names = [tool["name"] for tool in first.json["result"]["tools"]]
        for name in ("A", "zzz", *names[:-1]):  # none of which ends a page
            made_up = urlsafe_b64encode(name.encode()).decode()
            quick, slow = await site.both("tools/list", {"cursor": made_up})
            assert told(quick) == told(slow) and quick.status == 200
        assert kept._listed.size == size, "a cursor that was never given out has its page kept"
        await site.site.mcp("tools/list", {"cursor": first.json["result"]["nextCursor"]})
        assert kept._listed.size > size


async def test_lists_are_kept_up_to_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    app = memory_app()
    async with a_site(app) as site:
        kept: FastPath = site.site.http.mcp.fast_path
        first = await site.site.mcp("tools/list")
        monkeypatch.setattr(fast_path, "MAX_CACHED_PAGE_BYTES", 2 * len(first.body))
        for number in range(5):
            key = (await site.site.http.app.keys.create(f"other-{number}", Actor("acme", "analyst", f"other-{number}")))[1]
            other = await site.site.mcp("tools/list", key=key)
            assert other.json == first.json
            assert kept._listed.size <= 2 * len(first.body)


# -- lists


async def test_a_list_is_made_anew_when_something_changes() -> None:
    app = memory_app(mcp={"page": 5})
    async with a_site(app) as site:
        first, slow = await site.both("tools/list", {})
        assert told(first) == told(slow)
        cursor = first.json["result"]["nextCursor"]
        second, slow = await site.both("tools/list", {"cursor": cursor})
        assert told(second) == told(slow)
        assert second.json["result"]["tools"][0]["name"] > first.json["result"]["tools"][-1]["name"]
        for wrong in ("!", "x" * 500, "é"):
            quick, slow = await site.both("tools/list", {"cursor": wrong})
            assert told(quick) == told(slow)

        @tool(tier="read_only")
        async def a() -> int:
            """The first of all."""
            return 1

        app.register(a)
        quick, slow = await site.both("tools/list", {})
        assert told(quick) == told(slow)
        assert quick.json["result"]["tools"][0]["name"] == "a"
        await app.tools.set_enabled("a", False, tenant="acme")
        quick, slow = await site.both("tools/list", {})
        assert told(quick) == told(slow)
        assert quick.json["result"]["tools"][0]["name"] != "a"


async def test_each_actor_is_given_their_own_list_and_calls_their_own_tools() -> None:
    app = memory_app()
    async with a_site(app) as site:
        await app.tools.set_enabled("add", False, tenant="acme")
        other = (await site.site.http.app.keys.create("other", Actor("other")))[1]
        mine = await site.site.mcp("tools/list")
        theirs = await site.site.mcp("tools/list", key=other)
        assert "add" not in _names(mine)
        assert "add" in _names(theirs)
        params = {"name": "add", "arguments": {"a": 1}}
        hidden, slow = await site.both("tools/call", params)
        missing = await site.site.mcp("tools/call", {"name": "never", "arguments": {"a": 1}})
        assert told(hidden) == told(slow)
        assert hidden.json["error"]["message"].replace("add", "never") == missing.json["error"]["message"]
        assert (await site.site.mcp("tools/call", params, key=other)).json["result"]["content"][0]["text"] == "2"


def _names(answer: Answer) -> list[str]:
    return [tool["name"] for tool in answer.json["result"]["tools"]]


async def test_many_calls_on_one_connection_are_answered_in_turn() -> None:
    async with a_site(memory_app()) as site:
        body = {
            "jsonrpc": "2.0",
            "id": 0,
            "method": "tools/call",
            "params": {"name": "add", "arguments": {"a": 0}, "_meta": META},
        }
        requests = []
        for number in range(20):
            body["id"] = number
            body["params"]["arguments"]["a"] = number  # type: ignore[index]
            sent = json.dumps(body).encode()
            head = (
                f"POST /mcp HTTP/1.1\r\nHost: {site.site.host}\r\nAuthorization: Bearer {site.site.key}\r\n"
                f"Accept: {ACCEPT}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\nMCP-Protocol-Version: {VERSION}\r\n"
                "Mcp-Method: tools/call\r\nMcp-Name: add\r\n\r\n"
            )
            requests.append(head.encode() + sent)
        reader, writer = await asyncio.open_connection("127.0.0.1", site.site.port)
        writer.write(b"".join(requests))
        answers = [await asyncio.wait_for(read_answer(reader), 30) for _ in requests]
        writer.close()
        assert [(answer.json["id"], answer.json["result"]["content"][0]["text"]) for answer in answers] == [
            (number, str(number + 1)) for number in range(20)
        ]

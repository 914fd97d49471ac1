"""Remote MCP servers: streamable HTTP of both eras and the older SSE, the quick way and the SDK's session alike."""

import asyncio
import base64
import gc
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import encode_header_value
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, LOG_LEVEL_META_KEY, PROTOCOL_VERSION_META_KEY

from tests.examples import at_most
from tests.mcp_person import Person
from tests.mcp_servers import call, descriptors, engine, standing, until
from tests.remote_servers import odd, program
from toolgate.errors import CallError
from toolgate.mcp.client.errors import ErrorResponse, InputRequired, Unreachable
from toolgate.mcp.client.http_transport import HttpTransport
from toolgate.mcp.client.request_meta import META_PREFIX, header_value, request_meta
from toolgate.mcp.client.secret_refs import fill
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.network.sse import EventTooLong, SseEvent, SseParser, encode_event
from toolgate.sandbox.engine import Sandbox
from toolgate.settings import ServerSettings

pytestmark = pytest.mark.requirement("MCP-1")


@pytest.fixture(scope="module")
def modern() -> Iterator[str]:
    with program("tests.conformance.upstream", "--port", "0") as url:
        yield url


@pytest.fixture(scope="module")
def old() -> Iterator[str]:
    with program("tests.conformance.upstream", "--port", "0", "--old") as url:
        yield url


@pytest.fixture(scope="module")
def oldest() -> Iterator[str]:
    with program("tests.mcp_sse_server") as url:
        yield url


@pytest.fixture(params=["quick", "session"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which way requests go."""
    if request.param == "session":
        monkeypatch.setattr(HttpTransport, "fast_http", lambda *_: None)


@pytest.fixture(params=["modern quick", "modern session", "old quick", "old session", "oldest"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ServerSettings:
    """The same server over each transport, each way."""
    which, _, how = request.param.partition(" ")
    if how == "session":
        monkeypatch.setattr(HttpTransport, "fast_http", lambda *_: None)
    return ServerSettings(url=request.getfixturevalue(which), transport="sse" if which == "oldest" else None)


# -- the same over each transport


async def test_tools_are_listed_and_called(server: ServerSettings) -> None:
    async with engine(one=server) as servers:
        names = {tool["name"] for tool in await servers["one"].listed("tools")}
        assert "test_simple_text" in names
        assert await call(servers, "one", "test_simple_text") == "This is a simple text response for testing."


async def test_all_kinds_of_content_come_through_as_they_are(server: ServerSettings) -> None:
    async with engine(one=server) as servers:
        answer = await servers["one"].request("tools/call", {"name": "test_multiple_content_types", "arguments": {}})
        assert [part["type"] for part in answer["content"]] == ["text", "image", "resource"]
        image = await servers["one"].request("tools/call", {"name": "test_image_content", "arguments": {}})
        assert base64.b64decode(image["content"][0]["data"])[:4] == b"\x89PNG"


async def test_a_tool_that_fails_is_an_answer_and_a_tool_that_is_not_there_is_a_refusal(server: ServerSettings) -> None:
    async with engine(one=server) as servers:
        answer = await servers["one"].request("tools/call", {"name": "test_error_handling", "arguments": {}})
        assert answer["isError"] is True
        with pytest.raises(ErrorResponse) as raised:
            await call(servers, "one", "no_such_tool")
        assert raised.value.number == -32602


async def test_progress_and_messages_reach_whoever_called(server: ServerSettings) -> None:
    person, other = Person(log_level="info"), Person(log_level="info")
    async with engine(one=server) as servers:
        await asyncio.gather(
            call(servers, "one", "test_tool_with_progress", person), call(servers, "one", "test_simple_text", other)
        )
        await call(servers, "one", "test_tool_with_logging", person)
    assert [step for step, _ in person.seen] == [0, 50, 100]
    assert len(person.logged) == 3
    assert (other.seen, other.logged) == ([], [])


async def test_a_tool_can_ask_whoever_called(server: ServerSettings) -> None:
    person = Person(elicitation={"action": "accept", "content": {"username": "ada", "email": "ada@example.com"}})
    async with engine(one=server) as servers:
        arguments = {"name": "test_elicitation", "arguments": {"message": "Who are you?"}}
        try:
            answer = await servers["one"].request("tools/call", arguments, caller=person)
        except InputRequired as more:  # the new protocol: asked by coming again
            answers = {name: await person.ask(one["method"], one["params"]) for name, one in more.requests.items()}
            again = {**arguments, "inputResponses": answers, "requestState": more.state}
            answer = await servers["one"].request("tools/call", again, caller=person)
    assert [method for method, _ in person.asked] == ["elicitation/create"]
    assert "ada" in json.dumps(answer)


async def test_resources_and_prompts_are_there_too(server: ServerSettings) -> None:
    async with engine(one=server) as servers:
        read = await servers["one"].request("resources/read", {"uri": "test://static-text"})
        assert read["contents"][0]["uri"] == "test://static-text"
        prompt = await servers["one"].request("prompts/get", {"name": "test_simple_prompt", "arguments": {}})
        assert prompt["messages"][0]["role"] == "user"


async def test_many_calls_at_once_each_get_their_own_answer(server: ServerSettings) -> None:
    async with engine(one=server) as servers:
        uris = [f"test://template/{number}/data" for number in range(40)]
        read = await asyncio.gather(*(servers["one"].request("resources/read", {"uri": uri}) for uri in uris))
        assert [one["contents"][0]["uri"] for one in read] == uris
        assert standing(servers, "one").starts == 1


async def test_a_stream_that_the_server_breaks_off_is_taken_up_again(server: ServerSettings) -> None:
    async with engine(one=server) as servers:
        assert "successfully" in await call(servers, "one", "test_reconnection")


async def test_numbers_of_any_size_reach_the_server(server: ServerSettings) -> None:
    async with engine(one=server) as servers:
        arguments = {"name": "test_simple_text", "arguments": {}, "_meta": {"example.com/number": 2**80}}
        assert (await servers["one"].request("tools/call", arguments))["content"]


# -- the quick way is the same as the other


async def test_the_quick_way_sends_what_the_session_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person(log_level="warning", elicitation={}, sampling={})
    arguments = {"name": "echo", "arguments": {"text": "hé"}, "_meta": {"traceparent": "00-1"}}

    async def sent(old: bool) -> tuple[dict[str, str], dict[str, Any]]:
        async with odd(old=old) as (_, at), engine(one=ServerSettings(url=f"{at.url}/mcp")) as servers:
            await servers["one"].request("tools/call", arguments, caller=person)
            asked = next(one for one in at.asked if one.method == "POST" and one.json.get("method") == "tools/call")
        mine = {"accept", "accept-encoding", "content-type"}
        headers = {name: value for name, value in asked.headers.items() if name in mine or name.startswith("mcp-")}
        headers.pop("mcp-session-id", None)
        message = asked.json
        assert message.pop("id")
        assert message["params"]["_meta"].pop("progressToken")
        return headers, message

    for old in (False, True):
        quick = await sent(old)
        with monkeypatch.context() as patched:
            patched.setattr(HttpTransport, "fast_http", lambda *_: None)
            assert await sent(old) == quick


def test_what_a_request_says_of_itself_has_the_protocols_names() -> None:
    assert request_meta("2026-07-28", {}).keys() == {
        PROTOCOL_VERSION_META_KEY,
        CLIENT_INFO_META_KEY,
        CLIENT_CAPABILITIES_META_KEY,
    }
    assert META_PREFIX + "logLevel" == LOG_LEVEL_META_KEY


@given(st.text() | st.from_regex(r"=\?base64\?.*\?=", fullmatch=True) | st.text(alphabet=" \t\r\nab"))
def test_header_values_are_coded_as_the_protocol_says(value: str) -> None:
    assert header_value(value) == encode_header_value(value)


@pytest.mark.usefixtures("way")
async def test_connections_are_used_again() -> None:
    async with odd() as (_, at), engine(one=ServerSettings(url=f"{at.url}/mcp")) as servers:
        for _ in range(20):
            await call(servers, "one", "echo")
        assert at.connections <= 3


@pytest.mark.usefixtures("way")
async def test_a_call_that_is_given_up_is_cancelled_there() -> None:
    for old in (False, True):
        async with odd(old=old) as (server, at), engine(one=ServerSettings(url=f"{at.url}/mcp")) as servers:
            task = asyncio.create_task(call(servers, "one", "endless"))
            await until(lambda: "endless" in server.calls, "it is under way")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: bool(server.cancelled) or server.closed.is_set(), "the server is told")
            assert bool(server.cancelled) == old


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("old", [False, True])
async def test_a_stream_that_goes_on_after_the_answer_troubles_nobody(old: bool, caplog: pytest.LogCaptureFixture) -> None:
    async with odd(old=old) as (server, at), engine(one=ServerSettings(url=f"{at.url}/mcp")) as servers:
        said = await asyncio.gather(*(call(servers, "one", "lingering") for _ in range(5)))
        assert said == ["here"] * 5
        hanging = [asyncio.create_task(call(servers, "one", "endless")) for _ in range(5)]
        await until(lambda: server.calls.count("endless") == 5, "they are under way")
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        assert await call(servers, "one", "echo") == "here"
    gc.collect()
    await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("old", [False, True])
async def test_connecting_again_and_again_leaves_nothing_open(old: bool) -> None:
    async with odd(old=old) as (_, at), engine(one=ServerSettings(url=f"{at.url}/mcp")) as servers:
        counts = []
        for _ in range(15):
            await servers["one"].restart()
            assert await call(servers, "one", "echo") == "here"
            await servers["one"].stop()
            await until(lambda: at.open == 0, "the server has no connection left")
            counts.append(descriptors())
        assert counts[-1] <= counts[4]


# -- headers and secrets


@pytest.mark.usefixtures("way")
async def test_secrets_are_filled_into_headers_when_they_are_needed() -> None:
    secrets = {"KEY": "first"}
    async with odd() as (server, at):
        server.key = "first"
        sandbox = Sandbox()
        servers = UpstreamServers(secrets=secrets.get, sandbox=sandbox, home=None)
        servers.set("one", ServerSettings(url=f"{at.url}/mcp", headers={"Authorization": "Bearer {{secret:KEY}}"}))
        try:
            assert await call(servers, "one", "echo") == "here"
            server.key = "second"
            with pytest.raises(CallError) as raised:
                await call(servers, "one", "echo")
            assert raised.value.code == "MISSING_AUTH"
            assert "first" not in str(raised.value)
            secrets["KEY"] = "second"
            assert await call(servers, "one", "echo") == "here"
        finally:
            await servers.close()
            await sandbox.close()


@pytest.mark.usefixtures("way")
async def test_a_secret_that_is_not_there_is_named_and_nothing_is_sent() -> None:
    async with odd() as (_, at):
        settings_ = ServerSettings(url=f"{at.url}/mcp", headers={"x-key": "{{secret:NOT_SET}}"})
        async with engine(one=settings_) as servers:
            with pytest.raises(Unreachable) as raised:
                await call(servers, "one", "echo")
        assert raised.value.code == "MISSING_AUTH"
        assert "NOT_SET" in str(raised.value)
        assert at.asked == []


@pytest.mark.parametrize("header", ["Host", "content-length", "Mcp-Session-Id", "MCP-Protocol-Version", "Accept"])
async def test_headers_of_the_protocol_cannot_be_set(header: str) -> None:
    async with odd() as (_, at), engine(one=ServerSettings(url=f"{at.url}/mcp", headers={header: "x"})) as servers:
        with pytest.raises(Unreachable, match="is reserved for the protocol"):
            await call(servers, "one", "echo")
        assert at.asked == []


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/mcp", "127.0.0.1:80", "http://", "file:///etc/passwd"])
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    async with engine(one=ServerSettings(url=url)) as servers:
        with pytest.raises(Unreachable, match="has no valid url"):
            await call(servers, "one", "echo")


@given(st.text(), st.dictionaries(st.sampled_from(["A", "B_2"]), st.text(min_size=1), min_size=2))
@at_most(60)
def test_only_references_are_replaced(text: str, secrets: dict[str, str]) -> None:
    plain = text.replace("{", "")
    filled = fill(f"{plain}{{{{secret:A}}}}{plain}{{{{ secret: B_2 }}}}", secrets.get, "a header")
    assert filled == f"{plain}{secrets['A']}{plain}{secrets['B_2']}"


async def test_through_a_proxy_the_session_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with odd() as (_, through):
        monkeypatch.setenv("http_proxy", through.url)
        async with engine(one=ServerSettings(url="http://mcp.invalid/mcp")) as servers:
            assert await call(servers, "one", "echo") == "here"
        assert [asked.headers["host"] for asked in through.asked] == ["mcp.invalid"] * 2


# -- events


def _split(data: bytes, places: list[int]) -> list[bytes]:
    cuts = sorted({min(place, len(data)) for place in places})
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


_LINE = st.binary(max_size=30).filter(lambda line: b"\n" not in line and b"\r" not in line)
_EVENT = st.builds(
    SseEvent,
    st.sampled_from(["message", "endpoint"]),
    st.lists(_LINE, min_size=1, max_size=4).map(b"\n".join),
    st.none() | st.text(alphabet="abc123", min_size=1, max_size=5),
    st.none() | st.integers(0, 99_999),
)


@given(st.lists(_EVENT, max_size=5), st.lists(st.integers(0, 400), max_size=12), st.sampled_from([b"\n", b"\r\n"]))
def test_events_are_the_same_however_they_are_cut(events: list[SseEvent], places: list[int], end: bytes) -> None:
    data = b"".join(map(encode_event, events)).replace(b"\n", end)
    reader = SseParser(10_000)
    read = [event for chunk in _split(data, places) for event in reader.feed(chunk)]
    last: str | None = None
    for found, meant in zip(read, events, strict=True):
        last = meant.id or last
        assert (found.name, found.data, found.retry, found.id) == (meant.name, meant.data, meant.retry, last)


@given(st.binary(max_size=500), st.lists(st.integers(0, 500), max_size=10))
def test_any_bytes_can_be_read_as_events(data: bytes, places: list[int]) -> None:
    reader = SseParser(1_000)
    for chunk in _split(data, places):
        reader.feed(chunk)


@pytest.mark.parametrize("chunk", [b"x" * 50, b"data: xxxx\n" * 5, b"\r" + b"y" * 49])
def test_an_event_that_does_not_end_is_not_kept(chunk: bytes) -> None:
    reader = SseParser(1_000)
    with pytest.raises(EventTooLong):
        for _ in range(100):
            reader.feed(chunk)

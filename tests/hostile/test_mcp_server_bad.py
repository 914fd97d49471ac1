"""Whatever comes through the pipe or over HTTP: a protocol-correct error, and the next client is served as ever."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mcp_clients import connected, key_for
from tests.mcp_pipe import HELLO, Pipe, piped
from tests.serving import ACCEPT, META, Site, serving
from toolgate import Actor, App, tool
from toolgate.mcp.server import session_records
from toolgate.mcp.server.results import ProtocolError, decode_cursor, encode_cursor
from toolgate.mcp.server.tool_calls import read_answer
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("MCP-4", "IO-2")

ADA, BOB = Actor("acme", "analyst", "ada"), Actor("other", None, "bob")
DEEP = b"[" * 100_000
NOT_MESSAGES: list[tuple[bytes, int]] = [
    (b"{", -32700),
    (b"not json", -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"', -32700),
    (b"\xff\xfe\x00", -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\\ud800"}}', -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + DEEP, -32700),
    (b"[]", -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
    (b"null", -32600),
    (b"7", -32600),
    (b'"ping"', -32600),
    (b"{}", -32600),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
    (b'{"id":1,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":1}', -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32600),
]
"""What is no message, and the error that it must be answered with."""


@tool(tier="read_only")
async def mirror(value: Any = None) -> Any:
    """Give back what was given."""
    return value


@asynccontextmanager
async def a_site(**settings: Any) -> AsyncIterator[tuple[App, Site, str]]:
    async with memory_app(**settings) as app:
        app.register(mirror)
        async with serving(app) as site:
            yield app, site, await key_for(app, ADA)


# -- through the pipe


async def is_well(pipe: Pipe) -> None:
    answer = await pipe.modern("tools/call", name="calculator", arguments={"expression": "1+1"})
    assert answer["result"]["structuredContent"]["result"] == 2


@pytest.mark.matrix("starts the program")
async def test_what_is_no_message_is_answered_and_the_pipe_goes_on(tmp_path: Path) -> None:
    async with piped(tmp_path) as pipe:
        await is_well(pipe)
        for line, code in NOT_MESSAGES:
            await pipe.write(line)
            answer = await pipe.read()
            assert answer["error"]["code"] == code, (line[:80], answer)
            assert answer.get("id") in (None, 1)
        for quiet in (
            b"",
            b"   ",
            b"\r",
            b'{"jsonrpc":"2.0","method":"notifications/nonsense"}',
            b'{"jsonrpc":"2.0","id":99,"result":{}}',
        ):
            await pipe.write(quiet)
        await is_well(pipe)
        assert await pipe.end() == 0
    assert "Traceback" not in (tmp_path / "stderr").read_text()


@pytest.mark.matrix("sends fifty megabytes")
async def test_a_message_of_fifty_megabytes_is_refused_and_not_kept(tmp_path: Path) -> None:
    async with piped(tmp_path) as pipe:
        await is_well(pipe)
        before = _resident(pipe.process.pid)
        head = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"x":"'
        await pipe.write(head + b"x" * (50 * 2**20) + b'"}}}')
        answer = await pipe.read()
        assert answer["error"]["code"] == -32600 and "longer" in answer["error"]["message"]
        await is_well(pipe)
        assert _resident(pipe.process.pid) < before + 40_000
        assert await pipe.end() == 0


def _resident(pid: int) -> int:
    """Kilobytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@pytest.mark.matrix("starts the program")
async def test_unknown_methods_wrong_versions_and_odd_parameters_are_protocol_errors(tmp_path: Path) -> None:
    async with piped(tmp_path) as pipe:  # the first request decides which era this pipe speaks
        await is_well(pipe)
        assert (await pipe.modern("no/such/method"))["error"]["code"] == -32601
        assert (await pipe.modern("ping"))["error"]["code"] == -32601
        assert (await pipe.modern("tasks/list"))["error"]["code"] == -32601
        assert (await pipe.ask("initialize", HELLO))["error"]["code"] == -32022
        strange = {**META, "io.modelcontextprotocol/protocolVersion": "1999-01-01"}
        assert (await pipe.ask("tools/list", {"_meta": strange}))["error"]["code"] == -32022
        assert (await pipe.ask("tools/list", {}))["error"]["code"] == -32602
        for params in (
            {},
            {"name": 7},
            {"name": "echo", "arguments": []},
            {"name": "echo", "arguments": "x"},
            {"name": None},
        ):
            assert (await pipe.modern("tools/call", **params))["error"]["code"] == -32602, params
        for name in ("", "x" * 65, "x" * 100_000, "a\x00b", "../etc/passwd", "añb", "echo ", "\u202eohce"):
            answer = await pipe.modern("tools/call", name=name, arguments={})
            assert answer["error"]["code"] == -32602 and len(json.dumps(answer)) < 2_000, name[:20]
        for cursor in ("", "x", "A" * 10_000):
            assert (await pipe.modern("tools/list", cursor=cursor))["error"]["code"] == -32602
        assert await pipe.end() == 0


@pytest.mark.matrix("the older revision of the protocol")
async def test_the_older_era_is_as_strict(tmp_path: Path) -> None:
    async with piped(tmp_path) as pipe:
        assert (await pipe.ask("tools/list"))["error"]["code"] == -32602  # before the handshake
        strange = await pipe.ask("initialize", {**HELLO, "protocolVersion": "1999-01-01"})
        assert strange["result"]["protocolVersion"] == "2025-11-25"  # the server says what it speaks
        await pipe.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        assert (await pipe.ask("tools/list"))["result"]["tools"]
        assert (await pipe.modern("tools/list"))["error"]["code"] == -32600  # the other era's
        assert (await pipe.ask("no/such/method"))["error"]["code"] == -32601
        assert (await pipe.ask("tasks/get", {"taskId": "x"}))["error"]["code"] == -32601
        assert (await pipe.ask("tools/call", {"name": "nope"}))["error"]["code"] == -32602
        assert (await pipe.ask("logging/setLevel", {"level": "loud"}))["error"]["code"] == -32602
        assert await pipe.end() == 0


@pytest.mark.matrix("starts the program")
async def test_an_id_that_is_used_twice_is_answered_twice(tmp_path: Path) -> None:
    async with piped(tmp_path) as pipe:
        await is_well(pipe)
        params = {"name": "calculator", "arguments": {"expression": "2+2"}, "_meta": META}
        line = json.dumps({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": params}).encode()
        await pipe.write(line + b"\n" + line)
        for _ in range(2):
            answer = await pipe.read()
            assert answer["id"] == "same" and ("result" in answer or answer["error"]["code"] == -32600)
        await is_well(pipe)
        assert await pipe.end() == 0


# -- over HTTP


DEEP_CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mirror","arguments":{"value":%s}}}'
BAD_CALLS = [
    DEEP_CALL % DEEP,
    DEEP_CALL % (DEEP + b"]" * len(DEEP)),
    DEEP_CALL % (b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    DEEP_CALL % b'"\xff\xfe"',
    DEEP_CALL % b'"\\ud800"',
]


@pytest.mark.parametrize("body", BAD_CALLS, ids=range(len(BAD_CALLS)))
async def test_a_call_that_can_t_be_read_is_refused_and_logs_no_traceback(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_site() as (_, site, key):
        headers = {"Accept": ACCEPT, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "mirror"}
        answer = await site("POST", "/mcp", headers, body, key=key)
        assert answer.status == 400 and answer.json["error"]["code"] in (-32700, -32600, -32602), answer
        assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(("body", "code"), [one for one in NOT_MESSAGES if one[0]])
@pytest.mark.sample(4)
async def test_what_is_no_message_is_refused_over_http_too(body: bytes, code: int) -> None:
    async with a_site() as (_, site, key):
        headers = {"Accept": ACCEPT, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
        answer = await site("POST", "/mcp", headers, body, key=key)
        assert answer.status == 400 and answer.json["error"]["code"] in (code, -32600, -32700, -32602), answer
        assert (await site.mcp("tools/call", {"name": "mirror", "arguments": {"value": 1}}, key=key)).status == 200


@pytest.mark.requirement("DOOR-3")
async def test_a_session_of_one_credential_is_not_there_for_another() -> None:
    async with a_site() as (app, site, key):
        hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}).encode()
        begun = await site("POST", "/mcp", {"Accept": ACCEPT}, hello, key=key)
        session = begun.headers["mcp-session-id"]
        listing = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).encode()
        given = {"Accept": ACCEPT, "Mcp-Session-Id": session}
        for other in (await key_for(app, BOB), await key_for(app, ADA)):  # not even another key of the same user's
            told = await site("POST", "/mcp", given, listing, key=other)
            unknown = await site("POST", "/mcp", {**given, "Mcp-Session-Id": "0" * 32}, listing, key=other)
            assert (told.status, told.body) == (unknown.status, unknown.body) and told.status == 404
            assert (await site("DELETE", "/mcp", given, key=other)).status == 404
        assert (await site("POST", "/mcp", given, listing, key=key)).status == 200


async def test_one_key_can_t_open_sessions_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_records, "MAX_CREDENTIAL_SESSIONS", 3)
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}).encode()
    async with a_site() as (app, site, key):
        answers = [await site("POST", "/mcp", {"Accept": ACCEPT}, hello, key=key) for _ in range(4)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429]
        assert (await site("POST", "/mcp", {"Accept": ACCEPT}, hello, key=await key_for(app, BOB))).status == 200
        assert (await site.mcp("tools/list", key=key)).status == 200  # needs no session
        session = answers[0].headers["mcp-session-id"]
        assert (await site("DELETE", "/mcp", {"Accept": ACCEPT, "Mcp-Session-Id": session}, key=key)).status == 200
        assert (await site("POST", "/mcp", {"Accept": ACCEPT}, hello, key=key)).status == 200


@pytest.mark.requirement("DOOR-3")
async def test_headers_reveal_nothing_of_a_tool_that_is_hidden() -> None:
    @tool(tier="read_only")
    async def headed(region: str) -> str:
        """Want an argument in a header too."""
        return region

    async with a_site() as (app, site, key):
        app.register(headed).input_schema["properties"]["region"]["x-mcp-header"] = "Region"
        params = {"name": "headed", "arguments": {"region": "one"}}
        wrong = {"Mcp-Param-Region": "two"}
        assert (await site.mcp("tools/call", params, headers=wrong, key=key)).json["error"]["code"] == -32020
        await app.tools.set_enabled("headed", False, tenant="acme")
        hidden = await site.mcp("tools/call", params, headers=wrong, key=key)
        unknown = await site.mcp("tools/call", {**params, "name": "header"}, headers=wrong, key=key)
        assert hidden.body == unknown.body.replace(b"header", b"headed")


@pytest.mark.requirement("DOOR-3")
async def test_headers_reveal_nothing_of_a_tool_that_a_policy_of_one_s_own_hides(tmp_path: Path) -> None:
    @tool(tier="read_only")
    async def headed(region: str) -> str:
        """Want an argument in a header too."""
        return region

    rules = tmp_path / "own.rego"
    rules.write_text('package soma.policy\nimport rego.v1\ndefault allow := false\nallow if input.resource != "headed"\n')
    async with a_site(policy={"file": rules}) as (app, site, key):
        app.register(headed).input_schema["properties"]["region"]["x-mcp-header"] = "Region"
        params = {"name": "headed", "arguments": {"region": "one"}}
        wrong = {"Mcp-Param-Region": "two"}
        hidden = await site.mcp("tools/call", params, headers=wrong, key=key)
        unknown = await site.mcp("tools/call", {**params, "name": "header"}, headers=wrong, key=key)
        assert hidden.body == unknown.body.replace(b"header", b"headed")


@pytest.mark.matrix("a thousand requests")
async def test_a_thousand_requests_at_once_of_two_tenants_get_each_its_own_answer() -> None:
    async with a_site() as (app, site, key):
        other = await key_for(app, BOB)
        await app.tools.set_enabled("mirror", False, tenant="other")
        async with connected(site, key, "2026-07-28") as ada, connected(site, other, "2026-07-28") as bob:

            async def own(value: int) -> None:
                assert (await ada.call_tool("mirror", {"value": {"n": value}})).structured_content == {"n": value}

            async def none() -> None:
                assert "mirror" not in {one.name for one in (await bob.list_tools()).tools}

            async with asyncio.timeout(100):
                for _ in range(5):
                    await asyncio.gather(*(own(value) for value in range(80)), *(none() for _ in range(20)))


# -- what is read out of what clients send

WORDS = st.sampled_from(["action", "content", "approve", "reason"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["accept", "decline"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner),
    max_leaves=8,
)


@given(VALUES)
def test_only_an_accepted_form_with_its_box_ticked_is_a_yes(response: Any) -> None:
    answer = read_answer(response)
    ticked = (
        isinstance(response, dict)
        and response.get("action") == "accept"
        and isinstance(response.get("content"), dict)
        and response["content"].get("approve") is True
    )
    assert (answer is not None and answer.verdict == "approve") is ticked


@given(st.text(max_size=200))
def test_a_cursor_that_we_did_not_make_is_refused(text: str) -> None:
    try:
        name = decode_cursor(text)
    except ProtocolError as error:
        assert error.code == -32602
    else:
        assert encode_cursor(name) == text


@given(st.text(min_size=1, max_size=60).filter(lambda text: text.isascii()))
def test_a_cursor_that_we_made_is_understood(name: str) -> None:
    assert decode_cursor(encode_cursor(name)) == name

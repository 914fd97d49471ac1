"""What strangers, and clients gone wrong, send to the HTTP server: nothing crashes, nothing hangs, nothing leaks."""

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.serving import ACCEPT, META, VERSION, Answer, Site, read_answer, serving
from toolgate import Actor, tool
from toolgate.mcp.server import change_notifications, session_records
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-3", "MCP-4")

CALL = {"name": "add", "arguments": {"a": 1, "b": 2}}


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@asynccontextmanager
async def a_site(**overrides: Any) -> AsyncIterator[Site]:
    """A server that must answer a proper call at the end, whatever came before."""
    async with memory_app(**overrides) as app, serving(app) as site:
        app.register(add)
        await site.with_key(app, Actor("acme"))
        yield site
        answer = await site.mcp("tools/call", CALL)
        assert answer.json["result"]["content"][0]["text"] == "3"


def head(site: Site, *more: str, length: int | None = None, method: str = "POST") -> bytes:
    lines = [
        f"{method} /mcp HTTP/1.1", f"Host: {site.host}", f"Authorization: Bearer {site.key}",
        "Content-Type: application/json", f"Accept: {ACCEPT}", f"MCP-Protocol-Version: {VERSION}",
        "Mcp-Method: tools/call", "Mcp-Name: add", *more,
    ]  # fmt: skip
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /%ff%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET http://evil.example/mcp HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\n",
        b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
@pytest.mark.sample(4)
async def test_what_is_no_request_is_answered_or_hung_up_on(garbage: bytes) -> None:
    async with a_site() as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(garbage)
        writer.write_eof()
        said = await asyncio.wait_for(reader.read(), 30)
        assert said == b"" or said.startswith(b"HTTP/1.1 ")
        assert b"Traceback" not in said
        writer.close()


async def test_headers_without_end_are_cut_off() -> None:
    async with a_site() as site:
        for flood in (b"X-A: " + b"a" * 200_000, b"".join(b"X-%d: a\r\n" % number for number in range(20_000))):
            answer = await site.raw(f"GET /healthz HTTP/1.1\r\nHost: {site.host}\r\n".encode() + flood)
            assert answer.status == 431


async def test_a_url_without_end_is_cut_off() -> None:
    async with a_site() as site:
        answer = await site.raw(b"GET /" + b"a" * 200_000)
        assert answer.status == 431


async def test_headers_that_come_too_slowly_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.serve.connections.HEAD_SECONDS", 0.2)
    async with a_site() as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: ")
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.serve.request_body.BODY_SECONDS", 0.2)
    async with a_site() as site:
        for begun in (b'{"jsonrpc"', b""):
            answer = await site.raw(head(site, length=1_000) + begun)
            assert answer.status == 408


async def test_a_client_that_leaves_in_the_middle_of_its_request_is_forgotten() -> None:
    async with a_site() as site:
        for sent in (head(site, length=1_000), head(site, length=1_000) + b"{", head(site)[:50]):
            _, writer = await asyncio.open_connection("127.0.0.1", site.port)
            writer.write(sent)
            await writer.drain()
            writer.transport.abort()


async def test_fifty_megabytes_are_refused_before_they_are_read() -> None:
    async with a_site() as site:
        big = 50_000_000
        answer = await site.raw(head(site, length=big) + b"x" * 1_000_000)
        assert answer.status == 413
        chunked = head(site, "Transfer-Encoding: chunked") + b"2faf080\r\n" + b"x" * 6_000_000
        assert (await site.raw(chunked)).status == 413


BODIES = (
    b"", b"{", b"[]", b"null", b"1", b'"x"', b"{}", b"\xff\xfe", b"\x00", b"[" * 100_000, b'{"a":' * 100_000, b"NaN",
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}',
    b'{"jsonrpc":"1.0","id":1,"method":"tools/call","params":{}}',
    b'{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{}}',
    b'{"jsonrpc":"2.0","id":1,"method":7,"params":{}}', b'{"jsonrpc":"2.0","id":1,"method":"no/such","params":{}}',
    b'[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}]', b'{"jsonrpc":"2.0","id":1,"result":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/x"}', b'{"jsonrpc":"2.0","id":1e999,"method":"x"}', b"9" * 10_000,
)  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
@pytest.mark.sample(4)
async def test_a_body_that_is_no_request_is_answered_as_the_protocol_says(body: bytes) -> None:
    async with a_site() as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(head(site, "Connection: close", length=len(body)) + body)
        answer = await asyncio.wait_for(read_answer(reader), 30)
        writer.close()
        assert answer.status in (202, 400, 404)
        if answer.status != 202:
            assert answer.json["error"]["code"] in (-32700, -32600, -32601, -32602, -32020)
        assert b"Traceback" not in answer.body


@pytest.mark.parametrize(
    "name",
    ["x" * 65, "x" * 5_000, "", " add", "add\n", "ad\x00d", "../add", "\uff41dd", "\ud800", "tools/call", "__class__"],
)
@pytest.mark.sample(4)
async def test_names_that_no_tool_can_have_are_unknown(name: str) -> None:
    async with a_site() as site:
        header = "" if not name.isascii() or not name.isprintable() else name
        body = {"name": name, "arguments": {}}
        answer = await site.mcp("tools/call", body, headers={"Mcp-Name": header.strip()[:3_000]})
        assert answer.status == 400
        assert answer.json["error"]["code"] in (-32602, -32020, -32700)  # half a pair of surrogates is no text


async def test_replayed_ids_are_answered_each_by_itself() -> None:
    async with a_site() as site:
        answers = await asyncio.gather(*(site.mcp("tools/call", CALL, id="same") for _ in range(20)))
        assert {(answer.status, answer.json["id"], answer.json["result"]["content"][0]["text"]) for answer in answers} == {
            (200, "same", "3")
        }
        assert len({answer.json["result"]["_meta"]["toolgate/call"] for answer in answers}) == 20


async def test_many_connections_that_say_nothing_keep_nobody_out() -> None:
    async with a_site() as site:
        idle = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(300)]
        answer = await asyncio.wait_for(site.mcp("tools/call", CALL), 30)
        assert answer.status == 200
        for _, writer in idle:
            writer.close()


async def test_neither_keys_nor_bodies_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with a_site() as site:
        secret = str(site.key).rpartition("_")[2]
        await site.mcp("tools/call", {"name": "add", "arguments": {"a": "canary-7f3a"}})
        await site("POST", "/mcp", {"Authorization": f"Bearer tg_aaaaaaaaaaaa_{secret}"}, b'{"canary-7f3a"')
        await site("GET", f"/canary-7f3a?key={site.key}")
    assert secret not in caplog.text
    assert "canary-7f3a" not in caplog.text


async def test_one_tenants_session_is_not_anothers() -> None:
    """A session of the older protocol belongs to the key that began it."""
    begin = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip
    listing = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).encode()
    async with a_site() as site:
        other = (await site.http.app.keys.create("other", Actor("other")))[1]
        begun = await _first(site, json.dumps(begin).encode())
        session = {"Mcp-Session-Id": begun.headers["mcp-session-id"], "Accept": ACCEPT, "MCP-Protocol-Version": "2025-11-25"}
        assert (await site("POST", "/mcp", session, listing)).status == 200
        assert (await site("POST", "/mcp", session, listing, key=other)).status == 404
        assert (await site("DELETE", "/mcp", session, key=other)).status == 404
        assert (await site("POST", "/mcp", session, listing)).status == 200


async def _first(site: Site, body: bytes) -> Answer:
    return await site("POST", "/mcp", {"Accept": ACCEPT}, body)


async def test_clients_that_wait_for_news_do_not_keep_it_from_ending() -> None:
    async with memory_app(shutdown_seconds=90) as app:
        async with asyncio.timeout(60):
            async with serving(app) as site:
                await site.with_key(app)
                meta = {
                    "io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {},
                }  # fmt: skip
                params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
                body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}).encode()
                sent = (
                    head(site, length=len(body))
                    .replace(b"tools/call", b"subscriptions/listen")
                    .replace(b"Mcp-Name: add\r\n", b"")
                )
                reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
                writer.write(sent + body)
                first = await asyncio.wait_for(reader.readline(), 30)
                assert first.startswith(b"HTTP/1.1 "), first
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 30)
        writer.close()


# -- one key has no more than its share

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


async def test_sessions_that_one_key_begins_all_at_once_are_no_more_than_it_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_records, "MAX_CREDENTIAL_SESSIONS", 3)
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}).encode()
    async with a_site() as site:
        answers = await asyncio.gather(*(site("POST", "/mcp", {"Accept": ACCEPT}, hello) for _ in range(20)))
        statuses = Counter(answer.status for answer in answers)
        assert statuses[200] == 3 and statuses[429] + statuses[503] == 17
        other = (await site.http.app.keys.create("other", Actor("acme", "analyst", "other")))[1]
        assert (await site("POST", "/mcp", {"Accept": ACCEPT}, hello, key=other)).status == 200


async def test_one_actor_can_t_take_all_places_of_those_who_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_notifications, "MAX_ACTOR_LISTENERS", 3)
    async with a_site() as site:
        other = (await site.http.app.keys.create("other", Actor("acme", "analyst", "other")))[1]
        held = [await _listen(site, site.key) for _ in range(3)]
        assert [told for told, _ in held] == ["notifications/subscriptions/acknowledged"] * 3
        refused, writer = await _listen(site, site.key)
        assert refused == "Too many open subscriptions"
        writer.close()
        told, writer = await _listen(site, other)
        assert told == "notifications/subscriptions/acknowledged"
        writer.close()
        held.pop()[1].close()
        async with asyncio.timeout(30):
            while True:  # until it is seen that one has gone
                told, writer = await _listen(site, site.key)
                writer.close()
                if told != refused:
                    break
                await asyncio.sleep(0.05)
        for _, writer in held:
            writer.close()


async def _listen(site: Site, key: str | None) -> tuple[str, asyncio.StreamWriter]:
    """Ask for news: what is said first, and the connection."""
    params = {"notifications": {"toolsListChanged": True}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    lines = (
        "POST /mcp HTTP/1.1", f"Host: {site.host}", f"Authorization: Bearer {key}", f"Accept: {ACCEPT}",
        "Content-Type: application/json", f"Content-Length: {len(body)}", f"MCP-Protocol-Version: {VERSION}",
        "Mcp-Method: subscriptions/listen", "", "",
    )  # fmt: skip
    writer.write("\r\n".join(lines).encode() + body)
    async with asyncio.timeout(30):
        said = b""
        while not (found := re.search(rb'{"jsonrpc".*}', said)):
            said += await reader.read(65_536)
    message = json.loads(found[0])
    return message["method"] if "method" in message else message["error"]["message"], writer

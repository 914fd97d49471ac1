"""Remote MCP servers that answer badly: each gets a clear error for that one call; others, and the next call, are as ever.

Each case goes both ways: the quick one, and the SDK's session, which is used where a server sets cookies.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.loopback import Asked, Said, Site, site
from tests.mcp_servers import call, engine, standing, until
from tests.remote_servers import MANY, Odd, free_port, odd
from toolgate.errors import CallError
from toolgate.mcp.client.errors import ConnectionLost, ErrorResponse, Unreachable
from toolgate.mcp.client.oauth.login import LoginFailed, login
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.network.tls import tls
from toolgate.settings import OAuthSettings, ServerSettings

pytestmark = pytest.mark.requirement("MCP-1")

MEGABYTE = 1_048_576
Place = tuple[UpstreamServers, Odd, Site]


@pytest.fixture(params=["quick", "session", "old quick", "old session"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """An engine with an odd server, each way that it can be asked."""
    old, cookies = "old" in request.param, "session" in request.param
    async with odd(old=old, cookies=cookies) as (server, at):
        settings = ServerSettings(url=f"{at.url}/mcp", output_bytes=MEGABYTE, headers={"x-key": "{{secret:KEY}}"})
        async with engine(odd=settings) as servers:
            assert await call(servers, "odd", "echo") == "here"
            yield servers, server, at


BAD: dict[str, tuple[type[CallError], str]] = {
    "status_401": (Unreachable, "HTTP 401"),
    "status_403": (Unreachable, "HTTP 403"),
    "status_500": (ErrorResponse, "HTTP 500"),
    "status_502": (ConnectionLost, "HTTP 502"),
    "status_503": (Unreachable, "HTTP 503"),
    "accepted": (ErrorResponse, "202"),
    "garbage": (ErrorResponse, "no JSON-RPC message"),
    "array": (ErrorResponse, "no JSON-RPC message"),
    "bare": (ErrorResponse, ""),
    "html": (ErrorResponse, "text/html"),
    "text": (ErrorResponse, "text/plain"),
    "nothing": (ErrorResponse, "nothing"),
    "other_id": (ErrorResponse, "an answer to something else"),
    "compressed": (CallError, "compressed"),
    "cut": (ConnectionLost, "broke before the response"),
    "cut_stream": (CallError, ""),
    "ended_stream": (CallError, ""),
    "dropped": (ConnectionLost, "broke before the response"),
    "book": (ErrorResponse, "unknown training session 7"),
    "lost_book": (ErrorResponse, "unknown training session 7"),
    "huge": (ErrorResponse, "more than 1048576 bytes"),
    "huge_unsaid": (ErrorResponse, "more than 1048576 bytes"),
    "huge_event": (CallError, "1048576"),
}


@pytest.mark.parametrize("how", BAD)
@pytest.mark.sample(4)
async def test_a_bad_answer_is_an_error_of_that_call_alone(place: Place, how: str) -> None:
    servers, server, _ = place
    kind, words = BAD[how]
    others = [asyncio.create_task(call(servers, "odd", "held")) for _ in range(8)]
    await until(lambda: server.calls.count("held") == 8, "the others are under way")
    with pytest.raises(kind) as raised:
        async with asyncio.timeout(60):
            await call(servers, "odd", how)
    assert words in raised.value.message
    assert len(raised.value.message) < 600
    server.let_go.set()
    assert await asyncio.gather(*others) == ["here"] * 8
    assert await call(servers, "odd", "echo") == "here"
    assert standing(servers, "odd").starts == 1
    assert server.calls.count(how) == 1
    assert server.written < MANY / 5


@pytest.mark.parametrize("how", ["cut_stream", "ended_stream"])
async def test_of_a_stream_that_breaks_nobody_knows_what_was_done(place: Place, how: str) -> None:
    servers, _, _ = place
    with pytest.raises(CallError) as raised:
        await call(servers, "odd", how)
    assert raised.value.code == "OUTCOME_UNKNOWN"


@pytest.mark.matrix("waits for a time limit")
@pytest.mark.parametrize("how", ["drip", "endless"])
async def test_an_answer_without_an_end_ends_with_the_call(place: Place, how: str) -> None:
    servers, server, _ = place
    giving_up = asyncio.create_task(call(servers, "odd", how))
    await until(lambda: server.written > 50, "an answer has begun")
    assert not giving_up.done()
    giving_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await giving_up
    await until(lambda: bool(server.cancelled) if server.old else server.closed.is_set(), "the server is told")
    assert await call(servers, "odd", "echo") == "here"
    assert standing(servers, "odd").starts == 1


async def test_a_redirect_elsewhere_is_not_followed_and_nothing_reaches_there(place: Place) -> None:
    servers, server, _ = place

    async def other(_: Asked) -> Said:
        return Said(200, {"jsonrpc": "2.0", "id": 1, "result": {"content": []}})

    async with site(other) as elsewhere:
        server.elsewhere = f"{elsewhere.url}/mcp"
        with pytest.raises(ErrorResponse, match="not followed"):
            await call(servers, "odd", "elsewhere")
        assert elsewhere.asked == []
    assert await call(servers, "odd", "echo") == "here"


async def test_a_redirect_within_the_same_server_is_followed(place: Place) -> None:
    servers, _, at = place
    assert await call(servers, "odd", "same_origin") == "here"
    assert [asked.path for asked in at.asked][-2:] == ["/mcp", "/moved"] or at.asked[-1].path == "/moved"
    assert all(asked.headers["x-key"] == "sesame" for asked in at.asked if asked.path == "/moved")


async def test_a_server_that_goes_away_and_comes_back_is_used_again(place: Place) -> None:
    servers, _, at = place
    await at.stop()
    with pytest.raises(CallError) as raised:
        async with asyncio.timeout(60):
            await call(servers, "odd", "echo")
    assert raised.value.code in ("CONNECTION_ERROR", "OUTCOME_UNKNOWN")
    await at.start()

    async def back() -> bool:
        try:
            return await call(servers, "odd", "echo") == "here"
        except CallError:
            return False

    async with asyncio.timeout(60):
        while not await back():
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("cookies", [False, True])
@pytest.mark.parametrize("status", [400, 404])
async def test_a_session_that_the_server_forgot_is_begun_anew(cookies: bool, status: int) -> None:
    async with odd(old=True, cookies=cookies) as (server, at), engine(odd=ServerSettings(url=f"{at.url}/mcp")) as servers:
        server.forgotten = status
        assert await call(servers, "odd", "echo") == "here"
        server.sessions.clear()
        assert await call(servers, "odd", "echo") == "here"
        assert server.calls == ["echo", "echo"]
        said = await asyncio.gather(*(call(servers, "odd", "slow") for _ in range(5)))
        assert said == ["here"] * 5


@pytest.mark.parametrize("cookies", [False, True])
async def test_a_farewell_that_is_answered_without_an_end_is_not_listened_to(cookies: bool) -> None:
    async with odd(old=True, cookies=cookies) as (server, at), engine(odd=ServerSettings(url=f"{at.url}/mcp")) as servers:
        assert await call(servers, "odd", "echo") == "here"
        server.farewell = "_endless_fast"
        async with asyncio.timeout(60):
            await servers["odd"].stop()
        assert any(asked.method == "DELETE" for asked in at.asked)
        assert server.written < MANY / 2


async def test_a_login_reads_no_document_without_an_end() -> None:
    server = Odd()

    async def at_login(asked: Asked) -> Said:
        return Said(401) if asked.path == "/mcp" else Said(raw=server._endless_fast)

    async with site(at_login) as at:
        settings = ServerSettings(url=f"{at.url}/mcp", oauth=OAuthSettings(redirect_port=free_port()))
        with pytest.raises(LoginFailed):
            await login("odd", settings, {"": ""}.get, None, lambda _: None, browser=False, wait_seconds=30)
    assert 0 < server.written < MANY / 2


async def test_a_bad_server_does_not_hold_up_another() -> None:
    async with odd() as (_, at), odd() as (_, fine), engine(
        hung=ServerSettings(url=f"{at.url}/mcp"),
        fine=ServerSettings(url=f"{fine.url}/mcp"),
        gone=ServerSettings(url="http://127.0.0.1:9/mcp"),
    ) as servers:  # fmt: skip
        hanging = [asyncio.create_task(call(servers, "hung", "endless")) for _ in range(20)]
        async with asyncio.timeout(30):
            assert await call(servers, "fine", "echo") == "here"
            with pytest.raises(Unreachable, match="cannot be reached"):
                await call(servers, "gone", "echo")
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)


async def test_what_a_server_says_of_a_refusal_is_cut_and_can_be_shown() -> None:
    async def rude(asked: Asked) -> Said:
        error = {"code": -32000, "message": "\x1b[31m" + "no " * 10_000}
        return Said(400, {"jsonrpc": "2.0", "id": asked.json.get("id"), "error": error})

    async with site(rude) as at, engine(rude=ServerSettings(url=at.url)) as servers:
        with pytest.raises(Unreachable) as raised:
            await call(servers, "rude", "echo")
        assert "\x1b" not in raised.value.message
        assert len(raised.value.message) < 1_000


# -- the older transport


class Older:
    """A server of the older transport: answers come on one stream, and some messages it does not take."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self.endpoint = "/messages"

    async def __call__(self, asked: Asked) -> Said:
        if asked.method == "GET":
            return Said(raw=self._stream)
        message = asked.json
        name = message.get("params", {}).get("name")
        if name == "status_502":
            return Said(502)
        if name == "dropped":
            return Said(raw=self._abort)
        results = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "o", "version": "1"}},
            "tools/call": {"content": [{"type": "text", "text": "here"}]},
        }
        result = results.get(message["method"])
        answer = {"result": result} if result else {"error": {"code": -32601, "message": "Method not found"}}
        if "id" in message:
            await self.waiting.put(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode())
        return Said(202, b"Accepted", {"content-type": "text/plain"})

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        writer.write(f"{head}event: endpoint\ndata: {self.endpoint}\n\n".encode())
        while True:
            await writer.drain()
            writer.write(b"event: message\ndata: " + await self.waiting.get() + b"\n\n")

    async def _abort(self, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()


@pytest.mark.parametrize("how", ["status_502", "dropped"])
async def test_over_the_older_transport_too_a_message_that_does_not_get_there_fails_alone(how: str) -> None:
    async with site(Older()) as at, engine(one=ServerSettings(url=f"{at.url}/sse", transport="sse")) as servers:
        assert await call(servers, "one", "echo") == "here"
        with pytest.raises(ConnectionLost):
            async with asyncio.timeout(60):
                await call(servers, "one", how)
        assert await call(servers, "one", "echo") == "here"
        assert standing(servers, "one").starts == 1


async def test_the_older_transport_does_not_send_messages_elsewhere() -> None:
    server = Older()
    async with site(server) as at, site(Older()) as elsewhere:
        server.endpoint = f"{elsewhere.url}/messages"
        async with engine(one=ServerSettings(url=f"{at.url}/sse", transport="sse", start_seconds=1)) as servers:
            with pytest.raises(Unreachable, match="did not open the connection"):
                await call(servers, "one", "echo")
        assert elsewhere.asked == []


@pytest.mark.parametrize(("status", "code"), [(401, "MISSING_AUTH"), (502, "CONNECTION_ERROR"), (200, "CONNECTION_ERROR")])
async def test_an_older_server_that_does_not_let_us_listen_says_why(status: int, code: str) -> None:
    async def closed(_: Asked) -> Said:
        return Said(status, "<h1>no</h1>")

    async with site(closed) as at, engine(one=ServerSettings(url=at.url, transport="sse", start_seconds=30)) as servers:
        with pytest.raises(Unreachable) as raised:
            await call(servers, "one", "echo")
    assert raised.value.code == code


# -- TLS


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's context with a certificate that nobody knows yet, and that certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, both = folder / "public.pem", folder / "both.pem"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    both.write_bytes(private + public.read_bytes())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(both)
    return context, public


async def test_a_certificate_that_nobody_vouches_for_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, public = certificate(tmp_path)
    server = Odd()
    async with site(server, context) as at:
        async with engine(odd=ServerSettings(url=f"{at.url}/mcp", headers={"x-key": "{{secret:KEY}}"})) as servers:
            with pytest.raises(Unreachable, match=r"(?i)certificate"):
                await call(servers, "odd", "echo")
        assert at.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(public))
        tls.cache_clear()
        try:
            async with engine(odd=ServerSettings(url=f"{at.url}/mcp")) as servers:
                assert await call(servers, "odd", "echo") == "here"
        finally:
            tls.cache_clear()

"""The HTTP client of the built-in tools: redirects, credentials, limits, certificates, and what goes wrong."""

import asyncio
import gzip
import ssl
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpcore2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.certificates import trusted_certificate
from tests.loopback import Asked, Said, Site, site
from toolgate import extras
from toolgate.errors import Denied, Failed, InvalidInput, NotReached, TimedOut, ToolError
from toolgate.network.http_client import HttpClient
from toolgate.network.http_response import HttpResponse
from toolgate.network.tls import tls
from toolgate.network.urls import parse_url

pytestmark = [pytest.mark.requirement("BUILTIN-4"), pytest.mark.requirement("BUILTIN-3")]


def client_of(*sites: Site) -> HttpClient:
    return HttpClient([f"127.0.0.1:{one.port}" for one in sites])


async def echo(asked: Asked) -> Said:
    return Said(200, {"method": asked.method, "path": asked.path, "query": asked.query, "body": asked.body.decode()})


async def test_a_request_is_sent_as_it_is_said() -> None:
    async with site(echo) as there:
        client = client_of(there)
        response = await client.request(
            "POST", f"{there.url}/a/b c?x=1".replace(" ", "%20"), query={"q": "ü &", "n": [1, 2]}, json={"k": "v"},
            headers={"Authorization": "Bearer t", "X-Trace": "7"},
        )  # fmt: skip
        assert response.json() == {
            "method": "POST", "path": "/a/b%20c", "query": {"x": "1", "q": "ü &", "n": "2"}, "body": '{"k":"v"}',
        }  # fmt: skip
        asked = there.asked[0]
        assert asked.headers["host"] == f"127.0.0.1:{there.port}"
        assert (asked.headers["authorization"], asked.headers["x-trace"]) == ("Bearer t", "7")
        assert (asked.headers["content-type"], asked.headers["content-length"]) == ("application/json", "9")
        await client.request("POST", there.url, form={"a": "1 2"})
        assert there.asked[1].form == {"a": "1 2"}
        assert there.asked[1].headers["content-type"] == "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "other"}, {"Transfer-Encoding": "chunked"}, {"content-length": "1"}, {"Proxy-Authorization": "x"},
        {"X": "a\r\nHost: other"}, {"X\r\nY": "1"}, {"": "1"}, {"X": "\x00"}, {"X": "snow ☃"}, {"a": "1", "A": "2"},
        {f"x{number}": "1" for number in range(101)}, {"X": "y" * 40_000},
    ],
)  # fmt: skip
async def test_headers_that_would_change_the_message_are_refused(headers: dict[str, str]) -> None:
    async with site(echo) as there:
        with pytest.raises(InvalidInput):
            await client_of(there).request("GET", there.url, headers=headers)
        assert there.connections == 0


# -- redirects


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [(301, "POST", "GET"), (302, "POST", "GET"), (303, "PUT", "GET"), (307, "POST", "POST"), (308, "PUT", "PUT"),
     (303, "HEAD", "HEAD"), (302, "GET", "GET"), (301, "DELETE", "DELETE")],
)  # fmt: skip
async def test_a_redirect_keeps_or_changes_the_method(status: int, method: str, then: str) -> None:
    async def lead(asked: Asked) -> Said:
        return Said(status, b"x" * 100, {"location": "/end#part"}) if asked.path == "/" else Said(200)

    async with site(lead) as there:
        body = {"content": b"data"} if method in ("POST", "PUT") else {}
        response = await client_of(there).request(
            method, there.url, headers={"authorization": "Bearer t", "content-type": "text/x"}, **body  # type: ignore[arg-type]
        )  # fmt: skip
        assert (response.status, response.url) == (200, f"{there.url}/end")
        last = there.asked[-1]
        assert (last.method, last.headers["authorization"]) == (then, "Bearer t")
        assert last.body == (b"data" if then in ("POST", "PUT") else b"")


async def test_credentials_are_not_sent_on_to_another_host() -> None:
    async with site(echo) as other:

        async def lead(_: Asked) -> Said:
            return Said(302, b"", {"location": f"{other.url}/there"})

        async with site(lead) as there:
            secrets = {"Authorization": "Bearer t", "Cookie": "c=1", "X-Api-Key": "k", "Accept": "text/x"}
            await client_of(there, other).request("GET", there.url, headers=secrets)
            headers = other.asked[0].headers
            assert headers["accept"] == "text/x"
            assert not {"authorization", "cookie", "x-api-key", "referer"} & set(headers)


@pytest.mark.parametrize(("status", "method"), [(307, "POST"), (308, "PUT"), (302, "DELETE"), (301, "PATCH")])
async def test_nothing_that_changes_data_is_sent_on_to_another_host(status: int, method: str) -> None:
    async with site(echo) as other:

        async def lead(_: Asked) -> Said:
            return Said(status, b"", {"location": other.url})

        async with site(lead) as there:
            with pytest.raises(Denied, match="redirect"):
                await client_of(there, other).request(method, there.url, content=b"secret")
        assert other.connections == 0


async def test_redirects_end() -> None:
    async def lead(asked: Asked) -> Said:
        return Said(302, b"", {"location": f"/{len(asked.path)}x"})

    async with site(lead) as there:
        with pytest.raises(ToolError, match="more than 5 times"):
            await client_of(there).request("GET", there.url)
        assert len(there.asked) == 6
        response = await client_of(there).request("GET", there.url, redirects=0)
        assert (response.status, response.headers["location"]) == (302, "/1x")


# -- certificates


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ssl.SSLContext]:
    context = trusted_certificate(["api.example.com"], tmp_path, monkeypatch)
    tls.cache_clear()
    yield context
    tls.cache_clear()


def knowing(site: Site) -> HttpClient:
    async def resolve(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    return HttpClient([f"{name}.example.com:{site.port}" for name in ("api", "other")], resolve=resolve)


async def test_the_certificate_must_be_of_the_name(certified: ssl.SSLContext) -> None:
    async with site(echo, certified) as there:
        response = await knowing(there).request("GET", f"https://api.example.com:{there.port}/x")
        assert response.json()["path"] == "/x"
        with pytest.raises(NotReached, match="certificate") as failure:
            await knowing(there).request("GET", f"https://other.example.com:{there.port}/")
        assert failure.value.code == "CONNECTION_ERROR"
        assert len(there.asked) == 1


async def test_an_unknown_certificate_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = trusted_certificate(["api.example.com"], tmp_path, monkeypatch)
    monkeypatch.delenv("SSL_CERT_FILE")
    tls.cache_clear()
    async with site(echo, context) as there:
        with pytest.raises(NotReached, match="certificate"):
            await knowing(there).request("GET", f"https://api.example.com:{there.port}/")


async def test_no_redirect_leads_from_https_to_http(certified: ssl.SSLContext) -> None:
    async def lead(_: Asked) -> Said:
        return Said(302, b"", {"location": f"http://api.example.com:{plain.port}/"})

    async with site(echo) as plain, site(lead, certified) as there:
        client = HttpClient([f"127.0.0.1:{there.port}", f"api.example.com:{plain.port}"])
        with pytest.raises(Denied, match="from https to http"):
            await client.request("GET", there.url)
        assert plain.connections == 0


# -- limits


@pytest.mark.parametrize("kind", ["plain", "gzip", "deflate", "bare"])
async def test_a_body_is_bounded_after_decompression_too(kind: str) -> None:
    bare = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    data = b"0" * 2_000_000
    bodies = {
        "plain": (data, ""), "gzip": (gzip.compress(data), "gzip"), "deflate": (zlib.compress(data), "deflate"),
        "bare": (bare.compress(data) + bare.flush(), "deflate"),
    }  # fmt: skip

    async def give(_: Asked) -> Said:
        body, encoding = bodies[kind]
        return Said(200, body, {"content-encoding": encoding})

    async with site(give) as there:
        client = client_of(there)
        assert (await client.request("GET", there.url, max_bytes=2_000_000)).body == data
        with pytest.raises(ToolError, match="longer than 1,999,999 bytes"):
            await client.request("GET", there.url, max_bytes=1_999_999)
        cut = await client.request("GET", there.url, max_bytes=1_000, cut=True)
        assert (cut.body, cut.truncated) == (data[:1_000], True)


@pytest.mark.parametrize(
    ("body", "encoding"),
    [(b"not gzip", "gzip"), (gzip.compress(b"x" * 1_000)[:-9], "gzip"), (b"\xff", "br"), (b"x", "zstd")],
    ids=["not at all", "cut", "another way", "unknown"],
)
async def test_a_body_that_is_not_compressed_as_it_says_is_an_error(body: bytes, encoding: str) -> None:
    async def give(_: Asked) -> Said:
        return Said(200, body, {"content-encoding": encoding})

    async with site(give) as there:
        with pytest.raises(ToolError, match="compressed"):
            await client_of(there).request("GET", there.url)


async def test_the_whole_is_bounded_in_time_however_slowly_it_drips() -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def slow(_: Asked) -> Said:
        return Said(raw=drip)

    async with site(slow) as there:
        with pytest.raises(TimedOut, match=r"within 0\.3 s") as failure:
            await client_of(there).request("GET", there.url, timeout=0.3)
        assert failure.value.retryable
        with pytest.raises(TimedOut) as failure:
            await client_of(there).request("POST", there.url, timeout=0.3)
        assert not failure.value.retryable


async def test_a_name_server_that_does_not_answer_is_not_waited_for() -> None:
    hang = asyncio.Event()

    async def resolve(_host: str, _port: int) -> list[str]:
        await hang.wait()
        return ["93.184.216.34"]

    client = HttpClient(resolve=resolve)
    with pytest.raises(TimedOut):
        await client.request("GET", "https://slow.example.com/", timeout=0.1)
    await client.close()


async def test_slow_names_of_one_tenant_do_not_make_another_wait() -> None:
    hang = asyncio.Event()

    async def resolve(host: str, _port: int) -> list[str]:
        if host.startswith("slow"):
            await hang.wait()
        return ["127.0.0.1"]

    async with site(echo) as there:
        names = [f"slow{number}.example.com" for number in range(40)]
        client = HttpClient([f"{name}:{there.port}" for name in (*names, "quick.example.com")], resolve=resolve)
        waiting = [
            asyncio.ensure_future(client.request("GET", f"http://{name}:{there.port}/", timeout=20, tenant="hostile"))
            for name in names
        ]
        await asyncio.sleep(0)
        quick = f"http://quick.example.com:{there.port}/"
        assert (await client.request("GET", quick, timeout=20, tenant="acme")).status == 200
        with pytest.raises(TimedOut):
            await client.request("GET", quick, timeout=0.1, tenant="hostile")
        hang.set()
        assert {response.status for response in await asyncio.gather(*waiting)} == {200}
        assert (await client.request("GET", quick, timeout=20, tenant="hostile")).status == 200


# -- what goes wrong


async def test_a_host_that_is_not_there_was_not_reached() -> None:
    async with site(echo) as there:
        client, url = client_of(there), there.url
    with pytest.raises(NotReached) as failure:
        await client.request("POST", url)
    assert (failure.value.code, failure.value.charged) == ("CONNECTION_ERROR", False)

    async def resolve(_host: str, _port: int) -> list[str]:
        raise OSError("no such name")

    with pytest.raises(NotReached, match="cannot be resolved"):
        await HttpClient(resolve=resolve).request("GET", "https://api.example.com")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "it was closed"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "what it sends is not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "it was closed"),
    ],
)
async def test_a_connection_that_breaks_is_said_to_be_broken(answer: bytes, why: str) -> None:
    async def give(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    async def handler(_: Asked) -> Said:
        return Said(raw=give)

    async with site(handler) as there:
        for method, again in (("GET", True), ("POST", False)):
            with pytest.raises(Failed, match=f"broke before the answer was complete: {why}") as failure:
                await client_of(there).request(method, there.url)
            assert (failure.value.code, failure.value.retryable) == ("CONNECTION_ERROR", again)
            assert not isinstance(failure.value, NotReached)


async def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    original = httpcore2.AnyIOBackend.connect_tcp

    async def connect(self: Any, host: str, port: int, *rest: Any, **named: Any) -> Any:
        tried.append(host)
        if len(tried) == 1:
            raise httpcore2.ConnectError("no route")
        return await original(self, "127.0.0.1", port, *rest, **named)

    async def resolve(_host: str, _port: int) -> list[str]:
        return ["2606:2800:220:1::1", "93.184.216.34"]

    async with site(echo) as there:
        monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", connect)
        client = HttpClient(ports=[there.port], resolve=resolve)
        assert (await client.request("GET", f"http://api.example.com:{there.port}/")).status == 200
    assert tried == ["2606:2800:220:1::1", "93.184.216.34"]


async def test_without_the_extra_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    with pytest.raises(ToolError, match=r"toolgate\[http\]") as failure:
        await HttpClient().request("GET", "https://api.example.com/")
    assert not failure.value.charged


@pytest.mark.parametrize("method", ["get", "CONNECT", "TRACE", "GET / HTTP/1.1\r\nx: y"])
async def test_other_methods_are_refused(method: str) -> None:
    with pytest.raises(InvalidInput):
        await HttpClient().request(method, "https://api.example.com/")


# -- reading


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("grüße".encode(), "text/plain", "grüße"), ("grüße".encode("latin-1"), "text/html; charset=ISO-8859-1", "grüße"),
        (b"\xef\xbb\xbfx", "text/plain", "x"), (b"x\xff", "text/plain; charset=idna", "x\ufffd"),
        ("日本".encode("shift_jis"), 'text/html; charset="Shift_JIS"', "日本"), (b"x", "text/plain; charset=zlib", "x"),
    ],
)  # fmt: skip
def test_text_is_read_in_the_character_set_that_is_said(body: bytes, kind: str, text: str) -> None:
    assert HttpResponse(200, {"content-type": kind}, body, "").text() == text


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nan", b"[" * 100_000, b"[" * 300 + b"]" * 300, b"[" + b"1," * 300_001 + b"1]"]
)
def test_what_is_no_json_or_too_much_of_it_is_an_error(body: bytes) -> None:
    with pytest.raises(ToolError):
        HttpResponse(200, {}, body, "").json()


@given(st.text(max_size=60), st.sampled_from(["http://", "https://", "HTTP://", "", "//"]))
def test_a_url_is_read_into_what_reads_the_same_again(rest: str, scheme: str) -> None:
    try:
        found = parse_url(scheme + rest)
    except (Denied, InvalidInput):
        return
    assert parse_url(str(found)) == found
    assert str(found).isascii()
    assert found.host
    assert 0 < found.port < 65_536


# -- streams


async def test_a_stream_is_given_while_it_comes_and_let_go_of_when_nobody_reads_it_any_more() -> None:
    go_on = asyncio.Event()

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nfirst")
        await writer.drain()
        await go_on.wait()
        while True:  # until nobody takes it
            writer.write(b"second")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def handler(_: Asked) -> Said:
        return Said(raw=drip)

    async with site(handler) as there:
        async with client_of(there).stream("POST", there.url, json={"k": "v"}) as stream:
            assert stream.status == 200
            assert await anext(stream) == b"first"
            go_on.set()
            assert (await anext(stream)).startswith(b"second")
        async with asyncio.timeout(10):
            while there.open:
                await asyncio.sleep(0.01)
        assert there.asked[0].json == {"k": "v"}
        assert there.asked[0].headers["accept-encoding"] == "identity"


async def test_a_stream_has_limits_on_time_silence_and_size() -> None:
    async def slow(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(1_000):
            writer.write(b"x" * 100)
            await writer.drain()
            await asyncio.sleep(0.05)

    async def handler(_: Asked) -> Said:
        return Said(raw=slow)

    async with site(handler) as there:
        client = client_of(there)
        for limits, error, words in (
            ({"timeout": 0.2}, TimedOut, "within 0.2 s"),
            ({"idle": 0.02}, TimedOut, "sent nothing for 0.02 s"),
            ({"max_bytes": 250}, ToolError, "longer than 250 bytes"),
        ):
            with pytest.raises(error, match=words):
                async with client.stream("GET", there.url, **limits) as stream:
                    async for _part in stream:
                        pass


async def test_a_stream_is_judged_like_every_request_and_follows_no_redirect() -> None:
    async def handler(_: Asked) -> Said:
        return Said(307, b"moved", {"location": "https://example.com/"})

    async with site(handler) as there:
        with pytest.raises(Denied):
            async with HttpClient().stream("POST", there.url):
                pass
        assert there.connections == 0
        async with client_of(there).stream("POST", there.url) as stream:
            assert (stream.status, (await stream.read()).body) == (307, b"moved")
        with pytest.raises(InvalidInput):
            async with client_of(there).stream("BREW", there.url):
                pass
    with pytest.raises(NotReached):
        async with HttpClient().stream("POST", there.url, trusted=True):
            pass

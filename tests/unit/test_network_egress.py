"""Which hosts a server may reach, and the proxy that lets it."""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import until
from toolgate.network import egress_proxy
from toolgate.network.addresses import canonical, is_public
from toolgate.network.allowed_hosts import MAX_HOSTS, AllowedHosts, ForwardedPort, HostRule, parse_host_rule
from toolgate.network.egress_proxy import EgressProxy, ProxyRefusal, read_head, split
from toolgate.sandbox.jails import child_descriptors

pytestmark = pytest.mark.requirement("MCP-3")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("api.example.com", HostRule("api.example.com", None)),
        (" API.Example.com. ", HostRule("api.example.com", None)),
        ("*.example.com", HostRule("example.com", None, True)),
        ("*.example.com:8443", HostRule("example.com", 8443, True)),
        ("db.example.com:5432", HostRule("db.example.com", 5432)),
        ("localhost:5432", HostRule("localhost", 5432)),
        ("127.0.0.1:5432", HostRule("127.0.0.1", 5432)),
        ("[::1]:5432", HostRule("::1", 5432)),
        ("bücher.example", HostRule("xn--bcher-kva.example", None)),
    ],
)
def test_hosts_are_read(text: str, rule: HostRule) -> None:
    assert parse_host_rule(text) == rule


@pytest.mark.parametrize(
    "text",
    ["", "*", "*.", "*.com", "*.*.example.com", "a*.example.com", "https://example.com", "example.com/x", "example.com:0",
     "example.com:70000", "example.com:x", "127.0.0.1", "::1", "[::1]", "*.127.0.0.1:80", "127.1:80", "0x7f.0.0.1:80",
     "2130706433:80",     "a b.example", "-a.example", "a..example", "user@example.com", "x" * 300],
)  # fmt: skip
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"host|address|port"):
        parse_host_rule(text)


def test_only_what_is_named_may_be_reached() -> None:
    domains = AllowedHosts(("api.example.com", "*.wild.example", "db.example.com:5432", "127.0.0.1:9000"))
    assert domains.leave("api.example.com", 443) == domains.leave("API.example.com.", 80) == "public"
    assert domains.leave("a.b.wild.example", 443) == "public"
    assert domains.leave("db.example.com", 5432) == domains.leave("127.0.0.1", 9000) == "any"
    for host, port in (
        ("api.example.com", 22), ("example.com", 443), ("xapi.example.com", 443), ("api.example.com.evil.test", 443),
        ("wild.example", 443), ("notwild.example", 443), ("db.example.com", 443), ("127.0.0.1", 443), ("127.0.0.2", 9000),
        ("127.1", 9000), ("2130706433", 9000), ("localhost", 9000), ("", 443), ("a\0.wild.example", 443),
    ):  # fmt: skip
        assert domains.leave(host, port) is None, (host, port)


@given(st.text(max_size=20), st.integers(1, 65535))
def test_nothing_but_the_host_itself_matches_it(host: str, port: int) -> None:
    allowed = AllowedHosts(("api.example.com",)).leave(host, port)
    assert (allowed is not None) == (canonical(host) == "api.example.com" and port in (80, 443))


PRIVATE = (
    "127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
    "255.255.255.255", "224.0.0.1", "240.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::1",
    "::127.0.0.1", "2001:0:1::", "nonsense", "", "168.63.129.16", "192.0.0.192", "192.88.99.1", "fec0::1", "3fff::1",
    "64:ff9b:1::808:808", "::ffff:0:808:808", "2001:db8::1", "4000::1", "198.18.0.1", "100.100.100.200", "fd00:ec2::254",
)  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_of_ones_own_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_addresses_of_everybody_are(address: str) -> None:
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_an_address_is_what_it_wraps(inner: ipaddress.IPv4Address) -> None:
    number = int(inner)
    for outer in (
        f"::ffff:{inner}",
        str(ipaddress.IPv6Address(0x64FF9B << 96 | number)),
        f"2002:{number >> 16:x}:{number & 0xFFFF:x}::",
    ):
        assert is_public(outer) == is_public(str(inner)), outer


def test_each_host_has_an_address_of_its_own() -> None:
    layout = AllowedHosts(
        ("a.example", "b.example", "a.example:8443", "*.c.example", "localhost:3128", "10.0.0.1:80")
    ).layout()
    assert layout.proxy_port == 3129, "the usual one is taken"
    assert set(layout.names) == {"localhost", "a.example", "b.example"}
    assert len(set(layout.names.values())) == 3
    assert all(ipaddress.ip_address(address).is_loopback for address in layout.names.values())
    there = {(place.host, place.port) for place in layout.places}
    assert there == {
        (None, 3129), ("a.example", 443), ("a.example", 80), ("a.example", 8443), ("b.example", 443), ("b.example", 80),
        ("localhost", 3128),
    }  # fmt: skip
    assert len({(place.address, place.port) for place in layout.places}) == len(layout.places)


# -- what a proxy is told


@given(st.binary(max_size=80))
def test_any_head_is_read_or_refused(head: bytes) -> None:
    try:
        method, host, port, _ = read_head(head + b"\r\n\r\n")
    except ProxyRefusal:
        return
    assert method.isalpha() and host and 0 < port < 65_536


def test_a_plain_request_is_rewritten_for_the_host_that_was_checked() -> None:
    head = (
        b"GET http://api.example.com/a?b HTTP/1.1\r\nHost: elsewhere.test\r\nProxy-Authorization: x\r\nX-Own: 1\r\n"
        b"Connection: keep-alive\r\nAccept: */*\r\n\r\n"
    )
    method, host, port, onward = read_head(head)
    assert (method, host, port) == ("GET", "api.example.com", 80)
    assert onward.split(b"\r\n") == [
        b"GET /a?b HTTP/1.1", b"Host: api.example.com", b"X-Own: 1", b"Accept: */*", b"Connection: close", b"", b"",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "head",
    [b"GET / HTTP/1.1", b"GET https://a/ HTTP/1.1", b"CONNECT a HTTP/1.1", b"CONNECT a:443", b"GET http://u@a/ HTTP/1.1",
     b"GET http://a/ HTTP/1.1\r\nX: 1\nHost: b", b"GET http:///x HTTP/1.1", b"\x16\x03\x01", b"CONNECT a:1:2x HTTP/1.1"],
)  # fmt: skip
def test_what_is_no_request_to_a_proxy_is_refused(head: bytes) -> None:
    with pytest.raises(ProxyRefusal):
        read_head(head + b"\r\n\r\n")


def test_ports_and_brackets() -> None:
    assert split("a:1", 80) == ("a", 1)
    assert split("a", 80) == ("a", 80)
    assert split("[::1]:5", 80) == ("::1", 5)
    assert split("[::1]", 80) == ("::1", 80)


# -- looked up once


class Names:
    """A server of names that answers differently each time it is asked."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers, self.asked = list(answers), 0

    async def __call__(self, host: str, port: int) -> list[str]:  # noqa: ARG002 - as all that look names up
        self.asked += 1
        return self.answers[min(self.asked, len(self.answers)) - 1]


async def test_a_name_that_turns_round_is_connected_to_where_it_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: public when it is checked, this machine when it is used. It is looked up only once."""
    monkeypatch.setattr(egress_proxy, "PROXY_CONNECT_SECONDS", 0.3)
    reached: list[object] = []

    def reach(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(writer)
        writer.close()

    here = await asyncio.start_server(reach, "127.0.0.1", 0)
    port = here.sockets[0].getsockname()[1]
    names = Names(["93.184.216.34"], ["127.0.0.1"])
    turning = EgressProxy("tested", AllowedHosts((f"*.example.com:{port}",)), resolve=names)
    async with here:
        with pytest.raises(ProxyRefusal) as refused:
            await turning.connect("a.example.com", port)
        assert refused.value.status.startswith("502") and names.asked == 1
        with pytest.raises(ProxyRefusal, match="private address"):
            await turning.connect("a.example.com", port)
        named = EgressProxy("tested", AllowedHosts((f"a.example.com:{port}",)), resolve=Names(["127.0.0.1"]))
        _, writer = await named.connect("a.example.com", port)
        writer.close()
        async with asyncio.timeout(30):
            while not reached:
                await asyncio.sleep(0.01)
    assert len(reached) == 1, "only the one that was named with its port"


async def test_a_public_address_of_this_machine_is_refused_unless_its_port_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What listens here trusts its own machine, by whichever of its addresses it is reached."""
    monkeypatch.setattr(egress_proxy, "is_public", lambda _address: True)
    wide = EgressProxy("tested", AllowedHosts(("a.example.com",)), resolve=Names(["127.0.0.1"]))
    with pytest.raises(ProxyRefusal, match="private address"):
        await wide.connect("a.example.com", 443)


async def test_names_that_take_long_hold_up_neither_other_servers_nor_the_threads_that_all_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The resolver of this machine is stuck on the names of one server. Its threads can't be stopped, so they count."""
    monkeypatch.setattr(egress_proxy, "PROXY_CONNECT_SECONDS", 0.3)
    let_go, asked = threading.Event(), []
    usual = socket.getaddrinfo

    def stuck(host: str, *args: Any, **more: Any) -> Any:
        if not str(host).endswith(".example.com"):
            return usual(host, *args, **more)
        asked.append(host)
        let_go.wait(30)
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", stuck)
    here = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = here.sockets[0].getsockname()[1]
    slow, other = (
        EgressProxy("slow", AllowedHosts(("*.example.com",))),
        EgressProxy("other", AllowedHosts((f"localhost:{port}",))),
    )
    try:
        for _ in range(2):  # the second time nobody waits for the first any more
            ends = await asyncio.gather(
                *(slow.connect(f"n{number}.example.com", 443) for number in range(60)), return_exceptions=True
            )
            assert {type(end) for end in ends} == {ProxyRefusal}
            await until(lambda: len(asked) == egress_proxy.MAX_SERVER_LOOKUPS, "as many as may are looked up")
        monkeypatch.setattr(egress_proxy, "PROXY_CONNECT_SECONDS", 30.0)
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(int) == 0
            _, writer = await other.connect("localhost", port)
            writer.close()
        let_go.set()
        async with asyncio.timeout(30):
            while slow._resolver.under_way:
                await asyncio.sleep(0.01)
        with pytest.raises(ProxyRefusal, match="cannot be resolved"):
            await slow.connect("later.example.com", 443)
        assert asked[-1] == "later.example.com"
    finally:
        let_go.set()
        here.close()
        await slow.close()
        await other.close()


@asynccontextmanager
async def serving(domains: AllowedHosts) -> AsyncIterator[tuple[EgressProxy, int]]:
    listener = socket.create_server(("127.0.0.1", 0))
    opened = EgressProxy("tested", domains, resolve=Names(["127.0.0.1"]))
    await opened.serve([listener], [ForwardedPort("127.0.0.1", 0, None)])
    try:
        yield opened, listener.getsockname()[1]
    finally:
        await opened.close()


async def test_more_connections_than_one_server_may_have_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress_proxy, "MAX_PROXY_CONNECTIONS", 3)
    async with serving(AllowedHosts(())) as (_, port):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        ends = [asyncio.ensure_future(_ended(reader)) for reader, _ in held]
        await until(lambda: sum(end.done() for end in ends) >= 2, "two are cut")
        await asyncio.sleep(0.2)
        assert sum(end.done() for end in ends) == 2
        for _, writer in held:
            writer.close()
        await asyncio.gather(*ends)


async def _ended(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        assert await reader.read(1) == b""


async def test_a_connection_carries_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress_proxy, "MAX_CONNECTION_BYTES", 200_000)

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _number in range(100):
            writer.write(b"x" * 65_536)
            await writer.drain()

    there = await asyncio.start_server(flood, "127.0.0.1", 0)
    target = there.sockets[0].getsockname()[1]
    async with there, serving(AllowedHosts((f"a.example:{target}",))) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"CONNECT a.example:{target} HTTP/1.1\r\n\r\n".encode())
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        got = 0
        try:
            async with asyncio.timeout(30):
                while piece := await reader.read(65_536):
                    got += len(piece)
        except ConnectionError:
            pass
        assert got < 400_000
        writer.close()


async def test_a_server_that_asks_for_a_thousand_hosts_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    opened = EgressProxy("tested", AllowedHosts(()), resolve=Names([]))
    for number in range(1000):
        for _ in range(2):
            with pytest.raises(ProxyRefusal):
                await opened.connect(f"host-{number}\n\x1b[31m.example", 443)
    assert opened.refusals == 2000
    assert len(caplog.records) == 100
    assert "\n" not in caplog.records[0].getMessage() and "\x1b" not in caplog.records[0].getMessage()


def test_as_many_hosts_as_may_be_named_can_be_handed_out() -> None:
    """Each has two places where it listens, and the proxy one; a jail that could not give them all would never start."""
    layout = AllowedHosts(tuple(f"h{number}.example" for number in range(MAX_HOSTS))).layout()
    assert len(layout.places) == 2 * MAX_HOSTS + 1 <= child_descriptors.MAX_SOCKETS

"""Request forgery: URLs that lead inside are refused before anything connects, however they are written.

The resolver is replaced where Python asks the system (`socket.getaddrinfo`), and connections are counted twice: by a
listener on loopback that every form would reach, and by the interpreter's own audit events.
"""

import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpcore2
import pytest

from tests.loopback import Asked, Said, Site, site
from toolgate import App
from toolgate.errors import Denied, InvalidInput, ToolError, ToolgateError
from toolgate.network.http_client import HttpClient

pytestmark = [pytest.mark.requirement("BUILTIN-4"), pytest.mark.requirement("BUILTIN-3")]

PUBLIC = "93.184.216.34"
NAMES = {
    "example.com": [PUBLIC],
    "mixed.example.com": [PUBLIC, "10.0.0.1"],
    "mixed6.example.com": ["2606:2800:220:1::1", "::1"],
    "loopback.example.com": ["127.0.0.1"],
    "127.0.0.1.nip.io": ["127.0.0.1"],
    "mapped.example.com": ["::ffff:127.0.0.1"],
    "zone.example.com": ["fe80::1%lo"],
    "kubernetes.default.svc.cluster.test": ["10.96.0.1"],
    "metadata.example.com": ["169.254.169.254"],
    "wiki.example.com": ["127.0.0.1"],
}
"""What the resolver answers; any other name is 127.0.0.1, so that a name that gets through does harm."""

ADDRESSES = [
    "127.0.0.1", "127.255.255.254", "2130706433", "017700000001", "0177.0.0.1", "0x7f000001", "0x7f.0.0.1", "0x7F.1",
    "127.1", "127.0.1", "127.0.0.1.", "0", "0.0.0.0", "0x0", "00000000177.0.0.1", "127.0.0.01",
    "[::1]", "[0:0:0:0:0:0:0:1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[::ffff:0:7f00:1]",
    "[2002:7f00:1::]", "[2002:a9fe:a9fe::]", "[64:ff9b::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::7f00:1]",
    "[2001:0:4136:e378:8000:63bf:80ff:fffe]", "[fe80::1]", "[fe80::1%25lo]", "[fe80::1%lo]", "[::1%lo]", "[fc00::1]",
    "[fec0::1]", "[ff02::1]", "[fd00:ec2::254]", "[127.0.0.1]", "[::1", "::1",
    "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "198.18.0.1", "192.0.0.192", "224.0.0.1", "239.255.255.250",
    "240.0.0.1", "255.255.255.255", "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16",
]  # fmt: skip
HOSTS = [
    "localhost", "localhost.", "LocalHost", "a.localhost", "a.b.localhost.", "ip6-localhost", "metadata",
    "metadata.google.internal", "metadata.google.internal.", "printer.local", "router.lan", "db.corp",
    "host.docker.internal",
    "loopback.example.com", "127.0.0.1.nip.io", "mixed.example.com", "mixed6.example.com", "mapped.example.com",
    "zone.example.com", "kubernetes.default.svc.cluster.test", "metadata.example.com",
    "\uff11\uff12\uff17.\uff10.\uff10.\uff11", "127。0。0。1", "①②⑦.⓪.⓪.①", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "localhost\u3002",
    "\uff4c\uff4f\uff43\uff41\uff4c\uff48\uff4f\uff53\uff54",
    "%31%32%37.0.0.1", "127.0.0.1%00.example.com", "127.0.0.1%2eexample.com", "example.com%40127.0.0.1",
    "a..example.com", "-a.example.com",
]  # fmt: skip
URLS = [
    "http://example.com@127.0.0.1:{port}/", "http://127.0.0.1:{port}@example.com/", "http://example.com:80@127.0.0.1:{port}/",
    "http://:@127.0.0.1:{port}/", "http://user:password@example.com/", "http://example.com\\@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@example.com/", "http:\\\\127.0.0.1:{port}\\", "http:/\\127.0.0.1:{port}/",
    "http://127.0.\t0.1:{port}/", "http://127.0.0.1\n:{port}/", " http://127.0.0.1:{port}/", "http://127.0.0.1 :{port}/",
    "http://127.0.0.1\x00.example.com:{port}/", "http://127.0.0.1:{port}#@example.com/",
    "http://127.0.0.1:{port}?@example.com/",
    "http:///127.0.0.1:{port}/", "http:127.0.0.1:{port}", "//127.0.0.1:{port}/", "127.0.0.1:{port}", "http://", "http:///",
    "",
    "http://example.com:0/", "http://example.com:65536/", "http://example.com:-1/", "http://example.com:٨٠/",
    "http://127.0.0.1:{port}:80/", "http://example.com:22/", "http://example.com:{port}@/",
    "file:///etc/passwd", "file://localhost/etc/passwd", "gopher://127.0.0.1:{port}/_x", "ftp://127.0.0.1:{port}/",
    "dict://127.0.0.1:{port}/", "ldap://127.0.0.1:{port}/", "data:text/plain,hello", "javascript:alert(1)",
    "unix:/var/run/docker.sock", "http+unix://%2Fvar%2Frun%2Fdocker.sock/x", "unix://127.0.0.1:{port}/", "jar:http://a!/b",
    "ws://127.0.0.1:{port}/", "view-source:http://127.0.0.1:{port}/", "hTTps+x://127.0.0.1:{port}/",
]  # fmt: skip
FORMS = [*(f"http://{host}:{{port}}/" for host in (*ADDRESSES, *HOSTS)), *URLS]

_connects: list[Any] = []
_heard = False


def _hear(event: str, details: tuple[Any, ...]) -> None:
    if _heard and event in ("socket.connect", "socket.sendto"):
        _connects.append(details[1])


sys.addaudithook(_hear)


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What this process connects to."""
    global _heard

    def answers(host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        name = (host.decode() if isinstance(host, bytes) else host).lower().removesuffix(".")
        found = NAMES.get(name, ["127.0.0.1"])
        return [(socket.AF_INET6 if ":" in one else socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(socket, "getaddrinfo", answers)
    _connects.clear()
    _heard = True
    yield _connects
    _heard = False


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with App.open(os.devnull, database_url="memory://", network={"ports": [80, 443]}) as app:
        app.approvals.add_approver(lambda _request: True)
        yield app


@pytest.fixture
async def inside() -> AsyncIterator[Site]:
    """A service that trusts whoever reaches it."""

    async def give(_: Asked) -> Said:
        return Said(200, {"secret": "crown jewels"})

    async with site(give) as made:
        yield made


def at(form: str, port: int) -> str:
    return form.replace("{port}", str(port))


def test_the_battery_has_no_form_twice() -> None:
    assert len(FORMS) == len(set(FORMS)) > 120


@pytest.mark.parametrize("form", FORMS)
async def test_a_url_that_leads_inside_is_refused_before_any_connection(
    inside: Site, connects: list[Any], form: str
) -> None:
    client = HttpClient(ports=(80, 443, inside.port))
    with pytest.raises((Denied, InvalidInput)) as refusal:
        await client.request("GET", at(form, inside.port), timeout=10)
    assert getattr(refusal.value, "code", None) in ("SECURITY_VIOLATION", "INVALID_INPUT")
    assert "crown" not in str(refusal.value)
    assert connects == []
    assert inside.connections == 0


@pytest.mark.parametrize("form", [form for form in FORMS if "\n" not in form and "\x00" not in form and form])
@pytest.mark.sample(21)
async def test_a_redirect_there_is_refused_too(inside: Site, connects: list[Any], form: str) -> None:
    async def lead(asked: Asked) -> Said:
        if asked.path != "/start":  # the form is a path of this very host
            return Said(404)
        return Said(302, b"", {"location": at(form, inside.port).encode().decode("latin-1")})

    async with site(lead) as public:
        client = HttpClient([f"127.0.0.1:{public.port}"], (80, 443, inside.port))
        try:
            response = await client.request("GET", f"{public.url}/start", timeout=10)
            assert response.status == 404
        except (Denied, ToolError):
            pass
        assert inside.connections == 0
        assert {address[1] for address in connects} == {public.port}
        assert public.asked[0].path == "/start"


@pytest.mark.parametrize("tool", ["http_fetch", "rest_api_call", "a2a_chat"])
@pytest.mark.parametrize(
    "form", ["http://127.0.0.1:{port}/", "http://loopback.example.com/", "http://0x7f.1/", "file:///etc/passwd"]
)
@pytest.mark.sample(4)
async def test_every_tool_that_takes_a_url_refuses_it(
    inside: Site, connects: list[Any], app: App, tool: str, form: str
) -> None:
    url = at(form, inside.port)
    arguments: dict[str, Any] = {"url": url}
    if tool == "rest_api_call":
        arguments["method"] = "POST"
    if tool == "a2a_chat":
        arguments = {"agent_url": url, "message": "hello"}
    outcome = await app.invoke(tool, arguments)
    assert outcome.error is not None
    assert outcome.error.code == "SECURITY_VIOLATION"
    assert (connects, inside.connections) == ([], 0)


# -- what another answer of the resolver changes: nothing


async def test_the_name_is_resolved_once_and_the_judged_address_is_connected_to(
    monkeypatch: pytest.MonkeyPatch, inside: Site
) -> None:
    answers = iter(([PUBLIC], ["127.0.0.1"], ["127.0.0.1"]))
    reached: list[str] = []
    original = httpcore2.AnyIOBackend.connect_tcp

    async def resolve(_host: str, _port: int) -> list[str]:
        return next(answers)

    async def connect(self: Any, host: str, _port: int, *rest: Any, **named: Any) -> Any:
        reached.append(host)
        return await original(self, "127.0.0.1", inside.port, *rest, **named)

    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", connect)
    client = HttpClient(resolve=resolve)
    response = await client.request("GET", "http://rebind.example.com/")
    assert (response.status, reached) == (200, [PUBLIC])
    assert inside.asked[0].headers["host"] == "rebind.example.com"
    with pytest.raises(Denied):
        await client.request("GET", "http://rebind.example.com/")
    assert reached == [PUBLIC]


async def test_an_address_of_this_machine_is_refused_although_it_looks_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.network.http_client.is_public", lambda _: True)
    with pytest.raises(Denied):
        await HttpClient().request("GET", "http://127.0.0.1/")


# -- positive controls: the same client reaches what it may


async def test_a_host_that_the_operator_allowed_is_reached(inside: Site, connects: list[Any]) -> None:
    client = HttpClient([f"127.0.0.1:{inside.port}", f"wiki.example.com:{inside.port}"])
    for host in ("127.0.0.1", "wiki.example.com", "WIKI.example.com."):
        response = await client.request("GET", f"http://{host}:{inside.port}/")
        assert response.json() == {"secret": "crown jewels"}
    assert connects == [("127.0.0.1", inside.port)] * 3
    for other in ("localhost", "loopback.example.com", "127.0.0.2", "[::ffff:127.0.0.1]"):
        with pytest.raises(Denied):
            await client.request("GET", f"http://{other}:{inside.port}/")
    assert inside.connections == 3


async def test_the_base_url_of_a_service_may_be_private_but_a_redirect_from_it_may_not(inside: Site) -> None:
    async def lead(asked: Asked) -> Said:
        return Said(302, b"", {"location": "/here" if asked.path == "/start" else inside.url})

    async with site(lead) as service:
        with pytest.raises(Denied):
            await HttpClient().request("GET", f"{service.url}/start", trusted=True)
        assert [asked.path for asked in service.asked] == ["/start", "/here"]
    assert inside.connections == 0
    assert (await HttpClient().request("GET", inside.url, trusted=True)).status == 200


async def test_a_refusal_says_what_an_operator_can_do(inside: Site) -> None:
    with pytest.raises(ToolgateError) as refusal:
        await HttpClient(ports=[inside.port]).request("GET", inside.url)
    assert f'network: {{allow: ["127.0.0.1:{inside.port}"]}}' in str(refusal.value)


async def test_no_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, inside: Site, connects: list[Any]
) -> None:
    async with site(lambda _: pytest.fail("the proxy was used")) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert (await HttpClient([f"127.0.0.1:{inside.port}"]).request("GET", inside.url)).status == 200
        assert proxy.connections == 0
    assert len(connects) == 1

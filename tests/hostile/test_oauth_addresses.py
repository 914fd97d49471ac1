"""A remote server whose login leads to addresses that are none of its business, and to other authorization servers.

The servers are real ones on loopback. What makes them remote is the name that the operator knows them by, which the
machine's resolver is told here.
"""

import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.authority import Authority, Browser
from tests.certificates import trusted_certificate
from tests.loopback import Asked, Said, Site, site
from tests.mcp_servers import call
from tests.remote_servers import Odd, free_port
from toolgate import App
from toolgate.errors import CallError
from toolgate.mcp.client.oauth.login import LoginFailed, login
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.network.tls import tls
from toolgate.sandbox.engine import Sandbox
from toolgate.settings import OAuthSettings, ServerSettings

pytestmark = pytest.mark.requirement("MCP-1")

REMOTE, INSIDE = "mcp.example.test", "inside.example.test"
SECRET = "client-secret-of-ours"
MACHINE = {"grant": "client_credentials", "client_id": "machine", "client_secret": "{{secret:MACHINE}}"}


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ssl.SSLContext]:
    """A certificate for all names here, which this process trusts, and a resolver that knows them."""
    context = trusted_certificate((REMOTE, INSIDE, "localhost"), tmp_path, monkeypatch)
    tls.cache_clear()
    looked_up = socket.getaddrinfo

    def getaddrinfo(host: Any, *rest: Any, **more: Any) -> Any:
        plain = host.decode() if isinstance(host, bytes) else host
        return looked_up("127.0.0.1" if plain in (REMOTE, INSIDE) else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield context
    tls.cache_clear()


class Hostile:
    """A guarded MCP server that is its own authorization server, and says of both what a test wants."""

    def __init__(self) -> None:
        self.port = 0
        self.resource: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.about: str | None = None
        self.redirects: dict[str, str] = {}
        self.authority = Authority()

    @property
    def url(self) -> str:
        return f"https://{REMOTE}:{self.port}"

    async def __call__(self, asked: Asked) -> Said:
        if asked.path in self.redirects:
            return Said(307, b"", {"location": self.redirects[asked.path]})
        if asked.path.startswith("/.well-known/oauth-protected-resource"):
            return Said(200, {"resource": f"{self.url}/mcp", "authorization_servers": [self.url], **self.resource})
        if asked.path == "/.well-known/oauth-authorization-server":
            said = {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "registration_endpoint": f"{self.url}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                **self.metadata,
            }
            return Said(200, said)
        if asked.path in ("/register", "/authorize", "/token"):
            return await self.authority(asked)
        about = self.about or f"{self.url}/.well-known/oauth-protected-resource"
        return Said(401, {"error": "invalid_token"}, {"www-authenticate": f'Bearer resource_metadata="{about}"'})


@asynccontextmanager
async def hostile(certified: ssl.SSLContext) -> AsyncIterator[tuple[Hostile, Site, Site]]:
    """The server, and two that nobody should reach: one that speaks TLS, one that does not."""

    async def canary(_: Asked) -> Said:
        return Said(200, {"access_token": "a", "token_type": "Bearer"})

    server = Hostile()
    async with site(server, certified) as at, site(canary, certified) as inner, site(canary) as plain:
        server.port = at.port
        server.authority.at = at
        yield server, inner, plain


def settings(server: Hostile, **oauth: Any) -> ServerSettings:
    return ServerSettings(url=f"{server.url}/mcp", oauth=OAuthSettings(**{"redirect_port": free_port(), **oauth}))


async def attempt(server: ServerSettings, vault: dict[str, str] | None = None) -> str:
    """Log in, and then call; both fail, and what they say is given."""
    vault = {} if vault is None else vault
    vault.setdefault("MACHINE", SECRET)
    browser = Browser()
    with pytest.raises(LoginFailed) as failed:
        await login("one", server, vault.get, vault.__setitem__, browser, tokens=vault.get, browser=False, wait_seconds=20)
    assert browser.shown == []
    sandbox = Sandbox()
    servers = UpstreamServers(secrets=vault.get, sandbox=sandbox, home=None, keep=vault.__setitem__, tokens=vault.get)
    servers.set("one", server)
    try:
        with pytest.raises(CallError) as raised:
            await call(servers, "one", "echo")
    finally:
        await servers.close()
        await sandbox.close()
    assert raised.value.code == "MISSING_AUTH"
    assert "access_token" not in json.dumps(vault)
    return failed.value.message


PLACES = [
    "http://127.0.0.1:{plain}", "https://127.0.0.1:{inner}", "https://127.1:{inner}", "https://2130706433:{inner}",
    "https://0x7f000001:{inner}", "https://0177.0.0.1:{inner}", "https://017700000001:{inner}", "https://[::1]:{inner}",
    "https://[::ffff:127.0.0.1]:{inner}", "https://[::ffff:7f00:1]:{inner}", "https://localhost:{inner}",
    "https://LocalHost:{inner}", f"https://{INSIDE}:{{inner}}", f"https://someone@{INSIDE}:{{inner}}",
    f"http://{INSIDE}:{{plain}}", "http://169.254.169.254", "https://169.254.169.254", "https://10.0.0.1", "https://[fd00::1]",
    "https://0.0.0.0:{inner}", "https://[64:ff9b::7f00:1]:{inner}",
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.sample(4)
async def test_no_address_that_a_server_names_leads_inside(certified: ssl.SSLContext, place: str) -> None:
    async with hostile(certified) as (server, inner, plain):
        at = place.format(inner=inner.port, plain=plain.port)
        machine, person = settings(server, **MACHINE), settings(server)
        for server.about, server.resource, server.metadata in (
            (None, {"authorization_servers": [at]}, {}),
            (None, {}, {"token_endpoint": f"{at}/token"}),
        ):
            await attempt(machine)
        for server.metadata in ({"registration_endpoint": f"{at}/register"}, {"authorization_endpoint": f"{at}/authorize"}):
            await attempt(person)
        server.metadata, server.about = {"token_endpoint": f"{at}/token"}, f"{at}/resource"
        await attempt(machine)
        assert inner.connections == plain.connections == 0
        assert SECRET not in str(server.authority.asked("/token"))


@pytest.mark.parametrize(
    "path", ["/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server", "/token"]
)
async def test_a_redirect_leads_nowhere_else(certified: ssl.SSLContext, path: str) -> None:
    async with hostile(certified) as (server, inner, plain):
        for at in (f"https://127.0.0.1:{inner.port}", f"http://127.0.0.1:{plain.port}", f"https://{INSIDE}:{inner.port}"):
            server.redirects = {path: f"{at}/elsewhere", "/.well-known/oauth-protected-resource/mcp": f"{at}/elsewhere"}
            await attempt(settings(server, **MACHINE))
        assert inner.connections == plain.connections == 0


async def test_what_is_refused_says_what_to_do(certified: ssl.SSLContext) -> None:
    async with hostile(certified) as (server, inner, _):
        server.resource = {"authorization_servers": [f"https://{INSIDE}:{inner.port}"]}
        words = await attempt(settings(server, **MACHINE))
        assert f"https://{INSIDE}:{inner.port}" in words
        assert "private address" in words
        assert "oauth.issuer" in words
        assert "--accept-issuer" in words


async def test_an_issuer_without_metadata_does_not_send_the_secret_to_the_server(certified: ssl.SSLContext) -> None:
    async def empty(_: Asked) -> Said:
        return Said(404)

    async with hostile(certified) as (server, _, _), site(empty, certified) as issuer:
        named = f"https://{INSIDE}:{issuer.port}"
        server.resource = {"authorization_servers": [named]}
        assert "publishes no metadata" in await attempt(settings(server, issuer=named, **MACHINE))
        assert server.authority.asked("/token") == []


async def test_metadata_speaks_only_for_its_own_issuer(certified: ssl.SSLContext) -> None:
    async with hostile(certified) as (server, _, _):
        server.metadata = {"issuer": "https://login.example.com"}
        assert "issuer" in await attempt(settings(server, **MACHINE))
        assert server.authority.asked("/token") == []


@asynccontextmanager
async def inside_authority(certified: ssl.SSLContext) -> AsyncIterator[Authority]:
    """An honest authorization server at a private address."""
    authority = Authority()
    async with site(authority, certified) as at:
        authority.at = at
        authority.clients["machine"] = {"client_id": "machine", "client_secret": SECRET, "redirect_uris": []}
        yield authority


async def test_a_private_issuer_is_used_where_an_operator_names_it(certified: ssl.SSLContext) -> None:
    async with hostile(certified) as (server, _, _), inside_authority(certified) as authority:
        server.resource = {"authorization_servers": [authority.url]}
        vault: dict[str, str] = {"MACHINE": SECRET}
        named = settings(server, issuer=authority.url, **MACHINE)
        await login("one", named, vault.get, vault.__setitem__, print, tokens=vault.get, wait_seconds=20)
        unnamed, vault = settings(server, **MACHINE), {"MACHINE": SECRET}
        await attempt(unnamed, vault)
        await login("one", unnamed, vault.get, vault.__setitem__, print, tokens=vault.get, accept_issuer=authority.url)
        assert len(authority.asked("/token")) == 2


async def test_the_issuer_is_pinned_until_a_person_accepts_another(tmp_path: Path) -> None:
    """Through the App, with all of them on loopback: whoever registers itself is bound to its issuer, too."""
    first, other, server = Authority(), Authority(), Odd()
    current = [first]

    async def resource(asked: Asked) -> Said:
        url = f"http://127.0.0.1:{at.port}"
        if asked.path.startswith("/.well-known/oauth-protected-resource"):
            return Said(200, {"resource": f"{url}/mcp", "authorization_servers": [current[0].url]})
        if current[0].allows(asked.headers.get("authorization", "").removeprefix("Bearer "), "") is None:
            about = f'Bearer resource_metadata="{url}/.well-known/oauth-protected-resource"'
            return Said(401, {}, {"www-authenticate": about})
        return await server(asked)

    async with site(first) as one, site(other) as two, site(resource) as at:
        first.at, other.at = one, two
        configured = {"url": f"{at.url}/mcp", "oauth": {"redirect_port": free_port()}}
        async with App.open(home=tmp_path / "home", entry_points=False, servers={"one": configured}) as app:
            assert await app.servers.log_in("one", Browser(), browser=False) == first.url
            assert (await app.servers.get("one")).to_dict()["issuer"] == first.url
            current[0] = other
            with pytest.raises(LoginFailed, match=r"another authorization server") as failed:
                await app.servers.log_in("one", Browser(), browser=False)
            assert failed.value.other_issuer == other.url
            assert f"toolgate servers login one --accept-issuer {other.url}" in (failed.value.suggestion or "")
            assert other.asked("/register") == other.asked("/token") == []
            assert (await app.servers.get("one")).to_dict()["issuer"] == first.url
            await app.servers.log_in("one", Browser(), browser=False, accept_issuer=other.url)
            assert (await app.servers.get("one")).to_dict()["issuer"] == other.url
            assert len(other.asked("/token")) == 1
            await app.servers.refresh("one")
            assert len(first.asked("/token")) == 1

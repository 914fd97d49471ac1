"""Tokens of issuers (JWT): who their holder is, and OAuth for /mcp."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.authority import Browser
from tests.issuer import Issuer, TokenAuthority, an_issuer, public_jwk
from tests.loopback import site as loopback
from tests.mcp_servers import call
from tests.remote_servers import free_port
from tests.serving import LAST_CHUNK, SECONDS, Site, listening, serving
from toolgate import App, InvokeContext, tool
from toolgate.errors import SettingsError
from toolgate.mcp.client.oauth.login import login
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.sandbox.engine import Sandbox
from toolgate.settings import OAuthSettings, ServerSettings
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-3")


@tool(tier="read_only")
async def whoami(ctx: InvokeContext) -> dict[str, Any]:
    """Tell who calls."""
    actor = ctx.actor
    return {"tenant": actor.tenant, "persona": actor.persona, "user": actor.user, "scopes": list(actor.scopes)}


@asynccontextmanager
async def a_site(
    issuer: Issuer, more: dict[str, Any] | None = None, **issuer_settings: Any
) -> AsyncIterator[tuple[App, Site]]:
    settings = {"auth": {"issuers": [issuer.settings(**issuer_settings)]}, **(more or {})}
    async with memory_app(**settings) as app, serving(app) as site:
        app.register(whoami)
        yield app, site


async def who(site: Site, token: str) -> Any:
    answer = await site.mcp("tools/call", {"name": "whoami", "arguments": {}}, key=token)
    assert answer.status == 200, answer.body
    return answer.json["result"]["structuredContent"]


@pytest.mark.parametrize("kind", ["RS256", "PS256", "ES256", "ES384", "EdDSA"])
async def test_a_token_of_a_trusted_issuer_says_who_its_holder_is(kind: str) -> None:
    async with an_issuer() as issuer:
        issuer.keys = [public_jwk("one"), public_jwk(kind, kind)]
        claims = {"persona": "persona", "scopes": "scope"}
        async with a_site(issuer, claims=claims) as (_, site):
            token = issuer.token(kind, kind, persona="analyst", scope="tool:web_search metrics")
            assert await who(site, token) == {
                "tenant": "acme", "persona": "analyst", "user": "ann", "scopes": ["tool:web_search", "metrics"],
            }  # fmt: skip
            await who(site, token)
            assert issuer.asked("/keys") == 1, "its keys are kept, and so is that the token was good"


async def test_tenant_and_roles_come_from_claims_wherever_they_stand() -> None:
    async with an_issuer() as issuer:
        claims = {"tenant": "https://example.com/tenant", "roles": ["realm_access", "roles"], "user": "email"}
        async with a_site(issuer, claims=claims, tenant=None) as (_, site):
            named: dict[str, Any] = {
                "https://example.com/tenant": "globex",
                "realm_access": {"roles": ["admins"]},
                "roles": None,
            }
            token = issuer.token(email="bob@example.com", **named)
            assert await who(site, token) == {"tenant": "globex", "persona": None, "user": "bob@example.com", "scopes": []}
            told = (await site("GET", "/v1/session", key=token)).json
            assert (told["kind"], told["tenant"], "administer" in told["permissions"]) == ("token", "globex", True)


async def test_a_role_that_may_not_call_is_refused_at_mcp() -> None:
    async with an_issuer() as issuer, a_site(issuer) as (_, site):
        answer = await site.mcp("tools/list", key=issuer.token(roles=["watchers"]))
        assert (answer.status, answer.json["code"]) == (403, "PERMISSION_DENIED")


async def test_keys_are_found_at_the_address_of_the_settings() -> None:
    async with an_issuer() as issuer, a_site(issuer, jwks_url=f"{issuer.url}/keys") as (_, site):
        await who(site, issuer.token())
        assert issuer.asked("/.well-known/openid-configuration") == 0


async def test_an_api_key_still_works_beside_tokens() -> None:
    async with an_issuer() as issuer, a_site(issuer) as (app, site):
        await site.with_key(app)
        assert (await site.mcp("tools/list")).status == 200


# -- settings


@pytest.mark.parametrize(
    "wrong",
    [
        {"tenant": None},
        {"claims": {"tenant": "t"}},
        {"issuer": "http://login.example.com"},
        {"issuer": "login.example.com"},
        {"jwks_url": "http://login.example.com/keys"},
        {"jwks_url": "file:///etc/passwd"},
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"algorithms": []},
        {"roles": {"staff": "god"}},
        {"audience": []},
        {"required_scopes": ['a" b']},
    ],
)
def test_an_issuer_that_could_be_anybodys_is_refused(wrong: dict[str, Any]) -> None:
    good = {"issuer": "https://login.example.com", "audience": ["toolgate"], "tenant": "acme", "roles": {"a": "caller"}}
    App.open(database_url="memory://", auth={"issuers": [good]})
    with pytest.raises(SettingsError):
        App.open(database_url="memory://", auth={"issuers": [{**good, **wrong}]})
    with pytest.raises(SettingsError, match="more than once"):
        App.open(database_url="memory://", auth={"issuers": [good, good]})


# -- OAuth for /mcp


PUBLIC = {"serve": {"public_url": "https://gate.example.com"}}


@pytest.mark.requirement("MCP-4")
async def test_a_client_that_has_only_the_address_finds_out_where_to_get_a_token() -> None:
    async with an_issuer() as issuer, a_site(issuer, PUBLIC, audience=[], required_scopes=["mcp:call"]) as (_, site):
        host = {"Host": "gate.example.com"}
        refused = await site("POST", "/mcp", host, b"{}")
        assert refused.status == 401
        assert refused.json["detail"] == "The request has no key or token: send one as `Authorization: Bearer …`."
        where = "https://gate.example.com/.well-known/oauth-protected-resource/mcp"
        expected = f'Bearer realm="toolgate", resource_metadata="{where}", scope="mcp:call"'
        assert refused.headers["www-authenticate"] == expected
        for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"):
            told = (await site("GET", path, host)).json
            assert told["resource"] == "https://gate.example.com/mcp"
            assert told["authorization_servers"] == [issuer.url]
            assert (told["bearer_methods_supported"], told["scopes_supported"]) == (["header"], ["mcp:call"])
        weak = await site("POST", "/mcp", host, b"{}", key=issuer.token(scope="other"))
        assert weak.status == 403
        assert 'error="insufficient_scope"' in weak.headers["www-authenticate"]
        assert 'scope="mcp:call"' in weak.headers["www-authenticate"]
        assert await who(site, issuer.token(scope="openid mcp:call")) != {}
        wrong = await site("POST", "/mcp", host, b"{}", key=issuer.token(aud="https://other.example.com/mcp"))
        assert wrong.status == 401
        assert wrong.json["detail"] == "The key or token is not valid: it is wrong, expired or revoked."
        assert 'error="invalid_token"' in wrong.headers["www-authenticate"]
        assert f'resource_metadata="{where}"' in wrong.headers["www-authenticate"]


async def test_without_a_public_address_the_resource_is_the_one_that_was_asked() -> None:
    async with an_issuer() as issuer, a_site(issuer) as (_, site):
        told = (await site("GET", "/.well-known/oauth-protected-resource/mcp")).json
        assert told["resource"] == f"http://{site.host}/mcp"
        evil = await site("GET", "/.well-known/oauth-protected-resource/mcp", {"Host": "evil.example.com"})
        assert evil.status == 421, "a stranger's name is not made ours"


async def test_without_issuers_there_is_no_metadata_and_no_pointer_to_it() -> None:
    async with memory_app() as app, serving(app) as site:
        assert (await site("GET", "/.well-known/oauth-protected-resource/mcp")).status == 404
        assert "resource_metadata" not in (await site("POST", "/mcp", body=b"{}")).headers["www-authenticate"]


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_the_end_of_a_token_ends_its_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.serve.streams.WATCH_SECONDS", 0.1)
    async with an_issuer() as issuer, a_site(issuer, leeway=0) as (_, site):
        brief, lasting = issuer.token(exp=int(time.time()) + 4), issuer.token()
        async with listening(site, brief) as ending, listening(site, lasting) as staying:
            await asyncio.wait_for(ending.readuntil(LAST_CHUNK), SECONDS)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(staying.readuntil(LAST_CHUNK), 0.1)
        assert (await site.mcp("tools/list", key=brief)).status == 401


@pytest.mark.requirement("MCP-4")
async def test_a_client_logs_in_with_nothing_but_the_address() -> None:
    authority = TokenAuthority()
    async with loopback(authority) as at:
        authority.at = at
        issuer = {"issuer": authority.url, "tenant": "acme", "roles": {"staff": "caller"}, "required_scopes": ["mcp:call"]}
        port = free_port()
        public = {"public_url": f"http://127.0.0.1:{port}"}
        async with memory_app(auth={"issuers": [issuer]}, serve=public) as app, serving(app, port) as site:
            app.register(whoami)
            vault: dict[str, str] = {}
            oauth = OAuthSettings(redirect_port=free_port(), issuer=authority.url)
            server = ServerSettings(url=f"http://{site.host}/mcp", oauth=oauth)
            keep = vault.__setitem__
            await login("gate", server, vault.get, keep, Browser(), tokens=vault.get, browser=False, wait_seconds=30)
            assert authority.resource == f"http://{site.host}/mcp"
            assert authority.scopes_asked == ["mcp:call"]
            sandbox = Sandbox()
            servers = UpstreamServers(secrets=vault.get, sandbox=sandbox, home=None, keep=keep, tokens=vault.get)
            servers.set("gate", server)
            try:
                assert '"tenant":"acme"' in str(await call(servers, "gate", "whoami")).replace(" ", "")
            finally:
                assert await servers.close() == []
                await sandbox.close()

"""Logins at remote MCP servers: who logs in, what is kept of it, and what becomes of calls before, meanwhile and after."""

import asyncio
import json
import logging
import re
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.authority import Authority, Browser, guarded, visit
from tests.mcp_servers import call, until
from tests.remote_servers import free_port
from tests.terminal import SCRIPT
from toolgate import App
from toolgate.errors import CallError
from toolgate.gates.secrets.names import NAME
from toolgate.mcp.client.http_transport import HttpTransport
from toolgate.mcp.client.oauth.login import LoginFailed, login
from toolgate.mcp.client.oauth.token_store import secret_name
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.sandbox.engine import Sandbox
from toolgate.settings import OAuthSettings, ServerSettings

pytestmark = pytest.mark.requirement("MCP-1")


def guarded_by(url: str, **oauth: Any) -> ServerSettings:
    return ServerSettings(url=url, oauth=OAuthSettings(**{"redirect_port": free_port(), **oauth}))


class Vault(dict[str, str]):
    """Secrets that outlive a process."""

    @asynccontextmanager
    async def process(self, server: ServerSettings) -> AsyncIterator[UpstreamServers]:
        """A process of ours with the server `one`."""
        sandbox = Sandbox()
        servers = UpstreamServers(secrets=self.get, sandbox=sandbox, home=None, keep=self.__setitem__, tokens=self.get)
        servers.set("one", server)
        try:
            yield servers
        finally:
            assert await servers.close() == []
            await sandbox.close()

    async def log_in(self, server: ServerSettings, browser: Any = None) -> None:
        show = browser or Browser()
        await login("one", server, self.get, self.__setitem__, show, tokens=self.get, browser=False, wait_seconds=20)

    def kept(self) -> Any:
        return json.loads(self["MCP_ONE_TOKENS"])


async def refused(servers: UpstreamServers, tool: str = "echo") -> CallError:
    with pytest.raises(CallError) as raised:
        await call(servers, "one", tool)
    return raised.value


# -- calls without a login, and with one


async def test_without_a_login_a_call_says_how_to_log_in_and_asks_nobody() -> None:
    async with guarded() as (authority, url, _), Vault().process(guarded_by(url)) as servers:
        error = await refused(servers)
        assert error.code == "MISSING_AUTH"
        assert "toolgate servers login one" in (error.suggestion or "")
        assert authority.at is not None
        assert authority.at.asked == []


@pytest.mark.parametrize("old", [False, True])
async def test_after_a_login_calls_work_in_this_process_and_in_later_ones(old: bool) -> None:
    vault, browser = Vault(), Browser()
    async with guarded(old=old) as (authority, url, _):
        server = guarded_by(url)
        await vault.log_in(server, browser)
        assert len(browser.shown) == 1
        assert browser.shown[0].startswith(f"{authority.url}/authorize?")
        for _ in range(2):
            async with vault.process(server) as servers:
                assert await call(servers, "one", "echo") == "here"
        assert len(authority.asked("/token")) == 1
        assert len(authority.asked("/register")) == 1


async def test_a_login_that_is_made_meanwhile_is_noticed() -> None:
    vault = Vault()
    async with guarded() as (_, url, _):
        server = guarded_by(url)
        async with vault.process(server) as servers:
            assert (await refused(servers)).code == "MISSING_AUTH"
            await vault.log_in(server)
            async with asyncio.timeout(30):
                assert await call(servers, "one", "echo") == "here"


async def test_a_second_login_does_not_register_again() -> None:
    vault = Vault()
    async with guarded() as (authority, url, _):
        server = guarded_by(url)
        await vault.log_in(server)
        await vault.log_in(server)
        assert len(authority.asked("/register")) == 1
        assert len(authority.asked("/token")) == 2


async def test_a_token_is_not_shown_to_another_address() -> None:
    vault = Vault()
    async with guarded() as (_, url, _), guarded() as (_, other, _):
        await vault.log_in(guarded_by(url))
        async with vault.process(guarded_by(other)) as servers:
            assert (await refused(servers)).code == "MISSING_AUTH"


@pytest.mark.parametrize("quick", [True, False])
async def test_calls_do_not_wait_for_each_other(quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not quick:
        monkeypatch.setattr(HttpTransport, "fast_http", lambda *_: None)
    vault = Vault()
    async with guarded() as (_, url, there):
        server = guarded_by(url)
        await vault.log_in(server)
        async with vault.process(server) as servers:
            calls = [asyncio.create_task(call(servers, "one", "held")) for _ in range(10)]
            await until(lambda: there.calls.count("held") == 10, "all are under way")
            there.let_go.set()
            assert await asyncio.gather(*calls) == ["here"] * 10


# -- renewing


async def test_a_token_that_ran_out_is_renewed_once_for_all_who_need_it() -> None:
    vault = Vault()
    async with guarded() as (authority, url, _):
        server = guarded_by(url)
        authority.seconds = 11  # and 10 before its end it is no longer used
        await vault.log_in(server)
        authority.seconds = 3_600
        await asyncio.sleep(1.1)
        before = vault.kept()["tokens"]
        async with vault.process(server) as servers:
            said = await asyncio.gather(*(call(servers, "one", "echo") for _ in range(8)))
        assert said == ["here"] * 8
        assert [one.form["grant_type"] for one in authority.asked("/token")] == ["authorization_code", "refresh_token"]
        assert vault.kept()["tokens"]["refresh_token"] != before["refresh_token"]


async def test_a_token_that_was_called_back_is_renewed_and_the_call_goes_on() -> None:
    vault = Vault()
    async with guarded() as (authority, url, _):
        server = guarded_by(url)
        await vault.log_in(server)
        async with vault.process(server) as servers:
            assert await call(servers, "one", "echo") == "here"
            authority.tokens.clear()
            said = await asyncio.gather(*(call(servers, "one", "echo") for _ in range(5)))
        assert said == ["here"] * 5
        assert len(authority.asked("/token")) == 2


async def test_where_a_token_cannot_be_renewed_a_new_login_is_wanted() -> None:
    vault = Vault()
    async with guarded() as (authority, url, _):
        server = guarded_by(url)
        await vault.log_in(server)
        async with vault.process(server) as servers:
            assert await call(servers, "one", "echo") == "here"
            authority.tokens.clear()
            authority.renewals.clear()
            assert (await refused(servers)).code == "MISSING_AUTH"
            await vault.log_in(server)
            async with asyncio.timeout(30):
                assert await call(servers, "one", "echo") == "here"


# -- more than was asked for


async def test_what_a_tool_needs_besides_is_asked_for_by_the_next_login() -> None:
    vault = Vault()
    async with guarded() as (authority, url, _):
        server = guarded_by(url)
        await vault.log_in(server)
        async with vault.process(server) as servers:
            assert await call(servers, "one", "echo") == "here"
            assert (await refused(servers, "slow")).code == "MISSING_AUTH"
            assert await call(servers, "one", "echo") == "here"
            await vault.log_in(server)
            assert authority.scopes_asked == ["basic", "basic admin"]
            async with asyncio.timeout(30):
                assert await call(servers, "one", "slow") == "here"


async def test_scopes_of_the_settings_are_asked_for() -> None:
    vault = Vault()
    async with guarded() as (authority, url, _):
        await vault.log_in(guarded_by(url, scopes=("admin", "basic")))
        assert set(authority.scopes_asked[0].split()) == {"admin", "basic"}


# -- without a person


def registered(authority: Authority, secret: str = "s3cret+/=") -> None:
    authority.clients["machine"] = {"client_id": "machine", "client_secret": secret, "redirect_uris": []}


async def test_a_client_with_credentials_of_its_own_needs_no_person() -> None:
    vault = Vault(MACHINE="s3cret+/=")
    async with guarded() as (authority, url, _):
        registered(authority)
        machine = {"grant": "client_credentials", "client_id": "machine", "client_secret": "{{secret:MACHINE}}"}
        server = guarded_by(url, issuer=authority.url, **machine)
        async with vault.process(server) as servers:
            assert await call(servers, "one", "echo") == "here"
            authority.tokens.clear()
            assert await call(servers, "one", "echo") == "here"
        await vault.log_in(server)
        assert authority.asked("/authorize") == []


async def test_wrong_credentials_are_an_error_that_does_not_show_them() -> None:
    vault = Vault(MACHINE="wrong-secret")
    async with guarded() as (authority, url, _):
        registered(authority)
        server = guarded_by(
            url, grant="client_credentials", client_id="machine", client_secret="{{secret:MACHINE}}", issuer=authority.url
        )
        async with vault.process(server) as servers:
            error = await refused(servers)
        assert error.code == "MISSING_AUTH"
        assert "invalid_client" in str(error)
        assert "wrong-secret" not in str(error)


async def test_a_server_that_refuses_even_a_new_token_is_said_to_refuse_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with guarded() as (authority, url, _):
        registered(authority)
        monkeypatch.setattr(authority, "allows", lambda *_: None)
        server = guarded_by(url, grant="client_credentials", client_id="machine", client_secret="{{secret:MACHINE}}")
        async with Vault(MACHINE="s3cret+/=").process(server) as servers:
            error = await refused(servers)
        assert error.code == "MISSING_AUTH"
        assert "refused the credentials: HTTP 401" in str(error)


async def test_a_missing_client_secret_is_named() -> None:
    async with guarded() as (_, url, _):
        server = guarded_by(url, client_id="machine", client_secret="{{secret:MACHINE}}")
        async with Vault().process(server) as servers:
            error = await refused(servers)
        assert error.code == "MISSING_AUTH"
        assert "MACHINE" in str(error)


async def test_credentials_are_shown_to_no_other_authority_than_their_own() -> None:
    vault = Vault(MACHINE="s3cret+/=")
    async with guarded() as (authority, url, _):
        registered(authority)
        server = guarded_by(
            url,
            grant="client_credentials",
            client_id="machine",
            client_secret="{{secret:MACHINE}}",
            issuer="https://login.example.com",
        )
        async with vault.process(server) as servers:
            error = await refused(servers)
        assert error.code == "MISSING_AUTH"
        assert "login.example.com" in str(error)
        assert authority.asked("/token") == []


async def test_credentials_do_not_follow_the_server_to_another_authority() -> None:
    vault = Vault(MACHINE="s3cret+/=")
    async with guarded() as (authority, url, _), guarded() as (other, _, _):
        registered(authority)
        server = guarded_by(url, grant="client_credentials", client_id="machine", client_secret="{{secret:MACHINE}}")
        async with vault.process(server) as servers:
            assert await call(servers, "one", "echo") == "here"
        first = authority.at
        authority.at = other.at  # what the server now says of itself
        authority.tokens.clear()
        async with vault.process(server) as servers:
            assert "another authorization server" in str(await refused(servers))
        authority.at = first
        assert other.asked("/token") == []


# -- the login itself


async def test_only_the_browser_that_was_sent_comes_back() -> None:
    vault, statuses = Vault(), list[int]()

    class Wary(Browser):
        def __call__(self, url: str) -> None:
            self.shown.append(url)
            asyncio.get_running_loop().create_task(asyncio.to_thread(self.look, url)).add_done_callback(lambda _: None)

        def look(self, url: str) -> None:
            back = f"http://127.0.0.1:{port}"
            for path in ("/callback?code=stolen&state=guessed", "/callback?code=stolen", "/favicon.ico", "/"):
                try:
                    urllib.request.urlopen(back + path, timeout=60).close()
                except urllib.error.HTTPError as error:
                    statuses.append(error.code)
                    error.close()
            visit(url)

    async with guarded() as (_, url, _):
        port = free_port()
        await vault.log_in(guarded_by(url, redirect_port=port), Wary())
        assert statuses == [400, 400, 404, 404]
        assert vault.kept()["tokens"]["access_token"]


async def test_a_login_that_is_refused_says_why_and_keeps_nothing() -> None:
    vault = Vault()
    async with guarded() as (authority, url, _):
        authority.says_no = True
        with pytest.raises(LoginFailed, match="the person said no"):
            await vault.log_in(guarded_by(url))
        assert "MCP_ONE_TOKENS" not in vault


async def test_a_login_that_fails_leaves_the_old_one_as_it_was() -> None:
    vault = Vault()
    async with guarded() as (authority, url, _):
        server = guarded_by(url)
        await vault.log_in(server)
        before = vault.kept()
        authority.says_no = True
        with pytest.raises(LoginFailed):
            await vault.log_in(server)
        assert vault.kept() == before


async def test_a_login_to_which_nobody_comes_ends() -> None:
    async with guarded() as (_, url, _):
        with pytest.raises(LoginFailed, match="was not completed within"):
            await login("one", guarded_by(url), Vault().get, None, lambda _: None, browser=False, wait_seconds=0.5)


async def test_a_port_that_is_taken_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with guarded() as (_, url, _):
            with pytest.raises(LoginFailed, match=f"Port {port}"):
                await Vault().log_in(guarded_by(url, redirect_port=port))


async def test_a_server_without_a_login_says_so() -> None:
    with pytest.raises(LoginFailed, match="has no OAuth login"):
        await Vault().log_in(ServerSettings(url="http://127.0.0.1:9/mcp"))


async def test_tokens_are_not_sent_where_others_can_read_them() -> None:
    server = guarded_by("http://mcp.example.com/mcp")
    with pytest.raises(LoginFailed, match="only over https"):
        await Vault().log_in(server)
    async with Vault().process(server) as servers:
        assert "only over https" in str(await refused(servers))


async def test_a_server_that_is_not_there_is_said() -> None:
    with pytest.raises(LoginFailed, match="cannot be reached"):
        await Vault().log_in(guarded_by("http://127.0.0.1:9/mcp"))


async def test_nothing_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    vault = Vault(KEY="hush-in-header")
    async with guarded() as (authority, url, _):
        server = guarded_by(f"{url}?key=hush-in-address").model_copy(update={"headers": {"x-key": "{{secret:KEY}}"}})
        await vault.log_in(server)
        async with vault.process(server) as servers:
            assert await call(servers, "one", "echo", text="hush-in-arguments") == "here"
            authority.tokens.clear()
            assert await call(servers, "one", "echo", text="hush-in-arguments") == "here"
            authority.tokens.clear()
            authority.renewals.clear()
            error = await refused(servers)
        shown = caplog.text + str(error)
        assert "hush" not in shown
        assert "access-" not in shown
        assert "refresh-" not in shown
        assert not re.search(r"[?&]code=", shown)


# -- through the App


async def test_a_tool_of_a_guarded_server_is_called_once_somebody_has_logged_in(tmp_path: Path) -> None:
    async with guarded() as (authority, url, _):
        server = {"url": url, "oauth": {"redirect_port": free_port()}, "trust_first_seen": True, "tier": "read_only"}
        async with App.open(home=tmp_path / "home", entry_points=False, servers={"one": server}) as app:
            browser = Browser()
            await app.servers.log_in("one", browser, browser=False)
            assert len(browser.shown) == 1
            await app.servers.refresh("one")
            outcome = await app.invoke("mcp_one_echo", {})
            assert (outcome.status, outcome.output) == ("success", "here")
            stolen = await app.invoke("echo", {"text": "{{secret:MCP_ONE_TOKENS}}"})
            assert stolen.error is not None
            assert stolen.error.code == "PERMISSION_DENIED"
            authority.tokens.clear()
            authority.renewals.clear()
            outcome = await app.invoke("mcp_one_echo", {})
            assert outcome.error is not None
            assert (outcome.status, outcome.error.code) == ("denied", "MISSING_AUTH")
            assert "toolgate servers login one" in (outcome.error.suggestion or "")
        for file in (tmp_path / "home").rglob("*"):
            assert not file.is_file() or not re.search(rb"access-[A-Za-z0-9_]*[0-9]", file.read_bytes()), file


# -- names


@given(st.text(min_size=1, max_size=80), st.text(min_size=1, max_size=80))
def test_each_server_has_secrets_of_its_own(one: str, other: str) -> None:
    for name in (one, other):
        assert NAME.match(secret_name(name, "TOKENS"))
    assert (secret_name(one, "TOKENS").upper() == secret_name(other, "TOKENS").upper()) == (one == other)


@pytest.mark.parametrize(("one", "other"), [("a-b", "a_b"), ("A", "a"), ("x" * 64, "x" * 65), ("a b", "a-b")])
def test_names_that_look_alike_have_different_secrets(one: str, other: str) -> None:
    assert secret_name(one, "CLIENT") != secret_name(other, "CLIENT")


@pytest.mark.matrix("starts the program several times")
@pytest.mark.requirement("DOOR-6")
async def test_a_server_that_wants_a_login_is_added_before_it_if_that_was_said(tmp_path: Path) -> None:
    async def toolgate(*words: str) -> tuple[int, str]:
        run = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        done = await asyncio.to_thread(run, [SCRIPT, *words])
        return done.returncode, done.stdout + done.stderr

    async with guarded() as (_, url, _):
        code, said = await toolgate("servers", "add", "one", "--oauth", "--url", url)
        assert (code, "It needs a login: toolgate servers login one" in said) == (0, True), said
        code, said = await toolgate("servers", "add", "two", "--url", url)
        assert (code, "Server two was not added." in said, "--oauth" in said) == (1, True, True), said
    code, said = await toolgate("servers", "list", "--json")
    assert [one["name"] for one in json.loads(said)["servers"]] == ["one"]

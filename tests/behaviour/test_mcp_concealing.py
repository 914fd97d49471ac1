"""What a server was given in secret is in nothing that it says, whichever way it says it, from its first word on."""

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.authority import guarded
from tests.behaviour.test_mcp_oauth import Vault, guarded_by
from tests.loopback import Asked, Said, Site, site
from tests.mcp_bad_servers.telltale import QUESTION, Telltale
from tests.mcp_servers import BAD, Noting, call, standing
from tests.secret_use import named
from toolgate import App
from toolgate.errors import CallError
from toolgate.mcp.client.errors import ErrorResponse, InputRequired
from toolgate.mcp.client.http_transport import HttpTransport
from toolgate.mcp.client.model import ListKind
from toolgate.mcp.client.secret_masking import SecretMasker
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.model import MASK, Actor
from toolgate.sandbox.engine import Sandbox
from toolgate.settings import ServerSettings
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("MCP-3")

SECRET = 'sesame "open"/42'
SHAPES: dict[str, Callable[[str], str]] = {
    "itself": str,
    "json": lambda value: json.dumps(value)[1:-1],
    "base64": lambda value: base64.b64encode(f"user:{value}".encode()).decode(),
    "url": lambda value: quote(value, safe=""),
    "hexadecimal": lambda value: value.encode().hex(),
}
LISTS: tuple[ListKind, ...] = ("tools", "prompts", "resources", "templates")


def program(era: str, **more: Any) -> ServerSettings:
    """The telltale as a program."""
    command = (sys.executable, "-S", str(BAD.with_name("telltale.py")), era)
    return ServerSettings(command=command, env={"PW": "{{secret:PW}}"}, isolation="none", **more)


class Web:
    """The telltale at an address. Its secret is the key that it was last shown, in a shape."""

    def __init__(self, *, modern: bool, shape: str = "itself") -> None:
        self.keys: list[str] = []
        self._telltale = Telltale(lambda: SHAPES[shape](self.keys[-1]), modern=modern)
        self._answered = asyncio.Event()
        self.kind = "application/json"

    async def __call__(self, asked: Asked) -> Said:
        if asked.method != "POST":
            return Said(405)
        self.keys.append(asked.headers.get("authorization", "Bearer nothing").removeprefix("Bearer "))
        message = asked.json
        if "method" not in message:
            self._answered.set()
            return Said(202)
        said = self._telltale.said(message)
        if not said:
            return Said(202)
        kind = self.kind if message["method"] == "tools/call" else "application/json"
        return Said(200, said[0], {"content-type": kind}) if len(said) == 1 else Said(raw=self._stream(said))

    def _stream(self, said: list[dict[str, Any]]) -> Any:
        async def write(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            for one in said:
                writer.write(f"data: {json.dumps(one)}\n\n".encode())
                await writer.drain()
                if one.get("id") == QUESTION:
                    await self._answered.wait()

        return write


@asynccontextmanager
async def engine(server: ServerSettings, secrets: dict[str, str]) -> AsyncIterator[UpstreamServers]:
    sandbox = Sandbox()
    servers = UpstreamServers(secrets=secrets.get, sandbox=sandbox, home=None)
    servers.set("one", server)
    try:
        yield servers
    finally:
        assert await servers.close() == []
        await sandbox.close()


def at(running: Site) -> ServerSettings:
    return ServerSettings(url=f"{running.url}/mcp", headers={"Authorization": "Bearer {{secret:PW}}"})


async def heard(servers: UpstreamServers) -> dict[str, Any]:
    """All that can be heard of a server, by the way that it is heard."""
    caller, found = Noting({"action": "cancel"}), dict[str, Any]()

    async def ask(method: str, params: dict[str, Any]) -> Any:
        try:
            return await servers["one"].request(method, params, caller=caller)
        except ErrorResponse as error:
            return [error.message, error.words, error.data, error.details, str(error)]
        except InputRequired as more:
            caller.asked += [(one["method"], one["params"]) for one in more.requests.values()]
            return [more.requests, more.state]

    for tool in ("result", "error", "progress", "log", "ask"):
        found[tool] = await ask("tools/call", {"name": tool, "arguments": {}})
    for method in ("resources/read", "prompts/get", "completion/complete", "tasks/get"):
        found[method] = await ask(method, {"uri": "mem://one", "name": "p", "taskId": "t"})
    for what in LISTS:
        found[what] = await servers["one"].listed(what)
    about = await servers["one"].about()
    found |= {"capabilities": about.capabilities, "info": about.info, "instructions": about.instructions}
    return found | {"progress": caller.steps, "log": caller.logs, "ask": [found["ask"], caller.asked]}


def check(found: dict[str, Any], *secrets: str) -> None:
    for way, value in found.items():
        text = json.dumps(value)
        assert MASK in text, f"{way} says nothing that was masked: {text}"
        for secret in secrets:
            for shape, write in SHAPES.items():
                assert write(secret) not in text, f"{way} gives the secret away ({shape})"
                assert json.dumps(write(secret))[1:-1] not in text, f"{way} gives the secret away ({shape}, as JSON)"


# -- every way


@pytest.mark.parametrize("era", ["old", "modern"])
async def test_a_program_s_secret_is_in_nothing_that_it_says(era: str) -> None:
    async with engine(program(era), {"PW": SECRET}) as servers:
        found = await heard(servers)
        assert (await servers["one"].about()).protocol == ("2026-07-28" if era == "modern" else "2025-11-25")
        assert found["error"][0] == f"pw {MASK}!"
        check(found, SECRET)
        about = standing(servers, "one").about
        assert about is not None
        assert SECRET not in json.dumps([about.info, about.capabilities, about.instructions])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("way", ["quick", "session"])
@pytest.mark.parametrize("era", ["old", "modern"])
async def test_a_header_s_secret_is_in_nothing_that_is_said(
    era: str, way: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "session":
        monkeypatch.setattr(HttpTransport, "fast_http", lambda *_: None)
    async with site(Web(modern=era == "modern", shape=shape)) as running, engine(at(running), {"PW": SECRET}) as servers:
        check(await heard(servers), SECRET)


@pytest.mark.parametrize("way", ["quick", "session"])
async def test_our_own_words_on_a_failure_do_not_quote_it_either(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "session":
        monkeypatch.setattr(HttpTransport, "fast_http", lambda *_: None)
    web = Web(modern=True)
    web.kind = "text/sesame-42"
    async with site(web) as running, engine(at(running), {"PW": "sesame-42"}) as servers:
        with pytest.raises(CallError, match="answered with") as caught:
            await call(servers, "one", "result")
        assert f"text/{MASK}" in caught.value.message
        assert "sesame-42" not in repr([caught.value.message, caught.value.args, caught.value.details])


# -- from the first word on, and whatever secrets come later


async def test_the_first_call_of_a_process_gives_nothing_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SERVER_SECRET_PW", SECRET)
    server = {
        "command": [sys.executable, "-S", str(BAD.with_name("telltale.py")), "old"], "env": {"PW": "{{secret:PW}}"},
        "isolation": "none", "tier": "read_only", "trust_first_seen": True,
    }  # fmt: skip

    def process() -> App:
        return App.open(os.devnull, home=str(tmp_path), servers={"one": server}, auto_load_custom_tools=False)

    async with process() as first:
        await first.servers.refresh("one")
    async with process() as app:
        for _ in range(2):
            outcome = await app.invoke("mcp_one_result", {}, actor=Actor("acme", None, "ada"))
            assert outcome.status == "success", outcome.error
            assert MASK in str(outcome.output)
            check({"output": outcome.output}, SECRET)


async def test_a_secret_that_is_set_anew_is_concealed_as_is_the_one_before_it() -> None:
    secrets, web = {"PW": "the-first-one"}, Web(modern=True)
    async with site(web) as running, engine(at(running), secrets) as servers:
        check({"result": await call(servers, "one", "result")}, "the-first-one")
        secrets["PW"] = "the-second-one"
        check({"result": await call(servers, "one", "result")}, "the-second-one")
        assert web.keys[-1] == "the-second-one"
        web.keys.append("the-first-one")
        said = await call(servers, "one", "echo", old="the-first-one", new="the-second-one")
        assert json.loads(said) == {"old": MASK, "new": MASK}


async def test_a_program_that_is_started_with_another_secret_gives_away_neither() -> None:
    secrets = {"PW": "the-first-one"}
    async with engine(program("old"), secrets) as servers:
        check({"result": await call(servers, "one", "result")}, "the-first-one")
        secrets["PW"] = "the-second-one"
        await servers["one"].restart()
        check({"result": await call(servers, "one", "result")}, "the-second-one")
        servers.set("one", program("old", start_seconds=9))
        said = await call(servers, "one", "echo", old="the-first-one", new="the-second-one")
        assert json.loads(said) == {"old": MASK, "new": MASK}


@pytest.mark.parametrize("way", ["quick", "session"])
async def test_a_token_that_was_renewed_in_the_middle_of_a_call_is_concealed(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "session":
        monkeypatch.setattr(HttpTransport, "fast_http", lambda *_: None)
    vault = Vault()
    async with guarded() as (authority, url, _):
        server = guarded_by(url)
        await vault.log_in(server)
        before = vault.kept()["tokens"]
        async with vault.process(server) as servers:
            await call(servers, "one", "echo")
            authority.tokens.clear()
            await call(servers, "one", "echo")
            after = vault.kept()["tokens"]
            assert after["access_token"] != before["access_token"]
            conceal = servers["one"].masker.mask_value
            for token in (before["access_token"], after["access_token"], after["refresh_token"]):
                assert conceal({"said": f"Bearer {token}"}) == {"said": f"Bearer {MASK}"}


async def test_what_a_call_hands_over_in_secret_is_shown_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_CARD", SECRET)
    command = [sys.executable, "-S", str(BAD.with_name("server.py")), "well"]
    server = {"command": command, "isolation": "none", "tier": "read_only", "trust_first_seen": True}
    ada, bob = Actor("acme", None, "ada"), Actor("other", None, "bob")
    into = named("CARD", "logs", "ask", "echo", server="one")
    async with memory_app(servers={"one": server}, secrets=into) as app:
        await call(app.parts.servers_engine, "one", "change", tools=["echo", "logs", "ask"])
        await app.servers.refresh("one")
        caller = Noting({"action": "cancel"})
        told: dict[str, dict[str, Any]] = {
            "logs": {"who": "{{secret:CARD}}"},
            "ask": {"method": "elicitation/create", "params": {"message": "{{secret:CARD}}"}},
        }
        for tool, arguments in told.items():
            outcome = await app.invoke(f"mcp_one_{tool}", arguments, actor=ada, caller=caller)
            assert outcome.status == "success", outcome.error
        check({"logs": caller.logs, "asked": caller.asked}, SECRET)
        said = await app.invoke("mcp_one_echo", {"say": SECRET}, actor=bob)
        assert said.output == MASK, "it may have kept what another tenant gave it"


# -- what it does not do


@pytest.mark.parametrize("secret", ["user", "text", "tool", "object", "type", "content", "name", "2025", "2026", "resu"])
@pytest.mark.parametrize("era", ["old", "modern"])
async def test_a_secret_that_is_a_word_of_the_protocol_does_not_stop_a_server(era: str, secret: str) -> None:
    async with engine(program(era), {"PW": secret}) as servers:
        assert await call(servers, "one", "result") == f"pw {MASK}!"
        assert [one["name"] for one in await servers["one"].listed("tools")] == ["result"]
        got = await servers["one"].request("prompts/get", {"name": "p"})
        assert got["messages"] == [{"role": "user", "content": {"type": "text", "text": f"pw {MASK}!"}}]


async def test_a_word_that_is_also_a_secret_may_be_in_names_but_a_key_may_not() -> None:
    masker = SecretMasker()
    masker.learn("clock")
    schema = {"type": "object", "properties": {"clock": {"type": "string"}}, "required": ["clock"]}
    tool = {"name": "clock", "title": "clock", "inputSchema": schema}
    assert masker.mask_value({"tools": [tool]}) == {"tools": [{**tool, "title": MASK}]}
    assert masker.mask_value({"structuredContent": {"name": "clock"}}) == {"structuredContent": {"name": MASK}}
    masker.learn("k-0123456789abcdef")
    listed = [{"uri": "https://clock/?key=k-0123456789abcdef", "name": "clock"}]
    masked = [{"uri": f"https://clock/?key={MASK}", "name": "clock"}]
    assert masker.mask_value({"resources": listed}) == {"resources": masked}


def test_what_a_server_without_secrets_says_is_not_looked_at() -> None:
    class Unseen(dict[str, Any]):
        def items(self) -> Any:
            raise AssertionError("it was looked at")

    value = Unseen(a=1)
    assert SecretMasker().mask_value(value) is value


async def test_a_result_that_is_too_deep_to_be_searched_ends_nothing() -> None:
    masker = SecretMasker()
    masker.learn(SECRET)
    deep: Any = SECRET
    for _ in range(900):
        deep = [deep]
    assert SECRET not in str(masker.mask_value({"content": deep}))


# -- any value

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.text(min_size=12), st.sampled_from(sorted(SHAPES)), PLAIN, st.text(), st.text())
def test_a_secret_is_found_wherever_it_stands(secret: str, shape: str, beside: Any, before: str, after: str) -> None:
    secret = secret.encode(errors="replace").decode()
    shown = SHAPES[shape](secret)
    masker = SecretMasker()
    masker.learn(secret)
    value = {"content": [{"text": f"{before}{shown}{after}"}, beside], f"{before}{shown}{after}": [beside]}
    masked = masker.mask_value(value)
    assert shown not in masked["content"][0]["text"].replace(MASK, "\0")
    assert all(shown not in key.replace(MASK, "\0") for key in masked)


@given(PLAIN)
def test_what_holds_no_secret_is_not_touched(value: Any) -> None:
    masker = SecretMasker()
    masker.learn("such a thing is in no value")
    assert masker.mask_value(value) is value or masker.mask_value(value) == value


def test_the_words_that_are_let_be_are_let_be_only_where_they_are_words_of_the_protocol() -> None:
    masker = SecretMasker()
    masker.learn("user")
    assert masker.mask_value({"role": "user", "title": "user", "user": 1}) == {"role": "user", "title": MASK, MASK: 1}
    number = SecretMasker()
    number.learn("4711")
    assert number.mask_value({"pin": 4711, "of": [14711.5]}) == {"pin": MASK, "of": [14711.5]}
    assert orjson.dumps(number.mask_value({"pin": 4712})) == b'{"pin":4712}'

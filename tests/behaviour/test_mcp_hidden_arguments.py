"""Secrets that a server is given are in no command line, and can stand in its address."""

import hashlib
import json
import logging
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from tests.loopback import Asked, Said, site
from tests.mcp_upstream import Upstream, tool
from tests.terminal import Terminal
from toolgate import Actor, App
from toolgate.errors import CallError, SettingsError
from toolgate.mcp.client.secret_refs import fill_url
from toolgate.settings import ServerSettings

pytestmark = pytest.mark.requirement("MCP-3", "IO-4")
VALUE = "postgresql://ann:s3cret-of-ann@db:5432/x?a='b'"
NODE = """
const { createHash } = require("crypto");
const told = () => JSON.stringify({
  words: process.argv.slice(2).map((word) => createHash("sha256").update(word).digest("hex")),
  variable: createHash("sha256").update(process.env.GIVEN || "").digest("hex"),
  left: Object.keys(process.env).filter((name) => name.startsWith("TOOLGATE")),
});
const answers = {
  initialize: (params) => ({
    protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "n", version: "1" },
  }),
  "tools/list": () => ({ tools: [{ name: "told", description: "Tells.", inputSchema: { type: "object" } }] }),
  "tools/call": () => ({ content: [{ type: "text", text: told() }] }),
  ping: () => ({}),
};
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const answer = answers[method];
  const said = answer ? { result: answer(params) } : { error: { code: -32601, message: "no" } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...said }));
});
"""


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    made = Terminal(tmp_path, monkeypatch, capsys)
    made.set("TOOLGATE_SECRETS_KEY", b64encode(bytes(range(32))).decode())
    return made


def command_lines() -> str:
    """Of every process on the machine that can be looked at: ours, bubblewrap's, and the server's are among them."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                found.append((process / "cmdline").read_bytes())
            except OSError:
                continue  # it has ended
    return b"\n".join(found).decode(errors="replace")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.needs("npm")
@pytest.mark.parametrize("isolation", ["none", "required"])
async def test_no_command_line_holds_what_a_server_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    monkeypatch.setenv("TOOLGATE_SERVER_SECRET_URL", VALUE)
    script = tmp_path / "server.cjs"
    script.write_text(NODE)
    server = {
        "command": ["node", str(script), "--url={{secret:URL}}", "{{ secret:URL }}", "plain"],
        "env": {"GIVEN": "{{secret:URL}}"}, "isolation": isolation, "read": [str(script)], "memory_mb": 1024,
        "tier": "read_only", "trust_first_seen": True,
    }  # fmt: skip
    async with App.open(home=tmp_path / "home", servers={"one": server}, auto_load_custom_tools=False) as app:
        await app.servers.refresh("one")
        outcome = await app.invoke("mcp_one_told", {})
        assert outcome.ok, outcome
        seen = command_lines()
        said = json.loads(outcome.output)
    assert said["words"] == [digest(f"--url={VALUE}"), digest(VALUE), digest("plain")], "the program has it"
    assert said["variable"] == digest(VALUE)
    assert said["left"] == []
    assert str(script) in seen, "its command line was looked at"
    assert "s3cret-of-ann" not in seen


@pytest.mark.parametrize("command", [["python3", "server.py", "{{secret:KEY}}"], ["sh", "-c", "x --token={{secret:KEY}}"]])
async def test_a_command_whose_arguments_everybody_sees_is_refused(tmp_path: Path, command: list[str]) -> None:
    async with App.open(home=tmp_path / "home") as app:
        with pytest.raises(SettingsError, match="process list") as caught:
            await app.servers.add("one", {"command": command})
        assert "env" in (caught.value.suggestion or "")
        assert await app.servers.list() == []


def test_servers_add_refuses_a_key_in_a_command_and_keeps_nothing(terminal: Terminal) -> None:
    key = "ghp_0123456789abcdef0123456789abcdef0123"
    done = terminal("servers", "add", "one", "--no-start", "--", sys.executable, "server.py", "--token", key)
    assert done.code != 0
    assert "--env NAME=VALUE" in done.err
    assert key not in done.err
    assert "ONE_TOKEN" not in terminal("secrets", "list").out


# -- in an address


async def not_found(asked: Asked) -> Said:
    return Said(404, f"there is no {asked.path}", {"content-type": "text/plain"})


async def test_a_secret_in_the_path_and_query_of_an_address_is_sent_and_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = "k3y/with?odd&parts-77"
    monkeypatch.setenv("TOOLGATE_SERVER_SECRET_KEY", key)
    shown: list[Any] = []
    with caplog.at_level(logging.DEBUG):
        async with site(not_found) as at:
            url = f"{at.url}/{{{{secret:KEY}}}}/mcp?token={{{{secret:KEY}}}}"
            async with App.open(home=tmp_path / "home", servers={"one": {"url": url}}) as app:
                with pytest.raises(CallError) as caught:
                    await app.servers.refresh("one")
                shown += [caught.value.message, caught.value.suggestion, caught.value.details]
                shown += [status.to_dict() for status in await app.servers.list()]
                await app.flush()
            quoted = "k3y%2Fwith%3Fodd%26parts-77"
            assert (at.asked[0].path, at.asked[0].query) == (f"/{quoted}/mcp", {"token": key})
    told = repr(shown) + caplog.text
    assert not any(part in told for part in (key, "k3y%2F", "parts-77"))
    assert "/{{secret:KEY}}/mcp" in repr(shown)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "https://{{secret:HOST}}/mcp"}, "path and its query only"),
        ({"url": "https://u:{{secret:PW}}@example.com/mcp"}, "path and its query only"),
        ({"url": "https://example.com/mcp#{{secret:PW}}"}, "path and its query only"),
        ({"url": "https://example.com/{{secret:KEY}}", "oauth": {}}, "authorization server would be told"),
    ],
)
async def test_where_a_secret_would_decide_what_is_reached_it_is_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    async with App.open(home=tmp_path / "home") as app:
        with pytest.raises(SettingsError, match=message):
            await app.servers.add("one", settings)


def test_a_value_can_not_change_what_an_address_reaches() -> None:
    filled = fill_url("https://example.com/{{secret:A}}/mcp", {"A": "../../@evil.example/?x=#y"}.get, "one")
    assert filled == "https://example.com/..%2F..%2F%40evil.example%2F%3Fx%3D%23y/mcp"


# -- kept where no caller can refer to it


@pytest.mark.requirement("IO-5")
def test_what_servers_add_keeps_is_not_for_callers(terminal: Terminal, tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    key = "ghp_0123456789abcdef0123456789abcdef0123"
    added = terminal("servers", "add", "one", "--no-start", "--env", f"TOKEN={key}", "--", *upstream.command)
    assert added.code == 0, added.err
    assert "ONE_TOKEN  Toolgate itself and MCP servers" in terminal("secrets", "list").out
    use = '{"ONE_TOKEN": [{"tool": "write_file", "tenant": "*"}]}'
    terminal.set("TOOLGATE_SECRETS__USE", use)
    done = terminal("call", "write_file", "path=a.txt", "content={{secret:ONE_TOKEN}}", "--yes", "--json")
    assert done.json["error"]["code"] == "MISSING_AUTH", "though it is named, there is none for callers"


@pytest.mark.requirement("IO-5")
async def test_an_actor_adds_no_server_that_is_given_what_others_set(tmp_path: Path) -> None:
    builder = Actor("acme", "builder", "ann")
    async with App.open(home=tmp_path / "home") as app:
        await app.policy.allow_adding_tools("builder")
        stolen = ServerSettings(url="https://evil.example/mcp", headers={"X": "{{secret:GITHUB_TOKEN}}"})
        with pytest.raises(SettingsError, match="was not given with them"):
            await app.servers.add("evil", stolen, actor=builder)
        given = {"GITHUB_TOKEN": "of-the-builder"}
        assert (await app.servers.add("own", stolen, actor=builder, secrets=given)).name == "own"
        moved = ServerSettings(url="https://elsewhere.example/mcp", headers=dict(stolen.headers))
        with pytest.raises(SettingsError, match="was not given with them"):
            await app.servers.add("own", moved, actor=builder, replace=True)


@pytest.mark.requirement("IO-5")
async def test_an_actor_puts_no_program_under_what_the_settings_say_of_a_server(tmp_path: Path) -> None:
    """Settings may say more of a server that was added: a secret that is meant for it goes to no other."""
    builder, own = Actor("acme", "builder", "ann"), ServerSettings(url="https://evil.example/mcp")
    said = {"files": {"headers": {"X": "{{secret:GITHUB_TOKEN}}"}}}
    async with App.open(home=tmp_path / "home", servers=said) as app:
        await app.policy.allow_adding_tools("builder")
        with pytest.raises(SettingsError, match="in the settings file"):
            await app.servers.add("files", own, actor=builder)
        added = await app.servers.add("files", {"url": "https://example.com/mcp"})
        assert added.settings.headers == said["files"]["headers"]
        with pytest.raises(SettingsError, match="in the settings file"):
            await app.servers.add("files", own, actor=builder, replace=True)
        with pytest.raises(SettingsError, match="in the settings file"):
            await app.servers.remove("files", actor=builder)


@pytest.mark.requirement("IO-5", "DOOR-6")
@pytest.mark.parametrize(
    "said",
    [
        {"servers": {"files": {"env": {"TOKEN": "{{secret:GITHUB_TOKEN}}"}, "isolation": "none"}}},
        {"secrets": {"use": {"GITHUB_TOKEN": [{"tool": "say", "tenant": "*", "server": "files"}]}}},
    ],
    ids=["servers", "secrets.use"],
)
@pytest.mark.parametrize("user", ["ann", "local"])
async def test_an_actor_puts_no_program_under_what_another_processs_settings_say(
    tmp_path: Path, said: dict[str, Any], user: str
) -> None:
    """Two processes on one database: only one of them knows that the name is the operator's."""
    builder, home = Actor("acme", "builder", user), tmp_path / "home"
    own = Upstream(tmp_path, tool("say")).settings(trust_first_seen=True)
    async with App.open(home=home) as elsewhere, App.open(home=home, **said) as app:
        for one in (app, elsewhere):
            await one.policy.allow_adding_tools("builder")
        with pytest.raises(SettingsError, match="in the settings file"):
            await app.servers.add("files", own, actor=builder)
        await elsewhere.servers.add("files", own, actor=builder)
        await elsewhere.servers.refresh("files")
        with pytest.raises(SettingsError, match=f"was added by acme/{user}"):
            await app.servers.refresh("files")
        assert [status.name for status in await app.servers.list()] == []
        assert (await app.invoke("mcp_files_say", {"text": "a"})).error.code == "TOOL_NOT_FOUND"  # type: ignore[union-attr]
        assert app.parts.servers_engine.names() == [], "it is not there to be started"
        assert "not used" in app.parts.mcp_tools.problems[0].why
        await app.servers.remove("files")
        await app.servers.add("files", own)
        assert [status.name for status in await app.servers.list()] == ["files"], "what the operator adds is completed"
        await elsewhere.servers.add("files", own, actor=builder, replace=True)
        assert [status.name for status in await app.servers.list()] == [], "nor may an actor take its place"


@pytest.mark.requirement("IO-5", "DOOR-6")
async def test_an_actor_adds_no_server_under_the_name_of_one_in_another_processs_settings(tmp_path: Path) -> None:
    builder, home = Actor("acme", "builder", "ann"), tmp_path / "home"
    theirs = Upstream(tmp_path, tool("say")).settings()
    async with App.open(home=home, servers={"files": theirs}) as app, App.open(home=home) as elsewhere:
        await elsewhere.policy.allow_adding_tools("builder")
        await app.servers.refresh("files")
        with pytest.raises(SettingsError, match="in the settings file of another process"):
            await elsewhere.servers.add("files", theirs, actor=builder)
        assert (await elsewhere.servers.add("other", theirs, actor=builder)).name == "other"


@pytest.mark.matrix("needs PostgreSQL")
@pytest.mark.requirement("MCP-2", "DOOR-6")
async def test_on_postgresql_too_a_name_stays_the_operators_and_a_changed_server_waits(
    tmp_path: Path, postgres_database: str
) -> None:
    builder, theirs = Actor("acme", "builder", "ann"), Upstream(tmp_path, tool("say")).settings()
    given: dict[str, Any] = {"home": tmp_path / "home", "database_url": postgres_database}
    async with App.open(**given, servers={"files": theirs}) as app, App.open(**given) as elsewhere:
        await elsewhere.policy.allow_adding_tools("builder")
        await app.servers.refresh("files")
        with pytest.raises(SettingsError, match="in the settings file of another process"):
            await elsewhere.servers.add("files", theirs, actor=builder)
        await elsewhere.servers.add("own", theirs)
        await elsewhere.servers.refresh("own")
        await elsewhere.servers.accept(await elsewhere.servers.quarantined("own"))
        assert (await elsewhere.servers.add("own", theirs, replace=True)).listed_at is not None, "it is the same"
        for level in ("1", "2"):
            changed = await elsewhere.servers.add("own", {**theirs, "env": {"LEVEL": level}}, replace=True)
            assert (changed.listed_at, changed.accepted) == (None, 1)
        assert (await elsewhere.invoke("mcp_own_say", {"text": "a"})).status == "failure"
        await elsewhere.servers.refresh("own")
        assert (await elsewhere.invoke("mcp_own_say", {"text": "a"})).ok

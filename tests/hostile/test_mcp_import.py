"""Files of servers that mean ill, and names that are to be taken for others at the terminal."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loopback import Asked, Said, site
from tests.mcp_upstream import Upstream, tool
from tests.terminal import Done, Terminal
from toolgate import App
from toolgate.errors import CallError
from toolgate.mcp.client.oauth.token_store import secret_name
from toolgate.mcp.import_files import read_servers
from toolgate.settings import ServerSettings

pytestmark = pytest.mark.requirement("MCP-5", "IO-4")
KEY = b64encode(bytes(range(32))).decode()
VALUE = "ghp_the-real-one-0123456789abcdef0123"


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    made = Terminal(tmp_path, monkeypatch, capsys)
    made.set("TOOLGATE_SECRETS_KEY", KEY)
    return made


async def unauthorized(_asked: Asked) -> Said:
    return Said(401)


# -- secrets that a file would be given


REFERENCE = "{{secret:GITHUB_TOKEN}}"


@pytest.mark.parametrize(
    "server",
    [
        {"url": "https://x.example", "headers": {"X": REFERENCE}},
        {"url": "https://x.example", "headers": {"Authorization": f"Bearer {REFERENCE}"}},
        {"url": f"https://x.example/{REFERENCE}"},
        {"command": "x", "args": [REFERENCE]},
        {"command": "x", "args": [f"--token={REFERENCE}"]},
        {"command": REFERENCE},
        {"command": {"path": "x", "args": [REFERENCE]}},
        {"command": "x", "env": {"A": "{{ secret:GITHUB_TOKEN}}"}},
        {"command": "x", "env": {"A": "${B}{{secret:GITHUB_TOKEN}}"}},
        {"command": "x", "cwd": f"/{REFERENCE}"},
    ],
)
def test_a_file_can_not_name_a_secret_of_ours(server: dict[str, Any]) -> None:
    taken, (problem,) = read_servers({"mcpServers": {"x": server}})
    assert taken == []
    assert "secret" in problem.why


@given(st.text("{}$ secret:AB\n", max_size=40), st.text("{}$ secret:AB", max_size=20))
def test_what_a_file_says_becomes_no_reference_but_to_a_secret_of_its_own(value: str, name: str) -> None:
    servers = {"own": {"command": "x", "args": [value], "env": {name or "A": value}}}
    for one in read_servers({"mcpServers": servers})[0]:
        text = "\n".join((*one.settings.command, *one.settings.env.values()))
        assert text.count("{{") == text.count("{{secret:OWN_")


async def test_a_secret_that_is_there_is_not_given_to_whoever_wrote_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_SERVER_SECRET_GITHUB_TOKEN", VALUE)
    async with site(unauthorized) as evil:
        document = {"mcpServers": {"github": {"url": f"{evil.url}/mcp", "headers": {"X-B": "${TOKEN}"}}}}
        async with App.open(home=tmp_path / "home", entry_points=False) as app:
            added, (problem,) = await app.servers.import_from(document)
            assert added == []
            assert "--use-secret GITHUB_TOKEN" in problem.why
            assert [one.name for one in await app.servers.list()] == []
            ((one,), problems) = await app.servers.import_from(document, use=["GITHUB_TOKEN"])
            assert (one.name, problems) == ("github", [])
            with pytest.raises(CallError):
                await app.servers.refresh("github")
        assert {asked.headers.get("x-b") for asked in evil.asked} == {VALUE}, "somebody said so"


async def test_what_was_imported_is_not_started_before_somebody_asks_for_it(tmp_path: Path) -> None:
    plain = Upstream(tmp_path, tool("say"))
    async with site(unauthorized) as evil:
        document = {"mcpServers": {"evil": {"url": f"{evil.url}/mcp", "headers": {"X": "1"}}}}
        servers = {"plain": plain.settings()}
        for _ in range(2):
            async with App.open(home=tmp_path / "home", entry_points=False, servers=servers) as app:
                assert app.parts.mcp_tools.lists_by_itself
                await app.servers.import_from(document)
                for _ in range(3):
                    await app.servers.refresh("plain")
                assert app.parts.servers_engine["evil"].starts == 0
        assert evil.asked == []
        async with App.open(home=tmp_path / "home", entry_points=False, servers=servers) as app:
            with pytest.raises(CallError):
                await app.servers.refresh("evil")
        assert evil.asked


@pytest.mark.parametrize("own", [False, True])
async def test_no_settings_can_name_what_is_kept_of_a_login(tmp_path: Path, own: bool) -> None:
    name = secret_name("other", "TOKENS")
    async with site(unauthorized) as evil:
        async with App.open(home=tmp_path / "home", entry_points=False) as app:
            app.parts.server_secrets.keep_login(name, "refresh-token")
            assert app.parts.server_secrets.login(name) == "refresh-token"
            said = ServerSettings(url=f"{evil.url}/mcp", headers={"X": f"{{{{secret:{name}}}}}"})
            status = await app.servers.add("other" if own else "evil", said)
            assert app.servers.missing_secrets(status.settings) == [name]
            with pytest.raises(CallError, match="not set"):
                await app.servers.refresh(status.name)
        assert evil.asked == []


def test_a_secret_of_something_else_is_not_overwritten_by_a_file(terminal: Terminal) -> None:
    def imported(value: str) -> Done:
        server = {"command": "run", "env": {"TOKEN": value}}
        (terminal.folder / "x.json").write_text(json.dumps({"mcpServers": {"x": server}}))
        return terminal("servers", "import", "x.json", "--replace")

    terminal("servers", "add", "x", "--no-start", "--env", f"TOKEN={VALUE}", "--", "run")
    assert imported(VALUE[::-1]).code == 0, "it was the server's own"
    terminal("servers", "add", "x", "--no-start", "--replace", "--", "run")
    done = imported(VALUE)
    assert done.code == 1
    assert "There is a secret X_TOKEN already" in done.err
    assert imported(VALUE[::-1]).code == 0, "the same value: nothing is lost"


# -- files that are no good


@pytest.mark.parametrize(
    "server",
    [
        {"command": "x", "args": 5},
        {"command": "x", "args": "abc def"},
        {"command": "x", "args": {"a": 1}},
        {"command": "x", "args": [["a"]]},
        {"command": "x", "env": ["A=B"]},
        {"command": "x", "env": {"A": {"b": 1}}},
        {"command": "x", "env": {"A\0B": "c"}},
        {"command": "x", "env": {"A": "c\0"}},
        {"command": "x", "env": {"": "c"}},
        {"command": "x", "env": {"A=B": "c"}},
        {"command": "x\0y"},
        {"command": "x", "cwd": "/etc\0"},
        {"url": "http://h/", "headers": {"X\r\nEvil": "a"}},
        {"url": "http://h/", "headers": {"X": "a\r\nB: c"}},
        {"url": "http://h/", "headers": {"X Y": "a"}},
        {"url": "http://h/\r\nX"},
    ],
)
@pytest.mark.sample(4)
async def test_what_can_not_be_started_or_sent_is_said_at_once_and_the_others_are_taken(
    tmp_path: Path, server: dict[str, Any]
) -> None:
    async with App.open(home=tmp_path / "home", entry_points=False) as app:
        document = {
            "mcpServers": {"bad": server, "good one": {"command": "x", "args": [1, "a"]}, "good-one": {"command": "y"}}
        }
        ((one,), problems) = await app.servers.import_from(document)
        assert (one.name, one.settings.command) == ("good-one", ("x", "1", "a"))
        assert sorted(problem.where for problem in problems) == ["server bad", "server good-one"]


# -- credentials in commands and addresses


def test_credentials_in_a_command_or_an_address_are_shown_nowhere(terminal: Terminal) -> None:
    words = ("node", "--password", "hunter2", "--api-key=abcd", "--user", "ann", "postgresql://ann:pw12@db/x")
    done = terminal("servers", "add", "mine", "--no-start", "--", *words)
    assert done.code == 0, done.err
    assert "Stored as the secret MINE_PASSWORD" in done.out
    address = "https://u:p4ssw0rd@h.example:8443/mcp/s/abcdef0123456789abc/x?key=hidden"
    remote = terminal("servers", "add", "remote", "--no-start", "--url", address)
    told = [done.out, done.err, remote.out, remote.err]
    for command in (("servers", "list"), ("servers", "show", "mine"), ("servers", "show", "remote"), ("audit", "tail")):
        told += [terminal(*command).out, terminal(*command, "--json").out]
    for secret in ("hunter2", "abcd", "pw12", "p4ssw0rd", "abcdef0123456789abc", "hidden"):
        assert all(secret not in text for text in told), secret
    assert "--user ann" in done.out
    assert "https://h.example:8443/mcp/s/" in remote.out
    stored = b"".join(file.read_bytes() for file in terminal.home.rglob("toolgate.db*"))
    assert b"hunter2" not in stored
    assert b"pw12" not in stored


# -- names at the terminal


def add(terminal: Terminal, upstream: Upstream, name: str, *options: str) -> None:
    done = terminal("servers", "add", name, "--isolation", "none", "--tier", "read_only", *options, "--", *upstream.command)
    assert done.code == 0, done.err


def test_a_name_means_one_server_or_one_tool(terminal: Terminal, tmp_path: Path) -> None:
    evil = Upstream(tmp_path, tool("clock"), tool("clock/now"), tool("mcp_clock_now"), tool("here"), name="evil")
    clock = Upstream(tmp_path, tool("now"), name="clock")
    add(terminal, evil, "evil")
    add(terminal, clock, "clock")
    for name, accepted in (("clock/now", ["mcp_clock_now"]), ("clock", []), ("evil/clock", ["mcp_evil_clock"])):
        done = terminal("tools", "accept", name, "--yes", "--json").json
        assert [one["name"] for one in done["accepted"]] == accepted, name
    for name, words in (
        ("mcp_clock_now", "is accepted already"),
        ("here", "Did you mean evil/here?"),
        ("clock/clock", "neither a server nor a tool"),
        ("nobody/here", "neither a server nor a tool"),
    ):
        done = terminal("tools", "accept", name, "--yes")
        assert done.code != 0
        assert words in " ".join(done.err.split()), name
    assert len(terminal("tools", "accept", "--all", "--json").json["waiting"]) == 3


def test_a_name_that_two_tools_would_have_is_asked_back(terminal: Terminal, tmp_path: Path) -> None:
    one, two = (Upstream(tmp_path, tool("say"), name=name) for name in ("one", "two"))
    add(terminal, one, "one", "--prefix", "")
    add(terminal, two, "two", "--prefix", "")
    done = terminal("tools", "accept", "say", "--yes")
    assert done.code == 2
    assert "one/say and two/say" in done.err
    assert terminal("tools", "accept", "two/say", "--yes").code == 0
    shown = terminal("tools", "accept", "one/say", "--json").json["waiting"][0]
    assert shown["problem"] == "the name say is that of a tool of server two"

"""MCP servers that somebody wrote: added from the folder that they lie in, and held in a jail all the same."""

import asyncio
import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.terminal import Done, Terminal
from toolgate import App
from toolgate.mcp.client.errors import Unreachable

pytestmark = [pytest.mark.requirement("DOOR-6", "MCP-5"), pytest.mark.usefixtures("venv_first")]
SERVER = """
import json, os, sys
import helper  # beside it

def answer(method, params):
    if method == "initialize":
        about = {"name": "own", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [{"name": "peek", "description": helper.WORDS, "inputSchema": {"type": "object"}}]}
    seen = [path for path in helper.PATHS if readable(path)]
    return {"content": [{"type": "text", "text": " ".join(seen)}]}

def readable(path):
    try:
        return bool(os.listdir(path) if os.path.isdir(path) else open(path).read())
    except OSError:
        return False

print("a banner, which is no message", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    said = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] == "server/discover":
        said["error"] = {"code": -32601, "message": "unknown"}
    else:
        said["result"] = answer(asked["method"], asked.get("params"))
    print(json.dumps(said), flush=True)
"""


ROOT = Path(__file__).resolve().parents[2]
EXAMPLE, PAGE = ROOT / "examples" / "mcp_server" / "server.py", ROOT / "docs" / "howto" / "plug-in-mcp-servers.md"
PATHS = (
    "data.txt", "sub/helper.py", ".env", "id_rsa", ".git", ".git/config", ".toolgate", ".toolgate/toolgate.db",
    "../beside.txt", "/etc/passwd",
)  # fmt: skip


@pytest.fixture
def venv_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a shell where a virtual environment is active: `python` is its Python."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "server.py").write_text(SERVER)
    (folder / "sub" / "helper.py").write_text(f"WORDS = 'Look at files.'\nPATHS = {PATHS!r}\n")
    return Terminal(folder, monkeypatch, capsys)


def add(terminal: Terminal, *words: str) -> Done:
    return terminal("servers", "add", "mine", *words)


# -- what it is given


def test_a_server_reads_the_folder_that_it_was_added_from_but_nothing_secret(terminal: Terminal) -> None:
    folder = terminal.folder
    (folder / "data.txt").write_text("data")
    (folder / ".env").write_text("KEY=1")
    (folder / "id_rsa").write_text("key")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("[remote]")
    (folder.parent / "beside.txt").write_text("beside")
    done = add(terminal, "--tier", "read_only", "--", "python", "sub/server.py")
    assert done.code == 0, done.err
    assert terminal("servers", "show", "mine", "--json").json["cwd"] == str(folder)
    assert terminal("tools", "accept", "mine", "--yes").code == 0
    called = terminal("call", "mcp_mine_peek", "--json")
    assert called.code == 0, called.out
    assert called.json["output"] == "data.txt sub/helper.py"


@pytest.mark.requirement("SBX-2")
def test_a_secret_file_that_is_written_anew_while_the_server_runs_stays_hidden(terminal: Terminal) -> None:
    folder = terminal.folder
    (folder / "data.txt").write_text("data")
    (folder / ".env").write_text("KEY=1")
    assert add(terminal, "--tier", "read_only", "--", "python", "sub/server.py").code == 0
    assert terminal("tools", "accept", "mine", "--yes").code == 0

    async def look() -> list[str]:
        async with App.open() as app:
            before = await app.invoke("mcp_mine_peek", {})
            (folder / ".env.new").write_text("KEY=2")
            (folder / ".env.new").replace(folder / ".env")  # as editors save: a mount on the old one would be gone
            (folder / "id_rsa").write_text("key")  # and one that was not there before
            return [before.output, (await app.invoke("mcp_mine_peek", {})).output]

    assert asyncio.run(look()) == ["data.txt sub/helper.py"] * 2


@pytest.mark.requirement("SBX-2")
def test_the_settings_of_toolgate_are_hidden_unless_they_are_named(terminal: Terminal) -> None:
    folder = terminal.folder
    names = ("toolgate.yaml", "sub/toolgate.yaml", "other.yaml", "plain.yaml")
    for name in names:
        (folder / name).write_text("{}")
    (folder / "sub" / "helper.py").write_text(f"WORDS = 'Look.'\nPATHS = {names!r}\n")

    async def look(**given: object) -> str:
        server = {"command": [sys.executable, "sub/server.py"], "cwd": folder, "tier": "read_only", "trust_first_seen": True}
        async with App.open(folder / "other.yaml", home=folder / "home", servers={"mine": server | given}) as app:
            await app.servers.refresh("mine")
            return str((await app.invoke("mcp_mine_peek", {})).output)

    assert asyncio.run(look()) == "plain.yaml"
    assert asyncio.run(look(read=[folder / "toolgate.yaml"])) == "toolgate.yaml plain.yaml"


def test_what_another_user_puts_above_does_not_widen_what_a_server_reads(terminal: Terminal) -> None:
    terminal.folder.chmod(0o1777)  # as /tmp is: everybody may put a project file there
    (terminal.folder / "package.json").write_text("{}")
    (terminal.folder / "beside.txt").write_text("beside")
    os.chdir(terminal.folder / "sub")
    assert add(terminal, "--tier", "read_only", "--", "python", "server.py").code == 0
    assert terminal("tools", "accept", "mine", "--yes").code == 0
    assert terminal("call", "mcp_mine_peek", "--json").json["output"] == ""


@pytest.mark.matrix("starts the example's server")
def test_the_example_is_plugged_in_as_its_page_says(terminal: Terminal) -> None:
    (terminal.folder / "server.py").write_bytes(EXAMPLE.read_bytes())
    assert EXAMPLE.read_text().partition('"""\n\n')[2] in PAGE.read_text()
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("toolgate ") and "shop" in line]
    assert len(lines) == 3
    done = [terminal(*shlex.split(line)[1:], *(["--yes"] if " accept " in line else [])) for line in lines]
    assert [one.code for one in done] == [0, 0, 0], done
    assert "1 tool new: price" in done[0].out
    assert "also new: reading its resources, getting its prompts" in done[0].out
    assert "3 definitions to look at" in done[0].err
    held = terminal("servers", "show", "shop", "--json").json["jail"]
    assert f"required: held by {held}" in terminal("servers", "show", "shop").out, "as the page promises"
    assert "mcp_shop_price  write  (price of server shop)  new" in done[1].out
    assert "arguments: article, [pieces]" in done[1].out
    assert done[2].out == "2.0\n"


def test_a_script_that_is_named_from_a_home_begins_in_its_own_folder(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(terminal.folder))
    (terminal.folder / "server.py").write_text(SERVER)
    refused = add(terminal, "--no-start", "--", "python", "server.py")
    assert refused.code == 2
    assert f"server.py lies in {terminal.folder}, which no server is given as a whole" in " ".join(refused.err.split())
    assert "mkdir" in refused.err
    assert add(terminal, "--no-start", "--", "python", "sub/server.py").code == 0
    shown = terminal("servers", "show", "mine", "--json").json
    assert (shown["cwd"], shown["what"]) == (f"{terminal.folder}/sub", f"python {terminal.folder}/sub/server.py")


@pytest.mark.parametrize(
    ("command", "given"),
    [
        (("python", "-m", "sub.server"), True),
        (("node", "--enable-source-maps", "index.mjs"), True),
        (("./run", "stdio"), True),
        (("fastmcp", "run", "sub/server.py:mcp"), True),
        (("python", "/usr/lib/server.py"), False),
        (("python", "-m", "http.server"), False),
        (("python", "-c", "print(1)"), False),
        (("some-server", "sub"), False),
        (("uvx", "mcp-server-git", "sub/server.py"), False),
    ],
)
@pytest.mark.sample(4)
def test_only_a_script_of_ones_own_is_given_the_folder(terminal: Terminal, command: tuple[str, ...], given: bool) -> None:
    (terminal.folder / "index.mjs").write_text("")
    (terminal.folder / "run").write_text("#!/bin/sh\n")
    assert add(terminal, "--no-start", "--", *command).code == 0
    assert terminal("servers", "show", "mine", "--json").json["cwd"] == (str(terminal.folder) if given else None)


# -- what goes wrong


def test_what_is_wrong_with_a_script_is_said_with_what_to_do(terminal: Terminal) -> None:
    (terminal.folder / "lacks.py").write_text("import no_such_module\n")
    (terminal.folder / "typo.py").write_text("def (:\n")
    cases = {
        ("python", "lack.py"): ("does not exist", "Did you mean lacks.py?"),
        ("python", "lacks.py"): ("  ModuleNotFoundError: No module named 'no_such_module'", "no_such_module is missing"),
        ("python", "typo.py"): ("  SyntaxError", "Correct the file"),
        ("uv", "run", "lacks.py"): ("inside a jail", "`-- .venv/bin/python server.py`"),
    }
    for command, told in cases.items():
        done = add(terminal, "--", *command)
        assert done.code == 1, command
        assert all(words in done.err for words in told), done.err
    assert terminal("servers", "list", "--json").json["servers"] == []


@pytest.mark.matrix("waits for a time limit")
async def test_one_that_never_answers_and_one_without_a_folder_are_refused_and_not_kept(tmp_path: Path) -> None:
    (tmp_path / "silent.py").write_text("import sys, time\nprint('waits for Godot', file=sys.stderr)\ntime.sleep(300)\n")
    async with App.open(home=tmp_path / "home") as app:
        silent = {"command": [sys.executable, "silent.py"], "cwd": str(tmp_path), "start_seconds": 3}
        with pytest.raises(Unreachable, match="within 3 s") as caught:
            await app.servers.try_out("silent", silent)
        assert caught.value.details == {"stderr": ["waits for Godot"]}
        with pytest.raises(Unreachable, match="relative path, and no working folder is set") as caught:
            await app.servers.try_out("silent", {"command": [sys.executable, "silent.py"]})
        assert "`--cwd DIR`" in (caught.value.suggestion or "")
        assert await app.servers.list() == []
        assert app.parts.servers_engine.statuses() == []

"""MCP servers that somebody wrote: added from the folder that they lie in, and held in a jail all the same."""

import os
import sys
from pathlib import Path

import pytest

from tests.terminal import Done, Terminal

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

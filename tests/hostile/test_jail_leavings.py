"""What a host that was killed leaves in a workspace: stand-ins for parts that must not come into being."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import jailed
from tests.hostile.jailed import ORDINARY, USERS
from toolgate.sandbox.jails import submounts

pytestmark = pytest.mark.requirement("SBX-2", "SBX-3")

PARTS = (".vscode/tasks.json", ".mcp.json")


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    who: str = request.param
    return who


@pytest.fixture
def folder(user: str) -> Iterator[Path]:
    with jailed.folder_of(user) as made:
        yield made


@pytest.fixture
def workspace(user: str, folder: Path) -> Path:
    made = folder / "work"
    made.mkdir()
    (made / "free").write_text("old")
    if os.geteuid() == 0 and user == "ordinary":
        for one in (made, made / "free"):
            os.chown(one, ORDINARY, ORDINARY)
    return made


def run(workspace: Path, code: str) -> dict[str, Any]:
    fixed = [str(workspace / part) for part in PARTS]
    return {"name": "one", "code": jailed.BEGIN + code, "workspace": str(workspace), "fixed": fixed}


@contextmanager
def holding(user: str, folder: Path, workspace: Path) -> Iterator[Any]:
    """A host whose program runs in the workspace until the host is killed."""
    runs = [run(workspace, "print('up', flush=True)\ntime.sleep(1000)\n")]
    plan = {"jail": "bubblewrap", "folder": str(folder), "runs": runs, "marker": "-", "hold": True}
    with jailed.started(plan, user) as host:
        assert host.stdout is not None
        assert json.loads(host.stdout.readline())["started"] == 1
        yield host
        host.send_signal(signal.SIGKILL)
        host.wait(30)


def make_way(user: str, folder: Path, workspace: Path) -> None:
    """Another program in the same workspace, of another host: it can't make the parts either."""
    code = """
open("free", "w").write("new")
control()
for path in (".vscode/tasks.json", ".vscode/other", ".mcp.json"): attempt(lambda: open(path, "w").write("x"), name=path)
for path in (".vscode", ".mcp.json"): attempt(os.rename, path, path + "2")
"""
    result = jailed.run("bubblewrap", user, folder, [run(workspace, code + jailed.END)])["results"]["one"]
    assert result["out"] == "control ok\nheld\n", result
    assert (workspace / "free").read_text() == "new"


def names(workspace: Path) -> list[str]:
    return sorted(path.name for path in workspace.iterdir())


def test_what_a_killed_host_left_goes_with_the_next_program(user: str, folder: Path, workspace: Path) -> None:
    with holding(user, folder, workspace):
        assert names(workspace) == [".mcp.json", ".vscode", "free"]
    assert names(workspace) == [".mcp.json", ".vscode", "free"]
    make_way(user, folder, workspace)
    assert names(workspace) == ["free"]


def test_what_another_host_still_needs_stays(user: str, folder: Path, workspace: Path) -> None:
    """Were it removed, the other's program could make the part itself."""
    with holding(user, folder, workspace):
        make_way(user, folder, workspace)
        assert names(workspace) == [".mcp.json", ".vscode", "free"]


def test_what_only_looks_empty_is_nobodys_stand_in(tmp_path: Path) -> None:
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".mcp.json").touch()
    for name in (".vscode", ".mcp.json"):
        assert not submounts.is_placeholder(tmp_path / name)
        assert not submounts.hold_place(tmp_path / name)


def test_what_was_filled_meanwhile_stays(tmp_path: Path) -> None:
    folder, file, empty = tmp_path / ".vscode", tmp_path / ".mcp.json", tmp_path / ".idea"
    for path in (folder, file, empty):
        assert submounts.hold_place(path) and submounts.is_placeholder(path)
    (folder / "tasks.json").touch()
    file.write_text("{}")
    submounts.release([folder, file, empty])
    assert names(tmp_path) == [".mcp.json", ".vscode"]


def test_it_is_held_as_often_as_it_was_asked_for(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    path = tmp_path / ".vscode"
    assert submounts.hold_place(path) and submounts.hold_place(path)
    submounts.release([path])
    assert path.exists()
    submounts.release([path])
    assert not path.exists()
    assert len(list(Path("/proc/self/fd").iterdir())) == before

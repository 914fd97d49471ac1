"""`toolgate workspace`: what was set aside is listed, shown, taken and dropped by a person."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.teletype import Teletype
from tests.terminal import Terminal
from toolgate import App
from toolgate.cli.main import main

pytestmark = pytest.mark.requirement("SBX-5")
CODE = """
import os
open("app.py", "w").write("one\\nthree\\n"); open("run.sh", "w").write("#!/bin/sh\\n"); os.chmod("run.sh", 0o777)
os.remove("old.py"); os.mkdir(".conf"); os.symlink("app.py", "link"); os.symlink("/etc/passwd", "out of here")
open("data.csv", "w").write("1"); os.chmod("data.csv", 0o666)
"""


@pytest.fixture
async def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in which code has run."""
    for name in list(os.environ):
        if name.startswith("TOOLGATE_"):
            monkeypatch.delenv(name)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "app.py").write_text("one\ntwo\n")
    (folder / "old.py").write_text("old")
    async with App.open(os.devnull, home=tmp_path / "home") as app:
        app.approvals.add_approver(lambda _request: True)
        app.sessions.work_in("s", folder)
        outcome = await app.invoke("code_execute", {"code": CODE, "session_files": True}, session="s")
        assert outcome.ok, outcome.error
    assert sorted(path.name for path in folder.iterdir()) == ["app.py", "data.csv", "old.py"]
    return folder


def run(tmp_path: Path, *words: str) -> int:
    return main(["--settings", os.devnull, "--home", str(tmp_path / "home"), "workspace", *words])


def listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    assert run(tmp_path, "list", "--json") == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)["sets"]
    return found


def test_what_was_set_aside_is_shown_with_its_differences(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (one,) = listed(tmp_path, capsys)
    assert (one["by"], one["workspace"]) == ("code_execute", str(work))
    main(["--settings", os.devnull, "--home", str(tmp_path / "home"), "doctor", "--json"])
    (waits,) = (check for check in json.loads(capsys.readouterr().out)["checks"] if check["name"] == "waiting")
    assert waits["message"] == "1 set of changes in workspaces"
    assert "`toolgate workspace list`" in waits["advice"]
    assert run(tmp_path, "list") == 0
    assert str(one["id"]) in capsys.readouterr().out
    assert run(tmp_path, "show", str(one["id"])[:4]) == 0
    shown = capsys.readouterr().out
    for line in ("-two", "+three", "deleted  old.py", "link     link -> app.py", "folder   .conf"):
        assert line in shown, shown
    assert "file     run.sh (executable)" in shown
    assert "file     app.py (executable)" not in shown


def test_what_is_taken_is_made_and_forgotten(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = listed(tmp_path, capsys)
    number = str(one["id"])
    assert run(tmp_path, "take", number, "app.py") == 2, "nobody is there to ask"
    assert (work / "app.py").read_text() == "one\ntwo\n"
    assert run(tmp_path, "take", number, "app.py", "--yes") == 0
    assert (work / "app.py").read_text() == "one\nthree\n"
    assert (work / "old.py").exists()
    capsys.readouterr()
    assert run(tmp_path, "take", number, "no such", "--yes") == 1
    assert "has no change to no such" in capsys.readouterr().err
    assert run(tmp_path, "take", number, "--yes") == 1, "a link out of the workspace can't be taken"
    assert "out of here" in capsys.readouterr().out
    assert not (work / "old.py").exists()
    assert os.access(work / "run.sh", os.X_OK)
    assert not any((work / name).stat().st_mode & 0o002 for name in ("run.sh", "data.csv")), "others may not write them"
    assert (work / ".conf").is_dir()
    assert str((work / "link").readlink()) == "app.py"
    assert not (work / "out of here").is_symlink()
    (left,) = listed(tmp_path, capsys)
    assert [change["path"] for change in left["changes"]] == ["out of here"]  # type: ignore[attr-defined]


def test_what_is_dropped_is_gone(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = listed(tmp_path, capsys)
    assert run(tmp_path, "drop", str(one["id"])) == 0
    capsys.readouterr()
    assert listed(tmp_path, capsys) == []
    assert sorted(path.name for path in work.iterdir()) == ["app.py", "data.csv", "old.py"]
    assert run(tmp_path, "show", str(one["id"])) == 1
    assert "toolgate workspace list" in capsys.readouterr().err
    assert run(tmp_path, "list") == 0


async def test_what_else_a_deletion_deletes_is_shown(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "src").mkdir()
    (work / "src" / "a.py").touch()
    async with App.open(os.devnull, home=tmp_path / "home") as app:
        app.approvals.add_approver(lambda _request: True)
        app.sessions.work_in("s", work)
        code = "import shutil; shutil.rmtree('src')"
        assert (await app.invoke("code_execute", {"code": code, "session_files": True}, session="s")).ok
        number = app.workspace.changes()[-1].id
    (work / "src" / "made since.py").touch()
    capsys.readouterr()
    await asyncio.to_thread(run, tmp_path, "show", number)
    assert "deleted  src with 2 files in it" in capsys.readouterr().out


def test_the_question_has_nothing_that_a_terminal_obeys(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = listed(tmp_path, capsys)
    file = tmp_path / "home" / "set-aside" / str(one["id"]) / "list.json"
    file.write_text(file.read_text().replace(str(work), f"{work}\\u001b[2J"))
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    options = ("--settings", os.devnull, "--home", str(tmp_path / "home"))
    asked = Teletype(terminal, *options, "workspace", "take", str(one["id"]))
    asked.type(after="[n] no > ", keys="n\n")
    assert asked.end() == 1
    assert "[2J" in asked.shown
    assert "\x1b" not in asked.shown


@pytest.mark.requirement("DOOR-6")
def test_what_a_newcomer_is_told_names_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    assert "No changes wait for review." in terminal("workspace", "list").err
    refused = terminal("workspace", "take", "f63cf02d")
    assert refused.code == 2
    assert "there is no terminal to ask at" in refused.err
    assert "`toolgate workspace show f63cf02d`" in refused.err
    assert "Made a new key" not in terminal("audit", "key").out
    assert "✓ Made a new key, which signs from now on." in terminal("audit", "key", "--rotate").out

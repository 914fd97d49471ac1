"""`toolgate workspace`: what was set aside is listed, shown, taken and dropped by a person."""

import json
import os
from pathlib import Path

import pytest

from toolgate import App
from toolgate.cli.main import main

pytestmark = pytest.mark.requirement("SBX-5")
CODE = """
import os
open("app.py", "w").write("one\\nthree\\n"); open("run.sh", "w").write("#!/bin/sh\\n"); os.chmod("run.sh", 0o755)
os.remove("old.py"); os.mkdir(".conf"); os.symlink("app.py", "link"); os.symlink("/etc/passwd", "out of here")
open("data.csv", "w").write("1")
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
        app.add_approver(lambda _request: True)
        app.work_in("s", folder)
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

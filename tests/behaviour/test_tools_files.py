"""`read_file`, `file_read`, `write_file`, `list_directory` and `create_directory`, and where they work."""

import base64
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from toolgate import Actor, App, Outcome
from toolgate.errors import Denied, InvalidInput
from toolgate.model import Call
from toolgate.sandbox.workspaces import Workspaces
from toolgate.store.audit_log import latest

pytestmark = [pytest.mark.requirement("BUILTIN-3"), pytest.mark.requirement("BUILTIN-4")]
ACME, GLOBEX = Actor("acme", user="ann"), Actor("globex", user="gus")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def places(tmp_path: Path, work: Path) -> Workspaces:
    return Workspaces(tmp_path / "home", work)


@pytest.fixture
async def app(tmp_path: Path, places: Workspaces, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    for name in list(os.environ):
        if name.startswith("TOOLGATE_") and name != "TOOLGATE_TRUST":
            monkeypatch.delenv(name)
    async with App.open(os.devnull, home=tmp_path / "home", limits={"backup_bytes": 10_000}) as app:
        app.provide(Workspaces, places)
        app.approvals.add_approver(lambda _request: True)
        yield app


def failed(outcome: Outcome, code: str) -> dict[str, Any]:
    assert outcome.error is not None, outcome
    assert outcome.error.code == code, outcome.error
    return outcome.error.details or {}


# -- reading


@pytest.mark.parametrize("name", ["read_file", "file_read"])
async def test_a_text_file_is_read(app: App, work: Path, name: str) -> None:
    (work / "notes.md").write_text("grüße\n")
    outcome = await app.invoke(name, {"path": "notes.md"})
    assert outcome.output == {"content": "grüße\n", "size": 8, "mimeType": "text/markdown"}
    assert outcome.metrics.resources_used == ("notes.md",)


async def test_any_file_is_read_as_base64(app: App, work: Path) -> None:
    data = bytes(range(256))
    (work / "data").write_bytes(data)
    outcome = await app.invoke("read_file", {"path": "data", "encoding": "base64"})
    assert base64.b64decode(outcome.output["content"]) == data
    assert (outcome.output["size"], outcome.output["mimeType"]) == (256, "application/octet-stream")


async def test_what_is_no_text_is_not_given_as_text(app: App, work: Path) -> None:
    (work / "picture.png").write_bytes(b"\x89PNG\xff")
    outcome = await app.invoke("read_file", {"path": "picture.png"})
    failed(outcome, "INVALID_INPUT")
    assert outcome.error is not None
    assert "base64" in (outcome.error.suggestion or "")


@pytest.mark.parametrize("path", ["none.txt", "none/there.txt", "notes.md/inside.txt"])
async def test_a_file_that_is_not_there_is_said_to_be_missing(app: App, work: Path, path: str) -> None:
    (work / "notes.md").write_text("x")
    assert failed(await app.invoke("read_file", {"path": path}), "INVALID_INPUT") == {"missing": True}


async def test_a_folder_is_not_read_as_a_file(app: App, work: Path) -> None:
    (work / "sub").mkdir()
    outcome = await app.invoke("read_file", {"path": "sub"})
    assert failed(outcome, "INVALID_INPUT") == {}


async def test_a_huge_file_is_not_read(app: App, work: Path) -> None:
    with (work / "huge.txt").open("wb") as file:
        file.truncate(10_000_001)
    failed(await app.invoke("read_file", {"path": "huge.txt"}), "INVALID_INPUT")


async def test_an_absolute_path_below_the_working_directory_is_as_good(app: App, work: Path) -> None:
    (work / "notes.md").write_text("x")
    assert (await app.invoke("read_file", {"path": str(work / "notes.md")})).output["content"] == "x"


# -- listing


async def test_a_folder_is_listed_by_name(app: App, work: Path) -> None:
    (work / "b.txt").write_text("four")
    (work / "a").mkdir()
    (work / "c").symlink_to("b.txt")
    os.mkfifo(work / "d")
    os.utime(work / "b.txt", (0, 1_700_000_000))
    outcome = await app.invoke("list_directory", {})
    entries = outcome.output["entries"]
    assert [(entry["name"], entry["type"], entry["size"]) for entry in entries] == [
        ("a", "directory", None), ("b.txt", "file", 4), ("c", "link", None), ("d", "other", None),
    ]  # fmt: skip
    assert entries[1]["modified"] == "2023-11-14T22:13:20Z"
    assert (outcome.output["path"], outcome.output["truncated"]) == (".", False)


async def test_a_file_is_listed_as_itself(app: App, work: Path) -> None:
    (work / "sub").mkdir()
    (work / "sub" / "b.txt").write_text("four")
    outcome = await app.invoke("list_directory", {"path": "sub/b.txt"})
    assert [entry["name"] for entry in outcome.output["entries"]] == ["b.txt"]


async def test_names_that_are_no_text_are_listed_all_the_same(app: App, work: Path) -> None:
    Path(os.fsdecode(os.fsencode(work) + b"/\xff.txt")).touch()
    outcome = await app.invoke("list_directory", {})
    assert [entry["name"] for entry in outcome.output["entries"]] == ["\ufffd.txt"]


async def test_a_folder_that_is_not_there_is_said_to_be_missing(app: App) -> None:
    assert failed(await app.invoke("list_directory", {"path": "none"}), "INVALID_INPUT") == {"missing": True}


# -- writing


async def test_a_file_is_written_and_the_write_undone(app: App, work: Path) -> None:
    made = await app.invoke("write_file", {"path": "a/b/new.txt", "content": "grüße"})
    assert made.output == {"success": True, "bytesWritten": 7}
    assert (work / "a/b/new.txt").read_text() == "grüße"
    changed = await app.invoke("write_file", {"path": "a/b/new.txt", "content": "other"})
    assert changed.ok
    await app.undo.revert(changed.id)
    assert (work / "a/b/new.txt").read_text() == "grüße"
    await app.undo.revert(made.id)
    assert not (work / "a").exists()


async def test_writing_asks_first(tmp_path: Path, places: Workspaces, work: Path) -> None:
    async with App.open(os.devnull, home=tmp_path / "home") as app:
        app.provide(Workspaces, places)
        outcome = await app.invoke("write_file", {"path": "a.txt", "content": "x"})
        assert outcome.status == "pending"
        assert list(work.iterdir()) == []


async def test_a_file_that_is_replaced_keeps_its_rights_and_its_other_names_their_content(app: App, work: Path) -> None:
    script = work / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    os.link(script, work / "same.sh")
    assert (await app.invoke("write_file", {"path": "run.sh", "content": "new"})).ok
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == ("new", 0o750)
    assert (work / "same.sh").read_text() == "old"
    assert sorted(path.name for path in work.iterdir()) == ["run.sh", "same.sh"]


async def test_folders_are_made_only_if_that_is_wanted(app: App, work: Path) -> None:
    outcome = await app.invoke("write_file", {"path": "a/b.txt", "content": "x", "createDirs": False})
    assert failed(outcome, "INVALID_INPUT") == {"missing": True}
    assert list(work.iterdir()) == []


@pytest.mark.parametrize("path", [".", "sub", "sub/", "sub/.", "./sub/../sub"])
async def test_a_folder_is_not_overwritten(app: App, work: Path, path: str) -> None:
    (work / "sub").mkdir()
    (work / "sub" / "kept.txt").write_text("x")
    failed(await app.invoke("write_file", {"path": path, "content": "x"}), "INVALID_INPUT")
    assert (work / "sub" / "kept.txt").read_text() == "x"


async def test_what_can_not_be_kept_is_not_overwritten(app: App, work: Path) -> None:
    (work / "big.txt").write_text("x" * 20_000)
    failed(await app.invoke("write_file", {"path": "big.txt", "content": "y"}), "PERMISSION_DENIED")
    assert (work / "big.txt").stat().st_size == 20_000


@at_most(40)
@given(text=st.text(max_size=200))
async def test_what_was_written_is_what_is_read(app: App, text: str) -> None:
    written = await app.invoke("write_file", {"path": "text.txt", "content": text})
    assert written.ok, written.error
    read = await app.invoke("read_file", {"path": "text.txt"})
    assert (read.output["content"], read.output["size"]) == (text, written.output["bytesWritten"])


async def test_a_folder_is_made_and_unmade(app: App, work: Path) -> None:
    made = await app.invoke("create_directory", {"path": "a/b/c"})
    assert made.output == {"path": "a/b/c", "created": True}
    again = await app.invoke("create_directory", {"path": "a/b/c"})
    assert again.output == {"path": "a/b/c", "created": False}
    await app.undo.revert(made.id)
    assert list(work.iterdir()) == []
    assert failed(await app.invoke("create_directory", {"path": "a/b", "parents": False}), "INVALID_INPUT") == {
        "missing": True
    }
    (work / "file").touch()
    failed(await app.invoke("create_directory", {"path": "file"}), "INVALID_INPUT")
    assert (await app.invoke("create_directory", {"path": "."})).output["created"] is False


# -- where


async def test_a_session_has_a_folder_of_its_own(app: App, work: Path, places: Workspaces) -> None:
    for actor, session in ((ACME, "one"), (ACME, "two"), (GLOBEX, "one")):
        wrote = await app.invoke(
            "write_file", {"path": "who.txt", "content": f"{actor.tenant} {session}"}, actor=actor, session=session
        )
        assert wrote.ok, wrote.error
    for actor, session in ((ACME, "one"), (ACME, "two"), (GLOBEX, "one")):
        read = await app.invoke("read_file", {"path": "who.txt"}, actor=actor, session=session)
        assert read.output["content"] == f"{actor.tenant} {session}"
    assert list(work.iterdir()) == []
    folder = places.of(Call("", "", None, ACME, "one"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


async def test_a_session_can_be_given_a_folder(app: App, places: Workspaces, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("here")
    (tmp_path / "link").symlink_to(project)
    assert places.set(ACME, "one", tmp_path / "link") == project
    assert (await app.invoke("read_file", {"path": "a.txt"}, actor=ACME, session="one")).output["content"] == "here"
    failed(await app.invoke("read_file", {"path": "a.txt"}, actor=GLOBEX, session="one"), "INVALID_INPUT")
    with pytest.raises(InvalidInput):
        places.set(ACME, "one", tmp_path / "none")
    with pytest.raises(InvalidInput):
        places.set(ACME, "one", project / "a.txt")


@pytest.mark.parametrize("folder", ["/", "/etc", "/usr/bin", "/proc/self", "/tmp", "/home"])
def test_the_system_is_no_working_directory(places: Workspaces, folder: str) -> None:
    with pytest.raises(Denied):
        places.set(ACME, "one", Path(folder))


def test_toolgates_own_folder_is_no_working_directory(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "tools").mkdir(parents=True)
    (tmp_path / ".ssh").mkdir()
    places = Workspaces(home, home)
    with pytest.raises(Denied):
        places.of(Call("", "", None))
    for folder in (home, home / "tools", home / "sessions", tmp_path / ".ssh", Path.home()):
        folder.mkdir(exist_ok=True)
        with pytest.raises(Denied):
            places.set(ACME, "one", folder)
    with pytest.raises(Denied):  # another session's
        places.set(ACME, "one", places.of(Call("", "", None, ACME, "two")))
    assert places.set(ACME, "one", tmp_path) == tmp_path


names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=100)
whose = st.tuples(names, names, st.text(max_size=300))


@at_most(60)
@given(whose, whose)
def test_the_name_of_a_session_is_never_the_name_of_its_folder(
    places: Workspaces, tmp_path: Path, one: tuple[str, str, str], two: tuple[str, str, str]
) -> None:
    sessions = tmp_path / "home" / "sessions"
    found = [places.of(Call("", "", None, Actor(tenant, user=user), name)) for tenant, user, name in (one, two)]
    assert (found[0] == found[1]) == (one == two)
    assert all(folder.parent == sessions and len(folder.name) == 40 for folder in found)


def test_what_a_program_may_not_change_or_see(tmp_path: Path) -> None:
    top = tmp_path / "project"
    plain = ["src/app.ts", "src/secrets/index.ts", "README.md", "Makefile", "node_modules/x/.env", "a.pub"]
    hidden = [".env", "deep/er/.env.local", "server.pem", ".ssh/id_rsa", "src/secrets/prod.yml", ".toolgate/toolgate.db"]
    fixed = [".git/hooks/pre-commit", ".git/config", "sub/.bashrc", "toolgate.yaml", "any name/pyvenv.cfg"]
    fixed += ["web/node_modules/.bin/tsc", ".venv/pyvenv.cfg"]
    for name in (*plain, *hidden, *fixed):
        file = top / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    os.link(top / ".env", top / "src" / "notes.txt")
    (top / "link.txt").symlink_to(".env")
    parts = Workspaces(top / ".toolgate", top).parts(top)
    assert {str(path.relative_to(top)) for path in parts.hidden} == {
        ".env", "deep/er/.env.local", "server.pem", ".ssh", "src/secrets/prod.yml", ".toolgate", "src/notes.txt",
    }  # fmt: skip
    assert {str(path.relative_to(top)) for path in parts.fixed} == {
        ".git", "sub/.bashrc", "toolgate.yaml", "any name", ".venv", "web/node_modules/.bin",
    }  # fmt: skip
    by_git = Workspaces(top / ".toolgate", top).parts(top, writes_git=True)
    assert {str(path.relative_to(top)) for path in by_git.fixed} >= {".git/hooks", ".git/config"}
    assert top / ".git" not in by_git.fixed


def test_a_folder_that_is_too_large_to_search_is_no_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.sandbox.workspace_scan.MAX_SCANNED_ENTRIES", 50)
    for number in range(50):
        (tmp_path / f"{number}.txt").touch()
    places = Workspaces(tmp_path / "home", tmp_path)
    assert places.parts(tmp_path).hidden == ()
    (tmp_path / "one more").touch()
    with pytest.raises(Denied):
        places.parts(tmp_path)


async def test_what_was_read_and_refused_is_on_record(app: App, work: Path) -> None:
    (work / "a.txt").write_text("x")
    await app.invoke("read_file", {"path": "a.txt"})
    await app.invoke("read_file", {"path": "../../etc/hostname"})
    await app.flush()
    ends = [row for row in await app.parts.store.read(latest(20)) if row[2] == "end"]
    assert [row[6] for row in ends] == ["success", "denied"]


async def test_a_folder_can_be_listed_as_itself(app: App, work: Path) -> None:
    (work / "sub").mkdir()
    (work / "sub" / "a.txt").touch()
    outcome = await app.invoke("list_directory", {"path": "sub", "self": True})
    assert [(entry["name"], entry["type"]) for entry in outcome.output["entries"]] == [("sub", "directory")]


@pytest.mark.requirement("BUILTIN-2")
@pytest.mark.parametrize("tool", ["read_file", "list_directory"])
async def test_a_path_that_leads_out_is_answered_with_the_way_to_the_working_directory(app: App, tool: str) -> None:
    error = (await app.invoke(tool, {"path": "../outside.txt"})).error
    assert error is not None and error.code == "SECURITY_VIOLATION"
    assert error.suggestion is not None and "below the working directory" in error.suggestion
    assert "--workspace" in error.suggestion and "paths.allowed" not in error.suggestion

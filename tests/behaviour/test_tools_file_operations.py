"""`file_operations`: one tool for all that can be done to files, each operation in its own tier, every change undone."""

import os
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from toolgate import App, GrantTerms, Outcome
from toolgate.gates.approval.request import ApprovalError
from toolgate.sandbox.workspaces import Workspaces
from toolgate.undo import NoBackup

pytestmark = pytest.mark.requirement("BUILTIN-5")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
async def app(tmp_path: Path, work: Path) -> AsyncIterator[App]:
    async with App.open(os.devnull, home=tmp_path / "home", limits={"backup_bytes": 10_000}) as app:
        app.provide(Workspaces, Workspaces(tmp_path / "home", work, rules=lambda: app.parts.tiers.paths))
        app.approvals.add_approver(lambda _request: True)
        yield app


async def call(app: App, operation: str, path: str, **more: Any) -> Outcome:
    return await app.invoke("file_operations", {"operation": operation, "path": path, **more})


async def done(app: App, operation: str, path: str, **more: Any) -> Any:
    outcome = await call(app, operation, path, **more)
    assert outcome.ok, outcome.error
    return outcome.output


async def refused(app: App, operation: str, path: str, **more: Any) -> str:
    outcome = await call(app, operation, path, **more)
    assert outcome.error is not None, outcome
    assert str(Path.cwd()) not in outcome.error.message
    return outcome.error.code


async def test_each_operation_does_its_work(app: App, work: Path) -> None:
    assert await done(app, "exists", "a.txt") == {"exists": False, "type": None}
    assert await done(app, "write", "sub/a.txt", content="one\ntwo\n") == {"success": True, "bytesWritten": 8}
    assert await done(app, "exists", "sub/a.txt") == {"exists": True, "type": "file"}
    assert await done(app, "exists", "sub") == {"exists": True, "type": "directory"}
    assert (await done(app, "read", "sub/a.txt"))["content"] == "one\ntwo\n"
    assert [entry["name"] for entry in (await done(app, "list", "sub"))["entries"]] == ["a.txt"]
    edited = await done(app, "edit", "sub/a.txt", pattern="two", replacement="three")
    assert edited == {"success": True, "bytesWritten": 10, "replacements": 1}
    assert (work / "sub/a.txt").read_text() == "one\nthree\n"
    assert await done(app, "delete", "sub") == {"success": True, "deleted": 2}
    assert list(work.iterdir()) == []


@pytest.mark.requirement("TIER-1")
@pytest.mark.parametrize(
    ("operation", "more", "asks"),
    [
        ("read", {}, False), ("list", {}, False), ("exists", {}, False), ("write", {"content": "y"}, True),
        ("edit", {"pattern": "x", "replacement": "y"}, True), ("delete", {}, True),
    ],
)  # fmt: skip
async def test_only_what_changes_something_asks(
    tmp_path: Path, work: Path, operation: str, more: dict[str, str], asks: bool
) -> None:
    (work / "a.txt").write_text("x")
    async with App.open(os.devnull, home=tmp_path / "home") as app:
        app.provide(Workspaces, Workspaces(tmp_path / "home", work))
        outcome = await call(app, operation, "a.txt", **more)
        assert outcome.status == ("pending" if asks else "success"), outcome
        assert (work / "a.txt").read_text() == "x"


async def test_no_grant_covers_a_deletion(tmp_path: Path, work: Path) -> None:
    (work / "a.txt").write_text("x")
    async with App.open(os.devnull, home=tmp_path / "home") as app:
        app.provide(Workspaces, Workspaces(tmp_path / "home", work))
        await app.grants.create("file_operations", GrantTerms("user", seconds=60), operation="write")
        assert (await call(app, "write", "a.txt", content="y")).ok
        assert (await call(app, "edit", "a.txt", pattern="y", replacement="z")).status == "pending"
        with pytest.raises(ApprovalError):
            await app.grants.create("file_operations", GrantTerms("user", seconds=60), operation="delete")
        assert (await call(app, "delete", "a.txt")).status == "pending"
        assert (work / "a.txt").read_text() == "y"


# -- editing


async def test_an_edit_must_be_clear(app: App, work: Path) -> None:
    file = work / "a.txt"
    file.write_text("one\ntwo\none\n")
    outcome = await call(app, "edit", "a.txt", pattern="one", replacement="1")
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.details) == ("INVALID_INPUT", {"matches": 2})
    assert "lines 1, 3" in outcome.error.message
    assert await refused(app, "edit", "a.txt", pattern="four", replacement="4") == "INVALID_INPUT"
    assert await refused(app, "edit", "a.txt", pattern="", replacement="4") == "INVALID_INPUT"
    assert await refused(app, "edit", "a.txt", pattern="one") == "INVALID_INPUT"
    assert await refused(app, "edit", "none.txt", pattern="one", replacement="1") == "INVALID_INPUT"
    assert await refused(app, "write", "a.txt") == "INVALID_INPUT"
    assert file.read_text() == "one\ntwo\none\n"
    edited = await done(app, "edit", "a.txt", pattern="one", replacement="1", replaceAll=True)
    assert (edited["replacements"], file.read_text()) == (2, "1\ntwo\n1\n")


async def test_an_edit_keeps_line_ends_marks_and_rights(app: App, work: Path) -> None:
    file = work / "run.sh"
    file.write_bytes("\ufeffone\r\ntwo\r\n".encode())
    file.chmod(0o750)
    await done(app, "edit", "run.sh", pattern="two\r\n", replacement="2\r\n")
    assert file.read_bytes() == "\ufeffone\r\n2\r\n".encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o750


async def test_only_text_is_edited(app: App, work: Path) -> None:
    (work / "data").write_bytes(b"\xff one")
    assert await refused(app, "edit", "data", pattern="one", replacement="1") == "INVALID_INPUT"
    assert (work / "data").read_bytes() == b"\xff one"


# -- backup and undo


async def test_a_backup_can_be_done_without(app: App, work: Path) -> None:
    (work / "big.txt").write_text("x" * 20_000)
    assert await refused(app, "write", "big.txt", content="y") == "PERMISSION_DENIED"
    outcome = await call(app, "write", "big.txt", content="y", backup=False)
    assert outcome.ok
    assert (work / "big.txt").read_text() == "y"
    with pytest.raises(NoBackup):
        await app.undo.revert(outcome.id)


async def test_what_can_not_be_kept_is_not_deleted(app: App, work: Path) -> None:
    (work / "sub").mkdir()
    (work / "sub" / "big.txt").write_text("x" * 20_000)
    (work / "sub" / "a.txt").write_text("x")
    assert await refused(app, "delete", "sub") == "PERMISSION_DENIED"
    assert sorted(path.name for path in (work / "sub").iterdir()) == ["a.txt", "big.txt"]


async def test_a_deleted_folder_comes_back_as_it_was(app: App, work: Path) -> None:
    (work / "sub" / "in").mkdir(parents=True)
    (work / "sub" / "in" / "run.sh").write_bytes(b"\xff\x00")
    (work / "sub" / "in" / "run.sh").chmod(0o751)
    (work / "sub" / "link").symlink_to("in/run.sh")
    (work / "sub" / "empty").mkdir(mode=0o700)
    before = tree(work)
    outcome = await call(app, "delete", "sub")
    assert outcome.output == {"success": True, "deleted": 5}
    assert list(work.iterdir()) == []
    await app.undo.revert(outcome.id)
    assert tree(work) == before


def tree(top: Path) -> dict[str, tuple[int, bytes | str | None]]:
    """All that is below a folder: kind and rights, and content or target."""
    found: dict[str, tuple[int, bytes | str | None]] = {}
    for path in sorted(top.rglob("*")):
        mode = path.lstat().st_mode
        held = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(top))] = (mode if not path.is_symlink() else stat.S_IFLNK, held)
    return found


PATHS = st.sampled_from(["a.txt", "b.txt", "d", "d/a.txt", "d/e", "d/e/f.txt", "d/e/g.txt", "h/i/j.txt", "link", "d/link2"])
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), PATHS, st.fixed_dictionaries({"content": st.text(max_size=8)})),
        st.tuples(
            st.just("edit"),
            PATHS,
            st.fixed_dictionaries(
                {
                    "pattern": st.sampled_from(["x", "one", "é"]),
                    "replacement": st.text(max_size=4),
                    "replaceAll": st.booleans(),
                }
            ),
        ),
        st.tuples(st.just("delete"), PATHS, st.just({})),
        st.tuples(st.just("create_directory"), PATHS, st.just({})),
    ),
    min_size=1,
    max_size=8,
)


@at_most(40)
@given(changes=CHANGES, modes=st.lists(st.sampled_from([0o600, 0o644, 0o750, 0o444]), min_size=3, max_size=3))
async def test_after_any_changes_undo_gives_the_tree_before(
    app: App, work: Path, changes: list[tuple[str, str, dict[str, Any]]], modes: list[int]
) -> None:
    for old in sorted(work.rglob("*"), reverse=True):
        old.rmdir() if old.is_dir() and not old.is_symlink() else old.unlink()
    (work / "d" / "e").mkdir(parents=True)
    for name, mode in zip(("a.txt", "d/a.txt", "d/e/f.txt"), modes, strict=True):
        (work / name).write_text("one x é x")
        (work / name).chmod(mode)
    (work / "link").symlink_to("a.txt")
    before = tree(work)
    calls: list[str] = []
    for operation, path, more in changes:
        if operation == "create_directory":
            outcome = await app.invoke("create_directory", {"path": path})
        else:
            outcome = await call(app, operation, path, **more)
        if outcome.ok:
            calls.append(outcome.id)
        else:
            assert outcome.error is not None
            assert outcome.error.code in ("INVALID_INPUT", "SECURITY_VIOLATION"), outcome.error
    for id in reversed(calls):
        with suppress(NoBackup):  # a folder that was there already
            await app.undo.revert(id)
    assert tree(work) == before

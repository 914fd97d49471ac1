"""`file_operations` and `file_search` under attack: ways out, links that somebody turns, hard links, pipes, devices, depth.

There is a file outside that the host can read and write; no call may give out what is in it, or change or delete it.
"""

import asyncio
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
from tests.hostile.test_file_tools import MARKER, World, assert_told_nothing, turning, ways_out
from toolgate import App, Outcome
from toolgate.sandbox.workspaces import Workspaces

QUICK = {
    "test_no_way_out_is_read_listed_or_told_of",
    "test_no_way_out_is_changed",
    "test_a_folder_is_deleted_without_what_its_links_lead_to",
    "test_secrets_are_neither_changed_nor_found_nor_deleted",
    "test_toolgates_own_data_is_out_of_reach",
    "test_a_search_does_not_leave_the_working_directory",
}

pytestmark = [pytest.mark.requirement("TIER-1"), pytest.mark.requirement("BUILTIN-5")]
EDIT = {"pattern": MARKER, "replacement": "pwned"}
CHANGES: dict[str, dict[str, str]] = {"write": {"content": "pwned"}, "edit": EDIT, "delete": {}}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
async def app(world: World) -> AsyncIterator[App]:
    async with App.open(os.devnull, home=world.home) as app:
        app.provide(Workspaces, Workspaces(world.home, world.work, rules=lambda: app.parts.tiers.paths))
        app.approvals.add_approver(lambda _request: True)
        yield app


async def call(app: App, operation: str, path: str, **more: Any) -> Outcome:
    return await asyncio.wait_for(app.invoke("file_operations", {"operation": operation, "path": path, **more}), 60)


async def search(app: App, mode: str, query: str, **more: Any) -> Outcome:
    return await asyncio.wait_for(app.invoke("file_search", {"mode": mode, "query": query, **more}), 60)


# -- ways out


async def test_no_way_out_is_read_listed_or_told_of(app: App, world: World) -> None:
    assert (await call(app, "read", "ok.txt")).output["content"] == "fine"
    for path in ways_out(world):
        assert_told_nothing(await call(app, "read", path))
        if not path:  # the working directory itself
            continue
        listed = await call(app, "list", path)
        assert listed.status in ("denied", "failure"), (path, listed)
        exists = await call(app, "exists", path)
        assert exists.status in ("denied", "failure") or exists.output["exists"] is False, (path, exists)
    for path in ("../outside/none.txt", "folder/none.txt", "/etc/none", "root/etc/none", "up/none"):
        assert (await call(app, "exists", path)).status == "denied", "whether a file is outside is not told either"


@pytest.mark.parametrize("operation", CHANGES)
async def test_no_way_out_is_changed(app: App, world: World, operation: str) -> None:
    for path in ways_out(world):
        outcome = await call(app, operation, path, **CHANGES[operation])
        assert operation == "write" or not outcome.ok or path == "circle", (path, outcome)  # a link to itself is inside
        assert MARKER not in str(outcome.output)
        world.unharmed()
    for path in ("..", ".", "/", "", "sub/..", "./", str(world.work), "../work", "folder", "up", "root", "magic", "folder/"):
        assert not (await call(app, operation, path, **CHANGES[operation])).ok, path
        world.unharmed()
    assert (world.work / "ok.txt").read_text() == "fine"


async def test_a_folder_is_deleted_without_what_its_links_lead_to(app: App, world: World) -> None:
    inner = world.work / "inner-folder"
    (inner / "deep").mkdir(parents=True)
    (inner / "file").symlink_to(world.victim)
    (inner / "deep" / "folder").symlink_to(world.outside)
    (inner / "deep" / "up").symlink_to("../../..")
    (inner / "circle").symlink_to("circle")
    before = {path: path.readlink() for path in inner.rglob("*") if path.is_symlink()}
    outcome = await call(app, "delete", "inner-folder")
    assert outcome.ok, outcome.error
    assert not inner.exists()
    world.unharmed()
    await app.undo.revert(outcome.id)
    assert {path: path.readlink() for path in inner.rglob("*") if path.is_symlink()} == before
    world.unharmed()


async def test_a_link_that_stays_inside_is_deleted_itself(app: App, world: World) -> None:
    (world.work / "sub" / "a.txt").write_text("inside")
    (world.work / "to-a").symlink_to("sub/a.txt")
    (world.work / "nowhere").symlink_to("sub/none")
    for name in ("to-a", "nowhere", "inner"):
        outcome = await call(app, "delete", name)
        assert outcome.ok, (name, outcome.error)
        assert not os.path.lexists(world.work / name)
        await app.undo.revert(outcome.id)
        assert (world.work / name).is_symlink()
    assert (world.work / "sub" / "a.txt").read_text() == "inside"


async def test_an_edit_goes_through_no_link(app: App, world: World) -> None:
    (world.work / "sub" / "a.txt").write_text("inside")
    (world.work / "to-a").symlink_to("sub/a.txt")
    for path in ("to-a", "inner/a.txt"):
        outcome = await call(app, "edit", path, pattern="inside", replacement="x")
        assert outcome.status == "denied", (path, outcome)
    assert (world.work / "sub" / "a.txt").read_text() == "inside"


async def test_the_other_name_of_a_file_outside_keeps_its_content(app: App, world: World) -> None:
    """A hard link that somebody else made: what is written is a new file, and what is deleted is the name."""
    for operation, more in CHANGES.items():
        os.link(world.victim, world.work / "hard.txt")
        outcome = await call(app, operation, "hard.txt", **more)
        assert outcome.ok, (operation, outcome.error)
        assert world.victim.read_text() == MARKER
        (world.work / "hard.txt").unlink(missing_ok=True)
    world.unharmed()


# -- what is protected


async def test_secrets_are_neither_changed_nor_found_nor_deleted(app: App, world: World) -> None:
    secrets = (".env", "config/.env.production", "server.pem", ".ssh/id_rsa", ".aws/credentials", "sub/keys/id_ed25519")
    for name in secrets:
        file = world.work / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{MARKER}\n")
    os.link(world.work / ".env", world.work / "sub" / "innocent.txt")
    (world.work / "plain.txt").symlink_to(".env")
    for name in (*secrets, "sub/innocent.txt", "plain.txt"):
        for operation, more in {"read": {}, **CHANGES}.items():
            outcome = await call(app, operation, name, **more)
            assert outcome.status == "denied", (operation, name, outcome)
            assert MARKER not in str(outcome.to_dict())
    for folder in (".ssh", ".aws", "config", "sub"):
        outcome = await call(app, "delete", folder)
        assert outcome.status == "denied", (folder, outcome)
    for name in secrets:
        assert (world.work / name).read_text() == f"{MARKER}\n"
    for mode in ("grep", "regex"):
        for narrowed in ({}, {"hidden": True}, {"include": [".env", "*.pem", "id_*"]}, {"path": "sub"}, {"path": "config"}):
            outcome = await search(app, mode, MARKER, **narrowed)
            assert MARKER not in str(outcome.output), (mode, narrowed, outcome)
    for path in (".ssh", ".aws"):
        assert (await search(app, "grep", MARKER, path=path)).status == "denied"


async def test_what_runs_later_is_not_changed_or_deleted(app: App, world: World) -> None:
    for name in (".git/hooks/pre-commit", ".git/config", ".vscode/tasks.json", "sub/.husky/pre-push", ".bashrc"):
        file = world.work / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(MARKER)
    for path in (".git", ".git/hooks/pre-commit", ".git/config", ".vscode", ".vscode/tasks.json", "sub", ".bashrc"):
        for operation, more in CHANGES.items():
            outcome = await call(app, operation, path, **more)
            assert not outcome.ok, (operation, path)
    assert (world.work / ".git/config").read_text() == MARKER
    assert (world.work / "sub/.husky/pre-push").read_text() == MARKER
    assert "config" not in str((await search(app, "glob", "**", hidden=True)).output["files"])


async def test_toolgates_own_data_is_out_of_reach(world: World) -> None:
    home = world.work / ".toolgate"
    async with App.open(os.devnull, home=home) as app:
        app.provide(Workspaces, Workspaces(home, world.work, rules=lambda: app.parts.tiers.paths))
        app.approvals.add_approver(lambda _request: True)
        (home / "note.txt").write_text(MARKER)
        for operation, more in {"read": {}, "list": {}, "exists": {}, **CHANGES}.items():
            for path in (
                ".toolgate",
                ".toolgate/note.txt",
                ".toolgate/toolgate.db",
                "sub/../.toolgate/note.txt",
                ".TOOLGATE",
            ):
                outcome = await call(app, operation, path, **more)
                is_absent = path == ".TOOLGATE" and outcome.ok and outcome.output.get("exists") is False
                assert not outcome.ok or is_absent, (operation, path)
        for patterns in ([], ["**/note.txt"]):
            outcome = await search(app, "grep", MARKER, include=patterns, hidden=True)
            assert outcome.ok, outcome.error
            assert outcome.output["matches"] == []
        assert (await search(app, "grep", MARKER, path=".toolgate")).status == "denied"
        assert (home / "note.txt").read_text() == MARKER


# -- what is no file


async def test_pipes_and_devices_hold_nobody_up(app: App, world: World) -> None:
    os.mkfifo(world.work / "pipe")
    os.mkfifo(world.work / "sub" / "pipe")
    names = ["pipe"]
    if os.geteuid() == 0:
        with suppress(OSError):
            os.mknod(world.work / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
            names.append("zero")
    for name in names:
        for operation, more in {"read": {}, **CHANGES}.items():
            assert not (await call(app, operation, name, **more)).ok
        assert os.path.lexists(world.work / name)
    assert (await call(app, "exists", "pipe")).output == {"exists": True, "type": "other"}
    assert (await call(app, "delete", "sub")).status == "denied"
    found = await search(app, "grep", "fine")
    assert [match["path"] for match in found.output["matches"]] == ["ok.txt"]


async def test_a_very_deep_folder(app: App, world: World) -> None:
    here = os.open(world.work, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    outcome = await call(app, "delete", "d")
    assert outcome.error is not None
    assert outcome.error.code == "INVALID_INPUT"
    assert (world.work / "d").is_dir()
    found = await search(app, "grep", "fine")
    assert found.status in ("success", "denied"), found


async def test_too_many_files_are_not_deleted(app: App, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.tools.file_deletion.MAX_DELETED_ENTRIES", 20)
    (world.work / "many" / "in").mkdir(parents=True)
    for number in range(19):
        (world.work / "many" / "in" / f"{number}").touch()
    assert (await call(app, "delete", "many/in")).output == {"success": True, "deleted": 20}
    (world.work / "many" / "in").mkdir()
    for number in range(20):
        (world.work / "many" / "in" / f"{number}").touch()
    outcome = await call(app, "delete", "many")
    assert outcome.error is not None
    assert outcome.error.code == "INVALID_INPUT"
    assert len(list((world.work / "many" / "in").iterdir())) == 20


NAMES = [
    "with space",
    "ünïcode",
    "a'b",
    'a"b',
    "a;b",
    "$(x)",
    "a\\b",
    "-rf",
    "--",
    "*",
    "?",
    "[x]",
    "~",
    "a&b",
    "CON",
    "x" * 255,
]


async def test_names_that_mean_something_elsewhere_are_names(app: App, world: World) -> None:
    for name in NAMES:
        wrote = await call(app, "write", f"sub/{name}", content="needle\n")
        if not wrote.ok:
            assert wrote.error is not None
            assert wrote.error.code in ("SECURITY_VIOLATION", "INVALID_INPUT"), (name, wrote.error)
            continue
        assert (world.work / "sub" / name).read_text() == "needle\n"
        assert (await call(app, "edit", f"sub/{name}", pattern="needle", replacement="thread")).ok, name
        assert (await call(app, "delete", f"sub/{name}")).ok
    assert [path.name for path in (world.work / "sub").iterdir()] == ["next"]
    world.unharmed()


async def test_names_with_line_ends_and_bytes_that_are_no_text(app: App, world: World) -> None:
    (world.work / "new\nline.txt").write_text("needle\n")
    (world.work / "fake.txt\n").write_text("needle\n")
    Path(os.fsdecode(os.fsencode(world.work) + b"/\xff.txt")).write_text("needle\n")
    for operation, more in CHANGES.items():
        assert (await call(app, operation, "new\nline.txt", **more)).status == "denied"
        assert not (await call(app, operation, "\udcff.txt", **more)).ok
        assert not (await call(app, operation, "ok.txt\0", **more)).ok
    found = await search(app, "grep", "needle")
    assert {match["path"] for match in found.output["matches"]} == {"new\nline.txt", "fake.txt\n", "\ufffd.txt"}
    names = await search(app, "glob", "*.txt*")
    assert {"new\nline.txt", "fake.txt\n", "\ufffd.txt", "ok.txt"} <= set(names.output["files"])


# -- turned while it works


@pytest.mark.matrix("races for a while")
async def test_a_folder_that_is_turned_meanwhile_leads_no_change_out(app: App, world: World) -> None:
    with turning(world, "turned"):
        for _ in range(30):
            outcomes = await asyncio.gather(
                call(app, "read", "turned/victim.txt"),
                call(app, "edit", "turned/victim.txt", **EDIT),
                call(app, "delete", "turned/victim.txt"),
                call(app, "delete", "turned"),
                call(app, "exists", "turned/victim.txt"),
            )
            assert MARKER not in str([outcome.to_dict() for outcome in outcomes])
            world.unharmed()


@pytest.mark.matrix("races for a while")
async def test_a_folder_that_is_turned_meanwhile_leads_no_search_out(app: App, world: World) -> None:
    """ripgrep opens files by their paths: on the host it would be led out, as the control shows where it is fast enough."""
    for number in range(20):
        (world.outside / f"{number}.txt").write_text(MARKER)
    with turning(world, "turned"):
        for _ in range(30):
            outcome = await search(app, "grep", MARKER)
            assert MARKER not in str(outcome.output), outcome
    for number in range(20):
        (world.outside / f"{number}.txt").unlink()
    world.unharmed()


@pytest.mark.parametrize("part", ["way", "way/victim.txt"])
async def test_a_link_that_comes_before_the_journal_has_nothing_outside_kept(
    app: App, world: World, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Neither a copy of what is outside nor a record that an undo would put back there."""
    from toolgate.tools import file_changes

    def late(*_: Any) -> None:
        for path in (world.work / "way" / "victim.txt", world.work / "way")[: 2 if part == "way" else 1]:
            path.unlink() if path.is_file() else path.rmdir()
        (world.work / part).symlink_to(world.outside if part == "way" else world.outside / "victim.txt")

    (world.work / "way").mkdir()
    (world.work / "way" / "victim.txt").write_text("mine")
    monkeypatch.setattr(file_changes, "_check_file", late)
    outcome = await call(app, "write", "way/victim.txt", content="pwned")
    assert not outcome.ok
    assert str(world.top) not in str(outcome.to_dict())
    world.unharmed()
    kept = [path for path in (world.home / "backups").rglob("*") if path.is_file()]
    assert not [path for path in kept if MARKER in path.read_text()]


async def test_what_comes_while_a_folder_is_deleted_stays(app: App, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file comes just before the deletion begins: neither that nor putting back what was deleted takes it."""
    from toolgate.tools import file_deletion

    delete = file_deletion._delete

    def late(work: Any, paths: list[str]) -> None:
        (world.work / "busy" / "late.txt").write_text("mine")
        delete(work, paths)

    (world.work / "busy" / "in").mkdir(parents=True)
    (world.work / "busy" / "in" / "a.txt").write_text("a")
    monkeypatch.setattr(file_deletion, "_delete", late)
    outcome = await call(app, "delete", "busy")
    assert outcome.error is not None
    assert outcome.error.code == "INVALID_INPUT"
    assert (world.work / "busy" / "late.txt").read_text() == "mine"
    assert (world.work / "busy" / "in" / "a.txt").read_text() == "a"


# -- searching


async def test_a_search_does_not_leave_the_working_directory(app: App, world: World) -> None:
    for more in ({}, {"hidden": True}, {"include": ["**"]}, {"include": ["../**", "/**"]}, {"exclude": ["x"]}):
        outcome = await search(app, "grep", MARKER, **more)
        assert outcome.ok, outcome.error
        assert outcome.output["matches"] == []
    for query in ("../*", "../outside/*", "/etc/*", "folder/*", "**/victim.txt", "up/**"):
        outcome = await search(app, "glob", query)
        assert outcome.output == {"files": [], "truncated": False}, (query, outcome)
    for path in ("..", "folder", "up", "root", "/", str(world.outside), "sub/../..", "circle", "magic", "../outside", "\0"):
        outcome = await search(app, "grep", MARKER, path=path)
        assert not outcome.ok, path
        assert MARKER not in str(outcome.to_dict())


async def test_no_pattern_is_an_option(app: App, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = world.work / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {world.work}/PWNED\n")
    evil.chmod(0o755)
    config = world.work / "config.txt"
    config.write_text(f"--pre={evil}\n--follow\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(config))
    (world.work / ".ripgreprc").write_text(f"--pre={evil}\n")
    for option in (f"--pre={evil}", "--follow", "-f/etc/passwd", "--"):
        for arguments in (
            {"mode": "grep", "query": option}, {"mode": "glob", "query": option},
            {"mode": "grep", "query": "fine", "include": [option], "exclude": [option]},
            {"mode": "grep", "query": "fine", "path": option},
        ):  # fmt: skip
            outcome = await app.invoke("file_search", arguments)
            assert MARKER not in str(outcome.to_dict())
            assert "root:" not in str(outcome.to_dict())
    assert not (world.work / "PWNED").exists()
    assert (await search(app, "grep", "fine")).output["matches"][0]["path"] == "ok.txt"


HOSTILE = [
    "(a+)+$",
    "(a|a)*b",
    "(.*)*x",
    "a{0,1000}{0,1000}",
    r"(?i)\w{100}\w{100}",
    "[" * 500,
    "(" * 1000,
    "\\",
    "(?P<",
    "^" * 2000,
]


async def test_a_hostile_pattern_ends_in_time(app: App, world: World) -> None:
    (world.work / "as.txt").write_text("a" * 200_000)
    for pattern in HOSTILE:
        outcome = await search(app, "regex", pattern)
        assert outcome.status in ("success", "failure", "timeout"), (pattern, outcome)
        assert outcome.metrics.duration_ms < 30_000
    for pattern in ("**/" * 150 + "x", "*" * 500, "*a" * 200, "{" * 400, "[!" * 200, "{a,{b,{c,{d,e}}}}"):
        outcome = await search(app, "glob", pattern)
        assert outcome.status in ("success", "failure"), (pattern, outcome)
        assert outcome.metrics.duration_ms < 30_000


texts = st.text(st.characters(codec="utf-8"), max_size=20)


@at_most(8)
@given(query=texts, path=texts, pattern=texts, mode=st.sampled_from(["grep", "regex", "glob"]))
async def test_any_search_gives_an_outcome(app: App, world: World, query: str, path: str, pattern: str, mode: str) -> None:
    for more in ({"path": path}, {"exclude": [pattern]}):
        outcome = await search(app, mode, query, **more)
        assert outcome.status in ("success", "failure", "denied"), outcome
        if outcome.error is not None:
            assert outcome.error.code in ("INVALID_INPUT", "VALIDATION_ERROR", "SECURITY_VIOLATION"), outcome.error
        assert MARKER not in str(outcome.to_dict())
    world.unharmed()

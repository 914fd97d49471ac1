"""The file tools under attack: ways out of the working directory, links that somebody turns, and what is no file.

There is a file outside that the host can read and write; no call may give out what is in it, or change it.
"""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate import Actor, App, Outcome
from toolgate.errors import Denied
from toolgate.model import LOCAL, Call
from toolgate.sandbox.workspaces import Workspaces
from toolgate.screening.safe_open import PathEscape, folder_beneath

pytestmark = [pytest.mark.requirement("TIER-1"), pytest.mark.requirement("BUILTIN-3")]
MARKER = "what nobody may read"
ANN, EVE = Actor("acme", user="ann"), Actor("globex", user="eve")


class World:
    """A working directory, and a file beside it."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.home = top / "home"
        self.work = top / "work"
        self.outside = top / "outside"
        for folder in (self.home, self.work, self.outside, self.work / "sub"):
            folder.mkdir()
        self.victim = self.outside / "victim.txt"
        self.victim.write_text(MARKER)
        (self.work / "ok.txt").write_text("fine")
        (self.work / "absolute").symlink_to(self.victim)
        (self.work / "relative").symlink_to("../outside/victim.txt")
        (self.work / "folder").symlink_to("../outside")
        (self.work / "up").symlink_to("..")
        (self.work / "chain").symlink_to("sub/next")
        (self.work / "sub" / "next").symlink_to("../../outside/victim.txt")
        (self.work / "circle").symlink_to("circle")
        (self.work / "inner").symlink_to("sub")
        (self.work / "root").symlink_to("/")
        (self.work / "magic").symlink_to("/proc/self/cwd")

    def unharmed(self) -> None:
        assert self.victim.read_text() == MARKER
        assert [path.name for path in self.outside.iterdir()] == ["victim.txt"]
        assert {path.name for path in self.top.iterdir()} == {"home", "work", "outside"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
async def app(world: World) -> AsyncIterator[App]:
    async with App.open(os.devnull, home=world.home) as app:
        app.provide(Workspaces, Workspaces(world.home, world.work, rules=lambda: app.parts.tiers.paths))
        app.approvals.add_approver(lambda _request: True)
        yield app


def ways_out(world: World) -> list[str]:
    victim = str(world.victim)
    return [
        "../outside/victim.txt", "sub/../../outside/victim.txt", "./.././outside//victim.txt", victim, f"/{victim}",
        f"/proc/self/root{victim}", f"/proc/self/cwd/../..{victim}", "absolute", "relative", "folder/victim.txt", "chain",
        "up/outside/victim.txt", f"root{victim}", "sub/../folder/victim.txt", "circle", "magic/ok.txt",
        "sub/" + "../" * 40 + victim.lstrip("/"), "inner/../../outside/victim.txt", f"file://{victim}",
        quote(victim, safe=""),
        "..%2foutside%2fvictim.txt", "..\\outside\\victim.txt", "\uff0e\uff0e/outside/victim.txt", "ok.txt\0../outside", "",
        "~/x", "x" * 5000, "a/" * 2500 + "b", "\ud800", "\u202e.txt",
    ]  # fmt: skip


def assert_told_nothing(outcome: Outcome) -> None:
    assert MARKER not in str(outcome.to_dict())
    assert outcome.status in ("denied", "failure"), outcome
    assert outcome.error is not None
    assert outcome.error.code in ("SECURITY_VIOLATION", "INVALID_INPUT", "VALIDATION_ERROR"), outcome.error


async def test_the_control_the_tools_work(app: App, world: World) -> None:
    assert (await app.invoke("read_file", {"path": "ok.txt"})).output["content"] == "fine"
    assert (await app.invoke("read_file", {"path": "sub/../ok.txt"})).output["content"] == "fine"
    assert (await app.invoke("write_file", {"path": "sub/new.txt", "content": "x"})).ok
    assert (world.work / "sub/new.txt").read_text() == "x"


async def test_no_way_out_is_read(app: App, world: World) -> None:
    for path in ways_out(world):
        for tool, more in (("read_file", {}), ("read_file", {"encoding": "base64"}), ("file_read", {})):
            assert_told_nothing(await app.invoke(tool, {"path": path, **more}))


async def test_no_way_out_is_listed(app: App, world: World) -> None:
    for path in ("..", "folder", "up", "root", "/", str(world.outside), "sub/../..", "/proc/self/cwd/..", "circle", "magic"):
        outcome = await app.invoke("list_directory", {"path": path})
        assert outcome.status in ("denied", "failure"), (path, outcome)
        assert "victim" not in str(outcome.to_dict())


async def test_no_way_out_is_written(app: App, world: World) -> None:
    for path in ways_out(world):
        outcome = await app.invoke("write_file", {"path": path, "content": "pwned"})
        if outcome.ok:  # a name that only looks like a way out is a file like any other, below the working directory
            assert (world.work / path).read_text() == "pwned"
            assert os.path.realpath(world.work / path).startswith(f"{world.work}/")
        world.unharmed()
    for path in ("../new", "folder/new", "up/new", str(world.outside / "new"), "sub/../../new", "folder"):
        assert not (await app.invoke("create_directory", {"path": path})).ok
        assert not (await app.invoke("write_file", {"path": f"{path}/file.txt", "content": "pwned"})).ok
        world.unharmed()


async def test_an_escape_is_a_security_violation(app: App) -> None:
    for tool, more in (
        ("read_file", {}),
        ("list_directory", {}),
        ("write_file", {"content": "x"}),
        ("create_directory", {}),
    ):
        for path in ("../outside/victim.txt", "relative", "folder"):
            outcome = await app.invoke(tool, {"path": path, **more})
            assert outcome.error is not None
            assert (outcome.status, outcome.error.code) == ("denied", "SECURITY_VIOLATION"), (tool, path, outcome)


async def test_a_link_that_stays_inside_may_be_read_but_not_written_through(app: App, world: World) -> None:
    (world.work / "sub" / "a.txt").write_text("inside")
    assert (await app.invoke("read_file", {"path": "inner/a.txt"})).output["content"] == "inside"
    assert (await app.invoke("write_file", {"path": "inner/a.txt", "content": "x"})).status == "denied"
    (world.work / "to-a").symlink_to("sub/a.txt")
    assert (await app.invoke("write_file", {"path": "to-a", "content": "x"})).status == "denied"
    assert (world.work / "sub" / "a.txt").read_text() == "inside"


async def test_what_is_no_file_is_neither_read_nor_written(app: App, world: World) -> None:
    os.mkfifo(world.work / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(world.work)  # a socket's path has 108 bytes at most
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        for name in ("pipe", "socket"):
            for tool, more in (("read_file", {}), ("write_file", {"content": "x"})):
                outcome = await asyncio.wait_for(app.invoke(tool, {"path": name, **more}), 30)
                assert_told_nothing(outcome)


async def test_secrets_below_the_working_directory_stay_closed(app: App, world: World) -> None:
    for name in (".env", "config/.env.production", "server.pem", ".ssh/id_rsa", ".aws/credentials"):
        file = world.work / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(MARKER)
        link = world.work / f"plain-{file.name.strip('.')}.txt"
        link.symlink_to(file)
        hard = world.work / "sub" / f"hard-{file.name.strip('.')}.txt"
        os.link(file, hard)
        for path in (name, link.name, name.upper(), f"sub/../{name}"):
            assert_told_nothing(await app.invoke("read_file", {"path": path}))
        assert (await app.invoke("write_file", {"path": name, "content": "x"})).status == "denied"
        assert file.read_text() == MARKER
    assert_told_nothing(await app.invoke("read_file", {"path": "sub/hard-env.txt"}))


async def test_what_runs_later_is_not_written(app: App, world: World) -> None:
    (world.work / ".git").mkdir()
    for name in (".git/hooks/pre-commit", ".git/config", ".bashrc", "toolgate.yaml", ".toolgate/tools/evil.py"):
        outcome = await app.invoke("write_file", {"path": name, "content": "evil"})
        assert outcome.status == "denied", (name, outcome)
        assert not (world.work / name).exists()


async def test_the_files_of_another_session_are_out_of_reach(world: World) -> None:
    """Also for a call without a session, whose folder holds Toolgate's own."""
    home = world.work / ".toolgate"
    async with App.open(os.devnull, home=home) as app:
        places = Workspaces(home, world.work, rules=lambda: app.parts.tiers.paths)
        app.provide(Workspaces, places)
        app.approvals.add_approver(lambda _request: True)
        kept = await app.invoke("write_file", {"path": "diary.txt", "content": MARKER}, actor=ANN, session="s")
        assert kept.ok, kept.error
        folder = places.of(Call("", "", None, ANN, "s"))
        assert (folder / "diary.txt").read_text() == MARKER
        name = folder.relative_to(world.work)
        for actor, session in ((LOCAL, None), (ANN, None), (EVE, None), (EVE, "s"), (ANN, "t")):
            for path in (f"{name}/diary.txt", f"../{folder.name}/diary.txt", str(folder / "diary.txt")):
                assert_told_nothing(await app.invoke("read_file", {"path": path}, actor=actor, session=session))
                if actor == LOCAL:  # for another, the first of them would be a file of that one's own
                    wrote = await app.invoke("write_file", {"path": path, "content": "x"}, actor=actor)
                    assert not wrote.ok
            for path in (str(name), str(name.parent), str(folder.parent), ".."):
                listed = await app.invoke("list_directory", {"path": path}, actor=actor, session=session)
                assert folder.name not in str(listed.output), (path, listed)
                assert "diary" not in str(listed.output)
        assert (folder / "diary.txt").read_text() == MARKER


@contextmanager
def turning(world: World, name: str) -> Iterator[None]:
    """Somebody who makes a folder now a folder, now a link to the outside, as quickly as can be."""
    over = threading.Event()
    folder, link = world.top / "work" / name, world.work / f"{name}-link"
    spare = world.work / f"{name}-spare"
    folder.mkdir()
    (folder / "victim.txt").write_text("inside")
    link.symlink_to("../outside")

    def turn() -> None:
        while not over.is_set():
            for one, other in ((folder, spare), (link, folder), (folder, link), (spare, folder)):
                with suppress(OSError):  # what a write that failed takes back may be one of these
                    one.rename(other)
            with suppress(OSError):
                folder.mkdir()
            with suppress(OSError):
                link.symlink_to("../outside")

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.matrix("races for a while")
async def test_a_link_that_is_turned_meanwhile_leads_nobody_out(app: App, world: World) -> None:
    with turning(world, "turned"):
        for number in range(60):
            read, wrote = await asyncio.gather(
                app.invoke("read_file", {"path": "turned/victim.txt"}),
                app.invoke("write_file", {"path": f"turned/{number}.txt", "content": "x"}),
            )
            assert MARKER not in str(read.to_dict())
            assert wrote.status in ("success", "denied", "failure")
            world.unharmed()


@pytest.mark.matrix("races for a while")
async def test_a_file_appears_whole_or_not_at_all(app: App, world: World) -> None:
    """Whoever reads while it is written sees the one text or the other."""
    texts = {"a" * 100_000, "b" * 100_000}
    file = world.work / "whole.txt"
    file.write_text("a" * 100_000)
    over = threading.Event()
    seen: list[str] = []

    def watch() -> None:
        while not over.is_set():
            seen.append(file.read_text())

    thread = threading.Thread(target=watch)
    thread.start()
    for number in range(20):
        assert (await app.invoke("write_file", {"path": "whole.txt", "content": "ab"[number % 2] * 100_000})).ok
    over.set()
    thread.join()
    assert set(seen) <= texts
    assert seen


STEPS = st.sampled_from(
    ["..", ".", "sub", "folder", "up", "root", "inner", "outside", "work", "victim.txt", "ok.txt", "", "proc", "self"]
)


@given(steps=st.lists(STEPS, max_size=8), start=st.sampled_from(["", "/", "./"]))
def test_no_path_opens_a_folder_outside_for_writing(tmp_path_factory: Any, steps: list[str], start: str) -> None:
    world = _shared_world(tmp_path_factory)
    path = start + "/".join(steps)
    try:
        folder, name = folder_beneath(world.work, world.work, path)
    except (PathEscape, OSError):
        return
    try:
        real = str(Path(f"/proc/self/fd/{folder}").readlink())
        assert real == str(world.work) or real.startswith(f"{world.work}/")
        assert "/" not in name
        assert name != ".."
    finally:
        os.close(folder)


_worlds: list[World] = []


def _shared_world(factory: pytest.TempPathFactory) -> World:
    if not _worlds:
        _worlds.append(World(factory.mktemp("world")))
    return _worlds[0]


def test_a_home_that_is_a_workspace_is_refused_for_programs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(world.work))
    places = Workspaces(world.home, world.work)
    assert places.of(Call("", "", None)) == world.work
    with pytest.raises(Denied):
        places.parts(world.work)
    assert places.parts(world.work / "sub")[:2] == ((), ())

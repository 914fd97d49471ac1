"""The data folder is its owner's alone, however it came to be, and git does not see it."""

import asyncio
import os
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.terminal import Terminal
from toolgate import App
from toolgate.errors import StoreError

pytestmark = pytest.mark.requirement("AUD-2", "IO-4")


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


@pytest.fixture(params=[0o022, 0o000, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def others(folder: Path) -> dict[str, str]:
    """The files directly in the data folder that others may do something with."""
    return {path.name: oct(mode(path)) for path in folder.iterdir() if path.is_file() and mode(path) & 0o077}


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.usefixtures("umask")
def test_what_toolgate_makes_is_its_owners_alone_under_any_umask(terminal: Terminal) -> None:
    assert terminal.run("secrets", "set", "KEY", stdin=b"x\n").code == 0
    assert terminal("call", "write_file", "path=a.txt", "content=b", "--yes").code == 0
    assert mode(terminal.home) == 0o700
    assert (terminal.home / "toolgate.db").exists()
    assert others(terminal.home) == {}
    assert mode(terminal.home / "backups") == 0o700


@pytest.mark.usefixtures("umask")
async def test_the_write_ahead_log_is_closed_while_it_is_there(tmp_path: Path) -> None:
    async with App.open(home=tmp_path / "data") as app:
        await app.invoke("echo", {"text": "a"})
        await app.parts.store.flush()
        assert (tmp_path / "data" / "toolgate.db-wal").exists()
        assert others(tmp_path / "data") == {}


async def test_a_database_elsewhere_is_closed_too_and_its_folder_left_as_it_is(tmp_path: Path) -> None:
    elsewhere = tmp_path / "shared"
    elsewhere.mkdir(mode=0o755)
    async with App.open(home=tmp_path / "data", database_url=f"sqlite:///{elsewhere / 'gate.db'}") as app:
        await app.invoke("echo", {"text": "a"})
        await app.parts.store.flush()
        assert {mode(file) for file in elsewhere.iterdir()} == {0o600}
    assert mode(elsewhere) == 0o755


async def test_what_an_earlier_version_left_open_is_closed(tmp_path: Path) -> None:
    home = tmp_path / "data"
    async with App.open(home=home) as app:
        await app.invoke("echo", {"text": "a"})
    home.chmod(0o755)
    for name in ("toolgate.db", "audit.head"):
        (home / name).chmod(0o644)
    left = sqlite3.connect(home / "toolgate.db")  # as a process that was killed leaves them
    left.execute("BEGIN IMMEDIATE")
    left.execute("UPDATE catalog_epoch SET value = value + 1")
    left.commit()
    for name in ("toolgate.db-wal", "toolgate.db-shm"):
        (home / name).chmod(0o644)
    async with App.open(home=home) as app:
        await app.invoke("echo", {"text": "a"})
        assert (mode(home), others(home)) == (0o700, {})
    left.close()


@pytest.mark.needs("root")  # to give a folder away
@pytest.mark.parametrize("name", ["", "toolgate.db"])
async def test_data_of_another_user_is_refused(tmp_path: Path, name: str) -> None:
    home = tmp_path / "data"
    async with App.open(home=home):
        pass
    given = home / name
    given.chmod(0o755)
    os.chown(given, 65_534, 65_534)
    with pytest.raises(StoreError, match="belongs to another user") as refused:
        async with App.open(home=home):
            pass
    assert "chown" in (refused.value.suggestion or "")


def test_git_does_not_see_it(terminal: Terminal) -> None:
    subprocess.run(["git", "init", "-q"], cwd=terminal.folder, check=True)
    assert terminal("call", "echo", "text=a").code == 0
    seen = subprocess.run(["git", "status", "--porcelain"], cwd=terminal.folder, check=True, capture_output=True)
    assert seen.stdout == b""


def test_a_gitignore_of_ones_own_is_kept(terminal: Terminal) -> None:
    terminal.home.mkdir()
    (terminal.home / ".gitignore").write_text("*\n!tools/\n")
    assert terminal("call", "echo", "text=a").code == 0
    assert (terminal.home / ".gitignore").read_text() == "*\n!tools/\n"


async def test_a_project_that_is_its_own_data_folder_is_not_hidden_from_git(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("a")
    (tmp_path / "mine.txt").chmod(0o644)
    for _ in range(2):
        async with App.open(home=tmp_path):
            pass
    assert not (tmp_path / ".gitignore").exists()
    assert (mode(tmp_path / "mine.txt"), mode(tmp_path / "toolgate.db")) == (0o644, 0o600)


def test_processes_that_make_it_at_once_agree(tmp_path: Path) -> None:
    async def both() -> None:
        async def one() -> None:
            async with App.open(home=tmp_path / "data") as app:
                await app.invoke("echo", {"text": "a"})

        await asyncio.gather(one(), one())

    asyncio.run(both())
    assert (tmp_path / "data" / ".gitignore").read_text() == "*\n"

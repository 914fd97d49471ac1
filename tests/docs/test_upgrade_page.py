"""The page on upgrades, backups and removal is followed word for word: its commands are run as they stand there."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, blocks
from tests.servers import Postgres, postgres_programs
from toolgate.store.migrate import SQLITE, migrations, statements

PAGE = ROOT / "docs" / "howto" / "upgrade-back-up-remove.md"
SCRIPTS = {block.note.removeprefix("run: "): block.text for block in blocks(PAGE) if block.note.startswith("run: ")}
Shell = Callable[..., str]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs a script in a project's folder as a person would; gives what it said."""
    (tmp_path / "project").mkdir()

    def run(script: str, code: int = 0, more: tuple[str, ...] = (), **environment: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", script],
            cwd=tmp_path / "project",
            env={
                "PATH": os.pathsep.join((str(Path(sys.executable).parent), *more, os.environ["PATH"])),
                "HOME": str(tmp_path / "home"),
                **environment,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


RESTORE = SCRIPTS["restore"].replace("2026-11-16-063000", "the-first")


@pytest.mark.matrix("backs up while calls run")
def test_what_was_backed_up_while_calls_ran_is_whole_when_it_is_restored(shell: Shell, tmp_path: Path) -> None:
    shell("toolgate call echo text=before; printf secret | toolgate secrets set KEY")
    running = "(for n in 1 2; do toolgate call echo text=$n; done) & "
    shell(f"{running}{SCRIPTS['back up']} wait; mv $B ${{B%/*}}/the-first; toolgate call echo text=lost")
    backup = tmp_path / "home" / "toolgate-backups" / "the-first"
    assert oct(backup.stat().st_mode)[-3:] == "700"
    assert [path.name for path in (tmp_path / "project").iterdir()] == [".toolgate"]  # where tools could read a copy

    assert "the tail is cut" in shell(RESTORE, code=1)  # what was lost shows
    said = shell("toolgate audit sign --anew; toolgate audit verify; toolgate secrets list; toolgate audit tail --json")
    assert "The audit log is whole" in said
    assert "KEY" in said
    assert "lost" not in said
    assert [path.name for path in (tmp_path / "project").iterdir()] == [".toolgate"]

    elsewhere = f"mkdir ../other; cd ../other\n{RESTORE}"
    assert "the database was moved or exchanged" in shell(elsewhere, code=1)
    accepted = "cd ../other; toolgate audit sign --anew; toolgate call echo text=after; toolgate audit verify"
    assert "The audit log is whole" in shell(accepted)


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_a_second_backup_does_not_touch_the_first_and_an_empty_account_takes_either(shell: Shell, tmp_path: Path) -> None:
    shell(f"toolgate call echo text=before\n{SCRIPTS['back up']}mv $B ${{B%/*}}/the-first\n{SCRIPTS['back up']}")
    folder = tmp_path / "home" / "toolgate-backups"
    assert sorted(path.name for path in (folder / "the-first").iterdir()) == ["config", "toolgate-home.tar", "toolgate.db"]
    assert len(list(folder.iterdir())) == 2
    said = shell(RESTORE, XDG_CONFIG_HOME=str(tmp_path / "of another account"))
    assert "The audit log is whole" in said


@pytest.mark.matrix("starts the program in a shell")
def test_restoring_one_project_leaves_the_head_of_another(shell: Shell, tmp_path: Path) -> None:
    shell("mkdir ../other; cd ../other; toolgate call echo text=before")
    heads = tmp_path / "home" / ".config" / "toolgate" / "audit" / "heads"
    (head,) = heads.glob("*.json")
    shell(f"toolgate call echo text=before\n{SCRIPTS['back up']}mv $B ${{B%/*}}/the-first")
    shell("cd ../other; toolgate call echo text=after")
    later = head.read_bytes()
    shell(RESTORE)
    assert head.read_bytes() == later


@pytest.mark.matrix("starts the program in a shell")
def test_a_project_that_was_removed_can_begin_again(shell: Shell) -> None:
    shell(f"toolgate call echo text=before\n{SCRIPTS['remove']}toolgate call echo text=after")
    assert "rewritten" in shell("toolgate audit verify", code=1)
    assert "The audit log is whole" in shell("toolgate audit sign --anew; toolgate audit verify")


@pytest.mark.matrix("needs PostgreSQL")
def test_postgresql_is_dumped_and_restored(shell: Shell, postgres_server: Postgres, postgres_database: str) -> None:
    shell("toolgate call echo text=before; mkdir ../backup", TOOLGATE_DATABASE_URL=postgres_database)
    programs = (str(postgres_programs()),)
    shell(SCRIPTS["back up PostgreSQL"], more=programs, B="../backup", TOOLGATE_DATABASE_URL=postgres_database)
    name = f"{postgres_database.rpartition('/')[2].partition('?')[0]}_restored"
    postgres_server.create(name)
    try:
        other = postgres_server.url(name)
        said = shell(
            f"{SCRIPTS['restore PostgreSQL']}toolgate audit sign --anew; toolgate audit verify; toolgate audit tail",
            more=programs,
            B="../backup",
            TOOLGATE_DATABASE_URL=other,
        )
    finally:
        postgres_server.drop(name)
    assert "The audit log is whole" in said
    assert "echo" in said


@pytest.mark.matrix("starts the program in a shell")
def test_a_database_of_the_first_version_is_brought_up_to_date(shell: Shell, tmp_path: Path) -> None:
    known = migrations()
    old = sqlite3.connect(tmp_path / "project" / "old.db")
    old.execute("CREATE TABLE toolgate_schema (number INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    old.execute("INSERT INTO toolgate_schema VALUES (?, ?)", (known[0].number, known[0].name))
    for statement in statements(known[0].text, SQLITE):
        old.execute(statement)
    old.commit()
    old.close()
    url = f"sqlite:///{tmp_path}/project/old.db"
    said = shell("toolgate call echo text=new; toolgate doctor; toolgate audit verify", TOOLGATE_DATABASE_URL=url)
    assert f"schema {known[-1].number}" in said
    assert "The audit log is whole" in said


@pytest.mark.matrix("starts the program in a shell")
def test_a_newer_database_is_refused_and_left_as_it_is(shell: Shell, tmp_path: Path) -> None:
    shell("toolgate call echo text=before")
    database = tmp_path / "project" / ".toolgate" / "toolgate.db"
    newer = sqlite3.connect(database)
    newer.execute("INSERT INTO toolgate_schema VALUES (9999, 'later')")
    newer.commit()
    newer.close()
    before = database.read_bytes()
    said = shell("toolgate call echo text=after", code=1)
    assert "The database has schema 9999, this Toolgate knows only up to" in said
    assert "upgrade this one. Nothing was changed." in said
    assert database.read_bytes() == before


@pytest.mark.matrix("starts the program in a shell")
def test_nothing_is_left_when_it_is_removed(shell: Shell, tmp_path: Path) -> None:
    shell(f"toolgate call echo text=before\n{SCRIPTS['remove']}{SCRIPTS['remove everything']}")
    assert not [path for path in tmp_path.rglob("*") if "toolgate" in path.name]

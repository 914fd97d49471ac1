"""The commands of the page on PostgreSQL are typed as they stand there, password and all."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, blocks
from tests.servers import SUPERUSER, Postgres
from tests.teletype import Teletype
from tests.terminal import Terminal

PAGE = ROOT / "docs" / "howto" / "use-postgresql.md"
(SHOWN,) = (block.text for block in blocks(PAGE) if block.language == "console")
COMMANDS = [line.removeprefix("$ ") for line in SHOWN.splitlines()]
SUDO = '#!/bin/sh\n[ "$1 $2" = "-u postgres" ] && shift 2 && PGUSER=%s exec "$@"\n'


@pytest.fixture
def server(postgres_server: Postgres) -> Iterator[Postgres]:
    """One that asks the page's role for its password, as an installed one does."""
    rules = postgres_server.home / "data" / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"host all toolgate 127.0.0.1/32 scram-sha-256\n{before}")
    postgres_server.run("SELECT pg_reload_conf()")
    yield postgres_server
    postgres_server.drop("toolgate")
    postgres_server.run("DROP ROLE IF EXISTS toolgate")
    rules.write_text(before)
    postgres_server.run("SELECT pg_reload_conf()")


@pytest.mark.matrix("needs PostgreSQL")
def test_role_and_database_are_made_and_used_as_the_page_says(
    server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    sudo = tmp_path / "bin" / "sudo"
    sudo.parent.mkdir()
    sudo.write_text(SUDO % SUPERUSER)
    sudo.chmod(0o755)
    path = os.pathsep.join(map(str, (sudo.parent, server.binaries, Path(sys.executable).parent, os.environ["PATH"])))
    for name, value in {"PATH": path, "PGHOST": "127.0.0.1", "PGPORT": str(server.port), "LC_ALL": "C"}.items():
        terminal.set(name, value)
    shell = Teletype(terminal, "-euc", "\n".join(COMMANDS), program=("bash",))
    shell.type(after="Enter password for new role: ", keys="password\n")
    shell.type(after="Enter it again: ", keys="password\n")
    assert shell.end() == 0, shell.shown
    assert "✓ database     postgresql://localhost/toolgate, schema " in shell.shown
    url = next(line for line in COMMANDS if line.startswith("export ")).partition("=")[2]
    wrong = Teletype(terminal, "doctor", TOOLGATE_DATABASE_URL=url.replace(":password", ":guessed"))
    assert wrong.end() == 1
    assert "password authentication failed" in " ".join(wrong.shown.split())

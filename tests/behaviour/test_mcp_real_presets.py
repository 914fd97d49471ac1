"""Servers that Toolgate knows by name, set up at a terminal as a person would, installed and started for real."""

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.terminal import Terminal

pytestmark = [
    pytest.mark.requirement("MCP-2", "MCP-5", "BUILTIN-2"),
    pytest.mark.matrix("runs servers of npm and PyPI"),
    pytest.mark.timeout(600),  # packages are installed
]


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


def set_up(terminal: Terminal, name: str, *options: str) -> None:
    """Add a server; what it offers can't be called before it is accepted."""
    added = terminal("servers", "add", name, *options)
    assert added.code == 0, added.err
    accepted = terminal("tools", "accept", name, "--yes")
    assert accepted.code == 0, accepted.err


@pytest.mark.needs("npm")
def test_files_by_name(terminal: Terminal) -> None:
    room = terminal.folder / "room"
    room.mkdir()
    (room / "letter.txt").write_text("Dear Ada")
    set_up(terminal, "files", "--preset", "filesystem", "--write", str(room))
    reading = ("call", "mcp_files_read_text_file", f"path={room / 'letter.txt'}", "--json")
    denied = terminal(*reading)
    assert denied.json["error"]["code"] == "PERMISSION_DENIED"
    read = terminal(*reading, "--scope", "tool:filesystem")
    assert read.code == 0, read.err
    assert read.json["output"]["structuredContent"] == {"content": "Dear Ada"}
    shown = terminal("servers", "list", "--json").json
    assert [(one["name"], one["preset"]) for one in shown["servers"]] == [("files", "filesystem")]


@pytest.mark.matrix("needs PostgreSQL")
@pytest.mark.needs("npm")
def test_a_database_by_name(terminal: Terminal, postgres_database: str) -> None:
    """It is read; what would change it is refused, also in the ways round a read-only transaction."""

    async def in_database(sql: str) -> int:
        connection = await asyncpg.connect(postgres_database)
        try:
            await connection.execute("CREATE TABLE IF NOT EXISTS people (name text)")
            await connection.execute(sql)
            count: int = await connection.fetchval("SELECT count(*) FROM people")
            return count
        finally:
            await connection.close()

    assert asyncio.run(in_database("INSERT INTO people VALUES ('Ada')")) == 1
    terminal.set("TOOLGATE_SERVER_SECRET_POSTGRES_MCP_URL", postgres_database)
    place = postgres_database.rpartition("@")[2].partition("/")[0]
    set_up(terminal, "db", "--preset", "postgres", "--domain", place)

    def ask(sql: str) -> dict[str, Any]:
        outcome: dict[str, Any] = terminal(
            "call", "query_database", "--json", "--yes", "--scope", "tool:database_query", f"sql={sql}"
        ).json
        return outcome

    assert "Ada" in ask("SELECT name FROM people")["output"]
    for sql in (
        "INSERT INTO people VALUES ('Eve')",
        "COMMIT; INSERT INTO people VALUES ('Eve')",
        "SELECT 1; COMMIT; BEGIN READ WRITE; INSERT INTO people VALUES ('Eve'); COMMIT",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    ):
        assert ask(sql)["error"]["code"] == "SECURITY_VIOLATION"
    assert asyncio.run(in_database("SELECT 1")) == 1


def test_the_time_by_name(terminal: Terminal) -> None:
    set_up(terminal, "clock", "--preset", "time")
    now = terminal("call", "mcp_clock_get_current_time", "timezone=Asia/Tokyo", "--json")
    assert now.json["output"]["timezone"] == "Asia/Tokyo"
    noon = ("source_timezone=UTC", "time=12:00", "target_timezone=Asia/Tokyo")
    there = terminal("call", "mcp_clock_convert_time", *noon, "--json")
    assert there.json["output"]["time_difference"] == "+9.0h"
    nowhere = terminal("call", "mcp_clock_get_current_time", "timezone=Europe/Atlantis", "--json")
    assert (nowhere.code, nowhere.json["error"]["code"]) == (1, "MCP_ERROR")
    assert "Atlantis" in nowhere.json["error"]["message"]
    pinned = Path(terminal.home) / "servers" / "clock"
    assert list(pinned.rglob("mcp_server_time-2026.10.19.dist-info"))

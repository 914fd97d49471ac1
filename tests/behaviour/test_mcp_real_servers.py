"""Servers that people use, from npm and from the Python package index, started for real and called through Toolgate.

Each is listed, waits in quarantine, is accepted, is called, and what was called is on record. Programs run in the jail of
this machine; what they may touch is what their settings name.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import asyncpg
import pytest

from tests import pypi
from tests.mcp_person import Person
from tests.npm import packages
from toolgate import App, Outcome
from toolgate.store import audit_log

pytestmark = [
    pytest.mark.requirement("MCP-1", "MCP-5", "BUILTIN-2"),
    pytest.mark.matrix("runs servers of npm and PyPI"),
    pytest.mark.timeout(900),  # the first test on a machine installs the servers
]

FILES = "@modelcontextprotocol/server-filesystem"
EVERYTHING = "@modelcontextprotocol/server-everything"
MEMORY = "@modelcontextprotocol/server-memory"


class Server:
    """A server of a running App, and the calls that are made of it."""

    def __init__(self, app: App, name: str) -> None:
        self.app, self.name = app, name

    def tool(self, name: str) -> str:
        return f"mcp_{self.name}_{name}"

    async def call(self, tool: str, arguments: Mapping[str, Any], person: Person | None = None) -> Outcome:
        """Call a tool; if that has to be approved, approve it."""
        outcome = await self.app.invoke(self.tool(tool), dict(arguments), caller=person)
        if outcome.pending is None:
            return outcome
        await self.app.approvals.answer(outcome.pending.id, True)
        return await self.app.invoke(self.tool(tool), dict(arguments), approval=outcome.pending.id, caller=person)

    async def output(self, tool: str, arguments: Mapping[str, Any], person: Person | None = None) -> Any:
        """What a call gives; it has to succeed, and to be on record."""
        outcome = await self.call(tool, arguments, person)
        assert outcome.status == "success", outcome.error
        await self.app.flush()
        rows = await self.app.parts.store.read(audit_log.latest(1_000, tool=self.tool(tool)))
        assert [row[6] for row in rows if row[3] == outcome.id][-1] == "success"
        return outcome.output

    async def failure(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """What a call says that the tool itself refuses."""
        outcome = await self.call(tool, arguments)
        assert outcome.error is not None
        assert outcome.error.code == "MCP_ERROR"
        return outcome.error.message


@asynccontextmanager
async def connected(folder: Path, name: str, tool: str, **settings: Any) -> AsyncIterator[Server]:
    """A server that is listed and accepted; `tool` is one that it has."""
    async with App.open(home=folder / "home", servers={name: settings}) as app:
        server = Server(app, name)
        await app.servers.refresh(name)
        early = await app.invoke(server.tool(tool), {})
        assert early.error is not None
        assert early.error.code == "TOOL_NOT_FOUND"
        waiting = await app.servers.quarantined(name)
        assert tool in [one.tool for one in waiting]
        assert await app.servers.accept(waiting) == waiting
        status = await app.servers.get(name)
        assert status.standing is not None
        assert status.standing.jail == (await app.parts.sandbox.server_jail()).name
        yield server


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A folder that a server is given."""
    folder = tmp_path / "room"
    folder.mkdir()
    return folder


@pytest.mark.requirement("MCP-3")
async def test_files_are_read_and_written_in_the_folder_that_is_given_and_nowhere_else(tmp_path: Path, room: Path) -> None:
    (room / "letter.txt").write_text("Dear Ada")
    (tmp_path / "diary.txt").write_text("nobody's business")
    command = [*packages().command(FILES), str(room)]
    async with connected(tmp_path, "files", "read_text_file", command=command, write=[room]) as files:
        listed = await files.output("list_directory", {"path": str(room)})
        assert listed["structuredContent"]["content"] == "[FILE] letter.txt"
        read = await files.output("read_text_file", {"path": str(room / "letter.txt")})
        assert read["structuredContent"] == {"content": "Dear Ada"}
        await files.output("write_file", {"path": str(room / "answer.csv"), "content": "Dear Bob"})
        assert (room / "answer.csv").read_text() == "Dear Bob"
        said = await files.failure("read_text_file", {"path": str(tmp_path / "diary.txt")})
        assert "outside allowed directories" in said


@pytest.mark.requirement("MCP-3")
async def test_a_file_server_that_was_told_of_more_than_it_is_given_still_reads_nothing_else(
    tmp_path: Path, room: Path
) -> None:
    """What the server's own arguments allow, the jail does not."""
    (tmp_path / "diary.txt").write_text("nobody's business")
    command = [*packages().command(FILES), str(room), str(tmp_path)]
    async with connected(tmp_path, "files", "read_text_file", command=command, write=[room]) as files:
        assert "nobody's business" not in await files.failure("read_text_file", {"path": str(tmp_path / "diary.txt")})


async def test_every_kind_of_content_comes_through(tmp_path: Path) -> None:
    command = [*packages().command(EVERYTHING), "stdio"]
    async with connected(tmp_path, "everything", "echo", command=command, tier="read_only") as everything:
        assert await everything.output("echo", {"message": "hello"}) == "Echo: hello"
        image = (await everything.output("get-tiny-image", {}))["content"][1]
        assert (image["type"], image["mimeType"]) == ("image", "image/png")
        assert image["data"].startswith("iVBOR")
        note = await everything.output("get-annotated-message", {"messageType": "error", "includeImage": False})
        assert note["content"][0]["annotations"]["priority"] == 1
        weather = await everything.output("get-structured-content", {"location": "Chicago"})
        assert weather.keys() == {"temperature", "conditions", "humidity"}
        links = (await everything.output("get-resource-links", {"count": 2}))["content"]
        assert [part["type"] for part in links] == ["text", "resource_link", "resource_link"]
        held = (await everything.output("get-resource-reference", {"resourceType": "Text", "resourceId": 1}))["content"]
        assert held[1]["resource"]["uri"] == "demo://resource/dynamic/text/1"
        read = await everything.output("read_resource", {"uri": held[1]["resource"]["uri"]})
        assert read["contents"][0]["uri"] == held[1]["resource"]["uri"]
        prompt = await everything.output("get_prompt", {"name": "simple-prompt"})
        assert prompt["messages"][0]["role"] == "user"


async def test_progress_and_questions_reach_whoever_called(tmp_path: Path) -> None:
    command = [*packages().command(EVERYTHING), "stdio"]
    person = Person(
        elicitation={"action": "accept", "content": {"name": "Ada", "check": True}},
        sampling={"role": "assistant", "model": "none", "content": {"type": "text", "text": "a sample"}},
    )
    async with connected(tmp_path, "everything", "echo", command=command, tier="read_only") as everything:
        await everything.output("trigger-long-running-operation", {"duration": 0.3, "steps": 3}, person)
        assert person.seen == [(1, 3), (2, 3), (3, 3)]
        filled = await everything.output("trigger-elicitation-request", {}, person)
        assert "Name: Ada" in filled["content"][1]["text"]
        sampled = await everything.output("trigger-sampling-request", {"prompt": "a sample, please"}, person)
        assert "a sample" in str(sampled)
        assert [method for method, _ in person.asked] == ["elicitation/create", "sampling/createMessage"]


@pytest.mark.requirement("MCP-3")
async def test_a_server_finds_only_the_configured_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOMEBODYS_KEY", "not-for-servers")
    command = [*packages().command(EVERYTHING), "stdio"]
    async with connected(tmp_path, "everything", "get-env", command=command, env={"COLOUR": "red"}) as everything:
        seen = await everything.output("get-env", {})
        assert '"COLOUR": "red"' in seen
        assert "SOMEBODYS_KEY" not in seen
        assert "not-for-servers" not in seen


async def test_what_was_remembered_is_there_after_a_restart(tmp_path: Path, room: Path) -> None:
    settings = {
        "command": packages().command(MEMORY),
        "env": {"MEMORY_FILE_PATH": str(room / "memory.jsonl")},
        "write": [room],
    }
    ada = {"name": "Ada", "entityType": "person", "observations": ["counts"]}
    async with connected(tmp_path, "memory", "read_graph", **settings) as memory:
        await memory.output("create_entities", {"entities": [ada]})
        await memory.app.servers.restart("memory")
        graph = await memory.output("read_graph", {})
        assert graph["entities"] == [ada]


async def test_a_page_on_this_machine_is_not_fetched(tmp_path: Path) -> None:
    """The server refuses what is no public address; its refusal is a failed call, and the page was never asked for."""
    asked: list[str] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as web:
        Thread(target=web.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{web.server_port}/"
        try:
            async with connected(tmp_path, "fetch", "fetch", command=pypi.command("fetch"), network="host") as fetch:
                assert "not a public address" in await fetch.failure("fetch", {"url": url})
        finally:
            await asyncio.to_thread(web.shutdown)
    assert asked == []


def git(repository: Path, *words: str) -> str:
    command = ["git", "-C", str(repository), "-c", "user.name=Ada", "-c", "user.email=ada@example.com", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


async def test_a_repository_is_looked_at_and_committed_to(tmp_path: Path, room: Path) -> None:
    git(room, "init", "--quiet", "--initial-branch=main")
    git(room, "config", "user.name", "Ada")
    git(room, "config", "user.email", "ada@example.com")
    (room / "notes.txt").write_text("one\n")
    git(room, "add", "notes.txt")
    git(room, "commit", "--quiet", "--message=The first")
    (room / "notes.txt").write_text("one\ntwo\n")
    where = {"repo_path": str(room)}
    command = [*pypi.command("git"), "--repository", str(room)]
    async with connected(tmp_path, "git", "git_status", command=command, write=[room, room / ".git"]) as repository:
        assert "notes.txt" in await repository.output("git_status", where)
        assert "+two" in await repository.output("git_diff_unstaged", where)
        await repository.output("git_add", where | {"files": ["notes.txt"]})
        await repository.output("git_commit", where | {"message": "The second"})
        assert "The second" in await repository.output("git_log", where)
        assert git(room, "log", "--format=%s").split("\n")[0] == "The second"
        elsewhere = {"repo_path": str(tmp_path / "elsewhere")}
        assert "outside the allowed repository" in await repository.failure("git_status", elsewhere)


@pytest.mark.matrix("needs PostgreSQL")
@pytest.mark.requirement("MCP-2", "MCP-3")
async def test_a_database_is_read(tmp_path: Path, postgres_database: str) -> None:
    connection = await asyncpg.connect(postgres_database)
    try:
        await connection.execute("CREATE TABLE people (name text); INSERT INTO people VALUES ('Ada')")
        place = postgres_database.rpartition("@")[2].partition("/")[0]
        command = [*packages().command("@modelcontextprotocol/server-postgres"), postgres_database]
        async with connected(tmp_path, "postgres", "query", command=command, domains=[place]) as database:
            assert '"name": "Ada"' in await database.output("query", {"sql": "SELECT name FROM people"})
            assert "read-only" in await database.failure("query", {"sql": "INSERT INTO people VALUES ('Eve')"})
        assert await connection.fetchval("SELECT count(*) FROM people") == 1
    finally:
        await connection.close()

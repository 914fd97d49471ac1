"""Tasks in several processes on one database: two real servers, of which one is asked about what the other runs, and which
are killed and started again. What really happened is in a file, so that it can be counted."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.behaviour.test_mcp_server_tasks import ASKS, HAS, SOON, Client
from tests.conformance.gateway import fixture_server
from tests.serving import META, Site
from tests.terminal import Terminal
from toolgate.store.database import Transaction, open_store

pytestmark = pytest.mark.requirement("MCP-4", "TIER-6")
QUICK = {
    "test_a_task_is_answered_for_by_another_process",
    "test_what_was_under_way_when_its_process_was_killed_is_not_done_twice",
    "test_a_call_that_is_held_is_answered_through_another_process",
}
"""What goes on after a restart is held by test_mcp_tasks_store too, in one process and quickly."""

TOOLS = """
    import asyncio
    from pathlib import Path

    from toolgate import tool

    FOLDER = Path({folder!r})

    def did(what):
        with (FOLDER / "did.txt").open("a") as out:
            out.write(what + "\\n")

    async def until_let():
        while not (FOLDER / "go").exists():
            await asyncio.sleep(0.02)

    @tool(tier="execute")
    async def risky(text: str, password: str = "") -> str:
        "Do something that is asked about."
        did(f"risky {{text}} {{password}}".strip())
        if text == "slow":
            await until_let()
        return f"did {{text}}"

    @tool(tier="write")
    async def note(text: str) -> str:
        "Write, and take long."
        did(f"note {{text}}")
        await until_let()
        return f"noted {{text}}"

    @tool(tier="read_only")
    async def look(text: str) -> str:
        "Only look, and take long."
        did(f"look {{text}}")
        await until_let()
        return f"saw {{text}}"
"""
LEASE_SECONDS = 2
TICKED = {"action": "accept", "content": {"approve": True}}


class Servers:
    """Servers on one database, and what their tools did."""

    def __init__(self, terminal: Terminal, database: str) -> None:
        self.terminal = terminal
        self.database = database
        terminal.set("TOOLGATE_DATABASE_URL", database)
        self.use({})
        terminal.add_tools(TOOLS.format(folder=str(terminal.folder)))

    def use(self, servers: dict[str, Any]) -> None:
        """Has MCP servers behind those that are started from now on, with all their tools listed."""
        common = {"isolation": "none", "trust_first_seen": True}
        said = {name: {**common, **one} for name, one in servers.items()}
        limits, discovery = {"lease_seconds": LEASE_SECONDS}, {"mode": "never"}
        self.terminal.settings(json.dumps({"limits": limits, "discovery": discovery, "servers": said}))

    @asynccontextmanager
    async def one(self) -> AsyncIterator[tuple[forked.Forked, Site]]:
        with forked.reading("serve", "--port", "0", "--json", folder=self.terminal.folder) as (process, said):
            line = await asyncio.wait_for(asyncio.to_thread(said.readline), 60)
            yield process, Site(int(json.loads(line)["url"].rpartition(":")[2]))

    def key(self, name: str, *words: str) -> str:
        made = self.terminal.run("keys", "create", name, "--tenant", "acme", "--user", "ada", *words, "--json")
        assert made.code == 0, made.err
        return str(json.loads(made.out)["key"])

    @property
    def did(self) -> list[str]:
        file = self.terminal.folder / "did.txt"
        return file.read_text().splitlines() if file.exists() else []

    def let(self) -> None:
        (self.terminal.folder / "go").touch()

    def waiting(self) -> list[str]:
        listed = self.terminal.run("approvals", "list", "--tenant", "acme", "--json")
        return [one["id"] for one in listed.json["approvals"]]

    def answer(self, verb: str, id: str) -> None:
        done = self.terminal.run("approvals", verb, id, "--tenant", "acme", "--user", "boss")
        assert done.code == 0, done.err


@pytest.fixture
def servers(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Servers:
    return Servers(Terminal(tmp_path, monkeypatch, capsys), database)


async def eventually(is_so: Callable[[], Awaitable[Any] | Any]) -> Any:
    async with asyncio.timeout(SOON):
        while True:
            found = is_so()
            found = await found if isinstance(found, Awaitable) else found
            if found:
                return found
            await asyncio.sleep(0.05)


async def test_a_task_is_answered_for_by_another_process(servers: Servers) -> None:
    """Its state, its cancellation, its result and the answers to its questions; and nothing to anybody else."""
    key, able, other = servers.key("a"), servers.key("b", "--may-approve"), servers.key("c")
    async with servers.one() as (_, first), servers.one() as (_, second):
        here, there = Client(first, key), Client(second, key)
        id = (await here.call("note", text="one"))["taskId"]
        shown = await there("tasks/get", taskId=id)
        assert shown["status"] == "working" and shown == {**await here("tasks/get", taskId=id), "_meta": shown["_meta"]}
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            told = await Client(second, other)(method, taskId=id)
            assert told["code"] == -32602 and told["message"] == "Unknown task"
        cancelled = (await here.call("note", text="two"))["taskId"]
        for _again in range(2):
            assert "code" not in await there("tasks/cancel", taskId=cancelled)
        assert (await there("tasks/get", taskId=cancelled))["status"] == "cancelled"
        assert (await here.until(cancelled, "cancelled"))["status"] == "cancelled"
        assert (await here.until(id, "working"))["status"] == "working"
        servers.let()
        done = await there.until(id, "completed")
        assert done["result"]["content"][0]["text"] == "noted one"
        assert (await here.until(id, "completed"))["result"] == done["result"]

        here, there = Client(first, able, ASKS), Client(second, able, ASKS)
        id = (await here.call("risky", text="three", password="hunter2"))["taskId"]
        [(name, question)] = (await there.until(id, "input_required"))["inputRequests"].items()
        assert "hunter2" in question["params"]["message"]
        assert "hunter2" not in await stored(servers)
        ticked = {name: TICKED, "nothing": TICKED}
        unable = await Client(second, key, ASKS)("tasks/update", taskId=id, inputResponses=ticked)
        assert unable["code"] == -32602
        for _again in range(2):
            await there("tasks/update", taskId=id, inputResponses=ticked)
        assert (await there.until(id, "completed"))["result"]["content"][0]["text"] == "did three"
        assert servers.did == ["note one", "note two", "risky three hunter2"]


async def stored(servers: Servers) -> str:
    """All that is on record of tasks and approvals, and the files of a database that is one."""

    def read() -> Transaction[list[Any]]:
        tasks = yield "SELECT * FROM mcp_tasks", {}
        answers = yield "SELECT * FROM mcp_task_answers", {}
        return [tasks, answers, (yield "SELECT * FROM approvals", {})]

    store = open_store(servers.database)
    await store.start()
    rows = await store.read(read())
    await store.close()
    assert "risky" in str(rows[0])
    files = b"".join(file.read_bytes() for file in servers.terminal.folder.glob("toolgate.db*"))
    return f"{rows} {files.decode('latin-1')}"


@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize(
    ("verb", "ran"), [("approve", 1), pytest.param("reject", 0, marks=pytest.mark.matrix("as the other answer"))]
)
async def test_a_task_that_waits_for_a_person_goes_on_once_after_a_restart(
    servers: Servers, how: str, verb: str, ran: int
) -> None:
    key = servers.key("a")
    async with servers.one() as (process, site):
        id = (await Client(site, key).call("risky", text="one", password="hunter2"))["taskId"]
        [approval] = servers.waiting()
        process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGTERM)
        await asyncio.to_thread(process.wait, 60)
    servers.answer(verb, approval)
    async with AsyncExitStack() as stack:
        clients = [Client((await stack.enter_async_context(servers.one()))[1], key) for _ in range(2)]
        done = [await client.until(id, "completed", "failed") for client in clients]
        assert done[0]["result"] == done[1]["result"] and done[0]["status"] == "completed"
        assert bool(done[0]["result"].get("isError")) is not bool(ran)
        assert ("rejected" in str(done[0]["result"])) is not bool(ran)
    assert servers.did == ["risky one hunter2"] * ran and "hunter2" not in await stored(servers)


async def test_a_task_waits_on_in_another_process_until_a_person_answers(servers: Servers) -> None:
    key = servers.key("a", "--may-approve")
    async with servers.one() as (process, first), servers.one() as (_, second):
        client = Client(second, key, ASKS)
        id = (await Client(first, key, ASKS).call("risky", text="one"))["taskId"]
        [before] = (await client.until(id, "input_required"))["inputRequests"]
        process.kill()

        async def is_asked_anew() -> Any:
            questions = (await client("tasks/get", taskId=id)).get("inputRequests") or {}
            return next((name for name in questions if name != before), None)

        name = await eventually(is_asked_anew)
        await client("tasks/update", taskId=id, inputResponses={before: TICKED})
        assert await is_asked_anew() == name and servers.did == []
        await client("tasks/update", taskId=id, inputResponses={name: TICKED})
        assert (await client.until(id, "completed"))["result"]["content"][0]["text"] == "did one"
    assert servers.did == ["risky one"] and servers.waiting() == []


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_what_was_under_way_when_its_process_was_killed_is_not_done_twice(servers: Servers) -> None:
    """What only reads is done again; what may have had its effect is not, unless its key says that it had not begun."""
    key = servers.key("a")
    async with servers.one() as (process, site):
        client = Client(site, key)
        keyed = Client(site, key, {**HAS, "toolgate/idempotency_key": "k"})
        ids = {
            "note": (await client.call("note", text="one"))["taskId"],
            "keyed": (await keyed.call("note", text="two"))["taskId"],
            "look": (await client.call("look", text="three"))["taskId"],
            "cancelled": (await client.call("look", text="four"))["taskId"],
        }
        risky = (await client.call("risky", text="slow"))["taskId"]
        servers.answer("approve", servers.waiting()[0])
        await eventually(lambda: "risky slow" in servers.did)
        process.kill()
    async with servers.one() as (_, first), servers.one() as (_, second):
        client = Client(second, key)
        await client("tasks/cancel", taskId=ids["cancelled"])
        servers.let()
        for id in (ids["note"], risky):
            failed = await client.until(id, "failed", "completed")
            assert failed["error"]["data"]["code"] == "OUTCOME_UNKNOWN" and "may have had its effect" in str(failed)
        told = (await client.until(ids["keyed"], "failed", "completed"))["result"]
        assert told["isError"] and "OUTCOME_UNKNOWN" in str(told)
        assert (await client.until(ids["look"], "completed"))["result"]["content"][0]["text"] == "saw three"
        assert (await Client(first, key)("tasks/get", taskId=ids["cancelled"]))["status"] == "cancelled"
    effects = [line for line in servers.did if not line.startswith("look")]
    assert sorted(effects) == ["note one", "note two", "risky slow"]


async def test_a_task_whose_key_was_revoked_does_not_go_on(servers: Servers) -> None:
    key = servers.key("a")
    async with servers.one() as (process, site):
        id = (await Client(site, key).call("risky", text="one"))["taskId"]
        servers.answer("approve", servers.waiting()[0])
        process.kill()
    assert servers.terminal.run("keys", "revoke", key.split("_")[1]).code == 0
    async with servers.one() as (_, site):
        other = Client(site, servers.key("b"))
        assert (await other("tasks/get", taskId=id))["message"] == "Unknown task"
        await asyncio.sleep(LEASE_SECONDS + 2)
    assert servers.did == []


# -- tools of MCP servers that ask something while they run


ABLE = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that begins with a handshake, and wants answers while its tool runs."""
    with fixture_server("--old", log=tmp_path_factory.mktemp("old") / "log") as url:
        yield url


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_call_that_is_held_is_answered_through_another_process(servers: Servers, older: str) -> None:
    servers.use({"up": {"url": older, "tier": "read_only"}, "down": {"url": older, "tier": "write"}})
    key, other = servers.key("a"), servers.key("b")
    held: dict[str, Any] = {}
    said = {"action": "accept", "content": {"username": "ada", "email": "a@b.c"}}
    async with servers.one() as (process, first), servers.one() as (_, second):

        async def ask(name: str) -> dict[str, Any]:
            params = {"name": name, "arguments": {"message": "Who is it?"}}
            result = (await first.mcp("tools/call", params, key=key, meta=ABLE)).json["result"]
            assert result["resultType"] == "input_required", result
            answers = dict.fromkeys(result["inputRequests"], said)
            return {**params, "requestState": result["requestState"], "inputResponses": answers}

        await eventually(lambda: is_callable(first, key, "mcp_up_test_elicitation", "mcp_down_test_elicitation"))
        params = await ask("mcp_up_test_elicitation")
        stranger = (await second.mcp("tools/call", params, key=other, meta=ABLE)).json
        assert "call again" in stranger["error"]["message"] and "effect" not in str(stranger)
        unanswered = (await second.mcp("tools/call", {**params, "inputResponses": {}}, key=key, meta=ABLE)).json["result"]
        assert unanswered["resultType"] == "input_required"
        assert unanswered["inputRequests"].keys() == params["inputResponses"].keys()
        result = (await second.mcp("tools/call", params, key=key, meta=ABLE)).json["result"]
        assert result["resultType"] == "complete" and "accept" in str(result["content"]), result
        again = (await second.mcp("tools/call", params, key=key, meta=ABLE)).json["error"]
        assert "has ended" in again["message"]
        for name in ("mcp_up_test_elicitation", "mcp_down_test_elicitation"):
            held[name] = await ask(name)
        process.kill()
        errors = {}
        for name, params in held.items():

            async def told(params: dict[str, Any] = params) -> Any:
                answer = (await second.mcp("tools/call", params, key=key, meta=ABLE)).json
                return answer.get("error")

            errors[name] = await eventually(told)
    assert "call again" in errors["mcp_up_test_elicitation"]["message"]
    assert "nothing was changed" in errors["mcp_up_test_elicitation"]["message"]
    assert errors["mcp_down_test_elicitation"]["data"]["code"] == "OUTCOME_UNKNOWN"
    assert "may have had its effect" in errors["mcp_down_test_elicitation"]["message"]


async def is_callable(site: Site, key: str, *names: str) -> bool:
    listed = (await site.mcp("tools/list", {}, key=key)).json["result"]["tools"]
    return {one["name"] for one in listed} >= set(names)


async def test_a_tool_that_waits_for_an_answer_when_its_process_dies_asks_again_if_it_only_reads(
    servers: Servers, older: str
) -> None:
    servers.use({"up": {"url": older, "tier": "read_only"}, "down": {"url": older, "tier": "write"}})
    key, names = servers.key("a"), ("mcp_up_test_elicitation", "mcp_down_test_elicitation")
    said = {"action": "accept", "content": {"username": "ada", "email": "a@b.c"}}
    async with servers.one() as (process, first), servers.one() as (_, second):
        await eventually(lambda: is_callable(first, key, *names))
        await eventually(lambda: is_callable(second, key, *names))
        client = Client(second, key, ASKS)
        reads, writes = [(await Client(first, key, ASKS).call(name, message="Who?"))["taskId"] for name in names]
        [before] = (await client.until(reads, "input_required"))["inputRequests"]
        process.kill()
        failed = await client.until(writes, "failed", "completed")
        assert failed["error"]["data"]["code"] == "OUTCOME_UNKNOWN"

        async def is_asked_anew() -> Any:
            questions = (await client("tasks/get", taskId=reads)).get("inputRequests") or {}
            return next((name for name in questions if name != before), None)

        name = await eventually(is_asked_anew)
        await client("tasks/update", taskId=reads, inputResponses={name: said})
        assert "accept" in str((await client.until(reads, "completed"))["result"]["content"])

"""Tasks on record: their bounds, their owners, and who goes on with them; with several Apps on one database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.asking import ADA, BOSS
from tests.behaviour.nesting import Bench
from tests.behaviour.test_mcp_server_tasks import ASKS, HAS, SOON, Client
from tests.mcp_clients import key_for
from tests.serving import Site, serving
from toolgate import Actor, App, InvokeContext, tool
from toolgate.errors import StoreError
from toolgate.mcp.server import task_call, task_records, tasks
from toolgate.model import Cost
from toolgate.store.database import Transaction, now

pytestmark = pytest.mark.requirement("MCP-4", "TIER-6")

STRANGERS = (Actor("other", "analyst", "ada"), Actor("acme", "analyst", "eve"), Actor("acme", None, "ada"), ADA)


@pytest.fixture(autouse=True)
def _is_a_task_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TASK_AFTER_SECONDS", 0.05)


class Stage:
    """A database that Apps are opened on, with the tools of a bench and one that takes as long as a test lets it."""

    def __init__(self, database: str, folder: Path) -> None:
        self.database, self.home = database, folder / "home"
        self.bench = Bench(folder / "did.txt")
        self.enough = asyncio.Event()

        @tool(tier="read_only")
        async def slow(text: str) -> str:
            """Take long."""
            await self.enough.wait()
            return text * 100

        self.slow = slow

    @asynccontextmanager
    async def app(self, **settings: Any) -> AsyncIterator[tuple[App, Site]]:
        opened = App.open("/dev/null", database_url=self.database, home=self.home, entry_points=False, **settings)
        async with opened as app:
            self.bench.move_into(app).register(self.slow)
            async with serving(app) as site:
                yield app, site


@pytest.fixture
def stage(database: str, tmp_path: Path) -> Stage:
    return Stage(database, tmp_path)


async def rows(app: App, sql: str) -> list[tuple[Any, ...]]:
    def read() -> Transaction[list[tuple[Any, ...]]]:
        return (yield sql, {})

    return await app.parts.store.read(read())


async def waiting(app: App) -> str:
    """The one question that waits."""
    async with asyncio.timeout(SOON):
        while not (found := await app.approvals.list(actor=ADA)):
            await asyncio.sleep(0.01)
    return found[0].request.id


async def test_only_calls_that_become_tasks_are_on_record(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage.app() as (app, site):
        client = Client(site, await key_for(app, ADA))
        with monkeypatch.context() as patience:
            patience.setattr(tasks, "TASK_AFTER_SECONDS", SOON)
            assert (await client.call("note", text="a"))["resultType"] == "complete"
        assert await rows(app, "SELECT id FROM mcp_tasks") == []
        begun = await client.call("risky", text="b")
        [(id, request, state)] = await rows(app, "SELECT id, request, state FROM mcp_tasks")
        assert (id, state) == (begun["taskId"], "working") and "risky" not in request


async def test_a_task_is_unknown_to_everybody_but_its_credential(stage: Stage) -> None:
    async with stage.app() as (app, first), stage.app() as (_, second):
        key = await key_for(app, ADA)
        id = (await Client(first, key).call("slow", text="x"))["taskId"]
        for actor in STRANGERS:
            stranger = Client(second, await key_for(app, actor, may_approve=True))
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                told, unknown = await stranger(method, taskId=id), await stranger(method, taskId="x" * 32)
                assert told["code"] == unknown["code"] == -32602 and told["message"] == unknown["message"]
        for guess in ("", id[:-1], id + "x", "x" * 5_000, "%", "' OR 1=1"):
            answer = await second.mcp("tasks/get", {"taskId": guess}, headers={"Mcp-Name": guess}, key=key, meta=HAS)
            assert answer.json["error"]["code"] in (-32602, -32020)
        assert (await Client(second, key)("tasks/get", taskId=id))["status"] == "working"
        stage.enough.set()
        assert (await Client(second, key).until(id, "completed"))["result"]["content"][0]["text"] == "x" * 100


async def test_more_tasks_than_one_credential_may_have_are_waited_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_records, "MAX_ACTOR_TASKS", 2)
    async with stage.app() as (app, first), stage.app() as (_, second):
        key = await key_for(app, ADA)
        for site in (first, second):
            assert (await Client(site, key).call("slow", text="x"))["resultType"] == "task"
        told = await Client(first, key).call("risky", text="a")
        assert told["resultType"] == "complete" and told["structuredContent"]["status"] == "pending"
        third = asyncio.ensure_future(Client(first, key).call("slow", text="y"))
        other = await Client(first, await key_for(app, ADA)).call("slow", text="z")
        assert other["resultType"] == "task" and not third.done()
        stage.enough.set()
        done = await asyncio.wait_for(third, SOON)
        assert done["resultType"] == "complete" and done["content"][0]["text"] == "y" * 100
        assert len(await rows(app, "SELECT id FROM mcp_tasks")) == 3


async def test_a_task_is_forgotten_when_its_time_is_over(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_call, "TASK_TTL_SECONDS", 0.5)
    async with stage.app() as (app, first), stage.app() as (_, second):
        key = await key_for(app, ADA)
        here, there = Client(first, key), Client(second, key)
        begun = await here.call("slow", text="x")
        assert begun["ttlMs"] == 500
        over = datetime.fromisoformat(begun["createdAt"]) + timedelta(milliseconds=begun["ttlMs"])
        while now() <= over:
            await asyncio.sleep(0.05)
        assert (await there("tasks/get", taskId=begun["taskId"]))["status"] == "working"  # it still runs
        stage.enough.set()
        async with asyncio.timeout(SOON):
            while "code" not in await there("tasks/get", taskId=begun["taskId"]):
                await asyncio.sleep(0.02)
        await here.call("risky", text="b")
        assert len(await rows(app, "SELECT id FROM mcp_tasks")) == 1


async def test_a_result_that_is_too_long_for_the_record_is_an_artifact(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_records, "MAX_RESULT_BYTES", 400)
    async with stage.app() as (app, first), stage.app() as (other, second):
        key = await key_for(app, ADA)
        id = (await Client(first, key).call("slow", text="long"))["taskId"]
        stage.enough.set()
        result = (await Client(second, key).until(id, "completed"))["result"]
        assert result["isError"] is True and "longlong" not in str(result)
        artifact = result["content"][0]["text"].rpartition("/")[2]
        assert b"longlong" in (await other.audit.artifact(artifact, actor=ADA) or b"")
        assert await other.audit.artifact(artifact, actor=Actor("acme", "analyst", "eve")) is None


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_of_several_processes_each_task_goes_on_in_one(stage: Stage) -> None:
    async with stage.app() as (app, site):
        client = Client(site, await key_for(app, ADA))
        ids = {text: (await client.call("risky", text=text))["taskId"] for text in "abcdefgh"}
        nested = (await client.call("follow", steps=[["note", "x"], ["risky", "y"], ["note", "z"]]))["taskId"]
    assert stage.bench.effects == {"note x": 1}
    async with AsyncExitStack() as stack:
        there = [await stack.enter_async_context(stage.app()) for _ in range(3)]
        for asked in await there[0][0].approvals.list(actor=ADA):
            await there[0][0].approvals.answer(asked.request.id, True, actor=BOSS)
        clients = [Client(site, client._key) for _, site in there]
        for number, (text, id) in enumerate(ids.items()):
            done = await clients[number % 3].until(id, "completed", "failed")
            assert done["result"]["content"][0]["text"] == f"did {text}", done
        done = await clients[0].until(nested, "completed", "failed")
        assert done["result"]["content"][0]["text"] == '["noted x","did y","noted z"]', done
    assert stage.bench.effects == {**{f"risky {text}": 1 for text in ids}, "note x": 1, "risky y": 1, "note z": 1}


async def test_a_process_that_is_taken_for_dead_does_nothing_twice(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "LOOK_SECONDS", 3600.0)  # it stands still

    def forget() -> Transaction[None]:
        yield "DELETE FROM processes", {}

    async with stage.app() as (app, first):
        key = await key_for(app, ADA)
        here = Client(first, key)
        id = (await here.call("risky", text="a"))["taskId"]
        question = await waiting(app)
        await app.parts.store.transact(forget())
        monkeypatch.setattr(tasks, "LOOK_SECONDS", 0.1)
        async with stage.app() as (other, second):
            there = Client(second, key)
            async with asyncio.timeout(SOON):
                while (await rows(other, "SELECT runs FROM mcp_tasks"))[0][0] == 1:
                    await asyncio.sleep(0.02)
            await other.approvals.answer(question, True, actor=BOSS)
            done = await there.until(id, "completed", "failed")
            assert done["result"]["content"][0]["text"] == "did a"
            assert (await here.until(id, "completed"))["result"] == done["result"]
    assert stage.bench.effects == {"risky a": 1}


async def test_a_question_that_expires_while_nobody_has_the_task_ends_it(stage: Stage) -> None:
    async with stage.app(approvals={"expire_seconds": 1}) as (app, site):
        key = await key_for(app, ADA)
        id = (await Client(site, key).call("risky", text="a"))["taskId"]
        question = await waiting(app)
    async with stage.app(approvals={"expire_seconds": 1}) as (app, site):
        async with asyncio.timeout(SOON):
            while await app.approvals.state(question, "acme") != "expired":
                await asyncio.sleep(0.05)
        done = await Client(site, key).until(id, "completed", "failed")
        assert done["result"]["isError"] is True and "expired" in str(done["result"])
    assert not stage.bench.effects


async def test_a_person_answers_through_another_process_once(stage: Stage) -> None:
    ticked = {"action": "accept", "content": {"approve": True}}
    async with stage.app() as (app, first), stage.app() as (_, second):
        key = await key_for(app, ADA, may_approve=True)
        here, there = Client(first, key, ASKS), Client(second, key, ASKS)
        id = (await here.call("risky", text="a"))["taskId"]
        [name] = (await there.until(id, "input_required"))["inputRequests"]
        for response in ({"action": "decline"}, ticked):
            await there("tasks/update", taskId=id, inputResponses={name: response})
        shown = await there("tasks/get", taskId=id)
        assert "inputRequests" not in shown  # the first answer counts
        done = await there.until(id, "completed")
        assert done["result"]["isError"] is True and "USER_CANCELLED" in str(done["result"])
    assert not stage.bench.effects


async def test_a_key_that_was_revoked_ends_its_tasks(stage: Stage) -> None:
    async with stage.app() as (app, site):
        made, text = await app.keys.create("one", ADA)
        await Client(site, text).call("risky", text="a")
        question = await waiting(app)
    with_no_server = App.open("/dev/null", database_url=stage.database, home=stage.home, entry_points=False)
    async with with_no_server as app:
        await app.keys.revoke(made.id)
        await app.approvals.answer(question, True, actor=BOSS)
    async with stage.app() as (app, _):
        async with asyncio.timeout(SOON):
            while (await rows(app, "SELECT state FROM mcp_tasks"))[0][0] == "working":
                await asyncio.sleep(0.02)
        [(state, result)] = await rows(app, "SELECT state, result FROM mcp_tasks")
        assert state == "failed" and "revoked" in result
    assert not stage.bench.effects


async def change(app: App, sql: str) -> None:
    def work() -> Transaction[None]:
        yield sql, {}

    await app.parts.store.transact(work())


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.parametrize("broken", ["request = 'bm90aGluZw=='", "request = NULL", "runs = 5"])
async def test_a_task_that_cannot_go_on_ends_and_keeps_no_other_from_it(stage: Stage, broken: str) -> None:
    async with stage.app() as (app, site):
        client = Client(site, await key_for(app, ADA))
        bad = (await client.call("risky", text="bad"))["taskId"]
        good = (await client.call("risky", text="good"))["taskId"]
    async with App.open("/dev/null", database_url=stage.database, home=stage.home, entry_points=False) as app:
        for asked in await app.approvals.list(actor=ADA):
            await app.approvals.answer(asked.request.id, True, actor=BOSS)
        await change(app, f"UPDATE mcp_tasks SET {broken} WHERE id = '{bad}'")
    async with stage.app() as (_, site):
        client = Client(site, client._key)
        failed = await client.until(bad, "failed", "completed")
        assert failed["error"]["data"]["code"] == "OUTCOME_UNKNOWN"
        assert (await client.until(good, "completed"))["result"]["content"][0]["text"] == "did good"
    assert stage.bench.effects == {"risky good": 1}


async def test_what_was_under_way_is_made_again_only_if_it_does_nothing_but_read(stage: Stage) -> None:
    began: list[str] = []

    @tool(tier="read_only")
    async def reads() -> str:
        """Look."""
        return await begin("reads")

    @tool(tier="read_only", cost=Cost(fixed=Decimal("0.01")))
    async def costs() -> str:
        """Look, for money."""
        return await begin("costs")

    @tool(tier="read_only")
    async def calls(ctx: InvokeContext) -> str:
        """Look, and perhaps have others write."""
        return await begin("calls" if ctx.id else "")

    @tool(tier="write")
    async def writes() -> str:
        """Write."""
        return await begin("writes")

    async def begin(name: str) -> str:
        began.append(name)
        await stage.enough.wait()
        return name

    tools = (reads, costs, calls, writes)
    async with stage.app() as (app, site):
        app.tools.register_many(tools)
        client = Client(site, await key_for(app, ADA))
        ids = {one.__name__: (await client.call(one.__name__))["taskId"] for one in tools}
    stage.enough.set()
    async with stage.app() as (app, site):
        app.tools.register_many(tools)
        client = Client(site, client._key)
        ended = {name: await client.until(id, "failed", "completed", "cancelled") for name, id in ids.items()}
        assert ended.pop("reads")["result"]["content"][0]["text"] == "reads"
        assert {one["error"]["data"]["code"] for one in ended.values()} == {"OUTCOME_UNKNOWN"}
    assert sorted(began) == ["calls", "costs", "reads", "reads", "writes"]


async def test_a_result_is_on_record_without_its_secrets(stage: Stage) -> None:
    @tool(tier="read_only")
    async def tells() -> dict[str, str]:
        """Tell too much."""
        await stage.enough.wait()
        return {"password": "hunter2", "name": "ada"}

    async with stage.app() as (app, first), stage.app() as (_, second):
        app.register(tells)
        key = await key_for(app, ADA)
        id = (await Client(first, key).call("tells"))["taskId"]
        stage.enough.set()
        assert (await Client(second, key).until(id, "completed"))["result"]["structuredContent"]["name"] == "ada"
        record = str(await rows(app, "SELECT * FROM mcp_tasks"))
        assert "ada" in record and "hunter2" not in record


async def test_a_call_that_cannot_be_put_on_record_is_waited_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: Any) -> bool:
        raise StoreError("The disk is full.")

    async with stage.app() as (app, site):
        monkeypatch.setattr(app.mcp_tasks, "add", fails)
        client = Client(site, await key_for(app, ADA))
        told = await client.call("risky", text="a")
        assert told["resultType"] == "complete" and told["structuredContent"]["status"] == "pending"
        calling = asyncio.ensure_future(client.call("slow", text="y"))
        while app.parts.running.count == 0:
            await asyncio.sleep(0.01)
        stage.enough.set()
        assert (await asyncio.wait_for(calling, SOON))["content"][0]["text"] == "y" * 100

"""Tasks: calls of clients that have the extension, going on after their request was answered. Over raw HTTP, as the SDK has
no client for them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.behaviour.asking import ADA, BOSS, Workshop
from tests.mcp_clients import key_for
from tests.serving import META, Site, serving
from toolgate import Actor, App, tool
from toolgate.errors import Failed
from toolgate.mcp.server import tasks
from toolgate.store import audit_log
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("MCP-4")

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
TASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
HAS = {**META, CAPABILITIES: TASKS}
ASKS = {**META, CAPABILITIES: {**TASKS, "elicitation": {}}}
SOON = 30.0


class Client:
    """A client that has the extension."""

    def __init__(self, site: Site, key: str, meta: dict[str, Any] = HAS) -> None:
        self._site, self._key, self._meta = site, key, meta

    async def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        named = {"Mcp-Name": params["taskId"]} if "taskId" in params else {}
        answer = (await self._site.mcp(method, params, headers=named, key=self._key, meta=self._meta)).json
        told: dict[str, Any] = answer.get("result", answer.get("error"))
        return told

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return await self("tools/call", name=name, arguments=arguments)

    async def until(self, id: str, *statuses: str) -> dict[str, Any]:
        async with asyncio.timeout(SOON):
            while (shown := await self("tasks/get", taskId=id))["status"] not in statuses:
                await asyncio.sleep(0.05)
        return shown


@asynccontextmanager
async def a_site() -> AsyncIterator[tuple[App, Site, asyncio.Event]]:
    """With a tool that takes until the event is set, and one that fails then."""
    enough = asyncio.Event()

    @tool(tier="read_only")
    async def slow(fail: bool = False) -> str:
        """Take long."""
        await enough.wait()
        if fail:
            raise Failed("CONNECTION_ERROR", "It is gone.")
        return "at last"

    async with memory_app() as app, serving(app) as site:
        app.register(slow)
        yield app, site, enough


@pytest.fixture(autouse=True)
def _is_a_task_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that have not ended by then never end before a test lets them."""
    monkeypatch.setattr(tasks, "TASK_AFTER_SECONDS", 0.05)


async def test_a_call_that_takes_long_becomes_a_task_that_ends_with_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_site() as (app, site, enough):
        client = Client(site, await key_for(app, ADA))
        begun = await client.call("slow")
        assert begun["resultType"] == "task" and begun["status"] == "working" and isinstance(begun["ttlMs"], int)
        assert (await client("tasks/get", taskId=begun["taskId"]))["status"] == "working"
        enough.set()
        done = await client.until(begun["taskId"], "completed")
        assert done["result"]["content"] == [{"type": "text", "text": "at last"}]
        monkeypatch.setattr(tasks, "TASK_AFTER_SECONDS", SOON)
        failed = await client.call("slow", fail=True)
        assert failed["resultType"] == "complete" and failed["isError"] is True  # in time, so no task


async def test_a_task_whose_tool_fails_is_complete_with_an_error() -> None:
    async with a_site() as (app, site, enough):
        client = Client(site, await key_for(app, ADA))
        begun = await client.call("slow", fail=True)
        enough.set()
        done = await client.until(begun["taskId"], "completed", "failed")
        assert done["status"] == "completed" and done["result"]["isError"] is True


async def test_a_task_can_be_cancelled_and_the_call_is_on_record_as_that() -> None:
    async with a_site() as (app, site, _):
        client = Client(site, await key_for(app, ADA))
        begun = await client.call("slow")
        for _again in range(2):
            assert (await client("tasks/cancel", taskId=begun["taskId"])).keys() == {"resultType", "_meta"}
        assert (await client.until(begun["taskId"], "cancelled"))["status"] == "cancelled"
        async with asyncio.timeout(SOON):
            while app.parts.running.count:
                await asyncio.sleep(0.01)
        await app.flush()
        assert "CANCELLED" in str((await app.parts.store.read(audit_log.latest(1)))[-1])


@pytest.mark.requirement("DOOR-3")
async def test_a_task_is_its_own_actor_s_and_no_other_s() -> None:
    async with a_site() as (app, site, enough):
        client = Client(site, await key_for(app, ADA))
        id = (await client.call("slow"))["taskId"]
        for actor in (Actor("other", "analyst", "ada"), Actor("acme", "analyst", "eve"), Actor("acme", None, "ada")):
            stranger = Client(site, await key_for(app, actor))
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                told, unknown = await stranger(method, taskId=id), await stranger(method, taskId="nothing")
                assert told["code"] == unknown["code"] == -32602 and told["message"] == unknown["message"]
        without = Client(site, await key_for(app, ADA), META)
        assert (await without("tasks/get", taskId=id))["code"] == -32021
        enough.set()
        await client.until(id, "completed")


async def test_the_header_must_name_the_task() -> None:
    async with a_site() as (app, site, _):
        key = await key_for(app, ADA)
        id = (await Client(site, key).call("slow"))["taskId"]
        for headers in ({"Mcp-Name": "another"}, {}):
            answer = await site.mcp("tasks/get", {"taskId": id}, headers=headers, key=key, meta=HAS)
            assert (answer.status, answer.json["error"]["code"]) == (400, -32020)


@pytest.mark.requirement("TIER-6")
async def test_a_call_that_waits_for_an_approval_is_a_task_and_goes_on_when_it_is_given() -> None:
    made = Workshop()
    async with memory_app() as app, serving(app) as site:
        made.move_into(app)
        client = Client(site, await key_for(app, ADA))
        begun = await client.call("run", task="tidy")
        assert begun["resultType"] == "task"
        while "approval" not in (await client("tasks/get", taskId=begun["taskId"])).get("statusMessage", ""):
            await asyncio.sleep(0.01)  # on a slow machine it is a task before it has asked
        assert made.ran == []
        [waiting] = await app.approvals.list(actor=ADA)
        await app.approvals.answer(waiting.request.id, True, actor=BOSS)
        done = await client.until(begun["taskId"], "completed")
        assert done["result"]["content"][0]["text"] == "ran tidy" and len(made.ran) == 1


@pytest.mark.requirement("TIER-6")
async def test_a_task_that_is_cancelled_while_it_waits_for_an_approval_ends_that_too() -> None:
    made = Workshop()
    async with memory_app() as app, serving(app) as site:
        made.move_into(app)
        client = Client(site, await key_for(app, ADA))
        begun = await client.call("run", task="tidy")
        while "approval" not in (await client("tasks/get", taskId=begun["taskId"])).get("statusMessage", ""):
            await asyncio.sleep(0.01)
        [waiting] = await app.approvals.list(actor=ADA)
        await client("tasks/cancel", taskId=begun["taskId"])
        assert await app.approvals.state(waiting.request.id, ADA.tenant) == "expired"
        assert not (await app.approvals.resume(waiting.request.id, actor=ADA)).ok
        assert made.ran == []


@pytest.mark.requirement("TIER-6")
@pytest.mark.parametrize(
    ("answer", "ran"),
    [
        ({"action": "accept", "content": {"approve": True}}, 1),
        ({"action": "accept", "content": {"approve": "true"}}, 0),
        ({"action": "decline"}, 0),
        ({"action": "cancel"}, 0),
        ({}, 0),
    ],
)
async def test_a_person_answers_a_task_s_question_for_an_approval(answer: dict[str, Any], ran: int) -> None:
    made = Workshop()
    async with memory_app() as app, serving(app) as site:
        made.move_into(app)
        client = Client(site, await key_for(app, ADA, may_approve=True), ASKS)
        id = (await client.call("run", task="tidy"))["taskId"]
        asked = (await client.until(id, "input_required"))["inputRequests"]
        [(name, question)] = asked.items()
        assert question["method"] == "elicitation/create" and "tidy" in question["params"]["message"]
        await client("tasks/update", taskId=id, inputResponses={"nothing": answer, name: answer})
        done = await client.until(id, "completed")
        assert len(made.ran) == ran and bool(done["result"].get("isError")) is not bool(ran)


@pytest.mark.requirement("TIER-6", "DOOR-3")
async def test_a_key_that_may_not_approve_can_t_answer_a_task_of_one_that_may() -> None:
    made = Workshop()
    async with memory_app() as app, serving(app) as site:
        made.move_into(app)
        able = Client(site, await key_for(app, ADA, may_approve=True), ASKS)
        unable = Client(site, await key_for(app, ADA), ASKS)
        id = (await able.call("run", task="tidy"))["taskId"]
        [name] = (await able.until(id, "input_required"))["inputRequests"]
        ticked = {name: {"action": "accept", "content": {"approve": True}}}
        assert (await unable("tasks/update", taskId=id, inputResponses=ticked))["code"] == -32602
        assert (await able("tasks/get", taskId=id))["status"] == "input_required" and made.ran == []


async def test_what_still_goes_on_when_the_server_ends_is_cancelled() -> None:
    async with memory_app(shutdown_seconds=5) as app:

        @tool(tier="read_only")
        async def endless() -> None:
            """Never end."""
            await asyncio.sleep(3600)

        app.register(endless)
        async with serving(app) as site:
            begun = await Client(site, await key_for(app, ADA)).call("endless")
            assert begun["resultType"] == "task" and app.parts.running.count == 1
        assert app.parts.running.count == 0

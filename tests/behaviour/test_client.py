"""The Python client: the words of App, over HTTP, with and without async."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from tests.docs.synchronous_client import CLIENT, PARTS, written
from tests.serving import SECONDS, Site, serving
from toolgate import Actor, App, Outcome, tool
from toolgate.client import AsyncClient, Client, RequestRefused, ServerUnreachable
from toolgate.model.roles import Role
from toolgate.testing import memory_app

ANN = Actor("acme", persona="analyst", user="ann")


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(tier="external_api")
async def pay(amount: int) -> int:
    """Pay somebody."""
    return amount


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        app.register(add)
        app.register(pay)
        yield app


@pytest.fixture
async def site(app: App) -> AsyncIterator[Site]:
    async with serving(app) as site:
        yield site
        await app.keys.close()


async def client_of(app: App, site: Site, *roles: Role, actor: Actor = ANN) -> AsyncClient:
    _, key = await app.keys.create(f"{actor.user} {' '.join(roles)}", actor, roles=roles)
    return AsyncClient.open(f"http://{site.host}", key=key)


async def used(app: Any, **who: Any) -> list[Any]:
    """What a program does with an App, or with a client in its place."""
    done: Outcome = await app.invoke("add", {"a": 1, "b": 2}, **who)
    again: Outcome = await app.invoke("add", '{"a": 2, "b": 2}', idempotency_key=str(uuid4()), **who)
    wrong: Outcome = await app.invoke("add", {"a": "x"}, **who)
    missing: Outcome = await app.invoke("nothing", **who)
    said = await app.explain("add", {"a": 1, "b": 2}, **who)
    codes = [one.error.code for one in (wrong, missing) if one.error is not None]
    return [done.output, again.output, done.status, *codes, said.verdict]


@pytest.mark.requirement("DOOR-5")
async def test_a_program_does_the_same_with_a_client_as_with_an_app(app: App, site: Site) -> None:
    async with await client_of(app, site, "caller") as client:
        assert await used(client) == await used(app, actor=ANN) == [
            3, 4, "success", "VALIDATION_ERROR", "TOOL_NOT_FOUND", "run",
        ]  # fmt: skip
        assert [one.name for one in await client.tools.list()] == [one.name for one in await app.tools.list(ANN)]
    async with await client_of(app, site, "admin") as admin:
        told, made = await admin.tools.prompt("json"), await app.tools.prompt(ANN, style="json")
        assert (told.text, told.tokens, told.definitions) == (made.text, made.tokens, [])


@pytest.mark.requirement("DOOR-5")
async def test_a_call_that_waits_is_answered_and_goes_on(app: App, site: Site) -> None:
    async with await client_of(app, site, "caller") as agent:
        waiting = await agent.invoke("pay", {"amount": 5})
        assert waiting.pending is not None and waiting.pending.kind == "approval"
        async with await client_of(app, site, "approver", actor=Actor("acme", user="bob")) as person:
            (asked,) = await person.approvals.list()
            assert (asked.id, asked.asked_by.user, asked.arguments) == (waiting.pending.id, "ann", {"amount": 5})
            answered = await person.approvals.answer(asked.id, True, reason="fine")
            assert answered.approval.state == "approved"
        outcome = (await agent.approvals.resume(waiting.pending.id)).outcome
        assert outcome is not None and outcome.output == 5


@pytest.mark.requirement("DOOR-5", "POL-9")
async def test_an_operator_is_given_a_suggestion_and_tries_it(app: App, site: Site) -> None:
    await app.invoke("add", {"a": 1, "b": 2}, actor=ANN)
    async with await client_of(app, site, "operator") as client:
        found = await client.policy.suggest(persona="analyst", days=7)
        assert [(one.tenant, one.persona, [use.tool for use in one.used]) for one in found.personas] == [
            ("acme", "analyst", ["add"])
        ]
        assert (await client.policy.replay(data=found.data)).same == 1
    async with await client_of(app, site, "admin") as admin:
        with pytest.raises(RequestRefused, match="operator"):
            await admin.policy.suggest()


@pytest.mark.requirement("DOOR-5", "FLOW-1")
async def test_a_host_says_what_its_user_typed(app: App, site: Site) -> None:
    async with await client_of(app, site, "caller") as agent:
        with pytest.raises(RequestRefused, match="speak for the user"):
            await agent.say("chat", "pay 5")
    _, key = await app.keys.create("host", ANN, may_speak=True)
    async with AsyncClient.open(f"http://{site.host}", key=key) as host:
        assert (await host.say("chat", "pay 5")).tokens == 2
        assert not (await host.say("chat", "pay 5")).is_new


@pytest.mark.requirement("DOOR-5")
async def test_jobs_schedules_and_records(app: App, site: Site) -> None:
    async with await client_of(app, site, "caller") as client:
        queued = await client.enqueue("add", {"a": 2, "b": 3})
        assert queued.pending is not None and queued.pending.kind == "job"
        job = await client.jobs.wait(queued.pending.id, 30)
        assert (job.state, job.result["output"]) == ("done", 5)
        made = await client.schedules.add("0 8 * * *", "add", {"a": 1, "b": 1}, name="mornings")
        assert [one.name for one in await client.schedules.list()] == ["mornings"]
        assert (await client.schedules.pause(made.id)).state == "paused"
        await client.schedules.remove("mornings")
        done = await client.invoke("add", {"a": 1, "b": 2}, request_id="mine")
        assert [one.id for one in await client.audit.calls(request_id="mine")] == [done.id]
        assert (await client.audit.call(done.id)).id == done.id


@pytest.mark.requirement("DOOR-5")
async def test_events_are_followed_and_gone_on_with(app: App, site: Site) -> None:
    async with await client_of(app, site, "caller") as client:
        first = await client.invoke("add", {"a": 1, "b": 2})
        async with asyncio.timeout(SECONDS):
            async for event in client.events(event="call.ended", after=0):
                assert event.call == first.id
                break


@pytest.mark.requirement("DOOR-5")
async def test_what_is_refused_says_why(app: App, site: Site) -> None:
    async with await client_of(app, site, "viewer") as viewer:
        with pytest.raises(RequestRefused, match="needs the role") as refused:
            await viewer.invoke("add", {"a": 1, "b": 2})
        assert (refused.value.status, refused.value.code, refused.value.category) == (403, "PERMISSION_DENIED", "forbidden")
        assert refused.value.request_id
        with pytest.raises(RequestRefused) as missing:
            await viewer.approvals.get("nothing")
        assert missing.value.category == "missing"
    async with AsyncClient.open(f"http://{site.host}", key="tg_wrong") as stranger:
        with pytest.raises(RequestRefused) as unknown:
            await stranger.tools.list()
        assert unknown.value.status == 401
    async with AsyncClient.open("http://127.0.0.1:9", key="tg_x", timeout=5) as nobody:
        with pytest.raises(ServerUnreachable, match="cannot be reached") as unreachable:
            await nobody.tools.list()
        assert unreachable.value.suggestion == "Start `toolgate serve`, or set TOOLGATE_URL."


@pytest.mark.requirement("DOOR-5")
async def test_without_async_it_is_the_same(app: App, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_URL", f"http://{site.host}")
    monkeypatch.setenv("TOOLGATE_KEY", (await app.keys.create("plain", ANN))[1])

    def work() -> list[Any]:
        with Client.open() as client:
            outcome = client.invoke("add", {"a": 1, "b": 2})
            who = client.whoami()
            first = next(event.call for event in client.events(event="call.ended", after=0))
            return [outcome.output, first == outcome.id, len(client.tools.list()) > 10, who.user, who.tenant]

    assert await asyncio.to_thread(work) == [3, True, True, "ann", "acme"]


@pytest.mark.requirement("DOOR-5")
def test_the_client_without_async_is_written_from_the_other() -> None:
    for part in PARTS:
        assert (CLIENT / f"sync_{part}.py").read_text("utf-8") == written(part), "run make reference"


@pytest.mark.requirement("DOOR-5")
def test_a_client_needs_no_server_parts() -> None:
    code = (
        "import sys, toolgate.client; bad = {'starlette', 'uvicorn', 'mcp', 'regorus', 'asyncpg'} & set(sys.modules);"
        "sys.exit(', '.join(sorted(bad)) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "servers": [{"url": "https://shop.example"}],
    "paths": {"/orders": {"get": {"operationId": "listOrders", "responses": {"200": {"description": "All of them."}}}}},
}


@pytest.mark.requirement("DOOR-5")
async def test_openapi_documents_are_reviewed_over_the_client(app: App, site: Site) -> None:
    async with await client_of(app, site, "operator") as client:
        added = await client.openapi.add("shop", document=DOCUMENT)
        assert [one.name for one in await client.openapi.list()] == ["shop"] and added.document.waiting == 1
        accepted = await client.openapi.accept("shop", [one.hash for one in added.quarantined])
        assert (accepted.document.accepted, accepted.quarantined) == (1, [])
        with pytest.raises(RequestRefused) as refused:
            await client.openapi.refresh("shop")  # it was sent in, so that there is nowhere to read it from
        assert refused.value.status < 500
        await client.openapi.remove("shop")
        assert await client.openapi.list() == []


@pytest.mark.requirement("DOOR-5")
async def test_feedback_is_given_read_and_forgotten_over_the_client(app: App, site: Site) -> None:
    async with await client_of(app, site, "operator") as client:
        await client.learning.feedback("add", True, comment="right")
        assert [one.comment for one in await client.learning.said(tool="add")] == ["right"]
        assert await client.learning.suggestions() == []
        for answer in (client.learning.accept, client.learning.reject):
            with pytest.raises(RequestRefused) as refused:
                await answer("timeout:add")
            assert refused.value.status == 404
        assert await client.learning.forget(user="ann") == 1 and await client.learning.said() == []
        with pytest.raises(RequestRefused) as off:
            await client.teams.remove()  # no organisation is set up here
        assert off.value.status == 409

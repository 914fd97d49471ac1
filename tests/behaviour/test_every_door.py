"""Whichever door a call comes through, the same gates, hooks and records are on its way. The doors of agents, of tools that
call tools, and of code in the sandbox are in test_agent_loop, test_nested_calls and test_sandbox_governance."""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from tests.serving import Site, serving
from toolgate import Actor, App, Hook, InvokeContext, tool
from toolgate.store import audit_log
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("PIPE-1")
ADA = Actor("acme", "analyst", "ada")
GIVEN = {"a": 1, "b": 2}
RAN: list[int] = []


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    RAN.append(a + b)
    return a + b


class Watcher(Hook):
    """Notes the door of each call that is about to run."""

    doors: list[str]

    def __init__(self) -> None:
        self.doors = []

    def will_execute(self, ctx: InvokeContext) -> None:
        self.doors.append(ctx.call.door)


async def by_python(app: App, _site: Site) -> str:
    outcome = await app.invoke("add", GIVEN, actor=ADA)
    return outcome.error.code if outcome.error else outcome.status


async def by_http(_app: App, site: Site) -> str:
    answer = await site("POST", "/v1/tools/add/invoke", body=orjson.dumps({"arguments": GIVEN}), key=site.key)
    error = answer.json.get("error")
    return str(error["code"] if error else answer.json["status"])


async def by_mcp(_app: App, site: Site) -> str:
    answer = await site.mcp("tools/call", {"name": "add", "arguments": GIVEN})
    if "error" in answer.json:
        return "TOOL_NOT_FOUND" if "Unknown tool" in answer.json["error"]["message"] else str(answer.json)
    return "success" if answer.json["result"]["content"][0]["text"] == "3" else str(answer.json)


async def by_job(app: App, _site: Site) -> str:
    queued = await app.enqueue("add", GIVEN, actor=ADA)
    if queued.pending is None:
        return queued.error.code if queued.error else queued.status
    await app.jobs.run_all()
    return str((await app.jobs.get(queued.pending.id, actor=ADA)).result["status"])


@pytest.mark.parametrize("call", [by_python, by_http, by_mcp, by_job])
async def test_a_call_through_any_door_passes_the_same_gates_hooks_and_records(
    call: Callable[[App, Site], Awaitable[str]],
) -> None:
    RAN.clear()
    watcher = Watcher()
    async with memory_app() as app, serving(app) as site:
        app.register(add)
        app.add_hook(watcher)
        await site.with_key(app, ADA)
        assert await call(app, site) == "success"
        await app.flush()
        kept: list[Any] = [row for row in await app.parts.store.read(audit_log.latest(20)) if row[5] == "add"]
        assert {row[2] for row in kept} >= {"start", "end"}
        assert {row[4] for row in kept} == {"acme"}
        assert (len(RAN), len(watcher.doors)) == (1, 1)
        await app.tools.disable("add", tenant="acme")
        assert await call(app, site) == "TOOL_NOT_FOUND"
        assert (len(RAN), len(watcher.doors)) == (1, 1)

"""One of everything that pages show, with names and texts of somebody who would like to run a script on them, or mislead."""

from typing import Any

import orjson

from toolgate import Actor, App, tool
from toolgate.gates.approval.request import Answer, GrantTerms
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.learning.feedback import Feedback
from toolgate.model import NANO

ANN = Actor("acme", persona="ops", user="ann")
HIDDEN = "\u202e\u2066\u200b\u200f\x1b[31m\x1b]8;;http://x\x07\u2028"
"""Characters that turn text round, are not seen, or speak to a terminal."""
SCRIPT = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>\"'><svg/onload=window.hacked=1>{{7*7}}"
NASTY = SCRIPT + HIDDEN
PRINTED = SCRIPT
"""For names, which must be printable."""


def nasty_tools() -> list[Any]:
    @tool(tier="external_api", description=f"Pay. {NASTY}", tags=[PRINTED])
    async def pay(amount: int, note: str = "") -> str:
        return f"{amount} {note}"

    @tool(tier="read_only", description=NASTY)
    async def tell(text: str) -> dict[str, str]:
        return {text: text, PRINTED: NASTY}

    @tool(tier="read_only", description="Fails.")
    async def fail(text: str) -> str:
        raise ValueError(text)

    return [pay, tell, fail]


def nasty_document() -> bytes:
    parameters = [{"name": "q", "in": "query", "description": NASTY}]
    operation = {"operationId": NASTY, "summary": NASTY, "parameters": parameters}
    return orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": NASTY, "version": "1"},
            "servers": [{"url": "https://api.example.com"}],
            "paths": {"/x": {"get": operation}, "/y": {"get": {"servers": [{"url": "https://other.example"}]}}},
        }
    )


async def fill(app: App) -> dict[str, str]:
    """Makes one of everything, and gives the parameter of each address that has one."""
    for one in nasty_tools():
        app.register(one)
    waiting = await app.invoke("pay", {"amount": 1, "note": NASTY}, actor=ANN, session=PRINTED)
    assert waiting.pending is not None
    rejected = await app.invoke("pay", {"amount": 2, "note": NASTY}, actor=ANN)
    assert rejected.pending is not None
    await app.approvals.answer(rejected.pending.id, Answer("reject", NASTY), actor=Actor("acme", user="bob"))
    done = await app.invoke("tell", {"text": NASTY}, actor=ANN)
    failed = await app.invoke("fail", {"text": NASTY}, actor=ANN)
    assert (done.status, failed.status) == ("success", "failure")
    queued = await app.enqueue("tell", {"text": NASTY}, actor=ANN, delay=3600)
    assert queued.pending is not None
    schedule = await app.schedules.add("0 8 * * *", "tell", {"text": NASTY}, name=PRINTED[:60], actor=ANN)
    stranger = Actor("acme", persona=PRINTED, user=PRINTED)
    told = await app.invoke("tell", {"text": NASTY}, actor=stranger)
    await app.learning.feedback(
        Feedback(tool_name="tell", success=False, call_id=told.id, comment=NASTY, task=NASTY), actor=stranger
    )
    await app.grants.create(
        "pay", GrantTerms("user", 3600.0), actor=stranger, by=Actor("acme", user="bob" + PRINTED), reason=NASTY
    )
    await app.budgets.set(new_budget("day", NANO, tenant="acme", persona=PRINTED, user=PRINTED))
    await app.tools.disable("fail", tenant="acme", reason=PRINTED)
    key, _ = await app.keys.create("nasty", Actor("acme", persona=PRINTED, user=PRINTED))
    await app.openapi.add("nasty", "", content=nasty_document())
    return {
        "/approvals/{id}": waiting.pending.id, "/calls/{id}": failed.id, "/calls/{id}/again": done.id,
        "/tools/{name}": "tell", "/jobs/{id}": queued.pending.id, "/schedules/{id}": schedule.id, "/keys/{id}": key.id,
        "/audit/{seq}": "1", "/openapi/{name}": "nasty",
    }  # fmt: skip

"""A candidate policy that is observed: it answers on live calls, its answers are recorded, and nothing else changes."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.terminal import Terminal
from toolgate import Actor, App, tool
from toolgate.errors import ToolgateError
from toolgate.store import audit_log
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("POL-8")
HEAD = "package soma.policy\nimport rego.v1\ndefault allow := false\n"
CANDIDATE = (
    HEAD
    + """allow if input.resource != "pay"
allow if { input.resource == "pay"; input.context.arguments.amount <= 100 }
decision := {"allow": true, "reason": "fine"} if allow
else := {"allow": false, "reason": sprintf("%v is too much, %v", [input.context.arguments.amount, note])}
note := object.get(input.context.arguments, "password", "")
"""
)
ANN = Actor("acme", "analyst", "ann")


@tool(tier="write")
async def pay(amount: int, password: str = "") -> int:
    """Pay an amount."""
    return 0 if password == "wrong" else amount


@pytest.fixture
async def app(tmp_path: Path, database: str) -> AsyncIterator[App]:
    (tmp_path / "candidate.rego").write_text(CANDIDATE)
    async with memory_app(database_url=database, policy={"observe": [tmp_path / "candidate.rego"]}) as app:
        app.register(pay)
        yield app


async def record_of(app: App, id: str) -> dict[str, Any]:
    await app.flush()
    body: dict[str, Any] = json.loads((await app.parts.store.read(audit_log.of_call(id)))[-1][7])
    return body


async def test_what_a_candidate_would_deny_runs_and_is_on_record(app: App) -> None:
    few, much = [await app.invoke("pay", {"amount": amount}, actor=ANN) for amount in (100, 101)]
    assert (few.output, much.output) == (100, 101)
    (said,) = (await record_of(app, few.id))["observed"]
    assert (said["policy"], said["allow"], said["reason"]) == ("candidate.rego", True, "fine")
    (said,) = (await record_of(app, much.id))["observed"]
    assert (said["allow"], said["reason"]) == (False, "101 is too much, ")
    found = (await app.policy.observed())["candidate.rego"]
    assert (found.calls, found.same, found.newly_denied) == (2, 1, 1)
    (group,) = found.groups
    assert (group.change, group.tool, group.tenant, group.persona) == ("newly_denied", "pay", "acme", "analyst")
    assert group.examples == (much.id,)


async def test_what_a_candidate_would_allow_stays_denied(app: App) -> None:
    await app.tools.set_enabled("pay", False, persona="analyst")
    outcome = await app.invoke("pay", {"amount": 1}, actor=ANN)
    assert outcome.error is not None
    assert outcome.error.code == "TOOL_NOT_FOUND"
    found = (await app.policy.observed(tenant="acme"))["candidate.rego"]
    assert (found.calls, found.newly_allowed) == (1, 1)
    assert await app.policy.observed(tenant="globex") == {}


async def test_a_candidate_sees_tools_that_come_later(app: App, tmp_path: Path) -> None:
    @tool(tier="read_only")
    async def later() -> int:
        """Come later."""
        return 1

    file = tmp_path / "candidate.rego"
    file.write_text(HEAD + "allow if data.tool_catalog[input.resource].enabled\n")
    app.parts.observer.reload_changed()  # type: ignore[union-attr]
    assert (await app.invoke("pay", {"amount": 1})).ok
    app.register(later)
    outcome = await app.invoke("later", {})
    assert (await record_of(app, outcome.id))["observed"][0]["allow"] is True


async def test_records_do_not_hold_what_a_candidate_quotes_of_a_secret(app: App) -> None:
    outcome = await app.invoke("pay", {"amount": 500, "password": "correct horse"}, actor=ANN)
    record = await record_of(app, outcome.id)
    assert record["observed"][0]["allow"] is False
    assert "correct horse" not in json.dumps(record)


async def test_a_candidate_that_fails_on_a_call_changes_nothing(app: App, tmp_path: Path) -> None:
    (tmp_path / "candidate.rego").write_text(HEAD + "allow if object.get(input.context.arguments.amount, 1, 2)\n")
    app.parts.observer.reload_changed()  # type: ignore[union-attr]
    outcome = await app.invoke("pay", {"amount": 1}, actor=ANN)
    assert outcome.output == 1
    (said,) = (await record_of(app, outcome.id))["observed"]
    assert (said["allow"], said["reason"]) == (False, "the policy failed at line 4")


async def test_a_changed_candidate_is_taken_and_a_wrong_one_is_not(app: App, tmp_path: Path) -> None:
    async def answer() -> bool:
        outcome = await app.invoke("pay", {"amount": 101}, actor=ANN)
        return bool((await record_of(app, outcome.id))["observed"][0]["allow"])

    assert await answer() is False
    (tmp_path / "candidate.rego").write_text(CANDIDATE.replace("100", "1000"))
    async with asyncio.timeout(30):
        while not await answer():
            await asyncio.sleep(0.05)
    (tmp_path / "candidate.rego").write_text("nonsense")
    app.parts.observer.reload_changed()  # type: ignore[union-attr]
    assert await answer() is True


async def test_a_candidate_that_can_not_be_used_keeps_toolgate_from_starting(tmp_path: Path) -> None:
    file = tmp_path / "candidate.rego"
    file.write_text(CANDIDATE.replace("context.arguments", "context.argumnets"))
    with pytest.raises(ToolgateError, match=r"candidate\.rego refers to what a call never has"):
        async with memory_app(policy={"observe": [file]}):
            pass


def test_the_command_shows_what_would_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    assert terminal("policy", "observed").lines == [
        "No call on record was observed. The setting policy.observe names the Rego files to observe."
    ]
    (tmp_path / "candidate.rego").write_text(HEAD + 'allow if input.context.arguments.text == "a"\n')
    monkeypatch.setenv("TOOLGATE_POLICY__OBSERVE", '["candidate.rego"]')
    for text in ("a", "b"):
        assert terminal("call", "echo", f"text={text}").code == 0
    done = terminal("policy", "observed")
    assert done.lines[:2] == [
        "candidate.rego",
        "2 calls on record: 1 would end the same, 1 would be denied, 0 would be allowed, 0 cannot be told",
    ]
    assert terminal("policy", "observed", "--json").json["candidate.rego"]["newly_denied"] == 1

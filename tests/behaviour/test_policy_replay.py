"""A candidate policy is tried on the calls on record: what would change, in groups, and what nobody can tell."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from tests.soma_policy import DATA, policy_data
from toolgate import Actor, App, tool
from toolgate.app.policy_trial import TriedPolicy
from toolgate.gates.policy.embedded_rego import default_policy
from toolgate.gates.policy.replay import Group, Replay, replay
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("POL-6")
HEAD = "package soma.policy\nimport rego.v1\ndefault allow := false\n"
ANN, BOB = Actor("acme", "analyst", "ann"), Actor("globex", None, "bob")
LARGE = "allow if input.context.arguments.amount < 100\n"


@tool(tier="read_only")
async def pay(amount: int, password: str = "") -> int:
    """Pay an amount."""
    return amount + len(password)


@tool(tier="read_only")
async def look() -> str:
    """Look."""
    return "seen"


@tool(tier="read_only", requires_permission="tool:guarded")
async def guarded() -> str:
    """Need a permission."""
    return "done"


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        app.tools.register_many([pay, look, guarded])
        yield app


def tried(text: str) -> TriedPolicy:
    return TriedPolicy(text, policy_data(DATA).whole())


def changes(found: Replay) -> set[tuple[str, str, str, str | None, int]]:
    return {(group.change, group.tool, group.tenant, group.persona, group.count) for group in found.groups}


async def test_the_policy_in_force_changes_nothing(app: App) -> None:
    await app.tools.set_enabled("look", False, persona="analyst", reason="too curious")
    await app.invoke("pay", {"amount": 1}, actor=ANN)
    await app.invoke("pay", {"amount": "much"}, actor=ANN)  # invalid, so it was let through
    await app.invoke("look", actor=ANN)  # hidden
    await app.invoke("guarded", actor=BOB)  # denied
    await app.invoke("guarded", actor=Actor("globex", None, "bob", ("tool:guarded",)))
    await app.invoke("no_such_tool", actor=ANN)
    found = await app.policy.replay(default_policy())
    assert (found.same, found.calls, found.groups) == (5, 5, ())


async def test_what_would_be_denied_and_allowed_is_grouped_with_examples(app: App) -> None:
    await app.tools.set_enabled("look", False, persona="analyst")
    paid = [await app.invoke("pay", {"amount": number}, actor=ANN) for number in range(5)]
    hidden = await app.invoke("look", actor=ANN)
    await app.invoke("look", actor=BOB)
    found = await app.policy.replay(HEAD + 'allow if input.resource == "look"\n')
    assert (found.same, found.newly_denied, found.newly_allowed, found.unknown) == (1, 5, 1, 0)
    assert changes(found) == {("newly_denied", "pay", "acme", "analyst", 5), ("newly_allowed", "look", "acme", "analyst", 1)}
    largest, smallest = found.groups
    assert largest.examples == tuple(outcome.id for outcome in paid[:3])
    assert smallest.examples == (hidden.id,)
    assert largest.reason == "the policy does not allow it"


async def test_rules_on_arguments_are_tried_on_the_arguments_on_record(app: App) -> None:
    for amount in (1, 99, 100, 5000):
        await app.invoke("pay", {"amount": amount}, actor=ANN)
    found = await app.policy.replay(HEAD + LARGE)
    assert (found.same, found.newly_denied, found.unknown) == (2, 2, 0)


async def test_what_was_masked_is_unknown_to_rules_on_arguments_and_only_to_them(app: App) -> None:
    await app.invoke("pay", {"amount": 1, "password": "hunter2-hunter2"}, actor=ANN)
    await app.invoke("pay", {"amount": 1}, actor=ANN)
    found = await app.policy.replay(HEAD + LARGE)
    assert (found.same, found.unknown) == (1, 1)
    assert "masked" in found.groups[0].reason
    assert (await app.policy.replay(HEAD + "allow := input.tenant == input.tenant\n")).unknown == 0


async def test_only_calls_of_a_time_and_of_a_tenant(app: App) -> None:
    await app.invoke("look", actor=ANN)
    await app.invoke("look", actor=BOB)
    assert (await app.policy.replay(HEAD, tenant="acme")).newly_denied == 1
    assert (await app.policy.replay(HEAD, since=datetime.now(UTC) - timedelta(hours=1))).newly_denied == 2
    assert (await app.policy.replay(HEAD, since=datetime.now(UTC) + timedelta(hours=1))).calls == 0


async def test_the_candidate_decides_nothing_but_the_replay(app: App) -> None:
    await app.invoke("look", actor=ANN)
    await app.policy.replay(HEAD)
    assert (await app.invoke("look", actor=ANN)).ok
    assert (await app.audit.verify()).ok


# -- rows that are odd


Row = tuple[Any, ...]


async def pages(*rows: Row) -> AsyncIterator[Sequence[Row]]:
    for row in rows:
        yield [row]


def row(kind: str, body: Any, tool: str = "memory_load") -> Row:
    text = body if isinstance(body, str) else orjson.dumps(body).decode()
    return (1, 0, kind, "c1", "acme", tool, "failure", text, "")


END = {"persona": None, "user": "ann", "arguments": None, "decision": ""}


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        (row("start", {"user": "ann", "arguments": {}}), "same"),
        (row("end", {**END, "code": "VALIDATION_ERROR"}), "same"),
        (row("end", {**END, "code": "APPROVAL_REQUIRED"}), "same"),
        (row("end", {**END, "code": "PERMISSION_DENIED", "decision": "no"}), "newly_allowed"),
        (row("end", {**END, "code": "TOOL_NOT_FOUND", "decision": "off"}), "newly_allowed"),
        (row("end", {**END, "code": "TOOL_NOT_FOUND", "decision": "no such tool"}), None),
        (row("end", {**END, "code": "UNEXPECTED_ERROR"}), "unknown"),
        (row("end", {**END, "code": "CANCELLED"}), "unknown"),
        (row("end", {"user": "ann", "code": "TIMEOUT"}), None),
        (row("tool.enabled", {"user": "ann"}), None),
        (row("start", "no JSON"), None),
        (row("start", "[]"), None),
        (row("start", {"user": 7, "arguments": {}}), "unknown"),
        (row("start", {"user": "ann", "persona": "", "arguments": {}}), "unknown"),
        (row("start", {"user": "ann", "scopes": 7, "arguments": {}}), "unknown"),
    ],
)
async def test_a_record_counts_for_what_it_says(given: Row, counted: str | None) -> None:
    found = await replay(pages(given), tried(default_policy()), policy_data(DATA))
    assert found.calls == (counted is not None)
    assert counted is None or getattr(found, counted) == 1


async def test_a_replay_is_json() -> None:
    found = await replay(pages(row("start", {"user": "ann", "arguments": {}})), tried(HEAD), policy_data(DATA))
    assert found.groups == (Group("newly_denied", "memory_load", "acme", None, "the policy does not allow it", 1, ("c1",)),)
    assert orjson.loads(orjson.dumps(found.to_dict())) == {
        "calls": 1, "same": 0, "newly_denied": 1, "newly_allowed": 0, "unknown": 0,
        "groups": [
            {
                "change": "newly_denied", "tool": "memory_load", "tenant": "acme", "persona": None,
                "reason": "the policy does not allow it", "count": 1, "examples": ["c1"],
            }
        ],
    }  # fmt: skip

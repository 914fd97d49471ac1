"""The policy at work: what it decides about real calls and lists, embedded and from an OPA server alike."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.opa_server import Opa, running
from tests.soma_policy import DATA, policy_data
from toolgate import Actor, App, Outcome, tool
from toolgate.errors import ToolgateError
from toolgate.gates.policy.documents import validate
from toolgate.store import audit_log
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("POL-1", "POL-2")
ANN, BOB = Actor("acme", "analyst", "ann"), Actor("globex", None, "bob")
HEAD = "package soma.policy\nimport rego.v1\ndefault allow := false\n"
DOWN = "http://127.0.0.1:9"


@tool(tier="read_only")
async def pay(amount: int, currency: str = "EUR") -> str:
    """Pay an amount."""
    return f"{amount} {currency}"


@tool(tier="read_only", requires_permission="tool:vault")
async def vault() -> str:
    """Open the vault."""
    return "open"


@pytest.fixture(scope="module")
def opa() -> Iterator[Opa]:
    with running() as server:
        yield server


@pytest.fixture(params=["embedded", "opa"])
async def app(request: pytest.FixtureRequest) -> AsyncIterator[App]:
    """An App with the shipped policy: evaluated here, or pushed to a server that decides."""
    server: dict[str, Any] = {}
    if request.param == "opa":
        server = {"opa_url": request.getfixturevalue("opa").url, "policy": {"push": True}}
    async with memory_app(**server) as app:
        app.tools.register_many([pay, vault])
        await app.refresh()
        yield app


def code(outcome: Outcome) -> str | None:
    return outcome.error.code if outcome.error is not None else None


async def names(app: App, actor: Actor) -> set[str]:
    return {seen.name for seen in await app.tools.list(actor)}


async def decision_of(app: App, outcome: Outcome) -> str:
    """Why, as the log has it."""
    await app.flush()
    rows = await app.parts.store.read(audit_log.of_call(outcome.id))
    return str(orjson.loads(rows[-1][7])["decision"])


async def test_a_permission_that_a_tool_requires_is_looked_for_in_the_callers_scopes(app: App) -> None:
    denied = await app.invoke("vault", actor=ANN)
    assert (denied.status, code(denied)) == ("denied", "PERMISSION_DENIED")
    assert denied.error is not None
    assert "needs the permission tool:vault" in denied.error.message
    assert "vault" in await names(app, ANN), "it may be seen"
    assert (await app.invoke("vault", actor=Actor("acme", "analyst", "ann", ("tool:vault",)))).ok


@pytest.mark.requirement("POL-7")
async def test_what_is_denied_to_everybody_is_not_there_for_anybody_and_at_once(app: App) -> None:
    assert (await app.invoke("pay", {"amount": 1}, actor=ANN)).ok
    await app.policy.deny("pay", reason="under investigation")
    missing, hidden = await app.invoke("no_such", actor=ANN), await app.invoke("pay", {"amount": 1}, actor=ANN)
    assert missing.error is not None
    assert hidden.error is not None
    assert hidden.error.message == missing.error.message.replace("no_such", "pay")
    assert await decision_of(app, hidden) == "pay is denied to everybody: under investigation"
    assert "pay" not in await names(app, ANN) | await names(app, BOB)
    await app.policy.deny("pay", False)
    assert (await app.invoke("pay", {"amount": 1}, actor=ANN)).ok
    assert "pay" in await names(app, BOB)


async def test_flags_of_tenants_and_personas_are_the_policys_data(app: App) -> None:
    await app.tools.set_enabled("pay", False, tenant="globex")
    await app.tools.set_enabled("vault", False, persona="analyst", reason="no keys")
    outcomes = [await app.invoke("pay", {"amount": 1}, actor=actor) for actor in (ANN, BOB)]
    assert [code(outcome) for outcome in outcomes] == [None, "TOOL_NOT_FOUND"]
    assert await decision_of(app, await app.invoke("vault", actor=ANN)) == "persona analyst: no keys"
    assert await names(app, ANN) >= {"pay"}
    assert "vault" not in await names(app, ANN)
    documents = await app.policy.documents()
    assert validate(documents) == []
    assert documents["tenant_tool_flags"]["globex"] == {"pay": {"enabled": False}}
    assert documents["persona_tool_deny"] == {"analyst": ["vault"]}


async def test_the_log_says_why_a_call_was_let_through(app: App) -> None:
    assert (await decision_of(app, await app.invoke("pay", {"amount": 1}, actor=ANN))).startswith("pay is enabled")


# -- policies of one's own


@pytest.mark.requirement("POL-3")
async def test_a_rule_on_arguments_sees_what_will_run(tmp_path: Path) -> None:
    file = tmp_path / "own.rego"
    file.write_text(
        HEAD
        + """
allow if input.action == "tool.view"
allow if { input.context.arguments.amount <= 100; input.context.arguments.currency == "EUR" }
"""
    )
    async with memory_app(policy={"file": file}) as app:
        app.register(pay)
        assert (await app.invoke("pay", {"amount": 100, "currency": "EUR"})).ok
        for arguments in ({"amount": 101, "currency": "EUR"}, {"amount": 1, "currency": "USD"}):
            outcome = await app.invoke("pay", arguments)
            assert (code(outcome), outcome.output) == ("PERMISSION_DENIED", None)


@pytest.mark.requirement("POL-7")
async def test_lists_follow_a_policy_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "own.rego"
    file.write_text(HEAD + 'allow if { input.resource == "pay"; input.tenant == "acme" }\n')
    async with memory_app(policy={"file": file}) as app:
        app.tools.register_many([pay, vault])
        assert await names(app, ANN) == {"pay"}
        assert await names(app, BOB) == set()
        assert code(await app.invoke("pay", {"amount": 1}, actor=BOB)) == "TOOL_NOT_FOUND"
        assert (await app.invoke("pay", {"amount": 1}, actor=ANN)).ok


@pytest.mark.parametrize(
    "text", [None, HEAD + "allow if {", "package other\nallow := true"], ids=["none", "broken", "other"]
)
async def test_an_app_does_not_open_with_a_policy_that_can_not_be_used(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "own.rego"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ToolgateError, match="policy"):
        async with memory_app(policy={"file": file}):
            raise AssertionError("it opened")


# -- an OPA server that is not there


@pytest.mark.parametrize("push", [False, True])
async def test_without_its_opa_server_nothing_runs_and_nothing_is_listed(push: bool) -> None:
    async with memory_app(opa_url=DOWN, policy={"push": push}) as app:
        app.register(pay)
        outcome = await app.invoke("pay", {"amount": 1}, actor=ANN)
        assert not outcome.ok
        assert "OPA server" in await decision_of(app, outcome)
        assert await names(app, ANN) == set()


# -- tenants that may not run code

CUSTOM = """\
name: greet
description: Greet somebody.
permissions: {risk_level: low}
schema: {type: object, properties: {}}
runtime: python
code: |
  def execute(args, context):
      return "hello"
"""
RUN_CODE: dict[str, dict[str, Any]] = {
    "code_execute": {"code": "1", "language": "python"},
    "run_program": {"code": "1"},
    "bash_execution": {"command": "git commit"},
    "execute_command": {"command": "git commit"},
    "docker_run": {"image": "python", "command": ["true"]},
    "npm_install": {"package": "left-pad"},
    "supabase_query": {"operation": "migration", "query": "DROP TABLE notes"},
    "register_tool": {"definition": '{"name": "mine", "description": "Mine.", "kind": "sandbox"}', "code": "1"},
    "greet": {},
}


@pytest.mark.requirement("POL-3", "SBX-3")
async def test_a_tenant_that_may_not_run_code_runs_none_by_whichever_tool(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "greet.yml").write_text(CUSTOM)
    async with App.open(home=tmp_path, database_url="memory://", python_tools=[tmp_path / "tools"]) as app:
        app.approvals.add_approver(lambda _request: True)
        await app.policy.restrict_code("acme")
        runs = {entry.name for entry in app.parts.catalog.entries() if entry.runs_code} | {"greet"}
        assert runs <= RUN_CODE.keys()
        assert (await app.invoke("greet", {}, actor=BOB)).output == "hello"
        for name, arguments in RUN_CODE.items():
            outcome = await app.invoke(name, arguments, actor=ANN)
            assert (outcome.status, code(outcome)) == ("denied", "PERMISSION_DENIED"), name
            assert outcome.error is not None
            assert "tenant acme may not run code" in outcome.error.message
        assert (await app.invoke("echo", {"text": "still"}, actor=ANN)).ok


# -- several processes


@pytest.mark.requirement("POL-4")
async def test_another_process_obeys_a_change_once_it_has_looked(database: str) -> None:
    async with memory_app(database_url=database) as one, memory_app(database_url=database) as two:
        for app in (one, two):
            app.register(pay)
        assert (await two.invoke("pay", {"amount": 1}, actor=ANN)).ok
        await one.policy.deny("pay")
        await one.policy.restrict_code("acme")
        await two.refresh()
        assert code(await two.invoke("pay", {"amount": 1}, actor=ANN)) == "TOOL_NOT_FOUND"
        assert (await two.policy.documents())["code_execution_restricted_tenants"] == ["acme"]


def test_documents_of_the_store_and_of_document_d_have_one_shape() -> None:
    assert validate(policy_data(DATA).whole()) == []


@pytest.mark.requirement("POL-2")
async def test_while_opa_is_out_of_reach_a_call_is_denied_with_that_reason_and_hidden_tools_stay_hidden() -> None:
    async with memory_app(opa_url="http://127.0.0.1:9", policy={"opa_seconds": 0.5}) as app:
        await app.tools.set_enabled("echo", False, persona="intern", reason="too loud")
        denied = await app.invoke("echo", {"text": "hi"}, actor=Actor(tenant="acme"))
        assert denied.error is not None
        assert (denied.status, denied.error.code) == ("denied", "PERMISSION_DENIED")
        assert "OPA" in denied.error.message
        hidden = await app.invoke("echo", {"text": "hi"}, actor=Actor(tenant="acme", persona="intern"))
        assert code(hidden) == code(await app.invoke("no_such_tool", actor=Actor(tenant="acme"))) == "TOOL_NOT_FOUND"

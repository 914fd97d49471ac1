"""`explain`: what every gate would say, without making the call."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.secret_use import named
from tests.terminal import Terminal
from toolgate import Actor, App, tool
from toolgate.gates.approval.request import GrantTerms
from toolgate.model import Auth, Cost, RateLimit
from toolgate.pipeline.explain import Explanation
from toolgate.store import audit_log
from toolgate.store.budgets import BudgetRow
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("POL-5")

ACME = Actor(tenant="acme", persona="analyst", user="ada")
RAN: list[str] = []


@tool(tier="read_only")
async def look(path: str = "notes.md") -> str:
    """Look at something."""
    RAN.append("look")
    return path


@tool(tier="read_only", rate_limit=RateLimit(per_minute=1), requires_permission="tool:rare")
async def rare() -> str:
    """Seldom."""
    return "done"


@tool(tier="external_api", cost=Cost(fixed=Decimal("0.25")), requires_auth=Auth(config_key="BANK", setup_url="https://bank"))
async def pay(amount: int) -> int:
    """Pay somebody."""
    RAN.append("pay")
    return amount


@tool(tier="write", target="shop")
async def order(item: str) -> str:
    """Order something from a shop that is closed."""
    raise ConnectionError(item)


def gates(found: Explanation) -> dict[str, str]:
    return {gate.gate: gate.verdict for gate in found.gates}


def reason(found: Explanation, name: str) -> str:
    return next(gate.reason for gate in found.gates if gate.gate == name)


@pytest.fixture
async def app() -> Any:
    RAN.clear()
    async with memory_app() as opened:
        opened.tools.register_many([look, rare, pay, order])
        yield opened


async def test_a_call_that_would_run_passes_every_gate_and_is_not_run(app: App) -> None:
    found = await app.explain("look", {"path": "notes.md"}, actor=ACME)
    assert (found.verdict, set(gates(found).values())) == ("run", {"pass"})
    assert all(gate.reason for gate in found.gates)
    await app.flush()
    assert RAN == []
    assert await app.parts.store.read(audit_log.latest(10)) == []


async def test_policy_and_flags_say_why_not_also_where_a_caller_is_told_nothing(app: App) -> None:
    await app.tools.set_enabled("look", False, persona="analyst", reason="analysts read reports")
    found = await app.explain("look", {}, actor=ACME)
    assert (found.verdict, gates(found)["policy"]) == ("deny", "deny")
    assert "analysts read reports" in reason(found, "policy")
    await app.tools.set_enabled("look", False, tenant="globex")
    found = await app.explain("look", {}, actor=Actor(tenant="globex"))
    assert gates(found)["flags"] == "deny"
    assert "globex" in reason(found, "flags")


async def test_a_tool_that_is_not_there_is_the_only_thing_to_say(app: App) -> None:
    found = await app.explain("nothing", {})
    assert (found.verdict, gates(found)) == ("deny", {"catalog": "deny"})


async def test_arguments_that_do_not_fit_leave_open_what_depends_on_them(app: App) -> None:
    found = await app.explain("pay", {"amount": "much"}, actor=ACME)
    verdicts = gates(found)
    assert (found.verdict, verdicts["input"]) == ("deny", "deny")
    assert {verdicts[name] for name in ("tier", "credentials", "consent", "budget")} == {"unknown"}


async def test_a_sensitive_file_is_seen_by_the_tier(app: App, tmp_path: Path) -> None:
    found = await app.explain("look", {"path": str(tmp_path / ".env")}, actor=ACME)
    assert (found.verdict, gates(found)["tier"]) == ("deny", "deny")


async def test_scopes_are_the_policys_business(app: App) -> None:
    assert gates(await app.explain("rare", {}, actor=ACME))["policy"] == "deny"
    trusted = Actor("acme", "analyst", "ada", ("tool:rare",))
    assert (await app.explain("rare", {}, actor=trusted)).verdict == "run"


async def test_a_rate_limit_is_looked_at_and_not_counted(app: App) -> None:
    trusted = Actor("acme", "analyst", "ada", ("tool:rare",))
    for _ in range(3):
        assert gates(await app.explain("rare", {}, actor=trusted))["rate"] == "pass"
    assert (await app.invoke("rare", actor=trusted)).ok
    assert gates(await app.explain("rare", {}, actor=trusted))["rate"] == "deny"


async def test_credential_consent_and_budget_of_a_call_that_costs(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await app.explain("pay", {"amount": 3}, actor=ACME)
    assert (found.verdict, gates(found)["credentials"]) == ("deny", "deny")
    monkeypatch.setenv("TOOLGATE_SECRET_BANK", "open sesame, please")
    found = await app.explain("pay", {"amount": 3}, actor=ACME)
    assert (found.verdict, gates(found)["consent"], gates(found)["budget"]) == ("ask", "ask", "pass")
    assert "open sesame" not in str(found)
    await app.grants.create("pay", GrantTerms("user", 60), actor=ACME)
    found = await app.explain("pay", {"amount": 3}, actor=ACME)
    assert (found.verdict, gates(found)["consent"]) == ("run", "pass")
    assert (await app.grants.list(actor=ACME))[0].uses == 0
    await app.budgets.set(BudgetRow("b", "acme", None, None, None, "day", 200_000_000, "UTC"))
    found = await app.explain("pay", {"amount": 3}, actor=ACME)
    assert (found.verdict, gates(found)["budget"]) == ("deny", "deny")
    assert RAN == []


async def test_a_grant_for_another_does_not_cover(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_BANK", "open sesame, please")
    await app.grants.create("pay", GrantTerms("user", 60), actor=Actor("acme", "analyst", "bob"))
    assert (await app.explain("pay", {"amount": 3}, actor=ACME)).verdict == "ask"


async def test_an_open_circuit_is_told(app: App) -> None:
    for _ in range(5):
        assert not (await app.invoke("order", {"item": "pen"}, actor=ACME)).ok
    found = await app.explain("order", {"item": "pen"}, actor=ACME)
    assert (found.verdict, gates(found)["breaker"]) == ("deny", "deny")


async def test_an_explanation_is_plain_json(app: App) -> None:
    plain = orjson.loads(orjson.dumps((await app.explain("look", {}, actor=ACME)).to_dict()))
    assert (plain["tool"], plain["verdict"], plain["actor"]["tenant"]) == ("look", "run", "acme")
    assert {"gate", "verdict", "reason"} == set(plain["gates"][0])


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


def test_the_command_says_it_and_ends_as_the_call_would(terminal: Terminal) -> None:
    fine = terminal.run("explain", "calculator", "expression=1+1")
    assert (fine.code, fine.out.splitlines()[0]) == (0, "It would run")
    assert "policy" in fine.out
    gone = terminal.run("explain", "nothing", "--json")
    assert (gone.code, orjson.loads(gone.out)["verdict"]) == (1, "deny")
    wrong = terminal.run("explain", "calculator")
    assert wrong.code == 1
    assert "expression" in wrong.out


# -- explain says what the call would be told


POLICY = """package soma.policy
import rego.v1
default allow := false
allow if {
    input.context.door == "cli"
    not input.context.arguments.times == 1
}
allow if {
    input.context.door == "mcp"
    input.context.arguments.times == 1
}
"""


@tool(tier="read_only")
async def ping(to: str, times: int = 1) -> str:
    """Ping somebody."""
    return to * times


async def test_the_policy_is_asked_as_the_call_would_be(tmp_path: Path) -> None:
    file = tmp_path / "door.rego"
    file.write_text(POLICY)
    async with memory_app(policy={"file": file}) as opened:
        opened.register(ping)
        for door in ("python", "cli", "mcp"):
            for arguments in ({"to": "x"}, {"to": "x", "times": 2}):
                found = await opened.explain("ping", arguments, actor=ACME, door=door)
                outcome = await opened.invoke("ping", arguments, actor=ACME, door=door)
                expected = door == ("cli" if "times" in arguments else "mcp")
                assert (found.verdict == "run", outcome.ok) == (expected, expected)


async def test_what_keeps_a_secret_from_a_tool_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_BANK", "open sesame, please")
    async with memory_app(secrets=named("BANK", "order", tenant="globex")) as opened:
        opened.register(order)
        found = await opened.explain("order", {"item": "{{secret:BANK}}"}, actor=ACME)
        assert "may not be put into order for tenant acme" in reason(found, "credentials")

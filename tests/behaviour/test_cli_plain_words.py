"""What a newcomer reads at the terminal: summaries in full, next steps, and records that say what happened when."""

import logging
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from time import time_ns
from typing import Any

import pytest
from typer.main import get_command

from tests.terminal import Terminal
from toolgate import App, tool
from toolgate.cli.main import with_commands
from toolgate.gates.approval.request import Answer, ApprovalError, ApprovalRequest, GrantTerms
from toolgate.store import audit_log
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-6")

TOOLS = '''
    from toolgate import ToolError, tool

    @tool(tier="external_api")
    async def post(text: str) -> str:
        """Post a message."""
        return text

    @tool(tier="external_api", cost=0.8)
    async def send(to: str) -> str:
        """Send a letter."""
        return to

    @tool(tier="read_only")
    async def paint(colour: str) -> str:
        """Paint something."""
        raise ToolError(f"{colour} is not made any more", code="COLOUR\\x1b_GONE")
'''


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    made = Terminal(tmp_path, monkeypatch, capsys)
    made.add_tools(TOOLS)
    return made


def test_no_summary_of_a_command_is_cut_at_80_columns(terminal: Terminal) -> None:
    terminal.set("COLUMNS", "80")
    for path in groups(get_command(with_commands())):
        done = terminal(*path, "--help")
        assert done.code == 0
        cut = [line for line in done.lines if line.endswith("...") and not line.startswith("Usage")]
        assert not cut, "begin the docstring with a sentence of at most 55 characters"
        assert all(len(line) <= 80 for line in done.lines)


def groups(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if hasattr(command, "commands"):
        yield path
        for name, inner in command.commands.items():
            yield from groups(inner, (*path, name))


def test_a_new_tool_comes_with_next_steps_that_hold(terminal: Terminal) -> None:
    done = terminal("tools", "new", "welcome", "--runtime", "python")
    assert "✓ New tool: welcome (python) in .toolgate/tools/welcome.yml" in done.out
    assert "  toolgate tools test welcome     runs its 3 examples\n" in done.err
    assert "  toolgate call welcome name=Ada  calls it\n" in done.err
    assert "  toolgate trust                  accepts the file after you edited it\n" in done.err
    assert "toolgate trust" in (terminal.home / "tools/welcome.yml").read_text().splitlines()[0]


def test_a_cap_that_could_never_be_reached_is_refused(terminal: Terminal) -> None:
    refused = terminal("grants", "add", "post", "--for", "1h", "--cap", "5")
    assert refused.code == 1
    assert "post names no price: each call counts as $0.00, so a cap would limit nothing." in refused.err
    assert "toolgate budgets set --tool post --daily USD" in refused.err
    waiting = terminal("call", "post", "text=x", "--json").json["pending"]["id"]
    answered = terminal("approvals", "approve", waiting, "--for", "1h", "--cap", "5", "--json")
    assert (answered.code, answered.json["error"]["code"]) == (1, "APPROVAL_ERROR")
    (kept,) = terminal("approvals", "list", "--json").json["approvals"]
    assert kept["state"] == "waiting", "nothing was approved by halves"
    assert terminal("grants", "list", "--all", "--json").json == {"grants": []}
    assert terminal("grants", "add", "post", "--for", "1h").code == 0
    assert terminal("grants", "add", "send", "--for", "1h", "--cap", "5").code == 0


def test_a_code_of_the_tools_own_is_shown_wherever_its_error_is(terminal: Terminal) -> None:
    done = terminal("call", "paint", "colour=pink")
    assert "INVOCATION_ERROR (COLOUR\\x1b_GONE): pink is not made any more" in done.err, "and no terminal obeys it"
    told = terminal("call", "paint", "colour=red", "--json").json
    assert told["error"]["details"] == {"tool_code": "COLOUR\x1b_GONE"}
    assert "INVOCATION_ERROR (COLOUR\\x1b_GONE): red is" in terminal("audit", "tail").lines[-1]
    records = terminal("audit", "show", told["id"], "--json").json["records"]
    assert records[-1]["body"]["tool_code"] == "COLOUR\x1b_GONE"


async def test_a_call_starts_on_record_when_it_did_and_not_when_it_was_asked_about() -> None:
    answered: list[int] = []

    def approve(_: ApprovalRequest) -> Answer:
        answered.append(time_ns() // 1000)
        return Answer("approve", by="ada")

    @tool(tier="external_api")
    async def post(text: str) -> str:
        """Post a message."""
        return text

    async with memory_app() as app:
        app.register(post)
        app.approvals.add_approver(approve)
        assert (await app.invoke("post", {"text": "x"})).ok
        assert (await app.audit.verify()).ok
        rows = await app.parts.store.read(audit_log.latest(10))
    times = {row[2]: row[1] for row in rows}
    assert answered[0] <= times["start"] <= times["end"], rows


def test_an_alert_is_of_the_budgets_tenant_and_says_what_it_is_about(terminal: Terminal) -> None:
    terminal("budgets", "set", "--tenant", "shop", "--daily", "1")
    terminal("budgets", "set", "--daily", "1")
    assert terminal("call", "send", "to=bob", "--tenant", "shop", "--yes").code == 0
    alerts = [line.split("budget.alert")[1].strip() for line in terminal("audit", "tail").lines if "budget.alert" in line]
    assert sorted(alerts) == [
        "default/local  the daily budget of everybody has reached 80 %: $0.80 of $1.00",
        "shop/local  the daily budget of tenant shop has reached 80 %: $0.80 of $1.00",
    ]


async def test_a_crash_sends_nobody_to_an_audit_log_that_is_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(tier="read_only")
    async def divide(a: int) -> float:
        """Divide."""
        return a / 0

    told: list[str] = []
    for kept in (memory_app(), App.open(home=tmp_path / "data", auto_load_custom_tools=False)):
        caplog.clear()
        async with kept as app:
            app.register(divide)
            with caplog.at_level(logging.ERROR, "toolgate"):
                await app.invoke("divide", {"a": 1})
        told.append(caplog.records[0].getMessage())
    assert "divide failed in call " in told[0]
    assert "audit show" not in told[0]
    assert "`toolgate audit show " in told[1]


async def test_explain_names_each_gate_once_and_in_the_fields_words(tmp_path: Path) -> None:
    policy = tmp_path / "own.rego"
    policy.write_text(
        'package soma.policy\nimport rego.v1\ndefault allow := false\nallow if input.action == "tool.view"\n'
        'allow if input.context.arguments.text == "hello"\n'
    )
    async with memory_app(policy={"file": policy}) as app:
        found = await app.explain("echo", {"text": "hello"})
    reasons = {gate.gate: gate.reason for gate in found.gates}
    assert (found.verdict, len(reasons)) == ("run", len(found.gates))
    assert reasons["policy_final"].startswith("asked again with the arguments as they would run: ")
    assert reasons["breaker"] == "circuit closed"


async def test_a_program_is_refused_such_a_cap_too() -> None:
    @tool(tier="external_api")
    async def post(text: str) -> str:
        """Post a message."""
        return text

    async with memory_app() as app:
        app.register(post)
        waiting = (await app.invoke("post", {"text": "x"})).pending
        assert waiting is not None
        terms = GrantTerms("user", 60, Decimal(5))
        with pytest.raises(ApprovalError, match="names no price"):
            await app.approvals.answer(waiting.id, Answer("approve", grant=terms))

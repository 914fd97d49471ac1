"""Lists on a terminal of 80 columns: every line fits, and nothing is lost. In a pipe they are as wide as they are."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.teletype import Teletype
from tests.terminal import Terminal
from toolgate.cli.table import GAP, INDENT, packed

pytestmark = pytest.mark.requirement("DOOR-1")
TOOLS = '''
    import asyncio
    from toolgate import tool

    @tool(tier="external_api", cost=0.25)
    async def send_a_letter(to: str) -> str:
        """Send a letter."""
        return to

    @tool(tier="write", cost=0.125, timeout=0.1)
    async def slow(to: str) -> str:
        """Takes long."""
        await asyncio.sleep(60)
        return to
'''


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    made = Terminal(tmp_path, monkeypatch, capsys)
    made.add_tools(TOOLS)
    made("budgets", "set", "--tenant", "acme", "--user", "*", "--tool", "send_a_letter", "--monthly", "123456.789")
    made("grants", "add", "send_a_letter", "--for", "1h", "--tenant", "acme", "--user", "another", "--cap", "9.5")
    who = ("--tenant", "acme", "--persona", "analyst", "--user", "somebody")
    made("call", "send_a_letter", f"to={'x' * 100}", *who)
    made("call", "slow", "to=x", "--idempotency-key", "the key of an order", *who)
    made("call", "slow", "to=y", "--async", *who)
    return made


COMMANDS = {
    ("budgets", "list"): ("user", "tool: send_a_letter", "period: month", "limit: $123,456.789", "UTC"),
    ("approvals", "list", "--tenant", "acme"): (
        "ap_",
        "waiting",
        "send_a_letter",
        "caller: acme/analyst/somebody",
        "until: 20",
    ),
    ("grants", "list", "--tenant", "acme"): ("gr_", "holds", "send_a_letter", "for: user another", "0 uses, $0.00 of $9.50"),
    ("idempotency", "list"): ("unknown", "slow", "acme", "somebody", "the key of an order"),
    ("jobs", "list", "--tenant", "*"): ("queued", "execute_tool", "for: acme/analyst/somebody", "about: slow", "queued: 20"),
    ("costs",): ("slow", "1", "$0.125", "100.0%", "█"),
}


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.parametrize(("words", "told"), COMMANDS.items(), ids=lambda part: part[0])
def test_a_list_fits_a_terminal_of_80_columns(terminal: Terminal, words: tuple[str, ...], told: tuple[str, ...]) -> None:
    shown = Teletype(terminal, *words, columns=80)
    assert shown.end() == 0, shown.shown
    lines = shown.shown.splitlines()
    assert all(cell_len(line) <= 80 for line in lines), shown.shown
    assert not any(line.startswith(("$", "20", "UTC")) for line in lines if words[0] == "budgets"), "broken within a row"
    text = " ".join(" ".join(lines).split())
    assert all(word in text for word in told), shown.shown


@pytest.mark.requirement("DOOR-6")
def test_what_is_folded_is_indented_so_that_rows_can_be_told_apart(terminal: Terminal) -> None:
    for words, begins in (
        (("audit", "tail"), r"\d\d:\d\d:\d\d |         "),
        (("explain", "send_a_letter", "to=bob"), r"It would|asks for|  [✓✗?·$] \w|  {15}"),
    ):
        shown = Teletype(terminal, *words, columns=80)
        shown.end()
        lines = shown.shown.splitlines()
        assert all(re.match(begins, line) for line in lines), shown.shown
        assert any(line.startswith("         ") for line in lines), "something is folded"
        assert max(map(cell_len, lines)) <= 80, shown.shown


def test_a_pipe_gets_a_line_for_each(terminal: Terminal) -> None:
    assert len(terminal("budgets", "list").lines) == 3
    _, line = terminal("approvals", "list", "--tenant", "acme").lines
    assert len(line) > 100


@given(st.lists(st.text(max_size=30), min_size=1, max_size=8), st.integers(20, 100))
def test_what_is_packed_fits_and_is_all_there(texts: list[str], room: int) -> None:
    lines = packed(texts, room)
    assert [text for line in lines for text in line] == texts
    for number, line in enumerate(lines):
        used = cell_len(INDENT) * (number > 0) + sum(map(cell_len, line)) + len(GAP) * (len(line) - 1)
        assert used <= room or len(line) == 1

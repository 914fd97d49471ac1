"""`toolgate budgets`: set, change, list and remove, and nothing is changed by what makes no sense."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.terminal import Terminal

pytestmark = pytest.mark.requirement("COST-2")

TOOLS = """
    from toolgate import tool

    @tool(tier="write", cost=0.25)
    async def buy() -> str:
        "Costs a quarter."
        return "bought"
"""


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    terminal.add_tools(TOOLS)
    return terminal


def budgets(terminal: Terminal) -> list[tuple[object, ...]]:
    """What is set, without what is built in."""
    listed = terminal("budgets", "list", "--json").json["budgets"]
    return [
        (one["tenant"], one["persona"], one["user"], one["tool"], one["period"], one["limit_usd"])
        for one in listed
        if one["tier"] is None
    ]


def test_a_budget_is_set_holds_and_is_removed(terminal: Terminal) -> None:
    done = terminal("budgets", "set", "--tenant", "acme", "--daily", "0.50", "--monthly", "$5")
    assert done.code == 0
    assert done.lines == [
        "✓ Set the daily budget of tenant acme: $0.50, days of UTC",
        "✓ Set the monthly budget of tenant acme: $5.00, months of UTC",
    ]
    codes = [terminal("call", "buy", "--tenant", "acme").code for _ in range(3)]
    assert codes == [0, 0, 1]
    refused = terminal("call", "buy", "--tenant", "acme", "--json").json["error"]
    assert refused["code"] == "BUDGET_EXCEEDED"
    assert (refused["details"]["spent_usd"], refused["details"]["limit_usd"]) == (0.5, 0.5)
    assert terminal("call", "buy", "--tenant", "globex").code == 0
    assert terminal("budgets", "set", "--tenant", "acme", "--daily", "1").code == 0
    assert terminal("call", "buy", "--tenant", "acme").code == 0
    assert terminal("budgets", "set", "--tenant", "acme", "--daily", "none").out == (
        "✓ Removed the daily budget of tenant acme\n"
    )
    assert terminal("budgets", "set", "--tenant", "acme", "--daily", "none").out.startswith("There is no such budget")
    assert budgets(terminal) == [("acme", None, None, None, "month", 5.0)]


def test_the_list_shows_what_is_spent_and_left(terminal: Terminal) -> None:
    terminal("budgets", "set", "--daily", "1", "--timezone", "Europe/Berlin", "--until", "2099-12-31")
    terminal("call", "buy")
    header, *lines = terminal("budgets", "list").lines
    assert header.split() == ["whose", "tool", "period", "limit", "spent", "reserved", "left", "resets"]
    assert lines[0].split()[:6] == ["each", "tenant,", "each", "user", "tier", "external_api"]
    assert lines[1].split()[:7] == ["everybody", "all", "day", "$1.00", "$0.25", "$0.00", "$0.75"]
    assert lines[1].endswith(" 00:00 Europe/Berlin, last day 2099-12-31")


def test_what_is_not_named_stays_as_it_was(terminal: Terminal) -> None:
    of = ("budgets", "set", "--tenant", "acme", "--daily")
    first = terminal(*of, "1", "--timezone", "Pacific/Auckland", "--until", "2099-12-31").out
    assert first == "✓ Set the daily budget of tenant acme: $1.00, days of Pacific/Auckland, last day 2099-12-31\n"
    changed = terminal(*of, "2", "--json").json["budgets"][0]
    assert (changed["limit_usd"], changed["timezone"]) == (2.0, "Pacific/Auckland")
    assert changed["until"] == "2099-12-31T11:00:00.000000Z"
    moved = terminal(*of, "2", "--timezone", "Europe/Berlin").out
    assert moved.endswith("$2.00, days of Europe/Berlin, last day 2099-12-31\n")
    assert terminal(*of, "2", "--until", "none").out.endswith("$2.00, days of Europe/Berlin\n")
    assert terminal(*of, "3").out.endswith("$3.00, days of Europe/Berlin\n")
    assert terminal("budgets", "set", "--daily", "3").out.endswith("$3.00, days of UTC\n"), "another scope is another budget"


def test_a_budget_that_has_ended_does_not_come_back_unnoticed(terminal: Terminal) -> None:
    terminal("budgets", "set", "--daily", "1", "--until", "2099-12-31")
    with closing(sqlite3.connect(terminal.home / "toolgate.db")) as database, database:
        (until,) = database.execute("SELECT until FROM budgets").fetchone()
        past = until.replace("2100-", "2020-") if isinstance(until, str) else 0
        assert database.execute("UPDATE budgets SET until = ?", (past,)).rowcount == 1
    done = terminal("budgets", "set", "--daily", "2")
    assert (done.code, "ended" in done.err, "--until none" in done.err) == (2, True, True)
    assert terminal("budgets", "set", "--daily", "2", "--until", "none").code == 0
    assert budgets(terminal) == [(None, None, None, None, "day", 2.0)]


@pytest.mark.requirement("TIER-4")
def test_the_cap_on_external_calls_is_a_setting(terminal: Terminal) -> None:
    [built_in] = terminal("budgets", "list", "--json").json["budgets"]
    assert (built_in["id"], built_in["limit_usd"], built_in["period"]) == ("external_api_daily", 10.0, "day")
    terminal.settings("budgets: {external_api_daily: 2.5}")
    assert terminal("budgets", "list", "--json").json["budgets"][0]["limit_usd"] == 2.5
    terminal.settings("budgets: {external_api_daily: null}")
    assert terminal("budgets", "list", "--json").json == {"budgets": []}
    assert "nothing limits what calls may cost" in terminal("budgets", "list").err


def test_scopes_are_written_as_options(terminal: Terminal) -> None:
    for words in (
        ("--user", "ann"),
        ("--tenant", "*", "--user", "*"),
        ("--persona", "analyst", "--tool", "buy"),
    ):
        assert terminal("budgets", "set", *words, "--monthly", "3").code == 0
    assert sorted(budgets(terminal), key=str) == sorted(
        [
            ("default", None, "ann", None, "month", 3.0),
            ("*", None, "*", None, "month", 3.0),
            (None, "analyst", None, "buy", "month", 3.0),
        ],
        key=str,
    )
    told = terminal("budgets", "set", "--user", "ann", "--monthly", "4", "--json").json["budgets"][0]
    assert (told["tenant"], told["limit_usd"], told["changed"]) == ("default", 4.0, True)
    listed = terminal("budgets", "list", "--tenant", "acme", "--json").json["budgets"]
    assert "ann" not in [one["user"] for one in listed]


def test_a_tool_that_is_not_there_yet_is_pointed_out(terminal: Terminal) -> None:
    done = terminal("budgets", "set", "--tool", "buyy", "--daily", "1")
    assert (done.code, "There is no tool named 'buyy' now" in done.err) == (0, True)
    assert terminal("budgets", "set", "--tool", "buy", "--daily", "1").err == ""
    assert terminal("budgets", "set", "--tool", "buyyy", "--daily", "none").err == ""


def test_each_user_of_every_tenant(terminal: Terminal) -> None:
    terminal("budgets", "set", "--user", "*", "--daily", "1")
    assert budgets(terminal) == [("*", None, "*", None, "day", 1.0)]


def test_an_end_that_is_too_far_away_is_said_to_be(terminal: Terminal) -> None:
    for day in ("9999-12-31", "9999-12-30", "9001-01-01"):
        assert f"{day} is too far away" in terminal("budgets", "set", "--daily", "1", "--until", day).err
    assert budgets(terminal) == []


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--daily",),
        ("--daily", "-1"),
        ("--daily", "NaN"),
        ("--daily", "ten"),
        ("--daily", ""),
        ("--daily", "1e9"),
        ("--daily", "1000000000"),
        ("--daily", "0.00000000001"),
        ("--monthly", "inf"),
        ("--daily", "1", "--monthly", "-1"),
        ("--daily", "1", "--timezone", "Mars/Olympus"),
        ("--daily", "1", "--timezone", ""),
        ("--daily", "1", "--until", ""),
        ("--daily", "1", "--timezone", "../../etc/localtime"),
        ("--daily", "1", "--until", "2020-01-01"),
        ("--daily", "1", "--until", "tomorrow"),
        ("--daily", "1", "--until", "9999-12-31"),
        ("--daily", "1", "--tenant", ""),
        ("--daily", "1", "--user", "\x1b[31m"),
        ("--daily", "1", "--tool", "x" * 300),
        ("--daily", "1", "--yearly", "5"),
    ],
)
@pytest.mark.sample(4)
def test_what_makes_no_sense_changes_nothing(terminal: Terminal, words: tuple[str, ...]) -> None:
    terminal("budgets", "set", "--daily", "7")
    done = terminal("budgets", "set", *words, "--json")
    assert (done.code, done.json["error"]["code"]) == (2, "USAGE_ERROR")
    assert budgets(terminal) == [(None, None, None, None, "day", 7.0)]


def test_setting_a_budget_is_on_record(terminal: Terminal) -> None:
    terminal("budgets", "set", "--tool", "buy", "--daily", "1")
    terminal("budgets", "set", "--tool", "buy", "--daily", "none")
    out = terminal("audit", "tail", "--json").out
    assert '"kind":"budget.set"' in out
    assert '"kind":"budget.removed"' in out


def test_the_console_script_sets_and_shows_a_budget(terminal: Terminal) -> None:
    assert terminal.run("budgets", "set", "--daily", "1").code == 0
    assert "everybody" in terminal.run("budgets", "list").out

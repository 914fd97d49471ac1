"""`toolgate schedules`: schedules from the terminal."""

from pathlib import Path

import pytest

from tests.terminal import Terminal

pytestmark = pytest.mark.requirement("JOB-1", "DOOR-1")


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


STAND_UP = ("schedules", "add", "30 8 * * MON-FRI", "echo", "text=Stand-up", "--name", "stand-up")


def test_one_is_added_shown_paused_resumed_run_and_removed(terminal: Terminal) -> None:
    added = terminal(*STAND_UP, "--timezone", "Africa/Kigali", "--max-runs", "9", "--until", "5000d", "--json")
    assert added.code == 0
    assert (added.json["name"], added.json["cron"], added.json["timezone"]) == (
        "stand-up",
        "30 8 * * MON-FRI",
        "Africa/Kigali",
    )
    assert (added.json["state"], added.json["max_runs"]) == ("active", 9) and added.json["next_at"].endswith("T06:30:00Z")
    [listed] = terminal("schedules", "list", "--json").json["schedules"]
    assert listed == added.json
    shown = terminal("schedules", "show", "stand-up")
    assert shown.code == 0 and "30 8 * * MON-FRI in Africa/Kigali" in shown.out
    assert shown.out.split("does", 1)[1].split() == ["echo", "{", '"text":', '"Stand-up"', "}"]
    paused = terminal("schedules", "pause", "stand-up", "--json").json
    assert (paused["state"], paused["reason"]) == ("paused", "Paused by local.")
    again = terminal("schedules", "pause", "stand-up", "--json")
    assert (again.code, again.json["error"]["code"]) == (1, "VALIDATION_ERROR")
    assert terminal("schedules", "resume", added.json["id"], "--json").json["state"] == "active"
    job = terminal("schedules", "run", "stand-up", "--json").json
    assert (job["type"], job["schedule"], job["state"]) == ("execute_tool", added.json["id"], "queued")
    assert "stand-up" in terminal("schedules", "remove", "stand-up").out
    assert terminal("schedules", "list", "--json").json == {"schedules": []}


def test_the_list_for_people(terminal: Terminal) -> None:
    empty = terminal("schedules", "list")
    assert empty.code == 0 and "has no schedules" in empty.err
    added = terminal(*STAND_UP)
    assert "✓ Added stand-up; it fires next at" in added.out and "toolgate worker" in added.err
    shown = terminal("schedules", "list")
    assert "stand-up" in shown.out and "active" in shown.out and "echo" in shown.out
    assert "toolgate worker" in terminal("schedules", "run", "stand-up").err
    again = terminal("schedules", "run", "stand-up")
    assert again.code == 1 and "is not over yet" in again.err and "--follow" in again.err


def test_what_is_another_users_needs_all(terminal: Terminal) -> None:
    added = terminal(*STAND_UP, "--tenant", "acme", "--user", "ada", "--persona", "analyst", "--json").json
    assert (added["tenant"], added["user"], added["persona"]) == ("acme", "ada", "analyst")
    assert terminal("schedules", "show", added["id"]).code == 1
    assert terminal("schedules", "show", added["id"], "--tenant", "acme").code == 1
    assert terminal("schedules", "remove", added["id"], "--tenant", "other", "--all").code == 1
    assert [one["id"] for one in terminal("schedules", "list", "--tenant", "acme", "--all", "--json").json["schedules"]] == [
        added["id"]
    ]
    assert terminal("schedules", "remove", added["id"], "--tenant", "acme", "--all").code == 0
    assert terminal("schedules", "list", "--all", "--user", "ada").code == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("0 0 31 2 *", "echo", "text=x"), 1, "never fires"),
        (("@daily", "echo", "text=x", "--timezone", "Mars/X"), 1, "no time zone"),
        (("@daily", "nothing"), 1, "no tool named"),
        (("@daily", "echo", "loud=1"), 1, "loud"),
        (("@daily", "echo", "text=x", "--until", "yesterday"), 2, "--until"),
        (("@daily", "echo", "text=x", "--until", "2001-01-01"), 2, "in the past"),
        (("@daily", "echo", "text=x", "--max-runs", "0"), 1, "number of its runs"),
        (("@daily", "echo", "text=x", "--workspace", "nowhere"), 2, "no folder"),
    ],
)
def test_what_is_wrong_is_said(terminal: Terminal, words: tuple[str, ...], code: int, said: str) -> None:
    done = terminal("schedules", "add", *words)
    assert (done.code, done.out) == (code, "") and said in done.err
    assert terminal("schedules", "list", "--json").json == {"schedules": []}

"""`toolgate audit`: what was called, by whom, and whether anybody changed the record of it."""

import csv
import io
import json
import re
import signal
import sqlite3
import subprocess
from hashlib import sha256
from pathlib import Path

import orjson
import pytest
from rich.cells import cell_len

from tests.teletype import Teletype
from tests.terminal import SCRIPT, SECONDS, Terminal


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """A terminal at which three calls were made: one succeeded, one failed, one was of another tenant."""
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    terminal("call", "echo", "text=hello")
    terminal("call", "calculator", "expression=1/0")
    terminal("call", "echo", "text=hello", "--tenant", "acme", "--user", "ann")
    return terminal


def tamper(terminal: Terminal, sql: str) -> None:
    connection = sqlite3.connect(terminal.home / "toolgate.db")
    connection.execute(sql)
    connection.commit()
    connection.close()


# -- reading


@pytest.mark.requirement("AUD-1")
def test_tail_shows_the_last_records_oldest_first(terminal: Terminal) -> None:
    lines = terminal("audit", "tail").lines
    assert len(lines) == 6
    assert ["echo" in line for line in lines] == [True, True, False, False, True, True]
    assert "INVALID_INPUT: " in lines[3]
    assert "acme/ann" in lines[4]
    assert terminal("audit", "tail", "-n", "2").lines == lines[-2:]
    assert terminal("audit", "tail", "-n", "0").out == ""


@pytest.mark.requirement("AUD-1")
def test_tail_for_programs_is_a_json_object_to_a_line(terminal: Terminal) -> None:
    records = [json.loads(line) for line in terminal("audit", "tail", "--json").lines]
    assert [record["seq"] for record in records] == [1, 2, 3, 4, 5, 6]
    assert [record["kind"] for record in records] == ["start", "end"] * 3
    assert records[0]["body"]["arguments"] == {"text": "hello"}
    assert records[0]["time"].endswith("Z")


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.requirement("AUD-1")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--tenant", "acme"), [5, 6]),
        (("--tool", "calculator"), [3, 4]),
        (("--status", "success"), [2, 6]),
        (("--status", "failure", "--tenant", "acme"), []),
        (("--tool", "' OR 1=1 --"), []),
        (("-n", "1", "--status", "started"), [5]),
    ],
)
@pytest.mark.sample(4)
def test_tail_can_be_narrowed(terminal: Terminal, words: tuple[str, ...], found: list[int]) -> None:
    assert [json.loads(line)["seq"] for line in terminal("audit", "tail", *words, "--json").lines] == found


@pytest.mark.requirement("AUD-1")
@pytest.mark.parametrize("words", [("-n", "-1"), ("-n", "many"), ("--status", "good"), ("--tool", "\x1b")])
def test_a_tail_that_makes_no_sense_is_usage(terminal: Terminal, words: tuple[str, ...]) -> None:
    assert terminal("audit", "tail", *words, "--json").json["error"]["code"] == "USAGE_ERROR"


@pytest.mark.requirement("AUD-1")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_following_shows_what_other_processes_do_until_interrupted(terminal: Terminal) -> None:
    words = [str(SCRIPT), "audit", "tail", "-n", "1", "--follow", "--tenant", "acme", "--json"]
    with subprocess.Popen(
        words, cwd=terminal.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as following:
        try:
            assert following.stdout is not None
            assert json.loads(following.stdout.readline())["seq"] == 6
            terminal("call", "echo", "text=not for acme")
            call = terminal("call", "echo", "text=new", "--tenant", "acme", "--json").json
            seen = [json.loads(following.stdout.readline()) for _ in range(2)]
            assert [(record["call_id"], record["kind"]) for record in seen] == [(call["id"], "start"), (call["id"], "end")]
            following.send_signal(signal.SIGINT)
            out, err = following.communicate(timeout=SECONDS)
        finally:
            following.kill()
    assert (following.returncode, out, err) == (130, "", "")


@pytest.mark.requirement("AUD-1")
def test_show_gives_both_records_of_a_call_also_by_the_beginning_of_its_id(terminal: Terminal) -> None:
    call = terminal("call", "calculator", "expression=6*7", "--json").json["id"]
    whole = terminal("audit", "show", call)
    assert whole.code == 0
    assert "start started  calculator" in whole.out
    assert "end success  calculator" in whole.out
    assert '"expression": "6*7"' in whole.out
    assert terminal("audit", "show", call[:18]).out == whole.out
    assert [record["kind"] for record in terminal("audit", "show", call, "--json").json["records"]] == ["start", "end"]


@pytest.mark.requirement("AUD-1")
@pytest.mark.parametrize("call_id", ["no-such-call", "0", "%", "\N{GRINNING FACE}", "a" * 10_000, ""])
@pytest.mark.sample(4)
def test_a_call_that_is_not_there_is_not_found(terminal: Terminal, call_id: str) -> None:
    done = terminal("audit", "show", call_id, "--json")
    assert (done.code, done.json["error"]["code"]) == (1, "NOT_FOUND")


# -- verifying


@pytest.mark.requirement("AUD-2")
def test_a_log_that_nobody_touched_is_whole(terminal: Terminal) -> None:
    done = terminal("audit", "verify")
    assert done.code == 0
    assert done.out.startswith("✓ The audit log is whole: 6 rows, head 6 ")
    told = terminal("audit", "verify", "--json").json
    assert (told["ok"], told["rows"], told["head"]["seq"], told["faults"], told["warnings"]) == (True, 6, 6, [], [])


@pytest.mark.requirement("AUD-2")
@pytest.mark.parametrize(
    ("sql", "fault"),
    [
        ("UPDATE audit_log SET body = replace(body, 'hello', 'howdy') WHERE seq = 1", "row 1 (start of call"),
        ("UPDATE audit_log SET body = 'no json' WHERE seq = 2", "row 2 (end of call"),
        ("UPDATE audit_log SET tenant = 'other' WHERE seq = 5", "row 5 (start of call"),
        ("DELETE FROM audit_log WHERE seq = 3", "row 3 is missing"),
        ("DELETE FROM audit_log WHERE seq IN (2, 3, 4)", "row 2 to 4 is missing"),
        ("DELETE FROM audit_log WHERE seq > 4", "the tail is cut: the log ends at 4, but row 6 had been written"),
        ("DELETE FROM audit_log", "the tail is cut"),
    ],
)
@pytest.mark.sample(3)
def test_what_was_changed_removed_or_cut_is_found(terminal: Terminal, sql: str, fault: str) -> None:
    tamper(terminal, sql)
    done = terminal("audit", "verify")
    assert done.code == 1
    assert done.out.startswith("✗ The audit log is not what was written")
    assert fault in done.out
    told = terminal("audit", "verify", "--json")
    assert (told.code, told.json["ok"]) == (1, False)
    assert any(fault in words for words in told.json["faults"])
    assert terminal("audit", "tail").code == 0


@pytest.mark.requirement("AUD-2")
def test_a_missing_head_file_of_a_log_that_had_one_is_a_fault(terminal: Terminal) -> None:
    (terminal.home / "audit.head").unlink()
    done = terminal("audit", "verify")
    assert done.code == 1
    assert "audit.head is missing, and this log had one" in done.out


# -- exporting


@pytest.mark.requirement("AUD-2")
def test_the_exported_log_can_be_verified_without_toolgate(terminal: Terminal) -> None:
    done = terminal("audit", "export")
    assert done.code == 0
    previous = "0" * 64
    for number, line in enumerate(done.out.encode().splitlines(), 1):
        record = orjson.loads(line)
        body = line.partition(b'"body":')[2].rpartition(b',"hash":')[0]
        header = [record[name] for name in ("seq", "at", "kind", "call_id", "tenant", "tool", "status")]
        previous = sha256(previous.encode() + orjson.dumps(header) + body).hexdigest()
        assert (record["seq"], record["hash"]) == (number, previous)
    assert terminal("audit", "verify", "--json").json["head"]["hash"] == previous
    assert terminal("audit", "export", "--json").out == done.out


@pytest.mark.requirement("AUD-1")
def test_an_export_can_begin_late_and_go_to_a_file(terminal: Terminal) -> None:
    told = terminal("audit", "export", "--from", "5", "--output", "late.jsonl", "--json").json
    assert told == {"rows": 2, "format": "jsonl", "output": "late.jsonl"}
    lines = (terminal.folder / "late.jsonl").read_text().splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [5, 6]
    assert terminal("audit", "export", "--from", "99").out == ""
    assert terminal("audit", "export", "--from", "0").code == 2
    refused = terminal("audit", "export", "--output", "no/such/folder", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "OUTPUT_ERROR")


@pytest.mark.requirement("AUD-1")
def test_a_table_holds_no_formula_that_a_spreadsheet_would_run(terminal: Terminal) -> None:
    terminal("call", "=cmd|calc", "--tenant", "=1+1", "--user", "@SUM(1)")
    rows = list(csv.DictReader(io.StringIO(terminal("audit", "export", "--format", "csv").out)))
    assert len(rows) == 7
    assert (rows[3]["tool"], rows[3]["code"], rows[3]["user"]) == ("calculator", "INVALID_INPUT", "local")
    assert (rows[6]["tool"], rows[6]["tenant"], rows[6]["user"]) == ("'=cmd|calc", "'=1+1", "'@SUM(1)")
    assert terminal("audit", "export", "--format", "csv", "--json").code == 2


@pytest.mark.requirement("AUD-1", "IO-2")
def test_a_record_cannot_command_the_terminal(terminal: Terminal) -> None:
    terminal("call", "\x1b]0;evil\x07\n2026-11-15 forged line")
    done = terminal("audit", "tail", "-n", "1")
    assert len(done.lines) == 1
    assert "\x1b" not in done.out
    assert "\x07" not in done.out


@pytest.mark.matrix("needs PostgreSQL")
@pytest.mark.requirement("AUD-1", "AUD-2", "DOOR-4", "REG-2")
def test_the_same_commands_work_on_postgresql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], postgres_database: str
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    terminal.set("TOOLGATE_DATABASE_URL", postgres_database)
    call = terminal("call", "echo", "text=hello", "--json").json
    assert terminal("tools", "disable", "echo", "--tenant", "acme").code == 0
    assert terminal("call", "echo", "text=hello", "--tenant", "acme").code == 1
    assert len(terminal("audit", "tail").lines) == 4
    assert terminal("audit", "show", call["id"][:18], "--json").json["call_id"] == call["id"]
    assert terminal("audit", "verify", "--json").json["rows"] == 4
    assert len(terminal("audit", "export").lines) == 4
    checks = {check["name"]: check for check in terminal("doctor", "--json").json["checks"]}
    assert checks["database"]["status"] == checks["audit log"]["status"] == "ok"
    assert "postgres" in checks["database"]["message"]
    assert not (terminal.home / "toolgate.db").exists()


# -- what is kept besides the records


def with_details(terminal: Terminal) -> str:
    """A call of which everything is kept; gives its id."""
    terminal.settings("audit: {details: {rules: [{tool: echo, keep: output}]}}")
    call_id: str = terminal("call", "echo", "text=hello", "--json").json["id"]
    return call_id


@pytest.mark.requirement("AUD-6")
def test_show_draws_the_stages_of_a_call_as_a_waterfall(terminal: Terminal) -> None:
    lines = terminal("audit", "show", with_details(terminal)).lines
    rows = lines[next(at for at, line in enumerate(lines) if line.startswith("stages ")) + 1 :]
    assert [row[4:16].strip() for row in rows[:3]] == ["catalog", "policy", "input"]
    assert all(row.startswith("  ✓ ") and "█" in row and row[4:].count("s") for row in rows[:8]), rows
    assert rows[1].endswith("echo is enabled")
    starts = [row.index("█") for row in rows[:8]]
    assert starts == sorted(starts)
    assert rows[8] == "output  16 bytes"
    assert orjson.loads("".join(rows[9:])) == {"text": "hello"}


@pytest.mark.requirement("AUD-6")
@pytest.mark.parametrize("columns", [40, 80])
def test_a_waterfall_fits_the_terminal(terminal: Terminal, columns: int) -> None:
    shown = Teletype(terminal, "audit", "show", with_details(terminal), columns=columns, TERM="xterm")
    assert shown.end() == 0, shown.shown
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.shown).splitlines()
    rows = lines[next(at for at, line in enumerate(lines) if line.startswith("stages ")) + 1 :]
    assert all(cell_len(row) <= columns for row in rows), rows
    assert any("execute 1" in row for row in rows)
    assert any("█" in row for row in rows) == (columns == 80)


@pytest.mark.requirement("AUD-6")
def test_show_gives_the_stages_to_programs(terminal: Terminal) -> None:
    (details,) = terminal("audit", "show", with_details(terminal), "--json").json["details"]
    assert (details["state"], details["output"], details["output_bytes"]) == ("kept", {"text": "hello"}, 16)
    assert details["stages"][1] | {"start_ms": 0, "ms": 0} == {
        "gate": "policy", "start_ms": 0, "ms": 0, "verdict": "pass", "reason": "echo is enabled",
    }  # fmt: skip
    assert terminal("audit", "show", "no-such-call").code == 1


@pytest.mark.requirement("AUD-6")
def test_show_says_of_a_call_of_which_nothing_was_kept_only_what_is_recorded(terminal: Terminal) -> None:
    call_id = terminal("call", "echo", "text=hello", "--json").json["id"]
    assert terminal("audit", "show", call_id, "--json").json["details"] == []
    assert "stages" not in terminal("audit", "show", call_id).out


@pytest.mark.requirement("AUD-6")
@pytest.mark.parametrize(
    ("sql", "told"),
    [
        (
            "UPDATE call_details SET content = replace(content, 'hello', 'other')",
            "their hash is not the one in the end record",
        ),
        ("UPDATE call_details SET content = 1000000000000", "their hash is not the one in the end record"),
        ("DELETE FROM call_details", "retention has removed them"),
        ("UPDATE call_details SET seq = 1", "somebody removed them"),
    ],
    ids=["changed", "replaced", "pruned", "moved"],
)
def test_show_tells_that_stages_are_gone_or_not_what_was_written(terminal: Terminal, sql: str, told: str) -> None:
    call_id = with_details(terminal)
    tamper(terminal, sql)
    shown = terminal("audit", "show", call_id)
    assert told in shown.out
    assert "█" not in shown.out
    verified = terminal("audit", "verify")
    assert (verified.code, f"the details of call {call_id}" in verified.out) == (1, True)

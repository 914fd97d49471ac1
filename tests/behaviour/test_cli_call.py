"""`toolgate call`: arguments as people write them, outcomes for people and for programs, exit codes."""

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.terminal import SCRIPT, SECONDS, Terminal

TOOLS = """
    import os
    from typing import Any, Literal

    from toolgate import RateLimit, tool


    @tool(tier="read_only")
    async def take(
        text: str | None = None,
        number: int | None = None,
        ratio: float | None = None,
        flag: bool | None = None,
        items: list[str] | None = None,
        mapping: dict[str, Any] | None = None,
        choice: Literal["1", "2"] | None = None,
        mixed: str | int | None = None,
        anything: Any = None,
    ) -> dict[str, Any]:
        \"\"\"Give back what was given.\"\"\"
        given = dict(locals())
        return {name: value for name, value in given.items() if value is not None}


    @tool(tier="read_only")
    async def open_ended(**rest: Any) -> dict[str, Any]:
        \"\"\"Take anything.\"\"\"
        return rest


    @tool(tier="read_only")
    def noisy() -> str:
        \"\"\"Print while working.\"\"\"
        print("printed")
        os.system("echo from a child")
        return "the answer"


    @tool(tier="read_only")
    def says(text: str) -> str:
        \"\"\"Give back a text, as text.\"\"\"
        return text


    @tool(tier="read_only")
    def long_list() -> list[int]:
        \"\"\"More than may be given out.\"\"\"
        return list(range(500))


    @tool(tier="read_only", timeout=0.2)
    async def sleeps() -> None:
        \"\"\"Take too long.\"\"\"
        import asyncio

        await asyncio.sleep(60)


    @tool(tier="execute")
    async def runs() -> None:
        \"\"\"Ask first.\"\"\"


    @tool(tier="read_only", requires_auth="A_KEY")
    async def needs_key() -> None:
        \"\"\"Need a credential.\"\"\"


    @tool(tier="read_only", cost=0.25, cache=60)
    async def costs() -> None:
        \"\"\"Cost something.\"\"\"


    @tool(tier="read_only")
    async def fails() -> None:
        \"\"\"Fail.\"\"\"
        raise RuntimeError("the disk is on fire")
"""


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


@pytest.fixture
def equipped(terminal: Terminal) -> Terminal:
    terminal.add_tools(TOOLS)
    return terminal


# -- outcomes


@pytest.mark.requirement("DOOR-1", "PIPE-6")
def test_the_console_script_gives_the_outcome_as_one_line_of_json(terminal: Terminal) -> None:
    done = terminal.run("call", "calculator", "expression=sqrt(16)+2^3", "--json")
    assert (done.code, done.err) == (0, "")
    outcome = done.json
    assert list(outcome) == ["id", "tool", "status", "output", "error", "pending", "metrics"]
    assert (outcome["tool"], outcome["status"], outcome["output"]["result"]) == ("calculator", "success", 12)
    assert outcome["error"] is None
    assert outcome["pending"] is None


@pytest.mark.requirement("DOOR-1")
@pytest.mark.parametrize("expression", ["9**9**9", '__import__("os")'])
def test_a_hostile_expression_is_refused_at_once(terminal: Terminal, expression: str) -> None:
    done = terminal("call", "calculator", f"expression={expression}", "--json")
    assert done.code == 1
    assert (done.json["status"], done.json["error"]["code"]) == ("failure", "INVALID_INPUT")
    assert done.json["metrics"]["duration_ms"] < 1000


@pytest.mark.requirement("DOOR-1", "IO-1")
def test_a_missing_argument_is_named_by_its_path(terminal: Terminal) -> None:
    done = terminal("call", "calculator", "--json")
    assert done.code == 1
    assert done.json["error"]["code"] == "VALIDATION_ERROR"
    assert [fault["path"] for fault in done.json["error"]["details"]["errors"]] == ["expression"]
    assert "VALIDATION_ERROR: Invalid arguments: expression: " in terminal("call", "calculator").err


@pytest.mark.requirement("DOOR-1")
@pytest.mark.parametrize(
    ("tool", "code", "status", "error"),
    [
        ("costs", 0, "success", None),
        ("fails", 1, "failure", "INVOCATION_ERROR"),
        ("sleeps", 1, "timeout", "TIMEOUT"),
        ("needs_key", 1, "denied", "MISSING_AUTH"),
        ("runs", 3, "pending", "APPROVAL_REQUIRED"),
        ("no_such_tool", 1, "failure", "TOOL_NOT_FOUND"),
    ],
)
@pytest.mark.sample(4)
def test_the_exit_code_follows_the_status(equipped: Terminal, tool: str, code: int, status: str, error: str | None) -> None:
    done = equipped("call", tool, "--json")
    assert (done.code, done.json["status"]) == (code, status)
    assert (done.json["error"] or {}).get("code") == error
    people = equipped("call", tool)
    assert people.code == code
    if error:
        assert people.out == ""
        assert [line for line in people.err.splitlines() if line.startswith(f"{error}: ")]
        assert people.err.splitlines()[-1].startswith(f"{status} · ")


@pytest.mark.requirement("DOOR-1")
def test_a_timeout_given_by_the_caller_holds(equipped: Terminal) -> None:
    done = equipped("call", "sleeps", "--timeout", "0.05", "--json")
    assert done.json["status"] == "timeout"
    assert "0.05 s" in done.json["error"]["message"]


@pytest.mark.requirement("DOOR-1")
def test_people_get_the_output_alone_on_stdout(equipped: Terminal) -> None:
    text = equipped("call", "says", "text=two\nlines")
    assert text.out == "two\nlines\n"
    assert text.err.startswith("success · ")
    structured = equipped("call", "take", "number=3")
    assert json.loads(structured.out) == {"number": 3}
    assert structured.out.count("\n") > 1
    assert " · $0.25 · call " in equipped("call", "costs").err


@pytest.mark.requirement("DOOR-1", "IO-1")
def test_several_faults_are_listed_with_their_paths(equipped: Terminal) -> None:
    err = equipped("call", "take", "number=x", "flag=y").err.splitlines()
    assert err[0] == "VALIDATION_ERROR: Invalid arguments"
    assert err[1].startswith("  number: ")
    assert err[2].startswith("  flag: ")
    assert err[3].endswith("takes: text, number, ratio, flag, items, mapping, choice, mixed, anything.")


@pytest.mark.requirement("DOOR-1")
def test_what_a_tool_prints_stays_out_of_the_answer(equipped: Terminal) -> None:
    done = equipped.run("call", "noisy", "--json")
    assert done.json["output"] == "the answer"
    assert "printed" in done.err
    assert "from a child" in done.err


@pytest.mark.requirement("DOOR-1", "IO-3")
def test_a_cut_output_says_how_to_get_all_of_it(equipped: Terminal) -> None:
    done = equipped("call", "long_list", "--tenant", "acme")
    assert len(json.loads(done.out)) == 100
    assert "cut: the list: 500 items, 100 shown" in done.err
    command = next(line for line in done.err.splitlines() if line.startswith("whole output: "))
    words = command.removeprefix("whole output: toolgate ").split()
    assert json.loads(equipped(*words).out) == list(range(500))
    saved = equipped(*words, "--output", "whole.json", "--json")
    assert saved.json["bytes"] == (equipped.folder / "whole.json").stat().st_size
    assert json.loads((equipped.folder / "whole.json").read_text()) == list(range(500))
    assert equipped(*words, "--json").json == list(range(500))
    foreign = equipped(*words[:3], "--json")
    assert (foreign.code, foreign.json["error"]["code"]) == (1, "NOT_FOUND")


@pytest.mark.requirement("DOOR-1", "PIPE-1", "AUD-1")
def test_the_record_says_who_called_and_through_which_door(terminal: Terminal) -> None:
    words = ("--tenant", "acme", "--persona", "analyst", "--user", "u-1", "--session", "s-1")
    done = terminal("call", "echo", "text=hello", *words, "--json")
    shown = terminal("audit", "show", done.json["id"], "--json").json
    assert [record["kind"] for record in shown["records"]] == ["start", "end"]
    for record in shown["records"]:
        body = record["body"]
        assert (record["tenant"], body["persona"], body["user"]) == ("acme", "analyst", "u-1")
        assert (body["session"], body["door"]) == ("s-1", "cli")


# -- arguments


@pytest.mark.requirement("DOOR-1", "IO-1")
@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("text=5", "5"),
        ("text=null", "null"),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ("text={{secret}}", "{{secret}}"),
        ("number=5", 5),
        ("number=-5", -5),
        ("ratio=1e3", 1000.0),
        ("flag=true", True),
        ('items=["a", "b"]', ["a", "b"]),
        ('mapping={"a": {"b": [1]}}', {"a": {"b": [1]}}),
        ("choice=1", "1"),
        ("mixed=5", "5"),
        ("mixed:=5", 5),
        ('text:="5"', "5"),
        ("anything=[1]", [1]),
        ("anything=some words", "some words"),
        ("anything=12", 12),
    ],
)
@pytest.mark.sample(4)
def test_a_value_is_read_as_the_schema_says(equipped: Terminal, word: str, value: object) -> None:
    done = equipped("call", "take", word, "--json")
    assert done.code == 0, done.out
    assert done.json["output"] == {word.partition("=")[0].removesuffix(":"): value}


@pytest.mark.requirement("DOOR-1", "IO-1")
@pytest.mark.parametrize("word", ["number=five", "number=1.5", "flag=yes", "items=a", f"number={'9' * 30}", "ratio=NaN"])
@pytest.mark.sample(4)
def test_what_does_not_fit_is_refused_by_the_schema(equipped: Terminal, word: str) -> None:
    done = equipped("call", "take", word, "--json")
    assert done.code == 1
    assert done.json["error"]["code"] == "VALIDATION_ERROR"
    assert done.json["error"]["details"]["errors"][0]["path"] == word.partition("=")[0]


@pytest.mark.requirement("DOOR-1")
def test_without_a_schema_entry_json_is_read_and_the_rest_is_text(equipped: Terminal) -> None:
    done = equipped("call", "open_ended", "a=1", "b=[2]", "c=three", "--json")
    assert done.json["output"] == {"a": 1, "b": [2], "c": "three"}


@pytest.mark.requirement("DOOR-1")
def test_all_arguments_can_be_given_at_once_and_a_key_wins(equipped: Terminal) -> None:
    (equipped.folder / "given.json").write_bytes(b'\xef\xbb\xbf{"number": 1, "text": "file"}')
    assert equipped("call", "take", "--args", '{"number": 1}', "--json").json["output"] == {"number": 1}
    assert equipped("call", "take", "number=2", "--args", "@given.json", "--json").json["output"] == {
        "number": 2,
        "text": "file",
    }
    assert equipped.run("call", "take", "--args", "-", "--json", stdin=b'{"text": "stdin"}').json["output"] == {
        "text": "stdin"
    }


@pytest.mark.requirement("DOOR-1")
@pytest.mark.parametrize(
    "words",
    [
        ("take", "number"),
        ("take", "=5"),
        ("take", "number:=five"),
        ("take", "number:=NaN"),
        ("take", "--args", "{bad"),
        ("take", "--args", "[1]"),
        ("take", "--args", ""),
        ("take", "--args", '{"number": NaN}'),
        ("take", "--args", "@missing.json"),
        ("take", "--args", "@."),
        ("take", "--timeout", "0"),
        ("take", "--timeout", "nan"),
        ("take", "--timeout", "soon"),
        ("take", "--tenant", ""),
        ("take", "--persona", "a\x1b[31m"),
        ("take", "--session", "a\nb"),
        ("take", "--no-such-option"),
        (),
    ],
)
@pytest.mark.sample(4)
def test_a_wrong_command_line_is_usage_and_calls_nothing(equipped: Terminal, words: tuple[str, ...]) -> None:
    people = equipped("call", *words)
    assert (people.code, people.out) == (2, "")
    assert "Error: " in people.err
    programs = equipped("call", *words, "--json")
    assert programs.code == 2
    assert programs.json["error"]["code"] == "USAGE_ERROR"
    assert equipped("audit", "tail", "--json").out == ""


# -- bad input


@pytest.mark.requirement("DOOR-1")
@pytest.mark.parametrize(
    "name", ["a\nb", "../../etc/passwd", "\N{GRINNING FACE}", "a" * 10_000, "", "\x1b[2J", "%s", "' OR 1=1"]
)
@pytest.mark.sample(4)
def test_a_name_of_odd_characters_is_just_not_found(terminal: Terminal, name: str) -> None:
    done = terminal("call", name, "--json")
    assert (done.code, done.json["error"]["code"]) == (1, "TOOL_NOT_FOUND")
    people = terminal("call", name)
    assert people.code == 1
    assert "\x1b" not in people.err
    assert len(people.err) < 500


@pytest.mark.requirement("DOOR-1")
def test_bytes_that_are_not_utf8_are_refused_in_good_order(terminal: Terminal) -> None:
    text = terminal.run("call", "echo", b"text=\xff", "--json")
    assert (text.code, text.json["error"]["code"]) == (1, "VALIDATION_ERROR")
    name = terminal.run("call", b"\xff", "--json")
    assert (name.code, name.json["error"]["code"]) == (1, "TOOL_NOT_FOUND")
    whole = terminal.run("call", "echo", "--args", b'{"text": "\xff"}', "--json")
    assert (whole.code, whole.json["error"]["code"]) == (2, "USAGE_ERROR")
    session = terminal.run("call", "echo", "text=a", "--session", b"\xff", "--json")
    assert (session.code, session.json["error"]["code"]) == (2, "USAGE_ERROR")
    assert terminal("audit", "verify").code == 0


@pytest.mark.requirement("DOOR-1")
def test_ten_megabytes_from_stdin_are_refused_by_the_pipeline(terminal: Terminal) -> None:
    done = terminal.run("call", "echo", "--args", "-", "--json", stdin=b'{"text": "%s"}' % (b"a" * 10_000_000))
    assert (done.code, done.json["error"]["code"]) == (1, "VALIDATION_ERROR")
    assert "10,000," in done.json["error"]["message"]


@pytest.mark.requirement("DOOR-1")
@pytest.mark.parametrize("levels", [300, 10_000])
def test_deep_nesting_is_refused(equipped: Terminal, levels: int) -> None:
    (equipped.folder / "deep.json").write_text('{"anything": ' + "[" * levels + "]" * levels + "}")
    done = equipped("call", "take", "--args", "@deep.json", "--json")
    assert done.code in (1, 2)
    assert done.json["error"]["code"] in ("VALIDATION_ERROR", "USAGE_ERROR")


@pytest.mark.requirement("DOOR-1", "IO-2")
def test_a_terminal_is_not_given_what_it_might_obey(equipped: Terminal) -> None:
    text = "red \x1b[31m title \x1b]0;evil\x07 back \N{RIGHT-TO-LEFT OVERRIDE}abc"
    shown = _on_a_terminal(equipped, "call", "says", f"text={text}")
    assert r"red \x1b[31m title \x1b]0;evil\x07 back \u202eabc" in shown
    assert "\x1b]0;" not in shown
    assert equipped.run("call", "says", f"text={text}").out == text + "\n"


def _on_a_terminal(terminal: Terminal, *words: str) -> str:
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [SCRIPT, *words],
            cwd=terminal.folder,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"},
            timeout=SECONDS,
            check=True,
        )
        return os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.requirement("POL-5", "PIPE-9")
def test_explain_says_what_a_key_would_do(terminal: Terminal) -> None:
    call = terminal("call", "echo", "text=a", "--idempotency-key", "k", "--json").json["id"]
    for text, code in (("a", 0), ("b", 1)):
        done = terminal("explain", "echo", f"text={text}", "--idempotency-key", "k")
        assert (done.code, call in done.out) == (code, True)


@pytest.mark.requirement("POL-5")
def test_explain_asks_the_policy_about_this_very_door(terminal: Terminal) -> None:
    rules = 'package soma.policy\nimport rego.v1\ndefault allow := false\nallow if input.context.door == "cli"\n'
    (terminal.folder / "door.rego").write_text(rules)
    terminal.settings("policy: {file: door.rego}")
    assert terminal("call", "echo", "text=a").code == 0
    assert terminal("explain", "echo", "text=a").code == 0


@pytest.mark.requirement("POL-3")
@pytest.mark.parametrize("command", [("call", "echo", "text=a"), ("explain", "echo", "text=a"), ("policy", "eval", "echo")])
def test_a_scope_that_no_record_could_hold_is_usage(terminal: Terminal, command: tuple[str, ...]) -> None:
    for scope in ("", "\x1b", "x" * 300):
        assert terminal(*command, "--scope", scope).code == 2

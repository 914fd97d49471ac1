"""`toolgate tools add`, `new` and `test`: custom tools as files, checked before they are put in place, and tried."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.teletype import Teletype
from tests.terminal import Terminal
from toolgate.cli.tools.custom import same, template
from toolgate.model import Runtime
from toolgate.sandbox.custom.yaml_file import parse_tool_file

RUNTIMES: tuple[Runtime, ...] = ("typescript", "node", "python")
TOOL = """\
# kept as it is written
name: {name}
description: Double a number.
schema:
  type: object
  properties:
    number: {{type: integer}}
  required: [number]
runtime: python
permissions:
  riskLevel: {risk}
code: |
  def execute(args, context):
      return {{"doubled": args["number"] * 2}}
{more}"""
EXAMPLES = """\
examples:
  - name: two
    arguments: {number: 2}
    output: {doubled: 4}
  - arguments: {number: two}
    error: VALIDATION_ERROR
"""


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


def write(
    terminal: Terminal, name: str = "double", *, risk: str = "low", more: str = EXAMPLES, file: str = "given.yml"
) -> Path:
    path = terminal.folder / file
    path.write_text(TOOL.format(name=name, risk=risk, more=more))
    return path


def tools_in(terminal: Terminal) -> dict[str, str]:
    """The files of custom tools, by name."""
    return {file.name: file.read_text() for file in sorted((terminal.home / "tools").glob("*"))}


# -- new


@pytest.mark.requirement("SBX-1")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_new_tool_works_as_it_stands(terminal: Terminal, runtime: Runtime) -> None:
    done = terminal("tools", "new", "welcome", "--runtime", runtime)
    assert (done.code, done.lines) == (0, [f"✓ New tool: welcome ({runtime}) in .toolgate/tools/welcome.yml"])
    assert "toolgate tools test welcome" in done.err
    assert "could not be compiled" not in done.err
    tried = terminal("tools", "test", "welcome", "--json")
    assert (tried.code, tried.json["passed"], tried.json["failed"]) == (0, 3, 0), tried.json
    called = terminal("call", "welcome", "name=Ada", "--json").json
    assert (called["status"], called["output"]) == ("success", "Hello, Ada!")


@pytest.mark.requirement("SBX-1")
def test_a_new_tool_is_written_in_typescript_unless_it_is_said(terminal: Terminal) -> None:
    done = terminal("tools", "new", "welcome", "--json").json
    assert (done["tool"], done["runtime"], done["tier"], done["examples"]) == ("welcome", "typescript", "read_only", 3)
    assert done["file"] == ".toolgate/tools/welcome.yml"
    assert (done["replaced"], done["loads"], done["asks"]) == (False, True, None)


@pytest.mark.requirement("SBX-1", "REG-1")
def test_a_new_tool_is_in_the_list(terminal: Terminal) -> None:
    terminal("tools", "new", "welcome", "--runtime", "python")
    [line] = [line for line in terminal("tools", "list", "--source", "custom").lines if "welcome" in line]
    assert line.startswith("✓ welcome")
    assert "[Custom]" in line


@pytest.mark.requirement("SBX-1")
@pytest.mark.parametrize("name", ["", "1st", "two words", "../up", "ümlaut", "x" * 65])
def test_a_new_tool_needs_a_name_that_tools_can_have(terminal: Terminal, name: str) -> None:
    done = terminal("tools", "new", name)
    assert done.code == 2
    assert "is not a valid name of a tool" in done.err
    assert not (terminal.home / "tools").exists()


@pytest.mark.requirement("SBX-1", "TOOL-4")
def test_a_new_tool_takes_no_name_and_no_file_that_is_taken(terminal: Terminal) -> None:
    taken = terminal("tools", "new", "echo")
    assert taken.code == 1
    assert "the name is taken by a tool of source builtin" in taken.err
    terminal("tools", "new", "welcome", "--runtime", "python")
    before = tools_in(terminal)
    again = terminal("tools", "new", "welcome", "--runtime", "node")
    assert again.code == 1
    assert "welcome.yml is there already" in again.err
    assert "rename the tool" in again.err
    assert tools_in(terminal) == before
    assert terminal("tools", "new", "welcome", "--json").json["error"]["code"] == "DEFINITION_ERROR"


@pytest.mark.requirement("SBX-1")
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", ["true", "null", "No", "a-b_C9", "on"])
def test_a_template_is_right_whatever_the_tool_is_called(name: str, runtime: Runtime) -> None:
    tool = parse_tool_file(template(name, runtime), Path("new.yml"))
    assert (tool.entry.name, tool.program.runtime) == (name, runtime)
    assert len(tool.entry.tool.examples) == 3


# -- add


@pytest.mark.requirement("SBX-1")
def test_a_file_is_added_as_it_is_written(terminal: Terminal) -> None:
    file = write(terminal)
    done = terminal("tools", "add", "--from-file", "given.yml")
    assert (done.code, done.lines) == (0, ["✓ Added tool: double (python, tier read_only) in .toolgate/tools/double.yml"])
    assert "Run its 2 examples: toolgate tools test double" in done.err
    assert tools_in(terminal) == {"double.yml": file.read_text()}
    assert terminal("call", "double", "number=21", "--json").json["output"] == {"doubled": 42}


@pytest.mark.requirement("TIER-8")
def test_what_asks_is_said_when_it_is_added(terminal: Terminal) -> None:
    write(terminal, risk="high")
    done = terminal("tools", "add", "--from-file", "given.yml")
    assert "A person is asked before it runs: tier execute asks for every run." in done.err


@pytest.mark.requirement("SBX-1")
def test_a_tool_is_replaced_only_by_force_and_where_it_is(terminal: Terminal) -> None:
    (terminal.home / "tools").mkdir(parents=True)
    write(terminal, file=".toolgate/tools/maths.yaml")
    before = tools_in(terminal)
    write(terminal, risk="medium")
    refused = terminal("tools", "add", "--from-file", "given.yml")
    assert refused.code == 1
    assert ".toolgate/tools/maths.yaml is there already" in refused.err
    assert "--force" in refused.err
    assert tools_in(terminal) == before
    done = terminal("tools", "add", "--from-file", "given.yml", "--force", "--json").json
    assert (done["replaced"], done["tier"], done["file"]) == (True, "write", ".toolgate/tools/maths.yaml")
    assert list(tools_in(terminal)) == ["maths.yaml"]


@pytest.mark.requirement("SBX-1")
@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("name: [", "given.yml:2:1", "not valid YAML"),
        (TOOL.format(name="double", risk="grave", more=""), "given.yml:11:3", "permissions.riskLevel"),
        (TOOL.format(name="double", risk="low", more="colour: red"), "given.yml:15:1", "no such field"),
        (TOOL.format(name="double", risk="low", more="      return =\n"), "given.yml:15:14", "code: invalid syntax"),
    ],
)
def test_a_file_that_is_wrong_is_not_added(terminal: Terminal, text: str, where: str, words: str) -> None:
    (terminal.folder / "given.yml").write_text(text)
    done = terminal("tools", "add", "--from-file", "given.yml", "--force")
    assert done.code == 1
    assert f"Error: {where}: " in done.err
    assert words in done.err
    assert not (terminal.home / "tools").exists()
    error = terminal("tools", "add", "--from-file", "given.yml", "--json").json["error"]
    assert error["code"] == "DEFINITION_ERROR"
    assert error["message"].startswith(where)


@pytest.mark.requirement("SBX-1")
@pytest.mark.parametrize("runtime", ["typescript", "node"])
def test_code_that_does_not_compile_is_not_added(terminal: Terminal, runtime: Runtime) -> None:
    text = template("welcome", runtime).decode().replace("const greeting =", "const = greeting")
    (terminal.folder / "given.yml").write_text(text)
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "const = greeting" in line)
    done = terminal("tools", "add", "--from-file", "given.yml")
    assert done.code == 1, done.err
    assert f"Error: given.yml:{line}:" in done.err
    assert not (terminal.home / "tools").exists()


@pytest.mark.requirement("SBX-1")
def test_what_is_no_file_is_not_added(terminal: Terminal) -> None:
    assert "There is no file missing.yml." in terminal("tools", "add", "--from-file", "missing.yml").err
    os.mkfifo(terminal.folder / "pipe.yml")
    assert "pipe.yml: it is no regular file." in terminal("tools", "add", "--from-file", "pipe.yml").err
    assert terminal("tools", "add", "--from-file", ".").code == 1
    assert terminal("tools", "add").code == 2


@pytest.mark.requirement("SBX-1", "TOOL-4")
def test_a_name_that_another_source_has_is_not_added(terminal: Terminal) -> None:
    write(terminal, name="echo")
    done = terminal("tools", "add", "--from-file", "given.yml", "--force")
    assert done.code == 1
    assert "the name is taken by a tool of source builtin" in done.err


@pytest.mark.requirement("SBX-1", "REG-4")
def test_nothing_is_added_where_an_organisation_forbids_it(terminal: Terminal) -> None:
    terminal.settings("enforcement: {disable_local_tools: true}")
    write(terminal)
    done = terminal("tools", "add", "--from-file", "given.yml")
    assert done.code == 2
    assert "enforcement.disable_local_tools" in done.err
    assert terminal("tools", "new", "welcome").code == 2
    assert not (terminal.home / "tools").exists()


@pytest.mark.requirement("SBX-1")
def test_it_is_said_if_what_was_added_is_not_loaded(terminal: Terminal) -> None:
    terminal.settings("auto_load_custom_tools: false")
    write(terminal)
    assert "auto_load_custom_tools is false" in terminal("tools", "add", "--from-file", "given.yml").err


@pytest.mark.requirement("SBX-1")
def test_a_folder_that_can_not_be_written_is_said(terminal: Terminal) -> None:
    write(terminal)
    terminal.home.mkdir()
    (terminal.home / "tools").write_text("in the way")
    done = terminal("tools", "add", "--from-file", "given.yml", "--json")
    assert (done.code, done.json["error"]["code"]) == (1, "OUTPUT_ERROR")
    assert (terminal.home / "tools").read_text() == "in the way"


@pytest.mark.requirement("SBX-1", "AUD-1")
def test_adding_a_tool_is_on_record(terminal: Terminal) -> None:
    write(terminal)
    terminal("tools", "add", "--from-file", "given.yml")
    assert "tool.added" in terminal("audit", "tail").out


# -- test


def added(terminal: Terminal, **more: Any) -> None:
    write(terminal, **more)
    assert terminal("tools", "add", "--from-file", "given.yml").code == 0


@pytest.mark.requirement("SBX-1")
def test_examples_are_run_and_shown(terminal: Terminal) -> None:
    added(terminal)
    done = terminal("tools", "test", "double")
    assert (done.code, done.err) == (0, "")
    assert [line.split()[:2] for line in done.lines[1:3]] == [["✓", "two"], ["✓", "example"]]
    assert "VALIDATION_ERROR" in done.lines[2]
    assert done.lines[-1] == "double: 2 examples passed"


@pytest.mark.requirement("SBX-1")
def test_an_example_that_gives_something_else_fails_the_test(terminal: Terminal) -> None:
    wrong = EXAMPLES.replace("doubled: 4", "doubled: 5").replace("VALIDATION_ERROR", "TIMEOUT")
    added(terminal, more=wrong + "  - name: an error is expected\n    arguments: {number: 1}\n    error: TIMEOUT\n")
    done = terminal("tools", "test", "double")
    assert done.code == 1
    assert 'two: expected {"doubled":5}, it gave {"doubled":4}' in done.err
    assert "example 2: TIMEOUT was expected; VALIDATION_ERROR: " in done.err
    assert 'an error is expected: TIMEOUT was expected, it gave {"doubled":2}' in done.err
    assert done.lines[-1] == "double: 0 examples passed, 3 failed"
    tried = terminal("tools", "test", "double", "--json")
    assert (tried.code, tried.json["passed"], tried.json["failed"]) == (1, 0, 3)
    assert tried.json["examples"][0]["outcome"]["output"] == {"doubled": 4}


@pytest.mark.requirement("SBX-1")
def test_an_example_without_an_output_must_only_succeed(terminal: Terminal) -> None:
    added(terminal, more="examples:\n  - arguments: {number: 2}\n")
    assert terminal("tools", "test", "double").code == 0


@pytest.mark.requirement("SBX-1", "TIER-8")
def test_examples_of_a_tool_that_asks_are_asked_about(terminal: Terminal) -> None:
    added(terminal, risk="high")
    unasked = terminal("tools", "test", "double")
    assert unasked.code == 1
    assert "two: it waits for a person's approval (ap_" in unasked.err
    assert "use --yes, or a terminal" in unasked.err
    agreed = terminal("tools", "test", "double", "--yes")
    assert agreed.code == 0, agreed.err
    assert "--yes" in terminal("audit", "tail", "--json").out


@pytest.mark.requirement("SBX-1", "TIER-8")
def test_a_person_at_the_terminal_answers_for_each_example(terminal: Terminal) -> None:
    added(terminal, risk="high", more=EXAMPLES + "  - arguments: {number: 3}\n    error: USER_CANCELLED\n")
    tty = Teletype(terminal, "tools", "test", "double")
    tty.type(after="one hour > ", keys="y\n")
    tty.type(after="one hour > ", keys="n\n")
    tty.type(after="Why not?", keys="no threes\n")
    assert tty.end() == 0, tty.shown
    assert "3 examples passed" in tty.shown


@pytest.mark.requirement("SBX-1")
@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("double", "NOT_FOUND", "double has no examples to run: its file names none."),
        ("doubble", "TOOL_NOT_FOUND", "Tool not found: doubble"),
    ],
)
def test_without_examples_there_is_nothing_to_test(terminal: Terminal, name: str, code: str, words: str) -> None:
    added(terminal, more="")
    done = terminal("tools", "test", name)
    assert done.code == 1
    assert words in done.err
    assert terminal("tools", "test", name, "--json").json["error"]["code"] == code


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 1.5]) | st.sampled_from(["", "1", "true"]),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.sampled_from("ab"), parts, max_size=2),
    max_leaves=6,
)


def canonical(value: Any) -> Any:
    """A value that Python's own == compares as JSON is compared."""
    if isinstance(value, dict):
        return "object", frozenset((key, canonical(part)) for key, part in value.items())
    if isinstance(value, list):
        return "array", tuple(map(canonical, value))
    return "boolean" if isinstance(value, bool) else "other", value


@pytest.mark.requirement("SBX-1")
@given(first=VALUES, second=VALUES)
def test_values_are_compared_as_json(first: Any, second: Any) -> None:
    assert same(first, first)
    assert same(first, second) == (canonical(first) == canonical(second))
    assert same([first], [second]) == same(first, second)

"""Custom tools as files: their fields, what their permissions mean, what is wrong and where, and what has changed."""

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from toolgate import App
from toolgate.model import Cost, Entry, Tier
from toolgate.registry.catalog import ToolProblem
from toolgate.registry.compile import DefinitionRules
from toolgate.sandbox.custom.folder import CustomFolder, LoadedTool, RemovedTool
from toolgate.sandbox.custom.yaml_file import ToolFile, ToolFileError, parse_tool_file
from toolgate.testing import memory_app
from toolgate.yamltext import Position, YamlError, read_yaml, scalar

EXAMPLES = Path(__file__).parents[2] / "examples" / "custom_tools" / "tools"
FILE = Path("tools/mine.yml")
GREET = """\
name: {name}
description: Greet somebody.
schema:
  type: object
  properties:
    who: {{type: string}}
runtime: python
code: |
  def execute(args, context):
      return "{words}"
"""


def parse(text: str, rules: DefinitionRules | None = None) -> ToolFile:
    return parse_tool_file(text.encode(), FILE, rules or DefinitionRules())


def refused(text: str) -> ToolProblem:
    with pytest.raises(ToolFileError) as caught:
        parse(text)
    return caught.value.problem


def with_lines(more: str, *, without: str = "") -> str:
    lines = GREET.format(name="greet", words="hello").splitlines()
    return "\n".join([*(line for line in lines if not without or not line.startswith(without)), more, ""])


# -- what a file says


@pytest.mark.requirement("SBX-1", "TIER-8")
def test_document_e_s_example_is_read_as_printed() -> None:
    file = EXAMPLES / "run_tests.yml"
    entry = parse_tool_file(file.read_bytes(), file).entry
    tool = entry.tool
    assert (tool.name, tool.source, tool.kind, tool.enabled, tool.declared_tokens) == (
        "run_tests", "custom", "sandbox", True, 450,
    )  # fmt: skip
    assert tool.description.startswith("Run project tests")
    assert list(tool.input_schema["properties"]) == ["pattern", "coverage", "watch"]
    program = tool.program
    assert program is not None
    assert program is entry.implementation
    assert program.runtime == "typescript"
    assert program.allowlist == ("yarn test*", "npm test*", "vitest*")
    assert (program.auto_accept, program.risk_level) == (False, "medium")
    assert program.code.startswith("interface TestArgs {\n  pattern: string;")
    assert "export async function execute(" in program.code
    assert entry.tier == "write"
    assert entry.confirms
    assert entry.asks is not None
    assert "its definition asks for confirmation" in entry.asks


@pytest.mark.requirement("TIER-8")
@pytest.mark.parametrize(
    ("risk", "tier"),
    [("low", "read_only"), ("medium", "write"), ("high", "execute"), ("critical", "execute"), (None, "write")],
)
@pytest.mark.parametrize("accept", [True, False, None])
def test_risk_is_the_tier_and_auto_accept_never_skips_asking(risk: str | None, tier: Tier, accept: bool | None) -> None:
    permissions: dict[str, Any] = {}
    if risk is not None:
        permissions["riskLevel"] = risk
    if accept is not None:
        permissions["autoAccept"] = accept
    entry = parse(with_lines(f"permissions: {json.dumps(permissions)}")).entry
    assert entry.tier == tier
    assert (entry.asks is not None) == (tier == "execute" or accept is False)
    assert entry.implementation.auto_accept is accept


@pytest.mark.requirement("SBX-1")
@pytest.mark.parametrize(
    ("camel", "snake"),
    [
        ("tokenCost: 450", "token_cost: 450"),
        ("outputSchema: {type: string}", "output_schema: {type: string}"),
        ("requiresPermission: 'tool:greet'", "requires_permission: 'tool:greet'"),
        ("permissions: {autoAccept: no, riskLevel: high}", "permissions: {auto_accept: no, risk_level: high}"),
        ("cost: {perUnit: {unit: second, price: 0.01}}", "cost: {per_unit: {unit: second, price: 0.01}}"),
    ],
)
def test_both_spellings_are_read(camel: str, snake: str) -> None:
    first, second = parse(with_lines(camel)).entry, parse(with_lines(snake)).entry
    assert first.fingerprint == second.fingerprint != parse(with_lines("")).entry.fingerprint


@pytest.mark.requirement("SBX-1")
def test_our_own_fields_are_read() -> None:
    entry = parse(
        with_lines(
            """\
version: "2.1.0"
timeout: 5
outputSchema: {type: string}
category: search
requiresPermission: tool:greet
tags: [polite, short]
cost: 0.25
enabled: false
examples:
  - name: nothing in particular
    arguments: {who: Ada}
    output: null
  - arguments: {who: 1}
    error: VALIDATION_ERROR
"""
        )
    ).entry
    tool = entry.tool
    assert (tool.version, tool.category, tool.requires_permission) == ("2.1.0", "search", "tool:greet")
    assert (tool.tags, tool.enabled, entry.timeout) == (("polite", "short"), False, 5.0)
    assert tool.output_schema == {"type": "string"}
    assert tool.cost == Cost(fixed=Decimal("0.25"))
    assert tool.program is not None
    first, second = tool.examples
    assert (first.name, first.arguments, first.output) == ("nothing in particular", {"who": "Ada"}, None)
    assert "output" in first.model_fields_set
    assert (second.error, "output" in second.model_fields_set) == ("VALIDATION_ERROR", False)


@pytest.mark.requirement("SBX-1")
def test_what_is_left_empty_is_as_if_it_were_not_there() -> None:
    assert parse(with_lines("permissions:\ntokenCost:\ncost:\nexamples:")).entry.fingerprint == (
        parse(with_lines("")).entry.fingerprint
    )


@pytest.mark.requirement("SBX-1")
def test_the_runtime_is_typescript_unless_it_is_said() -> None:
    text = with_lines("", without="runtime").replace("def execute(args, context):", "export const execute = () =>")
    assert parse(text).program.runtime == "typescript"


@pytest.mark.requirement("TIER-8")
def test_settings_can_raise_the_tier_of_a_custom_tool() -> None:
    assert (
        parse(with_lines("permissions: {riskLevel: low}"), DefinitionRules({"greet": "external_api"})).entry.tier
        == "external_api"
    )


# -- what is wrong, and where


@pytest.mark.requirement("SBX-1")
@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        (with_lines("colour: red"), "11:1", "colour: there is no such field; there are name"),
        (with_lines("tokncost: 1"), "11:1", "did you mean tokenCost?"),
        (with_lines("inputSchema: {}"), "11:1", "did you mean schema?"),
        (with_lines("permissions:\n  autoaccept: true"), "12:3", "permissions.autoaccept: there is no such field"),
        (with_lines("tokenCost: 1\ntoken_cost: 2"), "12:1", "tokenCost stands there already"),
        (with_lines("tokenCost: -1"), "11:1", "cannot be less than 0"),
        (with_lines("tokenCost: many"), "11:1", "tokenCost: Input should be a valid integer"),
        (with_lines("version: 1.0"), "11:1", "version: it must be text: put it in quotes"),
        (with_lines("version: '1.0'"), "11:1", "version: not a semantic version"),
        (with_lines("timeout: -1"), "11:1", "timeout: Input should be greater than 0"),
        (with_lines("enabled: maybe"), "11:1", "enabled: Input should be a valid boolean"),
        (with_lines("category: poems"), "11:1", "category: 'poems' is unknown: use filesystem, "),
        (with_lines("permissions: all"), "11:1", "permissions: it must hold names and values"),
        (with_lines("permissions:\n  riskLevel: none"), "12:3", "permissions.riskLevel: 'none' is unknown: use low, medium"),
        (with_lines("permissions:\n  allowlist: npm test"), "12:3", "permissions.allowlist: Input should be a valid tuple"),
        (with_lines("permissions:\n  allowlist:\n    - npm test\n    - ''"), "14:7", "it is no beginning of a command"),
        (with_lines("permissions:\n  allowlist: [1]"), "12:15", "permissions.allowlist.0: it must be text"),
        (with_lines("examples: [1]"), "11:12", "examples.0: it must hold names and values"),
        (with_lines("examples:\n  - args: {}"), "12:5", "examples.0.args: there is no such field; did you mean arguments?"),
        (with_lines("examples:\n  - error: NOT_FOUND"), "12:5", "no such code; did you mean TOOL_NOT_FOUND?"),
        (with_lines("examples:\n  - output: 1\n    error: TIMEOUT"), "13:5", "an output or with an error, not with both"),
        (with_lines("examples:\n  - arguments: [1]"), "12:5", "examples.0.arguments: Input should be a valid dictionary"),
        (with_lines("cost: -1"), "11:1", "cost.fixed: Input should be greater than or equal to 0"),
        (with_lines("cost: {price: 1}"), "11:8", "cost.price: there is no such field"),
        ("name: mine\nruntime: ruby\n", "2:1", "runtime: 'ruby' is unknown: use typescript, node or python"),
        (with_lines("runtime: ruby", without="runtime"), "10:1", "runtime: 'ruby' is unknown: use typescript, node"),
        (with_lines("name: 1st", without="name"), "10:1", "name: a letter, then letters, digits"),
        (with_lines("name: 5", without="name"), "10:1", "name: it must be text: put it in quotes"),
        (with_lines("description: ''", without="description"), "10:1", "description: String should have at least 1"),
        (with_lines("", without="name"), "1:1", "name: it is missing"),
        (with_lines("").replace("code: |", "text: |"), "8:1", "text: there is no such field"),
        ("just words", "1:1", "(top): it must hold names and values"),
        ("[1, 2]", "1:1", "(top): it must hold names and values"),
        ("---\n", "2:1", "(top): it must hold names and values"),
        ("", "1:1", "it is empty"),
        ("name: [", "2:1", "it is not valid YAML"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_with_its_line_and_column(text: str, where: str, words: str) -> None:
    problem = refused(text)
    assert problem.where == f"{FILE}:{where}"
    assert words in problem.why


@pytest.mark.requirement("SBX-1")
@pytest.mark.parametrize(
    ("schema", "where", "words"),
    [
        ("  type: strnig", "3:3", "schema.type"),
        ("  type: array", "3:3", "schema.type: arguments are named"),
        ("  properties:\n    who:\n      type: strnig", "5:7", "schema.properties.who.type"),
        ("  properties:\n    who: {$ref: '#/$defs/nowhere'}", "4:11", "schema.properties.who.$ref"),
        ("  properties:\n    who: {$ref: 'https://example.org/x.json'}", "4:11", "schema.properties.who.$ref"),
        ("  properties: [1]", "3:3", "schema.properties"),
        ("  required: who", "3:3", "schema.required"),
        ("  properties:\n    who: {pattern: '('}", "4:11", "schema.properties.who.pattern"),
        ("  $schema: https://example.org/mine", "3:3", "schema.$schema"),
    ],
)
def test_a_schema_that_is_no_schema_is_refused_with_the_path_of_its_fault(schema: str, where: str, words: str) -> None:
    problem = refused(f"name: greet\nschema:\n{schema}\ndescription: Greet.\ncode: execute")
    assert words in problem.why
    assert problem.where == f"{FILE}:{where}"


@pytest.mark.requirement("SBX-1")
def test_all_that_is_wrong_is_said_each_with_its_line() -> None:
    problem = refused(with_lines("colour: red\nflavour: sweet"))
    assert problem.where == f"{FILE}:11:1"
    assert "colour: there is no such field" in problem.why
    assert "flavour (line 12): there is no such field" in problem.why


CODE_HEAD = "name: greet\ndescription: Greet.\nschema: {type: object}\nruntime: python\n"


@pytest.mark.requirement("SBX-1")
@pytest.mark.parametrize(
    ("code", "where", "words"),
    [
        ("code: |\n  def execute(args, context):\n      return = 1\n", "7:14", "code: invalid syntax"),
        ("code: |\n\n  def execute(args, context):\n    x = (1\n", "8:9", "code: '(' was never closed"),
        ("code: |\n      def execute(args, context):\n      pass\n", "7:7", "code: expected an indented block"),
        ("code: |2\n  def execute(): pass\n  x = = 1\n", "7:7", "code: invalid syntax"),
        ("code: |\n  return 1\n", "6:3", "code: 'return' outside function"),
        ("code: |\r\n  x = 1\r\n  y =\r\n", "7:6", "code: invalid syntax"),
        ('code: "x = 1\\ny ="\n', "5:1", "line 2 of the code, column 4: invalid syntax"),
        ("code: |\n  x = 1\n", "6:1", "code: it has no function execute(args, context)"),
        ("code: |\n  def run(): execute = 1\n", "6:1", "code: it has no function execute(args, context)"),
    ],
)
def test_python_that_does_not_compile_is_refused_with_line_and_column_of_the_file(code: str, where: str, words: str) -> None:
    problem = refused(CODE_HEAD + code)
    assert problem.where == f"{FILE}:{where}"
    assert words in problem.why


@pytest.mark.requirement("SBX-1")
@pytest.mark.parametrize(
    "code", ["execute = print", "from mine import execute", "if 1:\n    async def execute(a, c): ...", "class execute: ..."]
)
def test_execute_may_come_about_in_any_way(code: str) -> None:
    lines = "".join(f"  {line}\n" for line in code.splitlines())
    assert parse(f"{CODE_HEAD}code: |\n{lines}").program.code.strip() == code


@pytest.mark.requirement("SBX-1")
def test_code_in_other_languages_needs_the_word_execute_and_is_compiled_by_the_sandbox() -> None:
    text = with_lines("runtime: node", without="runtime")
    assert parse(text).program.runtime == "node"
    assert "it has no function execute" in refused(text.replace("execute", "run")).why


@pytest.mark.requirement("SBX-1")
def test_a_complaint_about_the_code_is_placed_in_the_file() -> None:
    tool = parse(with_lines("runtime: node", without="runtime"))
    assert tool.code.problem("odd", 2, 3) == ToolProblem(f"{FILE}:9:5", "code: odd")
    assert tool.code.problem("odd") == ToolProblem(f"{FILE}:8:1", "code: odd")
    quoted = parse(CODE_HEAD + "code: 'execute = 1'")
    assert quoted.code.problem("odd", 1, 2) == ToolProblem(f"{FILE}:5:1", "line 1 of the code, column 2: odd")


# -- YAML as it is read


@pytest.mark.requirement("SBX-1")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("yes", "yes"), ("2026-11-15", "2026-11-15"), ("12:30:45", "12:30:45"), ("1_000", "1_000"),
        ("010", 10), ("0o10", 8), ("0x1F", 31), ("-3", -3), ("+4", 4), ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5),
        ("true", True), ("False", False), ("~", None), ("null", None), ("", None), ("1.2.3", "1.2.3"), ("-", "-"),
    ],
)  # fmt: skip
def test_a_scalar_means_what_yaml_1_2_says(text: str, value: Any) -> None:
    found = scalar(text)
    assert found == value
    assert type(found) is type(value)


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Cn", "Co", "Zl", "Zp"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(TEXTS.filter(lambda text: text != "<<"), parts, max_size=4),
    max_leaves=20,
)


@pytest.mark.requirement("SBX-1")
@given(value=VALUES)
def test_json_is_read_as_what_it_is(value: Any) -> None:
    assert json.dumps(read_yaml(json.dumps(value, ensure_ascii=False).encode()).value) == json.dumps(value)


@pytest.mark.requirement("SBX-1")
@given(value=st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), VALUES, min_size=1, max_size=4))
def test_the_place_of_a_field_is_where_its_key_stands(value: dict[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    document = read_yaml(text.encode())
    for key in value:
        place = document.position((key,))
        assert place is not None
        assert text.splitlines()[place.line - 1][place.column - 1 :].startswith(f'"{key}"')
        assert document.position((key, "nowhere", 5)) == place


@pytest.mark.requirement("SBX-1")
def test_an_alias_repeats_what_its_anchor_marks() -> None:
    assert read_yaml(b"a: &x {b: [1, 2]}\nc: [*x, *x]").value == {"a": {"b": [1, 2]}, "c": [{"b": [1, 2]}, {"b": [1, 2]}]}


@pytest.mark.requirement("SBX-1")
def test_a_bom_is_no_character() -> None:
    assert read_yaml(b"\xef\xbb\xbfa: 1").value == {"a": 1}
    with pytest.raises(YamlError) as caught:
        read_yaml(b"a: 1\nb: \xff")
    assert caught.value.position == Position(2, 4)


# -- a folder of them


class Shelf:
    """A folder of custom tools, and an App that takes what changes in it."""

    def __init__(self, path: Path, app: App) -> None:
        self.path = path
        self.app = app
        self.folder = CustomFolder(path, DefinitionRules())

    def write(self, file: str, name: str = "greet", words: str = "hello") -> None:
        self.path.mkdir(exist_ok=True)
        (self.path / file).write_text(GREET.format(name=name, words=words))

    def look(self) -> list[str]:
        """Take what has changed, as an App does; what it was, in words."""
        told = []
        for change in self.folder.changes():
            if isinstance(change, RemovedTool):
                self.app.parts.catalog.remove(change.name)
                told.append(f"- {change.name}")
            elif isinstance(change, LoadedTool):
                if change.replaces is not None:
                    self.app.parts.catalog.remove(change.replaces)
                self.app.register(change.entry)
                told.append(f"+ {change.entry.name}" if change.replaces is None else f"~ {change.entry.name}")
            else:
                told.append(f"! {Path(change.where.partition(':')[0]).name}")
        return told

    def in_force(self) -> dict[str, str]:
        """What each tool of the folder says."""
        found: list[Entry] = [entry for entry in self.app.parts.catalog.entries() if entry.tool.source == "custom"]
        return {entry.name: entry.implementation.code.split('"')[1] for entry in found}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "tools", memory_app())


@pytest.mark.requirement("REG-1", "SBX-1")
def test_the_tools_of_a_folder_are_found_and_nothing_else(shelf: Shelf) -> None:
    assert shelf.look() == []
    for file in ("a.yml", "b.yaml", "C.YML"):
        shelf.write(file, name=f"tool_{file[0]}")
    for file in (".hidden.yml", "_draft.yml", "d.yml~", "e.py", "f.json", "yml"):
        shelf.write(file, name="never")
    assert sorted(shelf.look()) == ["+ tool_C", "+ tool_a", "+ tool_b"]
    assert shelf.look() == []
    assert shelf.folder.file_of("tool_a") == shelf.path / "a.yml"
    assert shelf.folder.file_of("never") is None


@pytest.mark.requirement("SBX-1")
def test_a_changed_file_changes_its_tool_and_a_touched_one_does_not(shelf: Shelf) -> None:
    shelf.write("a.yml")
    shelf.look()
    (shelf.path / "a.yml").touch()
    assert shelf.look() == []
    shelf.write("a.yml", words="hullo")
    assert shelf.look() == ["~ greet"]
    assert shelf.in_force() == {"greet": "hullo"}


@pytest.mark.requirement("SBX-1")
def test_a_change_that_leaves_time_and_size_as_they_were_is_seen(shelf: Shelf) -> None:
    shelf.write("a.yml", words="hello")
    shelf.look()
    before = (shelf.path / "a.yml").stat()
    shelf.write("a.yml", words="HELLO")
    os.utime(shelf.path / "a.yml", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert shelf.look() == ["~ greet"]


@pytest.mark.requirement("SBX-1")
def test_a_file_that_becomes_wrong_leaves_its_tool_as_it_was_last_right(shelf: Shelf) -> None:
    shelf.write("a.yml")
    shelf.write("b.yml", name="other")
    shelf.look()
    (shelf.path / "a.yml").write_text("name: greet\ndescr")
    assert shelf.look() == ["! a.yml"]
    assert shelf.look() == []  # it is told once
    assert shelf.in_force() == {"greet": "hello", "other": "hello"}
    [problem] = shelf.folder.problems
    assert problem.where.startswith(f"{shelf.path / 'a.yml'}:")
    shelf.write("a.yml", words="better")
    assert shelf.look() == ["~ greet"]
    assert shelf.folder.problems == []
    assert shelf.in_force() == {"greet": "better", "other": "hello"}


@pytest.mark.requirement("SBX-1")
def test_a_file_that_is_put_back_as_it_was_is_right_again(shelf: Shelf) -> None:
    shelf.write("a.yml")
    shelf.look()
    (shelf.path / "a.yml").write_text("")
    assert shelf.look() == ["! a.yml"]
    shelf.write("a.yml")
    assert shelf.look() == ["~ greet"]
    assert shelf.folder.problems == []


@pytest.mark.requirement("SBX-1")
def test_a_broken_file_is_told_and_the_others_load(shelf: Shelf) -> None:
    shelf.write("a.yml")
    (shelf.path / "b.yml").write_text("name: [")
    shelf.write("c.yml", name="other")
    assert shelf.look() == ["+ greet", "! b.yml", "+ other"]


@pytest.mark.requirement("SBX-1")
def test_a_deleted_file_takes_its_tool_along(shelf: Shelf) -> None:
    shelf.write("a.yml")
    shelf.look()
    (shelf.path / "a.yml").unlink()
    assert shelf.look() == ["- greet"]
    assert shelf.in_force() == {}
    (shelf.path).rmdir()
    assert shelf.look() == []


@pytest.mark.requirement("SBX-1")
def test_a_broken_file_that_is_deleted_takes_its_last_good_tool_along(shelf: Shelf) -> None:
    shelf.write("a.yml")
    shelf.look()
    (shelf.path / "a.yml").write_text("-")
    shelf.look()
    (shelf.path / "a.yml").unlink()
    assert shelf.look() == ["- greet"]
    assert shelf.folder.problems == []


@pytest.mark.requirement("SBX-1", "TOOL-4")
def test_of_two_files_with_one_name_the_second_is_a_problem_until_the_first_is_gone(shelf: Shelf) -> None:
    shelf.write("a.yml", words="first")
    shelf.write("b.yml", words="second")
    assert shelf.look() == ["+ greet", "! b.yml"]
    assert f"is the name of the tool in {shelf.path / 'a.yml'} already" in shelf.folder.problems[0].why
    shelf.write("a.yml", words="changed")
    assert shelf.look() == ["~ greet"]
    (shelf.path / "a.yml").unlink()
    assert shelf.look() == ["- greet", "+ greet"]
    assert shelf.in_force() == {"greet": "second"}
    assert shelf.folder.problems == []


@pytest.mark.requirement("SBX-1", "TOOL-4")
def test_a_file_may_come_first_by_name_and_yet_not_take_a_name_that_is_in_use(shelf: Shelf) -> None:
    shelf.write("b.yml", words="first")
    shelf.look()
    shelf.write("a.yml", words="second")
    assert shelf.look() == ["! a.yml"]
    assert shelf.in_force() == {"greet": "first"}


@pytest.mark.requirement("SBX-1")
def test_a_file_can_be_renamed_and_a_tool_too(shelf: Shelf) -> None:
    shelf.write("a.yml")
    shelf.look()
    (shelf.path / "a.yml").rename(shelf.path / "z.yml")
    assert shelf.look() == ["- greet", "+ greet"]
    shelf.write("z.yml", name="welcome")
    assert shelf.look() == ["~ welcome"]
    assert shelf.in_force() == {"welcome": "hello"}


@pytest.mark.requirement("SBX-1", "TOOL-4")
def test_a_name_that_a_tool_gives_up_goes_to_the_file_that_waits_for_it(shelf: Shelf) -> None:
    shelf.write("a.yml", words="first")
    shelf.write("b.yml", words="second")
    shelf.look()
    shelf.write("a.yml", name="welcome", words="first")
    assert shelf.look() == ["~ welcome", "+ greet"]
    assert shelf.in_force() == {"welcome": "first", "greet": "second"}


@pytest.mark.requirement("SBX-1")
def test_what_an_app_refuses_leaves_what_was_there_and_is_a_problem(shelf: Shelf) -> None:
    shelf.write("a.yml")
    shelf.look()
    shelf.write("a.yml", name="welcome", words="changed")
    [change] = shelf.folder.changes()
    assert isinstance(change, LoadedTool)
    assert change.replaces == "greet"
    shelf.folder.refuse(change, change.tool.code.problem("it does not compile", 1, 1))
    assert [problem.why for problem in shelf.folder.problems] == ["code: it does not compile"]
    assert shelf.folder.file_of("greet") == shelf.path / "a.yml"
    assert shelf.look() == []
    shelf.write("a.yml", name="welcome", words="better")
    assert shelf.look() == ["~ welcome"]
    assert shelf.in_force() == {"welcome": "better"}
    assert shelf.folder.problems == []


@pytest.mark.requirement("SBX-1")
@at_most(40)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["a.yml", "b.yml", "c.yml"]),
            st.sampled_from(["one", "two", "three", "", None]),
            st.sampled_from(["red", "green"]),
        ),
        max_size=12,
    )
)
def test_whatever_happens_in_a_folder_what_is_in_force_is_what_it_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str | None, str]]
) -> None:
    """Each step writes a file, breaks it (no name) or deletes it (None); after each, one looks."""
    shelf = Shelf(tmp_path_factory.mktemp("shelf") / "tools", memory_app())
    files: dict[Path, tuple[str, str]] = {}
    for file, name, words in steps:
        path = shelf.path / file
        if name is None:
            path.unlink(missing_ok=True)
            files.pop(path, None)
        else:
            shelf.write(file, name, words)
            files[path] = name, words
        shelf.look()
        in_force = shelf.in_force()
        for path, (name, words) in files.items():
            right = bool(name) and shelf.folder.file_of(name) == path and in_force[name] == words
            assert right != any(problem.where.startswith(str(path)) for problem in shelf.folder.problems)
        assert {shelf.folder.file_of(name) for name in in_force} <= set(files)
        assert len(in_force) <= len(files)

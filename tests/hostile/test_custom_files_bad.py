"""Files that no honest author of a tool writes: each is refused in words, at once, and takes nothing down with it."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from toolgate import yamltext
from toolgate.registry.catalog import ToolProblem
from toolgate.registry.compile import DefinitionRules
from toolgate.sandbox.custom.folder import CustomFolder, LoadedTool
from toolgate.sandbox.custom.yaml_file import ToolFileError, parse_tool_file, read_tool_file
from toolgate.yamltext import MAX_YAML_BYTES, MAX_YAML_DEPTH, YamlError, read_yaml

pytestmark = pytest.mark.requirement("SBX-1")

GOOD = """\
name: greet
description: Greet somebody.
schema: {type: object}
runtime: python
code: |
  def execute(args, context): ...
"""
SECONDS = 30.0
"""What the slowest of them may take; the honest one takes a millisecond."""


def why_not(content: bytes | str) -> ToolProblem:
    """Why a file is refused, which must not take long."""
    begun = time.monotonic()
    with pytest.raises(ToolFileError) as caught:
        parse_tool_file(content.encode() if isinstance(content, str) else content, Path("bad.yml"))
    assert time.monotonic() - begun < SECONDS
    assert len(str(caught.value)) < 5000
    return caught.value.problem


def test_the_honest_one_is_taken() -> None:
    assert parse_tool_file(GOOD.encode(), Path("good.yml")).entry.name == "greet"


# -- bombs


def laughs(levels: int, width: int = 9) -> str:
    lines = ["x0: &x0 [lol]"]
    lines += [f"x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * width)}]" for level in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        laughs(10),
        laughs(40, 2),
        f"a: &a {'x' * 100_000}\nb: [*a, *a, *a, *a, *a, *a]",
        "a: &a " + "{k: v}\n" + "b: [" + "*a, " * 60_000 + "*a]",
    ],
    ids=["a billion laughs", "doubling", "a long text again and again", "a small one very often"],
)
def test_what_aliases_repeat_counts_as_if_it_were_written_out(text: str) -> None:
    assert len(text) < MAX_YAML_BYTES
    assert "it holds too many values, with those that aliases repeat" in why_not(text).why


def test_aliases_within_bounds_are_read() -> None:
    value = read_yaml(laughs(3).encode()).value
    assert value["x2"] == [[["lol"]] * 9] * 9


@pytest.mark.parametrize(
    "text",
    [
        "[" * 250_000,
        "- " * 125_000,
        "\n".join(" " * level + "a:" for level in range(500)),
        "a: " + "{a: " * (MAX_YAML_DEPTH + 1) + "1" + "}" * (MAX_YAML_DEPTH + 1),
        "\n".join(["a: &x0 1", *(f"b{n}: &x{n + 1} {'[' * 20}*x{n}{']' * 20}" for n in range(100))]),
    ],
    ids=["brackets", "dashes", "indents", "braces", "aliases in aliases"],
)
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    assert len(text) < MAX_YAML_BYTES
    assert f"nested more than {MAX_YAML_DEPTH} levels deep" in why_not(text).why


def test_a_value_may_be_as_deep_as_the_bound() -> None:
    assert read_yaml(("[" * MAX_YAML_DEPTH + "]" * MAX_YAML_DEPTH).encode()).value
    with pytest.raises(YamlError):
        read_yaml(("[" * (MAX_YAML_DEPTH + 1) + "]" * (MAX_YAML_DEPTH + 1)).encode())


@pytest.mark.parametrize("text", ["&a [*a]", "a: &a {b: *a}", "a: &a\n  - [[*a]]"])
def test_what_repeats_itself_is_refused(text: str) -> None:
    assert "stands inside of what it repeats" in why_not(text).why


@pytest.mark.parametrize(
    "text",
    [
        "{" * 250_000, "a: '" + "''" * 120_000, "? " * 120_000, "!" * 250_000, "&" * 250_000, "*" * 250_000, "%" * 250_000,
        ": " * 120_000, "a: |" + "\n" * 250_000, "a: >\n" + " x\n\n" * 60_000, "#" * 250_000, "a: \"" + "\\n" * 120_000,
        "[" + "a," * 120_000, "{" + "a," * 120_000, "- a\n" * 60_000, "".join(f"k{n}: 1\n" for n in range(25_000)),
        "\n".join(f"- &a{n} x" for n in range(20_000)),
    ],
    ids=range(17),
)  # fmt: skip
@pytest.mark.sample(4)
def test_much_of_the_same_is_refused_soon(text: str) -> None:
    assert len(text) <= MAX_YAML_BYTES
    why_not(text)


def test_it_is_as_safe_where_yaml_is_read_by_python_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert parse_tool_file(GOOD.encode(), Path("good.yml")).entry.name == "greet"
    assert "those that aliases repeat" in why_not(laughs(10)).why
    assert "levels deep" in why_not("[" * 10_000).why
    assert "the tag" in why_not("name: !!python/object/apply:os.getcwd []").why
    assert why_not("name: [").where.startswith("bad.yml:")


# -- what would build or mean something else


@pytest.mark.parametrize(
    "text",
    [
        "name: !!python/object/apply:os.system ['touch {file}']",
        "name: !!python/object/new:subprocess.Popen [['touch', '{file}']]",
        "name: !!python/name:os.system",
        "name: !!python/module:os",
        "!!python/object/apply:os.system ['touch {file}']",
        "%TAG ! tag:yaml.org,2002:python/\n---\nname: !object/apply:os.system ['touch {file}']",
        "? !!python/object/apply:os.system ['touch {file}']\n: 1",
        "name: !!binary aGVsbG8=",
        "name: !!set {a, b}",
        "name: !!timestamp 2026-11-15",
        "name: !mine x",
        "name: ! x",
        "name: !!str x",
    ],
)
def test_tags_are_refused_and_nothing_is_built(text: str, tmp_path: Path) -> None:
    file = tmp_path / "was_here"
    assert "the tag" in why_not(text.replace("{file}", str(file))).why
    assert not file.exists()


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        (GOOD + "name: other\n", "7:1", "the key 'name' stands twice, in lines "),
        (GOOD + "schema: {}\n", "7:1", "the key 'schema' stands twice, in lines "),
        (GOOD + "cost: {fixed: 0, fixed: 1}", "7:18", "the key 'fixed' stands twice, in lines "),
        (GOOD + "cost: {fixed: 0, 'fixed': 1}", "7:18", "the key 'fixed' stands twice, in lines "),
        (GOOD + "1: one\n", "7:1", "a key must be text: put it in quotes"),
        (GOOD + "true: one\n", "7:1", "a key must be text: put it in quotes"),
        (GOOD + "~: one\n", "7:1", "a key must be text: put it in quotes"),
        (GOOD + "? [a, b]\n: one\n", "7:3", "a key must be text, not a list or mapping"),
        (GOOD + "{a: b}: one\n", "7:1", "a key must be text, not a list or mapping"),
        (GOOD + "cost: &c {fixed: 1}\n<<: *c\n", "8:1", "merging with << is not read here"),
        (GOOD + "tags: [*nothing]\n", "7:8", "the alias *nothing has no anchor"),
        (GOOD + "---\nname: second\n", "7:1", "more than one document"),
        (GOOD + "tokenCost: .nan\n", "7:12", "NaN or infinite"),
        (GOOD + "tokenCost: -.inf\n", "7:12", "NaN or infinite"),
        (GOOD + "tokenCost: 1e999\n", "7:12", "too large for a number"),
        (GOOD + f"tokenCost: {'9' * 30}\n", "7:12", "an integer has 64 bits at most"),
        (GOOD + f"tokenCost: {'9' * 100_000}\n", "7:12", "a number has 100 characters at most"),
        (GOOD + f"tokenCost: 0x{'f' * 90}\n", "7:12", "an integer has 64 bits at most"),
        (GOOD + 'tags: ["a\\0b"]\n', "7:8", "a NUL character"),
        (GOOD + 'tags: ["\\ud800"]\n', "7:11", "it is not valid YAML"),
        (GOOD + "\x00", "7:1", "the character U+0000"),
        (GOOD + "tags: [a\x1bb]", "7:9", "the character U+001B"),
        (GOOD + "tags: [a\x7fb]", "7:9", "the character U+007F"),
        (GOOD + "\ttags: []", "7:1", "it is not valid YAML"),
        (GOOD + "code: >\n  x\nruntime", "7:1", "the key 'code' stands twice, in lines "),
        (GOOD.replace("greet\n", "../../greet\n", 1), "1:1", "name: a letter, then letters"),
        (GOOD.replace("greet\n", "'greet\\n'\n", 1), "1:1", "name: a letter, then letters"),
        (GOOD.replace("greet\n", "gr\u0435et\n", 1), "1:1", "name: a letter, then letters"),
    ],
)
def test_what_can_be_misread_is_refused_with_its_place(text: str, where: str, words: str) -> None:
    problem = why_not(text)
    assert words in problem.why
    assert problem.where == f"bad.yml:{where}"


@pytest.mark.parametrize(
    "content",
    [GOOD.encode("utf-16"), GOOD.encode("utf-16-be"), GOOD.encode("utf-32"), b"name: caf\xe9", b"\xff\xfe", b"\xc0\x80"],
)
def test_what_is_not_utf_8_is_refused(content: bytes) -> None:
    assert any(words in why_not(content).why for words in ("it is not UTF-8", "the character U+0000"))


# -- code and schemas


def with_code(code: str, runtime: str = "python") -> str:
    lines = "".join(f"  {line}\n" for line in code.split("\n"))
    return f"name: greet\ndescription: Greet.\nschema: {{type: object}}\nruntime: {runtime}\ncode: |\n{lines}"


@pytest.mark.parametrize(
    "code",
    [
        "x = " + "(" * 1_000, "x = " + "-" * 90_000 + "1", "x = " + "1+" * 45_000 + "1", "x = a" + ".b" * 40_000,
        "x = " + "not " * 20_000 + "1", "x = " + "[" * 199 + "]" * 199 + "(" * 10_000, "x = " + "lambda: " * 10_000 + "1",
        "x = f'{" * 500, "x = '" + "\\N{" * 20_000, "x = " + "9" * 5_000, "if 1:\n" * 200, "x = 0777",
        "\n".join(" " * level + "if 1:" for level in range(150)), "x = '''" + "a" * 90_000, "async" * 10_000,
        "def execute(a, c):\n return\nreturn", "nonlocal execute", "from __future__ import braces",
    ],
    ids=range(18),
)  # fmt: skip
def test_python_that_would_break_a_compiler_is_refused(code: str) -> None:
    assert "code" in why_not(with_code(code)).why


def test_python_is_compiled_and_not_run(tmp_path: Path) -> None:
    file = tmp_path / "was_here"
    code = f"open({str(file)!r}, 'w')\ndef execute(args, context): ...\nraise SystemExit"
    assert parse_tool_file(with_code(code).encode(), Path("good.yml")).entry.name == "greet"
    assert not file.exists()


def test_an_odd_escape_in_python_is_its_own_affair() -> None:
    code = "x = '\\d' if 1 is 1 else 0\ndef execute(args, context): ..."
    assert parse_tool_file(with_code(code).encode(), Path("good.yml")).program.code.startswith("x = '\\d'")


def test_code_may_not_be_longer_than_a_definition_can_hold() -> None:
    assert "code: String should have at most 100000" in why_not(with_code("execute\n" + "x" * 100_000, "node")).why


@pytest.mark.parametrize(
    "schema",
    ["5", "[]", "object", "true", "{type: [object, 5]}", "{properties: {a: 5}}", "{required: [1]}", "{minProperties: -1}",
     "{allOf: {}}", "{$ref: 'file:///etc/passwd'}", "{$ref: '#/nowhere'}", "{properties: {a: {pattern: '(?<x'}}}",
     "{enum: 5}", "{type: object, properties: {a: {$ref: 'http://127.0.0.1:1/x'}}}"],
)  # fmt: skip
def test_a_schema_that_is_none_is_refused_by_its_path(schema: str) -> None:
    problem = why_not(f"schema: {schema}\nname: greet\ndescription: Greet.\ncode: execute")
    assert problem.why.startswith("schema")
    assert problem.where.startswith("bad.yml:1:")


# -- what is no file


def test_special_files_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yml")
    (tmp_path / "zero.yml").symlink_to("/dev/zero")
    (tmp_path / "null.yml").symlink_to("/dev/null")
    (tmp_path / "nowhere.yml").symlink_to(tmp_path / "missing")
    (tmp_path / "itself.yml").symlink_to(tmp_path / "itself.yml")
    (tmp_path / "folder.yml").mkdir()
    (tmp_path / "good.yml").write_text(GOOD)
    (tmp_path / "linked.yml").symlink_to(tmp_path / "good.yml")
    (tmp_path / "huge.yml").write_bytes(b"#" * (MAX_YAML_BYTES + 1))
    os.truncate(tmp_path / "huge.yml", 10_000_000_000)
    begun = time.monotonic()
    folder = CustomFolder(tmp_path, DefinitionRules())
    loaded = [change.entry.name for change in folder.changes() if isinstance(change, LoadedTool)]
    assert time.monotonic() - begun < SECONDS
    assert loaded == ["greet"]
    why = {Path(problem.where).name: problem.why for problem in folder.problems}
    assert why == {
        "pipe.yml": "it is no regular file",
        "zero.yml": "it is no regular file",
        "null.yml": "it is no regular file",
        "nowhere.yml": "it cannot be read: No such file or directory",
        "itself.yml": "it cannot be read: Too many levels of symbolic links",
        "folder.yml": "it cannot be read: Is a directory",
        "linked.yml": f"name: greet is the name of the tool in {tmp_path / 'good.yml'} already",
        "huge.yml": f"it has more than {MAX_YAML_BYTES:,} bytes",
    }
    assert folder.changes() == []


def test_a_folder_that_is_none_is_a_problem_and_nothing_is_taken_away(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "good.yml").write_text(GOOD)
    folder = CustomFolder(tools, DefinitionRules())
    assert len(folder.changes()) == 1
    tools.rename(tmp_path / "elsewhere")
    tools.write_text("not a folder")
    assert folder.changes() == []
    assert [problem.where for problem in folder.problems] == [str(tools)]
    assert folder.file_of("greet") is not None
    tools.unlink()
    (tmp_path / "elsewhere").rename(tools)
    assert folder.changes() == []
    assert folder.problems == []


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(ToolFileError, match="not a valid name of a file"):
        read_tool_file(Path("a\0b.yml"))


# -- whatever comes

PIECES = st.sampled_from(
    ["name", "code", "schema", ": ", "- ", "\n", "  ", "{", "}", "[", "]", "&a ", "*a", "!!x ", "'", '"', "|", ">", "#", "?",
     "---", "%", "\t", "1", "true", "~", "<<", "\\", "\ufeff", "\x85", "\u2028", "execute", ","]
)  # fmt: skip


@given(content=st.binary(max_size=200) | st.lists(PIECES, max_size=40).map(lambda parts: "".join(parts).encode()))
@example(content=b"- &a\n- *a")
@example(content=b"? ")
@example(content=b"\xef\xbb\xbf")
def test_whatever_a_file_holds_it_is_read_or_refused(content: bytes) -> None:
    try:
        document = read_yaml(content)
    except YamlError as error:
        assert error.position is None or (error.position.line >= 1 and error.position.column >= 1)
    else:
        assert plain(document.value)
    with pytest.raises(ToolFileError):
        parse_tool_file(content, Path("bad.yml"))


def plain(value: Any) -> bool:
    """Whether a value is nothing but JSON."""
    if isinstance(value, dict):
        return all(type(key) is str and plain(part) for key, part in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (str, bool, int, float)


@given(at=st.integers(0, len(GOOD)), junk=st.binary(max_size=8), cut=st.integers(0, 20))
def test_a_file_that_was_damaged_is_read_or_refused(at: int, junk: bytes, cut: int) -> None:
    damaged = GOOD.encode()[:at] + junk + GOOD.encode()[at + cut :]
    try:
        assert parse_tool_file(damaged, Path("bad.yml")).entry.tool.program is not None
    except ToolFileError as refused:
        assert refused.problem.where.startswith("bad.yml")


def test_the_bounds_are_what_the_documentation_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "custom-tools.md").read_text(encoding="utf-8")
    assert f"{yamltext.MAX_YAML_BYTES // 1024} KB" in page
    assert f"{MAX_YAML_DEPTH} levels" in page

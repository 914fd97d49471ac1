"""Tools as typed declarations: right for honest schemas, and nothing but declarations whatever a definition says."""

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolgate import Tool
from toolgate.model import TOOL_NAME
from toolgate.registry.code_mode_types import typed

pytestmark = [pytest.mark.requirement("AGENT-4"), pytest.mark.requirement("TOOL-6")]

LEFT = "/** Thrown by a call that does not succeed. */"
"""The first comment, which belongs to no type."""
CHECKER = """
import { stripTypeScriptTypes } from "node:module";
let rest = "";
for await (const chunk of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
  const lines = (rest + chunk).split("\\n");
  rest = lines.pop();
  for (const line of lines) {
    let answer;
    try { answer = { left: stripTypeScriptTypes(JSON.parse(line)) }; } catch (error) { answer = { error: String(error) }; }
    console.log(JSON.stringify(answer));
  }
}
"""


class Deno:
    """Takes the types out of TypeScript: what is left of declarations is nothing."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def left_of(self, code: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, (answer, code)
        left: str = answer["left"].replace("\ufeff", " ")  # with which Deno fills the place of what was wider
        return left.strip()


def _deno() -> str:
    """Deno as pip installs it: beside the interpreter."""
    found = shutil.which("deno", path=str(Path(sys.executable).parent)) or shutil.which("deno")
    assert found is not None, "pip install 'toolgate[sandbox]'"
    return found


@pytest.fixture(scope="module")
def deno(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deno]:
    script = tmp_path_factory.mktemp("deno") / "check.mjs"
    script.write_text(CHECKER)
    with subprocess.Popen(
        [_deno(), "run", "--no-prompt", "--quiet", str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Deno(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


def a_tool(name: str = "add", description: str = "Add.", schema: Any = None, output: Any = None) -> Tool:
    return Tool(name=name, description=description, input_schema=schema or {"type": "object"}, output_schema=output)


ADD = a_tool(
    "add",
    "Add two numbers.",
    {
        "type": "object",
        "properties": {
            "a": {"type": "number"}, "b": {"type": "integer", "description": "The second."},
            "how": {"enum": ["fast", "slow", 3, None]}, "tags": {"type": "array", "items": {"type": ["string", "null"]}},
            "at": {"$ref": "#/$defs/Point"},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
        "$defs": {"Point": {"type": "object", "properties": {"x-y": {"type": "number"}}, "required": ["x-y"]}},
    },
    {"anyOf": [{"type": "number"}, {"type": "null"}]},
)  # fmt: skip


def test_typescript(deno: Deno) -> None:
    text = typed([ADD, a_tool("odd-name", "Odd.")], "typescript")
    assert "/** Add two numbers. */\n" in text
    assert (
        "add(args: { a: number; /** The second. */ b: number; "
        'how?: "fast" | "slow" | 3 | null; tags?: (string | null)[]; at?: { "x-y": number; }; }): Promise<number | null>;'
    ) in text
    assert '"odd-name"(args?: Record<string, unknown>): Promise<unknown>;' in text
    assert deno.left_of(text) == LEFT


def test_python() -> None:
    text = typed([ADD, a_tool("odd-name", "Odd."), a_tool("class", "Teach.")], "python")
    assert "def add(self, *, a: float, b: int, how: Literal['fast', 'slow', 3, None] = ..., " in text
    assert "tags: list[str | None] = ..., at: Add0_1 = ...) -> float | None:" in text
    assert "Add0_1 = TypedDict('Add0_1', {'x-y': float})" in text
    assert "def call(self, name: Literal['odd-name'], arguments: dict[str, Any]) -> Any:" in text
    assert "def call(self, name: Literal['class'], " in text
    ast.parse(text)


async def test_the_stubs_can_be_run() -> None:
    """Their names are all there: a checker would find the same."""
    text = typed([ADD, a_tool("odd-name", "Odd.")], "python")
    found: dict[str, Any] = {}
    exec(compile(text, "stubs", "exec"), found)
    assert found["Tools"].add.__doc__ == "Add two numbers."
    assert found["Add0_1"].__required_keys__ == {"x-y"}


def test_a_schema_that_refers_to_itself_ends(deno: Deno) -> None:
    node = {"type": "object", "properties": {name: {"$ref": "#/$defs/Node"} for name in "abcdefgh"}}
    tool = a_tool(
        "tree", "A tree.", {"type": "object", "properties": {"root": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
    )
    circle = a_tool("circle", "A circle.", {"type": "object", "properties": {"x": {"$ref": "#/properties/x"}}})
    for text in (typed([tool, circle], "typescript"), typed([tool, circle], "python")):
        assert len(text) < 100_000
    assert deno.left_of(typed([tool, circle], "typescript")) == LEFT
    ast.parse(typed([tool, circle], "python"))


# -- whatever a definition says

NASTY = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from(
            ["*/", "*\\/", "*", "/", "\\", '"', "'", '"""', "`", "${", "}", "\n", "\r", "\u2028", "\u2029", "\u202e",
             "//", "#", "/*", "import os", "evil()", ";", ")", "(", "{", "\0", "é", "<!--", "-->",
             "\x85", "\\u002a/"]
        ),
        max_size=8,
    ).map("".join),
)  # fmt: skip
TOOL_NAMES = st.one_of(
    st.from_regex(TOOL_NAME, fullmatch=True).map(lambda name: name.strip()),
    st.sampled_from(
        ["class", "call", "parallel", "new", "None", "constructor", "get", "import", "a-b", "self", "Tools", "await"]
    ),
).filter(lambda name: TOOL_NAME.match(name) is not None)
FIELDS = st.one_of(
    NASTY, st.sampled_from(["a", "self", "more", "class", "__x", "new", "constructor", "__proto__", "a b", "1"])
)
SCALARS = st.one_of(
    NASTY, st.integers(-(2**53), 2**53), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)
)


def schemas() -> st.SearchStrategy[Any]:
    leaf = st.one_of(
        st.booleans(),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["string", "number", "integer", "boolean", "null", "object", "array"])}
        ),
        st.fixed_dictionaries({"type": st.lists(st.sampled_from(["string", "null", "object", "array"]), max_size=3)}),
        st.fixed_dictionaries({"enum": st.lists(st.one_of(SCALARS, st.just({"a": 1}), st.just([1])), max_size=4)}),
        st.fixed_dictionaries({"const": SCALARS}),
        st.fixed_dictionaries(
            {"$ref": st.sampled_from(["#", "#/$defs/a", "#/properties/a", "#/none", "http://x", "#/a~1b"])}
        ),
        st.dictionaries(FIELDS, SCALARS, max_size=3),
        NASTY,
    )
    return st.recursive(leaf, _around, max_leaves=12)


def _around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    many = st.lists(inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array"]), "description": NASTY,
            "properties": st.dictionaries(FIELDS, inner, max_size=4),
            "required": st.lists(FIELDS, max_size=3), "additionalProperties": inner, "items": inner, "prefixItems": many,
            "anyOf": many, "oneOf": many, "allOf": many,
            "$defs": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
        },
    )  # fmt: skip


TOOLS = st.builds(
    a_tool,
    name=TOOL_NAMES,
    description=NASTY.filter(bool),
    schema=schemas().filter(lambda schema: isinstance(schema, dict)),
    output=schemas().filter(lambda schema: isinstance(schema, dict) or schema is None),
)


@example(tools=[a_tool("a", "*\\/ evil() /*")])
@example(
    tools=[
        a_tool(
            "a", "*/ evil() /*", {"properties": {"*/ evil() /*": {"description": "*/ evil(); /*", "const": "`${evil()}"}}}
        )
    ]
)
@given(tools=st.lists(TOOLS, max_size=3, unique_by=lambda tool: tool.name))
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_typescript_is_nothing_but_declarations(deno: Deno, tools: list[Tool]) -> None:
    assert deno.left_of(typed(tools, "typescript")) == LEFT


@example(tools=[a_tool("a", '"""\nimport os\n"""')])
@given(tools=st.lists(TOOLS, max_size=3, unique_by=lambda tool: tool.name))
def test_python_is_nothing_but_declarations(tools: list[Tool]) -> None:
    tree = ast.parse(typed(tools, "python"))
    assert {type(node) for node in tree.body} <= {ast.ImportFrom, ast.ClassDef, ast.Assign, ast.AnnAssign}
    assert [node.module for node in tree.body if isinstance(node, ast.ImportFrom)] == ["collections.abc", "typing"]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name)
            assert node.func.id == "TypedDict"
        assert not isinstance(node, ast.Import | ast.Lambda | ast.Await | ast.Delete | ast.JoinedStr)
    (tools_class,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Tools"]
    for method in tools_class.body:
        assert isinstance(method, ast.FunctionDef)
        assert all(isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) for part in method.body)

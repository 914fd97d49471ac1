"""A folder of Python tools: what a file may import, what one bad function costs, and what its author is told."""

import json
import logging
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.terminal import Terminal
from toolgate import App, DefinitionError, InvokeContext, tool
from toolgate.trust import TRUST_ADVICE

pytestmark = pytest.mark.requirement("DOOR-6", "TOOL-3")

TOOL = 'from toolgate import tool\n{imports}\n@tool(tier="read_only")\ndef {name}() -> str:\n    """Say it."""\n    {body}\n'


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text))


def says(name: str, imports: str = "", body: str = "") -> str:
    return TOOL.format(name=name, imports=imports, body=body or f"return {name!r}")


def opened(home: Path, *folders: Path) -> App:
    return App.open(home=home, python_tools=folders, entry_points=False)


async def outputs(app: App) -> dict[str, Any]:
    return {tool.name: (await app.invoke(tool.name)).output for tool in await app.tools.list(source="python")}


async def test_a_file_imports_what_lies_beside_it_and_packages_work(tmp_path: Path) -> None:
    write(
        tmp_path / "tools",
        {
            "helpers.py": "x = 'helped'\n",
            "_private.py": "import helpers\ny = helpers.x\n",
            "absolute.py": says("absolute", "from helpers import x", "return x"),
            "plain.py": says("plain", "import helpers as h, _private", "return h.x + _private.y"),
            "relative.py": says("relative", "from .helpers import x", "return x"),
            "late.py": says("late", body="import parts.inner.deep; return parts.inner.deep.z"),
            "parts/__init__.py": "from .one import one\n",
            "parts/one.py": says("one", "from .inner.deep import z\nimport parts.inner.deep as d", "return z + d.z"),
            "parts/two.py": says("two", "from ..helpers import x\nimport parts.inner.deep", "return parts.inner.deep.z + x"),
            "parts/inner/__init__.py": "",
            "parts/inner/deep.py": "from helpers import x\nz = f'deeply {x}'\n",
            "data/no_package.py": "raise RuntimeError",
        },
    )
    before = list(sys.path)
    async with opened(tmp_path / "home", tmp_path / "tools") as app:
        assert app.tools.problems == []
        assert await outputs(app) == {
            "absolute": "helped",
            "plain": "helpedhelped",
            "relative": "helped",
            "late": "deeply helped",
            "one": "deeply helpeddeeply helped",
            "two": "deeply helpedhelped",
        }
    assert sys.path == before
    assert not {"helpers", "parts", "_private"} & set(sys.modules)
    assert not list(tmp_path.rglob("__pycache__"))


async def test_folders_do_not_see_each_other_and_shadow_no_other_module(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write(
            tmp_path / folder,
            {
                "helpers.py": f"x = '{folder}'\n",
                "json.py": "def dumps(value): return 'not json'\n",
                "msgspec.py": "raise RuntimeError('not the installed one')\n",
                f"tool_{folder}.py": says(
                    f"tool_{folder}",
                    "import json, msgspec\nfrom helpers import x",
                    "return x + json.dumps([msgspec.NODEFAULT is not None])",
                ),
                f"own_{folder}.py": says(f"own_{folder}", "from .json import dumps", "return dumps(1)"),
                "misses.py": "from json import secrets_of_mine\n",
            },
        )
    async with opened(tmp_path / "home", tmp_path / "a", tmp_path / "b") as app:
        assert await outputs(app) == {
            "tool_a": "a[true]", "tool_b": "b[true]", "own_a": "not json", "own_b": "not json",
        }  # fmt: skip
        misses = [problem.why for problem in app.tools.problems if "misses" in problem.where]
        assert len(misses) == 2
        assert "json.py has the name of another module: rename it, or import it with `from .json import ...`" in misses[0]
    assert json.dumps([1]) == "[1]"


async def test_an_app_that_is_opened_again_runs_the_files_as_they_are_now(tmp_path: Path) -> None:
    write(tmp_path / "tools", {"helpers.py": "x = 1\n", "mine.py": says("mine", "from helpers import x", "return str(x)")})
    for number in ("1", "2"):
        write(tmp_path / "tools", {"helpers.py": f"x = {number}\n"})
        async with opened(tmp_path / "home", tmp_path / "tools") as app:
            assert await outputs(app) == {"mine": number}


# -- what is refused

BAD = '''
from typing import TYPE_CHECKING

from toolgate import tool

if TYPE_CHECKING:
    from decimal import Decimal


class Odd: ...


@tool(tier="read_only")
def good(a: int = 1) -> int:
    """Good."""
    return a


@tool(tier="read_only")
def undescribed(a: int) -> int:
    return a


@tool(teir="read_only")
def misspelt() -> int:
    """Typo."""


@tool(tier="readonly")
def tier() -> int:
    """No such tier."""


@tool(tier="read_only")
def odd(a: Odd) -> int:
    """A hint without JSON."""


@tool(tier="read_only")
def hint(a: "Decimal") -> int:
    """A hint that is not there at run time."""


@tool(tier="read_only")
def many(*numbers: int) -> int:
    """Any number."""


@tool(tier="read_only")
def placed(a: int, /) -> int:
    """By place."""


@tool(tier="read_only")
def stream():
    """Yields."""
    yield 1


@tool(name="two words")
def named() -> int:
    """No name."""


@tool(tier="read_only", name="good")
def again() -> int:
    """The same name."""


unnamed = tool(tier="read_only", description="No name.")(lambda: 1)


@tool(tier="read_only")
class Empty:
    """No method."""


@tool(tier="read_only")
class Needs:
    """Takes something."""

    def __init__(self, thing: int) -> None: ...

    def execute(self) -> int: ...


class Methods:
    @staticmethod
    def other() -> None: ...

    @tool(tier="read_only")
    def method(self, a: int) -> int:
        """A method."""


method = Methods.method


@tool(tier="read_only")
def last() -> str:
    """Also good."""
    return "last"
'''
TOLD = {
    "undescribed": "add a docstring",
    "misspelt": "teir: unknown option, did you mean tier?",
    "tier": "tier: 'readonly' is unknown, did you mean read_only? It can be read_only, write, execute or external_api",
    "odd": "the hint Odd has no JSON form: use str, int",
    "hint": "the hint Decimal is not defined: import it",
    "many": "take a list in place of *args",
    "placed": "remove the / from the parameters",
    "stream": "a generator cannot be a tool: return a list",
    "two words": "name: a letter, then letters, digits",
    "good": "the name is taken by a tool of source python",
    "<lambda>": "a lambda has no name: use def, or @tool(name=...)",
    "Empty": "a class-based tool needs a method `execute`",
    "Needs": "app.register(Needs(...))",
    "method": "put @tool above the class",
}


async def test_one_bad_function_costs_no_other_and_its_author_is_told_where_and_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tools" / "mine.py"
    write(tmp_path / "tools", {"mine.py": BAD, "broken.py": "x = 1\ndef (\n", "raises.py": "\n1 / 0\n"})
    async with opened(tmp_path / "home", tmp_path / "tools") as app:
        assert await outputs(app) == {"good": 1, "last": "last"}
        problems = {problem.why: problem.where for problem in app.tools.problems}
    lines = BAD.splitlines()
    for name, words in TOLD.items():
        [(why, where)] = [(why, where) for why, where in problems.items() if f"tool {name!r}" in why]
        assert words in why
        assert where.startswith(str(file))
        if name not in ("Empty",):
            line = lines[int(where.rpartition(":")[2]) - 1]
            assert line.lstrip().startswith(("@tool", "unnamed", "def execute")), (name, where)
    assert problems["it does not compile: invalid syntax"] == f"{tmp_path}/tools/broken.py:2"
    assert problems["ZeroDivisionError: division by zero"] == f"{tmp_path}/tools/raises.py:2"
    assert len(problems) == len(TOLD) + 2
    logged = [record for record in caplog.records if record.name == "toolgate.tools"]
    assert {record.getMessage() for record in logged} == {f"{where}: {why}" for why, where in problems.items()}
    traced = [logging.Formatter().formatException(record.exc_info) for record in logged if record.exc_info]
    assert [text.count("1 / 0") for text in traced] == [1]


def test_outside_of_a_tools_folder_the_decorator_itself_refuses() -> None:
    with pytest.raises(DefinitionError, match=r"'misspelt' \(.*test_tool_folder\.py:\d+\) is refused: teir: unknown option"):

        @tool(teir="read_only")  # type: ignore[call-overload, untyped-decorator]
        def misspelt() -> int:
            """Typo."""
            return 1

    with pytest.raises(DefinitionError, match=r"options by name, such as @tool\(name='greet'\)"):
        tool("greet")  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match="there are name, title, tier, category"):
        tool(zzz=1)(InvokeContext.call_tool)  # type: ignore[call-overload]


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    (tmp_path / "project").mkdir()
    return Terminal(tmp_path / "project", monkeypatch, capsys)


def test_a_terminal_shows_what_did_not_load_where_it_is_asked_and_not_with_every_command(terminal: Terminal) -> None:
    write(terminal.home / "tools", {"mine.py": says("mine"), "bad.py": "def (\n"})
    listed = terminal("tools", "list", "--source", "python")
    assert "mine" in listed.out
    assert "bad" not in listed.out
    assert listed.err.count("bad.py:1: it does not compile: invalid syntax") == 1
    assert "bad.py:1 could not be loaded: it does not compile" in " ".join(terminal("doctor").out.split())  # it is wrapped
    called = terminal("call", "mine")
    assert (called.code, "bad.py" in called.err) == (0, False)


# -- what was trusted


@pytest.mark.requirement("SBX-5")
@pytest.mark.parametrize("file", ["helpers.py", "_private.py", "parts/__init__.py", "parts/inner/deep.py"])
def test_a_changed_or_new_helper_is_a_change_of_what_was_trusted(
    file: str, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOLGATE_TRUST")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    tools = terminal.home / "tools"
    write(
        tools,
        {
            "helpers.py": "x = 1\n", "_private.py": "", "parts/__init__.py": "", "parts/inner/__init__.py": "",
            "parts/inner/deep.py": "", "mine.py": says("mine", "import helpers, _private, parts.inner.deep"),
        },
    )  # fmt: skip
    assert terminal("trust").code == 0
    assert terminal("call", "mine").code == 0
    (tools / file).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    refused = terminal("call", "mine")
    assert refused.code == 2
    assert f"{file} is changed" in refused.err
    assert TRUST_ADVICE.split(",")[0] in refused.err
    assert not (tmp_path / "ran").exists()


@pytest.mark.requirement("SBX-5")
async def test_what_is_behind_a_link_or_changes_after_the_check_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: Terminal
) -> None:
    monkeypatch.delenv("TOOLGATE_TRUST")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    tools = terminal.home / "tools"
    write(tmp_path / "elsewhere", {"__init__.py": "x = 1\n"})
    write(
        tools,
        {"helpers.py": "x = 1\n", "linked.py": says("linked", "import outside"), "mine.py": says("mine", "import helpers")},
    )
    (tools / "outside").symlink_to(tmp_path / "elsewhere")
    assert terminal("trust").code == 0
    app = App.open(entry_points=False)
    (tools / "helpers.py").write_text("x = 2\n")
    async with app:
        assert await outputs(app) == {}
        assert {Path(problem.where.split(":")[0]).name for problem in app.tools.problems} >= {
            "linked.py",
            "mine.py",
            "helpers.py",
        }
        assert all("since it was trusted" in problem.why for problem in app.tools.problems)


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_a_file_that_forks_when_it_is_loaded_makes_no_second_toolgate(terminal: Terminal) -> None:
    terminal.add_tools("import os\nos.fork()\n" + says("said"))
    done = terminal.run("call", "said", "--json")
    assert (done.code, done.json["output"]) == (0, "said")
    assert "mine.py forks when it is loaded; its child process was ended" in done.err

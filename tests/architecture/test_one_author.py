"""Things that are known in one place: a second way to do them would do them differently."""

import ast
from pathlib import Path

import pytest

import toolgate

PACKAGE = Path(toolgate.__file__).parent


def importers(wanted: str) -> list[str]:
    """The files of the package that import a name, at the top or inside of a function."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names += [f"{node.module}.{name}" for name in names] if isinstance(node, ast.ImportFrom) else []
            if any(f"{name}.".startswith(f"{wanted}.") for name in names):
                found.append(str(file.relative_to(PACKAGE)))
                break
    return found


@pytest.mark.matrix("make check runs it")
@pytest.mark.parametrize(
    ("name", "author"),
    [("yaml", "yamltext.py"), ("difflib.get_close_matches", "errors.py")],
    ids=["the strict reader of YAML", "names that are spelled nearly alike"],
)
def test_one_module_alone_uses_it(name: str, author: str) -> None:
    assert importers(name) == [author]


STARTS_A_TASK = {"shield", "create_task", "ensure_future"}
MAY_START_TASKS = {
    "tasks.py": "it is their author",
    "runners/local.py": "one for each call of a tool that suspends, held and awaited by its caller: to hold it twice costs",
    "mcp/server/stdio.py": "a task group of asyncio holds and awaits its own",
}


def test_tasks_are_started_and_shielded_by_one_module() -> None:
    """Elsewhere one that nobody holds would vanish, or its error would not be heard of."""
    found = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr in STARTS_A_TASK)
        or (isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} & STARTS_A_TASK)
    }
    assert found == MAY_START_TASKS.keys()

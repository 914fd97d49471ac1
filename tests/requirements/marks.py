"""Which test proves which requirement, and in which run, read from the source of the tests without running them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Marked:
    """A test and the marks on it, on its class or on its module."""

    path: Path
    name: str
    ids: frozenset[str]
    """Of the requirements that it proves."""
    is_quick: bool
    """Run by `make test`: all but those marked as a whole for `make test-matrix` or `make slow`."""


def marked_tests(folder: Path) -> list[Marked]:
    """Every test below the folder, with or without ids."""
    return [test for path in sorted(folder.rglob("test_*.py")) for test in read(path.read_text(encoding="utf-8"), path)]


def read(source: str, path: Path) -> list[Marked]:
    module = ast.parse(source, str(path))
    return list(_tests(module.body, path, _assigned(module.body), prefix=""))


def _tests(body: list[ast.stmt], path: Path, inherited: list[ast.expr], prefix: str) -> Iterator[Marked]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            marks = [*inherited, *node.decorator_list, *_assigned(node.body)]
            yield from _tests(node.body, path, marks, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            marks = [*inherited, *node.decorator_list]
            yield Marked(path, f"{prefix}{node.name}", _ids(marks, path), is_quick=not any(map(_is_put_off, marks)))


def _assigned(body: list[ast.stmt]) -> list[ast.expr]:
    """Marks of `pytestmark = ...` in a module or class, whether one or a list of them."""
    values = [
        node.value
        for node in body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)
    ]
    return [mark for value in values for mark in (value.elts if isinstance(value, ast.List) else [value])]


def _is_put_off(mark: ast.expr) -> bool:
    """A mark of the test itself; one inside pytest.param(marks=...) is of a single case."""
    return ast.unparse(mark).partition("(")[0] in {"pytest.mark.matrix", "pytest.mark.slow"}


def _ids(marks: list[ast.expr], path: Path) -> frozenset[str]:
    """Ids of every `pytest.mark.requirement(...)` in the marks, also inside pytest.param(marks=...)."""
    calls = [
        node
        for mark in marks
        for node in ast.walk(mark)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement"
    ]
    return frozenset(_literal(argument, path) for call in calls for argument in call.args)


def _literal(argument: ast.expr, path: Path) -> str:
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    raise ValueError(f"{path}:{argument.lineno}: a requirement is named by a string, not by {ast.unparse(argument)}")

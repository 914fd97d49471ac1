"""Which test proves which requirement, read from the source of the tests without running them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Marked:
    """A test and the requirement ids on it, on its class or on its module."""

    path: Path
    name: str
    ids: frozenset[str]


def marked_tests(folder: Path) -> list[Marked]:
    """Every test below the folder, with or without ids."""
    return [test for path in sorted(folder.rglob("test_*.py")) for test in read(path.read_text(encoding="utf-8"), path)]


def read(source: str, path: Path) -> list[Marked]:
    module = ast.parse(source, str(path))
    return list(_tests(module.body, path, _ids_assigned(module.body, path), prefix=""))


def _tests(body: list[ast.stmt], path: Path, inherited: frozenset[str], prefix: str) -> Iterator[Marked]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            ids = inherited | _ids(node.decorator_list, path) | _ids_assigned(node.body, path)
            yield from _tests(node.body, path, ids, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield Marked(path, f"{prefix}{node.name}", inherited | _ids(node.decorator_list, path))


def _ids_assigned(body: list[ast.stmt], path: Path) -> frozenset[str]:
    """Ids of `pytestmark = ...` in a module or class."""
    values = [
        node.value
        for node in body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)
    ]
    return _ids(values, path)


def _ids(expressions: list[ast.expr], path: Path) -> frozenset[str]:
    """Ids of every `pytest.mark.requirement(...)` in the expressions, also inside pytest.param(marks=...)."""
    calls = [
        node
        for expression in expressions
        for node in ast.walk(expression)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement"
    ]
    return frozenset(_literal(argument, path) for call in calls for argument in call.args)


def _literal(argument: ast.expr, path: Path) -> str:
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    raise ValueError(f"{path}:{argument.lineno}: a requirement is named by a string, not by {ast.unparse(argument)}")

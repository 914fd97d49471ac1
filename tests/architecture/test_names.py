"""Names and sizes a reader relies on: a class name stands once, a module is named by a noun, a file is read in one go."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import toolgate

PACKAGE = Path(toolgate.__file__).parent
MAX_LINES = 450
NOUNS = {"docstring", "learning", "screening", "testing"}
"""Words that end like a gerund and are the trade's nouns."""


def _modules() -> Iterator[tuple[str, str]]:
    """Each module's path below the package, and its text."""
    for file in sorted(PACKAGE.rglob("*.py")):
        yield file.relative_to(PACKAGE).as_posix(), file.read_text("utf-8")


def repeated_classes(modules: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Names of top-level classes that stand in more than one module."""
    places = defaultdict(list)
    for path, text in modules:
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def gerunds(modules: Iterator[tuple[str, str]]) -> list[str]:
    """Modules and packages whose whole name is one word in -ing."""
    parts = {part for path, _ in modules for part in Path(path).with_suffix("").parts}
    return sorted(part for part in parts if re.fullmatch(r"[a-z]+ing", part) and part not in NOUNS)


def long_files(modules: Iterator[tuple[str, str]]) -> dict[str, int]:
    """Files with more than MAX_LINES lines."""
    sizes = {path: text.count("\n") for path, text in modules}
    return {path: lines for path, lines in sizes.items() if lines > MAX_LINES}


def silenced(modules: Iterator[tuple[str, str]]) -> list[str]:
    """Places in pipeline/ where the rule on complexity is switched off."""
    pattern = re.compile(r"#\s*(ruff:\s*)?noqa(?!\s*:)|#\s*(ruff:\s*)?noqa:[^#]*\bC90", re.IGNORECASE)
    return [
        f"{path}:{number}"
        for path, text in modules
        if path.startswith("pipeline/")
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_class_name_stands_twice() -> None:
    assert repeated_classes(_modules()) == {}


def test_no_module_is_named_by_a_bare_gerund() -> None:
    assert gerunds(_modules()) == []


def test_no_file_is_too_long_to_read_in_one_go() -> None:
    assert long_files(_modules()) == {}


def test_no_rule_on_complexity_is_silenced_in_the_pipeline() -> None:
    assert silenced(_modules()) == []
    settings = (PACKAGE.parents[1] / "pyproject.toml").read_text("utf-8")
    assert not re.search(r'"src/toolgate/(\*\*|pipeline[^"]*)"\s*=\s*\[[^\]]*C90', settings)


def test_each_of_these_is_seen() -> None:
    twice = iter([("a.py", "class Held: ..."), ("b/c.py", "class Held: ..."), ("d.py", "class Other:\n    class Held: ...")])
    assert repeated_classes(twice) == {"Held": ["a.py", "b/c.py"]}
    names = iter(
        [
            ("mcp/lending.py", ""),
            ("serve/quick.py", ""),
            ("screening/paths.py", ""),
            ("registry/docstring.py", ""),
            ("a/data_mapping.py", ""),
        ]
    )
    assert gerunds(names) == ["lending"]
    assert long_files(iter([("a.py", "\n" * 450), ("b.py", "\n" * 451)])) == {"b.py": 451}
    lines = "x  # noqa: C901 - a straight line\ny  # noqa: BLE001\nz  # noqa\n"
    assert silenced(iter([("pipeline/a.py", lines), ("cli/a.py", lines)])) == ["pipeline/a.py:1", "pipeline/a.py:3"]

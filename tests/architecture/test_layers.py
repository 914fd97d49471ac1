"""The contracts on imports in pyproject.toml hold, and would be seen to break."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _lint(source: Path, at: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter with our contracts over the package below `source`."""
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--config", ROOT / "pyproject.toml", "--no-cache"],
        cwd=at,
        env={**os.environ, "PYTHONPATH": str(source), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_imports_keep_to_the_contracts(tmp_path: Path) -> None:
    done = _lint(ROOT / "src", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.matrix("make check runs it")
@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("model.py", "import toolgate.settings", "Imports point downwards"),
        ("inputs.py", "import toolgate.gates.outputs", "Imports point downwards"),
        ("unheard_of.py", "", "Imports point downwards"),
        ("tools/__init__.py", "import toolgate.pipeline.invoke", "Built-in tools are leaves"),
    ],
    ids=["upwards", "sideways", "outside every layer", "tool to pipeline"],
)
def test_a_breach_is_found(tmp_path: Path, module: str, line: str, contract: str) -> None:
    package = tmp_path / "src" / "toolgate"
    shutil.copytree(ROOT / "src" / "toolgate", package, ignore=shutil.ignore_patterns("__pycache__"))
    with (package / module).open("a") as file:
        file.write(f"\n{line}\n")

    done = _lint(tmp_path / "src", tmp_path)

    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{contract} BROKEN" in done.stdout, done.stdout


def _front_door_imports(package: Path) -> list[str]:
    """The built-in tools that import the public package. Its names are loaded when first used, so import-linter, which skips
    imports for type checkers, does not see where that leads."""
    found = []
    for file in sorted((package / "tools").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if "toolgate" in names or (isinstance(node, ast.ImportFrom) and node.module == "toolgate"):
                found.append(file.name)
    return found


def test_built_in_tools_do_not_import_the_public_package(tmp_path: Path) -> None:
    assert _front_door_imports(ROOT / "src" / "toolgate") == []

    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "breach.py").write_text("from toolgate import App\n")
    assert _front_door_imports(tmp_path) == ["breach.py"]

"""Doors that others come through say so: a call without a door is taken for one of the person at this machine."""

import ast
from pathlib import Path

import toolgate
from toolgate.model import LOCAL_DOORS

PACKAGE = Path(toolgate.__file__).parent


def test_every_call_that_comes_over_a_wire_names_its_door() -> None:
    doors = []
    served = [*(PACKAGE / "serve").rglob("*.py"), *(PACKAGE / "mcp" / "server").rglob("*.py")]
    for file in sorted([*served, PACKAGE / "adapters" / "fastapi.py"]):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("invoke", "Call", "explain"):
                given = [keyword.value for keyword in node.keywords if keyword.arg == "door"]
                assert given and isinstance(given[0], ast.Constant), f"{file}:{node.lineno} names no door"
                doors.append(given[0].value)
    assert doors
    assert not LOCAL_DOORS & set(doors)


DOORS = ("cli", "serve", "mcp/server", "testing", "adapters")
FACETS_ALONE = ("cli/", "serve/", "mcp/server/", "adapters/")
"""Doors that stand on the facets of an App."""


def _app_attributes(tree: ast.AST) -> list[tuple[ast.Attribute, str]]:
    """Every attribute of an App that a module reads or sets, by what App is called in this code."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            if name in ("app", "_app", "toolgate_app"):
                found.append((node, node.attr))
    return found


def test_no_door_reaches_into_an_apps_privates_or_changes_it() -> None:
    wrong, seen = [], 0
    for file in sorted(one for door in DOORS for one in (PACKAGE / door).rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        place = file.relative_to(PACKAGE).as_posix()
        for node, name in _app_attributes(tree):
            seen += 1
            private = name.startswith("_") and not name.startswith("__")
            changed = not isinstance(node.ctx, ast.Load)
            bypassed = name == "parts" and place.startswith(FACETS_ALONE)
            if private or changed or bypassed:
                wrong.append(f"{place}:{node.lineno} app.{name}")
        for one in ast.walk(tree):
            if isinstance(one, ast.Assign | ast.AugAssign):
                targets = one.targets if isinstance(one, ast.Assign) else [one.target]
                wrong += [f"{place}:{one.lineno}" for target in targets if ".parts." in ast.unparse(target)]
    assert seen > 100
    assert wrong == []

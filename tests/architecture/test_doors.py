"""Doors that others come through say so: a call without a door is taken for one of the person at this machine."""

import ast
from pathlib import Path

import toolgate
from toolgate.model import LOCAL_DOORS

PACKAGE = Path(toolgate.__file__).parent


def test_every_call_that_comes_over_a_wire_names_its_door() -> None:
    doors = []
    for file in sorted([*(PACKAGE / "serve").rglob("*.py"), *(PACKAGE / "mcp" / "server").rglob("*.py")]):
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

"""JSON as all steps see it: what is no number, and how a place in a value is written."""

from typing import Any


def find_nan(value: Any, path: str = "") -> str | None:
    """The path of a number that is none (orjson writes it as null), or None. Depth is bounded: orjson refuses 254 levels."""
    if isinstance(value, float):
        return None if value - value == 0 else path
    if isinstance(value, dict):
        pairs = [(f"{path}.{key}" if path else str(key), part) for key, part in value.items()]
    elif isinstance(value, list | tuple):
        pairs = [(f"{path}[{index}]", part) for index, part in enumerate(value)]
    else:
        return None
    return next((found for where, part in pairs if (found := find_nan(part, where)) is not None), None)


def json_path(parts: Any) -> str:
    """`rows[3].name`, from the parts of a path."""
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path

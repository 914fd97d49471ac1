"""Arguments that a person changed, and that records hold with secrets masked.

Nobody has to type a secret to change what stands beside it: what is left as it was shown is what it was. A secret itself is
never typed into an edit, because edits are kept; it is named, as in `{{secret:NAME}}`.
"""

import re
from typing import Any

import orjson

from toolgate.model import MASK

_REFERENCE = re.compile(r"\{\{\s{0,8}secret:[^{}]{1,200}\}\}\Z")


def restore(edited: Any, shown: Any, original: Any) -> Any:
    """The edited value, with the original wherever nothing was changed of what was shown."""
    if _same(edited, shown):
        return original
    if isinstance(edited, dict) and isinstance(shown, dict) and isinstance(original, dict):
        return {
            key: restore(part, shown[key], original[key]) if key in shown and key in original else part
            for key, part in edited.items()
        }
    if all(isinstance(value, list) and len(value) == len(edited) for value in (edited, shown, original)):
        return [restore(*parts) for parts in zip(edited, shown, original, strict=True)]
    return edited


def unknowable(edited: Any, shown: Any, path: str = "") -> str | None:
    """The path of a masked text that was changed or moved, so that nobody can tell what it stands for; or None."""
    if MASK.encode() not in orjson.dumps(edited) or _same(edited, shown):
        return None
    if isinstance(edited, dict):
        if any(MASK in key for key in edited):
            return path or "(top)"
        beside = shown if isinstance(shown, dict) else {}
        parts = [(f"{path}.{key}".lstrip("."), part, beside.get(key)) for key, part in edited.items()]
    elif isinstance(edited, list):
        same = isinstance(shown, list) and len(shown) == len(edited)
        parts = [(f"{path}[{index}]", part, shown[index] if same else None) for index, part in enumerate(edited)]
    else:
        return path or "(top)"
    return next((found for path, part, other in parts if (found := unknowable(part, other, path)) is not None), None)


def _same(one: Any, other: Any) -> bool:
    """As JSON: to Python, 1 and true are equal."""
    return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)


def typed_secret(edited: Any, masked: Any, path: str = "") -> str | None:
    """The path of a secret that was typed into an edit (`masked` is the edit as records may hold it), or None. Naming a
    secret by reference is fine."""
    if _same(edited, masked) or (isinstance(edited, str) and _REFERENCE.match(edited)):
        return None
    if isinstance(edited, dict) and isinstance(masked, dict) and edited.keys() == masked.keys():
        parts = ((f"{path}.{key}".lstrip("."), part, masked[key]) for key, part in edited.items())
    elif isinstance(edited, list) and isinstance(masked, list) and len(edited) == len(masked):
        parts = ((f"{path}[{index}]", part, masked[index]) for index, part in enumerate(edited))
    else:
        return path or "(top)"
    return next((found for path, part, other in parts if (found := typed_secret(part, other, path)) is not None), None)

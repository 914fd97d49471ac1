"""A group of settings, and what the shape of the groups says about values that were not checked yet: which of them are
paths, which group a name belongs to."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict

Name = str | int
"""A step into the values: the name of a setting, or the number of an item."""


class Section(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def matches_tool(pattern: str | None, tool: str) -> bool:
    """Tells whether a rule is about a tool; a `*` at the end stands for any ending. None: about every tool."""
    return pattern is None or tool == pattern or (pattern.endswith("*") and tool.startswith(pattern[:-1]))


def snake(name: str) -> str:
    """A name in snake_case, however it is spelled."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def anchored(value: Any, kind: Any, base: Path | None) -> Any:
    """A value of a layer with the relative paths in it taken from a folder, and `~` from the person's home. What is no path
    is left as it is, and so is what does not fit its kind: the settings refuse that. None: only `~` is expanded."""
    kind = _without_none(kind)
    if kind is Path:
        return anchored_path(str(value), base) if isinstance(value, str | Path) else value
    inner = get_args(kind)
    if isinstance(value, dict) and get_origin(kind) is dict:
        return {name: anchored(part, inner[1], base) for name, part in value.items()}
    if isinstance(value, list | tuple) and get_origin(kind) is tuple:
        return [anchored(part, inner[0], base) for part in value]
    if isinstance(value, dict) and _is_group(kind):
        fields = kind.model_fields
        values = {
            name: anchored(part, fields[name].annotation, base) if name in fields else part for name, part in value.items()
        }
        anchor_texts = getattr(kind, "anchor_texts", None)
        if anchor_texts is not None:
            anchor_texts(values, base)
        return values
    return value


def anchored_path(text: str, base: Path | None) -> str:
    """A path in a layer, as `anchored` has it."""
    if text.startswith("~"):
        with suppress(RuntimeError):  # nobody has this name
            return str(Path(text).expanduser())
    return str(Path(base, text)) if base is not None and text else text


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    kinds = [one for one in get_args(kind) if one is not NoneType]
    return kinds[0] if len(kinds) == 1 else kind


def _inner(kind: Any, step: Name) -> Any:
    """The kind of what a step leads to within a kind; None if it leads nowhere."""
    if _is_group(kind):
        field = kind.model_fields.get(str(step))
        return None if field is None else _without_none(field.annotation)
    return _without_none(get_args(kind)[-1 if get_origin(kind) is dict else 0]) if get_args(kind) else None


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def group_at(kind: Any, path: Sequence[Name]) -> type[BaseModel] | None:
    """The group of settings that a path leads to; None if it leads to something else."""
    kind = _without_none(kind)
    for step in path:
        kind = _inner(kind, step)
    return kind if _is_group(kind) else None


def without_empty_groups(values: Any, kind: Any) -> Any:
    """Values without groups of which all lines are comments: YAML reads those as null."""
    if not isinstance(values, Mapping) or kind is None:
        return values
    inner = {name: _inner(kind, name) for name in values}
    return {
        name: without_empty_groups(part, inner[name])
        for name, part in values.items()
        if part is not None or not (get_origin(inner[name]) is dict or _is_group(inner[name]))
    }

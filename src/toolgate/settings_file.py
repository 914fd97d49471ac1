"""The settings file as text: parsed strictly, with the lines of its names, and its paths taken from the folder it is in."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from toolgate.errors import SettingsError

Name = str | int
"""A step into the values: the name of a setting, or the number of an item."""


def snake(name: str) -> str:
    """A name in snake_case, however it is spelled."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


# -- the text


def parse(file: Path, content: bytes) -> dict[str, Any]:
    """The names and values in a settings file; an empty one has none. Raises SettingsError with line and column."""
    import yaml  # 40 ms, and most installations have no file

    text = _decoded(file, content)
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        _refuse_repeated(file, node)
        read = None if node is None else loader.construct_document(node)
    except (yaml.YAMLError, RecursionError) as error:
        raise _invalid(file, text, error) from None
    if read is None:
        return {}
    if not isinstance(read, dict):
        raise SettingsError(f"The settings file {file} must hold names and values, not a {type(read).__name__}.")
    return read


def _decoded(file: Path, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"The settings file {file} is not UTF-8 text: line {line}.") from None


def _invalid(file: Path, text: str, error: Exception) -> SettingsError:
    mark, position = getattr(error, "problem_mark", None), getattr(error, "position", None)
    why = getattr(error, "problem", None) or getattr(error, "reason", None) or type(error).__name__
    where = ""
    if mark is not None:
        where = f"line {mark.line + 1}, column {mark.column + 1}: "
    elif isinstance(position, int):  # a character that YAML does not know
        where = f"line {text.count(chr(10), 0, position) + 1}, column {position - text.rfind(chr(10), 0, position)}: "
    return SettingsError(
        f"The settings file {file} is not valid YAML: {where}{why}.",
        suggestion="Indent with spaces: YAML takes no tabs." if "'\\t'" in why else None,
    )


def _refuse_repeated(file: Path, node: Any) -> None:
    """YAML would take the last of two values and drop the first without a word."""
    for mapping in _mappings(node):
        lines: dict[str, int] = {}
        for key, _ in mapping.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines:
                raise SettingsError(
                    f"The settings file {file} has {name!r} twice, in lines {lines[name]} and {line}.",
                    suggestion="Put what they say under one of them.",
                )
            lines[name] = line


def _mappings(node: Any) -> Iterator[Any]:
    """Every mapping once, also if aliases lead to it from several places."""
    seen: set[int] = set()
    left = [node]
    while left:
        one = left.pop()
        if one is None or id(one) in seen or not isinstance(one.value, list):
            continue
        seen.add(id(one))
        if one.id == "mapping":
            yield one
        left.extend(part for item in one.value for part in (item if isinstance(item, tuple) else (item,)))


def line_of(content: bytes, path: Sequence[Name]) -> int | None:
    """The line of a setting in a file that could be parsed; None if it is not in there."""
    import yaml

    with suppress(yaml.YAMLError, RecursionError, UnicodeDecodeError):
        node, line = yaml.SafeLoader(content.decode()).get_single_node(), None
        for step in path:
            found = _step(node, step)
            if found is None:
                return line
            line, node = found
        return line
    return None


def _step(node: Any, step: Name) -> tuple[int, Any] | None:
    if node is None or not isinstance(node.value, list):
        return None
    if node.id == "sequence":
        item = node.value[step] if isinstance(step, int) and step < len(node.value) else None
        return None if item is None else (item.start_mark.line + 1, item)
    for key, value in node.value:
        if step in (key.value, snake(str(key.value))):
            return key.start_mark.line + 1, value
    return None


# -- paths in it


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
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, BaseModel):
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


# -- what a name means


def group_at(kind: Any, path: Sequence[Name]) -> type[BaseModel] | None:
    """The group of settings that a path leads to; None if it leads to something else."""
    kind = _without_none(kind)
    for step in path:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            field = kind.model_fields.get(str(step))
            kind = None if field is None else field.annotation
        else:
            kind = get_args(kind)[-1 if get_origin(kind) is dict else 0] if get_args(kind) else None
        kind = _without_none(kind)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def without_empty_groups(values: Any, kind: Any) -> Any:
    """Values without groups of which all lines are comments: YAML reads those as null."""
    if not isinstance(values, Mapping) or kind is None:
        return values
    kept = {}
    for name, part in values.items():
        field = _field(kind, name)
        if part is None and (get_origin(field) is dict or group_at(field, ()) is not None):
            continue
        kept[name] = without_empty_groups(part, field)
    return kept


def _field(kind: Any, name: str) -> Any:
    if get_origin(kind) is dict:
        return _without_none(get_args(kind)[1])
    field = kind.model_fields.get(name) if isinstance(kind, type) and issubclass(kind, BaseModel) else None
    return None if field is None else _without_none(field.annotation)


def base_of(file: Path) -> Path:
    """The folder that relative paths in a file lead from: the one in which it is named, also if it is a link."""
    return Path(os.path.abspath(file)).parent  # noqa: PTH100 - a link counts as what it is

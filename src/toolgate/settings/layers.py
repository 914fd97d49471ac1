"""Settings in layers: values that were read in one place each, of which the later win, checked as a whole. What is wrong is
told with its name and where it was read."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from toolgate.errors import SettingsError, nearest
from toolgate.settings.section import Name, Section, group_at, snake
from toolgate.yamltext import YamlDocument

ARGUMENTS = "the arguments"
Root = TypeVar("Root", bound=Section)


class Layer(NamedTuple):
    """Values that were read in one place."""

    origin: str
    values: Mapping[str, Any]
    document: YamlDocument | None = None
    """Of the file, if it is one."""


def validated(root: type[Root], layers: Sequence[Layer]) -> Root:
    """The settings that all layers make together; raises SettingsError."""
    values: dict[str, Any] = {}
    for layer in layers:
        _merge(values, layer.values)
    try:
        return root.model_validate(values)
    except ValidationError as error:
        raise _explain(root, error, layers) from None  # its own words quote the value, which may be a password


def line_of(document: YamlDocument, path: Sequence[Name]) -> int | None:
    """The line of a setting, however it is spelled there, or of the innermost group around it; None if the file has none."""
    lines = {tuple(map(_spelled, steps)): position.line for steps, position in document.positions.items() if steps}
    steps = tuple(map(_spelled, path))
    while steps and steps not in lines:
        steps = steps[:-1]
    return lines.get(steps)


def _spelled(step: Name) -> Name:
    return step if isinstance(step, int) else snake(step)


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, Mapping):
            if not isinstance(into.get(key), dict):
                into[key] = {}  # not the layer's own, which says later where a value was read
            _merge(into[key], value)
        else:
            into[key] = value


def _explain(root: type[Section], error: ValidationError, layers: Sequence[Layer]) -> SettingsError:
    first = error.errors(include_url=False)[0]
    path: tuple[Name, ...] = first["loc"]
    name = ".".join(str(part) for part in path)
    origin = _origin(path, layers)
    if first["type"] == "extra_forbidden":
        near = _nearest(root, path)
        return SettingsError(
            f"There is no setting {name!r} (read from {origin}).",
            suggestion=f"Did you mean {near!r}?" if near else "See docs/reference/settings.md.",
        )
    return SettingsError(
        f"The setting {name!r} (read from {origin}) is wrong: {first['msg'].removeprefix('Value error, ')}."
    )


def _origin(path: Sequence[Name], layers: Sequence[Layer]) -> str:
    """The place where a setting was read: the last layer that says it, and in a file the line."""
    layer: Layer = max(reversed(layers), key=lambda one: _depth(one.values, path))
    if layer.document is None:
        return layer.origin
    line = line_of(layer.document, path) or line_of(layer.document, ("tools", *path))
    return layer.origin if line is None else f"{layer.origin}, line {line}"


def _depth(values: Any, path: Sequence[Name]) -> int:
    """The number of steps of a path that some values have."""
    for depth, step in enumerate(path):
        try:
            values = values[step]
        except (LookupError, TypeError):
            return depth
    return len(path)


def _nearest(root: type[Section], path: Sequence[Name]) -> str | None:
    """The setting that a name which does not exist may stand for: one of its group, or of the same name elsewhere."""
    name, group = str(path[-1]), group_at(root, path[:-1])
    near = nearest(name, group.model_fields if group is not None else ())
    if near or name in root.model_fields:
        return near or name
    groups = {one: group_at(field.annotation, ()) for one, field in root.model_fields.items()}
    elsewhere = [f"{one}.{name}" for one, found in groups.items() if found is not None and name in found.model_fields]
    return elsewhere[0] if len(elsewhere) == 1 else None

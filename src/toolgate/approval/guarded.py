"""Which arguments of a tool name files or commands: read off its schema once, when the tool enters the catalog.

By `format: path` or `x-path: true`, by `format: command` or `x-command: true`, else by the argument's name; `x-path: false`
and `x-command: false` say that it is something else. Where a schema leaves open what an object holds, names in it decide.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from toolgate.model import WORD, Tier

Kind = Literal["path", "command", "neither"]
PATH_WORDS = {
    "path", "paths", "file", "files", "filename", "filenames", "filepath", "filepaths", "dir", "dirs", "directory",
    "directories", "folder", "folders", "cwd", "workdir",
}  # fmt: skip
"""The last word of a name that means a path: file_path, outputFile, workingDirectory."""
PATH_NAMES = {"src", "dst", "dest"}
COMMAND_NAMES = {"command", "commands", "cmd", "cmds", "commandline", "shellcommand", "argv"}
ARGUMENT_NAMES = ("args", "arguments")
"""Beside a command: the rest of its words."""
FORMATS: dict[str, Kind] = {"path": "path", "file-path": "path", "directory-path": "path", "command": "command"}
MARKS: dict[str, Kind] = {"x-path": "path", "x-command": "command"}
WEIGHT: tuple[Kind, ...] = ("command", "path", "neither")
NO_TEXT = {"integer", "number", "boolean", "null"}
SEVERAL, ONE, REFERENCES = ("allOf", "anyOf", "oneOf"), ("if", "then", "else"), ("$ref", "$dynamicRef", "$recursiveRef")
"""Where a schema speaks of the same value by other schemas."""
SPEAKS = {*SEVERAL, *ONE, *REFERENCES, "enum", "const"}

Schemas = tuple[Mapping[str, Any], ...]


class Guarded(NamedTuple):
    """A value that names a file or a command, and where it stands among the arguments."""

    kind: Kind
    value: Any
    where: tuple[str | int, ...]


@dataclass(slots=True, frozen=True)
class Plan:
    """How to find a tool's paths and commands."""

    schema: Mapping[str, Any]
    tier: Tier
    known: dict[int, Schemas] = field(default_factory=dict, compare=False, repr=False)
    """Each part of the schema with all that it refers to and chooses from, found once."""

    def find(self, arguments: Mapping[str, Any]) -> Iterator[Guarded]:
        return self._visit(arguments, self._whole(self.schema), None, ())

    def _visit(self, value: Any, schemas: Schemas, kind: Kind | None, where: tuple[str | int, ...]) -> Iterator[Guarded]:
        kind = _said(schemas) or kind
        if isinstance(value, str):
            if kind in ("path", "command"):
                yield Guarded(kind, value, where)
        elif isinstance(value, Mapping):
            yield from self._object(value, schemas, kind, where)
        elif isinstance(value, list | tuple):
            if kind == "command" and not _plural(where):
                yield Guarded("command", list(value), where)
                return
            inner = tuple(self._parts(schemas, ("items", "contains"), ("prefixItems",)))
            for index, item in enumerate(value):
                yield from self._visit(item, inner, kind, (*where, index))

    def _object(
        self, value: Mapping[str, Any], schemas: Schemas, kind: Kind | None, where: tuple[str | int, ...]
    ) -> Iterator[Guarded]:
        for name, part in value.items():
            at = (*where, name)
            if kind == "path" and ("." in name or "/" in name):  # files: {"a/b.txt": "its text"}
                yield Guarded("path", name, at)
            inner = tuple(self._property(schemas, name))
            means = _said(inner) or _by_name(name, self.tier)
            if means == "command" and isinstance(part, str):
                rest = next((value[other] for other in ARGUMENT_NAMES if value.get(other) is not None), None)
                yield Guarded("command", part if rest is None else (part, rest), at)
            else:
                yield from self._visit(part, inner, means, at)

    def _property(self, schemas: Schemas, name: str) -> Iterator[Mapping[str, Any]]:
        for schema in schemas:
            properties = schema.get("properties")
            if isinstance(properties, Mapping) and name in properties:
                yield from self._whole(properties[name])
                continue
            patterns = schema.get("patternProperties")
            for part in (*(patterns.values() if isinstance(patterns, Mapping) else ()), schema.get("additionalProperties")):
                yield from self._whole(part)

    def _parts(self, schemas: Schemas, single: Sequence[str], several: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        for schema in schemas:
            for key in single:
                yield from self._whole(schema.get(key))
            for key in several:
                for part in schema.get(key) or ():
                    yield from self._whole(part)

    def _whole(self, schema: Any) -> Schemas:
        """A schema with everything that it refers to and chooses from."""
        if not isinstance(schema, Mapping):
            return ()
        known = self.known.get(id(schema))
        if known is None:
            found: dict[int, Mapping[str, Any]] = {}
            self._collect(schema, found)
            known = self.known[id(schema)] = tuple(found.values())
        return known

    def _collect(self, schema: Any, found: dict[int, Mapping[str, Any]]) -> None:
        if not isinstance(schema, Mapping) or id(schema) in found:
            return
        found[id(schema)] = schema
        for key in REFERENCES:
            if isinstance(schema.get(key), str):
                self._collect(_referred(self.schema, schema[key]), found)
        for key in SEVERAL:
            for part in schema.get(key) or ():
                self._collect(part, found)
        for key in ONE:
            self._collect(schema.get(key), found)


def plan(schema: Mapping[str, Any], tier: Tier) -> Plan | None:
    """How to find the paths and commands among a tool's arguments; None if the schema has no room for any."""
    made = Plan(schema, tier)
    return made if _has_room(made, schema, set()) else None


def _has_room(made: Plan, schema: Any, seen: set[int]) -> bool:
    """Whether what a schema describes can be, or hold, a path or a command."""
    if not isinstance(schema, Mapping):
        return schema is not False
    if id(schema) in seen:
        return False
    seen.add(id(schema))
    parts = made._whole(schema)
    if _said(parts) in ("path", "command"):
        return True
    if any(not _types(part) and SPEAKS.isdisjoint(part) for part in parts):  # it may be anything
        return True
    types = {kind for part in parts for kind in _types(part)}
    if "object" in types and any(_object_has_room(made, part, seen) for part in parts):
        return True
    items = [part["items"] for part in parts if "items" in part] or [True]
    return "array" in types and any(
        _has_room(made, part, seen) for part in (*items, *made._parts(parts, (), ("prefixItems",)))
    )


def _object_has_room(made: Plan, schema: Mapping[str, Any], seen: set[int]) -> bool:
    properties = schema.get("properties")
    for name, rule in properties.items() if isinstance(properties, Mapping) else ():
        said = _said(made._whole(rule))
        if (_by_name(name, made.tier) is not None and said != "neither") or _has_room(made, rule, seen):
            return True
    if "object" not in _types(schema):
        return False
    rest = schema.get("additionalProperties", True)
    closed = rest is False or (isinstance(rest, Mapping) and bool(_types(rest)) and _types(rest) <= NO_TEXT)
    return not closed or bool(schema.get("patternProperties"))


def _types(schema: Mapping[str, Any]) -> set[str]:
    given = schema.get("type")
    types = set(given) if isinstance(given, list) else {given} if isinstance(given, str) else set()
    return types or ({"object"} if "properties" in schema else {"array"} if "items" in schema else set())


def _said(schemas: Schemas) -> Kind | None:
    """What a schema says outright of a value; that it is a path weighs more than that it is none."""
    said: set[Kind] = set()
    for schema in schemas:
        for key, kind in MARKS.items():
            if key in schema:
                said.add(kind if schema[key] is not False else "neither")
        if schema.get("format") in FORMATS and "neither" not in said:
            said.add(FORMATS[schema["format"]])
    return next((kind for kind in WEIGHT if kind in said), None)


def _by_name(name: str, tier: Tier) -> Kind | None:
    plain = re.sub(r"[-_ .]", "", name).lower()
    if tier == "execute" and plain in COMMAND_NAMES:
        return "command"
    words = [word.lower() for word in WORD.findall(name)]
    return "path" if plain in PATH_WORDS or plain in PATH_NAMES or (words and words[-1] in PATH_WORDS) else None


def _plural(where: tuple[str | int, ...]) -> bool:
    """Whether a list at this place holds several commands, not the words of one."""
    return bool(where) and str(where[-1]).lower() in ("commands", "cmds")


def _referred(root: Mapping[str, Any], reference: str) -> Any:
    part: Any = root
    for key in reference.removeprefix("#").strip("/").split("/") if reference.startswith("#") else ():
        if not key:
            continue
        key = key.replace("~1", "/").replace("~0", "~")
        part = part.get(key) if isinstance(part, Mapping) else None
    return part

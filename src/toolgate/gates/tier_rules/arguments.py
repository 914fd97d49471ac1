"""The arguments of a tool that name files or commands: read off its schema once, when the tool enters the catalog.

By `format: path` or `x-path: true`, by `format: command` or `x-command: true`, else by the argument's name; `x-path: false`
and `x-command: false` say that it is something else. Where a schema leaves open what an object holds, names in it decide.
Some names (source, target, url) may or may not mean a file: for those it counts what the value looks like.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from toolgate.model import WORD, Tier
from toolgate.schema import CHOICES, ITEMS, REFERENCES, REST, Schema, SchemaDocument, Schemas, located, subschemas, types_of

Kind = Literal["path", "maybe", "inside", "command", "variable", "neither"]
"""A path; perhaps one; a name in a folder that stands beside it; a command; a variable for one."""
PATH_WORDS = {
    "path", "paths", "file", "files", "filename", "filenames", "filepath", "filepaths", "dir", "dirs", "directory",
    "directories", "folder", "folders", "cwd", "workdir", "pathname", "pathnames",
}  # fmt: skip
"""The last word of a name that means a path: file_path, outputFile, workingDirectory. Also before `name` or `url`."""
PATH_NAMES = {"src", "dst", "dest", "fname", "dirname", "basename", "basedir", "rootdir", "outdir"}
OF_A_PATH = {"name", "names", "uri", "uris", "url", "urls", "location", "value"}
MAYBE_WORDS = {"uri", "uris", "url", "urls", "source", "sources", "destination", "destinations", "target", "targets"}
MAYBE_NAMES = {
    "from", "to", "location", "locations", "href", "root", "base", "workspace", "config", "glob", "globs", "attachment",
    "attachments", "document", "documents", "notebook", "archive", "output", "input", "image", "images", "oldname",
    "newname", "database", "db", "repo", "repository",
}  # fmt: skip
COMMAND_WORDS = {"command", "commands", "cmd", "cmds", "cmdline"}
COMMAND_NAMES = {"commandline", "shellcommand", "argv", "program", "executable", "binary"}
PROGRAM_NAMES = {"program", "executable", "binary"}
BASES = {
    "cwd", "dir", "directory", "folder", "root", "base", "basedir", "basepath", "basedirectory", "workdir", "workingdir",
    "workingdirectory", "rootdir", "rootpath", "workspace", "path", "location",
}  # fmt: skip
"""What the other paths beside it may be relative to."""
HOLDERS = BASES - {"path", "location"}
"""Those of them that only hold what a tool works on, if a file or a command stands beside them."""
HELD = {"file", "files", "filename", "filenames", "fname", "path", "paths", "name", "names", *COMMAND_WORDS, *COMMAND_NAMES}
MOST_BASES = 4
NUMBERS = frozenset({int, float, bool, type(None)})
INSIDE = {"name", "names", "key", "keys", "entry", "entries"}
"""What names a file if a folder stands beside it."""
NAMING = {*OF_A_PATH, *INSIDE, "id", "full", "raw", "absolute", "relative"}
"""What holds the path where the path is an object: {"path": {"value": "a.txt"}}."""
CONTENT = {"text", "content", "contents", "data", "body", "description", "title", "comment", "message", "line", "lines"}
ARGUMENT_NAMES = {"args", "arguments", "params", "parameters", "flags", "extraargs"}
"""Beside a command: the rest of its words."""
VARIABLE_NAMES = {"env", "envs", "environ", "environment", "envvars", "environmentvariables"}
FORMATS: dict[str, Kind] = {"path": "path", "file-path": "path", "directory-path": "path", "command": "command"}
PATH_MARKS: dict[str, Kind] = {"x-path": "path", "x-command": "command"}
WEIGHT: tuple[Kind, ...] = ("command", "path", "neither")

NO_TEXT = {"integer", "number", "boolean", "null"}
SPEAKS = {*CHOICES, *REFERENCES, "enum", "const"}
"""What says of which kind a value is, if its type does not. A condition speaks of some values only."""


class Guarded(NamedTuple):
    """A value that names a file or a command, and where it stands among the arguments."""

    kind: Kind
    value: Any
    where: tuple[str | int, ...]
    bases: tuple[str, ...] = ()
    """Folders that it may be relative to."""
    holder: bool = False
    """True if it is itself such a folder, for others beside it."""
    said: bool = False
    """True if the schema says what it is, and not just its name."""


class Around(NamedTuple):
    """The context of a value: the kind, and the folders, that its place gives it."""

    kind: Kind | None = None
    bases: tuple[str, ...] = ()
    holder: bool = False


class ArgumentSchema(SchemaDocument):
    """The schema of a tool's arguments, asked about one value after another. It errs on the side of more: what one branch
    says counts whether that branch applies or not, a reference that can be read in two ways is read in both, and one that
    leads nowhere may be anything."""

    def of_property(self, schemas: Schemas, name: str) -> Iterator[Schema]:
        """The schemas of a property's value."""
        for schema in schemas:
            properties, patterns = schema.get("properties"), schema.get("patternProperties")
            declared = isinstance(properties, Mapping) and name in properties
            if isinstance(properties, Mapping) and declared:
                yield from self.whole(properties[name])
            for pattern, part in patterns.items() if isinstance(patterns, Mapping) else ():
                if _may_match(pattern, name):
                    yield from self.whole(part)
            for key in () if declared else REST:
                yield from self.whole(schema.get(key))

    def of_names(self, schemas: Schemas) -> Iterator[Schema]:
        """The schemas of the names of an object's properties."""
        for schema in schemas:
            yield from self.whole(schema.get("propertyNames"))

    def of_items(self, schemas: Schemas) -> Iterator[Schema]:
        """The schemas of any item of a list."""
        for schema in schemas:
            for item in subschemas(schema, ITEMS):
                yield from self.whole(item)

    def declares(self, schemas: Schemas, name: str) -> bool:
        return any(name in (schema.get("properties") or ()) for schema in schemas)

    def is_open(self, schema: Any, seen: set[int] | None = None) -> bool:
        """True if a value may hold things of which the schema does not say what they are."""
        seen = set() if seen is None else seen
        if not isinstance(schema, Mapping):
            return schema is not False
        if id(schema) in seen:
            return False
        seen.add(id(schema))
        parts = self.whole(schema)
        if any(not types(part) and SPEAKS.isdisjoint(part) for part in parts):
            return True
        return any(
            ("object" in types(part) and self._open_object(part, seen))
            or ("array" in types(part) and self._open_list(part, seen))
            for part in parts
        )

    def _open_object(self, schema: Schema, seen: set[int]) -> bool:
        properties = schema.get("properties")
        if any(self.is_open(rule, seen) for rule in (properties.values() if isinstance(properties, Mapping) else ())):
            return True
        rest = next((schema[key] for key in REST if key in schema), True)
        closed = rest is False or (isinstance(rest, Mapping) and bool(types(rest)) and types(rest) <= NO_TEXT)
        return not closed or bool(schema.get("patternProperties"))

    def _open_list(self, schema: Schema, seen: set[int]) -> bool:
        items = schema.get("items", schema.get("unevaluatedItems", True))
        rest = [*items, schema.get("additionalItems", True)] if isinstance(items, list) else [items]
        return any(self.is_open(part, seen) for part in (*rest, *(schema.get("prefixItems") or ())))


class Plan(msgspec.Struct, frozen=True):
    """Finds a tool's paths and commands."""

    schema: Mapping[str, Any]
    tier: Tier
    document: ArgumentSchema
    blocked: tuple[str, ...] = ()
    """Patterns of paths that this tool may not be given, besides those that no tool may."""
    queries: tuple[str, ...] = ()
    """Arguments that are SQL for a database that is only to be read."""

    def find(self, arguments: Mapping[str, Any]) -> Iterator[Guarded]:
        return self._visit(arguments, self.document.whole(self.schema), Around(), ())

    def _visit(self, value: Any, schemas: Schemas, around: Around, where: tuple[str | int, ...]) -> Iterator[Guarded]:
        said = _said(schemas)
        around = around._replace(kind=said or around.kind)
        if around.kind == "variable":
            yield from _variables(value, where)
        elif isinstance(value, str):
            if around.kind not in (None, "neither"):
                yield Guarded(around.kind, value, where, around.bases, around.holder, said is not None)
        elif isinstance(value, Mapping):
            yield from self._object(value, schemas, around, where)
        elif isinstance(value, list | tuple):
            if around.kind == "command" and not _plural(where):
                yield Guarded("command", list(value), where, around.bases)
                return
            inner = tuple(self.document.of_items(schemas))
            for index, item in enumerate(value):
                if type(item) not in NUMBERS:
                    yield from self._visit(item, inner, around, (*where, index))

    def _object(
        self, value: Mapping[str, Any], schemas: Schemas, around: Around, where: tuple[str | int, ...]
    ) -> Iterator[Guarded]:
        inner = {name: tuple(self.document.of_property(schemas, name)) for name in value}
        means = {name: _said(inner[name]) or _by_name(name, self.tier) for name in value}
        plain = {name: _plain(name) for name in value}
        folders = [name for name, part in value.items() if isinstance(part, str) and part and plain[name] in BASES]
        beside = {name: value[name] for name in folders[-MOST_BASES - 1 :]}  # more of them would not be looked at
        holds = any(word in HELD for word in plain.values())
        runs = "command" in means.values()
        names_said = _said(tuple(self.document.of_names(schemas))) == "path"
        for name, part in value.items():
            at = (*where, name)
            if names_said or (around.kind == "path" and self._is_key(name, schemas, where)):
                yield Guarded("path", name, at, around.bases)
            kind = means[name] or _inherited(name, around.kind, runs, bool(beside))
            bases = (*around.bases, *(base for other, base in beside.items() if other != name))[-MOST_BASES:]
            if (
                kind == "command"
                and isinstance(part, str | list | tuple)
                and not (_plural(at) and not isinstance(part, str))
            ):
                yield from _commands(value, name, at, bases)
            else:
                if runs and plain[name] in VARIABLE_NAMES:
                    kind = "variable"
                holder = holds and plain[name] in HOLDERS
                yield from self._visit(part, inner[name], Around(kind, bases, holder), at)

    def _is_key(self, name: str, schemas: Schemas, where: tuple[str | int, ...]) -> bool:
        """True for a key that is itself a path, as in files: {"a/b.txt": "its text"}."""
        if "." in name or "/" in name:
            return True
        many = bool(where) and isinstance(where[-1], str) and where[-1].endswith("s")
        word = _by_name(name, self.tier) is not None or _plain(name) in NAMING | CONTENT
        return many and not word and not self.document.declares(schemas, name)


def plan(schema: Mapping[str, Any], tier: Tier) -> Plan | None:
    """The plan for a tool's arguments; None if the schema has no room for paths or commands."""
    document = ArgumentSchema(schema)
    has_room = any(_names_some(document, part, tier) for _, part in located(schema)) or document.is_open(schema)
    return Plan(schema, tier, document) if has_room else None


def _names_some(document: ArgumentSchema, schema: Mapping[str, Any], tier: Tier) -> bool:
    """True if a part of a schema names a path or a command, outright or by a property's name."""
    if _said((schema,)) in ("path", "command"):
        return True
    properties = schema.get("properties")
    for name, rule in properties.items() if isinstance(properties, Mapping) else ():
        parts = document.whole(rule)
        means = _by_name(str(name), tier)
        if means is not None and _said(parts) != "neither" and (means != "maybe" or takes_free_text(parts)):
            return True
    return False


def _said(schemas: Schemas) -> Kind | None:
    """The kind that a schema names outright; that a value is a path weighs more than that it is none."""
    said: set[Kind] = set()
    for schema in schemas:
        for key, kind in PATH_MARKS.items():
            if key in schema:
                said.add(kind if schema[key] is not False else "neither")
        form = schema.get("format")
        if isinstance(form, str) and form in FORMATS and "neither" not in said:
            said.add(FORMATS[form])
    return next((kind for kind in WEIGHT if kind in said), None)


def _by_name(name: str, tier: Tier) -> Kind | None:
    plain = _plain(name)
    words = [word.lower() for word in WORD.findall(name)] or [plain]
    if tier == "execute":
        if plain in COMMAND_NAMES or plain in COMMAND_WORDS or words[-1] in COMMAND_WORDS:
            return "command"
        if plain in VARIABLE_NAMES:
            return "variable"
    if plain in PATH_WORDS or plain in PATH_NAMES or words[-1] in PATH_WORDS:
        return "path"
    if words[-1] in OF_A_PATH and len(words) > 1 and words[-2] in PATH_WORDS:
        return "path"
    return "maybe" if plain in MAYBE_NAMES or words[-1] in MAYBE_WORDS else None


def _inherited(name: str, kind: Kind | None, runs: bool, has_folder: bool) -> Kind | None:
    """The kind of a value whose own name does not say, by what it stands in and beside."""
    plain = _plain(name)
    if plain in CONTENT:
        return None
    if kind in ("path", "maybe"):
        return kind if plain in NAMING else "maybe"
    if kind == "command" and not runs and plain not in ARGUMENT_NAMES:
        return "command"
    return "inside" if has_folder and plain in INSIDE else None


def _commands(
    beside: Mapping[str, Any], name: str, where: tuple[str | int, ...], bases: tuple[str, ...]
) -> Iterator[Guarded]:
    """A command with each of the lists of words that stand beside it, and with all of them: a tool may use any."""
    command = beside[name] if isinstance(beside[name], str) else list(beside[name])
    rests = [part for other, part in beside.items() if _plain(other) in ARGUMENT_NAMES and part is not None]
    words = beside.get("argv")
    if _plain(name) in PROGRAM_NAMES and isinstance(words, list) and words[:1] == [command]:
        return  # judged as what stands in argv
    if not rests:
        yield Guarded("command", command, where, bases)
        return
    for rest in rests:
        yield Guarded("command", (command, rest), where, bases)
    if len(rests) > 1:
        yield Guarded("command", (command, *rests), where, bases)


def _variables(value: Any, where: tuple[str | int, ...]) -> Iterator[Guarded]:
    """The names of variables: {"A": "b"}, ["A=b"], [{"name": "A", "value": "b"}] or "A=b C=d"."""
    if isinstance(value, Mapping):
        names = [value[key] for key in ("name", "key") if isinstance(value.get(key), str)] or list(value)
        yield from (Guarded("variable", name, (*where, name)) for name in names)
    elif isinstance(value, str):
        yield from (Guarded("variable", part.partition("=")[0], where) for part in value.split() if "=" in part)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _variables(item, (*where, index))


def _plain(name: str) -> str:
    return re.sub(r"[-_ .]", "", name).lower()


def _plural(where: tuple[str | int, ...]) -> bool:
    """True where a list holds several commands, not the words of one."""
    return bool(where) and str(where[-1]).lower() in ("commands", "cmds")


# -- schemas


def types(schema: Schema) -> set[str]:
    """The types that a schema names, or that its other words imply."""
    lists = any(key in schema for key in ("items", "prefixItems"))
    return types_of(schema) or ({"object"} if "properties" in schema else {"array"} if lists else set())


def takes_free_text(schemas: Iterable[Schema]) -> bool:
    """True if a value can be a text that the schema does not spell out."""
    schemas = tuple(schemas)
    return not schemas or any(
        not (types(schema) and types(schema) <= NO_TEXT) and "enum" not in schema and "const" not in schema
        for schema in schemas
    )


def _may_match(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except (re.error, RecursionError):
        return True

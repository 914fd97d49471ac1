"""Tools as typed functions: what a program that calls them (code mode) is written against, in TypeScript or Python.

Names, descriptions and schemas may come from anybody. So nothing of them gets out of where it is put: names are quoted or
left out, descriptions lose what could end a comment, schemas are followed only so far.
"""

import json
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any, ClassVar, Literal

from toolgate.model import Tool
from toolgate.schema import target

Language = Literal["typescript", "python"]
MAX_TYPE_DEPTH = 8
"""The depth to which a schema is followed; beyond, anything will do."""
MAX_TYPE_PARTS = 400
"""Parts of one tool's schemas that are written out. A schema can refer to itself so often that it would never end."""
MAX_DESCRIPTION_CHARS = 1_000
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
OWN_NAMES = frozenset({"call", "parallel"})
"""Names that `tools` has besides the tools."""

Schema = Any


def typed(tools: Iterable[Tool], language: Language) -> str:
    """The declarations of all these tools, as one text."""
    return _typescript(tools) if language == "typescript" else _python(tools)


class _TypeWriter:
    """Writes a schema, with what it refers to, as a type: `anything` where it says nothing, or too much."""

    anything: ClassVar[str]
    plain: ClassVar[Mapping[str, str]]

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = MAX_TYPE_PARTS
        self._depth = 0

    def type(self, schema: Schema) -> str:
        if not isinstance(schema, dict) or self._left <= 0 or self._depth >= MAX_TYPE_DEPTH:
            return self.anything
        self._left -= 1
        self._depth += 1
        try:
            return self._written(self._resolved(schema))
        finally:
            self._depth -= 1

    def _written(self, schema: dict[str, Any]) -> str:
        raise NotImplementedError

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        for _ in range(MAX_TYPE_DEPTH):
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return schema
            schema = {**target(self._root, reference), **{key: part for key, part in schema.items() if key != "$ref"}}
        return {}


def _said(text: object) -> str:
    """A description as one line that no comment or quotation ends in: printable, without what marks an end."""
    words = text if isinstance(text, str) else ""
    line = " ".join("".join(char if char.isprintable() else " " for char in words[: 2 * MAX_DESCRIPTION_CHARS]).split())
    line = line.replace("\\", "/").replace("*/", "* /")
    return line if len(line) <= MAX_DESCRIPTION_CHARS else f"{line[:MAX_DESCRIPTION_CHARS]} …"


def _options(schema: dict[str, Any]) -> list[Schema] | None:
    """The schemas between which a value may choose, if it has the choice."""
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            options: list[Schema] = schema[key]
            return options
    types = schema.get("type")
    if isinstance(types, list):
        return [{**schema, "type": name} for name in types if isinstance(name, str)]
    return None


def _properties(schema: dict[str, Any]) -> tuple[dict[str, Schema], set[str]]:
    properties, required = schema.get("properties"), schema.get("required")
    named = properties if isinstance(properties, dict) else {}
    return named, {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()


def _literals(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) and 0 < len(values) <= MAX_TYPE_PARTS else None


def _is_object(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "object" or ("type" not in schema and isinstance(schema.get("properties"), dict))


# -- TypeScript


def _typescript(tools: Iterable[Tool]) -> str:
    lines = [
        "/** Thrown by a call that does not succeed. */",
        "declare class ToolError extends Error { code: string; message: string; }",
        "",
        "interface Tools {",
    ]
    names: set[str] = set()
    for tool in tools:
        names.add(tool.name)
        lines += [f"  {line}" for line in _method(tool)]
    if "call" not in names:
        lines.append("  call(name: string, args?: Record<string, unknown>): Promise<unknown>;")
    return "\n".join([*lines, "}", "", "declare const tools: Tools;", ""])


def _method(tool: Tool) -> list[str]:
    given = _TypeScript(tool.input_schema)
    _, required = _properties(tool.input_schema)
    optional = "" if required else "?"
    arguments = given.type({"type": "object", **tool.input_schema})
    result = "unknown" if tool.output_schema is None else _TypeScript(tool.output_schema).type(tool.output_schema)
    return [f"/** {_said(tool.description)} */", f"{_key(tool.name)}(args{optional}: {arguments}): Promise<{result}>;"]


class _TypeScript(_TypeWriter):
    anything = "unknown"
    plain: ClassVar = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}

    def type(self, schema: Schema) -> str:
        return "never" if schema is False else super().type(schema)

    def _written(self, schema: dict[str, Any]) -> str:
        literals = _literals(schema)
        if literals is not None:
            return _union(map(_json, literals))
        options = _options(schema)
        if options is not None:
            return _union(map(self.type, options))
        if isinstance(schema.get("allOf"), list) and schema["allOf"]:
            rest = {key: part for key, part in schema.items() if key != "allOf"}
            parts = [*schema["allOf"], rest] if _is_object(rest) else schema["allOf"]
            return " & ".join(_grouped(self.type(part)) for part in parts)
        if _is_object(schema):
            return self._object(schema)
        if schema.get("type") == "array" or "items" in schema or "prefixItems" in schema:
            return self._list(schema)
        return self.plain.get(str(schema.get("type")), self.anything)

    def _object(self, schema: dict[str, Any]) -> str:
        properties, required = _properties(schema)
        fields = [self._field(name, part, name in required) for name, part in properties.items()]
        more = schema.get("additionalProperties", not properties)
        if more is not False and not fields:
            return f"Record<string, {self.type(more)}>"
        return f"{{ {' '.join(fields)} }}" if fields else "{}"

    def _field(self, name: str, schema: Schema, required: bool) -> str:
        words = _said(schema.get("description")) if isinstance(schema, dict) else ""
        comment = f"/** {words} */ " if words else ""
        return f"{comment}{_key(name)}{'' if required else '?'}: {self.type(schema)};"

    def _list(self, schema: dict[str, Any]) -> str:
        first = schema.get("prefixItems")
        if isinstance(first, list) and first:
            rest = "" if schema.get("items") is False else f", ...{_grouped(self.type(schema.get('items')))}[]"
            return f"[{', '.join(map(self.type, first))}{rest}]"
        return f"{_grouped(self.type(schema.get('items')))}[]"


def _key(name: str) -> str:
    """A name as that of a field or method; `new` by itself would make a constructor of it."""
    return name if IDENTIFIER.match(name) and name != "new" else _json(name)


def _json(value: Any) -> str:
    """A value of JSON as TypeScript has it, in plain ASCII: U+2028 and half surrogates are no text everywhere."""
    try:
        return json.dumps(value, ensure_ascii=True) if isinstance(value, str | int | float | None) else "unknown"
    except ValueError:
        return "unknown"


def _union(types: Iterable[str]) -> str:
    return " | ".join(_grouped(part) for part in dict.fromkeys(types)) or "unknown"


def _grouped(part: str) -> str:
    return f"({part})" if " | " in part or " & " in part else part


# -- Python


def _python(tools: Iterable[Tool]) -> str:
    shapes: list[str] = []
    methods: list[str] = []
    odd: list[str] = []
    for number, tool in enumerate(tools):
        prefix = f"{''.join(part.capitalize() for part in re.split(r'[^A-Za-z0-9]+', tool.name))}{number}_"
        named = map(prefix.__add__, map(str, count(1)))
        result = "Any"
        if tool.output_schema is not None:
            result = _Python(tool.output_schema, named, shapes).type(tool.output_schema)
        writer = _Python(tool.input_schema, named, shapes)
        if _can_be_called(tool.name):
            methods += _function(tool, writer, result)
        else:
            arguments = writer.type({"type": "object", **tool.input_schema})
            odd += [
                "    @overload",
                f"    def call(self, name: Literal[{tool.name!r}], arguments: {arguments}) -> {result}:",
                f"        {_docstring(tool.description)}",
            ]
    if odd:
        odd += ["    @overload", "    def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any: ..."]
    lines = [
        "from collections.abc import Mapping, Sequence",
        "from typing import Any, Literal, NotRequired, TypedDict, overload",
        "",
        "",
        "class ToolError(Exception):",
        '    """Raised by a call that does not succeed."""',
        "",
        "    code: str",
        "    message: str",
        "",
        "",
        *(line for shape in shapes for line in (shape, "")),
        "",
        "class Tools:",
        *methods,
        *odd,
        "    def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any: ...",
        "    def parallel(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Any]: ...",
        "",
        "",
        "tools: Tools",
        "",
    ]
    return "\n".join(lines)


def _can_be_called(name: str) -> bool:
    return IDENTIFIER.match(name) is not None and not keyword.iskeyword(name) and name not in OWN_NAMES


def _function(tool: Tool, writer: "_Python", result: str) -> list[str]:
    properties, required = _properties(tool.input_schema)
    parameters: list[str] = []
    more = tool.input_schema.get("additionalProperties", True) is not False
    for name, schema in properties.items():
        if _is_parameter(name):
            default = "" if name in required else " = ..."
            parameters.append(f"{name}: {writer.type(schema)}{default}")
        else:
            more = True
    signature = ", ".join(["self", *(["*", *parameters] if parameters else []), *(["**more: Any"] if more else [])])
    return [f"    def {tool.name}({signature}) -> {result}:", f"        {_docstring(tool.description)}"]


def _is_parameter(name: str) -> bool:
    return bool(IDENTIFIER.match(name)) and not (
        keyword.iskeyword(name) or name in ("self", "more") or name.startswith("__")
    )


class _Python(_TypeWriter):
    """Schemas as hints; an object with known fields becomes a TypedDict of its own, with the next of the names."""

    anything = "Any"
    plain: ClassVar = {"string": "str", "number": "float", "integer": "int", "boolean": "bool", "null": "None"}

    def __init__(self, root: Mapping[str, Any], names: Iterator[str], shapes: list[str]) -> None:
        super().__init__(root)
        self._names = names
        self._shapes = shapes

    def _written(self, schema: dict[str, Any]) -> str:
        literals = _literals(schema)
        if literals is not None:
            simple = all(isinstance(value, str | int | None) for value in literals)
            return f"Literal[{', '.join(map(repr, literals))}]" if simple else "Any"
        options = _options(schema)
        if options is not None:
            found = list(dict.fromkeys(map(self.type, options)))
            return "Any" if "Any" in found or not found else " | ".join(found)
        if _is_object(schema):
            return self._object(schema)
        if schema.get("type") == "array":
            return f"list[{self.type(schema.get('items'))}]"
        return self.plain.get(str(schema.get("type")), self.anything)

    def _object(self, schema: dict[str, Any]) -> str:
        properties, required = _properties(schema)
        if not properties:
            more = schema.get("additionalProperties")
            return f"dict[str, {self.type(more)}]"
        fields = []
        for name, part in properties.items():
            hint = self.type(part)
            fields.append(f"{name!r}: {hint if name in required else f'NotRequired[{hint}]'}")
        shape = next(self._names)
        self._shapes.append(f"{shape} = TypedDict({shape!r}, {{{', '.join(fields)}}})")
        return shape


def _docstring(text: object) -> str:
    words = _said(text)
    return f'"""{words}"""' if words and '"' not in words else repr(words)

"""Tool definitions in the shapes that models and clients take, and what one costs a model to read, counted with a real
tokenizer (o200k) where one is installed."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

import orjson

from toolgate.model import CALL_TOOL, Entry, Tool
from toolgate.schema import target

Shape = Literal["openai", "anthropic", "gemini", "mcp"]
GEMINI_KNOWS = frozenset(
    {
        "type", "description", "nullable", "enum", "format", "items", "minItems", "maxItems", "properties", "required",
        "minProperties", "maxProperties", "minimum", "maximum", "minLength", "maxLength", "pattern", "anyOf",
    }
)  # fmt: skip
"""Gemini's subset of JSON Schema: a field outside it makes the API refuse the whole request."""
GEMINI_FORMATS = ("enum", "date-time", "float", "double", "int32", "int64")
MAX_REFERENCES = 8
"""References that are followed, one from the other, before what they say is left open."""


def export(entries: Iterable[Entry], shape: Shape) -> list[dict[str, Any]]:
    return [_SHAPES[shape](entry) for entry in entries]


def _named(entry: Entry, **more: Any) -> dict[str, Any]:
    return {"name": entry.tool.name, "description": entry.tool.description, **more}


def _openai(entry: Entry) -> dict[str, Any]:
    return {"type": "function", "function": _named(entry, parameters=parameters_of(entry.tool))}


def _anthropic(entry: Entry) -> dict[str, Any]:
    return _named(entry, input_schema=parameters_of(entry.tool))


def _gemini(entry: Entry) -> dict[str, Any]:
    parameters = _for_gemini(parameters_of(entry.tool), entry.tool.input_schema)
    return _named(entry, parameters=parameters) if parameters.get("properties") else _named(entry)


def mcp_definition(entry: Entry) -> dict[str, Any]:
    tool = entry.tool
    shape = _named(entry, inputSchema=parameters_of(tool), annotations=_annotations(entry))
    if isinstance(title := tool.annotations.get("title"), str) and title:
        shape["title"] = title
    if has_object_output(tool) and tool.source != "builtin":  # there are dozens, and some clients have models read them all
        shape["outputSchema"] = tool.output_schema
    return shape


def _annotations(entry: Entry) -> dict[str, Any]:
    """MCP's hints, computed from the effective tier rather than believed."""
    entry = entry.riskiest
    if entry.name == CALL_TOOL:  # it may do whatever the tool does that it calls
        return {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True}
    return {
        "readOnlyHint": entry.tier == "read_only",
        "destructiveHint": entry.destructive or entry.tier == "execute",
        "openWorldHint": entry.tier == "external_api",
    }


def has_object_output(tool: Tool) -> bool:
    """True if a client is told the output schema: only of objects, which all versions of MCP take."""
    return tool.output_schema is not None and tool.output_schema.get("type") == "object"


def parameters_of(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments. It says that they are an object: the APIs want to read it, where JSON Schema can
    leave it out."""
    return {"type": "object", "properties": {}, **tool.input_schema}


def _for_gemini(schema: Any, root: dict[str, Any], depth: int = 0) -> dict[str, Any]:
    """A schema in Gemini's subset: references put in place, a choice with null as `nullable`, one type each."""
    if not isinstance(schema, dict):
        return {}
    if isinstance(schema.get("$ref"), str):
        found = target(root, schema["$ref"]) if depth < MAX_REFERENCES else {"type": "object"}
        return _for_gemini({**found, **{key: value for key, value in schema.items() if key != "$ref"}}, root, depth + 1)
    schema = _choice(schema)
    plain: dict[str, Any] = {key: value for key, value in schema.items() if key in GEMINI_KNOWS}
    if isinstance(plain.get("properties"), dict):
        plain["properties"] = {name: _for_gemini(part, root, depth) for name, part in plain["properties"].items()}
    if "items" in plain or plain.get("type") == "array":
        plain["items"] = _for_gemini(plain.get("items"), root, depth)
    if "anyOf" in plain:
        plain["anyOf"] = [_for_gemini(part, root, depth) for part in plain["anyOf"]]
    if plain.get("format", "enum") not in GEMINI_FORMATS:
        del plain["format"]
    return plain


def _choice(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema's alternatives, however written, as one type or `anyOf`, with null apart; const and enum as texts."""
    schema = dict(schema)
    types = schema.get("type")
    options = schema.pop("oneOf", None) or schema.get("anyOf") or []
    if isinstance(types, list):
        del schema["type"]
        options = [{"type": name} for name in types]
    kept = [option for option in options if not (isinstance(option, dict) and option.get("type") == "null")]
    if len(kept) < len(options):
        schema["nullable"] = True
    schema.pop("anyOf", None)
    if len(kept) == 1 and isinstance(kept[0], dict):
        schema = {**kept[0], **schema}
    elif kept:
        schema["anyOf"] = kept
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        if None in values:
            schema["nullable"] = True
        schema["enum"] = [str(value) for value in values if value is not None]
        schema.setdefault("type", "string")
        if schema["type"] != "string":
            del schema["enum"]
    return schema


_SHAPES = {"openai": _openai, "anthropic": _anthropic, "gemini": _gemini, "mcp": mcp_definition}


# -- tokens


def definition_text(tool: Tool) -> str:
    """The text that a model is given of a tool."""
    return orjson.dumps({"name": tool.name, "description": tool.description, "parameters": tool.input_schema}).decode()


def count_tokens(text: str) -> int:
    tokenizer = _tokenizer()
    return len(tokenizer.encode(text)) if tokenizer else -(-len(text) // 4)


def is_exact() -> bool:
    """False: no tokenizer is installed, and four characters are taken for a token."""
    return _tokenizer() is not None


@lru_cache(maxsize=1)
def _tokenizer() -> Any:
    try:
        import splintr
    except ImportError:
        return None
    return splintr.Tokenizer.from_pretrained("o200k_base")

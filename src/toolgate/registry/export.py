"""Tool definitions in the shapes that models and clients take."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

from toolgate.model import Entry, Tool

Shape = Literal["openai", "anthropic", "gemini", "mcp"]
GEMINI_DROPS = ("additionalProperties", "$schema", "$defs", "default", "x-public", "title")
"""What Gemini's subset of JSON Schema does not know."""


def export(entries: Iterable[Entry], shape: Shape) -> list[dict[str, Any]]:
    return [_SHAPES[shape](entry) for entry in entries]


def _openai(entry: Entry) -> dict[str, Any]:
    tool = entry.tool
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
    }


def _anthropic(entry: Entry) -> dict[str, Any]:
    tool = entry.tool
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}


def _gemini(entry: Entry) -> dict[str, Any]:
    tool = entry.tool
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": _for_gemini(tool.input_schema, tool.input_schema.get("$defs", {})),
    }


def _mcp(entry: Entry) -> dict[str, Any]:
    tool = entry.tool
    shape: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "annotations": annotations(entry),
    }
    if _is_object_schema(tool):
        shape["outputSchema"] = tool.output_schema
    return shape


def annotations(entry: Entry) -> dict[str, Any]:
    """MCP's hints, computed from the effective tier rather than believed."""
    return {
        "readOnlyHint": entry.tier == "read_only",
        "destructiveHint": entry.destructive or entry.tier == "execute",
        "openWorldHint": entry.tier == "external_api",
    }


def _is_object_schema(tool: Tool) -> bool:
    return tool.output_schema is not None and tool.output_schema.get("type") == "object"


def _for_gemini(schema: Any, definitions: dict[str, Any], depth: int = 0) -> Any:
    """Without the keywords that Gemini refuses, and with references put in place (to a depth of 8)."""
    if isinstance(schema, list):
        return [_for_gemini(part, definitions, depth) for part in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        if depth >= 8:
            return {"type": "object"}
        return _for_gemini(definitions.get(reference.removeprefix("#/$defs/"), {}), definitions, depth + 1)
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            plain[key] = {name: _for_gemini(part, definitions, depth) for name, part in value.items()}
        elif key not in GEMINI_DROPS:
            plain[key] = _for_gemini(value, definitions, depth)
    return plain


_SHAPES: dict[str, Callable[[Entry], dict[str, Any]]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "mcp": _mcp,
}

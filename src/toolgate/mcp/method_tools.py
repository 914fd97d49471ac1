"""The methods of an MCP server besides tools/call, each as a tool, so that policy, approval and audit see it. They are
tagged `mcp:method`, and the MCP server of Toolgate serves them under their own methods."""

from typing import Any, Literal

ServerMethod = Literal["tools/call", "resources/read", "prompts/get", "completion/complete"]
METHOD_TAG = "mcp:method"

METHOD_TOOLS: dict[ServerMethod, dict[str, Any]] = {
    "resources/read": {
        "name": "read_resource",
        "description": "Read a resource of the MCP server {server}, by its URI.",
        "inputSchema": {
            "type": "object",
            "properties": {"uri": {"type": "string", "minLength": 1, "maxLength": 8192}},
            "required": ["uri"],
            "additionalProperties": False,
        },
    },
    "prompts/get": {
        "name": "get_prompt",
        "description": "Get a prompt of the MCP server {server}, filled in with arguments.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 256},
                "arguments": {"type": "object", "additionalProperties": {"type": "string"}, "x-path": False},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
    },
    "completion/complete": {
        "name": "complete_argument",
        "description": "Ask the MCP server {server} how an argument of a prompt or of a resource's address may go on.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "ref": {"type": "object", "x-path": False},
                "argument": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "maxLength": 256}, "value": {"type": "string"}},
                    "required": ["name", "value"],
                    "x-path": False,
                },
                "context": {"type": "object", "x-path": False},
            },
            "required": ["ref", "argument"],
            "additionalProperties": False,
        },
    },
}
METHOD_CAPABILITIES: dict[ServerMethod, str] = {
    "resources/read": "resources", "prompts/get": "prompts", "completion/complete": "completions",
}  # fmt: skip
"""The capability that each needs."""


def definition_of(server: str, method: ServerMethod) -> dict[str, Any]:
    fields = METHOD_TOOLS[method]
    return {**fields, "description": fields["description"].format(server=server)}

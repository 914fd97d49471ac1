"""`register_tool` and `unregister_tool`: tools that an agent adds at run time, each with a person's approval.

No grant covers either: the person who is asked has the whole definition before them, and that is its acceptance. What is
registered is called like any other tool: policy, tier and approval hold for it.
"""

from typing import Annotated, Any

import orjson
from pydantic import Field, WithJsonSchema
from typing_extensions import TypedDict

from toolgate.errors import CallError, DefinitionError, ToolError
from toolgate.model import Capability, ErrorCase, Example
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.hooks import Hook
from toolgate.registry.decorator import tool
from toolgate.registry.registration import ToolRegistrar

# Neither is a path or a command of this call. Literal: what looks like a reference to a secret is text, and no secret is put
# into it. The definition is text, because the names that it gives to arguments (`path`, `command`) would be taken for this
# tool's own; its code stands beside it, so that the person who is asked can read it.
PLAIN_TEXT: dict[str, Any] = {"x-path": False, "x-command": False, "x-literal": True}
DefinitionText = Annotated[str, Field(min_length=2, max_length=1_000_000, json_schema_extra=PLAIN_TEXT)]
CodeText = Annotated[
    str | None, Field(max_length=1_000_000), WithJsonSchema({"type": ["string", "null"], "default": None, **PLAIN_TEXT})
]
ToolNameText = Annotated[str, Field(min_length=1, max_length=64), WithJsonSchema({"type": "string", "x-path": False})]
ERRORS = [
    ErrorCase("INVALID_INPUT", "the definition is wrong, or the name is taken", "correct what the message names"),
    ErrorCase("PERMISSION_DENIED", "you may not add tools here", "ask the user for one that exists"),
    ErrorCase("CAPACITY_EXCEEDED", "too many tools are registered", "remove one, or try later"),
]


class RegisteredTool(TypedDict):
    """A tool that was registered or removed."""

    name: str
    kind: str
    version: str


class RegistrationCheck(Hook):
    """Ends a registration that cannot be made before a person is asked about it."""

    async def will_check_consent(self, ctx: InvokeContext) -> None:
        registrar: ToolRegistrar = ctx.get(ToolRegistrar)
        try:
            if "definition" in ctx.arguments:
                replace = ctx.arguments.get("replace") is True
                fields = read_definition(ctx.arguments["definition"], ctx.arguments.get("code"))
                await registrar.check(fields, ctx.call.actors, replace=replace)
            else:
                await registrar.check_removal(ctx.arguments["name"], ctx.call.actors)
        except DefinitionError as error:
            ctx.abort(str(error), "INVALID_INPUT")
        except (CallError, ToolError) as error:
            ctx.abort(error.message, error.code)


def read_definition(text: str, code: str | None) -> dict[str, Any]:
    """The fields of a definition, with its code. Raises ToolError."""
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ToolError(f"The definition is not JSON: {error}.", code="INVALID_INPUT") from None
    if not isinstance(fields, dict):
        raise ToolError("The definition is not a JSON object.", code="INVALID_INPUT")
    if code is None:
        return fields
    program = fields.get("program", {})
    if not isinstance(program, dict) or "code" in program:
        raise ToolError("The code is given once: as code, or in the definition.", code="INVALID_INPUT")
    return {**fields, "program": {**program, "code": code}}


@tool(
    tier="execute",
    category="development",
    tags=["agent"],
    capabilities=[
        Capability(action="register", description="Add a tool for the tenant", requires_confirmation=True),
        Capability(action="remove", description="Remove the tool that it replaces", requires_confirmation=True),
    ],  # the second makes it destructive: no grant covers it
    hooks=[RegistrationCheck],
    errors=ERRORS,
    examples=[
        Example(
            name="A tool of code",
            arguments={
                "definition": '{"name": "reverse_text", "description": "Turn a text around.", "kind": "sandbox", '
                '"input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}, '
                '"program": {"runtime": "python"}}',
                "code": "def execute(args, context):\n    return args['text'][::-1]\n",
            },
            output={"name": "reverse_text", "kind": "sandbox", "version": "1.0.0"},
        )
    ],
)
async def register_tool(
    ctx: InvokeContext, definition: DefinitionText, code: CodeText = None, replace: bool = False
) -> RegisteredTool:
    """Add a tool for everybody of the tenant. A person approves it first.

    Args:
        definition: JSON object: name, description, input_schema, and kind sandbox with program {runtime}, http with http
            {method, url, parameters}, mcp with mcp {url, tool}, or workflow with workflow {webhook}.
        code: Of kind sandbox: defines execute(args, context).
        replace: Replace the registered tool of this name.
    """
    registrar: ToolRegistrar = ctx.get(ToolRegistrar)
    fields = read_definition(definition, code)
    try:
        made = await registrar.add(fields, ctx.call.actors, replace=replace, door=f"agent via {ctx.call.door}")
    except DefinitionError as error:
        raise ToolError(str(error), code="INVALID_INPUT", suggestion=error.suggestion) from None
    return {"name": made.name, "kind": made.kind, "version": made.version}


@tool(
    tier="write",
    category="development",
    tags=["agent"],
    capabilities=[Capability(action="remove", description="Remove a registered tool", requires_confirmation=True)],
    hooks=[RegistrationCheck],
    errors=[*ERRORS[:2], ErrorCase("TOOL_NOT_FOUND", "the tenant has no such tool", "look at the list of tools")],
    examples=[Example(arguments={"name": "reverse_text"}, error="TOOL_NOT_FOUND")],
)
async def unregister_tool(ctx: InvokeContext, name: ToolNameText) -> RegisteredTool:
    """Remove a tool that was added at run time. A person approves it first."""
    registrar: ToolRegistrar = ctx.get(ToolRegistrar)
    gone = await registrar.remove(name, ctx.call.actors)
    return {"name": gone.name, "kind": gone.kind, "version": gone.version}

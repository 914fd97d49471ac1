"""`validate_json`: whether a JSON or YAML document is well-formed and fits a JSON Schema, with the place of every fault."""

from typing import Annotated, Any, Literal, NotRequired

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from toolgate.errors import InvalidInput
from toolgate.jsontext import valid_text
from toolgate.model import Capability, ErrorCase, Example
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.sandbox.helper_process import run_helper
from toolgate.tools.call_folder import read_text
from toolgate.yamltext import MAX_YAML_BYTES

MAX_DOCUMENT_BYTES = 2_000_000
MAX_SCHEMA_BYTES = 500_000
CHECK_SECONDS = 5.0
CHECK = "toolgate.tools.parsers.document_check:check"
PACKAGES = ("orjson", "jsonschema_rs", "yaml")
YAML_NAMES = (".yaml", ".yml")

Data = Annotated[str, Field(max_length=MAX_DOCUMENT_BYTES, json_schema_extra={"x-command": False, "x-path": False})]
JsonSchema = Annotated[Any, Field(json_schema_extra={"x-command": False, "x-path": False})]


class DocumentFault(TypedDict):
    """One fault: the path of the value, as in rows[3].name, and where it stands; lines and columns count from 1."""

    path: str
    message: str
    line: NotRequired[int]
    column: NotRequired[int]


class Validated(TypedDict):
    """Whether the document is valid, and what is wrong with it; at most 50 faults are given."""

    valid: bool
    errors: list[DocumentFault]


@tool(
    tier="read_only",
    category="validation",
    timeout=30,
    tags=["json", "yaml"],
    capabilities=[Capability(action="validate", description="Validate JSON against JSON Schema")],
    errors=[
        ErrorCase("INVALID_INPUT", "nothing is given to validate, or the schema is no JSON Schema", "correct it"),
        ErrorCase("SECURITY_VIOLATION", "a path leads out of the working directory", "name a file in it"),
        ErrorCase("TIMEOUT", "document and schema take more than 5 s", "validate a part, or simplify the schema"),
        ErrorCase("SANDBOX_ERROR", "document or schema take too much memory", "validate a part"),
    ],
    examples=[
        Example(
            name="schema",
            arguments={"data": '{"age": "7"}', "schema": {"properties": {"age": {"type": "integer"}}}},
            output={
                "valid": False,
                "errors": [
                    {"path": "age", "message": "must be of type integer, not string", "line": 1, "column": 9},
                ],
            },
        ),
        Example(name="yaml", arguments={"data": "a: 1\n", "format": "yaml"}, output={"valid": True, "errors": []}),
    ],
)
async def validate_json(
    ctx: InvokeContext,
    data: Data | None = None,
    schema: JsonSchema = None,
    path: str | None = None,
    schemaPath: str | None = None,
    format: Literal["json", "yaml"] | None = None,  # noqa: A002 - the name for callers
) -> Validated:
    """Validate JSON or YAML: syntax, repeated keys, and a JSON Schema if one is given.

    Args:
        data: JSON string to validate. Without it, path is read.
        schema: JSON Schema to validate against.
        path: File of the working directory.
        schemaPath: File with the schema.
        format: json or yaml; without it, by the end of path, else json.
    """
    if data is None:
        if path is None:
            raise InvalidInput("There is nothing to validate.", suggestion="Give data, or path.")
        data = await read_text(ctx, path, MAX_DOCUMENT_BYTES)
    if schema is not None and schemaPath is not None:
        raise InvalidInput("There are two schemas.", suggestion="Give schema or schemaPath.")
    text = await _schema_text(ctx, schema, schemaPath)
    form = format or ("yaml" if (path or "").lower().endswith(YAML_NAMES) else "json")
    if form == "yaml" and len(data) > MAX_YAML_BYTES:
        raise InvalidInput(f"YAML of more than {MAX_YAML_BYTES:,} bytes is not read.", suggestion="Validate a part of it.")
    asked = {"data": valid_text(data), "format": form, "schema": text}
    seconds = min(CHECK_SECONDS, ctx.time_limit)
    found = await run_helper(CHECK, asked, tenant=ctx.actor.tenant, packages=PACKAGES, seconds=seconds)
    if found["refusal"] is not None:
        raise InvalidInput(f"The schema cannot be used: {found['refusal']}.", suggestion="Correct the schema.")
    return {"valid": found["valid"], "errors": found["errors"]}


async def _schema_text(ctx: InvokeContext, schema: Any, path: str | None) -> str | None:
    """The text of the schema; None if none is given. A schema that is given as text is taken as what it says."""
    if path is not None:
        return valid_text(await read_text(ctx, path, MAX_SCHEMA_BYTES))
    if schema is None:
        return None
    text = valid_text(schema) if isinstance(schema, str) else orjson.dumps(schema).decode()
    if len(text) > MAX_SCHEMA_BYTES:
        raise InvalidInput(f"The schema has more than {MAX_SCHEMA_BYTES:,} bytes.")
    return text

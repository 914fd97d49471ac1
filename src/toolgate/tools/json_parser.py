"""`json_parser`: the JSON value in a text, as models and people write it: direct, found in prose, repaired, or read out of
the text by a language model."""

from typing import Annotated, Any

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from toolgate.llm.json_answers import JsonAnswer, JsonFinder, Method
from toolgate.llm.models import MODEL_CALL_SECONDS, LanguageModels, ModelUse
from toolgate.model import Capability, ErrorCase, Example
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool

PLAIN = {"x-command": False, "x-path": False}
PROMPT = """Read out of the context one JSON value that fits this JSON Schema. Invent nothing that the context does not say.
{schema}"""


class ParsedJson(TypedDict, total=False):
    """`data` is the value, `method` how it was found. Without success, `error` says why."""

    success: bool
    data: Any
    method: Method
    error: str


@tool(
    tier="read_only",
    category="validation",
    tags=["json", "text"],
    capabilities=[Capability(action="parse", estimated_time_ms=100), "extract", "repair"],
    timeout=MODEL_CALL_SECONDS,
    hooks=[ModelUse(lambda arguments: arguments.get("schema") is not None)],
    pure=True,
    errors=[
        ErrorCase("INVALID_INPUT", "the schema is no JSON Schema, or refers to another document", "Correct the schema."),
    ],
    examples=[
        Example(
            name="found in prose",
            arguments={"text": 'Here you are:\n```json\n{"name": "Ada", "age": 36}\n```'},
            output={"success": True, "data": {"name": "Ada", "age": 36}, "method": "regex_extraction"},
        ),
        Example(
            name="repaired",
            arguments={"text": "{'name': 'Ada', tags: ['math',],}"},
            output={"success": True, "data": {"name": "Ada", "tags": ["math"]}, "method": "repair"},
        ),
        Example(
            name="nothing there",
            arguments={"text": "There is no JSON here."},
            output={"success": False, "error": "Could not parse JSON from text"},
        ),
    ],
)
async def json_parser(
    ctx: InvokeContext,
    text: Annotated[str, Field(json_schema_extra=PLAIN)],
    schema: Annotated[dict[str, Any] | None, Field(json_schema_extra=PLAIN)] = None,
) -> ParsedJson:
    """Extract JSON from text: also from prose, code fences, or with mistakes.

    Args:
        text: The text that holds JSON.
        schema: JSON Schema that the value must fit. With it, a configured model reads the value out of text without JSON.
    """
    reader: JsonFinder = ctx.get(JsonFinder)
    models: LanguageModels = ctx.get(LanguageModels)
    found = await reader.extract(text, schema, tenant=ctx.actor.tenant)
    if found.method is None and schema is not None and models.is_configured(ctx.actor):
        problem = PROMPT.format(schema=orjson.dumps(schema).decode())
        by_model = await reader.ask_model(ctx, problem, text, schema)
        if by_model.method is not None:
            return {"success": True, "data": by_model.data, "method": "llm_extraction"}
        found = JsonAnswer(error=f"{found.error}. The model's answer: {by_model.error}")
    if found.method is None:
        return {"success": False, "error": found.error or ""}
    return {"success": True, "data": found.data, "method": found.method}

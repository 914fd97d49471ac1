"""The tools that the official suite expects of a server under test: those that ask nothing and do not take long."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.conformance.turns import Json, Play, Turn, failure, text

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
"""One red pixel."""
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="
"""No samples at all."""
PAUSE = 0.05


@dataclass(frozen=True)
class FixtureTool:
    """A tool, and whether it can only be called as a task."""

    name: str
    description: str
    play: Play
    schema: Json
    as_task: Literal["never", "maybe", "always"] = "never"

    def definition(self) -> Json:
        return {"name": self.name, "description": self.description, "inputSchema": self.schema}


TOOLS: dict[str, FixtureTool] = {}


def fixture(
    description: str, *, as_task: Literal["never", "maybe", "always"] = "never", schema: Json | None = None, **arguments: str
) -> Callable[[Play], Play]:
    """Offer a function as a tool of its own name; `arguments` are its arguments and their types."""
    properties = {name: {"type": kind} for name, kind in arguments.items()}
    made: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    if arguments:
        made["required"] = list(arguments)

    def add(play: Play) -> Play:
        name = play.__name__
        TOOLS[name] = FixtureTool(name, description, play, made if schema is None else schema, as_task)
        return play

    return add


# -- content


@fixture("Says one line.")
async def test_simple_text(_: Turn) -> Json:
    return text("This is a simple text response for testing.")


@fixture("Shows a picture.")
async def test_image_content(_: Turn) -> Json:
    return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}


@fixture("Plays a sound.")
async def test_audio_content(_: Turn) -> Json:
    return {"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]}


@fixture("Gives a resource.")
async def test_embedded_resource(_: Turn) -> Json:
    resource = {"uri": "test://embedded-resource", "mimeType": "text/plain", "text": "This is an embedded resource content."}
    return {"content": [{"type": "resource", "resource": resource}]}


@fixture("Gives text, a picture and a resource at once.")
async def test_multiple_content_types(_: Turn) -> Json:
    resource = {
        "uri": "test://mixed-content-resource",
        "mimeType": "application/json",
        "text": json.dumps({"test": "data", "value": 123}),
    }
    return {
        "content": [
            {"type": "text", "text": "Multiple content types test:"},
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            {"type": "resource", "resource": resource},
        ]
    }


@fixture("Fails, and says so.")
async def test_error_handling(_: Turn) -> Json:
    return failure("This tool intentionally returns an error for testing")


@fixture(
    "Takes what JSON Schema 2020-12 can say.",
    schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
async def json_schema_2020_12_tool(turn: Turn) -> Json:
    return text(f"Reached by {turn.arguments.get('contactMethod', 'email')}.")


@fixture(
    "Takes an argument that travels as a header too.",
    schema={
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
        "additionalProperties": False,
    },
)
async def test_x_mcp_header(turn: Turn) -> Json:
    return text(f"Region: {turn.arguments['region']}")


# -- what is told while a tool runs


@fixture("Tells three times how far it has got.")
async def test_tool_with_progress(turn: Turn) -> Json:
    for done in (0, 50, 100):
        await turn.ctx.session.report_progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(PAUSE)
    return text("Went through three steps.")


@fixture("Writes three log messages.")
async def test_tool_with_logging(turn: Turn) -> Json:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await _log(turn, words)
        await asyncio.sleep(PAUSE)
    return text("Wrote three messages.")


@fixture("Writes one log message.")
async def test_logging_tool(turn: Turn) -> Json:
    await _log(turn, "One message")
    return text("Wrote a message, for whoever wants messages.")


async def _log(turn: Turn, words: str) -> None:
    await turn.ctx.session.send_log_message("info", words, "fixture", related_request_id=turn.ctx.request_id)


@fixture("Closes the stream of its own answer, so that the client has to come for it.")
async def test_reconnection(turn: Turn) -> Json:
    await asyncio.sleep(PAUSE)
    if turn.ctx.close_sse_stream is not None:
        await turn.ctx.close_sse_stream()
    await asyncio.sleep(PAUSE)
    return text("Reconnection test completed successfully.")

"""The prompts and resources that the official suite expects of a server under test."""

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.conformance.fixture_tools import PNG
from tests.conformance.turns import Ask, Json, Turn, form

WATCHED = "test://watched-resource"
TEMPLATE = "test://template/{id}/data"
IN_TEMPLATE = re.compile(r"test://template/([^/]+)/data")
STARTS = ("paris", "park", "party")


def resources() -> list[Json]:
    return [
        {"uri": "test://static-text", "name": "static-text", "description": "A text.", "mimeType": "text/plain"},
        {"uri": "test://static-binary", "name": "static-binary", "description": "A picture.", "mimeType": "image/png"},
        {"uri": WATCHED, "name": "watched-resource", "description": "It changes when told to.", "mimeType": "text/plain"},
    ]


def templates() -> list[Json]:
    shown = {"uriTemplate": TEMPLATE, "name": "template", "description": "Data by id.", "mimeType": "application/json"}
    return [shown]


def read(uri: str, changes: int) -> list[Json] | None:
    """What a resource holds; None if there is no such resource."""
    if uri == "test://static-text":
        words = "This is the content of the static text resource."
        return [{"uri": uri, "mimeType": "text/plain", "text": words}]
    if uri == "test://static-binary":
        return [{"uri": uri, "mimeType": "image/png", "blob": PNG}]
    if uri == WATCHED:
        return [{"uri": uri, "mimeType": "text/plain", "text": f"It changed {changes} times."}]
    if found := IN_TEMPLATE.fullmatch(uri):
        data = {"id": found[1], "templateTest": True, "data": f"Data for ID: {found[1]}"}
        return [{"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}]
    return None


def prompts() -> list[Json]:
    def argument(name: str, description: str) -> Json:
        return {"name": name, "description": description, "required": True}

    return [
        {"name": "test_simple_prompt", "description": "Says one line."},
        {
            "name": "test_prompt_with_arguments",
            "description": "Repeats its arguments.",
            "arguments": [argument("arg1", "First test argument"), argument("arg2", "Second test argument")],
        },
        {
            "name": "test_prompt_with_embedded_resource",
            "description": "Shows a resource.",
            "arguments": [argument("resourceUri", "URI of the resource to embed")],
        },
        {"name": "test_prompt_with_image", "description": "Shows a picture."},
        {"name": "test_input_required_result_prompt", "description": "Asks for its context."},
    ]


async def prompt(name: str, turn: Turn) -> Json | Ask | None:
    """The messages of a prompt, or what it wants to know; None if there is no such prompt."""
    arguments: Mapping[str, Any] = turn.arguments
    match name:
        case "test_simple_prompt":
            return _messages(_text("This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            return _messages(_text(f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'"))
        case "test_prompt_with_embedded_resource":
            words = "Embedded resource content for testing."
            resource = {"uri": arguments["resourceUri"], "mimeType": "text/plain", "text": words}
            shown: Json = {"type": "resource", "resource": resource}
            return _messages(shown, _text("Please process the embedded resource above."))
        case "test_prompt_with_image":
            image = {"type": "image", "data": PNG, "mimeType": "image/png"}
            return _messages(image, _text("Please analyze the image above."))
        case "test_input_required_result_prompt":
            answer = turn.said("user_context")
            if answer is None:
                question = form("What context should the prompt use?", {"context": {"type": "string"}})
                return Ask({"user_context": question})
            return _messages(_text(f"Use this context: {(answer.get('content') or {}).get('context')}"))
        case _:
            return None


def _text(words: str) -> Json:
    return {"type": "text", "text": words}


def _messages(*contents: Json) -> Json:
    return {"messages": [{"role": "user", "content": content} for content in contents]}


def complete(value: str) -> list[str]:
    """What an argument that begins so may be."""
    return [word for word in STARTS if word.startswith(value)]

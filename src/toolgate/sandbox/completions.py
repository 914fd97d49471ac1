"""The question that code in the sandbox puts to a language model (`context.llm.complete`), as arguments of `ask_model`."""

from typing import Any

from toolgate.errors import quoted
from toolgate.sandbox.worker_protocol import Refusal

OPTIONS = {"prompt": "prompt", "messages": "messages", "system": "system", "maxTokens": "max_tokens"}
ROLES = ("system", "user", "assistant")
FORM = "complete(prompt or messages, {system, maxTokens}): messages are objects with role and content"


def completion_request(asked: Any, options: Any = None) -> dict[str, Any]:
    """`complete(prompt)`, `complete(messages)`, each perhaps with options, or all of it in one object. Raises Refusal."""
    found: dict[str, Any] = {}
    for name, value in [*_named(asked), *_named({} if options is None else options)]:
        known = OPTIONS.get(name, name)
        if known not in OPTIONS.values():
            raise Refusal("INVALID_INPUT", f"llm.complete has no option {quoted(name)}. {FORM}.")
        if value is not None:
            found[known] = value
    messages = _messages(found.get("messages", []))
    if "system" in found:
        messages.insert(0, {"role": "system", "text": _text(found["system"])})
    if "prompt" in found:
        messages.append({"role": "user", "text": _text(found["prompt"])})
    if not messages:
        raise Refusal("INVALID_INPUT", f"llm.complete is given nothing to ask. {FORM}.")
    return {"messages": messages} | ({"max_tokens": found["max_tokens"]} if "max_tokens" in found else {})


def _named(given: Any) -> list[tuple[str, Any]]:
    if isinstance(given, dict):
        return list(given.items())
    return [("prompt" if isinstance(given, str) else "messages", given)]


def _messages(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        raise Refusal("INVALID_INPUT", f"The messages of llm.complete are no list. {FORM}.")
    found = []
    for message in given:
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ROLES:
            raise Refusal("INVALID_INPUT", f"A message of llm.complete has no role of {', '.join(ROLES)}. {FORM}.")
        found.append({"role": role, "text": _text(message.get("content", message.get("text")))})
    return found


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise Refusal("INVALID_INPUT", f"What llm.complete is given is no text. {FORM}.")
    return given

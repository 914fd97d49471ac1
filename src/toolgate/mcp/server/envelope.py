"""Checks the envelope of a JSON-RPC message, with the protocol's own error codes.

The SDK's models answer some faults with a dump of the validator, and take a request whose id is an object for a
notification, which nobody answers. Used only for what the fast path did not take.
"""

from typing import Any, NamedTuple

import orjson

from toolgate.jsontext import MAX_JSON_VALUES, holds_too_much

PARSE_ERROR, INVALID_REQUEST = -32700, -32600


class EnvelopeFault(NamedTuple):
    """A JSON-RPC error. `id`: of the request, if it is known."""

    code: int
    message: str
    id: str | int | None = None

    def body(self) -> bytes:
        return orjson.dumps({"jsonrpc": "2.0", "id": self.id, "error": {"code": self.code, "message": self.message}})


def find_envelope_fault(text: bytes) -> EnvelopeFault | None:
    if holds_too_much(text):
        return EnvelopeFault(INVALID_REQUEST, f"Invalid Request: the message holds more than {MAX_JSON_VALUES:,} values")
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError:
        return EnvelopeFault(PARSE_ERROR, "Parse error")
    if isinstance(message, list):
        return EnvelopeFault(INVALID_REQUEST, "Invalid Request: batches are not supported")
    if not isinstance(message, dict):
        return EnvelopeFault(INVALID_REQUEST, "Invalid Request: a message is a JSON object")
    id = message.get("id")
    known = id if isinstance(id, str | int) and not isinstance(id, bool) else None
    wrong = _wrong(message, known is not None)
    return None if wrong is None else EnvelopeFault(INVALID_REQUEST, f"Invalid Request: {wrong}", known)


def _wrong(message: dict[str, Any], has_id: bool) -> str | None:
    if message.get("jsonrpc") != "2.0":
        return 'jsonrpc must be "2.0"'
    if "method" not in message:
        return _wrong_answer(message, has_id)
    if "id" in message and not has_id:
        return "the id must be text or a whole number"
    if not isinstance(message["method"], str):
        return "the method must be text"
    if not isinstance(message.get("params"), dict | None):
        return "params must be an object"
    if "result" in message or "error" in message:
        return "a request has neither result nor error"
    return None


def _wrong_answer(message: dict[str, Any], has_id: bool) -> str | None:
    if ("result" in message) == ("error" in message):
        return "there is no method"
    if "result" in message:
        return None if has_id and isinstance(message["result"], dict) else "a result is an object, and has an id"
    error = message["error"]
    right = isinstance(error, dict) and type(error.get("code")) is int and isinstance(error.get("message"), str)
    named = has_id or message.get("id", "") is None
    return None if right and named else "an error has a code, a message and an id"

"""Encodes and decodes JSON-RPC messages as lines: decodes leniently, since many servers are not strict."""

import json
import re
from contextlib import suppress
from typing import Any

import orjson
from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from toolgate.jsontext import MAX_JSON_VALUES, holds_too_much
from toolgate.mcp.client.errors import INTERNAL_ERROR, PARSE_ERROR

MAX_BATCH_MESSAGES, MAX_BATCH_BYTES = 100, 1_048_576
"""The limits of a batch. We send none, so no server has to answer with many."""

_ESCAPED = re.compile(
    rb"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(?P<half>u[dD][89a-fA-F][\da-fA-F]{2})|.)", re.DOTALL
)
"""In JSON: a surrogate pair, a lone surrogate, or any other escape."""
_ID = rb'"id"\s*:\s*(\d{1,15}|"[^"\\]{1,64}")'
_NAMED = (
    re.compile(rb'\A\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID),
    re.compile(rb",\s*" + _ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\Z'),
)
"""Where an id is sure to be that of the message itself: at its very beginning, or its end."""
_NEAR = 200


def decode(line: bytes) -> list[JSONRPCMessage]:
    """The messages of a line: one, a batch as in protocol 2025-03-26, or none if it is no JSON-RPC."""
    several = line.startswith(b"[")
    if several and len(line) > MAX_BATCH_BYTES:
        return []
    if holds_too_much(line):
        return _no_answer(line, f"The server's answer holds more than {MAX_JSON_VALUES} values.")
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _unreadable(line)
    if several and len(value) > MAX_BATCH_MESSAGES:
        return []
    found = [_message(one) for one in (value if several else [value])]
    return [one for one in found if one is not None]


def _unreadable(line: bytes) -> list[JSONRPCMessage]:
    """Decodes what is almost JSON: lone surrogates, NaN, invalid UTF-8. A response that can't be decoded becomes an error at
    once."""
    if not line.startswith(b"{"):
        return []
    with suppress(ValueError, RecursionError):
        text = _ESCAPED.sub(_whole, line).decode("utf-8", "replace")
        message = _message(json.loads(text, parse_constant=lambda _: None))
        return [message] if message is not None else []
    return _no_answer(line, "The server's response is not valid JSON.")


def _no_answer(line: bytes, words: str) -> list[JSONRPCMessage]:
    """An error in place of a response that is not decoded, if its id can be found."""
    first, last = _NAMED
    named = first.search(line[:_NEAR]) or last.search(line[-_NEAR:])
    if named is None or not (b'"result"' in line or b'"error"' in line):
        return []
    error = ErrorData(code=PARSE_ERROR, message=words)
    return [JSONRPCError.model_construct(jsonrpc="2.0", id=orjson.loads(named[1]), error=error)]


def _whole(escaped: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if escaped["half"] else escaped[0]


def _message(value: Any) -> JSONRPCMessage | None:
    """Builds a message leniently: each field only has to be of the type that its readers rely on."""
    if not isinstance(value, dict):
        return None
    number: Any = value.get("id")
    named = isinstance(number, str | int) and not isinstance(number, bool)
    if isinstance(value.get("method"), str):
        params = value.get("params")
        params = params if isinstance(params, dict) else None
        if named:
            return JSONRPCRequest.model_construct(jsonrpc="2.0", id=number, method=value["method"], params=params)
        return JSONRPCNotification.model_construct(jsonrpc="2.0", method=value["method"], params=params)
    if not named:
        return None
    if isinstance(value.get("error"), dict):
        return JSONRPCError.model_construct(jsonrpc="2.0", id=number, error=_error(value["error"]))
    if isinstance(value.get("result"), dict):
        return JSONRPCResponse.model_construct(jsonrpc="2.0", id=number, result=value["result"])
    words = "The server's response has neither a valid result nor a valid error."
    return JSONRPCError.model_construct(jsonrpc="2.0", id=number, error=ErrorData(code=INTERNAL_ERROR, message=words))


def _error(value: dict[str, Any]) -> ErrorData:
    code, message = value.get("code"), value.get("message")
    return ErrorData.model_construct(
        code=code if isinstance(code, int) and not isinstance(code, bool) else INTERNAL_ERROR,
        message=message if isinstance(message, str) else "The server's error has no message.",
        data=value.get("data"),
    )


def encode(message: JSONRPCMessage) -> bytes:
    plain: dict[str, Any] = {"jsonrpc": "2.0"}
    if not isinstance(message, JSONRPCNotification):
        plain["id"] = message.id
    if isinstance(message, JSONRPCRequest | JSONRPCNotification):
        plain["method"] = message.method
        if message.params is not None:
            plain["params"] = message.params
    elif isinstance(message, JSONRPCResponse):
        plain["result"] = message.result
    else:
        plain["error"] = message.error.model_dump(mode="json", exclude_unset=True)
    try:
        return orjson.dumps(plain, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # whole numbers beyond 64 bits, halves of characters
        return json.dumps(plain, separators=(",", ":")).encode() + b"\n"

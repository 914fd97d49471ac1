"""The W3C trace context that a client sent with a call: in the `_meta` of its message, or in the headers of its request."""

from collections.abc import Iterable, Mapping
from typing import Any

TRACE_KEYS = ("traceparent", "tracestate")
TRACE_MARK = b'"traceparent"'
"""In the bytes of a `_meta` that has one."""
MAX_TRACE_CHARS = 1_024


def trace_context(headers: Iterable[tuple[bytes, bytes]], meta: Mapping[str, Any]) -> dict[str, str] | None:
    """The context of a call: that of the message before that of the request. None: there is none."""
    found = meta if "traceparent" in meta else _decoded(headers)
    texts = {key: found[key] for key in TRACE_KEYS if isinstance(found.get(key), str) and len(found[key]) <= MAX_TRACE_CHARS}
    return texts if "traceparent" in texts else None


def _decoded(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    names = {key.encode(): key for key in TRACE_KEYS}
    return {names[name]: value.decode("latin-1") for name, value in headers if name in names}

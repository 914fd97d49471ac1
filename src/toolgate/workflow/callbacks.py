"""Callbacks: how a workflow that is not waited for reports its end, and how it is known that it was the workflow.

Each invocation has a key of its own, which goes to n8n with the request that starts it and is derived from a key of the
installation: whoever has one can report the end of that invocation and of no other. The callback is signed with it, over
its time stamp and its body. The first one that is valid counts; the store refuses every other.
"""

import hmac
import re
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import orjson

from toolgate.errors import ToolgateError
from toolgate.jsontext import holds_too_much, is_deeper
from toolgate.network.service_answers import told
from toolgate.store import keys
from toolgate.store.database import Store
from toolgate.workflow.client import MAX_EXECUTION_ID_CHARS

PURPOSE = "workflow-callbacks"
WINDOW_SECONDS = 300.0
"""The most seconds that a time stamp may be away from our clock."""
MAX_OUTPUT_DEPTH = 100
TIMESTAMP_HEADER, SIGNATURE_HEADER = "x-toolgate-timestamp", "x-toolgate-signature"
_TIMESTAMP = re.compile(r"[0-9]{1,12}\Z")
_SIGNATURE = re.compile(r"sha256=([0-9a-f]{64})\Z")

Refusal = Literal["unsigned", "unknown", "repeated", "malformed"]


class CallbackRefused(ToolgateError):
    """A callback is not taken."""

    def __init__(self, refusal: Refusal, message: str, *, suggestion: str | None = None) -> None:
        super().__init__(message, suggestion=suggestion)
        self.refusal = refusal


class Callback(NamedTuple):
    """The report of a workflow."""

    success: bool
    output: Any = None
    message: str | None = None
    """Of its error."""
    execution_id: str | None = None


class CallbackKeys:
    """The keys by which callbacks are signed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._master: bytes | None = None

    async def of(self, id: str) -> str:
        """The key of an invocation. Of every id there is one, whether or not there is such an invocation."""
        if self._master is None:
            self._master = bytes.fromhex(await self._store.transact(keys.key_for(PURPOSE)))
        return hmac.new(self._master, id.encode("utf-8", "surrogatepass"), sha256).hexdigest()


class Proof(NamedTuple):
    """The time stamp and the signature of a callback, as it came with them."""

    timestamp: str
    signature: str


def check_time(proof: Proof, now: float) -> None:
    """Refuses a callback that can't be valid, before its body is read."""
    if _TIMESTAMP.match(proof.timestamp) is None or _SIGNATURE.match(proof.signature) is None:
        raise _unsigned()
    if abs(now - int(proof.timestamp)) > WINDOW_SECONDS:
        raise _unsigned()


def check_signature(key: str, proof: Proof, body: bytes) -> None:
    """Refuses a callback whose signature is wrong."""
    expected = signature(key, proof.timestamp, body)
    if not hmac.compare_digest(expected.encode(), proof.signature.encode()):
        raise _unsigned()


def signature(key: str, timestamp: str, body: bytes) -> str:
    """The signature of a callback."""
    return "sha256=" + hmac.new(key.encode(), timestamp.encode() + b"." + body, sha256).hexdigest()


def parse(body: bytes) -> Callback:
    """Reads the report of a callback. Its output may be anything; its error is shortened to a message."""
    if holds_too_much(body):
        raise _malformed("it holds more values than are read")
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise _malformed("it is not valid JSON") from None
    if not isinstance(said, dict) or not isinstance(said.get("success"), bool):
        raise _malformed("it must be an object whose `success` is true or false")
    if is_deeper(said, MAX_OUTPUT_DEPTH):
        raise _malformed(f"it is nested more than {MAX_OUTPUT_DEPTH} levels deep")
    execution_id = told(said.get("executionId"))
    if execution_id is not None and len(execution_id) > MAX_EXECUTION_ID_CHARS:
        execution_id = None
    error = said.get("error")
    message = told(error.get("message") if isinstance(error, dict) else error)
    return Callback(said["success"], said.get("output"), message, execution_id)


def _unsigned() -> CallbackRefused:
    return CallbackRefused("unsigned", "The signature or the time stamp is missing, wrong or too old.")


def _malformed(why: str) -> CallbackRefused:
    return CallbackRefused("malformed", f"The callback cannot be read: {why}.")

"""The two messages: a request for a call, and the result of one."""

import re
from typing import Annotated, Any

import msgspec
import orjson
from msgspec import Meta

from toolgate.errors import CallError, call_error, described
from toolgate.jsontext import MAX_JSON_VALUES, holds_too_much
from toolgate.model import Actor, Call, ErrorInfo, Outcome, new_id

DOOR = "events"
REQUEST_ID = "toolgate-request"
"""The header of a result that names its request, so that whoever waits for another need not read it."""
REASON = "toolgate-reason"
"""The header of a message that was put aside."""
MAX_LIFETIME_SECONDS = 86_400.0
"""The farthest that a deadline may be ahead: within it what came of a message is remembered."""
ID = r"\A[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z"
CLEAN = r"\A[^\x00-\x1f\x7f]+\Z"
"""Names that every database and header can hold: a message that can be neither kept nor answered would come for ever."""

Name = Annotated[str, Meta(min_length=1, max_length=256, pattern=CLEAN)]


class EventRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request, as its sender wrote it."""

    id: Annotated[str, Meta(pattern=ID)]
    tenant: Name
    user: Name
    tool: Name
    deadline: Annotated[float, Meta(ge=0)]
    """Unix time in seconds: after it nothing is run."""
    arguments: dict[str, Any] = {}
    persona: Name | None = None
    session: Name | None = None
    idempotency_key: Name | None = None
    """Without it, the id: a message that is delivered twice has one effect."""
    scopes: tuple[Name, ...] = ()
    """Taken only from a key that governs its calls."""

    @property
    def order_key(self) -> str:
        """Messages of one session keep their order."""
        return self.id if self.session is None else f"{self.tenant}/{self.session}"

    def actor(self, scopes: tuple[str, ...]) -> Actor:
        """The actor that calls. Raises ValueError for a name that no record should hold."""
        return Actor(self.tenant, self.persona, self.user, scopes)

    def call(self, actor: Actor, timeout: float, *, governed: bool) -> Call:
        return Call(
            new_id(), self.tool, self.arguments, actor, self.session, self.idempotency_key or self.id, timeout=timeout,
            door=DOOR, request_id=self.id, governed=governed, is_counted=governed,
        )  # fmt: skip


class _Identified(msgspec.Struct):
    """The part of a request that is enough to answer it."""

    id: Annotated[str, Meta(pattern=ID)]


class MalformedRequest(ValueError):
    """A request that can't be read; with its id, if that can be."""

    def __init__(self, words: str, id: str | None) -> None:
        super().__init__(words)
        self.id = id


def read_request(body: bytes) -> EventRequest:
    """Reads a request whose signature was checked. Raises MalformedRequest."""
    if holds_too_much(body):
        raise MalformedRequest(f"it holds more than {MAX_JSON_VALUES:,} values", None)
    try:
        return msgspec.json.decode(body, type=EventRequest)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        words = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise MalformedRequest(words, _id_of(body)) from None


def _id_of(body: bytes) -> str | None:
    try:
        return msgspec.json.decode(body, type=_Identified).id
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def request_body(request: dict[str, Any], canonical: bytes) -> bytes:
    """A request as it is sent, with its arguments as they were checked."""
    return orjson.dumps({**request, "arguments": orjson.Fragment(canonical)})


# -- results


class CallResult(msgspec.Struct, frozen=True):
    """A result: the request that it answers, and what came of the call."""

    id: str
    outcome: Outcome
    final: bool = True
    """False: the call waits for a person, and another result will follow."""


def result_body(id: str, tenant: str | None, session: str | None, outcome: Outcome) -> bytes:
    told = {"id": id, "tenant": tenant, "session": session, "final": outcome.pending is None, "outcome": outcome.to_dict()}
    return orjson.dumps(told)


def bounded_result(id: str, tenant: str | None, session: str | None, outcome: Outcome, max_bytes: int) -> bytes:
    """The body of a result that is not too long for the stream, whatever a call gave."""
    try:
        body = result_body(id, tenant, session, outcome)
    except TypeError as error:  # a hook made the output something that JSON can't hold
        broken = call_error("OUTPUT_INVALID", f"The output cannot be sent: {described(error)}.")
        return result_body(id, tenant, session, refused(outcome.tool, broken))
    return body if len(body) <= max_bytes else shortened(body)


def shortened(body: bytes) -> bytes:
    """In place of a result that is too long for the stream, one that says so."""
    told = orjson.loads(body)
    error = call_error(
        "OUTPUT_INVALID",
        f"The call was made, but its result has {len(body):,} bytes, too many for the event stream.",
        suggestion="Raise events.message_bytes and the limit of the stream, or have the tool give less.",
    )
    return result_body(told["id"], told["tenant"], told["session"], refused(told["outcome"]["tool"], error))


def read_result(body: bytes) -> CallResult | None:
    """Reads a result whose signature was checked; None: it is none."""
    try:
        return msgspec.json.decode(body, type=CallResult)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def refused(tool: str, error: CallError) -> Outcome:
    """The outcome of a request that never became a call."""
    told = ErrorInfo(error.code, error.message, error.retryable, error.suggestion, error.details)
    return Outcome(new_id(), tool, error.status, error=told)


def invalid(words: str) -> CallError:
    return call_error(
        "VALIDATION_ERROR", f"The request is refused: {words}.", suggestion="docs/howto/calls-over-events.md has its fields."
    )


def short_reason(words: str) -> str:
    """A reason fit for a header."""
    return re.sub(r"[^\x20-\x7e]+", "?", words)[:500]

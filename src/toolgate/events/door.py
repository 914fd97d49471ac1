"""The door of the event stream: a request comes in, a call is made, its result goes out.

A message that has no valid signature, is too long, or cannot be read so far as to answer it, is put aside with the reason
and never run: whoever can write to the topic can't choose a tenant. What came of every other one is kept under its id before
the result is published, so that the same message, delivered again or sent again, is answered again and not run again.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from toolgate.errors import CallError, StoreError, call_error, described
from toolgate.events.messages import (
    MAX_LIFETIME_SECONDS,
    REASON,
    REQUEST_ID,
    EventRequest,
    MalformedRequest,
    invalid,
    read_request,
    refused,
    result_body,
    short_reason,
)
from toolgate.events.signatures import SIGNATURE, BadSignature, SigningKeys
from toolgate.events.stream import REJECTED, Consumer, DeliveredEvent, EventMessage, EventStream, StreamError
from toolgate.model import Actor, Invoke, Outcome
from toolgate.settings.events import EVERY_TENANT, EventSettings
from toolgate.store import events as table
from toolgate.store.database import Store

MAX_KEPT_BYTES = 65_536
"""Bytes of a message that is too long, when it is put aside."""
MAX_HEADER_CHARS = 1_000
MAX_HEADERS = 20
LAST_SECONDS = 5.0
"""The time to learn what came of a call that was made before its deadline, after it."""

logger = logging.getLogger("toolgate.events")


@dataclass(frozen=True)
class CallsHere:
    """What the door asks the App for."""

    invoke: Invoke
    is_settled: Callable[[Actor, str], Awaitable[bool]]
    """Tells whether a call with an idempotency key was made, so that calling again only gives what came of it."""
    now: Callable[[], datetime]


class RequestDoor:
    """Takes requests, one session's in order, and answers each."""

    def __init__(
        self,
        stream: EventStream,
        settings: EventSettings,
        keys: SigningKeys,
        store: Store,
        calls: CallsHere,
        lifetime: float,
    ) -> None:
        """`lifetime`: the farthest that a deadline may be ahead, in seconds."""
        self._stream, self._settings, self._keys, self._store, self._calls = stream, settings, keys, store, calls
        self._lifetime = min(lifetime, MAX_LIFETIME_SECONDS)
        self._consumer: Consumer | None = None

    async def start(self) -> None:
        settings = self._settings
        self._consumer = await self._stream.consume(settings.requests, settings.group, self.handle, settings.concurrency)

    async def stop(self, grace: float) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop(grace)

    async def handle(self, delivery: DeliveredEvent) -> None:
        """Answers a message or puts it aside. Raises where neither could be done: then it comes again."""
        try:
            await self._handle(delivery.message)
        except (StreamError, StoreError) as error:
            logger.warning("a message of %s waits: %s", self._settings.requests, error.message)
            raise
        except Exception as error:
            logger.exception("a message of %s could not be handled", self._settings.requests)
            if delivery.attempt < self._settings.max_deliver:
                raise
            await self._put_aside(delivery.message, f"It failed {delivery.attempt} times: {type(error).__name__}.")

    async def _handle(self, message: EventMessage) -> None:
        if len(message.body) > self._settings.message_bytes:
            words = f"It has {len(message.body):,} bytes, more than the {self._settings.message_bytes:,} of"
            await self._put_aside(message, f"{words} events.message_bytes.")
            return
        try:
            key = self._keys.verify(message.headers.get(SIGNATURE), "request", message.body)
        except BadSignature as error:
            await self._put_aside(message, error.message)
            return
        try:
            request = read_request(message.body)
        except MalformedRequest as error:
            if error.id is None:
                await self._put_aside(message, f"It is not a request: {error}.")
            else:
                await self._publish(key, error.id, error.id, _answer(error.id, None, refused("", invalid(str(error)))))
            return
        await self._answer(key, request, sha256(message.body).hexdigest())

    async def _answer(self, key: str, request: EventRequest, digest: str) -> None:
        """Answers a request: as before if it is known, or by what the call comes to."""
        known = await self._store.read(table.find(key, request.id))
        if known is not None and known.digest == digest:
            if known.result is not None:
                await self._publish(key, request.id, known.order_key, known.result.encode())
            return  # or it waits, which was said
        try:
            if known is not None:
                raise call_error("IDEMPOTENCY_CONFLICT", f"Another request had the id {request.id}; nothing was run.")
            outcome = await self._call(key, request)
        except CallError as error:  # it never became a call, so nothing has to be remembered
            refusal = _answer(request.id, request, refused(request.tool, error))
            await self._publish(key, request.id, request.order_key, refusal)
            return
        await self._keep(key, request, digest, outcome)

    async def _call(self, key: str, request: EventRequest) -> Outcome:
        """Makes the call. Raises CallError where none is made."""
        settings, now = self._keys.settings(key), self._calls.now().timestamp()
        if EVERY_TENANT not in settings.tenants and request.tenant not in settings.tenants:
            logger.warning("a request is refused: the key %s does not speak for the tenant that it names", key)
            raise call_error("PERMISSION_DENIED", f"The key {key!r} may not make calls for tenant {request.tenant!r}.")
        try:
            actor = request.actor(request.scopes if settings.governs else settings.scopes)
        except ValueError as error:
            raise invalid(str(error)) from None
        left = request.deadline - now
        if not math.isfinite(left) or left > self._lifetime:
            raise invalid(f"its deadline must be Unix time in seconds, at most {self._lifetime:g} s ahead")
        if left <= 0 and not await self._calls.is_settled(actor, request.idempotency_key or request.id):
            raise call_error(
                "TIMEOUT", "The deadline of the request was over before its call began; nothing was run.",
                suggestion="Send it again under a new id, with a later deadline.",
            )  # fmt: skip
        return await self._calls.invoke(request.call(actor, max(left, LAST_SECONDS), governed=settings.governs))

    async def _keep(self, key: str, request: EventRequest, digest: str, outcome: Outcome) -> None:
        """Remembers what came of a call, then tells it; that it waits is told first, since it is found out again if
        this process dies in between."""
        body = _answer(request.id, request, outcome)
        if len(body) > self._settings.message_bytes:
            body = _answer(request.id, request, _too_long(outcome, len(body)))
        pending = outcome.pending
        row = table.EventRow(
            key, request.id, digest, request.tenant, request.session, request.order_key,
            None if pending is None else pending.kind, None if pending is None else pending.id,
            None if pending is not None else body.decode(), 0 if pending is not None else 1,
            datetime.fromtimestamp(request.deadline, UTC), self._calls.now(),
        )  # fmt: skip
        if pending is not None:
            await self._publish(key, request.id, request.order_key, body)
            await self._store.transact(table.keep(row))
            return
        await self._store.transact(table.keep(row))
        await self._publish(key, request.id, request.order_key, body)

    async def _publish(self, key: str, id: str, order_key: str, body: bytes) -> None:
        headers = {SIGNATURE: self._keys.sign(key, "result", body), REQUEST_ID: id}
        unique = f"{key}:{id}:{sha256(body).hexdigest()[:16]}"
        await self._stream.publish(self._settings.results, EventMessage(body, order_key, headers, unique))

    async def publish_final(self, row: table.EventRow, body: bytes) -> None:
        """Publishes the result of a call that waited."""
        await self._publish(row.key_name, row.id, row.order_key, body)

    async def _put_aside(self, message: EventMessage, reason: str) -> None:
        """Publishes a message, with the reason, where a person can look at it and send it again."""
        logger.warning("a message of %s is put aside: %s", self._settings.requests, short_reason(reason))
        is_long = len(message.body) > self._settings.message_bytes
        kept = [(name, value) for name, value in message.headers.items() if len(name) + len(value) <= MAX_HEADER_CHARS]
        headers = {name: short_reason(value) for name, value in kept[:MAX_HEADERS]}
        headers[REASON] = short_reason(reason)
        body = message.body[:MAX_KEPT_BYTES] if is_long else message.body
        unique = f"{sha256(message.body).hexdigest()}:{sha256(repr(sorted(kept)).encode()).hexdigest()[:16]}"
        await self._stream.publish(self._settings.requests + REJECTED, EventMessage(body, message.key, headers, unique))

    async def prune(self) -> None:
        """Forgets what came of messages that can't be run any more, whoever sends them again."""
        before = self._calls.now() - timedelta(seconds=MAX_LIFETIME_SECONDS)
        await self._store.transact(table.prune(before))


def _answer(id: str, request: EventRequest | None, outcome: Outcome) -> bytes:
    """The body of a result."""
    if request is None:
        return result_body(id, None, None, outcome)
    try:
        return result_body(id, request.tenant, request.session, outcome)
    except TypeError as error:  # a hook made the output something that JSON can't hold
        broken = call_error("OUTPUT_INVALID", f"The output cannot be sent: {described(error)}.")
        return result_body(id, request.tenant, request.session, refused(outcome.tool, broken))


def _too_long(outcome: Outcome, size: int) -> Outcome:
    return refused(
        outcome.tool,
        call_error(
            "OUTPUT_INVALID",
            f"The call was made, but its result has {size:,} bytes, too many for the event stream.",
            suggestion="Raise events.message_bytes and the limit of the stream, or have the tool give less.",
        ),
    )

"""The door of the event stream: a request comes in, a call is made, its result goes out.

A message that has no valid signature, is too long, or cannot be read so far as to answer it, is put aside with the reason
and never run: whoever can write to the topic can't choose a tenant. What came of every other one is kept under its id before
the result is published, so that the same message, delivered again or sent again, is answered again and not run again.
"""

import logging
import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from toolgate.errors import CallError, StoreError, call_error
from toolgate.events.messages import (
    MAX_LIFETIME_SECONDS,
    REASON,
    REQUEST_ID,
    EventRequest,
    MalformedRequest,
    bounded_result,
    invalid,
    read_request,
    refused,
    result_body,
    short_reason,
    shortened,
)
from toolgate.events.signatures import SIGNATURE, BadSignature, SigningKeys
from toolgate.events.stream import REJECTED, Consumer, DeliveredEvent, EventMessage, EventStream, MessageTooLong, StreamError
from toolgate.model import Actor, Invoke, Outcome
from toolgate.settings.events import EVERY_TENANT, EventSettings
from toolgate.store import events as table
from toolgate.store.database import Store

MAX_KEPT_BYTES = 65_536
"""Bytes of a message that is too long, when it is put aside."""
MAX_SURE_BYTES = 10_000
"""Bytes of a message that every stream takes."""
MAX_HEADER_CHARS = 1_000
HEADER_NAME = re.compile(r"(?!nats-)[a-z0-9_.-]{1,100}")
"""Headers that are kept when a message is put aside: others the stream would refuse, or obey."""
MAX_HEADERS = 20
LAST_SECONDS = 5.0
"""The time to learn what came of a call that was made before its deadline, after it."""

logger = logging.getLogger("toolgate.events")


@dataclass(frozen=True)
class CallsHere:
    """The part of an App that the door needs."""

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
                await self._publish(
                    key, error.id, error.id, result_body(error.id, None, None, refused("", invalid(str(error))))
                )
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
            refusal = self.result(request.id, request.tenant, request.session, refused(request.tool, error))
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
        body = self.result(request.id, request.tenant, request.session, outcome)
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

    def result(self, id: str, tenant: str, session: str | None, outcome: Outcome) -> bytes:
        """The body of a result."""
        return bounded_result(id, tenant, session, outcome, self._settings.message_bytes)

    async def _publish(self, key: str, id: str, order_key: str, body: bytes) -> None:
        try:
            await self._publish_once(key, id, order_key, body)
        except MessageTooLong:
            await self._publish_once(key, id, order_key, shortened(body))

    async def _publish_once(self, key: str, id: str, order_key: str, body: bytes) -> None:
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
        named = [(name, value) for name, value in message.headers.items() if HEADER_NAME.fullmatch(name)]
        kept = [(name, value) for name, value in named if len(name) + len(value) <= MAX_HEADER_CHARS]
        headers = {name: short_reason(value) for name, value in kept[:MAX_HEADERS]}
        headers[REASON] = short_reason(reason)
        body = message.body[:MAX_KEPT_BYTES] if is_long else message.body
        unique = f"{sha256(message.body).hexdigest()}:{sha256(repr(sorted(kept)).encode()).hexdigest()[:16]}"
        topic, key = self._settings.requests + REJECTED, message.key[:MAX_HEADER_CHARS]
        try:
            await self._stream.publish(topic, EventMessage(body, key, headers, unique))
        except MessageTooLong:
            short = {REASON: headers[REASON]}
            await self._stream.publish(topic, EventMessage(body[:MAX_SURE_BYTES], key, short, unique))

    async def prune(self) -> None:
        """Forgets what came of messages that can't be run any more, whoever sends them again."""
        before = self._calls.now() - timedelta(seconds=MAX_LIFETIME_SECONDS)
        await self._store.transact(table.prune(before))

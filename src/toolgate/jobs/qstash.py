"""QStash, a queue over HTTP that calls back: takes jobs that it brings, and has it bring jobs when they are due.

QStash signs what it brings with keys that only it and the operator have; whose a job is, a setting says for its type.

A job that is enqueued by way of QStash is kept here like any other. QStash is handed its id, never its payload, and brings
that back when the job is due. If it does not, the job is run here a while later.

The id of a message is in a header that the signature does not cover. So each signature brings one message id only: with a
recorded request and another id, a job could be repeated.
"""

import asyncio
import base64
import hmac
import json
import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from importlib import import_module
from typing import Any, NamedTuple

import orjson

from toolgate.errors import Failed, ToolgateError
from toolgate.extras import is_installed, not_installed, require
from toolgate.jobs.job import Job
from toolgate.jobs.queue import JobQueue
from toolgate.jobs.tool_calls import TYPE as EXECUTE_TOOL
from toolgate.jsontext import MAX_JSON_DEPTH, holds_too_much, is_deeper
from toolgate.model import Actor
from toolgate.settings.qstash import QStashSettings
from toolgate.store import seen_signatures
from toolgate.store.database import Store
from toolgate.store.keys import key_for
from toolgate.threads import to_thread

PURPOSE = "qstash.messages"
OWN_FIELDS = frozenset({"job", "toolgate_signature"})
"""The body of a message that Toolgate had QStash bring: the id of a job, and Toolgate's own signature under it. It stands in
the body since QStash's signature covers nothing else: what could be stripped on the way would change whose message it is."""
GRACE_SECONDS = 600.0
"""The time after which a job that is due is run here if QStash has not brought it."""
KEY_PREFIX = "qstash:"
PUBLISH_SECONDS = 15.0
PUBLISH_RETRY: Any = {"retries": 2, "backoff": lambda tried: 200.0 * 2**tried}
"""The attempts to hand a message over before QStash is taken to be away, and the milliseconds between."""
MAX_SIGNATURE_CHARS = 8_192
REFUSED = "qstash.refused"
_MESSAGE_ID = re.compile(r"[\x21-\x7e]{1,200}")
_JOB_TYPE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FAR = datetime(9999, 1, 1, tzinfo=UTC)

Record = Callable[[str, Actor, str, dict[str, Any]], Awaitable[None]]
logger = logging.getLogger("toolgate.jobs")


class NotSigned(ToolgateError):
    """A message that QStash did not sign for this address, or whose signature is over or was used before."""


class NotTaken(ToolgateError):
    """A signed message that can't become a job, now or later."""


class NotReady(ToolgateError):
    """A message that can't be taken now."""


class QStashMessage(NamedTuple):
    """A message as it came in."""

    type: str
    body: bytes
    signature: str | None
    message_id: str | None


class QStash:
    """The way of jobs to QStash and back."""

    def __init__(
        self,
        store: Store,
        settings: QStashSettings,
        queue: JobQueue,
        *,
        find_secret: Callable[[str], str | None],
        record: Record,
    ) -> None:
        self._store = store
        self._settings = settings
        self._queue = queue
        self._find_secret = find_secret
        self._record = record
        self._own_key: bytes | None = None

    @property
    def is_open(self) -> bool:
        """True if messages are taken at all."""
        return self._settings.url is not None

    def sends(self, type: str) -> bool:  # noqa: A002 - as handlers name it
        """Tells whether jobs of a type are handed to QStash."""
        return type in self._settings.send

    # -- jobs that it brings

    async def receive(self, delivery: QStashMessage) -> Job:
        """Queues the job that a message brings; the one that it brought before, if it comes again. Raises NotSigned,
        NotTaken, NotReady, Failed for what the queue refuses, and StoreError."""
        digest, expires_at = await to_thread(self._verified, delivery)  # which loads the SDK, and hashes what may be large
        id = delivery.message_id or ""
        if not _MESSAGE_ID.fullmatch(id):
            raise NotTaken("The message has no valid Upstash-Message-Id.")
        if not await self._store.transact(seen_signatures.take(digest, id, expires_at, self._queue.clock())):
            raise NotSigned("This signature has brought another message before.")
        payload = await to_thread(_parsed, delivery.body)
        if isinstance(payload, dict) and payload.keys() == OWN_FIELDS:
            return await self._brought(delivery.type, str(payload["job"]), str(payload["toolgate_signature"]))
        actor = self._actor(delivery.type)
        try:
            if isinstance(payload, str):
                raise Failed("VALIDATION_ERROR", payload)
            return await self._queue.enqueue(delivery.type, payload, actor=actor, key=KEY_PREFIX + id)
        except Failed as error:
            if error.code == "VALIDATION_ERROR":
                await self._note(delivery, actor, error.message)
            raise

    def _actor(self, type: str) -> Actor:  # noqa: A002
        """The actor whose the jobs of a type are. Raises NotTaken if the settings do not say."""
        whose = self._settings.take.get(type)
        if whose is None or type == EXECUTE_TOOL:  # calls of tools come in by doors that ask what governs them
            logger.warning("a job of type %s came from QStash, which the setting qstash.take does not allow", type)
            raise NotTaken("Jobs of this type are not taken from QStash.")
        return Actor(whose.tenant, whose.persona, whose.user)

    async def _brought(self, type: str, id: str, signature: str) -> Job:  # noqa: A002
        """The job whose id Toolgate had QStash bring; it is due now."""
        if not hmac.compare_digest(signature.encode(errors="replace"), (await self._sign(type, id)).encode()):
            raise NotSigned("The message says that Toolgate sent it, but it did not.")
        job = await self._queue.hasten(id)
        if job is None:
            raise NotTaken("There is no such job any more.")
        return job

    async def _note(self, delivery: QStashMessage, actor: Actor, why: str) -> None:
        """Puts a signed message that was refused where a person sees it; QStash keeps it in its dead letter queue."""
        logger.warning("the job %s of QStash's message %s was refused: %s", delivery.type, delivery.message_id, why)
        await self._record(REFUSED, actor, "", {"type": delivery.type, "message": delivery.message_id, "why": why[:1_000]})

    def _verified(self, delivery: QStashMessage) -> tuple[str, datetime]:
        """A digest of the signature of a message, and when that expires. Raises NotSigned."""
        current = self._find_secret(self._settings.signing_key)
        if not current or self._settings.url is None:
            logger.error("the secret %s is not set: messages of QStash are refused", self._settings.signing_key)
            raise NotReady("Messages of QStash cannot be checked here.")
        following = self._find_secret(self._settings.next_signing_key) or current  # with an empty key anybody could sign
        signature = delivery.signature or ""
        if not 0 < len(signature) <= MAX_SIGNATURE_CHARS or not _JOB_TYPE.fullmatch(delivery.type):
            raise NotSigned("The message is not signed by QStash for this address.")
        if not is_installed("qstash"):
            logger.error("%s", not_installed("qstash"))
            raise NotReady("Messages of QStash cannot be checked here.")
        from qstash import Receiver

        try:
            text, url = delivery.body.decode(), f"{self._settings.url}/jobs/{delivery.type}"
            Receiver(current, following).verify(signature=signature, body=text, url=url)
            claims = orjson.loads(base64.urlsafe_b64decode(signature.split(".")[1] + "=="))
            covered = signature.rpartition(".")[
                0
            ]  # the rest has several forms in base64, each of which would be another one
            return sha256(covered.encode()).hexdigest(), min(datetime.fromtimestamp(claims["exp"], UTC), _FAR)
        except Exception as error:  # noqa: BLE001 - whatever a made-up token has the library raise
            logger.info("a message for jobs of type %s was refused: %s", delivery.type, str(error)[:300])
            raise NotSigned("The message is not signed by QStash for this address, or its signature has expired.") from None

    # -- jobs that it is handed

    async def enqueue(
        self,
        type: str,  # noqa: A002
        payload: Mapping[str, Any],
        *,
        actor: Actor,
        key: str | None = None,
        delay: float = 0.0,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> Job:
        """Queues a job that QStash brings when it is due. Raises Failed as the queue does. Where QStash does not take it, it
        is run here when it is due."""
        late = delay + GRACE_SECONDS
        job = await self._queue.enqueue(
            type, payload, actor=actor, key=key, delay=late, priority=priority, max_attempts=max_attempts
        )
        if job.state != "queued" or job.attempts:
            return job  # the one that was enqueued with this key before
        try:
            async with asyncio.timeout(PUBLISH_SECONDS):
                await self._publish(job, delay)
        except Exception as error:  # noqa: BLE001 - of the SDK, of httpx, or of what came back
            why = str(error)[:300] or error.__class__.__name__
            logger.warning("QStash did not take job %s, which is run without it: %s", job.id, why)
            return await self._queue.hasten(job.id, delay) or job
        return job

    async def _publish(self, job: Job, delay: float) -> None:
        token = self._find_secret(self._settings.token)
        if not token:
            raise NotReady(f"The secret {self._settings.token} is not set.")
        require("qstash")
        await to_thread(import_module, "qstash")  # here it would hold the loop
        from qstash import AsyncQStash

        client = AsyncQStash(token, retry=PUBLISH_RETRY, base_url=self._settings.base_url)
        try:
            await client.message.publish_json(
                url=f"{self._settings.url}/jobs/{job.type}",
                body={"job": job.id, "toolgate_signature": await self._sign(job.type, job.id)},
                retries=self._settings.retries,
                delay=math.ceil(delay) or None,
                deduplication_id=job.id,
            )
        finally:
            await client.http._client.aclose()  # which the SDK leaves to the garbage collector

    async def _sign(self, type: str, id: str) -> str:  # noqa: A002
        if self._own_key is None:
            self._own_key = bytes.fromhex(await self._store.transact(key_for(PURPOSE)))
        return hmac.new(self._own_key, json.dumps((type, id)).encode(), "sha256").hexdigest()


def _parsed(body: bytes) -> dict[str, Any] | str:
    """The payload of a message, or what is wrong with it."""
    try:
        payload = None if holds_too_much(body) else orjson.loads(body)
    except orjson.JSONDecodeError:
        return "The body is not JSON."
    if payload is None or is_deeper(payload, MAX_JSON_DEPTH):
        return "The body is nothing, holds too much, or is nested too deep."
    return payload if isinstance(payload, dict) else "The body is not a JSON object."

"""Handlers of jobs of the types `send_notification` and `generate_embedding`."""

from typing import TYPE_CHECKING, Any

import orjson

from toolgate.errors import Failed, InvalidInput
from toolgate.jobs.handlers import JobContext, PermanentFailure
from toolgate.model import Actor

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

SEND_NOTIFICATION, GENERATE_EMBEDDING = "send_notification", "generate_embedding"
EMBEDDED = "embedding.generated"
MAX_TITLE_CHARS = 200
MAX_BODY_CHARS = 4_000
MAX_DATA_BYTES = 4_000
NOTIFICATION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "userId": {"type": "string", "minLength": 1, "maxLength": 256},
        "title": {"type": "string", "minLength": 1, "maxLength": MAX_TITLE_CHARS},
        "body": {"type": "string", "minLength": 1, "maxLength": MAX_BODY_CHARS},
        "data": {"type": ["object", "null"]},
    },
    "required": ["userId", "title", "body"],
    "additionalProperties": False,
}
EMBEDDING_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"enum": ["knowledge", "memory"]},
        "id": {"type": "string", "minLength": 1, "maxLength": 128},
        "content": {"type": "string"},
    },
    "required": ["type", "id"],
    "additionalProperties": False,
}


class SendNotification:
    """Tells a user of the job's tenant something, by all their channels and push tokens. Tried again, it goes only to those
    that may take it now."""

    def __init__(self, parts: "Parts") -> None:
        self._parts = parts

    async def __call__(self, ctx: JobContext) -> dict[str, Any]:
        payload, data = ctx.payload, ctx.payload.get("data")
        if data is not None and len(orjson.dumps(data)) > MAX_DATA_BYTES:
            raise PermanentFailure(f"The data of a notification has at most {MAX_DATA_BYTES:,} bytes as JSON.")
        try:
            user = Actor(ctx.actor.tenant, ctx.actor.persona, payload["userId"])
        except ValueError:
            raise PermanentFailure("userId must be 1 to 256 printable characters.") from None
        id = f"ntf_{ctx.id}"
        try:
            sent = await self._parts.notifications.send_once(
                id, user, payload["title"], payload["body"], data, again=ctx.attempt > 1
            )
        except InvalidInput as error:
            raise PermanentFailure(error.message) from None
        if sent.passing:
            names = ", ".join(sent.passing)
            raise Failed("CONNECTION_ERROR", f"The notification was not taken yet by: {names}.", retryable=True)
        return {"notification": id, "delivered": list(sent.delivered), "failed": list(sent.failed)}


class GenerateEmbedding:
    """Computes the embedding of a note (`memory`) or of a document's passages (`knowledge`) of the job's tenant and persona.
    The text that is kept counts: by a `content` of its own a job could have a note found for what it does not say."""

    def __init__(self, parts: "Parts") -> None:
        self._parts = parts

    async def __call__(self, ctx: JobContext) -> dict[str, Any]:
        kind, id = ctx.payload["type"], ctx.payload["id"]
        if kind == "memory":
            computed = await self._parts.note_embeddings.embed(ctx.actor, id)
        else:
            computed = await self._parts.documents.embed(ctx.actor, id)
        if computed:
            details = {"resource": kind, "id": id, "dimensions": self._parts.embedder.dimensions, "job": ctx.id}
            await self._parts.events.record(EMBEDDED, ctx.actor, "", details)
        return {"computed": computed}

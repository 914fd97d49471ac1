"""Tells people of calls that wait for them, at the places of the setting `approvals.notify`. Each message is a job, so that
it is tried again where a service is busy, and seen where it failed; no call waits for one. The jobs are those of a user of
Toolgate's own, so no asker sees them, or can cancel them.

A place has only so many messages about single calls of a tenant in an hour. Beyond that, its next message comes a few
minutes later and has their number. What was answered meanwhile is not told.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from toolgate.app.keys import NOTICES_USER
from toolgate.conversation.approval_messages import ApprovalMessage, about_many, about_one
from toolgate.conversation.channels import EVERY_TENANT, Channels
from toolgate.conversation.push_sender import PushResult
from toolgate.conversation.webhooks import Webhooks
from toolgate.errors import Failed, InvalidInput
from toolgate.gates.approval.questions import ANSWERS_PAGE
from toolgate.gates.approval.request import ApprovalError, ApprovalRequest
from toolgate.jobs.handlers import JobContext, PermanentFailure
from toolgate.jobs.job import Job
from toolgate.model import Actor
from toolgate.settings import ApprovalNoticeSettings, ChannelSettings
from toolgate.store import jobs as table

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

TYPE = "notify_approval"
ATTEMPTS = 8
NOTIFIED = "approval.notified"
HOUR = timedelta(hours=1)
GATHER_SECONDS = 300
"""How long calls are gathered whose messages would be too many."""
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "place": {"type": "string", "minLength": 1, "maxLength": 64},
        "approval": {"type": ["string", "null"], "maxLength": 64},
    },
    "required": ["place", "approval"],
    "additionalProperties": False,
}
logger = logging.getLogger("toolgate.approval")


class ApprovalNotices:
    """The messages to all places."""

    def __init__(self, parts: "Parts", enqueue: Callable[..., Awaitable[Job]]) -> None:
        self._parts = parts
        self._enqueue = enqueue
        settings = parts.settings
        self._places = settings.approvals.notify
        self._public_url = settings.serve.public_url
        urls = {name: place.to for name, place in self._places.items() if place.to is not None}
        find = parts.server_secrets.find
        self._channels = Channels(
            {name: ChannelSettings(url=url, tenant=EVERY_TENANT) for name, url in urls.items()},
            find,
            settings.notify.seconds,
        )
        self._webhooks = Webhooks(parts.http, find, settings.notify.seconds)

    # -- where calls are made

    async def tell(self, asked: ApprovalRequest) -> None:
        """Has all places that are for it told of a call that waits. Nothing is raised: the call itself is not at fault."""
        for name, place in self._places.items():
            if place.matches(asked.tool, asked.tier, asked.actor.tenant):
                try:
                    await self._queue(name, place, asked)
                except Exception as error:  # noqa: BLE001 - a full queue, a store that is away
                    logger.warning("%s is not told of approval %s: %s", name, asked.id, error)

    async def _queue(self, name: str, place: ApprovalNoticeSettings, asked: ApprovalRequest) -> None:
        parts, actor = self._parts, Actor(asked.actor.tenant, user=NOTICES_USER)
        moment, single = parts.now(), f"{name}:one:"
        told = await parts.store.read(table.count_since(moment - HOUR, actor.tenant, NOTICES_USER, TYPE, single))
        payload: dict[str, Any] = {"place": name, "approval": asked.id}
        if told < place.per_hour:
            await self._enqueue(TYPE, payload, actor=actor, key=f"{single}{asked.id}")
            return
        period, passed = divmod(moment.timestamp(), GATHER_SECONDS)
        payload["approval"] = None
        await self._enqueue(TYPE, payload, actor=actor, key=f"{name}:many:{int(period)}", delay=GATHER_SECONDS - passed)

    # -- where jobs are run

    async def deliver(self, ctx: JobContext) -> dict[str, Any]:
        """Sends the message of a job, unless nothing waits any more."""
        name, tenant = ctx.payload["place"], ctx.actor.tenant
        place = self._places.get(name)
        if place is None:
            raise PermanentFailure(f"There is no {name!r} in the setting approvals.notify any more.")
        approval = ctx.payload["approval"]
        made = await (self._many(place, tenant) if approval is None else self._one(place, approval, tenant))
        if made is None:
            return {"sent": False, "why": "it no longer waits for an answer"}
        message, tool = made
        result = await self._send(name, place, ctx, message)
        details = {"place": name, "approval": approval, "job": ctx.id, "result": result.verdict}
        await self._parts.events.record(NOTIFIED, ctx.actor, tool, details)
        if result.verdict == "delivered":
            return {"sent": True}
        if result.verdict == "passing":
            raise Failed("CONNECTION_ERROR", f"{name} did not take it yet: {result.reason}.", retryable=True)
        logger.warning("%s was not told of approval %s: %s", name, approval or "of many calls", result.reason)
        raise PermanentFailure(f"{name} did not take it: {result.reason}.")

    async def _one(self, place: ApprovalNoticeSettings, id: str, tenant: str) -> tuple[ApprovalMessage, str] | None:
        try:
            found = await self._parts.consent.questions.status(id, tenant)
        except ApprovalError as error:
            raise PermanentFailure(error.message) from None
        asked = found.request
        if found.state != "waiting":
            return None
        if not place.matches(asked.tool, asked.tier, tenant):
            raise PermanentFailure(f"The setting approvals.notify does not have approval {id} told there.")
        return about_one(asked, self._public_url, arguments=place.arguments), asked.tool

    async def _many(self, place: ApprovalNoticeSettings, tenant: str) -> tuple[ApprovalMessage, str] | None:
        found = await self._parts.consent.questions.list(tenant, "waiting", limit=ANSWERS_PAGE)
        waiting = [
            one.request for one in found if place.matches(one.request.tool, one.request.tier, one.request.actor.tenant)
        ]
        if not waiting:
            return None
        count = f"more than {len(waiting)}" if len(found) == ANSWERS_PAGE else str(len(waiting))
        return about_many(tenant, count, waiting[-1], self._public_url), ""

    async def _send(self, name: str, place: ApprovalNoticeSettings, ctx: JobContext, message: ApprovalMessage) -> PushResult:
        title, text, fields = message
        if place.webhook is not None:
            return await self._webhooks.send(place.webhook, {**fields, "id": ctx.id})
        if place.user is not None:
            return await self._send_to_user(place.user, ctx, message)
        sent = await self._channels.send(ctx.actor, title, text, [name])
        if sent.delivered:
            return PushResult("delivered")
        return PushResult("passing" if sent.passing else "failed", sent.failed.get(name))

    async def _send_to_user(self, user: str, ctx: JobContext, message: ApprovalMessage) -> PushResult:
        """As `send_notification`: kept for the user, and sent to those of their channels and tokens that may take it now."""
        title, text, fields = message
        try:
            sent = await self._parts.notifications.send_once(
                f"ntf_{ctx.id}", Actor(ctx.actor.tenant, user=user), title, text, fields, again=ctx.attempt > 1
            )
        except InvalidInput as error:
            return PushResult("failed", error.message)
        if sent.passing:
            return PushResult("passing", f"not taken yet by {', '.join(sent.passing)}")
        return PushResult("delivered")

"""`app.canvas`, `app.notifications`, `app.push_tokens` and `app.behaviours`: what agents left for people, and for their own
next turn."""

from toolgate.app.facets import Facet
from toolgate.conversation.canvas import BLOCKS_PAGE, CanvasBlock
from toolgate.conversation.notifications import Notification
from toolgate.conversation.push_tokens import PushToken
from toolgate.model import LOCAL, Actor
from toolgate.store.behaviours import AdjustmentRow
from toolgate.store.canvas import CanvasRow
from toolgate.tasks import uninterrupted

NOTIFICATIONS_PAGE = 100


class CanvasFacet(Facet):
    """The canvases of sessions: blocks that agents appended with `canvas_append`."""

    async def read(
        self,
        session: str,
        *,
        pane: str | None = None,
        after: int = 0,
        limit: int = BLOCKS_PAGE,
        actor: Actor | None = None,
    ) -> list[CanvasBlock]:
        """Gives the blocks of the canvas of an actor's session, in order: of one pane, or of all; at most `limit`, beginning
        after the number `after`."""
        return await self._parts.canvas.read(actor or LOCAL, session, pane=pane, after=after, limit=limit)

    @uninterrupted
    async def clear(self, session: str, *, actor: Actor | None = None) -> int:
        """Removes the canvas of an actor's session; gives how many blocks it had."""
        actor = actor or LOCAL
        removed = await self._parts.canvas.clear(actor, session)
        if removed:
            await self._parts.events.record("canvas.cleared", actor, "", {"session": session, "blocks": removed})
        return removed

    async def list(self, *, actor: Actor | None = None) -> list[CanvasRow]:
        """Gives the canvases of an actor's sessions, those first that changed last."""
        return await self._parts.canvas.list(actor or LOCAL)


class NotificationsFacet(Facet):
    """The messages of agents to users, sent with `notify_user`."""

    async def dismiss(self, id: str, *, actor: Actor | None = None) -> bool:
        """Removes a notification of an actor's user; gives whether there was one."""
        return await self._parts.notifications.dismiss(id, actor or LOCAL)

    async def list(
        self,
        *,
        actor: Actor | None = None,
        all_users: bool = False,
        limit: int = NOTIFICATIONS_PAGE,
        before: str | None = None,
    ) -> list[Notification]:
        """Gives the latest notifications of the actor's user, or of all users of the tenant, oldest first; `before`: those
        that are older than the one with this id."""
        actor = actor or LOCAL
        return await self._parts.notifications.list(actor.tenant, None if all_users else actor.user, limit, before)


class PushTokensFacet(Facet):
    """The services at which users want their notifications. A token is a credential: it is kept encrypted, and not shown."""

    @uninterrupted
    async def add(self, url: str, name: str | None = None, *, actor: Actor | None = None) -> PushToken:
        """Adds a push token of the actor's user: an apprise URL of a kind that the setting `notify.push.kinds` allows."""
        return await self._parts.push_tokens.add(actor or LOCAL, url, name)

    @uninterrupted
    async def remove(self, id_or_name: str, *, actor: Actor | None = None) -> PushToken | None:
        """Removes a push token of the actor's user. Gives what was removed; None: there is none."""
        return await self._parts.push_tokens.remove(actor or LOCAL, id_or_name)

    async def list(self, *, actor: Actor | None = None) -> list[PushToken]:
        """Gives the push tokens of the actor's user, oldest first."""
        return await self._parts.push_tokens.list(actor or LOCAL)


class BehavioursFacet(Facet):
    """The adjustments of behaviour, made with `behaviour_adjustment`: every prompt of their persona has them."""

    async def current(self, actor: Actor | None = None) -> list[str]:
        """Gives the adjustments that hold for the tenant and persona of an actor, oldest first."""
        return await self._parts.behaviours.current(actor or LOCAL)

    @uninterrupted
    async def remove(self, id: str, *, actor: Actor | None = None) -> AdjustmentRow | None:
        """Removes an adjustment of the actor's tenant. Gives what was removed; None: there is none."""
        actor = actor or LOCAL
        removed = await self._parts.behaviours.remove(id, actor.tenant)
        if removed is not None:
            details = {"adjustment": removed.id, "for_persona": removed.persona_id or None}
            await self._parts.events.record("behaviour.removed", actor, "", details)
        return removed

    async def list(self, tenant: str = LOCAL.tenant) -> "list[AdjustmentRow]":
        """Gives the adjustments of all personas of a tenant."""
        return await self._parts.behaviours.list(tenant)

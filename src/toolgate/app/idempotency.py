"""`app.idempotency`: keys whose call began and has no known end."""

from typing import TYPE_CHECKING, Any

from toolgate.model import LOCAL, Actor
from toolgate.tasks import uninterrupted

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts
    from toolgate.store.idempotency import KeyRow


class IdempotencyFacet:
    """The idempotency keys on record."""

    def __init__(self, parts: "Parts") -> None:
        self._events = parts.events
        self._idempotency = parts.idempotency

    async def unsettled(self, tenant: str | None = None) -> "list[KeyRow]":
        """Gives the idempotency keys whose call began and has no known end: of a tenant, or of all."""
        return await self._idempotency.unsettled(tenant)

    @uninterrupted
    async def settle(self, key: str, *, happened: bool, output: Any = None, actor: Actor | None = None) -> "KeyRow":
        """Says whether the call with this key had its effect. If it had, callers are given `output`; if not, the key is
        free again."""
        actor = actor or LOCAL
        found = await self._idempotency.settle(
            actor.tenant, actor.user, key, happened=happened, output=output, by=actor.user
        )
        details = {"key": key, "happened": happened, "call": found.holder.call_id}
        await self._events.record("idempotency.settled", actor, found.holder.tool, details)
        return found

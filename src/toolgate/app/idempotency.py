"""`app.idempotency`: keys whose call began and has no known end."""

from typing import TYPE_CHECKING, Any

from toolgate.model import LOCAL, Actor
from toolgate.store import idempotency as table
from toolgate.tasks import uninterrupted

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts
    from toolgate.store.idempotency import KeyRow


class IdempotencyFacet:
    """The idempotency keys on record."""

    def __init__(self, parts: "Parts") -> None:
        self._events = parts.events
        self._idempotency = parts.idempotency
        self._store = parts.store
        self.lease_seconds = parts.presence.seconds
        """How long it takes at most until the calls of a process that died are known to have no end."""

    async def unsettled(self, tenant: str | None = None) -> "list[KeyRow]":
        """Gives the idempotency keys whose call began and has no known end: of a tenant, or of all."""
        return await self._idempotency.unsettled(tenant)

    async def list(self, tenant: str | None = None, *, state: table.State | None = None) -> "list[KeyRow]":
        """Gives the latest keys, oldest first: of a tenant, or of all; in a state, or in any."""
        return await self._store.read(table.listed(tenant=tenant, state=state))

    async def get(self, key: str, *, actor: Actor | None = None) -> "KeyRow | None":
        """Gives what is known of an actor's key; None: nothing."""
        actor = actor or LOCAL
        return await self._store.read(table.find(table.Scope(actor.tenant, actor.user, key)))

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

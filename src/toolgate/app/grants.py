"""`app.grants`: calls that somebody agreed to ahead of time."""

from typing import TYPE_CHECKING

from toolgate.app.renamed import CallableFacet
from toolgate.gates.approval.request import Grant, GrantTerms
from toolgate.model import LOCAL, Actor
from toolgate.store import approvals as table
from toolgate.tasks import uninterrupted

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts


class GrantsFacet(CallableFacet):
    """The grants on record."""

    def __init__(self, parts: "Parts") -> None:
        self._catalog = parts.catalog
        self._grants = parts.consent.grants
        self._store = parts.store

    @uninterrupted
    async def create(
        self,
        tool: str,
        terms: GrantTerms,
        *,
        actor: Actor | None = None,
        session: str | None = None,
        reason: str | None = None,
        by: Actor | None = None,
    ) -> Grant:
        """Agrees ahead of time to calls of a tool by an actor; never to destructive ones. `by`: who agrees; without it, the
        person at this machine."""
        actor = actor or LOCAL
        by = by or Actor(actor.tenant, user=LOCAL.user)
        entry = self._catalog.resolve(tool, actor.tenant)
        return await self._grants.make(entry, terms, actor, by, session=session, reason=reason)

    async def ids(self, tenant: str | None, beginning: str) -> list[tuple[str, str]]:
        """Gives the ids that begin so, each with its tenant: of one tenant, or of all."""
        return await self._store.read(table.ids("grants", tenant, beginning))

    @uninterrupted
    async def revoke(self, id: str, *, actor: Actor | None = None) -> Grant:
        """Takes a grant back: it holds for no call from now on, in any process."""
        return await self._grants.revoke(id, actor or LOCAL)

    async def list(self, *, active: bool = True, actor: Actor | None = None) -> list[Grant]:
        """Gives the grants of the actor's tenant: those that hold now, or all that there were."""
        return await self._grants.list((actor or LOCAL).tenant, active=active)

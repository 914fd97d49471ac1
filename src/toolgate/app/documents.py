"""`app.documents`: the documents that agents may ask questions of, for whoever runs this installation."""

from toolgate.app.facets import Facet
from toolgate.model import LOCAL, Actor
from toolgate.store.documents import DocumentRow
from toolgate.tasks import uninterrupted


class DocumentsFacet(Facet):
    """The documents that were taken in. Tools see only those of their caller's tenant and persona."""

    @uninterrupted
    async def remove(self, id: str, *, actor: Actor | None = None, all_users: bool = True) -> DocumentRow | None:
        """Removes a document of the actor's tenant, with its passages; `all_users=False`: only one that the actor's user
        took in. Gives what was removed; None: there is none."""
        actor = actor or LOCAL
        removed = await self._parts.documents.remove(id, actor.tenant, None if all_users else actor.user)
        if removed is not None:
            details = {"document": removed.id, "name": removed.name, "sha256": removed.sha256}
            await self._parts.events.record("document.removed", actor, "", details)
        return removed

    async def list(
        self,
        tenant: str | None = None,
        *,
        user: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[DocumentRow]:
        """Gives the documents of a tenant, or of all; that one user took in, or all; oldest first. `after`: those that are
        younger than the one with this id."""
        return await self._parts.documents.list(tenant, user, after, limit)

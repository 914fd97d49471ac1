"""`app.attachments`: the files that users uploaded."""

from toolgate.app.facets import Facet
from toolgate.errors import Failed
from toolgate.model import LOCAL, Actor
from toolgate.store.attachments import AttachmentRow
from toolgate.tasks import uninterrupted

ATTACHMENTS_PAGE = 100


class AttachmentsFacet(Facet):
    """The files that users uploaded. An actor sees and removes those of their own user; `all_users`, those of their tenant.
    The tool `document_ingest` takes one by its id."""

    @property
    def max_bytes(self) -> int:
        """The size of the largest file that is taken."""
        return self._parts.attachments.max_bytes

    @uninterrupted
    async def add(
        self, name: str, content: bytes, *, media_type: str | None = None, actor: Actor | None = None
    ) -> AttachmentRow:
        """Keeps a file of the actor's user. Raises `InvalidInput` for one that is empty, too large or without a name, and
        `Failed` if the user has as much as they may have."""
        actor = actor or LOCAL
        row = await self._parts.attachments.add(actor, name, content, media_type)
        await self._parts.events.record("attachment.added", actor, "", _details(row))
        return row

    async def get(self, id: str, *, actor: Actor | None = None, all_users: bool = False) -> tuple[AttachmentRow, bytes]:
        """Gives a file with its content. Raises `Failed` if there is none that the actor may see."""
        actor = actor or LOCAL
        row = self._found(await self._parts.attachments.get(id, actor.tenant, None if all_users else actor.user))
        return row, await self._parts.attachments.content(row)

    async def list(
        self,
        *,
        actor: Actor | None = None,
        all_users: bool = False,
        limit: int = ATTACHMENTS_PAGE,
        before: str | None = None,
    ) -> list[AttachmentRow]:
        """Gives the latest files, latest first; `before`: those that are older than the one with this id."""
        actor = actor or LOCAL
        return await self._parts.attachments.list(actor.tenant, None if all_users else actor.user, limit, before)

    @uninterrupted
    async def remove(self, id: str, *, actor: Actor | None = None, all_users: bool = False) -> AttachmentRow:
        """Removes a file. Gives what was removed. Raises `Failed` if there is none that the actor may remove."""
        actor = actor or LOCAL
        row = self._found(await self._parts.attachments.remove(id, actor.tenant, None if all_users else actor.user))
        await self._parts.events.record("attachment.removed", actor, "", _details(row))
        return row

    def _found(self, row: AttachmentRow | None) -> AttachmentRow:
        if row is None:
            raise Failed("VALIDATION_ERROR", "There is no such attachment.", category="missing")
        return row


def _details(row: AttachmentRow) -> dict[str, object]:
    return {"attachment": row.id, "name": row.name, "size_bytes": row.size_bytes, "sha256": row.sha256, "owner": row.user_id}

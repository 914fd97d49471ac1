"""`app.undo`: files put back as they were before a call."""

from typing import TYPE_CHECKING

from toolgate.app.renamed import CallableFacet
from toolgate.model import LOCAL, Actor
from toolgate.tasks import uninterrupted

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts
    from toolgate.undo import Undone


class UndoFacet(CallableFacet):
    """The backups of files that calls changed."""

    def __init__(self, parts: "Parts") -> None:
        self._events = parts.events
        self._journal = parts.journal

    async def calls(self, beginning: str, actor: Actor | None = None) -> "list[str]":
        """Gives the ids of the actor's calls that can be undone and begin so."""
        return await self._journal.calls(beginning, actor or LOCAL)

    async def preview(self, call_id: str, *, actor: Actor | None = None, force: bool = False) -> "list[Undone]":
        """Gives what `revert` would do, and does nothing."""
        return await self._journal.preview(call_id, actor or LOCAL, force)

    @uninterrupted
    async def revert(self, call_id: str, *, actor: Actor | None = None, force: bool = False) -> "list[Undone]":
        """Puts back the files that a call changed. `force`: also those that were changed again since."""
        undone = await self._journal.undo(call_id, actor or LOCAL, force)
        details = {"call": call_id, "force": force, "count": len(undone), "paths": [one.path for one in undone[:100]]}
        await self._events.record("call.undone", actor or LOCAL, "", details)
        return undone

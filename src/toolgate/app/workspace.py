"""`app.workspace`: changes to files that programs and servers made and that wait for a person."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from toolgate.errors import InvalidInput
from toolgate.model import LOCAL, Actor
from toolgate.tasks import uninterrupted
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts
    from toolgate.sandbox.quarantine import QuarantineSet


class WorkspaceFacet:
    """The changes that were not brought into workspaces."""

    def __init__(self, parts: "Parts") -> None:
        self._events = parts.events
        self._places = parts.places

    def changes(self) -> "list[QuarantineSet]":
        """Gives the sets of changes that programs and servers made in workspaces and that wait, oldest first."""
        return self._places.quarantine().sets()

    def get(self, number: str) -> "QuarantineSet":
        """Gives one set of changes. Raises `ToolgateError` if there is none."""
        return self._places.quarantine().get(number)

    def content(self, one: "QuarantineSet", change: Any) -> bytes | None:
        """Gives the content that a change of a set would bring in."""
        return self._places.quarantine().content(one, change)

    @uninterrupted
    async def take(self, number: str, paths: Iterable[str] = (), *, actor: Actor | None = None) -> list[str]:
        """Makes the changes of a set in its workspace, or only those to some paths. Gives what could not be done."""
        quarantine = self._places.quarantine()
        one, wanted = quarantine.get(number), set(paths)
        chosen = [change for change in one.changes if not wanted or change.path in wanted]
        missing = wanted.difference(change.path for change in chosen)
        if missing:
            raise InvalidInput(
                f"Set {one.id} has no change to {min(missing)}.",
                suggestion=f"`toolgate workspace show {one.id}` lists its changes.",
            )
        failed = await to_thread(quarantine.take, one, chosen)
        named = {"set": one.id, "workspace": one.workspace, "by": one.by, "count": len(chosen) - len(failed)}
        details = {**named, "paths": [change.path for change in chosen[:100]]}
        await self._events.record("workspace.taken", actor or LOCAL, "", details)
        return failed

    @uninterrupted
    async def drop(self, number: str, *, actor: Actor | None = None) -> None:
        """Forgets a set of changes."""
        quarantine = self._places.quarantine()
        one = quarantine.get(number)
        await to_thread(quarantine.drop, one)
        details = {"set": one.id, "workspace": one.workspace, "by": one.by, "count": len(one.changes)}
        await self._events.record("workspace.dropped", actor or LOCAL, "", details)

"""Puts acts of people and events of the App on record, and tells listeners of the latter."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolgate.model import LOCAL, Actor, new_id

if TYPE_CHECKING:
    from toolgate.gates.ledger.audit import Ledger
    from toolgate.store.database import Store

logger = logging.getLogger("toolgate")
EventListener = Callable[[str, dict[str, Any]], None]


class Events:
    """One for each App."""

    def __init__(self, store: "Store", ledger: "Ledger") -> None:
        self.listeners: list[EventListener] = []
        self._store = store
        self._ledger = ledger

    async def record(self, action: str, actor: Actor, tool: str, details: dict[str, Any]) -> None:
        """Puts an act of somebody on record; it is on disk when this returns."""
        await self._ledger.act(action, actor, tool, details, at=self._ledger.time_ns(), id=new_id())

    def announce(self, event: str, fields: dict[str, Any]) -> None:
        """Puts something that happened on record, and tells the listeners."""
        from toolgate.gates.ledger.audit import Act

        whose = (fields.get("scope") or {}).get("tenant")  # of a budget that is for everybody: nobody's
        actor = LOCAL if whose is None else Actor(whose, user=LOCAL.user)
        self._store.append(Act(self._ledger.time_ns(), new_id(), event, actor, "", fields))
        self.tell(event, fields)

    def tell(self, event: str, fields: dict[str, Any]) -> None:
        """Tells the listeners of something that is on record already."""
        for listener in self.listeners:
            try:
                listener(event, fields)
            except Exception:  # somebody else's code
                logger.exception("a listener failed on %s", event)

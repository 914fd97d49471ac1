"""Keeps adjustments of behaviour: sentences that every prompt of a tenant's persona has from then on, until an operator
removes them."""

from toolgate.errors import InvalidInput
from toolgate.gates.redaction import Redactor
from toolgate.model import Actor, new_id
from toolgate.store import behaviours as table
from toolgate.store.behaviours import AdjustmentRow, TooManyAdjustments
from toolgate.store.database import Store, now
from toolgate.tasks import finish

MAX_ADJUSTMENT_CHARS = 500
MAX_ADJUSTMENTS = 30
"""Of a persona: each costs tokens in every prompt."""


class BehaviourAdjustments:
    """The adjustments of all personas."""

    def __init__(self, store: Store, redactor: Redactor) -> None:
        self._store = store
        self._redactor = redactor

    async def add(self, actor: Actor, adjustment: str, call_id: str, known: tuple[str, ...] = ()) -> list[str]:
        """Adds an adjustment for the persona of an actor, secrets masked; gives all that hold now. `known`: values of
        secrets."""
        text = " ".join("".join(char if char.isprintable() else " " for char in adjustment).split())
        if not text:
            raise InvalidInput("The adjustment is empty.")
        if not self._redactor.ready:
            await self._redactor.prepare(text)
        text = self._redactor.text(text, known)
        row = AdjustmentRow(f"adj_{new_id()}", actor.tenant, actor.persona or "", text, call_id, actor.user, now())
        try:
            await finish(self._store.transact(table.add(row, MAX_ADJUSTMENTS)))
        except TooManyAdjustments:
            raise InvalidInput(
                f"There are {MAX_ADJUSTMENTS} adjustments already, which is the most.",
                suggestion="Have the operator remove one (`toolgate behaviours remove`).",
            ) from None
        return await self.current(actor)

    async def current(self, actor: Actor) -> list[str]:
        """The adjustments that hold for the persona of an actor, oldest first: what its next prompt says."""
        rows = await self._store.read(table.of_persona(actor.tenant, actor.persona or "", MAX_ADJUSTMENTS))
        return [row.adjustment for row in rows]

    # -- for operators

    async def list(self, tenant: str) -> list[AdjustmentRow]:
        """The adjustments of all personas of a tenant."""
        return await self._store.read(table.listed(tenant))

    async def remove(self, id: str, tenant: str) -> AdjustmentRow | None:
        """Removes an adjustment of a tenant; None if there is none."""
        return await finish(self._store.transact(table.remove(id, tenant)))

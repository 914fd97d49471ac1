"""Adjustments of behaviour: sentences that every prompt of a persona has from then on."""

from datetime import datetime
from typing import NamedTuple

from toolgate.store.database import Transaction
from toolgate.store.sql import columns, insert, made, select, value

OWN = "tenant_id = :tenant AND persona_id = :persona"


class AdjustmentRow(NamedTuple):
    """A row of behaviour_adjustments."""

    id: str
    tenant_id: str
    persona_id: str
    adjustment: str
    call_id: str
    created_by: str
    created_at: datetime


class TooManyAdjustments(Exception):
    """A persona has no room for another adjustment."""


def add(row: AdjustmentRow, most: int) -> Transaction[None]:
    """Adds an adjustment; the same one again changes nothing. Raises TooManyAdjustments if there are so many."""
    sql, values = insert("behaviour_adjustments", row._asdict())
    yield f"{sql} ON CONFLICT (tenant_id, persona_id, adjustment) DO NOTHING", values
    own = {"tenant": row.tenant_id, "persona": row.persona_id}
    if (yield from value(f"SELECT count(*) FROM behaviour_adjustments WHERE {OWN}", own)) > most:
        raise TooManyAdjustments


def of_persona(tenant: str, persona: str, most: int) -> Transaction[list[AdjustmentRow]]:
    """The adjustments of a persona, oldest first."""
    return select(
        AdjustmentRow,
        "behaviour_adjustments",
        f"WHERE {OWN} ORDER BY created_at, id LIMIT :most",
        {"tenant": tenant, "persona": persona, "most": most},
    )


def listed(tenant: str) -> Transaction[list[AdjustmentRow]]:
    """The adjustments of all personas of a tenant."""
    return select(
        AdjustmentRow,
        "behaviour_adjustments",
        "WHERE tenant_id = :tenant ORDER BY persona_id, created_at, id",
        {"tenant": tenant},
    )


def remove(id: str, tenant: str) -> Transaction[AdjustmentRow | None]:
    """Removes an adjustment of a tenant; gives what was removed."""
    rows = yield (
        f"DELETE FROM behaviour_adjustments WHERE id = :id AND tenant_id = :tenant RETURNING {columns(AdjustmentRow)}",
        {"id": id, "tenant": tenant},
    )
    return made(AdjustmentRow, rows[0]) if rows else None

"""Permissions that people gave ahead: grants, each with what it may cost and has cost."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from toolgate.store.database import Transaction
from toolgate.store.sql import columns, insert, is_any, made, select, select_one

MAX_CLOCK_SKEW = timedelta(minutes=5)
"""By how much clocks may differ. What was made later than that from now is not valid: a clock has jumped."""


class GrantRow(NamedTuple):
    """A row of grants."""

    id: str
    tenant_id: str
    persona_id: str | None
    user_id: str | None
    session_id: str | None
    workspace: str | None
    tool_name: str
    fingerprint: str
    cap: int | None
    granted_by: str
    reason: str | None
    created_at: datetime
    expires_at: datetime
    spent: int = 0
    uses: int = 0
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    args_hash: str | None = None
    """Of the canonical arguments that it is for; None: whatever the arguments."""
    arguments: str | None = None
    max_uses: int | None = None
    run_id: str | None = None
    """The run of an agent whose turns it is for; None: it is for any call."""

    def has_room(self, estimate: int) -> bool:
        """True if the cap and the number of calls have room for a call that may cost so much."""
        within_cap = self.cap is None or self.spent + estimate <= self.cap
        return within_cap and (self.max_uses is None or self.uses < self.max_uses)


class GrantQuery(NamedTuple):
    """A call that looks for a grant."""

    tenant: str
    persona: str | None
    user: str
    session: str | None
    workspace: str
    tool: str
    fingerprint: str
    args_hash: str
    estimate: int
    at: datetime
    run: str | None = None
    """The run of an agent whose turn it is."""


VALID = "revoked_at IS NULL AND expires_at > :moment AND created_at <= :soon"


def instants(at: datetime) -> dict[str, datetime]:
    """The parameters of VALID."""
    return {"moment": at, "soon": at + MAX_CLOCK_SKEW}


def add(row: GrantRow) -> Transaction[None]:
    yield insert("grants", row._asdict())


def covering(wanted: GrantQuery) -> Transaction[list[GrantRow]]:
    """The grants that are for such a call, whether or not they have room for it; those that end first come first."""
    return select(
        GrantRow,
        "grants",
        "WHERE tenant_id = :tenant AND tool_name = :tool AND fingerprint = :fingerprint "
        "AND (persona_id IS NULL OR persona_id = :persona) AND (user_id IS NULL OR user_id = :user) "
        "AND (session_id IS NULL OR (session_id = :session AND workspace = :workspace)) "
        "AND (args_hash IS NULL OR args_hash = :args_hash) AND (run_id IS NULL OR run_id = :run) "
        f"AND {VALID} ORDER BY expires_at, id",
        {**wanted._asdict(), **instants(wanted.at)},
    )


def take(wanted: GrantQuery, honours: Callable[[str], bool]) -> Transaction[GrantRow | None]:
    """Charges a call to a grant that covers it, of somebody whose grants do. The sum and the number of calls are checked in
    the statement that raises them, so no number of callers gets past either."""
    for grant in (yield from covering(wanted)):
        if not honours(grant.granted_by):
            continue
        taken = yield (
            f"UPDATE grants SET spent = spent + :estimate, uses = uses + 1 WHERE id = :id AND {VALID} "
            "AND (cap IS NULL OR spent + :estimate <= cap) AND (max_uses IS NULL OR uses < max_uses) "
            f"RETURNING {columns(GrantRow)}",
            {"id": grant.id, "estimate": wanted.estimate, **instants(wanted.at)},
        )
        if taken:
            return made(GrantRow, taken[0])
    return None


def take_each(wanted: Sequence[GrantQuery], honours: Callable[[str], bool]) -> Transaction[list[GrantRow]]:
    """Charges a call to grants of all for whom it is made, each grant once; none if one of them has none."""
    taken: list[GrantRow] = []
    for query in wanted:
        if taken and {grant.id for grant in taken} & {grant.id for grant in (yield from covering(query))}:
            continue
        grant = yield from take(query, honours)
        if grant is None:
            for other in taken:
                yield from put_back(other.id, query.estimate)
            return []
        taken.append(grant)
    return taken


def settle(id: str, estimate: int, actual: int) -> Transaction[None]:
    """Counts what a call did cost in place of what it might have."""
    yield (
        "UPDATE grants SET spent = spent - :estimate + :actual WHERE id = :id",
        {"id": id, "estimate": estimate, "actual": actual},
    )


def put_back(id: str, estimate: int) -> Transaction[None]:
    yield (
        "UPDATE grants SET spent = spent - :estimate, uses = uses - 1 WHERE id = :id AND uses > 0",
        {"id": id, "estimate": estimate},
    )


def get(id: str, tenant: str | None) -> Transaction[GrantRow | None]:
    """One grant: of a tenant, or whatever its tenant (None)."""
    owned = "" if tenant is None else " AND tenant_id = :tenant"
    return select_one(GrantRow, "grants", f"WHERE id = :id{owned}", {"id": id, "tenant": tenant})


def listed(
    tenant: str | None,
    at: datetime,
    most: int,
    since: tuple[datetime, str] | None = None,
    *,
    active: bool,
    tool: str | None = None,
    user: str | None = None,
) -> Transaction[list[GrantRow]]:
    """Grants of a tenant or of all (None), oldest first: those that hold now, or all; of one tool, and for one user, or any;
    from the start, or those after one, given by its instant and id."""
    chosen = [VALID] if active else ["TRUE"]
    values: dict[str, Any] = {"most": most, **instants(at)}
    for column, wanted in (("tenant_id", tenant), ("tool_name", tool), ("user_id", user)):
        if wanted is not None:
            chosen.append(f"{column} = :{column}")
            values[column] = wanted
    if since is not None:
        chosen.append("(created_at > :since OR (created_at = :since AND id > :last))")
        values["since"], values["last"] = since
    where = f"WHERE {' AND '.join(chosen)} ORDER BY created_at, id LIMIT :most"
    return select(GrantRow, "grants", where, values)


def revoke(id: str, tenant: str, by: str, at: datetime) -> Transaction[bool]:
    return is_any(
        "UPDATE grants SET revoked_at = :moment, revoked_by = :by "
        "WHERE id = :id AND tenant_id = :tenant AND revoked_at IS NULL RETURNING id",
        {"id": id, "tenant": tenant, "by": by, "moment": at},
    )

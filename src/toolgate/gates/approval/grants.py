"""Grants: what a person allowed ahead, so that not every call has to be asked about. Each has an end, can be seen and taken
back, holds for one tool as it was when somebody agreed, perhaps for the same arguments alone and for so many calls, and none
covers what is destructive.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import orjson
from msgspec.structs import replace

from toolgate.gates.approval.approvers import is_own
from toolgate.gates.approval.records import ApprovalRoom, asked_by
from toolgate.gates.approval.request import ApprovalError, Grant, GrantTerms, new_id, visible, words
from toolgate.model import NANO, Actor, Call, Entry
from toolgate.store import grants
from toolgate.store.approvals import ApprovalRow
from toolgate.store.grants import GrantQuery, GrantRow

MOST_LISTED = 10_000
"""Grants that are listed at once, if nothing else is said."""


class BoundArguments(NamedTuple):
    """The arguments that a grant is for."""

    hash: str
    """Of their canonical form."""
    recorded: str
    """Those, as records hold them."""


class Grants:
    """Made, listed, taken back. Whether one covers a call is decided where the call is (`Consent.enter`)."""

    def __init__(self, room: ApprovalRoom) -> None:
        self._store, self._approvers, self._note, self._workspace, _, self._clock, _ = room

    async def make(
        self,
        entry: Entry,
        terms: GrantTerms,
        actor: Actor,
        by: Actor,
        *,
        session: str | None = None,
        reason: str | None = None,
        through: str = "python",
        bound: BoundArguments | None = None,
        call: Call | None = None,
        run: str | None = None,
    ) -> Grant:
        """Let an actor (or the actor's persona or tenant, as the terms say) use a tool unasked for a while; with `bound`,
        with these arguments alone. `call`: one that it is for, which says where the calls of its session work. `run`: the
        run of an agent whose turns alone it is for."""
        if entry.asks is None:
            raise ApprovalError(f"{entry.name} needs no grant: it runs unasked.")
        self._approvers.check_grant(entry.name, actor, by.user, own=is_own(by.user, through))
        where = self._workspace(call or Call("", entry.name, None, actor, session))
        row = draft(
            entry.name, entry.fingerprint, entry.destructive, terms, actor, session, where, by.user, words(reason),
            self._clock(), priced=entry.priced, bound=bound, run=run,
        )  # fmt: skip
        await self._store.transact(grants.add(row))
        await self.note_made(row, by)
        return shown(row)

    async def note_made(self, row: GrantRow, by: Actor) -> None:
        details = {
            "grant": row.id, "for_persona": row.persona_id, "for_user": row.user_id, "for_session": row.session_id,
            "until": row.expires_at.isoformat(), "cap": row.cap, "max_uses": row.max_uses, "args_hash": row.args_hash,
            "reason": row.reason, "granted_by": row.granted_by,
        }  # fmt: skip
        await self._note("grant.made", by, row.tool_name, details)

    async def list(
        self,
        tenant: str | None,
        *,
        active: bool = True,
        tool: str | None = None,
        user: str | None = None,
        limit: int = MOST_LISTED,
        after: str | None = None,
    ) -> list[Grant]:
        """A page of the grants of a tenant, or of all tenants (None), oldest first: those that hold now, or all that there
        were; of a tool, and for a user, or for any. The next page comes after the last id of this one."""
        start = None if after is None else await self.get(after, tenant)
        since = None if start is None else (start.created_at, start.id)
        wanted = grants.listed(tenant, self._clock(), limit, since, active=active, tool=tool, user=user)
        return [shown(row) for row in await self._store.read(wanted)]

    async def get(self, id: str, tenant: str | None, user: str | None = None) -> Grant:
        """One grant of a tenant, or of any (None); for one user, if one is named."""
        row = await self._store.read(grants.get(id, tenant)) if id.isprintable() else None
        if row is None or user not in (None, row.user_id):
            raise _missing(id)
        return shown(row)

    async def covering(self, call: Call, entry: Entry, estimate: int, fingerprint: str, args_hash: str) -> Sequence[Grant]:
        """The grants that are for such a call, whether or not they have room for it."""
        if entry.destructive:
            return []
        where = self._workspace(call)
        rows = await self._covering(
            GrantQuery(
                call.actor.tenant, call.actor.persona, call.actor.user, call.session, where, entry.name, fingerprint,
                args_hash, estimate, self._clock(), call.run,
            ),
            call.actor,
        )  # fmt: skip
        return [shown(row) for row in rows]

    async def covers(self, row: ApprovalRow) -> bool:
        """True if a grant covers a question by now, for each persona that is concerned: then nobody needs to answer it."""
        if row.destructive:
            return False
        for persona in row.personas:
            wanted = GrantQuery(
                row.tenant_id, persona, row.user_id, row.session_id, row.workspace, row.tool_name, row.fingerprint,
                row.args_hash, row.estimate, self._clock(), row.run_id,
            )  # fmt: skip
            found = await self._covering(wanted, replace(asked_by(row), persona=persona))
            if not any(grant.has_room(row.estimate) for grant in found):
                return False
        return True

    async def _covering(self, wanted: GrantQuery, actor: Actor) -> Sequence[GrantRow]:
        rows = await self._store.read(grants.covering(wanted))
        return [row for row in rows if self._approvers.honours(wanted.tool, actor, row.granted_by)]

    async def revoke(self, id: str, by: Actor) -> Grant:
        """Take a grant back. It holds for no call from now on, in any process."""
        done = await self._store.transact(grants.revoke(id, by.tenant, by.user, self._clock()))
        row = await self._store.read(grants.get(id, by.tenant))
        if row is None:
            raise _missing(id)
        if not done:
            raise ApprovalError(f"Grant {row.id} was revoked already, by {row.revoked_by}.", category="conflict")
        await self._note("grant.revoked", by, row.tool_name, {"grant": row.id, "uses": row.uses, "spent": row.spent})
        return shown(row)


def _missing(id: str) -> ApprovalError:
    return ApprovalError(
        f"There is no grant {visible(id)[:64]} of this tenant.",
        suggestion="`toolgate grants list` shows them.",
        category="missing",
    )


def draft(
    tool: str,
    fingerprint: str,
    destructive: bool,
    terms: GrantTerms,
    actor: Actor,
    session: str | None,
    workspace: str,
    by: str,
    reason: str | None,
    at: datetime,
    *,
    priced: bool,
    bound: BoundArguments | None = None,
    run: str | None = None,
) -> GrantRow:
    """A grant on these terms, as it will be kept. Narrow: a grant for a user holds in the persona that the user had, one for
    a session while the session works in the same folder."""
    if destructive:
        raise ApprovalError(f"{tool} is destructive: it is asked about each time, no grant can cover it.")
    if terms.cap is not None and not priced:
        raise ApprovalError(
            f"{tool} names no price: each call counts as $0.00, so a cap would limit nothing.",
            suggestion="Leave the cap out and keep the time short, or give the tool a price. What a tool reports after its "
            f"calls is limited by a budget: `toolgate budgets set --tool {tool} --daily USD`.",
        )
    if terms.same_arguments and bound is None:
        raise ApprovalError(
            "A grant for the same arguments needs those of a call.",
            suggestion="Name the arguments, or give it with an answer.",
        )
    if terms.scope == "session" and session is None:
        raise ApprovalError("A grant for a session needs a call with a session.", suggestion="Grant it to the user instead.")
    if terms.scope == "persona" and actor.persona is None:
        raise ApprovalError("A grant for a persona needs a call with a persona.", suggestion="Grant it to the user instead.")
    return GrantRow(
        id=new_id("gr"),
        tenant_id=actor.tenant,
        persona_id=actor.persona if terms.scope != "tenant" else None,
        user_id=actor.user if terms.scope in ("session", "user") else None,
        session_id=session if terms.scope == "session" else None,
        workspace=workspace if terms.scope == "session" else None,
        tool_name=tool,
        fingerprint=fingerprint,
        cap=terms.cap,
        granted_by=by,
        reason=reason,
        created_at=at,
        expires_at=at + timedelta(seconds=terms.seconds),
        args_hash=None if bound is None else bound.hash,
        arguments=None if bound is None else bound.recorded,
        max_uses=terms.max_uses,
        run_id=run,
    )


def shown(row: GrantRow) -> Grant:
    return Grant(
        id=row.id,
        tool=row.tool_name,
        tenant=row.tenant_id,
        persona=row.persona_id,
        user=row.user_id,
        session=row.session_id,
        cap_usd=None if row.cap is None else row.cap / NANO,
        spent_usd=row.spent / NANO,
        uses=row.uses,
        max_uses=row.max_uses,
        arguments=None if row.arguments is None else orjson.loads(row.arguments),
        granted_by=row.granted_by,
        reason=row.reason,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        revoked_by=row.revoked_by,
    )

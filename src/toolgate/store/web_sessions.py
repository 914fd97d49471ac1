"""Sign-in links, which work once, and the sessions of browsers that were signed in by them. A session's end counts as a
change that all processes must see, like a flag's."""

from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
import orjson

from toolgate.model import Actor
from toolgate.model.roles import Role
from toolgate.store.catalog import changed
from toolgate.store.database import Transaction, moment
from toolgate.store.sql import insert

WHO = "tenant_id, persona_id, user_id, scopes, roles, created_by"
SESSION_COLUMNS = f"id, {WHO}, created_at, expires_at, last_used_at, revoked_at, revoked_by"
FORGET = timedelta(days=30)
"""After this long, links and sessions that are over are no longer on record here; the audit log has them."""
SessionState = Literal["valid", "expired", "revoked"]


class SignInLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that signs its opener in, without what opens it."""

    actor: Actor
    roles: tuple[Role, ...]
    created_by: str
    created_at: datetime
    expires_at: datetime


class WebSession(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that was signed in. What its cookie holds is not among what is known of it."""

    id: str
    actor: Actor
    roles: tuple[Role, ...]
    created_by: str
    created_at: datetime
    expires_at: datetime
    """However often it is used."""
    last_used_at: datetime
    revoked_at: datetime | None = None
    revoked_by: str | None = None

    def ends_at(self, idle: timedelta) -> datetime:
        """The time when it expires, unless it is used before."""
        return min(self.expires_at, self.last_used_at + idle)

    def state(self, at: datetime, idle: timedelta) -> SessionState:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.ends_at(idle) <= at else "valid"


def _who(actor: Actor, roles: tuple[Role, ...], created_by: str) -> dict[str, Any]:
    return {
        "tenant_id": actor.tenant, "persona_id": actor.persona, "user_id": actor.user,
        "scopes": orjson.dumps(actor.scopes).decode(), "roles": orjson.dumps(roles).decode(), "created_by": created_by,
    }  # fmt: skip


def _whose(tenant: str, persona: str | None, user: str, scopes: str, roles: str) -> tuple[Actor, tuple[Role, ...]]:
    return Actor(tenant, persona, user, tuple(orjson.loads(scopes))), tuple(orjson.loads(roles))


def _session(row: tuple[Any, ...]) -> WebSession:
    id, tenant, persona, user, scopes, roles, created_by, created, expires, used, revoked, revoked_by = row
    actor, held = _whose(tenant, persona, user, scopes, roles)
    return WebSession(
        id=id, actor=actor, roles=held, created_by=created_by, created_at=moment(created), expires_at=moment(expires),
        last_used_at=moment(used), revoked_at=revoked and moment(revoked), revoked_by=revoked_by,
    )  # fmt: skip


def add_link(link: SignInLink, token_hash: str) -> Transaction[None]:
    """Adds a link, and forgets what is long over."""
    past = {"past": link.created_at - FORGET}
    yield "DELETE FROM sign_in_links WHERE expires_at < :past", past
    yield "DELETE FROM web_sessions WHERE expires_at < :past", past
    times = {"created_at": link.created_at, "expires_at": link.expires_at}
    yield insert("sign_in_links", {"token_hash": token_hash, **_who(link.actor, link.roles, link.created_by), **times})


def open_link(token_hash: str, at: datetime, session: tuple[str, str, datetime]) -> Transaction[WebSession | None]:
    """Uses a link up, and adds the session that it opens: its id, the hash of its token, and its end. None: there is no such
    link, or it was used, or has expired. Of two that open it at the same moment, one finds it used."""
    rows = yield (
        "UPDATE sign_in_links SET used_at = :moment WHERE token_hash = :hash AND used_at IS NULL AND expires_at > :moment "
        f"RETURNING {WHO}",
        {"hash": token_hash, "moment": at},
    )
    if not rows:
        return None
    *who, created_by = rows[0]
    actor, roles = _whose(*who)
    id, session_hash, expires = session
    made = WebSession(
        id=id, actor=actor, roles=roles, created_by=created_by, created_at=at, expires_at=expires, last_used_at=at
    )
    times = {"created_at": at, "expires_at": expires, "last_used_at": at}
    yield insert("web_sessions", {"id": id, "token_hash": session_hash, **_who(actor, roles, created_by), **times})
    return made


def find(token_hash: str) -> Transaction[WebSession | None]:
    """The session of a token, whatever its state."""
    rows = yield f"SELECT {SESSION_COLUMNS} FROM web_sessions WHERE token_hash = :hash", {"hash": token_hash}
    return _session(rows[0]) if rows else None


def listed(tenant: str | None = None) -> Transaction[list[WebSession]]:
    """All sessions, or those of a tenant; oldest first."""
    where = "" if tenant is None else "WHERE tenant_id = :tenant "
    rows = yield f"SELECT {SESSION_COLUMNS} FROM web_sessions {where}ORDER BY created_at, id", {"tenant": tenant}
    return [_session(row) for row in rows]


def revoke(id: str, by: str, at: datetime) -> Transaction[WebSession | None]:
    """Ends a session; None if there is none that could be."""
    rows = yield (
        "UPDATE web_sessions SET revoked_at = :moment, revoked_by = :by WHERE id = :id AND revoked_at IS NULL "
        f"RETURNING {SESSION_COLUMNS}",
        {"id": id, "by": by, "moment": at},
    )
    if not rows:
        return None
    yield from changed()
    return _session(rows[0])


def used(id: str, at: datetime, at_most_every: timedelta) -> Transaction[None]:
    """Notes that a session was used, unless that was noted a short while ago."""
    yield (
        "UPDATE web_sessions SET last_used_at = :moment WHERE id = :id AND last_used_at < :since",
        {"id": id, "moment": at, "since": at - at_most_every},
    )

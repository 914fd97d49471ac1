"""Keys of callers (api_keys), whose revocation counts as a change that all processes must see, like a flag's; and keys with
which Toolgate seals what clients carry for it (sealing_keys), in the store so that all processes and restarts agree."""

from datetime import datetime, timedelta
from secrets import token_hex
from typing import Any, Literal

import msgspec
import orjson

from toolgate.model import Actor
from toolgate.model.roles import Role
from toolgate.store.catalog import changed
from toolgate.store.database import Transaction, moment, now
from toolgate.store.sql import containing, insert, is_any, value

KEY_COLUMNS = (
    "id, name, tenant_id, persona_id, user_id, scopes, roles, may_approve, may_speak, created_by, created_at, expires_at, "
    "revoked_at, revoked_by, last_used_at"
)
KeyState = Literal["valid", "expired", "revoked"]


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key on record. Its secret is not among what is known of it."""

    id: str
    name: str
    actor: Actor
    """For whom whoever holds the key acts."""
    roles: tuple[Role, ...]
    may_approve: bool
    """True if whoever sits at the client may approve its calls there. No role: it counts for the key's own calls alone."""
    may_speak: bool = False
    """True if whoever holds it may pass on what its user typed, as the user's own words."""
    created_by: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    last_used_at: datetime | None = None

    def state(self, at: datetime) -> KeyState:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= at else "valid"


def _key(row: tuple[Any, ...]) -> ApiKey:
    id, name, tenant, persona, user, scopes, roles, *rest = row
    may_approve, may_speak, created_by, created, expires, revoked, revoked_by, used = rest
    return ApiKey(
        id=id,
        name=name,
        actor=Actor(tenant, persona, user, tuple(orjson.loads(scopes))),
        roles=tuple(orjson.loads(roles)),
        may_approve=bool(may_approve),
        may_speak=bool(may_speak),
        created_by=created_by,
        created_at=moment(created),
        expires_at=expires and moment(expires),
        revoked_at=revoked and moment(revoked),
        revoked_by=revoked_by,
        last_used_at=used and moment(used),
    )


def add(key: ApiKey, secret_hash: str) -> Transaction[bool]:
    """Adds a key; False if one of its tenant that is not revoked has its name."""
    sql, row = insert(
        "api_keys",
        {
            "id": key.id, "name": key.name, "secret_hash": secret_hash, "tenant_id": key.actor.tenant,
            "persona_id": key.actor.persona, "user_id": key.actor.user, "scopes": orjson.dumps(key.actor.scopes).decode(),
            "roles": orjson.dumps(key.roles).decode(), "may_approve": key.may_approve, "may_speak": key.may_speak,
            "created_by": key.created_by, "created_at": key.created_at, "expires_at": key.expires_at,
        },
    )  # fmt: skip
    return is_any(f"{sql} ON CONFLICT (tenant_id, name) WHERE revoked_at IS NULL DO NOTHING RETURNING id", row)


def find(id: str) -> Transaction[tuple[ApiKey, str] | None]:
    """A key, whatever its state, and the hash of its secret."""
    rows = yield f"SELECT {KEY_COLUMNS}, secret_hash FROM api_keys WHERE id = :id", {"id": id}
    return (_key(rows[0][:-1]), rows[0][-1]) if rows else None


STATE_SQL: dict[KeyState, str] = {
    "valid": "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :moment)",
    "expired": "revoked_at IS NULL AND expires_at <= :moment",
    "revoked": "revoked_at IS NOT NULL",
}


def listed(
    tenant: str | None = None,
    *,
    most: int | None = None,
    since: tuple[datetime, str] | None = None,
    state: KeyState | None = None,
    named: str | None = None,
) -> Transaction[list[ApiKey]]:
    """All keys, or those of a tenant, in a state, and with a text in their name; oldest first. At most so many, and after
    one that is given by its instant and id."""
    values: dict[str, Any] = {"tenant": tenant, "most": most, "moment": now()}
    chosen = ["TRUE" if tenant is None else "tenant_id = :tenant"]
    if state is not None:
        chosen.append(STATE_SQL[state])
    if named is not None:
        chosen.append(r"lower(name) LIKE :named ESCAPE '\'")
        values["named"] = containing(named)
    if since is not None:
        chosen.append("(created_at > :since OR (created_at = :since AND id > :last))")
        values["since"], values["last"] = since
    page = "" if most is None else " LIMIT :most"
    where = f"WHERE {' AND '.join(chosen)} ORDER BY created_at, id{page}"
    rows = yield f"SELECT {KEY_COLUMNS} FROM api_keys {where}", values
    return [_key(row) for row in rows]


def revoke(id: str, by: str, at: datetime) -> Transaction[ApiKey | None]:
    """Revokes a key; None if there is none that could be."""
    rows = yield (
        "UPDATE api_keys SET revoked_at = :moment, revoked_by = :by WHERE id = :id AND revoked_at IS NULL "
        f"RETURNING {KEY_COLUMNS}",
        {"id": id, "by": by, "moment": at},
    )
    if not rows:
        return None
    yield from changed()
    return _key(rows[0])


def used(id: str, at: datetime, at_most_every: timedelta) -> Transaction[None]:
    """Notes that a key was used, unless that was noted a short while ago."""
    yield (
        "UPDATE api_keys SET last_used_at = :moment WHERE id = :id AND (last_used_at IS NULL OR last_used_at < :since)",
        {"id": id, "moment": at, "since": at - at_most_every},
    )


def key_for(purpose: str) -> Transaction[str]:
    """The sealing key of a purpose. Whoever asks first makes it; who asks at the same moment gets the same one."""
    sql, row = insert("sealing_keys", {"purpose": purpose, "secret": token_hex(32)})
    yield f"{sql} ON CONFLICT (purpose) DO NOTHING", row
    key = yield from known_key(purpose)
    assert key is not None
    return key


def known_key(purpose: str) -> Transaction[str | None]:
    """The sealing key of a purpose, if there is one."""
    return value("SELECT secret FROM sealing_keys WHERE purpose = :purpose", {"purpose": purpose})

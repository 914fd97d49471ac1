"""API keys: made, listed, revoked, and checked with each request over HTTP.

A key is `tg_<id>_<secret>` and is shown once. Tenant, persona, user and scopes come from the key's record, never from the
request. A key that was checked is known for a short while; a revocation in any process ends that at once, because it is
announced like a changed flag, and whoever sees one forgets all keys.
"""

import hmac
import logging
import secrets
import string
import time
from datetime import datetime, timedelta
from hashlib import sha256

from toolgate.app.app import App
from toolgate.coordination.notices import DATA
from toolgate.errors import StoreError
from toolgate.mcp.server.identity import Credential
from toolgate.model import LOCAL, Actor, new_id
from toolgate.serve.key_names import check_name, check_unused, check_user
from toolgate.serve.problems import KeyRefused
from toolgate.store import keys as table
from toolgate.store.database import Transaction, now
from toolgate.store.keys import ApiKey
from toolgate.tasks import BackgroundTasks, uninterrupted

KEY_PREFIX = "tg_"
ID_LETTERS, SECRET_LETTERS = string.ascii_lowercase + string.digits, string.ascii_letters + string.digits
ID_LENGTH, SECRET_LENGTH = 12, 43
"""43 of 62 letters are 256 random bits."""
MAX_KEY_CHARS = 128
"""Characters of a text that could be a key."""
KNOWN_SECONDS = 30.0
"""How long a key that was checked is not looked up again, unless something changes."""
MAX_KNOWN_KEYS = 10_000
LAST_USED_PRECISION = timedelta(hours=1)
"""How exactly `last_used_at` is kept: a write with each request would cost more than the request."""
MAX_SCOPES = 100

logger = logging.getLogger("toolgate")


class Keys:
    """The keys of an installation."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._known: dict[bytes, tuple[Credential, float]] = {}
        """By the hash of the whole key: the credential, and until when that is taken for granted."""
        self._epoch = -1
        self._noting = BackgroundTasks()

    # -- making and revoking

    async def create(
        self,
        name: str,
        actor: Actor,
        *,
        lasting: timedelta | None = None,
        may_approve: bool = False,
        same_user: bool = False,
        by: Actor | None = None,
    ) -> tuple[ApiKey, str]:
        """Make a key with which its holder acts for an actor. Gives it and, this once, its text. `same_user`: whether it may
        act as the user `key:NAME` if an earlier key did."""
        check_name(name)
        check_user(actor.user)
        if len(actor.scopes) > MAX_SCOPES or any(
            not scope.isprintable() or not 0 < len(scope) <= 256 for scope in actor.scopes
        ):
            raise KeyRefused(f"A key has at most {MAX_SCOPES} scopes, each of 1 to 256 printable characters.")
        made = now()
        try:
            expires = None if lasting is None else made + lasting
        except OverflowError:
            raise KeyRefused(
                "A key can't last that long.", suggestion="Omit --expires for a key that does not expire."
            ) from None
        if expires is not None and expires <= made:
            raise KeyRefused("A key must be valid for more than 0 seconds.")
        by = by or LOCAL
        key = ApiKey(
            id=_random(ID_LETTERS, ID_LENGTH), name=name, actor=actor, may_approve=may_approve,
            created_by=by.user, created_at=made, expires_at=expires,
        )  # fmt: skip
        secret = _random(SECRET_LETTERS, SECRET_LENGTH)
        await self._add(key, _hash(secret), by, same_user=same_user)
        return key, f"{KEY_PREFIX}{key.id}_{secret}"

    @uninterrupted
    async def _add(self, key: ApiKey, secret_hash: str, by: Actor, *, same_user: bool) -> None:
        def adding() -> Transaction[None]:
            added = False
            while not added:  # where it is not, another process has just taken the name
                check_unused(key, (yield from table.listed(key.actor.tenant)), same_user=same_user)
                added = yield from table.add(key, secret_hash)

        await self._app.parts.store.transact(adding())
        await self._note("key.created", key, by)

    @uninterrupted
    async def revoke(self, id: str, *, by: Actor | None = None) -> ApiKey:
        """End a key: no process takes it from now on."""
        by = by or LOCAL
        revoked = await self._app.parts.store.transact(table.revoke(id, by.user, now()))
        if revoked is None:
            known = await self._app.parts.store.read(table.find(id))
            raise KeyRefused(f"The key {id[:64]} is revoked already." if known else f"There is no key {id[:64]!r}.")
        await self._app.parts.notices.announce(DATA)
        await self._app.refresh()
        await self._note("key.revoked", revoked, by)
        return revoked

    async def list(self, tenant: str | None = None) -> list[ApiKey]:
        """All keys, or those of a tenant; oldest first."""
        return await self._app.parts.store.read(table.listed(tenant))

    async def any(self) -> bool:
        """Whether there is a key that would be taken."""
        at = now()
        return any(key.state(at) == "valid" for key in await self.list())

    async def _note(self, action: str, key: ApiKey, by: Actor) -> None:
        actor = key.actor
        details = {
            "key": key.id, "name": key.name, "for_tenant": actor.tenant, "for_persona": actor.persona,
            "for_user": actor.user, "scopes": list(actor.scopes), "may_approve": key.may_approve,
            "expires": None if key.expires_at is None else key.expires_at.isoformat(),
        }  # fmt: skip
        await self._app.parts.ledger.act(action, by, "", details, at=time.time_ns(), id=new_id())

    # -- checking

    def known(self, text: bytes) -> Credential | None:
        """Who holds a key, if it was checked a moment ago and nothing has changed since; None: `check` must be asked."""
        app = self._app
        if app.parts.notices.changed() or app.parts.policy.data.epoch != self._epoch:
            return None
        found = self._known.get(sha256(text).digest())
        return found[0] if found is not None and found[1] > time.monotonic() else None

    async def check(self, text: bytes) -> Credential | None:
        """Who holds a key; None if it is none, or one that expired or was revoked."""
        app = self._app
        if app.parts.notices.changed():
            await app.parts.notices.catch_up(app.refresh)
        if app.parts.policy.data.epoch != self._epoch:
            self._known.clear()
            self._epoch = app.parts.policy.data.epoch
        parts = parse(text)
        if parts is None:
            return None
        epoch = self._epoch
        found = await app.parts.store.read(table.find(parts[0]))
        at = now()
        # With a hash to compare also where there is no such key: how long an answer takes says nothing.
        same = hmac.compare_digest(_hash(parts[1]), found[1] if found is not None else _hash(parts[0]))
        if found is None or not same or found[0].state(at) != "valid":
            return None
        credential = Credential(found[0].id, found[0].name, found[0].actor, found[0].may_approve)
        if epoch == self._epoch:
            self._remember(text, credential, _seconds_left(found[0], at))
        self._note_use(found[0], at)
        return credential

    def _remember(self, text: bytes, credential: Credential, seconds: float) -> None:
        if len(self._known) >= MAX_KNOWN_KEYS:
            self._known.clear()
        self._known[sha256(text).digest()] = credential, time.monotonic() + min(KNOWN_SECONDS, seconds)

    def _note_use(self, key: ApiKey, at: datetime) -> None:
        if key.last_used_at is None or at - key.last_used_at >= LAST_USED_PRECISION:
            self._noting.start(self._note_used(key.id, at))

    async def _note_used(self, id: str, at: datetime) -> None:
        try:
            await self._app.parts.store.transact(table.used(id, at, LAST_USED_PRECISION))
        except StoreError as error:
            logger.warning("the use of an API key could not be recorded: %s", error)

    async def close(self) -> None:
        """Wait for what is still being noted."""
        await self._noting.wait()


def parse(text: bytes) -> tuple[str, str] | None:
    """Id and secret of what has the form of a key."""
    if len(text) > MAX_KEY_CHARS or not text.isascii():
        return None
    prefix, _, rest = text.decode().partition("_")
    id, _, secret = rest.partition("_")
    if f"{prefix}_" != KEY_PREFIX or len(id) != ID_LENGTH or len(secret) != SECRET_LENGTH:
        return None
    return id, secret


def _random(letters: str, length: int) -> str:
    return "".join(secrets.choice(letters) for _ in range(length))


def _hash(secret: str) -> str:
    """Plain SHA-256. Slow hashes protect what people choose, which can be guessed; 256 random bits can't be, however
    quickly a guess is tried."""
    return sha256(secret.encode()).hexdigest()


def _seconds_left(key: ApiKey, at: datetime) -> float:
    return float("inf") if key.expires_at is None else (key.expires_at - at).total_seconds()

"""`app.keys`: API keys are made, listed, revoked, and checked with each request over HTTP.

A key is `tg_<id>_<secret>` and is shown once. Tenant, persona, user and scopes come from the key's record, never from the
request. A key that was checked is known for a short while; a revocation in any process ends that at once, because it is
announced like a changed flag, and whoever sees one forgets all keys.

A key made without a user acts as the user `key:NAME`, so whoever chooses a name chooses whose grants, budgets, approvals and
sessions its holder has. No name can be taken for another's, and that of an earlier key is given again only to who asks for
the same user.
"""

import hmac
import logging
import re
import secrets
import shlex
import string
from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from toolgate.app.facets import Facet, acting_for
from toolgate.app.known_credentials import KnownCredentials
from toolgate.errors import KeyRefused, StoreError
from toolgate.mcp.server.identity import Credential
from toolgate.model import EVERY, LOCAL, Actor
from toolgate.model.roles import DEFAULT_ROLES, Role, checked_roles, permissions_of
from toolgate.screening.lookalikes import marked, person
from toolgate.store import keys as table
from toolgate.store.database import Transaction, now
from toolgate.store.keys import ApiKey, KeyState, key_for
from toolgate.tasks import BackgroundTasks, uninterrupted

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

KEY_PREFIX = "tg_"
ID_LETTERS, SECRET_LETTERS = string.ascii_lowercase + string.digits, string.ascii_letters + string.digits
ID_LENGTH, SECRET_LENGTH = 12, 43
"""43 of 62 letters are 256 random bits."""
KEY_FORM = re.compile(rb"tg_([a-z0-9]{%d})_([A-Za-z0-9]{%d})" % (ID_LENGTH, SECRET_LENGTH))
KNOWN_SECONDS = 30.0
"""The time in which a key that was checked is not looked up again, unless something changes."""
LAST_USED_PRECISION = timedelta(hours=1)
"""The precision of `last_used_at`: a write with each request would cost more than the request."""
MAX_SCOPES = 100
MAX_NAME_CHARS = 250
"""With `key:` before it, it is still the name of a user."""
NAME = re.compile(r"(?!.*  )[A-Za-z0-9](?:[A-Za-z0-9 ._@+:/()'-]*[A-Za-z0-9)])?\Z")

NOTICES_USER, SYNC_USER = "toolgate", "schedule"
INTERNAL_USERS = (NOTICES_USER, SYNC_USER)
"""Users of Toolgate's own: the sender of messages about approvals, and who looks for bundles. No key or token is theirs."""

logger = logging.getLogger("toolgate")


class KeysFacet(Facet):
    """The API keys of this installation."""

    def __init__(self, parts: "Parts") -> None:
        super().__init__(parts)
        self._known = KnownCredentials(parts)
        self._noting = BackgroundTasks()

    # -- making and revoking

    async def create(
        self,
        name: str,
        actor: Actor,
        *,
        lasting: timedelta | None = None,
        roles: Iterable[Role] = DEFAULT_ROLES,
        may_approve: bool = False,
        may_speak: bool = False,
        same_user: bool = False,
        by: Actor | None = None,
    ) -> tuple[ApiKey, str]:
        """Makes a key with which its holder acts for an actor. Gives it and, this once, its text.

        Args:
            name: The key's name, of which a tenant has one.
            actor: For whom its holder acts. Its user is `own_user(name)` where nobody says which.
            lasting: How long it is valid; without it, until it is revoked.
            roles: What its holder may do over HTTP.
            may_approve: Whoever sits at the client may approve its calls there.
            may_speak: Its holder may pass on what the user typed, as the user's own words (`App.say`).
            same_user: It may act as the user `key:NAME` also if an earlier key did.
            by: Who makes it; without it, the person at this machine.
        Raises `KeyRefused`.
        """
        check_name(name)
        try:
            held = checked_roles(roles)
        except ValueError as error:
            raise KeyRefused(str(error)) from None
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
                "A key cannot last that long.", suggestion="Omit --expires for a key that does not expire."
            ) from None
        if expires is not None and expires <= made:
            raise KeyRefused("A key must be valid for more than 0 seconds.")
        by = by or acting_for(actor.tenant)
        key = ApiKey(
            id=_random(ID_LETTERS, ID_LENGTH), name=name, actor=actor, roles=held, may_approve=may_approve,
            may_speak=may_speak, created_by=by.user, created_at=made, expires_at=expires,
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

        await self._parts.store.transact(adding())
        await self._note("key.created", key, by)

    @uninterrupted
    async def revoke(self, id: str, *, by: Actor | None = None) -> ApiKey:
        """Ends a key: no process takes it from now on. Raises `KeyRefused`."""
        revoked = await self._parts.store.transact(table.revoke(id, (by or LOCAL).user, now()))
        if revoked is None:
            known = await self._parts.store.read(table.find(id))
            if known:
                raise KeyRefused(f"The key {id[:64]} is revoked already.", category="conflict")
            raise _no_key(id)
        await self._parts.announce()
        await self._parts.store_sync.refresh()
        await self._note("key.revoked", revoked, by or acting_for(revoked.actor.tenant))
        return revoked

    async def get(self, id: str, tenant: str | None = None) -> ApiKey:
        """Gives a key: of a tenant, or of any. Raises `KeyRefused` if there is none."""
        found = await self._parts.store.read(table.find(id))
        if found is None or tenant not in (None, found[0].actor.tenant):
            raise _no_key(id)
        return found[0]

    async def list(
        self,
        tenant: str | None = None,
        *,
        limit: int | None = None,
        after: str | None = None,
        state: KeyState | None = None,
        named: str | None = None,
    ) -> list[ApiKey]:
        """Gives all keys, or those of a tenant, in a state, and with a text in their name; oldest first: at most `limit`,
        beginning after the id `after`."""
        start = None if after is None else await self.get(after, tenant)
        since = None if start is None else (start.created_at, start.id)
        return await self._parts.store.read(table.listed(tenant, most=limit, since=since, state=state, named=named))

    async def any(self) -> bool:
        """Tells whether there is a key that would be taken."""
        at = now()
        return any(key.state(at) == "valid" for key in await self.list())

    async def _note(self, action: str, key: ApiKey, by: Actor) -> None:
        actor = key.actor
        details = {
            "key": key.id, "name": key.name, "for_tenant": actor.tenant, "for_persona": actor.persona,
            "for_user": actor.user, "scopes": list(actor.scopes), "roles": list(key.roles),
            "may_approve": key.may_approve, "may_speak": key.may_speak,
            "expires": None if key.expires_at is None else key.expires_at.isoformat(),
        }  # fmt: skip
        await self._parts.events.record(action, by, "", details)

    async def sealing_key(self, purpose: str) -> str:
        """Gives the key with which a door seals what its clients carry for it: in the store, so that all processes agree."""
        return await self._parts.store.transact(key_for(purpose))

    # -- checking

    def known(self, text: bytes) -> Credential | None:
        """Gives who holds a key, if it was checked a moment ago and nothing has changed since; None: ask `check`."""
        return self._known.get(text)

    async def check(self, text: bytes) -> Credential | None:
        """Gives who holds a key; None if it is none, or one that expired or was revoked."""
        epoch = await self._known.catch_up()
        parts = parse(text)
        if parts is None:
            return None
        found = await self._parts.store.read(table.find(parts[0]))
        at = now()
        # With a hash to compare also where there is no such key: how long an answer takes says nothing.
        same = hmac.compare_digest(_hash(parts[1]), found[1] if found is not None else _hash(parts[0]))
        if found is None or not same or found[0].state(at) != "valid":
            return None
        key = found[0]
        credential = _credential(key)
        left = KNOWN_SECONDS if key.expires_at is None else (key.expires_at - at).total_seconds()
        self._known.keep(text, credential, min(KNOWN_SECONDS, left), epoch)
        if key.last_used_at is None or at - key.last_used_at >= LAST_USED_PRECISION:
            self._noting.start(self._note_used(key.id, at))
        return credential

    async def recall(self, id: str) -> Credential | None:
        """Gives whose key this id is of, to go on with what its holder began; None if there is no such key. Raises
        `KeyRefused` if it is no longer valid."""
        found = await self._parts.store.read(table.find(id))
        if found is None:
            return None
        key = found[0]
        if (state := key.state(now())) != "valid":
            raise KeyRefused(f"The key {key.id} is {state}.")
        return _credential(key)

    async def _note_used(self, id: str, at: datetime) -> None:
        try:
            await self._parts.store.transact(table.used(id, at, LAST_USED_PRECISION))
        except StoreError as error:
            logger.warning("the use of an API key could not be recorded: %s", error)

    async def close(self) -> None:
        """Waits until the use of every key that was checked is noted."""
        await self._noting.wait()


def _credential(key: ApiKey) -> Credential:
    return Credential(key.id, key.actor, key.may_approve, permissions_of(key.roles), key.may_speak)


def parse(text: bytes) -> tuple[str, str] | None:
    """Id and secret of what has the form of a key."""
    found = KEY_FORM.fullmatch(text)
    return None if found is None else (found[1].decode(), found[2].decode())


def _random(letters: str, length: int) -> str:
    return "".join(secrets.choice(letters) for _ in range(length))


def _hash(secret: str) -> str:
    """Plain SHA-256. Slow hashes protect what people choose, which can be guessed; 256 random bits can't be, however
    quickly a guess is tried."""
    return sha256(secret.encode()).hexdigest()


# -- names


def own_user(name: str) -> str:
    """The user that a key acts as if it was made without one."""
    return f"key:{name}"


def check_name(name: str) -> None:
    """Raises KeyRefused for a name with characters that are not on the list."""
    if len(name) > MAX_NAME_CHARS or not NAME.match(name):
        raise KeyRefused(
            f"The name of a key must be 1 to {MAX_NAME_CHARS} ASCII letters, digits, single blanks and . _ @ + : / ( ) ' -, "
            "beginning with a letter or digit and ending with one or with ).",
            suggestion="Give another name. `--user` may have letters of other alphabets.",
        )


def check_user(user: str) -> None:
    """Raises KeyRefused for the name of a user that could be taken for another's, or for one of Toolgate's own."""
    check_letters(user, "user")
    if user == EVERY or person(user) in INTERNAL_USERS:
        raise KeyRefused(f"No user can be named {user!r}, which has a meaning of its own.", suggestion="Give another name.")


def check_letters(name: str, what: str) -> None:
    """Raises KeyRefused for a name with letters that look like ASCII ones among these or in their place."""
    if marked(name) != name:
        raise KeyRefused(
            f"The {what} {marked(name)} has letters that look like others, so it could be taken for another {what}.",
            suggestion="Write the name with the letters of one alphabet.",
        )


def check_unused(key: ApiKey, known: Iterable[ApiKey], *, same_user: bool) -> None:
    """Raises KeyRefused if a new key would be taken for one that its tenant has or had, or would act as the same user
    without anybody having said so."""
    read = person(key.name)
    earlier = None
    for other in known:
        if other.name == key.name and other.revoked_at is None:
            raise _taken(key, other)
        if other.name != key.name and person(other.name) == read:
            raise KeyRefused(
                f"The name {key.name} reads like {marked(other.name)}, the name of the key {other.id}.",
                suggestion="Give a name that differs in more than capitals and letters that look alike.",
            )
        if other.actor.user == key.actor.user:
            earlier = other
    if earlier is not None and key.actor.user == own_user(key.name) and not same_user:
        raise _would_inherit(key, earlier)


def _no_key(id: str) -> KeyRefused:
    return KeyRefused(f"There is no key with the id {id[:64]!r}: see toolgate keys list.", category="missing")


def _taken(key: ApiKey, holder: ApiKey) -> KeyRefused:
    expired = ", which has expired" if holder.state(key.created_at) == "expired" else ""
    return KeyRefused(
        f"The key {holder.id} of tenant {key.actor.tenant} is named {key.name} already{expired}.",
        suggestion=f"Give another name, or revoke that key first: toolgate keys revoke {holder.id}",
        category="conflict",
    )


def _would_inherit(key: ApiKey, earlier: ApiKey) -> KeyRefused:
    revoked = "" if earlier.revoked_at is None else f", which was revoked on {earlier.revoked_at:%Y-%m-%d}"
    tenant = "" if key.actor.tenant == LOCAL.tenant else f" --tenant {shlex.quote(key.actor.tenant)}"
    return KeyRefused(
        f"A new key named {key.name} would act as the user {key.actor.user}, as did the key {earlier.id}{revoked}, "
        "and would have the grants, budgets, approvals and sessions of that user.",
        suggestion="Give another name. If its holder is the same user, say so: "
        f"toolgate keys create {shlex.quote(key.name)}{tenant} --same-user",
    )

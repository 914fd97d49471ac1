"""`app.sign_ins`: one-time links that sign people in, and the browsers that are signed in.

A link is opened once, within minutes; whoever opens it is given a session, whose token its browser keeps as a cookie. Who
its holder is stands in the session's record. Both tokens are 256 random bits, of which only the hash is kept. The end of a
session is seen by every process at once, as that of a key is.
"""

import hmac
import logging
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from toolgate.app.facets import Facet, acting_for
from toolgate.app.keys import check_user
from toolgate.app.known_credentials import KnownCredentials
from toolgate.errors import SignInRefused, StoreError
from toolgate.mcp.server.identity import Credential
from toolgate.model import LOCAL, Actor, new_id
from toolgate.model.roles import Role, checked_roles, permissions_of
from toolgate.store import web_sessions as table
from toolgate.store.database import now
from toolgate.store.keys import key_for
from toolgate.store.live_processes import served_at
from toolgate.store.web_sessions import SignInLink, WebSession
from toolgate.tasks import BackgroundTasks, uninterrupted

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

TOKEN_BYTES = 32
MAX_TOKEN_CHARS = 43
"""Of 32 bytes in base64."""
KNOWN_SECONDS = 30.0
"""The time in which a session that was checked is not looked up again, unless something changes."""
LAST_USED_PRECISION = timedelta(minutes=5)
ID_PREFIX = "web:"
"""Before the id of a session's credential."""
FORM_PURPOSE = "forms"
"""The sealing key of tokens in forms."""

logger = logging.getLogger("toolgate")


class SignInsFacet(Facet):
    """The sign-in links of this installation, and the browsers that are signed in."""

    def __init__(self, parts: "Parts") -> None:
        super().__init__(parts)
        settings = parts.settings.auth
        self._link_lasts = timedelta(seconds=settings.link_seconds)
        self._lasts = timedelta(seconds=settings.session_seconds)
        self.idle = timedelta(seconds=settings.idle_seconds)
        """How long a session lasts without a request."""
        self._precision = min(LAST_USED_PRECISION, self.idle / 10)
        self._known = KnownCredentials(parts)
        self._noting = BackgroundTasks()
        self._form_key: bytes | None = None

    # -- links

    @uninterrupted
    async def create_link(
        self, actor: Actor | None = None, *, roles: Iterable[Role] = ("operator",), by: Actor | None = None
    ) -> tuple[SignInLink, str]:
        """Makes a link that signs its opener in as an actor, once. Gives it and, this once, its token. Without an actor, it
        is for the person at this machine. Raises `SignInRefused`."""
        actor = actor or LOCAL
        by = by or acting_for(actor.tenant)
        check_user(actor.user)
        try:
            held = checked_roles(roles)
        except ValueError as error:
            raise SignInRefused(str(error)) from None
        made, token = now(), secrets.token_urlsafe(TOKEN_BYTES)
        link = SignInLink(actor=actor, roles=held, created_by=by.user, created_at=made, expires_at=made + self._link_lasts)
        await self._parts.store.transact(table.add_link(link, _hash(token)))
        details = {"roles": list(held), **_whom(actor), "expires": link.expires_at.isoformat()}
        await self._parts.events.record("sign_in.link_created", by, "", details)
        return link, token

    async def open_link(self, token: str) -> tuple[WebSession, str] | None:
        """Signs in whoever has the token of a link. Gives the session and, this once, its token; None: there is no such
        link, or it was used, or has expired."""
        return await self._open(token) if 0 < len(token) <= MAX_TOKEN_CHARS and token.isascii() else None

    @uninterrupted
    async def _open(self, token: str) -> tuple[WebSession, str] | None:
        at, text = now(), secrets.token_urlsafe(TOKEN_BYTES)
        opened = table.open_link(_hash(token), at, (new_id(), _hash(text), at + self._lasts))
        session = await self._parts.store.transact(opened)
        if session is None:
            return None
        details = {"session": session.id, "roles": list(session.roles), "link_by": session.created_by}
        await self._parts.events.record("sign_in.opened", session.actor, "", details)
        return session, text

    async def address(self) -> str | None:
        """Gives the address that a link leads to: the public one, or that of a server which runs on this database."""
        public = self._parts.settings.serve.public_url
        return public or await self._parts.store.read(served_at(self._parts.presence.seconds))

    async def serve_at(self, url: str) -> None:
        """Says where this process serves HTTP, so that others can make links to it."""
        await self._parts.presence.serve_at(url)

    # -- sessions

    def known(self, text: bytes) -> Credential | None:
        """Gives whose session a token is of, if it was checked a moment ago and nothing has changed since."""
        return self._known.get(text)

    async def check(self, text: bytes) -> Credential | None:
        """Gives whose session a token is of; None if it is none, or one that expired or was revoked."""
        epoch = await self._known.catch_up()
        session = await self.find(text)
        if session is None:
            return None
        at = now()
        credential = Credential(ID_PREFIX + session.id, session.actor, False, permissions_of(session.roles))
        left = (session.ends_at(self.idle) - at).total_seconds()
        self._known.keep(text, credential, min(KNOWN_SECONDS, left), epoch)
        if at - session.last_used_at >= self._precision:
            self._noting.start(self._note_used(session.id, at))
        return credential

    async def find(self, text: bytes) -> WebSession | None:
        """Gives the session that a token is of, if it is valid."""
        if not 0 < len(text) <= MAX_TOKEN_CHARS or not text.isascii():
            return None
        found = await self._parts.store.read(table.find(_hash(text.decode())))
        return found if found is not None and found.state(now(), self.idle) == "valid" else None

    async def list(self, tenant: str | None = None) -> list[WebSession]:
        """Gives the sessions on record, of all tenants or of one; oldest first."""
        return await self._parts.store.read(table.listed(tenant))

    @uninterrupted
    async def revoke(self, id: str, *, by: Actor | None = None) -> WebSession:
        """Ends a session: no process takes its cookie from now on. Raises `SignInRefused`."""
        revoked = await self._parts.store.transact(table.revoke(id, (by or LOCAL).user, now()))
        if revoked is None:
            raise SignInRefused(
                f"There is no session {id[:64]!r} that could be ended: see toolgate sign-in list.", category="missing"
            )
        await self._parts.announce()
        await self._parts.store_sync.refresh()
        by = by or acting_for(revoked.actor.tenant)
        await self._parts.events.record("sign_in.revoked", by, "", {"session": revoked.id, **_whom(revoked.actor)})
        return revoked

    async def _note_used(self, id: str, at: datetime) -> None:
        try:
            await self._parts.store.transact(table.used(id, at, self._precision))
        except StoreError as error:
            logger.warning("the use of a session could not be recorded: %s", error)

    async def close(self) -> None:
        """Waits until the use of every session that was checked is noted."""
        await self._noting.wait()

    # -- forms

    async def csrf_token(self, credential: Credential) -> str:
        """Gives what a form of this session's pages holds in a hidden field: a page of somebody else can't know it."""
        if self._form_key is None:
            self._form_key = bytes.fromhex(await self._parts.store.transact(key_for(FORM_PURPOSE)))
        return hmac.new(self._form_key, credential.id.encode(), "sha256").hexdigest()

    async def is_csrf_token(self, credential: Credential, sent: str) -> bool:
        """Tells whether a form was sent by a page of this session."""
        return hmac.compare_digest((await self.csrf_token(credential)).encode(), sent.encode("utf-8", "replace"))


def _hash(token: str) -> str:
    """Plain SHA-256, as for keys: 256 random bits can't be guessed, however quickly a guess is tried."""
    return sha256(token.encode()).hexdigest()


def _whom(actor: Actor) -> dict[str, str | None]:
    return {"for_tenant": actor.tenant, "for_persona": actor.persona, "for_user": actor.user}

"""Authenticates requests over HTTP: where they were sent to, by which page, from which address, and with whose credential.

Before all else, the Host that a request names must be one of ours and the Origin, if a web page sent it, one that may;
otherwise any page that a person opens could reach a server on their machine under a name of its own (DNS rebinding). Then
the credential: an API key or an issuer's token in the header Authorization, else the cookie of a browser that is signed in.
A header that was forwarded makes nobody local; on the contrary, it says that the request came from somewhere else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from typing import TypeVar
from urllib.parse import urlsplit

from starlette.types import Scope

from toolgate.app.app import App
from toolgate.app.issuers import MissingScope
from toolgate.app.keys import KEY_PREFIX, parse
from toolgate.errors import SignInRefused
from toolgate.mcp.server.identity import Credential
from toolgate.network.key_sets import KeySetUnavailable
from toolgate.serve.hosts import (
    LOOPBACK,
    Headers,
    TrustedProxies,
    host_names,
    is_local_page,
    matches,
    parse_host,
    peer_of,
)
from toolgate.serve.key_attempts import KeyAttempts
from toolgate.serve.problems import HttpProblem
from toolgate.serve.protected_resource import MCP_PATH, ProtectedResource
from toolgate.serve.session_cookie import cookie_name, is_from_own_page, read_cookie
from toolgate.store.web_sessions import WebSession

SINGLE = frozenset({
    b"authorization", b"content-encoding", b"content-length", b"content-type", b"cookie", b"host", b"idempotency-key",
    b"if-match", b"if-none-match", b"last-event-id", b"origin", b"sec-fetch-site",
})  # fmt: skip
"""Headers of which there may be one: who reads the first and who reads the last would not agree."""
MAX_REMEMBERED = 1_000
"""Hosts, and origins, that were good before and are not parsed again."""
T = TypeVar("T")


class Authenticator:
    def __init__(self, app: App) -> None:
        settings = app.settings
        self._public = settings.serve.public_url
        own = {settings.serve.host, urlsplit(self._public or "").netloc} - {"", "0.0.0.0", "::"}
        self._hosts = LOOPBACK | host_names((*settings.mcp.hosts, *own))
        self._origins = frozenset(origin.rstrip("/").lower() for origin in settings.mcp.origins)
        self._proxies = TrustedProxies(settings.serve.proxies)
        self._keys, self._issuers, self._sign_ins = app.keys, app.issuers, app.sign_ins
        self._good_hosts: set[bytes] = set()
        self._good_origins: set[bytes] = set()
        self._proof = "key or token" if settings.auth.issuers else "key"
        """The credentials that are taken here, in messages."""
        self.attempts = KeyAttempts()
        self.resource = ProtectedResource(app)

    # -- where it was sent to, and by which page

    def check_place(self, headers: Headers) -> None:
        """Raise an HttpProblem if the request does not name us, or comes from a page that may not call."""
        host = headers.get(b"host", b"")
        if host not in self._good_hosts:
            self._check_host(host)
        origin = headers.get(b"origin")
        if origin is not None and origin not in self._good_origins:
            self._check_origin(origin, host)

    def _check_host(self, host: bytes) -> None:
        place = parse_host(host)
        if place is None or not matches(place, self._hosts):
            raise HttpProblem(
                421,
                "The Host header names a host that this server does not answer to.",
                suggestion="If the name is right, add it to the setting mcp.hosts.",
            )
        _keep(self._good_hosts, host)

    def _check_origin(self, origin: bytes, host: bytes) -> None:
        if origin.lower() in (b"http://" + host.lower(), b"https://" + host.lower()):
            return  # a page of ours
        if origin.decode("latin-1").lower() not in self._origins and not is_local_page(origin):
            raise HttpProblem(
                403,
                "Scripts of the web page in the Origin header may not call this server.",
                suggestion="If they should, add its origin to the setting mcp.origins.",
            )
        _keep(self._good_origins, origin)

    def origin(self, scope: Scope, headers: Headers) -> str:
        """Our own origin, as the browser or client that sent a request sees it."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self._public is not None and host == urlsplit(self._public).netloc.lower():
            return self._public.lower()
        return f"{self._proxies.scheme(scope)}://{host}"

    # -- who sent it

    def known(self, headers: Headers) -> Credential | None:
        """The credential of a request, if that takes no look at the store; None: ask `check`."""
        sent = headers.get(b"authorization", b"")
        return self._known(sent[7:]) if sent[:7] == b"Bearer " else None

    async def check(self, scope: Scope, headers: Headers) -> Credential:
        """The credential of a request. Raises an HttpProblem for a stranger."""
        sent = headers.get(b"authorization")
        if sent is None:
            return await self._check_session(scope, headers)
        if sum(name == b"authorization" for name, _ in scope["headers"]) > 1:
            raise self._stranger(scope, headers, "There is more than one Authorization header.", "invalid_request")
        kind, _, text = sent.partition(b" ")
        proof = text.strip()
        if kind.lower() != b"bearer" or not proof:
            words = f"The Authorization header must be `Bearer` and a {self._proof}."
            raise self._stranger(scope, headers, words, "invalid_request")
        try:
            credential = self._known(proof) or await self._look_up(scope, proof)
        except MissingScope as error:
            challenge = self.resource.challenge(scope, self.origin(scope, headers), "insufficient_scope")
            raise HttpProblem(403, error.message, headers={"www-authenticate": challenge}) from None
        except KeySetUnavailable as error:
            raise HttpProblem(503, error.message, suggestion="Send it again later.", headers={"retry-after": "5"}) from None
        if credential is None:
            words = f"The {self._proof} is not valid: it is wrong, expired or revoked."
            raise self._stranger(scope, headers, words, "invalid_token")
        return credential

    def _known(self, proof: bytes) -> Credential | None:
        return self._keys.known(proof) if _is_key(proof) else self._issuers.known(proof)

    async def _look_up(self, scope: Scope, proof: bytes) -> Credential | None:
        if not _is_key(proof):
            return await self._slowly(scope, proof, None, self._issuers.check)
        parts = parse(proof)
        return await self._slowly(scope, proof, "" if parts is None else parts[0], self._keys.check)

    async def _slowly(
        self, scope: Scope, proof: bytes, id: str | None, look: Callable[[bytes], Awaitable[T | None]]
    ) -> T | None:
        """What a proof is of; where many proofs were wrong, it takes a while before this one is even looked at. `id`: of the
        key; of what has none, the failures from its address count in its place."""
        digest, address = sha256(proof).digest(), self._proxies.client(peer_of(scope), scope["headers"])
        id = address if id is None else id
        delay = self.attempts.delay(digest, id, address)
        if delay:
            await asyncio.sleep(delay)
        found = await look(proof)
        if found is None:
            self.attempts.failed(digest, id, address)
        else:
            self.attempts.succeeded(digest)
        return found

    async def is_still_good(self, scope: Scope, headers: Headers) -> bool:
        """True if a credential that was good when a request began is so still."""
        sent = headers.get(b"authorization")
        if sent is None:
            session = self._session_token(scope, headers)
            return session is not None and await self._session(session) is not None
        proof = sent.partition(b" ")[2].strip()
        try:
            return self._known(proof) is not None or await self._check_again(proof) is not None
        except (MissingScope, KeySetUnavailable):
            return False

    async def _check_again(self, proof: bytes) -> Credential | None:
        return await (self._keys.check(proof) if _is_key(proof) else self._issuers.check(proof))

    def _stranger(self, scope: Scope, headers: Headers, message: str, error: str | None = None) -> HttpProblem:
        challenge = self.resource.challenge(scope, self.origin(scope, headers), error)
        advice = "`toolgate keys create NAME` makes a key."
        return HttpProblem(401, message, suggestion=advice, headers={"www-authenticate": challenge})

    # -- browsers that are signed in

    async def _check_session(self, scope: Scope, headers: Headers) -> Credential:
        """The credential of a request with the cookie of a session. Never for /mcp, which is no place for pages."""
        token = None if scope["path"] == MCP_PATH else self._session_token(scope, headers)
        if token is None:
            form = "Bearer tg_…" if self._proof == "key" else "Bearer …"
            raise self._stranger(scope, headers, f"The request has no {self._proof}: send one as `Authorization: {form}`.")
        if not is_from_own_page(scope["method"], headers, self.origin(scope, headers)):
            raise HttpProblem(
                403,
                "The request was not made by a page of this server, so the browser's sign-in does not count for it.",
                suggestion="Programs send a key: `Authorization: Bearer tg_…`.",
            )
        credential = self._sign_ins.known(token) or await self._slowly(scope, token, None, self._sign_ins.check)
        if credential is None:
            words = "The browser is no longer signed in."
            raise self._stranger(scope, headers, words, "invalid_token")
        return credential

    async def _session(self, token: bytes) -> Credential | None:
        return self._sign_ins.known(token) or await self._sign_ins.check(token)

    def _session_token(self, scope: Scope, headers: Headers) -> bytes | None:
        return read_cookie(headers, cookie_name(self.origin(scope, headers)))

    async def session_of(self, scope: Scope, headers: Headers) -> WebSession | None:
        """The session whose cookie a request brought; None if it was authenticated otherwise, or not at all."""
        token = self._session_token(scope, headers) if b"authorization" not in headers else None
        return None if token is None else await self._sign_ins.find(token)

    async def end_session(self, scope: Scope, headers: Headers) -> bool:
        """Ends the session whose cookie a request brought. False: there is none."""
        session = await self.session_of(scope, headers)
        if session is None:
            return False
        with suppress(SignInRefused):  # it has ended at this moment
            await self._sign_ins.revoke(session.id, by=session.actor)
        return True

    async def open_link(self, scope: Scope, token: str) -> tuple[WebSession, str] | None:
        """Opens a sign-in link. Who tries many waits before one is looked at, as with keys."""
        opened = await self._slowly(scope, token.encode(), None, lambda sent: self._sign_ins.open_link(sent.decode()))
        if opened is not None:
            self.attempts.succeeded(sha256(opened[1].encode()).digest())
        return opened


def _is_key(proof: bytes) -> bool:
    return proof.startswith(KEY_PREFIX.encode())


def check_single(pairs: Iterable[tuple[bytes, bytes]]) -> None:
    """Raises an HttpProblem for a header that may stand once, and stands there more than once."""
    seen: set[bytes] = set()
    for name, _ in pairs:
        if name in SINGLE and name in seen:
            raise HttpProblem(400, f"There is more than one {name.decode()} header.")
        seen.add(name)


def _keep(known: set[bytes], value: bytes) -> None:
    if len(known) < MAX_REMEMBERED:
        known.add(value)

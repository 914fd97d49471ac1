"""Who a request over HTTP is from, and whether it came here honestly.

Before all else: the Host that it names must be one of ours and the Origin, if a web page sent it, one that may; otherwise
any page that a person opens could reach a server on their machine under a name of its own (DNS rebinding). Then the key. A
header that was forwarded makes nobody local; on the contrary, it says that the request came from somewhere else.
"""

import asyncio
from collections.abc import Iterable, Mapping
from hashlib import sha256
from ipaddress import ip_address
from typing import TYPE_CHECKING

from toolgate.mcp.server.identity import Credential
from toolgate.serve.attempts import KeyAttempts
from toolgate.serve.hosts import LOOPBACK, TrustedProxies, host_names, is_local_page, matches, parse_host
from toolgate.serve.keys import Keys, parse
from toolgate.serve.problems import HttpProblem
from toolgate.settings import Settings

if TYPE_CHECKING:
    from starlette.types import Scope

FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})
"""What a proxy adds: whoever sent the request is elsewhere."""
SINGLE = frozenset({b"host", b"origin", b"authorization", b"content-type", b"content-length"})
"""Headers of which there may be one: who reads the first and who reads the last would not agree."""
MAX_REMEMBERED = 1_000
"""Hosts, and origins, that were good before and are not parsed again."""

Headers = Mapping[bytes, bytes]


class Authenticator:
    """Looks at each request before anything else does."""

    def __init__(self, settings: Settings, keys: Keys) -> None:
        own = {settings.serve.host} - {"", "0.0.0.0", "::"}
        self._hosts = LOOPBACK | host_names((*settings.mcp.hosts, *own))
        self._origins = frozenset(origin.rstrip("/").lower() for origin in settings.mcp.origins)
        self._proxies = TrustedProxies(settings.serve.proxies)
        self._keys = keys
        self._good_hosts: set[bytes] = set()
        self._good_origins: set[bytes] = set()
        self.attempts = KeyAttempts()

    # -- where it was sent to, and by which page

    def check_place(self, headers: Headers) -> None:
        """Raise an HttpProblem if the request does not name us, or comes from a page that may not call."""
        host = headers.get(b"host", b"")
        if host not in self._good_hosts:
            self._check_host(host)
        origin = headers.get(b"origin")
        if origin is not None and origin not in self._good_origins:
            self._check_origin(origin)

    def _check_host(self, host: bytes) -> None:
        place = parse_host(host)
        if place is None or not matches(place, self._hosts):
            raise HttpProblem(
                421,
                "Unknown Host header: this server does not answer to that name.",
                suggestion="If the name is right, add it to the setting mcp.hosts.",
            )
        _keep(self._good_hosts, host)

    def _check_origin(self, origin: bytes) -> None:
        if origin.decode("latin-1").lower() not in self._origins and not is_local_page(origin):
            raise HttpProblem(
                403,
                "Scripts of this web page may not call.",
                suggestion="If they should, add it to the setting mcp.origins.",
            )
        _keep(self._good_origins, origin)

    # -- who sent it

    def known(self, headers: Headers) -> Credential | None:
        """Who it is, where that takes no look at the store; None: ask `check`."""
        sent = headers.get(b"authorization", b"")
        return self._keys.known(sent[7:]) if sent[:7] == b"Bearer " else None

    async def check(self, scope: "Scope", headers: Headers) -> Credential:
        """Who it is; raises an HttpProblem for a stranger."""
        sent = headers.get(b"authorization")
        if sent is None:
            raise _stranger("This needs a key: send it as `Authorization: Bearer tg_…`.")
        if sum(name == b"authorization" for name, _ in scope["headers"]) > 1:
            raise _stranger("There is more than one Authorization header.", "invalid_request")
        kind, _, text = sent.partition(b" ")
        key = text.strip()
        if kind.lower() != b"bearer" or not key:
            raise _stranger("The Authorization header must be `Bearer` and a key.", "invalid_request")
        credential = self._keys.known(key) or await self._look_up(scope, key)
        if credential is None:
            raise _stranger("The key is not valid: it is wrong, expired or revoked.", "invalid_token")
        return credential

    async def _look_up(self, scope: "Scope", key: bytes) -> Credential | None:
        """Who holds a key; where many were wrong, it takes a while before that is even looked at."""
        digest, parts = sha256(key).digest(), parse(key)
        id, address = "" if parts is None else parts[0], self._proxies.client(_peer(scope), scope["headers"])
        delay = self.attempts.delay(digest, id, address)
        if delay:
            await asyncio.sleep(delay)
        credential = await self._keys.check(key)
        if credential is None:
            self.attempts.failed(digest, id, address)
        else:
            self.attempts.succeeded(digest)
        return credential

    async def is_still_good(self, headers: Headers) -> bool:
        """Whether a key that was good when a request began is so still."""
        sent = headers.get(b"authorization")
        if sent is None:
            return True
        key = sent.partition(b" ")[2].strip()
        return self._keys.known(key) is not None or await self._keys.check(key) is not None


def check_single(pairs: Iterable[tuple[bytes, bytes]]) -> None:
    """Raises an HttpProblem for a header that may stand once, and stands there more than once."""
    seen: set[bytes] = set()
    for name, _ in pairs:
        if name in SINGLE and name in seen:
            raise HttpProblem(400, f"There is more than one {name.decode()} header.")
        seen.add(name)


def is_local(scope: "Scope", headers: Headers) -> bool:
    """Whether a request was made on this machine, by the address of its connection; not if a proxy passed it on."""
    client = scope.get("client")
    if not client or not FORWARDED.isdisjoint(headers):
        return False
    if client[0] == "127.0.0.1":
        return True
    try:
        address = ip_address(client[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _peer(scope: "Scope") -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _keep(known: set[bytes], value: bytes) -> None:
    if len(known) < MAX_REMEMBERED:
        known.add(value)


def _stranger(message: str, error: str | None = None) -> HttpProblem:
    challenge = 'Bearer realm="toolgate"' + ("" if error is None else f', error="{error}"')
    advice = "`toolgate keys create NAME` makes a key."
    return HttpProblem(401, message, suggestion=advice, headers={"www-authenticate": challenge})

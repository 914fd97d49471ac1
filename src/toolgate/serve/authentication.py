"""Authenticates requests over HTTP: where they were sent to, by which page, from which address, and with whose key.

Before all else, the Host that a request names must be one of ours and the Origin, if a web page sent it, one that may;
otherwise any page that a person opens could reach a server on their machine under a name of its own (DNS rebinding). Then
the key. A header that was forwarded makes nobody local; on the contrary, it says that the request came from somewhere else.

Host and Origin are read by grammars that list what is allowed (RFC 9110 section 7.2, RFC 6454 section 7). A parser of URLs
forgives too much: it drops tabs and line ends, and ignores what follows a bracket, so that a stranger's name looks ours.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from starlette.types import Scope

from toolgate.app.app import App
from toolgate.app.keys import parse
from toolgate.mcp.server.identity import Credential
from toolgate.serve.problems import HttpProblem

FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})
"""Headers that a proxy adds: whoever sent the request is elsewhere."""
SINGLE = frozenset({
    b"authorization", b"content-encoding", b"content-length", b"content-type", b"host", b"idempotency-key", b"if-match",
    b"if-none-match", b"last-event-id", b"origin",
})  # fmt: skip
"""Headers of which there may be one: who reads the first and who reads the last would not agree."""
MAX_REMEMBERED = 1_000
"""Hosts, and origins, that were good before and are not parsed again."""
FREE_OF_ID, FREE_OF_ADDRESS = 5, 30
"""Failures that cost nothing: people mistype, and deploy old keys."""
FIRST_SECONDS, MAX_SECONDS_OF_ID, MAX_SECONDS_OF_ADDRESS = 0.05, 2.0, 0.5
FORGET_SECONDS = 60.0
"""Without a failure for this long, the count begins anew."""
MAX_COUNTED = 10_000
"""Of ids, and of addresses. The one whose last failure is the oldest gives way."""
MAX_GOOD = 10_000
MAX_HOST_CHARS = 253
MAX_FORWARDED_CHARS = 4_096
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([0-9A-Za-z_.-]{1,253}))(?::([0-9]{1,5}))?", re.ASCII)
_LABEL = re.compile(r"[0-9a-z_](?:[0-9a-z_-]{0,61}[0-9a-z_])?", re.ASCII)
_NODE = re.compile(r'for=(?:"(\[[0-9A-Fa-f:.]+\]|[0-9.]+)(?::[0-9]{1,5})?"|([0-9.]+))', re.ASCII | re.IGNORECASE)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Headers = Mapping[bytes, bytes]


class Authenticator:
    def __init__(self, app: App) -> None:
        settings = app.settings
        own = {settings.serve.host} - {"", "0.0.0.0", "::"}
        self._hosts = LOOPBACK | host_names((*settings.mcp.hosts, *own))
        self._origins = frozenset(origin.rstrip("/").lower() for origin in settings.mcp.origins)
        self._proxies = TrustedProxies(settings.serve.proxies)
        self._keys = app.keys
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
                "The Host header names a host that this server does not answer to.",
                suggestion="If the name is right, add it to the setting mcp.hosts.",
            )
        _keep(self._good_hosts, host)

    def _check_origin(self, origin: bytes) -> None:
        if origin.decode("latin-1").lower() not in self._origins and not is_local_page(origin):
            raise HttpProblem(
                403,
                "Scripts of the web page in the Origin header may not call this server.",
                suggestion="If they should, add its origin to the setting mcp.origins.",
            )
        _keep(self._good_origins, origin)

    # -- who sent it

    def known(self, headers: Headers) -> Credential | None:
        """The credential of a request, if that takes no look at the store; None: ask `check`."""
        sent = headers.get(b"authorization", b"")
        return self._keys.known(sent[7:]) if sent[:7] == b"Bearer " else None

    async def check(self, scope: Scope, headers: Headers) -> Credential:
        """The credential of a request. Raises an HttpProblem for a stranger."""
        sent = headers.get(b"authorization")
        if sent is None:
            raise _stranger("The request has no key: send one as `Authorization: Bearer tg_…`.")
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

    async def _look_up(self, scope: Scope, key: bytes) -> Credential | None:
        """The credential of a key; where many keys were wrong, it takes a while before this one is even looked at."""
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
        """True if a key that was good when a request began is so still."""
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


def is_local(scope: Scope, headers: Headers) -> bool:
    """True if a request was made on this machine, by the address of its connection; not if a proxy passed it on."""
    address = _address(_peer(scope)) if FORWARDED.isdisjoint(headers) else None
    return address is not None and address.is_loopback


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _keep(known: set[bytes], value: bytes) -> None:
    if len(known) < MAX_REMEMBERED:
        known.add(value)


def _stranger(message: str, error: str | None = None) -> HttpProblem:
    challenge = 'Bearer realm="toolgate"' + ("" if error is None else f', error="{error}"')
    advice = "`toolgate keys create NAME` makes a key."
    return HttpProblem(401, message, suggestion=advice, headers={"www-authenticate": challenge})


# -- guesses of keys


class Counts:
    def __init__(self, free: int, longest: float, clock: Callable[[], float]) -> None:
        self._free, self._longest, self._clock = free, longest, clock
        self._failed: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failed)

    def add(self, name: str) -> None:
        self._failed[name] = self._count(name) + 1, self._clock()
        self._failed.move_to_end(name)
        if len(self._failed) > MAX_COUNTED:
            self._failed.popitem(last=False)

    def delay(self, name: str) -> float:
        over = self._count(name) - self._free
        return 0.0 if over < 0 else min(self._longest, FIRST_SECONDS * 2.0 ** min(over, 30))

    def _count(self, name: str) -> int:
        count, at = self._failed.get(name, (0, 0.0))
        return count if self._clock() - at < FORGET_SECONDS else 0


class KeyAttempts:
    """Slows down guesses of keys, and nobody else.

    Failures are counted for each key id, and for each address. Who presents a key of a hammered id or from a busy address
    waits before it is looked at, so that nothing can be told from how soon an answer comes; nobody is refused. Keys that
    were right before do not wait at all: behind a proxy that is not in `serve.proxies` all share one address, and a key id
    is no secret.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.by_id = Counts(FREE_OF_ID, MAX_SECONDS_OF_ID, clock)
        self.by_address = Counts(FREE_OF_ADDRESS, MAX_SECONDS_OF_ADDRESS, clock)
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def delay(self, digest: bytes, id: str, address: str) -> float:
        """Seconds that a key has to wait before it is looked at. `digest`: of the whole key."""
        return 0.0 if digest in self._good else max(self.by_id.delay(id), self.by_address.delay(address))

    def failed(self, digest: bytes, id: str, address: str) -> None:
        self._good.pop(digest, None)
        self.by_id.add(id)
        self.by_address.add(address)

    def succeeded(self, digest: bytes) -> None:
        self._good[digest] = None
        self._good.move_to_end(digest)
        if len(self._good) > MAX_GOOD:
            self._good.popitem(last=False)


# -- hosts and addresses


class HostPort(NamedTuple):
    """A host, in small letters and without brackets, and its port if one is named."""

    name: str
    port: int | None


def parse_host(value: bytes) -> HostPort | None:
    """The value of a Host header; None for anything that is not exactly a host and perhaps a port."""
    found = _HOST.fullmatch(value.decode("latin-1")) if len(value) <= MAX_HOST_CHARS + 6 else None
    if found is None:
        return None
    port = None if found[3] is None else int(found[3])
    if port is not None and not 0 < port < 65_536:
        return None
    if found[1] is None:
        name = found[2].lower()
        return HostPort(name, port) if all(map(_LABEL.fullmatch, name.split("."))) else None
    try:
        return HostPort(str(IPv6Address(found[1])), port)
    except ValueError:
        return None


def is_local_page(origin: bytes) -> bool:
    """True if an Origin header names a page that this machine serves."""
    scheme, separator, rest = origin.partition(b"://")
    place = parse_host(rest) if separator and scheme in (b"http", b"https") else None
    return place is not None and place.name in LOOPBACK


def host_names(configured: Iterable[str]) -> frozenset[str]:
    """Names of settings as `matches` compares them: `gate.example`, `gate.example:443`, `::1`, `[::1]:8700`."""
    names = set()
    for text in configured:
        plain = text.strip().lower()
        place = parse_host(plain.encode("utf-8")) or parse_host(f"[{plain}]".encode())
        names.add(plain if place is None else _text(place))
    return frozenset(names)


def matches(place: HostPort, names: frozenset[str]) -> bool:
    """True if a host is among names, with its port or with any."""
    return place.name in names or _text(place) in names


def _text(place: HostPort) -> str:
    return place.name if place.port is None else f"{place.name} {place.port}"


class TrustedProxies:
    """The proxies whose word about a client's address is taken (`serve.proxies`); of others it is not even read."""

    def __init__(self, configured: Sequence[str]) -> None:
        self._networks: tuple[Network, ...] = tuple(ip_network(one) for one in configured)

    def client(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The address that a request came from: the nearest one that is not a trusted proxy."""
        address = _address(peer)
        if address is None or not self._trusts(address):
            return peer if address is None else str(address)
        said = {self._nearest(address, hops) for hops in _hops(headers)}
        return str(said.pop() if len(said) == 1 else address)

    def _nearest(self, address: Address, hops: list[str]) -> Address:
        for hop in reversed(hops):
            found = _address(hop)
            if found is None:
                break  # what precedes something unreadable can't be vouched for
            address = found
            if not self._trusts(found):
                break
        return address

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def _hops(headers: Iterable[tuple[bytes, bytes]]) -> list[list[str]]:
    """The addresses that proxies have written down, the client's first, once for each header that is there: a proxy writes
    one of the two and passes on what a client wrote into the other, so where they differ neither can be believed."""
    said: dict[bytes, list[str]] = {}
    for name, value in headers:
        if name in (b"forwarded", b"x-forwarded-for"):
            said.setdefault(name, []).append(value.decode("latin-1")[-MAX_FORWARDED_CHARS:])
    found = []
    if b"forwarded" in said:
        found.append([_node(element) for element in ",".join(said[b"forwarded"]).split(",")])
    if b"x-forwarded-for" in said:
        found.append([hop.strip() for hop in ",".join(said[b"x-forwarded-for"]).split(",") if hop.strip()])
    return found


def _node(element: str) -> str:
    for pair in element.split(";"):
        found = _NODE.fullmatch(pair.strip())
        if found is not None:
            return (found[1] or found[2]).strip("[]")
    return ""


def _address(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address

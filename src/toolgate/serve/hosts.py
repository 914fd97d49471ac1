"""Hosts and addresses in the headers of requests: what they name, which are ours, and what trusted proxies say.

Host and Origin are read by grammars that list what is allowed (RFC 9110 section 7.2, RFC 6454 section 7). A parser of URLs
forgives too much: it drops tabs and line ends, and ignores what follows a bracket, so that a stranger's name looks ours.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from starlette.types import Scope


FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})
"""Headers that a proxy adds: whoever sent the request is elsewhere."""
MAX_HOST_CHARS = 253
MAX_FORWARDED_CHARS = 4_096
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
DEFAULT_PORTS = {"http": 80, "https": 443}

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([0-9A-Za-z_.-]{1,253}))(?::([0-9]{1,5}))?", re.ASCII)
_LABEL = re.compile(r"[0-9a-z_](?:[0-9a-z_-]{0,61}[0-9a-z_])?", re.ASCII)
_NODE = re.compile(r'for=(?:"(\[[0-9A-Fa-f:.]+\]|[0-9.]+)(?::[0-9]{1,5})?"|([0-9.]+))', re.ASCII | re.IGNORECASE)
_PROTO = re.compile(r'(?:^|;)\s*proto="?(https?)"?\s*(?:;|$)', re.ASCII | re.IGNORECASE)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Headers = Mapping[bytes, bytes]


def is_local(scope: "Scope", headers: Headers) -> bool:
    """True if a request was made on this machine, by the address of its connection; not if a proxy passed it on."""
    address = _address(peer_of(scope)) if FORWARDED.isdisjoint(headers) else None
    return address is not None and address.is_loopback


def peer_of(scope: "Scope") -> str:
    """The address of a request's connection; empty if it is not known."""
    client = scope.get("client")
    return str(client[0]) if client else ""


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

    def scheme(self, scope: "Scope") -> str:
        """http or https: as the connection is or, if it is that of a trusted proxy, as the client's was by its word."""
        address, own = _address(peer_of(scope)), str(scope.get("scheme", "http"))
        if address is None or not self._trusts(address):
            return own
        said = set(_schemes(scope["headers"]))
        return said.pop() if len(said) == 1 else own

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


def _schemes(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[str]:
    """What proxies say of the client's connection: the nearest one's word, once for each header that is there."""
    for name, value in headers:
        last = value.decode("latin-1")[-MAX_FORWARDED_CHARS:].rpartition(",")[2].strip()
        found = _PROTO.search(last) if name == b"forwarded" else None
        if name == b"x-forwarded-proto":
            yield last.lower() if last.lower() in DEFAULT_PORTS else "http"
        elif found is not None:
            yield found[1].lower()


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

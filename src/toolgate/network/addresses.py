"""Host names and addresses: how they are written, which form is compared, and which addresses are public.

Nothing here resolves a name or connects.
"""

import ipaddress
import re
import socket

HOST_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
NAT64 = ipaddress.ip_network("64:ff9b::/96")
GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        ("168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2001:db8::/32", "3fff::/20"),
    )
)
"""Networks that not every version of Python knows as private; and the metadata address of Azure, which is a public one."""
LOCAL_SUFFIXES = ("localhost", "local", "localdomain", "internal", "intranet", "private", "corp", "home", "lan", "home.arpa")
"""Endings of names that no public DNS server answers for: whatever answers is inside."""


def is_loopback(host: str) -> bool:
    """Tells whether a host is this machine, by its address or by the name localhost."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def split_port(text: str) -> tuple[str, int | None]:
    """Host and port of `host:port` or `[v6]:port`, in lower case. Raises ValueError."""
    found = re.fullmatch(r"\[([0-9a-f:.]+)\](?::([0-9]{1,5}))?|([^\[\]:]+)(?::([0-9]{1,5}))?", text.lower())
    if found is None:
        raise ValueError(f"{text!r} is not a host, or its port is none")
    port = found[2] or found[4]
    if port is not None and not 0 < int(port) < 65_536:
        raise ValueError(f"{text!r}: there is no port {port}")
    return found[1] or found[3], int(port) if port else None


def canonical(host: str) -> str | None:
    """The form of a host name that is compared; None: it is invalid, as are numbers that some take for an address."""
    host = host.lower().removesuffix(".")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            return None
    labels = host.split(".")
    numeric = re.fullmatch(r"[0-9]+|0x[0-9a-f]*", labels[-1])
    return host if len(host) <= 253 and all(map(HOST_LABEL.fullmatch, labels)) and not numeric else None


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_public(address: str) -> bool:
    """True for addresses outside private networks. One that wraps another (6to4, NAT64, mapped) is judged by that."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if inner is None and found in NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(str(inner))
        if found not in GLOBAL_UNICAST:
            return False
    if any(found in network for network in NOT_PUBLIC if network.version == found.version):
        return False
    return found.is_global and not found.is_multicast and not found.is_reserved


def is_local_name(name: str) -> bool:
    """True for names that only a private network or this machine can give an address: one label, or a local ending."""
    return "." not in name or name.endswith(tuple(f".{suffix}" for suffix in LOCAL_SUFFIXES))


def is_own(address: str) -> bool:
    """True for the addresses of this machine, public ones included: what listens there trusts its own machine."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except (OSError, ValueError):
        return False
    return True

"""Host names and addresses: how they are written, which form is compared, and which addresses are public.

Pure text and arithmetic: nothing here resolves a name or connects.
"""

import ipaddress
import re

HOST_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
NAT64 = ipaddress.ip_network("64:ff9b::/96")


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
        if found.teredo is not None or int(found) >> 32 == 0:  # and the old way of wrapping: ::1.2.3.4
            return False
    return found.is_global and not found.is_multicast and not found.is_reserved

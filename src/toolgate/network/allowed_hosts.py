"""The hosts that a server or a command may reach, as settings name them.

They are written `api.example.com`, `*.example.com` or `db.example.com:5432`.

Without a port, 443 and 80 are allowed. Addresses of this machine and of private networks are refused, whatever name leads
there, unless that host is named with its port.
"""

import ipaddress
from collections.abc import Sequence
from typing import Literal, NamedTuple

from toolgate.network.addresses import canonical, is_address, split_port

DEFAULT_PORTS = (443, 80)
PROXY_PORT = 3128
MAX_HOSTS = 100

AddressScope = Literal["public", "any"]
"""The addresses of a host that may be connected to."""


class HostRule(NamedTuple):
    """One entry of the setting `domains`."""

    host: str
    """Without the `*.` of a wildcard; in lower case."""
    port: int | None
    wildcard: bool = False


class ForwardedPort(NamedTuple):
    """An address in the jail and its target: a host and port, or, without a host, the proxy."""

    address: str
    port: int
    host: str | None


class LoopbackLayout(NamedTuple):
    """The network of a jail."""

    places: tuple[ForwardedPort, ...]
    names: dict[str, str]
    """Its /etc/hosts: name to address."""
    proxy_port: int


def parse_host_rule(text: str) -> HostRule:
    """Raises ValueError that says what is wrong."""
    if "://" in text or "/" in text:
        raise ValueError(f"{text!r} is not a host: write api.example.com, *.example.com or db.example.com:5432")
    host, port = split_port(text.strip())
    wildcard = host.startswith("*.")
    host = host.removeprefix("*.")
    if is_address(host):
        if wildcard or port is None:
            raise ValueError(f"{text!r} is an address: name it with its port")
        return HostRule(str(ipaddress.ip_address(host)), port)
    name = canonical(host)
    if name is None or (wildcard and "." not in name):
        raise ValueError(f"{text!r} is not a host: write api.example.com, *.example.com or db.example.com:5432")
    return HostRule(name, port, wildcard)


class AllowedHosts:
    """The allowed hosts of one server."""

    def __init__(self, listed: Sequence[str]) -> None:
        """Raises ValueError for an invalid entry."""
        if len(listed) > MAX_HOSTS:
            raise ValueError(f"more than {MAX_HOSTS} hosts are named")
        self.rules = tuple(map(parse_host_rule, listed))

    def leave(self, host: str, port: int) -> AddressScope | None:
        """The scope of a host and port; None: it may not be reached."""
        name = str(ipaddress.ip_address(host)) if is_address(host) else canonical(host)
        found: AddressScope | None = None
        for rule in self.rules:
            if name is None or not _covers(rule, name, port):
                continue
            if not rule.wildcard and rule.port is not None:
                return "any"
            found = "public"
        return found

    def layout(self) -> LoopbackLayout:
        """Gives each named host a loopback address of its own, so that two of them may have the same port."""
        names = {"localhost": "127.0.0.1"}
        places: dict[tuple[str, int], ForwardedPort] = {}
        for rule in self.rules:
            address = _address_of(rule, names)
            if address is None:
                continue
            for port in DEFAULT_PORTS if rule.port is None else (rule.port,):
                places.setdefault((address, port), ForwardedPort(address, port, rule.host))
        proxy = next(port for port in range(PROXY_PORT, 65_536) if ("127.0.0.1", port) not in places)
        return LoopbackLayout((ForwardedPort("127.0.0.1", proxy, None), *places.values()), names, proxy)


def _covers(rule: HostRule, name: str, port: int) -> bool:
    if port not in (DEFAULT_PORTS if rule.port is None else (rule.port,)):
        return False
    return name.endswith(f".{rule.host}") if rule.wildcard else name == rule.host


def _address_of(rule: HostRule, names: dict[str, str]) -> str | None:
    """Its address in the jail; None for what only the proxy reaches: wildcards, and addresses of other machines."""
    if rule.wildcard:
        return None
    if is_address(rule.host):
        return rule.host if ipaddress.ip_address(rule.host).is_loopback else None
    if rule.host not in names:
        number = len(names)
        names[rule.host] = f"127.77.{number // 250}.{number % 250 + 1}"
    return names[rule.host]

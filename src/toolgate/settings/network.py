"""Settings of the HTTP client: what built-in tools may reach."""

from pydantic import Field, field_validator

from toolgate.network.allowed_hosts import MAX_HOSTS, parse_host_rule
from toolgate.settings.section import Section


class NetworkSettings(Section):
    """The hosts that the built-in tools may reach over HTTP, besides public ones."""

    allow: tuple[str, ...] = Field(default=(), max_length=MAX_HOSTS)
    """Hosts that may be reached although their address is private, each with its port: `wiki.example.com:8443`,
    `10.0.0.5:80`."""
    ports: tuple[int, ...] = (443, 80)
    """Ports of public hosts that may be reached."""

    @field_validator("allow")
    @classmethod
    def _hosts_with_port(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            rule = parse_host_rule(host)
            if rule.wildcard or rule.port is None:
                raise ValueError(f"{host!r} must be one host with its port, such as wiki.example.com:8443")
        return hosts

    @field_validator("ports")
    @classmethod
    def _real_ports(cls, ports: tuple[int, ...]) -> tuple[int, ...]:
        for port in ports:
            if not 0 < port < 65_536:
                raise ValueError(f"there is no port {port}")
        return ports

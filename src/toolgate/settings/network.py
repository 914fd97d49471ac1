"""Settings of the network: what built-in tools may reach over HTTP, the search engine, and agents."""

from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from toolgate.errors import ToolgateError
from toolgate.network.allowed_hosts import MAX_HOSTS, parse_host_rule
from toolgate.network.urls import parse_url
from toolgate.settings.section import Section


def _hosts_with_port(hosts: tuple[str, ...]) -> tuple[str, ...]:
    for host in hosts:
        rule = parse_host_rule(host)
        if rule.wildcard or rule.port is None:
            raise ValueError(f"{host!r} must be one host with its port, such as wiki.example.com:8443")
    return hosts


PrivateHosts = Annotated[tuple[str, ...], Field(max_length=MAX_HOSTS), AfterValidator(_hosts_with_port)]
"""Hosts that may be reached although their address is private, each with its port."""


class NetworkSettings(Section):
    """The hosts that the built-in tools may reach over HTTP, besides public ones."""

    allow: PrivateHosts = ()
    """Hosts that may be reached although their address is private, each with its port: `wiki.example.com:8443`,
    `10.0.0.5:80`."""
    ports: tuple[int, ...] = (443, 80)
    """Ports of public hosts that may be reached."""

    @field_validator("ports")
    @classmethod
    def _real_ports(cls, ports: tuple[int, ...]) -> tuple[int, ...]:
        for port in ports:
            if not 0 < port < 65_536:
                raise ValueError(f"there is no port {port}")
        return ports


class SearchSettings(Section):
    """The search engine of the tool search_engine."""

    searxng_url: str | None = None
    """The base URL of a SearXNG whose JSON format is enabled. None: the tool web_search of an MCP server."""

    @field_validator("searxng_url")
    @classmethod
    def _web_address(cls, url: str | None) -> str | None:
        return None if url is None else checked_url(url)


class A2aSettings(Section):
    """The agents that the tool a2a_chat may talk to, besides those at public addresses."""

    agents: dict[str, str] = Field(default_factory=dict)
    """By a name for it, the URL of each agent: `{planner: "http://10.0.0.7:9000"}`."""

    @field_validator("agents")
    @classmethod
    def _web_addresses(cls, agents: dict[str, str]) -> dict[str, str]:
        return {name: checked_url(url) for name, url in agents.items()}


def checked_url(url: str) -> str:
    try:
        parse_url(url)
    except ToolgateError as error:
        raise ValueError(error.message) from None
    return url

"""Settings of the HTTP server, and of sessions that users share."""

from ipaddress import ip_network
from typing import Literal

from pydantic import Field, field_validator

from toolgate.settings.section import Section


class ServeSettings(Section):
    """The HTTP server."""

    host: str = "127.0.0.1"
    """The address that it listens on."""
    port: int = Field(default=8700, ge=0, le=65_535)
    """0: any that is free."""
    body_bytes: int = Field(default=4_194_304, ge=1_024, le=1_000_000_000)
    """The largest request that is taken."""
    proxies: tuple[str, ...] = ()
    """Addresses and networks of reverse proxies (`10.0.0.7`, `10.1.0.0/16`) whose `Forwarded` and `X-Forwarded-For` headers
    say where a request came from."""

    @field_validator("proxies")
    @classmethod
    def _are_networks(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            ip_network(proxy)
        return proxies

    workspace: Literal["own", "here"] = "own"
    """Where calls that name no session work. own: in a folder of their user's own in `home`. here: those of the tenant
    `default` in the folder that the server runs in, whoever their user is."""


class SharedSession(Section):
    """A session that several users of a tenant have in common."""

    tenant: str = "default"
    """Whose users they are."""
    name: str
    """What they call it."""
    users: tuple[str, ...] = Field(min_length=1)
    """Who they are: to everybody else the name means a session of their own."""


class SessionSettings(Section):
    """Sessions belong to one user each, unless they are named here."""

    shared: tuple[SharedSession, ...] = ()
    """Sessions whose files several users have in common: `[{tenant: acme, name: report, users: [ann, bob]}]`."""

"""The name of a secret, and its owner: everybody, a tenant, a user of a tenant, or Toolgate itself.

A secret is kept under a key: `NAME`, `tenant/NAME` or `tenant/user/NAME`. A caller gives only the NAME, which has no slash;
the rest comes from who it is. Tenants and users may have any printable name, so theirs are quoted: two actors never share
a key. Names are told apart without regard to case, as is usual for what may come from the environment.

What Toolgate itself needs, to connect MCP servers, is kept under `servers:/NAME` and `mcp:/NAME`. The name of a space ends
with a colon, which is quoted in the name of a tenant, so no reference of a caller leads there, whatever it is called.
"""

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from toolgate.model import Actor
from toolgate.settings import SECRET_NAME

REFERENCE = re.compile(r"\{\{\s{0,8}secret:([^{}]{0,200})\}\}")
NAME = SECRET_NAME
ENVIRONMENT_PREFIX = "TOOLGATE_SECRET_"
SERVER_PREFIX = "TOOLGATE_SERVER_SECRET_"
SERVERS, LOGINS = "servers:", "mcp:"
"""Toolgate's own spaces: what the settings of servers refer to, and what is kept of logins at servers."""
SPACES = {SERVERS: "Toolgate itself and MCP servers", LOGINS: "a login at an MCP server"}


class Owner(NamedTuple):
    """The owner of a secret; without a tenant, everybody, unless it is in a space of Toolgate's own."""

    tenant: str | None = None
    user: str | None = None
    space: str | None = None

    def __str__(self) -> str:
        if self.space is not None:
            return SPACES[self.space]
        if self.tenant is None:
            return "everybody"
        return f"tenant {self.tenant}" if self.user is None else f"user {self.user} of tenant {self.tenant}"


EVERYBODY = Owner()
OF_SERVERS, OF_LOGINS = Owner(space=SERVERS), Owner(space=LOGINS)


def key_of(name: str, owner: Owner = EVERYBODY) -> str:
    """The key under which a secret is kept."""
    if not NAME.match(name):
        raise ValueError("the name of a secret has letters, digits and _, and does not begin with a digit")
    if owner.user is not None and owner.tenant is None:
        raise ValueError("a user belongs to a tenant: name it too")
    if owner.space is not None:
        return f"{owner.space}/{name.upper()}"
    return "/".join([*(quote(part, safe="") for part in owner[:2] if part is not None), name.upper()])


def keys_for(name: str, actor: Actor) -> tuple[str, str, str]:
    """The keys under which an actor's secret may be kept: its own first, then its tenant's, then everybody's."""
    tenant, user = quote(actor.tenant, safe=""), quote(actor.user, safe="")
    return f"{tenant}/{user}/{name}", f"{tenant}/{name}", name


def folded(key: str) -> str:
    """A key with its name in capitals."""
    owner, slash, name = key.rpartition("/")
    return f"{owner}{slash}{name.upper()}"


def parsed(key: str) -> tuple[str, Owner]:
    """Name and owner of a key."""
    *owner, name = key.split("/")
    if owner and owner[0] in SPACES:
        return name, Owner(space=owner[0])
    return name, Owner(*map(unquote, owner))

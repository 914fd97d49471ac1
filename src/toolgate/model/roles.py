"""Roles of credentials: what the holder of an API key, a token or a browser session may do over HTTP.

A role is about Toolgate itself: looking at calls, calling tools at all, answering approvals, changing what belongs to a
tenant or to the installation. Which tools somebody may call is the policy's affair, by tenant and persona.
"""

from collections.abc import Iterable
from typing import Literal, get_args

Role = Literal["guest", "viewer", "caller", "approver", "admin", "operator"]
Permission = Literal["own", "call", "read", "answer", "administer", "operate"]
"""Permissions of roles.

own: see what one's own user did and owns. call: call tools, and change what one's own user owns. read: see what all users of
the tenant do. answer: answer approvals of the tenant. administer: change what belongs to the tenant. operate: act for the
whole installation, in any tenant.
"""

ROLES: tuple[Role, ...] = get_args(Role)
DEFAULT_ROLES: tuple[Role, ...] = ("caller",)

# A caller is mostly an agent: it does not read what other users of its tenant do.
# A guest's key is there for one of its scopes, such as metrics: it looks at tools, and calls none.
_PERMISSIONS: dict[str, frozenset[Permission]] = {
    "guest": frozenset({"own"}),
    "viewer": frozenset({"own", "read"}),
    "caller": frozenset({"own", "call"}),
    "approver": frozenset({"own", "read", "answer"}),
    "admin": frozenset({"own", "call", "read", "answer", "administer"}),
    "operator": frozenset({"own", "call", "read", "answer", "administer", "operate"}),
}


def permissions_of(roles: Iterable[str]) -> frozenset[Permission]:
    """Gives what roles permit together. A role that is not known permits nothing."""
    return frozenset[Permission]().union(*(_PERMISSIONS.get(role, frozenset()) for role in roles))


def checked_roles(roles: Iterable[str]) -> tuple[Role, ...]:
    """Gives roles in their order, each once. Raises `ValueError` for none at all and for one that is not known."""
    given = set(roles)
    unknown = given.difference(ROLES)
    if unknown or not given:
        raise ValueError(f"Roles must be one or more of {', '.join(ROLES)}, not {', '.join(sorted(unknown)) or 'none'}.")
    return tuple(role for role in ROLES if role in given)

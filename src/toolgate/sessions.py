"""The owner of a session: the tenant and the user of its calls, whatever their persona. Another user who names it
has a session of their own by that name. What several users share, the operator declares; nothing is shared by
default, because the name of a session comes from its caller and proves nothing. What is held against a session, and what its
user said in it, is not shed by naming another one either: a session that a client names is a part of its connection's."""

from collections.abc import Iterable
from typing import NamedTuple

from toolgate.model import LOCAL_DOORS, Actor, Call


class SessionKey(NamedTuple):
    """The key of everything that is kept for a session."""

    tenant: str
    user: str | None
    """None: it is shared between users."""
    name: str | None
    """None: the calls of this user that name no session."""


class Sessions:
    """The sessions that are shared, and of whom."""

    def __init__(self) -> None:
        self._shared: dict[tuple[str, str], frozenset[str]] = {}

    def share(self, tenant: str, name: str, users: Iterable[str]) -> None:
        """Let these users of a tenant, and no others, have one session of this name in common. Said again, the new list
        holds; an empty one ends the sharing."""
        listed = frozenset(users)
        if listed:
            self._shared[tenant, name] = listed
        else:
            self._shared.pop((tenant, name), None)

    def key(self, actor: Actor, name: str | None) -> SessionKey:
        if name is not None and self._shared and actor.user in self._shared.get((actor.tenant, name), ()):
            return SessionKey(actor.tenant, None, name)
        return SessionKey(actor.tenant, actor.user, name)


def lineage(call: Call) -> tuple[SessionKey, ...]:
    """The sessions whose history a call has: its own, and the whole of which that is a part.

    The whole is the session of the connection. Where there is none (the HTTP API, MCP 2026-07-28) it is that of the user's
    calls which name no session. Only who runs Toolgate's own process names a session that is a whole. No user has another's
    history, also where they share the session's files.
    """
    tenant, user = call.actor.tenant, call.actor.user
    own = SessionKey(tenant, user, call.session or None)
    if call.connection is None and call.door in LOCAL_DOORS:
        return (own,)
    whole = SessionKey(tenant, user, call.connection)
    return (own,) if own == whole else (own, whole)

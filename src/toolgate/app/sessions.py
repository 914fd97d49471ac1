"""`app.sessions`: the folders of sessions, and the users who share one."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from toolgate.model import LOCAL, Actor

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts


class SessionsFacet:
    """The sessions that calls name."""

    def __init__(self, parts: "Parts") -> None:
        self._places = parts.places
        self._sessions = parts.sessions

    def work_in(
        self, session: str, folder: str | os.PathLike[str], *, tenant: str = LOCAL.tenant, user: str = LOCAL.user
    ) -> Path:
        """Sets the folder in which the calls of a user's session read and write files and run commands."""
        return self._places.set(Actor(tenant, user=user), session, Path(folder))

    def share(self, name: str, with_users: Iterable[str], *, tenant: str = LOCAL.tenant) -> None:
        """Shares one session, with its files and providers, among these users of a tenant, until the App is closed. For
        everybody else the name means a session of their own. The setting `sessions.shared` does it for good."""
        if isinstance(with_users, str):
            raise TypeError("with_users must be a list of users, not one text")
        self._sessions.share(tenant, name, with_users)

"""Credentials that were checked a moment ago, so that not every request takes a look at the store or a signature.

A revocation in any process ends that at once: it is announced like a changed flag, and whoever sees one forgets all.
"""

import time
from hashlib import sha256
from typing import TYPE_CHECKING

from toolgate.mcp.server.identity import Credential

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

MAX_KNOWN = 10_000


class KnownCredentials:
    """Credentials by the hash of what was sent as their proof."""

    def __init__(self, parts: "Parts") -> None:
        self._parts = parts
        self._known: dict[bytes, tuple[Credential, float]] = {}
        """And until when that is taken for granted."""
        self._epoch = -1

    def __len__(self) -> int:
        return len(self._known)

    def get(self, text: bytes) -> Credential | None:
        """Gives whose proof this is, if it was checked a moment ago and nothing has changed since."""
        if self._parts.notices.changed() or self._parts.policy.data.epoch != self._epoch:
            return None
        found = self._known.get(sha256(text).digest())
        return found[0] if found is not None and found[1] > time.monotonic() else None

    async def catch_up(self) -> int:
        """Takes over what other processes changed. To be called before a check; gives what `keep` wants to know."""
        if self._parts.notices.changed():
            await self._parts.notices.catch_up(self._parts.store_sync.refresh)
        if self._parts.policy.data.epoch != self._epoch:
            self._known.clear()
            self._epoch = self._parts.policy.data.epoch
        return self._epoch

    def keep(self, text: bytes, credential: Credential, seconds: float, epoch: int) -> None:
        """Remembers a credential for a while, unless something has changed since its check began."""
        if epoch != self._epoch:
            return
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[sha256(text).digest()] = credential, time.monotonic() + seconds

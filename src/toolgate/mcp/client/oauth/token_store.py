"""Stores the login at a remote server as secrets: tokens, client registration and pinned issuer.

A token is for the URL that it was issued for: if the server's settings name another one, there is none. What a refresh needs
(the endpoint and the expiry) is stored with it, since a later process knows nothing else. Neither callers nor server
settings can refer to these names: the store keeps them where nothing else reads them.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from toolgate.errors import StoreError
from toolgate.threads import to_thread

ReadToken = Callable[[str], str | None]
KeepToken = Callable[[str, str], None]

logger = logging.getLogger(__name__)
_PLAIN_NAME = re.compile(r"[a-z0-9_]{1,64}\Z")


def secret_name(server: str, what: str) -> str:
    """The name of a server's secret; no two servers share one."""
    plain = re.sub(r"[^A-Z0-9_]", "_", server.upper())[:64]
    if _PLAIN_NAME.match(server) is None:
        plain += "_" + hashlib.sha256(server.encode()).hexdigest()[:8].upper()
    return f"MCP_{plain}_{what}"


class PinnedIssuer(NamedTuple):
    """The authorization server of a server's login."""

    issuer: str
    accepted: bool
    """True if a person named it; otherwise it was the first that the server named."""


class LoginStore:
    """The secrets of one server: `TOKENS`, `CLIENT` and `ISSUER`. Without a store they are kept in memory."""

    def __init__(self, server: str, url: str, read: ReadToken | None, keep: KeepToken | None) -> None:
        self._url, self._read, self._keep = url, read, keep
        self._names = {what: secret_name(server, what) for what in ("TOKENS", "CLIENT", "ISSUER")}
        self._memory: dict[str, str] = {}

    def get(self, what: str) -> dict[str, Any]:
        """The stored value; empty if there is none, or if it is for another URL."""
        name = self._names[what]
        try:
            text = self._memory.get(name) or (self._read(name) if self._read is not None else None)
            kept = orjson.loads(text) if text else {}
        except StoreError as error:
            logger.warning("a stored login cannot be read: %s", error.message)
            kept = {}
        except orjson.JSONDecodeError:
            kept = {}
        return kept if isinstance(kept, dict) and kept.get("url") == self._url else {}

    async def set(self, what: str, value: Mapping[str, Any]) -> None:
        name, text = self._names[what], orjson.dumps({**value, "url": self._url}).decode()
        if self._keep is None:
            self._memory[name] = text
            return
        try:
            await to_thread(self._keep, name, text)
            self._memory.pop(name, None)
        except StoreError as error:
            logger.warning("a login cannot be stored and is kept in memory only: %s", error.message)
            self._memory[name] = text

    async def want(self, status: int, challenge: str) -> None:
        """Stores the challenge of a refused request, for the next login."""
        kept = self.get("TOKENS")
        wanted = {"status": status, "challenge": challenge[:2_000]}
        if kept.get("wanted") != wanted:
            await self.set("TOKENS", {**kept, "wanted": wanted})


def pinned_issuer(kept: LoginStore) -> PinnedIssuer | None:
    """The pinned issuer; None before the first login. Logins from before pins existed count as one."""
    found = kept.get("ISSUER")
    issuer = found.get("issuer") or kept.get("TOKENS").get("issuer")
    return PinnedIssuer(issuer, found.get("accepted") is True) if isinstance(issuer, str) else None

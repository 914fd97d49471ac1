"""What is kept of a login at a remote server: tokens and the client's registration, as secrets of Toolgate's own.

A token is for the address that it was got for: if the server's settings name another one, it is as if there were none. What
a token can be renewed with (where, and until when it is good) is kept beside it, since a later process knows nothing else.
The names are not for callers, nor for the settings of servers: whoever wires this keeps them where nothing else can refer to
them, and reads them from there alone.
"""

import hashlib
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from toolgate.errors import StoreError
from toolgate.threads import to_thread

ReadToken = Callable[[str], str | None]
KeepToken = Callable[[str, str], None]

_log = logging.getLogger(__name__)
_PLAIN = re.compile(r"[a-z0-9_]{1,64}\Z")


def secret_name(server: str, what: str) -> str:
    """The name of a secret of a server's: no two servers share one."""
    plain = re.sub(r"[^A-Z0-9_]", "_", server.upper())[:64]
    if _PLAIN.match(server) is None:
        plain += "_" + hashlib.sha256(server.encode()).hexdigest()[:8].upper()
    return f"MCP_{plain}_{what}"


class PinnedIssuer(NamedTuple):
    """The authorization server that a server's login belongs to."""

    issuer: str
    accepted: bool
    """Whether a person named it; otherwise it was the first that the server named."""


class LoginStore:
    """The secrets of one server: `TOKENS`, `CLIENT` and `ISSUER` (its pin). Without a place to keep them, they last as long
    as this does."""

    def __init__(self, server: str, url: str, read: ReadToken | None, keep: KeepToken | None) -> None:
        self._url, self._read, self._keep = url, read, keep
        self._names = {what: secret_name(server, what) for what in ("TOKENS", "CLIENT", "ISSUER")}
        self._memory: dict[str, str] = {}

    def get(self, what: str) -> dict[str, Any]:
        """What is kept; empty if nothing is, or if it is for another address."""
        name = self._names[what]
        try:
            text = self._memory.get(name) or (self._read(name) if self._read is not None else None)
            kept = orjson.loads(text) if text else {}
        except StoreError as error:
            _log.warning("a login can't be read: %s", error.message)
            kept = {}
        except orjson.JSONDecodeError:
            kept = {}
        return kept if isinstance(kept, dict) and kept.get("url") == self._url else {}

    async def set(self, what: str, value: Mapping[str, Any]) -> None:
        """Keep a value in place of what there was."""
        name, text = self._names[what], orjson.dumps({**value, "url": self._url}).decode()
        if self._keep is None:
            self._memory[name] = text
            return
        try:
            await to_thread(self._keep, name, text)
            self._memory.pop(name, None)
        except StoreError as error:
            _log.warning("a login is kept in memory only: %s", error.message)
            self._memory[name] = text

    async def want(self, status: int, challenge: str) -> None:
        """Note what a server asked for when it refused us, so that the next login can ask for it."""
        kept = self.get("TOKENS")
        wanted = {"status": status, "challenge": challenge[:2_000]}
        if kept.get("wanted") != wanted:
            await self.set("TOKENS", {**kept, "wanted": wanted})


def pinned_issuer(kept: LoginStore) -> PinnedIssuer | None:
    """The issuer that is pinned; None before the first login. Logins of before there were pins hold one, too."""
    found = kept.get("ISSUER")
    issuer = found.get("issuer") or kept.get("TOKENS").get("issuer")
    return PinnedIssuer(issuer, found.get("accepted") is True) if isinstance(issuer, str) else None


def good_until(seconds: object) -> float | None:
    """When a token that is good for so many seconds has to be renewed."""
    return time.time() + float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None

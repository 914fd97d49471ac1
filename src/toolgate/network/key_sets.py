"""Sets of public keys (JWK sets, RFC 7517) with which the tokens of an issuer are checked: fetched, kept, fetched again.

The address is the operator's, or one that the issuer's metadata names (RFC 8414, OpenID Connect Discovery). It is https,
unless on this machine; no redirect is followed; size and time are limited. Only one fetch of a set is under way at a time,
so that a server which hangs holds nobody but who brings a token of its issuer, and those for a few seconds.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from toolgate.errors import ToolgateError
from toolgate.network.http_client import HttpClient
from toolgate.network.urls import Url, parse_url
from toolgate.tasks import BackgroundTasks, finish

FETCH_SECONDS = 5.0
"""For the metadata and the set together."""
MAX_SET_BYTES = 262_144
MAX_KEYS = 100
FRESH_SECONDS = 600.0
"""After this, a set is fetched again while the one that is known still serves."""
KEPT_SECONDS = 86_400.0
"""After this, keys that could not be fetched again are no longer taken."""
AGAIN_SECONDS = 30.0
"""A key that is not in the set makes it be fetched again, at most this often: anybody can invent the id of a key."""
RETRY_SECONDS = 5.0
"""After a fetch that failed, the next is not made before."""

Jwk = Mapping[str, Any]
Fetch = Callable[[], Awaitable[list[Jwk]]]

logger = logging.getLogger("toolgate")


class KeySetUnavailable(ToolgateError):
    """The keys of an issuer can't be fetched."""


class KeySet:
    """The keys of one issuer, as its server last gave them."""

    def __init__(self, name: str, fetch: Fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._fetch, self._clock = name, fetch, clock
        self._keys: list[Jwk] = []
        self._fetched_at = self._failed_at = self._began_at = float("-inf")
        self._failure = KeySetUnavailable()
        self._under_way: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks()

    async def find(self, id: str | None) -> list[Jwk]:
        """The keys of an id; None: all. Raises KeySetUnavailable."""
        age = self._clock() - self._fetched_at
        if age > KEPT_SECONDS:
            await self._refresh()
        elif age > FRESH_SECONDS and self._may_begin(RETRY_SECONDS):
            self._begin()
        found = self._of(id)
        if not found and self._may_begin(AGAIN_SECONDS):
            await self._refresh()
            found = self._of(id)
        return found

    def _of(self, id: str | None) -> list[Jwk]:
        return [key for key in self._keys if id is None or key.get("kid") == id]

    def _may_begin(self, seconds: float) -> bool:
        return self._under_way is not None or self._clock() - self._began_at >= seconds

    async def _refresh(self) -> None:
        """Waits for the fetch that is under way, or makes one. Raises KeySetUnavailable."""
        if self._under_way is None and self._clock() - self._failed_at < RETRY_SECONDS:
            raise self._failure
        await finish(self._begin())

    def _begin(self) -> asyncio.Task[None]:
        if self._under_way is None:
            self._began_at = self._clock()
            self._under_way = self._tasks.start(self._take(), unheard=True)
        return self._under_way

    async def _take(self) -> None:
        try:
            self._keys = await self._fetch()
            self._fetched_at = self._clock()
        except ToolgateError as error:
            self._failed_at = self._clock()
            self._failure = KeySetUnavailable(f"The keys of the issuer {self._name} cannot be fetched.")
            logger.warning("the keys of the issuer %s cannot be fetched: %s", self._name, error)
            raise self._failure from None
        finally:
            self._under_way = None

    async def close(self) -> None:
        await self._tasks.close()


class KeySetSource:
    """The server of a key set. `url`: where the set is; None: where the issuer's metadata says."""

    def __init__(self, http: HttpClient, issuer: str, url: str | None) -> None:
        self._http, self._issuer, self._url = http, issuer, url

    async def fetch(self) -> list[Jwk]:
        """The keys of the set. Raises a ToolgateError for anything else."""
        deadline = time.monotonic() + FETCH_SECONDS
        url, named = (self._url, True) if self._url is not None else await self._discover(deadline)
        document = await self._get(url, deadline, named=named)
        keys = document.get("keys") if document is not None else None
        if not isinstance(keys, list) or len(keys) > MAX_KEYS:
            raise KeySetUnavailable(f"{_place(parse_url(url))} gives no key set.")
        return [key for key in keys if isinstance(key, dict)]

    async def _discover(self, deadline: float) -> tuple[str, bool]:
        """The address of the set, and whether it is at the issuer's own origin."""
        for address in metadata_addresses(self._issuer):
            document = await self._get(address, deadline, named=True)
            if document is None:
                continue
            if document.get("issuer") != self._issuer:
                raise KeySetUnavailable("Its metadata names another issuer.")
            url = document.get("jwks_uri")
            if not isinstance(url, str):
                raise KeySetUnavailable("Its metadata names no jwks_uri.")
            found = parse_url(url)
            own = found.origin == parse_url(self._issuer).origin
            if not own and found.scheme != "https":
                raise KeySetUnavailable("Its metadata names a jwks_uri that does not begin with https://.")
            return url, own
        raise KeySetUnavailable("It has no metadata.", suggestion="Set jwks_url of the issuer.")

    async def _get(self, url: str, deadline: float, *, named: bool) -> dict[str, Any] | None:
        """The JSON object at an address; None if there is nothing. `named`: the operator named its origin, so that it may
        be a private one."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise KeySetUnavailable(f"It did not answer within {FETCH_SECONDS:g} s.")
        response = await self._http.request(
            "GET", url, headers={"accept": "application/json"}, timeout=left, max_bytes=MAX_SET_BYTES, redirects=0,
            trusted=named,
        )  # fmt: skip
        if response.status == 404:
            return None
        if response.status != 200:
            raise KeySetUnavailable(f"{_place(parse_url(url))} answers with the status {response.status}.")
        document = response.json()
        if not isinstance(document, dict):
            raise KeySetUnavailable(f"{_place(parse_url(url))} does not give a JSON object.")
        return document


def metadata_addresses(issuer: str) -> tuple[str, str]:
    """Where an issuer's metadata may be: as OpenID Connect has it, and as RFC 8414 has it."""
    url = parse_url(issuer)
    path = url.target.rstrip("/")
    return (
        str(url._replace(target=f"{path}/.well-known/openid-configuration")),
        str(url._replace(target=f"/.well-known/oauth-authorization-server{path}")),
    )


def _place(url: Url) -> str:
    return f"{url.scheme}://{url.authority}"

"""The keys of an issuer: fetched once for all who wait, kept while they can't be fetched, and not fetched too often."""

import asyncio

import pytest

from toolgate.network.key_sets import (
    AGAIN_SECONDS,
    FRESH_SECONDS,
    KEPT_SECONDS,
    RETRY_SECONDS,
    Jwk,
    KeySet,
    KeySetUnavailable,
    metadata_addresses,
)

pytestmark = pytest.mark.requirement("DOOR-3")


class Server:
    """A server of keys, and a clock."""

    def __init__(self) -> None:
        self.ids = ["one"]
        self.is_down = False
        self.fetches = 0
        self.at = 1_000.0
        self.set = KeySet("https://login.example.com", self.fetch, lambda: self.at)

    async def fetch(self) -> list[Jwk]:
        self.fetches += 1
        await asyncio.sleep(0)
        if self.is_down:
            raise KeySetUnavailable
        return [{"kid": id} for id in self.ids]

    async def has(self, id: str) -> bool:
        return bool(await self.set.find(id))


async def test_all_who_wait_share_one_fetch() -> None:
    server = Server()
    assert all(await asyncio.gather(*(server.has("one") for _ in range(20))))
    assert server.fetches == 1


async def test_a_key_that_is_not_known_is_looked_for_now_and_then() -> None:
    server = Server()
    assert await server.has("one")
    server.ids = ["two"]
    for _ in range(50):
        assert not await server.has("invented")
    assert server.fetches == 1
    server.at += AGAIN_SECONDS
    assert await server.has("two"), "keys rotate"
    assert not await server.has("one"), "and one that was taken back counts no longer"
    assert server.fetches == 2


async def test_keys_are_kept_while_they_can_not_be_fetched_but_not_for_ever() -> None:
    server = Server()
    assert await server.has("one")
    server.is_down = True
    server.at += FRESH_SECONDS + 1
    assert await server.has("one")
    await asyncio.sleep(0.01)  # the fetch beside it
    assert server.fetches == 2
    server.at += KEPT_SECONDS
    with pytest.raises(KeySetUnavailable):
        await server.has("one")
    await server.set.close()


async def test_a_server_that_is_down_is_not_asked_by_everybody() -> None:
    server = Server()
    server.is_down = True
    for _ in range(10):
        with pytest.raises(KeySetUnavailable):
            await server.has("one")
    assert server.fetches == 1
    server.is_down = False
    server.at += RETRY_SECONDS
    assert await server.has("one")


async def test_who_goes_away_does_not_end_the_fetch_of_others() -> None:
    server = Server()
    gone, staying = asyncio.ensure_future(server.has("one")), asyncio.ensure_future(server.has("one"))
    await asyncio.sleep(0)
    gone.cancel()
    assert await staying
    assert server.fetches == 1


@pytest.mark.parametrize(
    ("issuer", "addresses"),
    [
        (
            "https://login.example.com",
            (
                "https://login.example.com/.well-known/openid-configuration",
                "https://login.example.com/.well-known/oauth-authorization-server",
            ),
        ),
        (
            "https://login.example.com:8443/realms/main/",
            (
                "https://login.example.com:8443/realms/main/.well-known/openid-configuration",
                "https://login.example.com:8443/.well-known/oauth-authorization-server/realms/main",
            ),
        ),
    ],
)
def test_metadata_is_where_the_standards_say(issuer: str, addresses: tuple[str, str]) -> None:
    assert metadata_addresses(issuer) == addresses

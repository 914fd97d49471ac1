"""Commits of a PostgreSQL database that are held until a test lets them go: for what happens while one is on its way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from tests.patience import SOON

LOCK = 7
FUNCTION = f"""
CREATE FUNCTION hold() RETURNS trigger AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared({LOCK}); RETURN NULL; END $$ LANGUAGE plpgsql
"""
TRIGGER = "CREATE CONSTRAINT TRIGGER hold AFTER {event} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN ({when}) EXECUTE"

WAITING = """
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class Held:
    """Commits of one kind, once `begin` was called."""

    def __init__(self, connection: "asyncpg.Connection[Any]", event: str, when: str) -> None:
        self._connection, self._event, self._when = connection, event, when
        self._begun = asyncio.Event()

    async def begin(self) -> None:
        await self._connection.execute(f"SELECT pg_advisory_lock({LOCK})")
        await self._connection.execute(FUNCTION)
        await self._connection.execute(f"{TRIGGER.format(event=self._event, when=self._when)} FUNCTION hold()")
        self._begun.set()

    async def one_waits(self) -> None:
        """Wait until the server is in the middle of such a commit."""
        async with asyncio.timeout(SOON):
            await self._begun.wait()
            while not await self._connection.fetchval(WAITING):
                await asyncio.sleep(0.01)

    async def let_go(self, after: float = 0.0) -> None:
        """Let them end; after some seconds, in which nobody can see what they bring."""
        await asyncio.sleep(after)
        await self._connection.execute(f"SELECT pg_advisory_unlock({LOCK})")


@asynccontextmanager
async def held_commits(url: str, event: str, when: str) -> AsyncIterator[Held]:
    connection = await asyncpg.connect(url)
    try:
        yield Held(connection, event, when)
    finally:
        await connection.close()

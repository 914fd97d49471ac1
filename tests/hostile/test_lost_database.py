"""A database server that goes away and comes back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from toolgate import App, Outcome, tool
from toolgate.store import audit_log


@pytest.mark.matrix("needs PostgreSQL")
@pytest.mark.requirement("AUD-3", "PIPE-6")
async def test_calls_without_a_connection_are_refused_and_the_next_go_on(tmp_path: Path, postgres_database: str) -> None:
    effects: list[int] = []

    @tool(tier="write")
    async def count(number: int) -> int:
        """Has an effect."""
        effects.append(number)
        return number

    async with App.open(home=tmp_path / "home", database_url=postgres_database) as app:
        app.register(count)
        assert (await app.invoke("count", {"number": 0})).ok
        admin = await asyncpg.connect(postgres_database)
        results: list[Outcome] = []
        for _ in range(2):
            await admin.execute(
                "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid()"
            )
            going_on = 0
            async with asyncio.timeout(30):
                while going_on < 10:
                    results.append(await app.invoke("count", {"number": len(results) + 1}))
                    going_on = going_on + 1 if results[-1].ok else 0
                    await asyncio.sleep(0.01)
        await admin.close()
        refused = [outcome for outcome in results if not outcome.ok]
        assert refused
        for outcome in refused:
            assert outcome.error is not None
            assert outcome.error.code in ("UNEXPECTED_ERROR", "OUTCOME_UNKNOWN")
        unsure = [outcome for outcome in refused if outcome.error and outcome.error.code == "OUTCOME_UNKNOWN"]
        succeeded = [outcome.output for outcome in results if outcome.ok]
        assert len(effects) == 1 + len(succeeded) + len(unsure), "a refused call had its effect"
        verdict = await app.audit.verify()
        assert verdict.ok, verdict.faults


class LosesTheReply:
    """A connection whose next transaction is committed, but nobody learns of it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def transaction(self) -> Any:
        @asynccontextmanager
        async def lost() -> AsyncIterator[None]:
            async with self._connection.transaction():
                yield
            raise ConnectionResetError("the reply was lost")

        return lost()


@pytest.mark.matrix("needs PostgreSQL")
@pytest.mark.requirement("AUD-1", "AUD-2")
async def test_a_commit_whose_reply_is_lost_is_not_written_twice(tmp_path: Path, postgres_database: str) -> None:
    async with App.open(home=tmp_path / "home", database_url=postgres_database) as app:
        await app.invoke("echo", {"text": "first"})
        await app.flush()
        store: Any = app.parts.store
        store._log = LosesTheReply(store._log)
        for number in range(3):
            assert (await app.invoke("echo", {"text": str(number)})).ok
        async with asyncio.timeout(30):
            while store.trouble is None:
                await asyncio.sleep(0.01)
        assert "reply was lost" in str(store.trouble)
        assert (await app.invoke("echo", {"text": "last"})).ok
        await app.flush()
        rows = [(row[3], row[2]) for row in await app.parts.store.read(audit_log.latest(100))]
        assert len(rows) == len(set(rows)) == 10
        assert (await app.audit.verify()).ok

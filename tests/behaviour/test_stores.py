"""The conformance suite of stores, on memory, SQLite and PostgreSQL alike."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toolgate.errors import StoreError
from toolgate.store import migrate
from toolgate.store.chain import HeadFile
from toolgate.store.database import Store, open_store
from toolgate.testing.stores import CHECKS, Check

pytestmark = pytest.mark.requirement("REG-2", "AUD-2")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'a.db'}"}
    url = urls[request.param] if request.param in urls else request.getfixturevalue("postgres_database")
    opened = open_store(url, HeadFile(tmp_path / "audit.head"))
    await opened.start()
    yield opened
    await opened.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.sample(4)
async def test_a_store(check: Check, store: Store) -> None:
    await check(store)


async def test_a_file_without_a_name_is_refused_and_not_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((StoreError, ValueError)):
        await open_store("sqlite:///").start()
    assert open_store("memory://sqlite:///a.db").name == "memory"


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_an_upgrade_may_take_longer_than_other_statements(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index over a large log, say: it would fail anew at every start."""
    slow = migrate.Migration(9_999, "slow", "SELECT pg_sleep(1.5)")
    known = migrate.migrations()
    monkeypatch.setattr(migrate, "migrations", lambda: (*known, slow))
    monkeypatch.setattr("toolgate.store.postgres.COMMAND_SECONDS", 1)
    opened = open_store(postgres_database)
    await opened.start()
    await opened.close()


async def test_a_caller_goes_on_when_the_writer_catches_up_at_the_moment_of_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer is a thread: it may end between two looks at how far it is. One call of some 800,000 met that."""
    opened = open_store(f"sqlite:///{tmp_path / 'a.db'}")
    await opened.start()
    looks = iter([True, False, False])
    monkeypatch.setattr(opened, "_is_behind", lambda: next(looks))
    await opened.room()
    monkeypatch.undo()
    await opened.close()

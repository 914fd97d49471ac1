"""Fixtures that any test may ask for."""

import uuid
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.servers import Postgres, postgres

# A shared machine's clock proves nothing about an example.
settings.register_profile("toolgate", deadline=None)
settings.load_profile("toolgate")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL for this process, started when the first test asks for it."""
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: Postgres) -> str:
    """The URL of its maintenance database."""
    return postgres_server.url()


@pytest.fixture
def postgres_database(postgres_server: Postgres) -> Iterator[str]:
    """The URL of an empty database of the test's own."""
    name = f"test_{uuid.uuid4().hex}"
    postgres_server.create(name)
    try:
        yield postgres_server.url(name)
    finally:
        postgres_server.drop(name)

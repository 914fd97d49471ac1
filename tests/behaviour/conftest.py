"""Fixtures of the behaviour tests."""

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with nothing in it: once a file, once on a server."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'toolgate.db'}"
    url: str = request.getfixturevalue("postgres_tables")
    return url

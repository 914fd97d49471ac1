"""Console tests: a server in this process, and people who look at it with Debian's Chromium."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.chromium import People, chromium, people_of
from tests.serving import Site, serving
from toolgate import App
from toolgate.testing import memory_app


@pytest.fixture
def _function_scoped_runner(_session_scoped_runner: asyncio.Runner) -> asyncio.Runner:
    """Has the tests here, and their fixtures, run in one event loop: a browser belongs to the loop that started it."""
    return _session_scoped_runner


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A Chromium for this process, started when the first test asks for it."""
    async with chromium() as browser:
        yield browser


@pytest.fixture
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("console")
    async with memory_app(home=folder, database_url=f"sqlite:///{folder}/t.db") as app:
        yield app


@pytest.fixture
async def site(app: App) -> AsyncIterator[Site]:
    async with serving(app) as site:
        yield site


@pytest.fixture
async def people(app: App, site: Site, browser: Browser) -> AsyncIterator[People]:
    async with people_of(app, site, browser) as people:
        yield people

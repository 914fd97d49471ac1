"""Fixtures that any test may ask for."""

import asyncio
import atexit
import gc
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.event_brokers import NatsServer, kafka_mock, nats_server
from tests.schema_image import copy_schemas
from tests.servers import Postgres, Redis, postgres, redis
from toolgate.store.database import open_store

copy_schemas()
pytest_plugins = ["tests.needs", "tests.matrix", "tests.order", "tests.unsteady"]

# A shared machine's clock proves nothing about an example, nor about how quickly one is made up. CI takes the same examples
# each time, so that what it says is about the change; whoever works on it takes new ones.
for profile, examples in (("quick", 10), ("matrix", 75)):
    settings.register_profile(
        profile,
        max_examples=examples,
        deadline=None,
        # Fixtures are shared by the examples of a test on purpose: those tests make what has to be new themselves.
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
        derandomize=bool(os.environ.get("CI")),
    )
settings.load_profile("quick")
if os.environ.get("CI"):
    # Some examples are texts out of whatever modules of ours a process has imported by then: others in each run.
    assert callable(providers._get_local_constants)
    providers._get_local_constants = lambda: providers._local_constants

# What tests put into folders of theirs is trusted, as in CI; tests of trust itself unset it. Whatever is recorded all the
# same is recorded here, and not for the person who runs the tests.
ROOT = Path(__file__).resolve().parent.parent
os.environ["TOOLGATE_TRUST"] = os.pathsep.join((f"{tempfile.gettempdir()}/*", str(ROOT)))
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="toolgate-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], ignore_errors=True)

# A tracer in every process that a test starts would take longer than what it starts.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("COVERAGE_PROCESS_START", None)

# It hides what is printed too late or never.
os.environ.pop("PYTHONUNBUFFERED", None)

# Every process that a test starts would compile all of Toolgate again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell that starts the tests in the background has them ignore SIGINT, and what they start inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Thousands of collected tests are never garbage, and take half a second to look through each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL for this process, started when the first test asks for it."""
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: Postgres) -> str:
    """The URL of its maintenance database."""
    return postgres_server.url()


@pytest.fixture(scope="session")
def postgres_template(postgres_server: Postgres) -> str:
    """The name of a database with the tables of this version, to be copied: a copy is quicker than its migrations."""
    name = "with_tables"
    postgres_server.create(name)
    asyncio.run(_migrate(postgres_server.url(name)))
    return name


async def _migrate(url: str) -> None:
    store = open_store(url, None)
    await store.start()
    await store.close()


@pytest.fixture
def postgres_database(postgres_server: Postgres) -> Iterator[str]:
    """The URL of an empty database of the test's own."""
    with _database(postgres_server) as url:
        yield url


@pytest.fixture
def postgres_tables(postgres_server: Postgres, postgres_template: str) -> Iterator[str]:
    """The URL of a database of the test's own with the tables of this version, and nothing in them."""
    with _database(postgres_server, template=postgres_template) as url:
        yield url


@contextmanager
def _database(server: Postgres, **how: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    server.create(name, **how)
    try:
        yield server.url(name)
    finally:
        server.drop(name)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    """A Redis for this process, started when the first test asks for it."""
    with redis() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: Redis) -> str:
    """The URL of a Redis that is empty when the test begins."""
    assert redis_server.say("FLUSHALL") == "+OK"
    return redis_server.url


@pytest.fixture
def own_redis() -> Iterator[Redis]:
    """A Redis that the test may kill."""
    with redis() as server:
        yield server


@pytest.fixture(scope="session")
def nats_url() -> Iterator[str]:
    """The URL of a NATS server for this process, started when the first test asks for it."""
    with nats_server() as server:
        yield server.url


@pytest.fixture(scope="session")
def kafka_url() -> Iterator[str]:
    """The URL of librdkafka's mock of a Kafka cluster."""
    with kafka_mock() as cluster:
        yield cluster.url


@pytest.fixture
def own_nats() -> Iterator[NatsServer]:
    """A NATS server that the test may kill."""
    with nats_server() as server:
        yield server


@pytest.fixture(params=["nats", "kafka"])
def stream_url(request: pytest.FixtureRequest) -> str:
    """The URL of an event stream: a real NATS server, and Kafka by its protocol."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url

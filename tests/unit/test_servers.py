"""The servers that other tests rely on."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.servers import Postgres

ROOT = Path(__file__).parents[2]


@pytest.fixture
def second_database(postgres_server: Postgres) -> str:
    postgres_server.create("second")
    return postgres_server.url("second")


async def _value(url: str, sql: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


@pytest.mark.matrix("needs PostgreSQL")
async def test_it_answers(postgres_url: str) -> None:
    assert await _value(postgres_url, "select 1") == 1


@pytest.mark.matrix("needs PostgreSQL")
async def test_it_listens_on_loopback_only_and_writes_durably(postgres_url: str) -> None:
    assert urlsplit(postgres_url).hostname == "127.0.0.1"
    assert await _value(postgres_url, "show listen_addresses") == "127.0.0.1"
    assert await _value(postgres_url, "show fsync") == "on"


@pytest.mark.matrix("needs PostgreSQL")
async def test_each_database_is_apart_from_the_others(
    postgres_database: str, second_database: str, postgres_server: Postgres
) -> None:
    try:
        await _value(postgres_database, "create table mine (n int)")
        assert await _value(postgres_database, "select to_regclass('mine')::text") == "mine"
        assert await _value(second_database, "select to_regclass('mine')::text") is None
    finally:
        postgres_server.drop("second")


@pytest.mark.matrix("needs PostgreSQL")
@pytest.mark.parametrize("turn", [1, 2])
async def test_a_database_is_new_for_every_test(postgres_database: str, postgres_url: str, turn: int) -> None:
    ours = "select count(*) from pg_database where datname like 'test\\_%'"
    assert await _value(postgres_url, ours) == 1, f"databases left over at turn {turn}"
    assert await _value(postgres_database, "create table t (n int)") is None


@pytest.mark.matrix("needs PostgreSQL")
async def test_a_database_is_dropped_though_a_connection_is_open(postgres_server: Postgres) -> None:
    postgres_server.create("busy")
    connection = await asyncpg.connect(postgres_server.url("busy"))
    postgres_server.drop("busy")
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await connection.fetchval("select 1")
    connection.terminate()


@pytest.mark.matrix("needs PostgreSQL")
def test_a_failed_statement_says_why(postgres_server: Postgres) -> None:
    with pytest.raises(RuntimeError, match="already exists"):
        postgres_server.create("postgres")


@pytest.mark.matrix("kills the owner of a server")
def test_it_ends_with_a_killed_owner_and_leaves_nothing() -> None:
    program = "from tests.servers import postgres\nwith postgres() as s:\n print(s.port, s.home, flush=True)\n input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout
        port, home = owner.stdout.readline().split()
        before = _listening(int(port))
        os.kill(owner.pid, signal.SIGKILL)
    assert before
    deadline = time.monotonic() + 30
    while _listening(int(port)) or Path(home).exists():
        assert time.monotonic() < deadline, "PostgreSQL, or its folder, outlived its owner"
        time.sleep(0.05)


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0

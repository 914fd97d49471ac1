"""Databases are asked, not changed: the words of a query, the session it runs in, and the rights of its user, each alone.

The server is the real one from npm, which opens each query with BEGIN TRANSACTION READ ONLY and can be led out of it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.jailed_servers import Talk, talking
from tests.npm import packages
from toolgate.errors import Denied
from toolgate.mcp.presets import PRESETS
from toolgate.screening.queries import check_query
from toolgate.settings import ServerSettings

PGOPTIONS = PRESETS["postgres"].settings["env"]["PGOPTIONS"]

pytestmark = pytest.mark.requirement("MCP-3", "BUILTIN-2")

QUESTIONS = (
    "SELECT 1",
    "select a from t where note = 'it''s; DROP TABLE t -- fine' order by a;",
    "WITH few AS (SELECT a FROM t) SELECT count(*) FROM few",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT sum(i) FROM n",
    "(SELECT a FROM t) UNION (SELECT 2)",
    "VALUES (1), (2)",
    "TABLE t",
    "EXPLAIN SELECT * FROM t",
    "EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM t",
    "EXPLAIN ANALYZE VERBOSE SELECT * FROM t",
    "SELECT datname, state FROM pg_catalog.pg_stat_activity",
    "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace",
    "SHOW server_version",
    "SHOW TIME ZONE",
    'SELECT t.update, "delete" FROM odd t',
    "SELECT pg_size_pretty(pg_total_relation_size('t')), pg_get_viewdef('v'::regclass)",
    "SELECT date '2026-01-01' + 1, substring('abc' for 2), 1.5e3, x'1F'::int",
    "SELECT '{\"a\": 1}'::jsonb -> 'a', ARRAY[1,2] @> ARRAY[1]",
    "SELECT * FROM information_schema.columns WHERE table_name = 't' FETCH FIRST 3 ROWS ONLY",
)

ATTACKS = (
    "DROP TABLE t",
    "COMMIT; DROP TABLE t",
    "COMMIT",
    "SELECT 1; DROP TABLE t",
    "SELECT 1;;",
    "SET default_transaction_read_only = off",
    "RESET ALL",
    "SELECT set_config('default_transaction_read_only', 'off', false)",
    "SELECT \"set_config\"('default_transaction_read_only', 'off', false)",
    "SELECT pg_catalog . set_config ('a', 'b', false)",
    "BEGIN READ WRITE",
    "INSERT INTO t VALUES (9)",
    "WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone",
    "WITH gone AS (SELECT 1) DELETE FROM t",
    "WITH more AS (UPDATE t SET a = 9 RETURNING a) SELECT * FROM more",
    'WITH more AS (UPDATE "t" SET a = 9 RETURNING a) SELECT * FROM more',
    "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i FROM r WHERE i < 0) SEARCH DEPTH FIRST BY i SET o DELETE FROM t",
    "SELECT a INTO other FROM t",
    "SELECT a FROM t FOR UPDATE",
    "SELECT a FROM t FOR NO KEY UPDATE",
    "EXPLAIN ANALYZE DELETE FROM t",
    "EXPLAIN (ANALYZE) DELETE FROM t",
    "EXPLAIN (ANALYZE) CREATE TABLE u AS SELECT 1",
    "COPY t TO PROGRAM 'cat'",
    "CALL something()",
    "DO 'BEGIN DELETE FROM t; END'",
    "SELECT pg_sleep(1000)",
    "SELECT pg_sleep_for('1 hour')",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT * FROM pg_ls_dir('/')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_from_bytea(0, 'x')",
    "SELECT * FROM dblink('host=elsewhere', 'SELECT 1') AS x(a int)",
    "SELECT pg_terminate_backend(1)",
    "SELECT query_to_xml('DELETE FROM t', true, true, '')",
    "SELECT * FROM ts_stat('SELECT 1')",
    "SELECT nextval('s')",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_notify('a', 'b')",
    "SELECT ('/etc/hostname'::text).pg_read_file",
    "SELECT x.pg_read_file FROM concat('/etc/hostname') x",
    "SELECT pg_catalog.pg_read_file FROM concat('/etc/hostname') pg_catalog",
    "SELECT x.\"pg_read_file\" FROM concat('/etc/hostname') x",
    "SELECT (pid).pg_terminate_backend FROM pg_stat_activity",
    "SELECT (7::bigint) . pg_advisory_lock",
    "SELECT x.pg_sleep FROM generate_series(1, 2) x",
    "SELECT ('s'::regclass).nextval",
    "SELECT (0::oid).lo_create",
    "SELECT x.dblink FROM concat('host=elsewhere') x",
    "SELECT rolpassword FROM pg_authid",
    'SELECT passwd FROM pg_catalog."pg_shadow"',
    "SELECT 1 -- harmless\n; DROP TABLE t",
    "SELECT /* /* nested */ */ 1",
    "SELECT $$x$$; DROP TABLE t; SELECT $$x$$",
    "SELECT $tag$ ' $tag$",
    "SELECT E'\\'; DROP TABLE t; --'",
    "SELECT '\\'; DROP TABLE t; --'",
    "SELECT U&'\\0027'",
    'SELECT U&"d\\0061t\\+000061"',
    "SELECT 'unclosed",
    "\\! id",
    "SHOW a; DROP TABLE t",
    "SHOW ALL UNION SELECT 1",
    "",
    "   ",
    "x" * 200_000,
)


@pytest.mark.parametrize("sql", QUESTIONS)
def test_a_question_is_let_through(sql: str) -> None:
    check_query(sql)


@pytest.mark.parametrize("sql", ATTACKS, ids=lambda sql: sql[:40] or "empty")
def test_what_is_more_than_a_question_is_refused(sql: str) -> None:
    with pytest.raises(Denied) as refused:
        check_query(sql)
    assert refused.value.code == "SECURITY_VIOLATION"
    assert refused.value.suggestion


@given(st.text(max_size=40).filter(lambda text: "\0" not in text))
@example("pg_authid")
def test_whatever_stands_in_a_string_is_only_text(text: str) -> None:
    """And in quotes a name, of which only those of the server's own are looked at."""
    quoted, name = text.replace("\\", "/").replace("'", "''"), text.replace(chr(34), "")
    check_query(f"SELECT '{quoted}' AS a, \"of {name}\" FROM t")


# -- on a real database


@pytest.fixture
async def database(postgres_database: str) -> str:
    """A database with a table in it, a view, a sequence, and somebody who may only read."""
    connection: Any = await asyncpg.connect(postgres_database)
    try:
        await connection.execute(
            "CREATE TABLE t (a int, note text); INSERT INTO t VALUES (1, 'one'); CREATE VIEW v AS SELECT a FROM t;"
            'CREATE TABLE odd ("update" int, "delete" int); CREATE SEQUENCE s;'
            "DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"
        )
    finally:
        await connection.close()
    return postgres_database


async def tables(url: str) -> list[str]:
    connection: Any = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        return sorted(row[0] for row in rows)
    finally:
        await connection.close()


@asynccontextmanager
async def asking(home: Path, url: str, **env: str) -> AsyncIterator[Talk]:
    """The server from npm in a jail that lets it reach this database and nothing else, at the address that the URL has."""
    place = urlsplit(url)
    server = ServerSettings(
        command=(*packages().command("@modelcontextprotocol/server-postgres"), "{{secret:URL}}"),
        env=env,
        domains=(f"{place.hostname}:{place.port}",),
        isolation="required",
    )
    async with talking(home, server, secrets={"URL": url}) as talk:
        await talk.initialize()
        yield talk


def as_reader(url: str) -> str:
    place = urlsplit(url)
    return place._replace(netloc=f"reader@{place.hostname}:{place.port}").geturl()


@pytest.mark.matrix("needs PostgreSQL")
async def test_questions_are_answered_through_the_jail(tmp_path: Path, database: str) -> None:
    async with asking(tmp_path, database, PGOPTIONS=PGOPTIONS) as talk:
        assert '"a": 1' in await talk.call("query", sql="SELECT a, note FROM t")
        assert "30s" in await talk.call("query", sql="SHOW statement_timeout")
        for sql in QUESTIONS:
            answer = await talk.call("query", sql=sql)
            assert answer.startswith("["), (sql, answer)


@pytest.mark.matrix("needs PostgreSQL")
async def test_without_guards_the_server_has_a_hole(tmp_path: Path, database: str) -> None:
    """Or the next tests would prove nothing."""
    async with asking(tmp_path, database) as talk:
        await talk.call("query", sql="COMMIT; CREATE TABLE u (a int)")
    assert await tables(database) == ["odd", "t", "u"]


@pytest.mark.matrix("needs PostgreSQL")
@pytest.mark.parametrize("sql", ["COMMIT; DROP TABLE t", "COMMIT; DELETE FROM t", "ROLLBACK; CREATE TABLE u (a int)"])
async def test_the_session_holds_what_slips_through_the_words(tmp_path: Path, database: str, sql: str) -> None:
    async with asking(tmp_path, database, PGOPTIONS=PGOPTIONS) as talk:
        assert "read-only transaction" in await talk.call("query", sql=sql)
    assert await tables(database) == ["odd", "t"]


@pytest.mark.matrix("needs PostgreSQL")
async def test_a_user_without_rights_holds_what_undoes_the_session(tmp_path: Path, database: str) -> None:
    """A session's read-only mode can be switched off from inside, as its owner here does; what a user may do can't."""
    undoing = "COMMIT; BEGIN READ WRITE; CREATE TABLE u (a int); COMMIT"
    async with asking(tmp_path, database, PGOPTIONS=PGOPTIONS) as talk:
        await talk.call("query", sql=undoing)
    assert await tables(database) == ["odd", "t", "u"]
    tricks = (
        undoing.replace(" u ", " w "),
        "COMMIT; BEGIN READ WRITE; DELETE FROM t; COMMIT",
        "COMMIT; BEGIN READ WRITE; DROP TABLE odd; COMMIT",
        "COMMIT; RESET ALL; BEGIN READ WRITE; INSERT INTO t VALUES (2); COMMIT",
        "COMMIT; RESET ROLE; SET SESSION AUTHORIZATION DEFAULT; BEGIN READ WRITE; UPDATE t SET a = 2; COMMIT",
    )
    async with asking(tmp_path, as_reader(database), PGOPTIONS=PGOPTIONS) as talk:
        assert '"a": 1' in await talk.call("query", sql="SELECT a FROM t")
        for sql in tricks:
            with pytest.raises(Denied):
                check_query(sql)
            answer = await talk.call("query", sql=sql)
            assert "permission denied" in answer or "must be owner" in answer, (sql, answer)
        assert '"a": 1' in await talk.call("query", sql="SELECT a FROM t")
    assert await tables(database) == ["odd", "t", "u"]


@pytest.mark.matrix("needs PostgreSQL")
async def test_the_jail_shows_no_other_port(tmp_path: Path, database: str) -> None:
    """The same server, allowed another port only: its own database is out of reach."""
    place = urlsplit(database)
    command = (*packages().command("@modelcontextprotocol/server-postgres"), database)
    other = ServerSettings(command=command, domains=(f"{place.hostname}:{(place.port or 0) % 60_000 + 1_025}",))
    async with talking(tmp_path, other) as talk:
        await talk.initialize()
        assert "ECONNREFUSED" in await talk.call("query", sql="SELECT 1")


# -- the words, against what PostgreSQL has

_TELLING = """
amvalidate array_sample array_shuffle bernoulli brinhandler bthandler clock_timestamp current_query currval dsnowball_init
dsnowball_lexize gen_random_uuid ginhandler gisthandler hashhandler heap_tableam_handler lastval plpgsql_call_handler
plpgsql_inline_handler plpgsql_validator random random_normal spghandler suppress_redundant_updates_trigger system
timeofday tsvector_update_trigger tsvector_update_trigger_column unique_key_recheck uuidv4 uuidv7
"""
TELLING = frozenset(_TELLING.split())
"""Functions that PostgreSQL calls volatile, and that change nothing: chance, clocks, and what only it can call."""
SIZES = ("pg_get_", "pg_database_size", "pg_indexes_size", "pg_relation_size", "pg_table_size", "pg_total_relation_size")


@pytest.mark.matrix("needs PostgreSQL")
async def test_every_function_that_acts_is_refused_however_it_is_called(database: str) -> None:
    """All that this PostgreSQL has, not those that somebody thought of."""
    connection: Any = await asyncpg.connect(database)
    try:
        rows = await connection.fetch("SELECT DISTINCT proname, pronargs FROM pg_proc WHERE provolatile = 'v'")
    finally:
        await connection.close()
    acting = {(name, count) for name, count in rows if name not in TELLING and not name.startswith(("RI_", *SIZES))}
    acting -= {("pg_is_in_recovery", 0)}
    assert len(acting) > 150
    check_query("SELECT lower(")
    check_query("SELECT (x).lower FROM x")
    for name, count in sorted(acting):
        ways = [f"SELECT {name}(", f'SELECT pg_catalog."{name}" (']
        ways += (
            [f"SELECT (x).{name} FROM x", f'SELECT x."{name}" FROM concat() x']
            if count == 1 and name != "txid_status"
            else []
        )
        for sql in ways:
            with pytest.raises(Denied):
                check_query(sql)


@pytest.mark.matrix("needs PostgreSQL")
async def test_tables_of_the_system_may_be_read_but_for_the_private_ones(database: str) -> None:
    connection: Any = await asyncpg.connect(database)
    try:
        rows = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')"
        )
    finally:
        await connection.close()
    refused = set()
    for (name,) in rows:
        try:
            check_query(f"SELECT * FROM pg_catalog.{name}")
        except Denied:
            refused.add(name)
    assert refused >= {"pg_authid", "pg_shadow", "pg_user_mapping", "pg_hba_file_rules", "pg_file_settings"}
    assert len(refused) < 20, refused


# -- and against its own reading of them

PIECES = (
    "SELECT", "1", "a", "FROM t", "t", "'", "''", '"', "(", ")", ";", "--", "/*", "*/", "\n", "$$", "$a$", "\\", "E'", "U&'",
    "DELETE FROM t", "DROP TABLE t", "INSERT INTO t VALUES (2)", "UPDATE t SET a = 2", "WITH x AS (", "RETURNING a",
    "UNION", ",", "COMMIT", "INTO u", "AS", "x", "EXPLAIN ANALYZE", "nextval('s')", "VALUES", "* FROM", "e", "1e", "b'",
)  # fmt: skip


@pytest.fixture(scope="module")
def standing(postgres_server: Any) -> Iterator[str]:
    """A database for all examples."""
    postgres_server.create("standing_queries")
    yield postgres_server.url("standing_queries")
    postgres_server.drop("standing_queries")


@pytest.mark.matrix("needs PostgreSQL")
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=9))
def test_what_passes_changes_nothing_even_with_every_right(standing: str, pieces: list[str]) -> None:
    """As a superuser, in an ordinary session. Both readers must see the same in whatever is let through."""
    sql = " ".join(["SELECT 'a' AS a WHERE 1 <", *pieces]) if pieces[0] != "SELECT" else " ".join(pieces)
    try:
        check_query(sql)
    except Denied:
        return
    asyncio.run(_changes_nothing(standing, sql))


async def _changes_nothing(url: str, sql: str) -> None:
    connection: Any = await asyncpg.connect(url)
    try:
        await connection.execute(
            "DROP TABLE IF EXISTS t, u; DROP SEQUENCE IF EXISTS s; CREATE TABLE t (a int); CREATE SEQUENCE s;"
            "INSERT INTO t VALUES (1); SET statement_timeout = 2000"
        )
        with suppress(asyncpg.PostgresError):  # it need not be a query at all
            await connection.execute(sql)
        state = await connection.fetch("SELECT (SELECT array_agg(a) FROM t), to_regclass('u'), (SELECT is_called FROM s)")
        assert [tuple(row) for row in state] == [([1], None, False)], sql
    finally:
        await connection.close()

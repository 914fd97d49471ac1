"""The SQL guard against statements that write, lock, read files, reach other machines, or are read in two ways.

`tests/behaviour/test_mcp_postgres.py` has the first battery; this one takes the forms that look most like a question. What
the guard lets through is compared with a real PostgreSQL: questions run, and no function that passes has an effect.
"""

import random
import time
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviour.test_mcp_postgres import ATTACKS as FIRST_ATTACKS
from toolgate.errors import Denied
from toolgate.screening.queries import check_query

pytestmark = pytest.mark.requirement("BUILTIN-2", "BUILTIN-3")

HONEST = (
    "SELECT count(*) FROM t",
    "SELECT a, note FROM t WHERE a = $1 AND note LIKE $2 LIMIT 10",
    "SELECT DISTINCT ON (a) a, note FROM t ORDER BY a, note DESC NULLS LAST OFFSET 2",
    "SELECT t.a FROM public.t t LEFT JOIN t u USING (a) WHERE u.a IS NOT NULL",
    "SELECT a, sum(a) OVER (PARTITION BY note ORDER BY a ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
    "SELECT a FROM t GROUP BY GROUPING SETS ((a), ()) HAVING count(*) > 0",
    "WITH a AS MATERIALIZED (SELECT 1 AS x), b AS (SELECT x FROM a) SELECT * FROM b UNION ALL SELECT 2",
    "SELECT * FROM (VALUES (1, 'one'), (2, 'two')) AS v(n, word) WHERE word <> 'DELETE FROM t; --'",
    "SELECT CASE WHEN a > 1 THEN 'drop table' ELSE 'set x to 1' END FROM t",
    "SELECT array_agg(a ORDER BY a) FILTER (WHERE a > 0) FROM t",
    "SELECT jsonb_build_object('a', a) ->> 'a', '{\"k\": [1]}'::jsonb #> '{k,0}' FROM t",
    "SELECT extract(epoch FROM now()), date_trunc('day', current_timestamp), interval '1 day' * 2",
    "SELECT coalesce(nullif(trim(both ' ' from note), ''), 'none') FROM t",
    "SELECT x FROM generate_series(1, 3) AS x, LATERAL (SELECT x * 2 AS y) AS z",
    "SELECT pg_catalog.count(*), public.t.a FROM t GROUP BY public.t.a",
    "SELECT has_table_privilege('t', 'DELETE'), to_regclass('t'), version()",
    "SELECT setting FROM pg_settings WHERE name = 'server_version'",
    "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'",
    "SELECT regexp_replace(note, '^(.)', '\\1', 'g'), position('e' in note), overlay(note placing 'x' from 1) FROM t",
    "SELECT row_to_json(t), to_tsvector('english', note) @@ to_tsquery('one') FROM t",
    "EXPLAIN (COSTS OFF, FORMAT JSON) SELECT a FROM t WHERE a IN (SELECT 1)",
    "TABLE t ORDER BY a LIMIT 1",
    "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM t u WHERE u.a = t.a) AND a BETWEEN 0 AND 9 FETCH FIRST ROW ONLY",
    'SELECT "update", o.delete AS "insert" FROM odd o',
    "SELECT gen_random_uuid() IS NOT NULL, random() < 2, md5(note), encode(sha256('x'), 'hex') FROM t",
    "SELECT pg_get_viewdef('v'::regclass), pg_size_pretty(pg_relation_size('t')), obj_description('t'::regclass)",
)

ATTACKS = (
    # writing inside of a question
    "WITH x AS (INSERT INTO t VALUES (9) RETURNING a) SELECT * FROM x",
    "WITH x AS NOT MATERIALIZED (DELETE FROM t RETURNING a) SELECT 1",
    "WITH x AS (MERGE INTO t USING t u ON false WHEN NOT MATCHED THEN INSERT VALUES (1) RETURNING 1) SELECT 1",
    "SELECT * FROM (WITH x AS (UPDATE t SET a = 1 RETURNING a) SELECT * FROM x) y",
    "WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x",
    "WITH x AS (SELECT 1) UPDATE ONLY t SET a = 2",
    "WITH x AS (WITH y AS (DELETE FROM ONLY t RETURNING a) SELECT * FROM y) TABLE x",
    "VALUES (1) UNION SELECT 2 INTO TEMP other",
    "SELECT * INTO UNLOGGED other FROM t",
    "(SELECT a INTO STRICT x FROM t)",
    "SELECT a FROM t FOR SHARE SKIP LOCKED",
    "SELECT a FROM t FOR KEY SHARE",
    "SELECT a FROM (SELECT a FROM t FOR UPDATE OF t NOWAIT) x",
    "WITH x AS (SELECT a FROM t FOR UPDATE) SELECT * FROM x",
    # explaining what then runs
    "EXPLAIN (ANALYZE true, BUFFERS) INSERT INTO t VALUES (1)",
    "EXPLAIN (FORMAT JSON, ANALYZE) WITH x AS (DELETE FROM t RETURNING a) SELECT 1",
    "EXPLAIN ANALYZE VERBOSE CREATE MATERIALIZED VIEW m AS SELECT 1",
    "EXPLAIN ANALYZE EXECUTE plan",
    "EXPLAIN (ANALYZE) DECLARE c CURSOR FOR SELECT 1",
    "EXPLAIN ANALYZE SELECT 1 INTO other",
    "EXPLAIN (ANALYZE) SELECT nextval('s')",
    # statements that only look harmless
    "COPY t TO STDOUT",
    "COPY (SELECT 1) TO PROGRAM 'sh'",
    "COPY t FROM '/etc/passwd'",
    "DO LANGUAGE plpgsql 'BEGIN DELETE FROM t; END'",
    "CALL p()",
    "EXECUTE plan",
    "PREPARE p AS DELETE FROM t",
    "SET ROLE postgres",
    "SET LOCAL default_transaction_read_only = off",
    "SET SESSION AUTHORIZATION postgres",
    "RESET ROLE",
    "START TRANSACTION READ WRITE",
    "ROLLBACK AND CHAIN",
    "SAVEPOINT a",
    "DISCARD ALL",
    "LISTEN a",
    "NOTIFY a, 'b'",
    "UNLISTEN *",
    "LOCK TABLE t IN ACCESS EXCLUSIVE MODE",
    "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
    "FETCH ALL FROM c",
    "LOAD 'x'",
    "VACUUM FULL t",
    "ANALYZE t",
    "REFRESH MATERIALIZED VIEW m",
    "REINDEX TABLE t",
    "CHECKPOINT",
    "ALTER SYSTEM SET x = 1",
    "GRANT ALL ON t TO public",
    "TRUNCATE t",
    "COMMENT ON TABLE t IS 'x'",
    "CREATE TEMP TABLE x AS SELECT 1",
    "IMPORT FOREIGN SCHEMA a FROM SERVER s INTO b",
    "SECURITY LABEL ON TABLE t IS 'x'",
    # functions that act, however they are named
    "SELECT pg_catalog.pg_read_binary_file('/etc/passwd')",
    "SELECT PG_READ_FILE ( '/etc/passwd' )",
    "SELECT * FROM ROWS FROM (pg_ls_dir('.'), pg_ls_logdir()) AS x",
    "SELECT pg_stat_file('/etc/passwd')",
    "SELECT lo_export(1, '/tmp/x')",
    "SELECT lo_put(1, 0, 'x')",
    "SELECT loread(1, 10)",
    "SELECT lowrite(1, 'x')",
    "SELECT \"lo_import\"\n\t('/etc/passwd')",
    "SELECT pg_file_write('x', 'y', false)",
    "SELECT dblink_exec('host=x', 'DELETE FROM t')",
    "SELECT dblink_connect_u('x')",
    "SELECT public.dblink('x', 'y')",
    "SELECT setval('s', 1)",
    "SELECT currval('s'), nextval('s')",
    "SELECT txid_current()",
    "SELECT pg_current_xact_id()",
    "SELECT pg_try_advisory_lock(1)",
    "SELECT pg_advisory_unlock_all()",
    "SELECT pg_advisory_xact_lock_shared(1, 2)",
    "SELECT pg_reload_conf()",
    "SELECT pg_rotate_logfile()",
    "SELECT pg_switch_wal()",
    "SELECT pg_create_restore_point('x')",
    "SELECT pg_promote()",
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity",
    "SELECT pg_logical_emit_message(true, 'a', 'b')",
    "SELECT pg_replication_slot_advance('a', '0/0')",
    "SELECT pg_drop_replication_slot('a')",
    "SELECT pg_export_snapshot()",
    "SELECT pg_stat_reset()",
    "SELECT pg_stat_statements_reset()",
    "SELECT pg_import_system_collations('public')",
    "SELECT pg_sleep_until('tomorrow')",
    "SELECT pg_log_backend_memory_contexts(1)",
    "SELECT pg_get_backend_memory_contexts()",
    "SELECT table_to_xml('t', true, true, '')",
    "SELECT query_to_xmlschema('DELETE FROM t', true, true, '')",
    "SELECT cursor_to_xml('c', 1, true, true, '')",
    "SELECT database_to_xml(true, true, '')",
    "SELECT ts_rewrite('a'::tsquery, 'DELETE FROM t')",
    "SELECT * FROM crosstab('DELETE FROM t') AS x(a int)",
    "SELECT xpath_table('a', 'b', 't', 'c', 'true')",
    "SELECT binary_upgrade_set_next_pg_type_oid(1)",
    "SELECT brin_desummarize_range('i', 1)",
    "SELECT gin_clean_pending_list('i')",
    "SELECT setseed(0.1)",
    "SELECT http_post('http://x', 'a', 'b')",
    "SELECT net.http_get('http://169.254.169.254')",
    "SELECT http('x')",
    "SELECT cron.schedule('* * * * *', 'DELETE FROM t')",
    "SELECT cron.unschedule(1)",
    "SELECT \"cron\".\"schedule\"('a', 'b')",
    "SELECT graphql.resolve('mutation { deleteAll }')",
    "SELECT * FROM pgmq.send('q', '{}')",
    "SELECT vault.create_secret('x')",
    "SELECT aws_lambda.invoke('x', '{}')",
    "SELECT partman.run_maintenance()",
    "SELECT utl_file.fopen('a', 'b', 'w')",
    # what f is to x in x.f
    "SELECT (SELECT 's'::regclass).nextval",
    "SELECT x.lo_unlink FROM (SELECT 1::oid) x",
    "SELECT t.lo_creat FROM t",
    'SELECT x . "pg_reload_conf" FROM t x',
    "SELECT (t.*).pg_notify FROM t",
    "SELECT (ROW(1)).setseed",
    # what holds passwords and keys
    "TABLE pg_authid",
    "SELECT current_setting('app.settings.jwt_secret')",
    "SELECT pg_catalog.current_setting('app.' || 'key', true)",
    "SELECT t.current_setting FROM (SELECT 'app.key'::text) AS t",
    "SELECT setconfig FROM pg_db_role_setting",
    "SELECT rolconfig FROM pg_catalog.pg_roles",
    'SELECT u FROM "pg_user" u',
    "SELECT * FROM pg_catalog.pg_shadow",
    "SELECT umoptions FROM pg_user_mappings",
    "SELECT option_value FROM information_schema.user_mapping_options",
    "SELECT subconninfo FROM pg_subscription",
    "SELECT * FROM vault.decrypted_secrets",
    'SELECT secret FROM "vault".secrets',
    "SELECT * FROM pg_hba_file_rules",
    "SELECT data FROM pg_largeobject",
    "SELECT * FROM pgsodium.key",
    # what can be read in two ways
    "SELECT 1 /* ; */ ; DROP TABLE t",
    "SELECT 1 --\n; DELETE FROM t",
    "SELECT '\\''; DROP TABLE t; --'",
    "SELECT e'\\x27'",
    "SELECT $a$;$a$; DROP TABLE t",
    "SELECT $1$;$1$",
    "SELECT $1a",
    "SELECT $tag",
    "SELECT $",
    "SELECT a$ FROM $$t$$",
    "SELECT U&'d\\0061ta' UESCAPE '!'",
    "SELECT u&\"\\0070g_read_file\"('x')",
    "SELECT 1\0; DROP TABLE t",
    "SELECT 1 \\gexec",
    "SELECT 'a' 'b",
    'SELECT "a',
    "SELECT 1; SELECT 2",
    "; DELETE FROM t",
    "SELECT 1;\n\t;",
    "\ufeffDELETE FROM t",
    "SELECT 1\u037e DELETE FROM t;",
    "\uff24\uff25\uff2c\uff25\uff34\uff25 FROM t",
)


def passes(sql: str) -> bool:
    try:
        check_query(sql)
    except Denied as refused:
        assert refused.code == "SECURITY_VIOLATION"
        return False
    return True


@pytest.mark.parametrize("sql", HONEST, ids=lambda sql: sql[:50])
def test_an_honest_question_passes(sql: str) -> None:
    check_query(sql)


@pytest.mark.parametrize("sql", ATTACKS, ids=lambda sql: sql[:50])
def test_more_than_a_question_is_refused(sql: str) -> None:
    assert not passes(sql)


@given(st.sampled_from([*ATTACKS, *FIRST_ATTACKS]), st.randoms(use_true_random=False))
def test_spelling_and_spacing_make_no_difference(sql: str, chance: random.Random) -> None:
    swapped = "".join(char.swapcase() if char.isascii() and chance.random() < 0.5 else char for char in sql[:5_000])
    assert not passes(swapped)
    spaced = "".join(char if char != " " else chance.choice((" ", "\n", "\t", "  ", "\r\n", "\f")) for char in sql)
    assert not passes(spaced)


@given(st.text(alphabet="SELECT FROM WHERE ()'\"$;-/*\\.eEuU&09ab\n\t,:=", max_size=60))
def test_no_text_makes_the_guard_fail_in_another_way(text: str) -> None:
    passes(text)
    passes(f"SELECT {text}")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 99_000,
        "EXPLAIN" + " ANALYZE" * 12_000,
        "SELECT " + "a." * 45_000,
        "SELECT " + "'" * 99_990,
        "SELECT $1" * 10_000,
    ],
)
def test_a_long_text_takes_time_in_proportion(text: str) -> None:
    """Quadratic, the first would take minutes."""
    began = time.process_time()
    passes(text)
    assert time.process_time() - began < 5


# -- on a real database

KNOWN_VOLATILE = frozenset(
    [
        "amvalidate",
        "array_sample",
        "array_shuffle",
        "bernoulli",
        "brinhandler",
        "bthandler",
        "clock_timestamp",
        "current_query",
        "currval",
        "dsnowball_init",
        "dsnowball_lexize",
        "gen_random_uuid",
        "ginhandler",
        "gisthandler",
        "hashhandler",
        "heap_tableam_handler",
        "lastval",
        "pg_database_size",
        "pg_get_wait_events",
        "pg_indexes_size",
        "pg_is_in_recovery",
        "pg_relation_size",
        "pg_table_size",
        "pg_total_relation_size",
        "plpgsql_call_handler",
        "plpgsql_inline_handler",
        "plpgsql_validator",
        "random",
        "random_normal",
        "spghandler",
        "suppress_redundant_updates_trigger",
        "system",
        "timeofday",
        "tsvector_update_trigger",
        "tsvector_update_trigger_column",
        "txid_status",
        "unique_key_recheck",
        "uuidv4",
        "uuidv7",
    ]
)
"""Volatile functions of the system that a query may name: they read, make up numbers, or cannot be called by a query."""


@pytest.fixture
async def connection(postgres_database: str) -> Any:
    connection: Any = await asyncpg.connect(postgres_database)
    await connection.execute(
        "CREATE TABLE t (a int, note text); INSERT INTO t VALUES (1, 'one'), (2, 'two'); CREATE VIEW v AS SELECT a FROM t;"
        'CREATE TABLE odd ("update" int, "delete" int); CREATE SEQUENCE s'
    )
    yield connection
    await connection.close()


@pytest.mark.matrix("needs PostgreSQL")
async def test_honest_questions_are_answered(connection: Any) -> None:
    for sql in HONEST:
        async with connection.transaction(readonly=True):
            statement = await connection.prepare(sql)
            values = [1, "%"][: len(statement.get_parameters())]
            await statement.fetch(*values)


@pytest.mark.matrix("needs PostgreSQL")
async def test_every_function_that_can_act_is_refused_or_known(connection: Any) -> None:
    """A newer PostgreSQL may bring functions that the guard has not heard of."""
    rows = await connection.fetch(
        "SELECT DISTINCT proname::text FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace"
        " AND provolatile = 'v' AND prorettype <> 'trigger'::regtype"
    )
    names = {row[0] for row in rows}
    assert len(names) > 200
    assert {name for name in names if passes(f"SELECT {name}(1)")} - KNOWN_VOLATILE == set()
    alone = await connection.fetch(
        "SELECT DISTINCT proname::text FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND provolatile = 'v'"
        " AND pronargs >= 1 AND pronargs - pronargdefaults <= 1"
    )
    assert {row[0] for row in alone if passes(f"SELECT x.{row[0]} FROM t x")} - KNOWN_VOLATILE == set()


@pytest.mark.matrix("needs PostgreSQL")
async def test_the_attacks_are_real(connection: Any) -> None:
    """Or refusing them would prove nothing: without a guard they have an effect, and a read-only session stops only some."""
    async with connection.transaction(readonly=True):
        with pytest.raises(asyncpg.PostgresError, match="read-only"):
            await connection.fetch("WITH x AS (INSERT INTO t VALUES (9) RETURNING a) SELECT * FROM x")
    async with connection.transaction(readonly=True):
        await connection.fetch("SELECT pg_advisory_lock(1)")
    held = await connection.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
    assert held == 1
    async with connection.transaction(readonly=True):
        await connection.fetch("SELECT set_config('application_name', 'taken', false)")
    assert await connection.fetchval("SELECT current_setting('application_name')") == "taken"
    async with connection.transaction(readonly=True):
        assert "/" in await connection.fetchval("SELECT x.pg_read_file FROM concat('/etc/passwd') x")

"""`supabase_query`: tables through PostgREST and SQL through the management API, as both are documented."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.loopback import Asked, Said, Site, site
from tests.services import Answer, failed, hang_up, never, records, scripted
from toolgate import Actor, App
from toolgate.model import Entry
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("BUILTIN-3")
KEY = "sb_secret_N7UND0UgjKTVK-Uodkm0Hg_xSvEMPvz"
TOKEN = "sbp_bdd0a4f1c2e3d4b5a6978877665544332211aabb"
REF = "abcdefghijklmnopqrst"
ROWS = [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}]
TABLE = {"table": "notes"}


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_SUPABASE_KEY", KEY)
    monkeypatch.setenv("TOOLGATE_SECRET_SUPABASE_ACCESS_TOKEN", TOKEN)


@asynccontextmanager
async def serving(*answers: Answer, agree: bool = True) -> AsyncIterator[tuple[App, Site]]:
    async with site(scripted(answers)) as service:
        settings = {"supabase": {"project": {"url": service.url, "ref": REF}, "management_url": service.url}}
        async with memory_app(services=settings) as app:
            if agree:
                app.approvals.add_approver(lambda _request: True)
            yield app, service


async def ask(app: App, operation: str, **arguments: Any) -> Any:
    return await app.invoke("supabase_query", {"operation": operation, **arguments})


def governed(app: App, operation: str) -> Entry:
    """What governs the calls of an operation."""
    return (app.parts.catalog.resolve("supabase_query", "default").operations or {})[operation]


# -- SQL


async def test_sql_that_reads_is_run_by_a_user_who_may_only_read() -> None:
    sql = "SELECT id, name FROM public.notes WHERE id < $1"
    async with serving(Said(201, ROWS)) as (app, service):
        outcome = await app.invoke("supabase_query", {"query": sql, "params": [5]})
        log = await records(app)
    assert outcome.output["rows"] == ROWS
    assert outcome.output["rowCount"] == 2
    assert outcome.output["duration"] >= 0
    (asked,) = service.asked
    assert (asked.method, asked.path) == ("POST", f"/v1/projects/{REF}/database/query/read-only")
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
    assert asked.headers["content-type"] == "application/json"
    assert "apikey" not in asked.headers
    assert asked.json == {"query": sql, "parameters": [5]}
    assert TOKEN not in log
    assert KEY not in log


@pytest.mark.parametrize(
    "sql",
    ["DELETE FROM notes", "SELECT 1; DROP TABLE notes", "SELECT pg_sleep(9)", "WITH x AS (DELETE FROM t) TABLE x",
     "SELECT net.http_post('http://x')", "SELECT * FROM vault.decrypted_secrets"],
)  # fmt: skip
async def test_sql_that_does_more_is_refused_before_a_person_is_asked(sql: str) -> None:
    async with serving(Said(201, []), agree=False) as (app, service):
        error = failed(await app.invoke("supabase_query", {"query": sql}), "SECURITY_VIOLATION")
        assert "refused" in error.message
        assert await app.approvals.list() == []
    assert service.asked == []


async def test_a_migration_is_of_tier_execute_and_asked_about_each_time() -> None:
    sql = "ALTER TABLE notes ADD COLUMN done boolean"
    async with serving(Said(201, []), agree=False) as (app, service):
        outcome = await ask(app, "migration", query=sql)
        assert outcome.status == "pending"
        assert governed(app, "migration").tier == "execute"
        app.approvals.add_approver(lambda _request: True)
        assert (await ask(app, "migration", query=sql)).output["rows"] == []
    (asked,) = service.asked
    assert (asked.method, asked.path) == ("POST", f"/v1/projects/{REF}/database/query")
    assert asked.json == {"query": sql}
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"


async def test_a_migration_without_a_clear_answer_is_not_repeated() -> None:
    for trouble in (Said(500, {"message": "x"}), Said(raw=hang_up), Said(201, "no json")):
        async with serving(trouble) as (app, service):
            failed(await ask(app, "migration", query="DROP TABLE notes"), "OUTCOME_UNKNOWN")
        assert len(service.asked) == 1


async def test_sql_needs_an_access_token_and_says_where_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLGATE_SECRET_SUPABASE_ACCESS_TOKEN")
    async with serving(Said(201, []), agree=False) as (app, service):
        error = failed(await app.invoke("supabase_query", {"query": "SELECT 1"}), "MISSING_AUTH")
        assert await app.approvals.list() == []
    assert "SUPABASE_ACCESS_TOKEN" in error.message
    assert "https://supabase.com/dashboard/account/tokens" in error.message
    assert service.asked == []


async def test_an_error_of_the_database_is_told() -> None:
    answer = Said(400, {"message": 'Failed to run sql query: relation "nope" does not exist'})
    async with serving(answer) as (app, _):
        assert (
            "does not exist" in failed(await app.invoke("supabase_query", {"query": "TABLE nope"}), "INVALID_INPUT").message
        )


# -- tables


def headers(asked: Asked) -> tuple[str, ...]:
    return tuple(asked.headers.get(name, "") for name in ("apikey", "authorization", "prefer"))


async def test_select_asks_for_columns_filters_order_and_a_range() -> None:
    async with serving(Said(206, ROWS, {"content-range": "10-11/57"})) as (app, service):
        outcome = await ask(
            app, "select", table="notes", columns="id,name,author(name)", order="id.desc", limit=2, offset=10, count=True,
            filters={"id": "gte.1", "or": "(a.eq.1,b.is.null)", "author.name": "eq.Ann"},
        )  # fmt: skip
    assert outcome.output["rows"] == ROWS
    assert outcome.output["total"] == 57
    (asked,) = service.asked
    assert (asked.method, asked.path, asked.body) == ("GET", "/rest/v1/notes", b"")
    assert asked.query == {
        "select": "id,name,author(name)", "order": "id.desc", "limit": "2", "offset": "10", "id": "gte.1",
        "or": "(a.eq.1,b.is.null)", "author.name": "eq.Ann",
    }  # fmt: skip
    assert headers(asked) == (KEY, f"Bearer {KEY}", "count=exact")


@pytest.mark.parametrize(
    ("operation", "arguments", "method", "prefer", "body"),
    [
        ("insert", {"data": {"name": "x"}}, "POST", "return=representation", {"name": "x"}),
        ("insert", {"data": ROWS}, "POST", "return=representation", ROWS),
        ("upsert", {"data": ROWS}, "POST", "return=representation,resolution=merge-duplicates", ROWS),
        ("update", {"data": {"name": "y"}, "filters": {"id": "eq.1"}}, "PATCH",
         "return=representation,handling=strict,max-affected=1000", {"name": "y"}),
        ("delete", {"filters": {"id": "in.(1,2)"}}, "DELETE",
         "return=representation,handling=strict,max-affected=1000", None),
    ],
)  # fmt: skip
async def test_rows_are_changed_as_postgrest_documents_it(
    operation: str, arguments: dict[str, Any], method: str, prefer: str, body: Any
) -> None:
    async with serving(Said(201 if method == "POST" else 200, ROWS)) as (app, service):
        outcome = await ask(app, operation, **TABLE, **arguments)
    assert outcome.output["rowCount"] == 2
    (asked,) = service.asked
    assert (asked.method, asked.path) == (method, "/rest/v1/notes")
    assert asked.query == {"select": "*", **arguments.get("filters", {})}
    assert headers(asked) == (KEY, f"Bearer {KEY}", prefer)
    assert (asked.json if asked.body else None) == body


@pytest.mark.parametrize(("answer", "rows"), [({"sum": 5}, [{"sum": 5}]), ([1, 2], [1, 2])])
async def test_a_function_is_called_with_its_arguments(answer: Any, rows: list[Any]) -> None:
    async with serving(Said(200, answer)) as (app, service):
        outcome = await ask(app, "rpc", table="add_them", data={"a": 2, "b": 3})
    assert outcome.output["rows"] == rows
    (asked,) = service.asked
    assert (asked.method, asked.path, asked.query) == ("POST", "/rest/v1/rpc/add_them", {})
    assert asked.json == {"a": 2, "b": 3}


async def test_no_content_is_no_rows() -> None:
    async with serving(Said(204)) as (app, _):
        assert (await ask(app, "rpc", table="reset")).output["rows"] == []


# -- what would be about more than it says


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("delete", {}), ("delete", {"filters": {}}), ("update", {"data": {"a": 1}}),
        ("delete", {"filters": {"select": "eq.1"}}), ("delete", {"filters": {"LIMIT": "eq.1"}}),
        ("delete", {"filters": {"or": "(a.eq.1,a.neq.1)"}}), ("delete", {"filters": {"not.and": "(a.eq.1)"}}),
        ("delete", {"filters": {"author.name": "eq.Ann"}}), ("delete", {"filters": {"columns": "eq.1"}}),
        ("delete", {"filters": {"on_conflict": "eq.a"}}), ("delete", {"filters": {"order": "eq.a"}}),
        ("update", {"data": {"a": 1}, "filters": {"id": "5"}}), ("update", {"data": {"a": 1}, "filters": {"id": ""}}),
        ("delete", {"filters": {"id": "eq.1", "select": "x"}}), ("delete", {"filters": {"id&id": "eq.1"}}),
        ("delete", {"filters": {"id": "eq.1"}, "data": {"a": 1}}), ("select", {"data": {}}), ("insert", {}),
        ("insert", {"data": []}), ("insert", {"data": [1]}), ("insert", {"data": "x"}), ("insert", {"data": [{}] * 1001}),
        ("update", {"data": [{}], "filters": {"id": "eq.1"}}), ("rpc", {"data": [1]}), ("select", {"columns": "a" * 3000}),
    ],
)  # fmt: skip
async def test_a_change_without_a_filter_and_other_mistakes_are_refused(operation: str, arguments: dict[str, Any]) -> None:
    async with serving(Said(200, []), agree=False) as (app, service):
        failed(await ask(app, operation, **TABLE, **arguments), "INVALID_INPUT")
        assert await app.approvals.list() == []
    assert service.asked == []


@pytest.mark.parametrize(
    "table", ["", "..", "../auth/v1/admin", "a/b", "a?b", "notes#", "a b", ".", "1a", "rpc/x", "a\nb", "a%2f"]
)
async def test_a_table_is_no_path(table: str) -> None:
    async with serving(Said(200, [])) as (app, service):
        failed(await ask(app, "select", table=table), "INVALID_INPUT")
        failed(await ask(app, "rpc", table=table), "INVALID_INPUT")
    assert service.asked == []


@pytest.mark.parametrize("operation", ["delete", "rpc", "migration"])
async def test_what_destroys_is_covered_by_no_grant(operation: str) -> None:
    async with serving(Said(200, [])) as (app, _):
        assert governed(app, operation).destructive


async def test_a_tenant_that_may_not_run_code_may_not_migrate() -> None:
    async with serving(Said(200, ROWS)) as (app, service):
        await app.policy.restrict_code("default")
        failed(await ask(app, "migration", query="DROP TABLE notes"), "PERMISSION_DENIED")
    assert service.asked == []


# -- answers


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Said(401, {"code": "PGRST301", "message": "JWT expired", "details": None, "hint": None}), "MISSING_AUTH"),
        (Said(403, {"code": "42501", "message": "permission denied for table notes"}), "PERMISSION_DENIED"),
        (Said(404, {"code": "PGRST205", "message": "no such table", "hint": "Perhaps notes"}), "INVALID_INPUT"),
        (Said(409, {"code": "23505", "message": "duplicate key value"}), "INVALID_INPUT"),
        (Said(400, {"code": "PGRST124", "message": "exceeds max-affected"}), "INVALID_INPUT"),
        (Said(500, {"code": "57014", "message": "canceling statement due to statement timeout"}), "INVALID_INPUT"),
        (Said(429, b"", {"retry-after": "3"}), "RATE_LIMITED"),
        (Said(503, {"code": "08006", "message": "connection lost"}), "OUTCOME_UNKNOWN"),
        (Said(500, {"code": "40003", "message": "statement completion unknown"}), "OUTCOME_UNKNOWN"),
        (Said(502, "<html>"), "OUTCOME_UNKNOWN"),
        (Said(200, "<html>"), "OUTCOME_UNKNOWN"),
        (Said(201, b'"' + b"x" * 5_000_000 + b'"'), "OUTCOME_UNKNOWN"),
        (Said(raw=hang_up), "OUTCOME_UNKNOWN"),
    ],
)  # fmt: skip
@pytest.mark.sample(4)
async def test_what_became_of_a_change_is_told_and_it_is_made_once(answer: Said, code: str) -> None:
    async with serving(answer) as (app, service):
        failed(await ask(app, "insert", **TABLE, data={"name": "x"}), code)
    assert len(service.asked) == 1


@pytest.mark.parametrize("trouble", [Said(503), Said(502, "<html>"), Said(raw=hang_up)], ids=["503", "502", "hung up"])
async def test_a_question_is_asked_again(trouble: Said) -> None:
    async with serving(trouble, Said(200, ROWS)) as (app, service):
        assert (await ask(app, "select", **TABLE)).output["rows"] == ROWS
    assert len(service.asked) == 2


async def test_a_change_whose_answer_does_not_come_in_time_may_have_been_made() -> None:
    async with serving(never) as (app, service):
        outcome = await app.invoke(
            "supabase_query", {"operation": "delete", **TABLE, "filters": {"id": "eq.1"}}, timeout=3.0
        )
        failed(outcome, "OUTCOME_UNKNOWN")
    assert len(service.asked) == 1


async def test_a_redirect_takes_no_key_along() -> None:
    async with site(scripted([Said(200, ROWS)])) as other:
        async with serving(Said(301, b"", {"location": f"{other.url}/rest/v1/notes"})) as (app, _):
            failed(await ask(app, "select", **TABLE), "INVOCATION_ERROR")
        assert other.asked == []


# -- projects


async def test_each_tenant_has_its_own_project() -> None:
    async with site(scripted([Said(200, ROWS)])) as ours, site(scripted([Said(200, [])])) as theirs:
        settings = {"supabase": {"project": {"url": ours.url}, "tenants": {"globex": {"url": theirs.url}}}}
        async with memory_app(services=settings) as app:
            app.approvals.add_approver(lambda _request: True)
            arguments = {"operation": "select", **TABLE}
            mine = await app.invoke("supabase_query", arguments, actor=Actor("acme", user="ann"))
            other = await app.invoke("supabase_query", arguments, actor=Actor("globex", user="gus"))
            sql = await app.invoke("supabase_query", {"query": "SELECT 1"})
    assert (mine.output["rowCount"], other.output["rowCount"]) == (2, 0)
    assert (len(ours.asked), len(theirs.asked)) == (1, 1)
    assert "reference id" in failed(sql, "MISSING_AUTH").message


async def test_without_a_project_the_answer_names_the_setting() -> None:
    async with memory_app() as app:
        error = failed(await ask(app, "select", **TABLE), "MISSING_AUTH")
    assert "services: {supabase: {project: {url: https://" in error.message


async def test_the_key_is_tested_by_a_request_that_reads_nothing() -> None:
    async with serving(Said(200), Said(401)) as (app, service):
        assert (await app.secrets.test("supabase_query")).result == "works"
        assert (await app.secrets.test("supabase_query")).result == "refused"
    assert (service.asked[0].method, service.asked[0].path) == ("HEAD", "/rest/v1/")


async def test_a_database_that_gives_the_credentials_back_gives_them_masked() -> None:
    rows = [{"note": f"key {KEY} and token {TOKEN}"}]
    async with serving(Said(201, rows), Said(400, {"message": f"what is {TOKEN}"})) as (app, _):
        outcome = await app.invoke("supabase_query", {"query": "SELECT note FROM public.notes"})
        error = failed(await app.invoke("supabase_query", {"query": "SELECT 1"}), "INVALID_INPUT")
        log = await records(app)
    for text in (str(outcome.output), error.message, str(error.details), log):
        assert KEY not in text
        assert TOKEN not in text
    assert "token" in str(outcome.output)

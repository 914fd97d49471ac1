"""`supabase_query`: tables and SQL of a Supabase project."""

import time
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypedDict

from toolgate.errors import CallError, InvalidInput, ToolError
from toolgate.model import Auth, Capability, ErrorCase, Example, Operation, Retry
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tests_credential, tool
from toolgate.screening.queries import MAX_QUERY_CHARS, check_query
from toolgate.services.credentials import Credentials
from toolgate.services.service_api import is_accepted, seconds_for
from toolgate.services.supabase import MAX_ROWS, SETUP_URL, TOKENS_URL, Supabase, TableRequest

ACCESS_TOKEN = Auth(type="bearer_token", config_key="SUPABASE_ACCESS_TOKEN", setup_url=TOKENS_URL)
MAX_PARAMS = 100
Action = Literal["query", "select", "insert", "update", "upsert", "delete", "rpc", "migration"]
SQL = frozenset({"query", "migration"})


class SupabaseRows(TypedDict):
    """The rows, how many they are, and how long it took in milliseconds. `total`: how many rows match in all."""

    rows: list[Any]
    rowCount: int
    duration: float
    total: NotRequired[int | None]


class CheckArguments:
    """Refuses a call that cannot or may not be made before a person is asked about it."""

    def will_check_consent(self, ctx: InvokeContext) -> None:
        try:
            arguments = ctx.arguments
            supabase: Supabase = ctx.get(Supabase)
            supabase.project(ctx.actor.tenant)
            if arguments["operation"] in SQL:
                supabase.ref(ctx.actor.tenant)
                _checked_sql(arguments["operation"], arguments["query"], arguments.get("params"))
                ctx.get(Credentials).lend(ctx, ACCESS_TOKEN)
            else:
                names = (name for name in TableRequest._fields if arguments.get(name) is not None)
                TableRequest(**{name: arguments[name] for name in names}).check()
        except (CallError, ToolError) as error:
            ctx.abort(str(error), error.code)


async def _accepts_supabase(credential: str, ctx: InvokeContext) -> bool:
    return await is_accepted(ctx.get(Supabase).check(ctx.actor.tenant, credential))


@tool(
    tier="external_api",
    category="database",
    target="supabase",
    timeout=60,
    tags=["sql"],
    requires_auth=Auth(type="api_key", config_key="SUPABASE_KEY", setup_url=SETUP_URL),
    capabilities=[
        Capability(
            action="query",
            description="Execute SQL query on Supabase",
            requires_confirmation=True,
            estimated_time_ms=1000,
        )
    ],
    operations={
        "query": "external_api",
        "select": "external_api",
        "insert": "external_api",
        "update": "external_api",
        "upsert": "external_api",
        "delete": Operation(tier="external_api", destructive=True),
        # What a function of the database does, its name does not say.
        "rpc": Operation(tier="external_api", destructive=True),
        "migration": Operation(tier="execute", destructive=True),
    },
    # A request that changes something ends as OUTCOME_UNKNOWN where it is unclear, which is not repeated.
    retry=Retry(max_attempts=3, backoff_ms=1000, multiplier=2.0, codes=("TIMEOUT", "CONNECTION_ERROR")),
    hooks=[CheckArguments()],
    errors=[
        ErrorCase(
            "SECURITY_VIOLATION", "the SQL of a query does more than read", "Ask with one SELECT, or use a migration."
        ),
        ErrorCase("INVALID_INPUT", "an update or delete has no filter, or Supabase refuses it", "Correct the arguments."),
        ErrorCase("MISSING_AUTH", "no project, key or access token is set, or it is not accepted", "Set it; see the page."),
        ErrorCase("PERMISSION_DENIED", "the key may not do this", "Use another key, or change the table's policies."),
        ErrorCase("RATE_LIMITED", "Supabase gets too many requests", "Wait for retry_after seconds."),
        ErrorCase(
            "OUTCOME_UNKNOWN", "a change may have been made, and no clear answer came", "Select before you repeat it."
        ),
    ],
    examples=[
        Example(
            name="SQL that reads", arguments={"query": "SELECT id, name FROM public.notes WHERE id = $1", "params": [1]}
        ),
        Example(name="rows of a table", arguments={"operation": "select", "table": "notes", "filters": {"id": "eq.1"}}),
    ],
)
@tests_credential(_accepts_supabase)
async def supabase_query(
    ctx: InvokeContext,
    operation: Action = "query",
    query: str = "",
    params: list[Any] | SkipJsonSchema[None] = None,
    table: str = "",
    columns: str = "*",
    filters: dict[str, str] | SkipJsonSchema[None] = None,
    data: Any = None,
    order: str = "",
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 100,
    offset: Annotated[int, Field(ge=0)] = 0,
    count: bool = False,
) -> SupabaseRows:
    """Query a Supabase database: one SQL SELECT (query), rows of a table, a function (rpc), or changing SQL (migration).

    Args:
        query: SQL of query and migration, with $1 for params.
        table: Of the others; for rpc the function.
        filters: PostgREST filters of a column: {"id": "eq.5"}.
        data: Row or rows; for rpc the arguments.
        order: Such as name.desc.
        count: Count all that match.
    """
    supabase: Supabase = ctx.get(Supabase)
    tenant, seconds, began = ctx.actor.tenant, seconds_for(ctx.time_limit), time.perf_counter()
    if operation == "query" or operation == "migration":
        sql, token = _checked_sql(operation, query, params), ctx.get(Credentials).lend(ctx, ACCESS_TOKEN)
        run = supabase.read_sql if operation == "query" else supabase.run_sql
        found = await run(tenant, token, sql, params or (), seconds=seconds)
    else:
        request = TableRequest(operation, table, columns, filters or {}, data, order, limit, offset, count)
        found = await supabase.rest(tenant, ctx.credential, request, seconds=seconds)
    result: SupabaseRows = {
        "rows": found.rows,
        "rowCount": len(found.rows),
        "duration": round((time.perf_counter() - began) * 1000, 1),
    }
    if found.total is not None:
        result["total"] = found.total
    return result


def _checked_sql(operation: str, sql: str, params: list[Any] | None) -> str:
    if not sql.strip():
        raise InvalidInput("query is missing.", suggestion="Give the SQL, or an operation and a table.")
    if len(sql) > MAX_QUERY_CHARS or len(params or ()) > MAX_PARAMS:
        raise InvalidInput(f"The SQL has more than {MAX_QUERY_CHARS:,} characters, or more than {MAX_PARAMS} parameters.")
    if operation == "query":
        check_query(sql)
    return sql

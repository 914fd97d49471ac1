"""Supabase: the tables of a project through PostgREST, and SQL through the management API."""

import re
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from toolgate.errors import InvalidInput, ToolError
from toolgate.network.http_client import HttpClient
from toolgate.network.http_response import HttpResponse
from toolgate.services.service_api import ServiceApi, ServiceFault
from toolgate.settings.services import SupabaseProject, SupabaseSettings

SETUP_URL = "https://app.supabase.com/project/_/settings/api"
TOKENS_URL = "https://supabase.com/dashboard/account/tokens"
MAX_AFFECTED_ROWS = 1_000
"""An update or delete of more is undone by PostgREST, and refused."""
MAX_ROWS = 1_000
MAX_TEXT_CHARS = 2_000
MAX_FILTERS = 50
MAX_ANSWER_BYTES = 4_000_000
NAME = re.compile(r"[^\W\d][\w$-]{0,62}\Z")
"""Of a table or function: it becomes part of a path."""
COLUMN = re.compile(r"[^\W\d][\w$ -]{0,62}(?:->>?[\w-]{1,62}){0,5}\Z")
"""Of a filter. A dot would make it a filter of another table, which leaves the rows of this one as they are."""
EMBEDDED = re.compile(r"[^\W\d][\w$-]{0,62}(?:\.[^\W\d][\w$-]{0,62}){1,3}\Z")
LOGICAL = frozenset({"and", "or", "not.and", "not.or"})
RESERVED = frozenset({"select", "order", "limit", "offset", "columns", "on_conflict", *LOGICAL})
"""Parameters of PostgREST that are no filters."""
OPERATOR = re.compile(
    r"(?:not\.)?(?:eq|neq|gte?|lte?|i?like|i?match|in|is|isdistinct|fts|plfts|phfts|wfts|cs|cd|ov|sl|sr|nxr|nxl|adj)"
    r"(?:\([A-Za-z_]{1,30}\))?\..{0,4000}\Z",
    re.DOTALL,
)
SQLSTATE = re.compile(r"(?!08|40003|57P)[0-9A-Z]{5}\Z")
"""Codes of PostgreSQL but those of a lost connection, a server that goes away, and a commit that nobody knows of."""
TOTAL = re.compile(r"(?:\*|\d+-\d+)/(\d{1,18})\Z")

TableOperation = Literal["select", "insert", "update", "upsert", "delete", "rpc"]
METHODS: Mapping[str, str] = {"select": "GET", "insert": "POST", "upsert": "POST", "update": "PATCH", "delete": "DELETE"}
FILTERED = frozenset({"update", "delete"})


class TableRequest(NamedTuple):
    """An operation on a table, or the call of a function."""

    operation: TableOperation
    table: str
    columns: str = "*"
    filters: Mapping[str, str] = {}
    data: Any = None
    order: str = ""
    limit: int = 100
    offset: int = 0
    counts: bool = False
    """True: how many rows match in all is asked for."""

    def check(self) -> None:
        """Raises InvalidInput for what would not be what it looks like."""
        if len(self.columns) > MAX_TEXT_CHARS or len(self.order) > MAX_TEXT_CHARS or len(self.filters) > MAX_FILTERS:
            raise InvalidInput("columns, order or filters are too long.")
        if NAME.match(self.table) is None:
            raise InvalidInput(
                "table is missing, or is not a valid name.", suggestion="Name one table, or for rpc one function."
            )
        for name, value in self.filters.items():
            if not (COLUMN.match(name) and name.lower() not in RESERVED) and not self._may_be_logical(name):
                raise InvalidInput(f"{name[:60]!r} cannot be filtered by.", suggestion='Filter by columns: {"id": "eq.5"}.')
            if name not in LOGICAL and OPERATOR.match(value) is None:
                raise InvalidInput(
                    f"The filter of {name[:60]!r} has no operator.", suggestion='Write it as PostgREST does: {"id": "eq.5"}.'
                )
        if self.operation in FILTERED and not any(name not in LOGICAL for name in self.filters):
            raise InvalidInput(
                f"{self.operation} without a filter would be about every row.", suggestion='Say which: {"id": "eq.5"}.'
            )
        self._check_data()

    def _may_be_logical(self, name: str) -> bool:
        return name in LOGICAL or (self.operation == "select" and EMBEDDED.match(name) is not None)

    def _check_data(self) -> None:
        data, rows = self.data, self.operation in ("insert", "upsert")
        if self.operation in ("select", "delete"):
            if data is not None:
                raise InvalidInput(f"{self.operation} takes no data.")
        elif rows and isinstance(data, list):
            if not 0 < len(data) <= MAX_ROWS or not all(isinstance(row, dict) for row in data):
                raise InvalidInput(f"data must be 1 to {MAX_ROWS:,} rows, each an object.")
        elif not isinstance(data, dict) and not (self.operation == "rpc" and data is None):
            raise InvalidInput(f"data must be an object{' or a list of them' if rows else ''}.")

    def query(self) -> dict[str, str]:
        """The parameters of the address."""
        given = {"order": self.order}
        if self.operation != "rpc":
            given["select"] = self.columns
        if self.operation == "select":
            given |= {"limit": str(self.limit), "offset": str(self.offset) if self.offset else ""}
        return {**{name: value for name, value in given.items() if value}, **self.filters}

    def prefer(self) -> str | None:
        """The preferences of PostgREST."""
        match self.operation:
            case "select":
                return "count=exact" if self.counts else None
            case "update" | "delete":
                return f"return=representation,handling=strict,max-affected={MAX_AFFECTED_ROWS}"
            case "upsert":
                return "return=representation,resolution=merge-duplicates"
            case "insert":
                return "return=representation"
        return None


class Rows(NamedTuple):
    """What came back, and how many rows there are in all if that was asked for."""

    rows: list[Any]
    total: int | None = None


class Supabase:
    """The client."""

    def __init__(self, settings: SupabaseSettings, http: HttpClient) -> None:
        self._settings = settings
        self._http = http
        self._management = ServiceApi("Supabase", settings.management_url, http, setup_url=TOKENS_URL, read_fault=_fault)

    def project(self, tenant: str) -> SupabaseProject:
        """The project of a tenant. Raises ToolError if the settings name none."""
        found = self._settings.tenants.get(tenant) or self._settings.project
        if found is None:
            raise _not_set("No project of Supabase is set.", "{url: https://….supabase.co}")
        return found

    def ref(self, tenant: str) -> str:
        """The reference id of that project, by which the management API knows it."""
        found = self.project(tenant).project_ref
        if found is None:
            raise _not_set("The reference id of the Supabase project is not set.", "{url: …, ref: abcdefghijklmnopqrst}")
        return found

    def _project_api(self, tenant: str) -> ServiceApi:
        return ServiceApi("Supabase", self.project(tenant).url, self._http, setup_url=SETUP_URL, read_fault=_fault)

    async def rest(self, tenant: str, key: str | None, request: TableRequest, *, seconds: float) -> Rows:
        """An operation on a table of the tenant's project, or a call of one of its functions."""
        api = self._project_api(tenant)
        request.check()
        headers = {"apikey": api.checked(key), **api.bearer(key)}
        if (prefer := request.prefer()) is not None:
            headers["Prefer"] = prefer
        changes = request.operation != "select"
        name = quote(request.table, safe="")
        response = await _judged(
            api.send(
                METHODS.get(request.operation, "POST"),
                f"/rest/v1/rpc/{name}" if request.operation == "rpc" else f"/rest/v1/{name}",
                headers=headers,
                query=request.query(),
                json=({} if request.data is None else request.data) if changes and request.operation != "delete" else None,
                changes=changes,
                seconds=seconds,
                max_bytes=MAX_ANSWER_BYTES,
            )
        )
        return Rows(_rows(api, response, changes), _total(response) if request.counts else None)

    async def read_sql(self, tenant: str, token: str, sql: str, params: Sequence[Any], *, seconds: float) -> Rows:
        """Runs a query as a user of the database who may only read."""
        return await self._sql(tenant, token, "/query/read-only", sql, params, changes=False, seconds=seconds)

    async def run_sql(self, tenant: str, token: str, sql: str, params: Sequence[Any], *, seconds: float) -> Rows:
        """Runs statements as the owner of the database."""
        return await self._sql(tenant, token, "/query", sql, params, changes=True, seconds=seconds)

    async def _sql(
        self, tenant: str, token: str, path: str, sql: str, params: Sequence[Any], *, changes: bool, seconds: float
    ) -> Rows:
        body: dict[str, Any] = {"query": sql}
        if params:
            body["parameters"] = list(params)
        response = await self._management.send(
            "POST",
            f"/v1/projects/{self.ref(tenant)}/database{path}",
            headers=self._management.bearer(token),
            json=body,
            changes=changes,
            seconds=seconds,
            max_bytes=MAX_ANSWER_BYTES,
        )
        return Rows(_rows(self._management, response, changes))

    async def check(self, tenant: str, key: str | None) -> None:
        """Raises if the key of the project is not accepted."""
        api = self._project_api(tenant)
        headers = {"apikey": api.checked(key), **api.bearer(key)}
        await api.send("HEAD", "/rest/v1/", headers=headers, changes=False)


def _not_set(words: str, value: str) -> ToolError:
    return ToolError(
        words,
        code="MISSING_AUTH",
        suggestion=f"An operator sets it: `services: {{supabase: {{project: {value}}}}}`.",
        details={"setting": "services.supabase.project", "setup_url": SETUP_URL},
    )


async def _judged(sending: Awaitable[HttpResponse]) -> HttpResponse:
    """The answer. An error of the database itself, for which PostgREST has statuses of a broken server, is known to have
    undone the transaction, and says nothing of the health of the service."""
    try:
        return await sending
    except ToolError as error:
        details = error.details or {}
        state = details.get("code")
        if details.get("status", 0) < 500 or not isinstance(state, str) or not SQLSTATE.match(state):
            raise
        raise ToolError(f"The database refused it: {error.message}", code="INVALID_INPUT", details=details) from error


def _rows(api: ServiceApi, response: HttpResponse, changes: bool) -> list[Any]:
    if response.status == 204 or not response.body:
        return []
    read = api.json(response, object, changes=changes)
    return read if isinstance(read, list) else [read]


def _total(response: HttpResponse) -> int | None:
    found = TOTAL.match(response.headers.get("content-range", ""))
    return None if found is None else int(found[1])


def _fault(body: Any) -> ServiceFault:
    if not isinstance(body, dict):
        return ServiceFault()
    more = {name: body[name][:300] for name in ("hint", "details") if isinstance(body.get(name), str)}
    return ServiceFault(body.get("message"), body.get("code"), more=more)

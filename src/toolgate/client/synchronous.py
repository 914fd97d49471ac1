"""The client for programs without an event loop. Written from `asynchronous.py` by `make reference`."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import httpx2
import msgspec

from toolgate.app.log_tail import LogEvent
from toolgate.client.connection import (
    TIMEOUT_SECONDS,
    ServerUnreachable,
    address_of,
    arguments_of,
    body_bytes,
    body_of,
    headers_of,
    path_of,
    query_of,
    read,
)
from toolgate.client.event_lines import EventLines
from toolgate.errors import described
from toolgate.gates.approval.request import GrantScope, State, Verdict
from toolgate.jobs.job import Job
from toolgate.jobs.schedules import Schedule
from toolgate.model import Outcome, Source
from toolgate.pipeline.explain import Explanation
from toolgate.registry.export import Shape
from toolgate.serve.http.approvals import AnsweredApproval, ApprovalDetail, ApprovalSummary
from toolgate.serve.http.budgets import BudgetView
from toolgate.serve.http.catalog import FoundTools, ToolDetail
from toolgate.serve.http.costs import CostReport
from toolgate.serve.http.grants import GrantView
from toolgate.serve.http.invocations import CallDetail, CallSummary
from toolgate.serve.http.keys import KeyView, MadeKey
from toolgate.serve.http.pages import MAX_PAGE, Page
from toolgate.serve.http.session import SessionView
from toolgate.serve.http.tools import ToolSummary

T = TypeVar("T")
CONNECT_ATTEMPTS = 2
JSON_HEADERS = {"content-type": "application/json"}
MAX_WAIT_SECONDS = 50.0
"""Of one request that waits for a job; a longer wait takes several."""


class ServerConnection:
    """Sends requests, and gives what they are answered with."""

    def __init__(self, url: str | None, key: str | None, timeout: float, tenant: str | None) -> None:
        self._tenant = {} if tenant is None else {"tenant": tenant}
        self._http = httpx2.Client(
            base_url=address_of(url),
            headers=headers_of(key),
            timeout=httpx2.Timeout(timeout),
            # A connection that could not be made has sent nothing, so it may be tried again whatever was to be sent.
            transport=httpx2.HTTPTransport(retries=CONNECT_ATTEMPTS),
        )

    def close(self) -> None:
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        gives: type[T],
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        always: bool = False,
    ) -> T:
        """Makes a request. `always`: its answer has the same form whatever its status. Raises `RequestRefused` or
        `ServerUnreachable`."""
        sent = {**(JSON_HEADERS if body is not None else {}), **(headers or {})}
        limit = httpx2.USE_CLIENT_DEFAULT if timeout is None else timeout
        try:
            answer = self._http.request(
                method, path, params={**self._tenant, **(query or {})}, content=body_bytes(body), headers=sent, timeout=limit
            )
        except httpx2.TransportError as error:
            raise ServerUnreachable(f"{self._http.base_url} cannot be reached: {described(error)}.") from error
        return read(answer.status_code, answer.content, gives, always=always)

    def pages(self, path: str, kind: type[T], limit: int | None = None, **query: Any) -> list[T]:
        """Gives all items of a list, or so many, in as many requests as it takes."""
        found: list[T] = []
        cursor: str | None = None
        while limit is None or len(found) < limit:
            size = MAX_PAGE if limit is None else min(MAX_PAGE, limit - len(found))
            asked = query_of(**query, limit=size, cursor=cursor)
            page: Page[T] = self.send("GET", path, Page[kind], query=asked)  # type: ignore[valid-type]
            found += page.items
            cursor = page.next
            if cursor is None:
                break
        return found

    def lines(self, path: str, query: Mapping[str, str], last: int | None) -> Iterator[str]:
        """Gives the lines of an answer that does not end."""
        headers = {"accept": "text/event-stream"} | ({} if last is None else {"last-event-id": str(last)})
        asked = {**self._tenant, **query}
        try:
            with self._http.stream("GET", path, params=asked, headers=headers, timeout=None) as answer:
                if answer.status_code != 200:
                    read(answer.status_code, answer.read(), str)
                yield from answer.iter_lines()
        except httpx2.TransportError as error:
            raise ServerUnreachable(f"The events of {self._http.base_url} were cut off: {described(error)}.") from error


class Client:
    """A Toolgate server: `with Client.open(url, key=…) as app`."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self.tools = ToolsClient(connection)
        self.approvals = ApprovalsClient(connection)
        self.grants = GrantsClient(connection)
        self.budgets = BudgetsClient(connection)
        self.jobs = JobsClient(connection)
        self.schedules = SchedulesClient(connection)
        self.audit = AuditClient(connection)
        self.keys = KeysClient(connection)

    @classmethod
    def open(
        cls, url: str | None = None, *, key: str | None = None, tenant: str | None = None, timeout: float = TIMEOUT_SECONDS
    ) -> Self:
        """Makes a client of a server.

        Args:
            url: Its address; without it TOOLGATE_URL, or http://127.0.0.1:8700.
            key: An API key or a token; without it TOOLGATE_KEY.
            tenant: Of an operator: the tenant that requests are about.
            timeout: Seconds that a request may take, unless it says otherwise itself.
        """
        return cls(ServerConnection(url, key, timeout, tenant))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.close()

    def invoke(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | bytes | None = None,
        *,
        session: str | None = None,
        idempotency_key: str | None = None,
        approval: str | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> Outcome:
        """Calls a tool. Whatever the tool, a gate or the arguments do, it gives an outcome; raises only if the server cannot
        be reached or does not take the request. Arguments as for `App.invoke`."""
        body = body_of(arguments=arguments_of(arguments), session=session, approval=approval, timeout=timeout)
        return self._call(name, body, idempotency_key, request_id, timeout)

    def enqueue(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | bytes | None = None,
        *,
        session: str | None = None,
        idempotency_key: str | None = None,
        approval: str | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
        delay: float = 0.0,
        priority: int = 0,
    ) -> Outcome:
        """Has a tool called in the background; its outcome is pending, with the id of the job (`app.jobs.wait`)."""
        body = body_of(
            arguments=arguments_of(arguments), session=session, approval=approval, timeout=timeout, mode="async",
            delay=delay, priority=priority,
        )  # fmt: skip
        return self._call(name, body, idempotency_key, request_id, None)

    def _call(
        self, name: str, body: Mapping[str, Any], key: str | None, request_id: str | None, timeout: float | None
    ) -> Outcome:
        headers = body_of(**{"idempotency-key": key, "x-request-id": request_id})
        path = path_of("/v1/tools/{}/invoke", name)
        # The server ends the call in time, and its answer still has to arrive.
        limit = None if timeout is None else timeout + TIMEOUT_SECONDS
        return self._connection.send("POST", path, Outcome, body=body, headers=headers, timeout=limit, always=True)

    def explain(
        self, name: str, arguments: Mapping[str, Any] | str | bytes | None = None, *, session: str | None = None
    ) -> Explanation:
        """Gives what every gate would say to a call, without making it."""
        body = body_of(arguments=arguments_of(arguments), session=session)
        return self._connection.send("POST", path_of("/v1/tools/{}/explain", name), Explanation, body=body)

    def events(
        self, *, event: str | None = None, tool: str | None = None, session: str | None = None, after: int | None = None
    ) -> Iterator[LogEvent]:
        """Gives what happens, as it happens: `for event in app.events()`. After `ServerUnreachable` go on with
        `after=` the last `seq`: nothing is missed."""
        lines = EventLines()
        query = query_of(event=event, tool=tool, session=session)
        for line in self._connection.lines("/v1/events", query, after):
            found = lines.take(line)
            if found is not None:
                yield found

    def whoami(self) -> SessionView:
        """Gives who the key belongs to, and what it may do."""
        return self._connection.send("GET", "/v1/session", SessionView)


class ClientFacet:
    """Verbs about one thing."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection


class ToolsClient(ClientFacet):
    """The tools that the caller may see."""

    def get(self, name: str) -> ToolDetail:
        """Gives a tool with its whole definition."""
        return self._connection.send("GET", path_of("/v1/tools/{}", name), ToolDetail)

    def search(self, text: str, limit: int = 10) -> FoundTools:
        """Gives tools in which words of a text are found, best first."""
        return self._connection.send("GET", "/v1/tools/search", FoundTools, query=query_of(q=text, limit=limit))

    def export(self, shape: Shape) -> list[dict[str, Any]]:
        """Gives the tools in the shape that a model's API or an MCP client takes."""
        return self._connection.send("GET", "/v1/tools/export", list[dict[str, Any]], query=query_of(shape=shape))

    def enable(self, tool: str, *, persona: str | None = None, reason: str | None = None) -> ToolDetail:
        """Enables a tool for the tenant, or for a persona."""
        return self._set(tool, True, persona, reason)

    def disable(self, tool: str, *, persona: str | None = None, reason: str | None = None) -> ToolDetail:
        """Disables a tool for the tenant, or for a persona."""
        return self._set(tool, False, persona, reason)

    def _set(self, tool: str, enabled: bool, persona: str | None, reason: str | None) -> ToolDetail:
        body = body_of(enabled=enabled, persona=persona, reason=reason)
        return self._connection.send("PATCH", path_of("/v1/tools/{}", tool), ToolDetail, body=body)

    def list(self, source: Source | None = None) -> list[ToolSummary]:
        """Gives the tools, by name; of one source, or of all."""
        return self._connection.pages("/v1/tools", ToolSummary, source=source)


class ApprovalsClient(ClientFacet):
    """The calls that wait for a person."""

    def get(self, id: str) -> ApprovalDetail:
        """Gives one question, with everything that will run and where."""
        return self._connection.send("GET", path_of("/v1/approvals/{}", id), ApprovalDetail)

    def answer(
        self,
        id: str,
        verdict: Verdict | bool,
        *,
        arguments: Mapping[str, Any] | None = None,
        reason: str | None = None,
        run: bool = False,
    ) -> AnsweredApproval:
        """Approves, edits or rejects a call that waits. `run`: it is made now, and its outcome is given too."""
        said = verdict if isinstance(verdict, str) else "approve" if verdict else "reject"
        body = body_of(verdict=said, arguments=arguments, reason=reason, run=run)
        return self._connection.send("POST", path_of("/v1/approvals/{}", id), AnsweredApproval, body=body)

    def resume(self, id: str) -> AnsweredApproval:
        """Runs one's own call that was approved."""
        return self._connection.send("POST", path_of("/v1/approvals/{}/resume", id), AnsweredApproval)

    def list(self, *, state: State | None = "waiting", limit: int | None = None) -> list[ApprovalSummary]:
        """Gives the questions, those that wait or those in another state."""
        return self._connection.pages("/v1/approvals", ApprovalSummary, limit, state=state)


class GrantsClient(ClientFacet):
    """Calls that somebody agreed to ahead of time."""

    def create(
        self,
        tool: str,
        scope: GrantScope,
        seconds: float,
        *,
        cap_usd: str | None = None,
        user: str | None = None,
        persona: str | None = None,
        session: str | None = None,
        operation: str | None = None,
        reason: str | None = None,
    ) -> GrantView:
        """Agrees ahead of time to calls of a tool; never to destructive ones."""
        body = body_of(
            tool=tool, scope=scope, seconds=seconds, cap_usd=cap_usd, user=user, persona=persona, session=session,
            operation=operation, reason=reason,
        )  # fmt: skip
        return self._connection.send("POST", "/v1/grants", GrantView, body=body)

    def revoke(self, id: str) -> GrantView:
        """Takes a grant back."""
        return self._connection.send("DELETE", path_of("/v1/grants/{}", id), GrantView)

    def list(self) -> list[GrantView]:
        """Gives the grants that hold now."""
        return self._connection.pages("/v1/grants", GrantView)


class BudgetsClient(ClientFacet):
    """The budgets of the tenant, and what calls have cost."""

    def costs(self, by: Literal["tool", "user", "persona", "tenant", "day"] = "tool") -> CostReport:
        """Gives what calls have cost in the last thirty days."""
        return self._connection.send("GET", "/v1/costs", CostReport, query=query_of(by=by))

    def list(self) -> list[BudgetView]:
        """Gives what of every budget is spent and reserved."""
        return self._connection.pages("/v1/budgets", BudgetView)


class JobsClient(ClientFacet):
    """Work in the background, and what became of it."""

    def get(self, id: str) -> Job:
        """Gives a job as it is."""
        return self._connection.send("GET", path_of("/v1/jobs/{}", id), Job)

    def wait(self, id: str, seconds: float) -> Job:
        """Gives a job once it is over, or as it is after so many seconds."""
        while True:
            part = min(seconds, MAX_WAIT_SECONDS)
            path, limit = path_of("/v1/jobs/{}", id), part + TIMEOUT_SECONDS
            job = self._connection.send("GET", path, Job, query=query_of(wait=part), timeout=limit)
            seconds -= part
            if job.is_over or seconds <= 0:
                return job

    def retry(self, id: str) -> Job:
        """Has a job that failed, was cancelled or is parked tried again."""
        return self._connection.send("POST", path_of("/v1/jobs/{}/retry", id), Job)

    def cancel(self, id: str) -> Job:
        """Ends a job."""
        return self._connection.send("POST", path_of("/v1/jobs/{}/cancel", id), Job)

    def list(self, *, state: str | None = None, type: str | None = None, limit: int = 100) -> list[Job]:  # noqa: A002
        """Gives the latest jobs, latest first."""
        return self._connection.pages("/v1/jobs", Job, limit, state=state, type=type)


class SchedulesClient(ClientFacet):
    """Calls at the times of a cron line."""

    def add(
        self,
        cron: str,
        tool: str,
        arguments: Mapping[str, Any] | str | bytes | None = None,
        *,
        name: str | None = None,
        timezone: str | None = None,
        max_runs: int | None = None,
        until: datetime | None = None,
        session: str | None = None,
    ) -> Schedule:
        """Has a tool called at the times of a cron line."""
        body = body_of(
            cron=cron, tool=tool, arguments=arguments_of(arguments), name=name, timezone=timezone, max_runs=max_runs,
            until=until, session=session,
        )  # fmt: skip
        return self._connection.send("POST", "/v1/schedules", Schedule, body=body)

    def get(self, id_or_name: str) -> Schedule:
        """Gives a schedule."""
        return self._connection.send("GET", path_of("/v1/schedules/{}", id_or_name), Schedule)

    def pause(self, id_or_name: str) -> Schedule:
        """Has a schedule fire no more until it is resumed."""
        return self._connection.send("POST", path_of("/v1/schedules/{}/pause", id_or_name), Schedule)

    def resume(self, id_or_name: str) -> Schedule:
        """Has a schedule that is paused fire again."""
        return self._connection.send("POST", path_of("/v1/schedules/{}/resume", id_or_name), Schedule)

    def run_now(self, id_or_name: str) -> Job:
        """Queues the job of a schedule now, besides its times."""
        return self._connection.send("POST", path_of("/v1/schedules/{}/run", id_or_name), Job)

    def remove(self, id_or_name: str) -> None:
        """Removes a schedule."""
        self._connection.send("DELETE", path_of("/v1/schedules/{}", id_or_name), type(None))

    def list(self) -> list[Schedule]:
        """Gives the schedules, oldest first."""
        return self._connection.pages("/v1/schedules", Schedule)


class AuditClient(ClientFacet):
    """The records of calls."""

    def call(self, id: str) -> CallDetail:
        """Gives a call: its records, what each gate said, its cost, the calls that it made."""
        return self._connection.send("GET", path_of("/v1/invocations/{}", id), CallDetail)

    def calls(
        self,
        *,
        tool: str | None = None,
        status: str | None = None,
        user: str | None = None,
        session: str | None = None,
        request_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
    ) -> list[CallSummary]:
        """Gives the latest calls, newest first."""
        return self._connection.pages(
            "/v1/invocations", CallSummary, limit, tool=tool, status=status, user=user, session=session,
            request_id=request_id, since=since, until=until,
        )  # fmt: skip

    def artifact(self, id: str) -> Any:
        """Gives the whole output of a call that was cut, while it is kept."""
        return msgspec.json.decode(self._connection.send("GET", path_of("/v1/artifacts/{}", id), msgspec.Raw))


class KeysClient(ClientFacet):
    """The API keys of the tenant."""

    def create(
        self,
        name: str,
        *,
        user: str | None = None,
        persona: str | None = None,
        roles: tuple[str, ...] = ("caller",),
        scopes: tuple[str, ...] = (),
        expires_in: float | None = None,
    ) -> MadeKey:
        """Makes a key. Its text is given this once."""
        body = body_of(name=name, user=user, persona=persona, roles=roles, scopes=scopes, expires_in=expires_in)
        return self._connection.send("POST", "/v1/keys", MadeKey, body=body)

    def revoke(self, id: str) -> KeyView:
        """Ends a key: no process takes it from now on."""
        return self._connection.send("DELETE", path_of("/v1/keys/{}", id), KeyView)

    def list(self) -> list[KeyView]:
        """Gives the keys, oldest first."""
        return self._connection.pages("/v1/keys", KeyView)

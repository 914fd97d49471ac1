"""The same as `async_client.py`, for programs without an event loop: written from it by `make reference`."""

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from toolgate.app.log_tail import LogEvent
from toolgate.client.connection import (
    TIMEOUT_SECONDS,
    arguments_of,
    body_of,
    path_of,
    query_of,
)
from toolgate.client.event_lines import EventLines
from toolgate.client.sync_connection import ServerConnection
from toolgate.client.sync_facets import (
    ApprovalsClient,
    AuditClient,
    BudgetsClient,
    GrantsClient,
    JobsClient,
    KeysClient,
    PolicyClient,
    SchedulesClient,
    ToolsClient,
)
from toolgate.client.sync_sources import LearningClient, OpenApiClient, TeamsClient
from toolgate.model import Outcome
from toolgate.pipeline.explain import Explanation
from toolgate.serve.http.session import SessionView
from toolgate.serve.http.user_words import KnownWords


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
        self.policy = PolicyClient(connection)
        self.teams = TeamsClient(connection)
        self.learning = LearningClient(connection)
        self.openapi = OpenApiClient(connection)

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

    def say(self, session: str, text: str) -> KnownWords:
        """Tells what the user typed in a session: never what a model says. It needs a key that may speak for the user."""
        path = path_of("/v1/sessions/{}/words", session)
        return self._connection.send("POST", path, KnownWords, body=body_of(text=text))

    def events(
        self, *, event: str | None = None, tool: str | None = None, session: str | None = None, after: int | None = None
    ) -> Iterator[LogEvent]:
        """Gives what happens, as it happens: `for event in app.events()`. After `ServerUnreachable` go on with
        `after=` the last `seq`: nothing is missed."""
        lines = EventLines()
        query = query_of(event=event, tool=tool, session=session)
        for part in self._connection.stream("/v1/events", query, after):
            yield from lines.take(part)

    def whoami(self) -> SessionView:
        """Gives who the key belongs to, and what it may do."""
        return self._connection.send("GET", "/v1/session", SessionView)

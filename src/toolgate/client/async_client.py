"""The client for programs with an event loop. `sync_client.py` is written from this file by `make reference`."""

from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self

from toolgate.app.log_tail import LogEvent
from toolgate.client.async_connection import AsyncServerConnection
from toolgate.client.async_facets import (
    AsyncApprovalsClient,
    AsyncAuditClient,
    AsyncBudgetsClient,
    AsyncGrantsClient,
    AsyncJobsClient,
    AsyncKeysClient,
    AsyncPolicyClient,
    AsyncSchedulesClient,
    AsyncToolsClient,
)
from toolgate.client.async_sources import AsyncLearningClient, AsyncOpenApiClient, AsyncTeamsClient
from toolgate.client.connection import (
    TIMEOUT_SECONDS,
    arguments_of,
    body_of,
    path_of,
    query_of,
)
from toolgate.client.event_lines import EventLines
from toolgate.model import Outcome
from toolgate.pipeline.explain import Explanation
from toolgate.serve.http.session import SessionView
from toolgate.serve.http.user_words import KnownWords


class AsyncClient:
    """A Toolgate server: `async with AsyncClient.open(url, key=…) as app`."""

    def __init__(self, connection: AsyncServerConnection) -> None:
        self._connection = connection
        self.tools = AsyncToolsClient(connection)
        self.approvals = AsyncApprovalsClient(connection)
        self.grants = AsyncGrantsClient(connection)
        self.budgets = AsyncBudgetsClient(connection)
        self.jobs = AsyncJobsClient(connection)
        self.schedules = AsyncSchedulesClient(connection)
        self.audit = AsyncAuditClient(connection)
        self.keys = AsyncKeysClient(connection)
        self.policy = AsyncPolicyClient(connection)
        self.teams = AsyncTeamsClient(connection)
        self.learning = AsyncLearningClient(connection)
        self.openapi = AsyncOpenApiClient(connection)

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
        return cls(AsyncServerConnection(url, key, timeout, tenant))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connection.close()

    async def invoke(
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
        return await self._call(name, body, idempotency_key, request_id, timeout)

    async def enqueue(
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
        return await self._call(name, body, idempotency_key, request_id, None)

    async def _call(
        self, name: str, body: Mapping[str, Any], key: str | None, request_id: str | None, timeout: float | None
    ) -> Outcome:
        headers = body_of(**{"idempotency-key": key, "x-request-id": request_id})
        path = path_of("/v1/tools/{}/invoke", name)
        # The server ends the call in time, and its answer still has to arrive.
        limit = None if timeout is None else timeout + TIMEOUT_SECONDS
        return await self._connection.send("POST", path, Outcome, body=body, headers=headers, timeout=limit, always=True)

    async def explain(
        self, name: str, arguments: Mapping[str, Any] | str | bytes | None = None, *, session: str | None = None
    ) -> Explanation:
        """Gives what every gate would say to a call, without making it."""
        body = body_of(arguments=arguments_of(arguments), session=session)
        return await self._connection.send("POST", path_of("/v1/tools/{}/explain", name), Explanation, body=body)

    async def say(self, session: str, text: str) -> KnownWords:
        """Tells what the user typed in a session: never what a model says. It needs a key that may speak for the user."""
        path = path_of("/v1/sessions/{}/words", session)
        return await self._connection.send("POST", path, KnownWords, body=body_of(text=text))

    async def events(
        self, *, event: str | None = None, tool: str | None = None, session: str | None = None, after: int | None = None
    ) -> AsyncIterator[LogEvent]:
        """Gives what happens, as it happens: `async for event in app.events()`. After `ServerUnreachable` go on with
        `after=` the last `seq`: nothing is missed."""
        lines = EventLines()
        query = query_of(event=event, tool=tool, session=session)
        async for part in self._connection.stream("/v1/events", query, after):
            for found in lines.take(part):
                yield found

    async def whoami(self) -> SessionView:
        """Gives who the key belongs to, and what it may do."""
        return await self._connection.send("GET", "/v1/session", SessionView)

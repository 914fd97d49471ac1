"""Verbs about one thing each, for programs with an event loop. `make reference` writes `sync_facets.py` from this file."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from toolgate.agent.prompt import Style
from toolgate.client.async_connection import AsyncServerConnection
from toolgate.client.connection import (
    ANYTHING,
    TIMEOUT_SECONDS,
    arguments_of,
    body_of,
    path_of,
    query_of,
)
from toolgate.gates.approval.request import GrantScope, State, Verdict
from toolgate.jobs.job import Job
from toolgate.jobs.schedules import Schedule
from toolgate.model import Source
from toolgate.registry.export import Shape
from toolgate.serve.http.approvals import AnsweredApproval, ApprovalDetail, ApprovalSummary
from toolgate.serve.http.budgets import BudgetView
from toolgate.serve.http.catalog import FoundTools, PromptView, ToolDetail
from toolgate.serve.http.costs import CostReport
from toolgate.serve.http.grants import GrantView
from toolgate.serve.http.invocations import CallDetail, CallSummary
from toolgate.serve.http.keys import KeyView, MadeKey
from toolgate.serve.http.policy import ReplayView
from toolgate.serve.http.policy_suggestion import PolicySuggestionView
from toolgate.serve.http.statistics import AttentionList, StatisticsView
from toolgate.serve.http.tools import ToolSummary
from toolgate.store.call_counts import CountBy

MAX_WAIT_SECONDS = 50.0
"""Of one request that waits for a job; a longer wait takes several."""


class AsyncClientFacet:
    """Verbs about one thing."""

    def __init__(self, connection: AsyncServerConnection) -> None:
        self._connection = connection


class AsyncToolsClient(AsyncClientFacet):
    """The tools that the caller may see."""

    async def get(self, name: str) -> ToolDetail:
        """Gives a tool with its whole definition."""
        return await self._connection.send("GET", path_of("/v1/tools/{}", name), ToolDetail)

    async def search(self, query: str | Sequence[str], limit: int = 10) -> FoundTools:
        """Gives tools that fit a task, best first; none, if nothing fits. Several phrasings of it find more than one."""
        asked = query_of(q=[query] if isinstance(query, str) else list(query), limit=limit)
        return await self._connection.send("GET", "/v1/tools/search", FoundTools, query=asked)

    async def export(self, shape: Shape) -> list[dict[str, Any]]:
        """Gives the tools in the shape that a model's API or an MCP client takes."""
        return await self._connection.send("GET", "/v1/tools/export", list[dict[str, Any]], query=query_of(shape=shape))

    async def prompt(self, style: Style = "native", shape: Shape = "openai") -> PromptView:
        """Gives what a model is told before it begins to work for the caller. For admins."""
        return await self._connection.send("GET", "/v1/tools/prompt", PromptView, query=query_of(style=style, shape=shape))

    async def enable(self, tool: str, *, persona: str | None = None, reason: str | None = None) -> ToolDetail:
        """Enables a tool for the tenant, or for a persona."""
        return await self._set(tool, True, persona, reason)

    async def disable(self, tool: str, *, persona: str | None = None, reason: str | None = None) -> ToolDetail:
        """Disables a tool for the tenant, or for a persona."""
        return await self._set(tool, False, persona, reason)

    async def _set(self, tool: str, enabled: bool, persona: str | None, reason: str | None) -> ToolDetail:
        body = body_of(enabled=enabled, persona=persona, reason=reason)
        return await self._connection.send("PATCH", path_of("/v1/tools/{}", tool), ToolDetail, body=body)

    async def list(self, source: Source | None = None) -> list[ToolSummary]:
        """Gives the tools, by name; of one source, or of all."""
        return await self._connection.pages("/v1/tools", ToolSummary, source=source)


class AsyncApprovalsClient(AsyncClientFacet):
    """The calls that wait for a person."""

    async def get(self, id: str) -> ApprovalDetail:
        """Gives one question, with everything that will run and where."""
        return await self._connection.send("GET", path_of("/v1/approvals/{}", id), ApprovalDetail)

    async def answer(
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
        return await self._connection.send("POST", path_of("/v1/approvals/{}", id), AnsweredApproval, body=body)

    async def resume(self, id: str) -> AnsweredApproval:
        """Runs one's own call that was approved."""
        return await self._connection.send("POST", path_of("/v1/approvals/{}/resume", id), AnsweredApproval)

    async def list(self, *, state: State | None = "waiting", limit: int | None = None) -> list[ApprovalSummary]:
        """Gives the questions, those that wait or those in another state."""
        return await self._connection.pages("/v1/approvals", ApprovalSummary, limit, state=state)


class AsyncGrantsClient(AsyncClientFacet):
    """Calls that somebody agreed to ahead of time."""

    async def create(
        self,
        tool: str,
        scope: GrantScope,
        seconds: float,
        *,
        cap_usd: str | None = None,
        max_uses: int | None = None,
        user: str | None = None,
        persona: str | None = None,
        session: str | None = None,
        operation: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> GrantView:
        """Agrees ahead of time to calls of a tool, or to those with some arguments; never to destructive ones."""
        body = body_of(
            tool=tool, scope=scope, seconds=seconds, cap_usd=cap_usd, max_uses=max_uses, user=user, persona=persona,
            session=session, operation=operation, arguments=arguments, reason=reason,
        )  # fmt: skip
        return await self._connection.send("POST", "/v1/grants", GrantView, body=body)

    async def revoke(self, id: str) -> GrantView:
        """Takes a grant back."""
        return await self._connection.send("DELETE", path_of("/v1/grants/{}", id), GrantView)

    async def list(self) -> list[GrantView]:
        """Gives the grants that hold now."""
        return await self._connection.pages("/v1/grants", GrantView)


class AsyncBudgetsClient(AsyncClientFacet):
    """The budgets of the tenant, and what calls have cost."""

    async def costs(self, by: Literal["tool", "user", "persona", "tenant", "day"] = "tool") -> CostReport:
        """Gives what calls have cost in the last thirty days."""
        return await self._connection.send("GET", "/v1/costs", CostReport, query=query_of(by=by))

    async def list(self) -> list[BudgetView]:
        """Gives what of every budget is spent and reserved."""
        return await self._connection.pages("/v1/budgets", BudgetView)


class AsyncJobsClient(AsyncClientFacet):
    """Work in the background, and what became of it."""

    async def get(self, id: str) -> Job:
        """Gives a job as it is."""
        return await self._connection.send("GET", path_of("/v1/jobs/{}", id), Job)

    async def wait(self, id: str, seconds: float) -> Job:
        """Gives a job once it is over, or as it is after so many seconds."""
        while True:
            part = min(seconds, MAX_WAIT_SECONDS)
            path, limit = path_of("/v1/jobs/{}", id), part + TIMEOUT_SECONDS
            job = await self._connection.send("GET", path, Job, query=query_of(wait=part), timeout=limit)
            seconds -= part
            if job.is_over or seconds <= 0:
                return job

    async def retry(self, id: str) -> Job:
        """Has a job that failed, was cancelled or is parked tried again."""
        return await self._connection.send("POST", path_of("/v1/jobs/{}/retry", id), Job)

    async def cancel(self, id: str) -> Job:
        """Ends a job."""
        return await self._connection.send("POST", path_of("/v1/jobs/{}/cancel", id), Job)

    async def list(self, *, state: str | None = None, type: str | None = None, limit: int = 100) -> list[Job]:  # noqa: A002
        """Gives the latest jobs, latest first."""
        return await self._connection.pages("/v1/jobs", Job, limit, state=state, type=type)


class AsyncSchedulesClient(AsyncClientFacet):
    """Calls at the times of a cron line."""

    async def add(
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
        return await self._connection.send("POST", "/v1/schedules", Schedule, body=body)

    async def get(self, id_or_name: str) -> Schedule:
        """Gives a schedule."""
        return await self._connection.send("GET", path_of("/v1/schedules/{}", id_or_name), Schedule)

    async def pause(self, id_or_name: str) -> Schedule:
        """Has a schedule fire no more until it is resumed."""
        return await self._connection.send("POST", path_of("/v1/schedules/{}/pause", id_or_name), Schedule)

    async def resume(self, id_or_name: str) -> Schedule:
        """Has a schedule that is paused fire again."""
        return await self._connection.send("POST", path_of("/v1/schedules/{}/resume", id_or_name), Schedule)

    async def run_now(self, id_or_name: str) -> Job:
        """Queues the job of a schedule now, besides its times."""
        return await self._connection.send("POST", path_of("/v1/schedules/{}/run", id_or_name), Job)

    async def remove(self, id_or_name: str) -> None:
        """Removes a schedule."""
        await self._connection.send("DELETE", path_of("/v1/schedules/{}", id_or_name), type(None))

    async def list(self) -> list[Schedule]:
        """Gives the schedules, oldest first."""
        return await self._connection.pages("/v1/schedules", Schedule)


class AsyncAuditClient(AsyncClientFacet):
    """The records of calls."""

    async def call(self, id: str) -> CallDetail:
        """Gives a call: its records, what each gate said, its cost, the calls that it made."""
        return await self._connection.send("GET", path_of("/v1/invocations/{}", id), CallDetail)

    async def calls(
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
        return await self._connection.pages(
            "/v1/invocations", CallSummary, limit, tool=tool, status=status, user=user, session=session,
            request_id=request_id, since=since, until=until,
        )  # fmt: skip

    async def statistics(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: int | None = None,
        by: CountBy = "status",
        tool: str | None = None,
        user: str | None = None,
    ) -> StatisticsView:
        """Gives calls that ended, in figures and over time; without `since`, of the last 24 hours."""
        query = query_of(since=since, until=until, step=step, by=by, tool=tool, user=user)
        return await self._connection.send("GET", "/v1/statistics", StatisticsView, query=query)

    async def attention(self) -> AttentionList:
        """Gives what needs a person."""
        return await self._connection.send("GET", "/v1/attention", AttentionList)

    async def artifact(self, id: str) -> Any:
        """Gives the whole output of a call that was cut, while it is kept."""
        return await self._connection.send("GET", path_of("/v1/artifacts/{}", id), ANYTHING)


class AsyncPolicyClient(AsyncClientFacet):
    """The policy, for operators."""

    async def suggest(self, *, persona: str | None = None, days: int = 30) -> PolicySuggestionView:
        """Gives the smallest data that would have allowed what was used in the last days. Nothing is applied."""
        query = query_of(persona=persona, days=days)
        return await self._connection.send("GET", "/v1/policy/suggest", PolicySuggestionView, query=query)

    async def replay(
        self, rego: str | None = None, *, data: Mapping[str, Any] | None = None, since: datetime | None = None
    ) -> ReplayView:
        """Gives what another policy, or other data, would have said to the calls on record."""
        body = body_of(rego=rego, data=data, since=since)
        return await self._connection.send("POST", "/v1/policy/replay", ReplayView, body=body)


class AsyncKeysClient(AsyncClientFacet):
    """The API keys of the tenant."""

    async def create(
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
        return await self._connection.send("POST", "/v1/keys", MadeKey, body=body)

    async def revoke(self, id: str) -> KeyView:
        """Ends a key: no process takes it from now on."""
        return await self._connection.send("DELETE", path_of("/v1/keys/{}", id), KeyView)

    async def list(self) -> list[KeyView]:
        """Gives the keys, oldest first."""
        return await self._connection.pages("/v1/keys", KeyView)

"""`app.learning`: how tools did, what users say of them, and what follows for searches, recommendations and limits."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from toolgate.app.facets import Facet
from toolgate.errors import InvalidInput, ToolgateError
from toolgate.learning import outbound
from toolgate.learning.feedback import Feedback, FeedbackDesk
from toolgate.learning.outbound import Outbound
from toolgate.learning.outcome_factors import factors
from toolgate.learning.past_tasks import PastTasks, checked_tags
from toolgate.learning.proposals import Proposal, Seen, proposals
from toolgate.learning.recommendations import PastTask, Recommendation, past_tasks, recommendations
from toolgate.learning.refusal import FeedbackRefused
from toolgate.learning.tool_reports import ToolReport, durations, report
from toolgate.model import LOCAL, Actor, Outcome
from toolgate.store import call_counts, call_statistics, tool_outcomes
from toolgate.store import learning as table
from toolgate.store.call_counts import CountFilter
from toolgate.store.learning import FeedbackRow, LimitRow, LimitState
from toolgate.tasks import repeat, start_task, stop_tasks, uninterrupted

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts
    from toolgate.pipeline.context import InvokeContext

REFRESH_SECONDS = 2.0
"""For this long the factors of a tenant are used before they are read again."""
SEARCH_ROWS = 300
"""Rows of the log that a search counts at most, if nobody has yet."""
MAX_TENANTS = 1_000
MAX_FOUND = 50
REPORT_DAYS = timedelta(days=30)
FORGET_SECONDS = 3_600.0

logger = logging.getLogger("toolgate.learning")


class LearningParts:
    """The parts behind `app.learning`."""

    def __init__(self, parts: "Parts") -> None:
        settings = parts.settings.learning
        masked = parts.checks.masked_text
        self._parts = parts
        self._settings = settings
        self.tasks = PastTasks(parts.store, parts.memory, masked, settings, parts.settings.memory, parts.now)
        self.desk = FeedbackDesk(parts.store, self.tasks, masked, settings, parts.now)
        self.outbound = Outbound(settings, parts.http, parts.server_secrets.find)
        self._known: dict[str, tuple[float, Mapping[str, float]]] = {}
        self._forgetting: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.outbound.start()
        if self.outbound.is_on and self._settings.send_calls:
            self._parts.ledger.on_end.append(self._tell)
        self._forgetting = start_task(repeat(FORGET_SECONDS, self.forget_old, logger, "old feedback could not be deleted"))

    async def close(self) -> None:
        await stop_tasks(self._forgetting)
        if self._tell in self._parts.ledger.on_end:
            self._parts.ledger.on_end.remove(self._tell)
        await self.outbound.close()

    async def weights(self, tenant: str) -> Mapping[str, float]:
        """The factors of a tenant's tools, at most two seconds old. A search does without them rather than fail."""
        if not self._settings.order_search:
            return {}
        known, now = self._known.get(tenant), self._parts.monotonic()
        if known is not None and 0 <= now - known[0] < REFRESH_SECONDS:
            return known[1]
        store = self._parts.store
        try:
            await store.flush()
            await call_statistics.count_rows(store, SEARCH_ROWS)
            found = factors(await store.read(tool_outcomes.of_tenant(tenant)), int(self._parts.wall_time()))
        except ToolgateError as error:
            logger.warning("past outcomes could not be read: %s", error)
            found = {} if known is None else dict(known[1])
        if len(self._known) >= MAX_TENANTS:
            self._known.clear()
        self._known[tenant] = now, found
        return found

    def unknown(self, tenant: str | None = None) -> None:
        """Has factors read anew: of a tenant, or of all."""
        if tenant is None:
            self._known.clear()
        self._known.pop(tenant or "", None)

    async def forget_old(self) -> int:
        """Deletes what is older than the settings keep it; gives how much there was."""
        before = self._parts.now() - timedelta(days=self._settings.keep_days)
        return await self.forget(None, None, before)

    async def forget(self, tenant: str | None, user: str | None, before: datetime | None) -> int:
        gone = await self._parts.store.transact(table.remove_feedback(tenant, user, before))
        return gone + await self.tasks.forget(tenant, user, before)

    def _tell(self, ctx: "InvokeContext", outcome: Outcome) -> None:
        """Queues the outcome of a call for the service. Sizes and times go out, no arguments and no output."""
        actor, start = ctx.call.actor, ctx.start
        if start is None:
            return
        self.outbound.send(outbound.FEEDBACK, {
            "tool_name": outcome.tool, "success": outcome.status == "success", "duration_ms": outcome.metrics.duration_ms,
            "args_hash": f"sha256:{start.hash()}", "response_size": _size_of(outcome), "tenant": actor.tenant,
            "persona_id": actor.persona,
        })  # fmt: skip


def _size_of(outcome: Outcome) -> int | None:
    """Bytes of an output that is a text or an artifact; to know another would take to write it as JSON once more."""
    if outcome.artifact is not None:
        return outcome.artifact.bytes
    return len(outcome.output) if isinstance(outcome.output, str) else None


def make_learning(parts: "Parts") -> LearningParts:
    """Makes the parts behind `app.learning`; they are not started."""
    return LearningParts(parts)


class LearningFacet(Facet):
    """The consequences of past calls. Nothing of it crosses tenants, and none of it adds a tool to what an actor may use."""

    @property
    def by_meaning(self) -> bool:
        """True if tasks are compared by their meaning: the extra `embeddings` is installed. Otherwise it is their words."""
        return self._parts.learning.tasks.by_meaning

    async def weights(self, actor: Actor | None = None) -> Mapping[str, float]:
        """Gives the factors, by name of tool, that order what an actor's searches find: from 0.7 to 1.15, 1 for a tool of
        which nothing is known."""
        return await self._parts.learning.weights((actor or LOCAL).tenant)

    @uninterrupted
    async def feedback(self, said: Feedback, *, actor: Actor | None = None, all_users: bool = False) -> FeedbackRow:
        """Takes what an actor says about a call, or about a tool. `all_users`: it may be about calls of others in the
        tenant.

        Raises `FeedbackRefused` for a call that there is not, or that the actor spoke about already; `InvalidInput`;
        `CallError` (RATE_LIMITED) for more than a user may give in an hour.
        """
        actor, learning = actor or LOCAL, self._parts.learning
        if said.call_id is None and said.tool_name not in await self._names(actor):
            raise self._parts.catalog.missing(said.tool_name)
        row = await learning.desk.take(said, actor, all_users=all_users)
        learning.unknown(actor.tenant)
        sent = {
            name: getattr(row, name) for name in ("tool_name", "success", "duration_ms", "response_size", "score", "comment")
        }
        hashed = None if row.args_hash is None else f"sha256:{row.args_hash.removeprefix('sha256:')}"
        owner = {"tenant": row.tenant_id, "persona_id": row.persona_id, "args_hash": hashed}
        learning.outbound.send(outbound.FEEDBACK, {**sent, **owner})
        return row

    @uninterrupted
    async def remember(self, text: str, *, tags: Sequence[str] = (), actor: Actor | None = None) -> str:
        """Keeps a note for later `recall`, secrets masked; gives its id. Raises `InvalidInput`, and `CallError`
        (RATE_LIMITED, CAPACITY_EXCEEDED)."""
        actor, learning = actor or LOCAL, self._parts.learning
        masked = self._parts.checks.masked_text
        tags = [await masked(tag) for tag in checked_tags(tags)]
        id = await learning.tasks.keep(actor, text, tags=tags)
        learning.outbound.send(outbound.REMEMBER, {"text": await masked(text), "tags": tags, **_owner(actor)})
        return id

    async def recall(
        self, query: str, *, limit: int = 10, actor: Actor | None = None, all_users: bool = False
    ) -> list[PastTask]:
        """Gives the actor's tasks and notes that are like a query, with the tools that worked. `all_users`: those of all
        users of the tenant. Raises `InvalidInput`."""
        actor, learning = actor or LOCAL, self._parts.learning
        _check_limit(limit)
        found = await learning.tasks.similar(actor, query, user=None if all_users else actor.user)
        learning.outbound.send(outbound.RECALL, {
            "query": await self._parts.checks.masked_text(query), "limit": limit, **_owner(actor),
        })  # fmt: skip
        return past_tasks(found, await self._names(actor), limit)

    async def recommend(self, task: str, *, limit: int = 5, actor: Actor | None = None) -> list[Recommendation]:
        """Gives the tools that succeeded with similar tasks of anybody in the tenant, of those that the actor may see.
        Raises `InvalidInput`."""
        actor = actor or LOCAL
        _check_limit(limit)
        found = await self._parts.learning.tasks.votes(actor, task)
        return recommendations(found, await self._names(actor), limit)

    async def show(
        self, *, tenant: str | None = None, tool: str | None = None, user: str | None = None, since: datetime | None = None
    ) -> list[ToolReport]:
        """Gives how each tool did since then, or in the last thirty days: the least reliable first, at most 100. Of one
        tenant or of all, of one user, tool or of all. How it went over time says `app.statistics`."""
        now = self._parts.now()
        period = call_counts.whole_days(since or now - REPORT_DAYS, now)
        return await self._parts.store.read(
            report(CountFilter(tenant=tenant, tool=tool, user=user), period, int(now.timestamp()))
        )

    async def said(
        self, *, tenant: str, user: str | None = None, tool: str | None = None, limit: int = 50
    ) -> list[FeedbackRow]:
        """Gives the latest feedback of a tenant, the newest first: of one user or tool, or of all."""
        return await self._parts.store.read(table.list_feedback(tenant, user, tool, limit))

    @uninterrupted
    async def forget(
        self, tenant: str, *, user: str | None = None, before: datetime | None = None, actor: Actor | None = None
    ) -> int:
        """Deletes feedback, past tasks and notes of a tenant, or of one of its users; all, or what is from before a moment.
        Of a whole tenant, what its outcomes taught is forgotten too. Gives how much there was."""
        gone = await self._parts.learning.forget(tenant, user, before)
        if user is None and before is None:
            await self._parts.store.transact(tool_outcomes.forget(tenant))
        self._parts.learning.unknown(tenant)
        details = {"tenant": tenant, "of": user, "before": None if before is None else before.isoformat(), "count": gone}
        await self._parts.events.record("learning.forgotten", actor or LOCAL, "", details)
        return gone

    async def suggestions(self) -> list[Proposal]:
        """Gives the limits that tools should have by what was seen of them, and those that were answered. For operators."""
        parts = self._parts
        declared = [one for name in parts.catalog.names() if (one := parts.catalog.declared(name)) is not None]
        now = parts.now()
        period = call_counts.whole_days(now - REPORT_DAYS, now)
        outcomes = {row.tool_name: row for row in await parts.store.read(tool_outcomes.of_all_tenants())}
        seen = {
            tool: Seen(await parts.store.read(durations(tool, period)), row.aged(int(now.timestamp())))
            for tool, row in outcomes.items()
        }
        return proposals(seen, declared, await parts.store.read(table.limits()))

    async def accept(self, id: str, *, actor: Actor | None = None) -> Proposal:
        """Has a proposal hold from now on, in all processes; also one that was rejected. Raises `FeedbackRefused` if there
        is no such proposal."""
        return await self._decide(id, "accepted", actor or LOCAL)

    async def reject(self, id: str, *, actor: Actor | None = None) -> Proposal:
        """Has a proposal not made again; one that was accepted holds no more. Raises `FeedbackRefused` as `accept`."""
        return await self._decide(id, "rejected", actor or LOCAL)

    @uninterrupted
    async def _decide(self, id: str, state: LimitState, actor: Actor) -> Proposal:
        found = next((one for one in await self.suggestions() if one.id == id), None)
        entry = None if found is None else self._parts.catalog.declared(found.tool)
        if found is None or (entry is None and state == "accepted"):
            raise FeedbackRefused(
                "There is no such suggestion.",
                category="missing",
                suggestion="`toolgate learning suggestions list` shows them.",
            )
        value = found.value
        if found.kind == "timeout" and entry is not None:
            value = min(value, self._parts.catalog.limits.longest(entry))
        row = LimitRow(found.tool, found.kind, value, state, actor.user, self._parts.now())
        await self._parts.store_sync.change(table.decide(row))
        details = {"kind": row.kind, "value": row.value, "before": found.current}
        await self._parts.events.record(f"tool.limit_{state}", actor, found.tool, details)
        return found._replace(value=value, state=state, decided_by=row.decided_by, decided_at=row.decided_at)

    async def _names(self, actor: Actor) -> frozenset[str]:
        return frozenset(tool.name for tool in await self._parts.permitted.tools(actor))


def _owner(actor: Actor) -> dict[str, Any]:
    return {"tenant": actor.tenant, "persona_id": actor.persona}


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_FOUND:
        raise InvalidInput(f"limit is from 1 to {MAX_FOUND}.")

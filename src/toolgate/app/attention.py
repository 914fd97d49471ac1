"""`app.attention`: the things that need a person, each with a sentence and the console page that shows it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import timedelta
from typing import Literal, NamedTuple
from urllib.parse import quote, urlencode

from toolgate.app.facets import Facet
from toolgate.app.openapi_documents import OpenApiFacet
from toolgate.app.servers import ServersFacet
from toolgate.app.teams import TeamsFacet
from toolgate.coordination.redis import CoordinationError
from toolgate.errors import plural
from toolgate.gates.quota.budget_accounts import BudgetStatus
from toolgate.model import Actor
from toolgate.model.roles import Permission
from toolgate.pipeline.usage import dollars
from toolgate.store import call_counts
from toolgate.store.call_counts import CallCount, CountFilter, whole_hours
from toolgate.store.database import Transaction, now

AttentionKind = Literal["approval", "server_down", "quarantine", "breaker", "budget", "job", "denials"]
BUDGET_SHARE = 0.8
MAX_OF_KIND = 20
"""Things of one kind that are named; the last item says how many more there are."""
DENIAL_PERIOD = timedelta(hours=24)
MIN_DENIALS = 5
DENIAL_RISE = 2.0
"""Denials of a tool are worth a look from so many on, and if they are so many times those of the period before."""


class AttentionItem(NamedTuple):
    """One thing that needs a person."""

    kind: AttentionKind
    words: str
    about: str
    """The id or name of the thing."""
    tenant: str | None
    """The tenant whose it is; None: the installation's."""
    href: str
    """The path of the console page that shows it."""


class AttentionFacet(Facet):
    """The things that need a person, of a tenant or of the whole installation."""

    async def list(
        self,
        actor: Actor,
        permissions: Collection[Permission],
        *,
        all_tenants: bool = False,
        budgets: "Sequence[BudgetStatus] | None" = None,
    ) -> "list[AttentionItem]":
        """Gives what somebody with these permissions may see: their own calls and jobs; with `read`, all that is the
        tenant's; with `operate`, also what is the installation's. `budgets`: their balances, if they are known already."""
        found: list[AttentionItem] = []
        is_reader, is_operator = "read" in permissions, "operate" in permissions
        tenant = None if all_tenants and is_operator else actor.tenant
        sources = [self._approvals(actor, tenant, is_reader), self._jobs(actor, tenant, is_reader)]
        sources += [self._budgets(tenant, budgets), self._denials(tenant)] if is_reader else []
        sources += [self._breakers(tenant, is_operator=is_operator)] if is_reader else []
        sources += [self._servers(), self._documents(), self._teams()] if is_operator else []
        for items in await asyncio.gather(*map(_listed, sources)):
            found += items
        return found

    async def _approvals(self, actor: Actor, tenant: str | None, is_reader: bool) -> AsyncIterator[AttentionItem]:
        questions = self._parts.consent.questions
        user = None if is_reader else actor.user
        waiting = await questions.list(tenant, "waiting", tool=None, user=user, limit=MAX_OF_KIND + 1, after=None)
        for one in waiting[:MAX_OF_KIND]:
            asked = one.request
            words = f"{asked.actor.user}'s call of {asked.tool} waits for approval."
            yield AttentionItem("approval", words, asked.id, asked.actor.tenant, f"/approvals/{quote(asked.id, safe='')}")
        if len(waiting) > MAX_OF_KIND:
            yield AttentionItem("approval", "More calls wait for approval.", "", tenant, "/approvals")

    async def _jobs(self, actor: Actor, tenant: str | None, is_reader: bool) -> AsyncIterator[AttentionItem]:
        whose = {"tenant": tenant} if is_reader else {"owner": actor}
        states = {"failed": "failed", "parked": "is parked: it may have run, and its end is not known"}
        lists = (self._parts.jobs.list(**whose, state=state, limit=MAX_OF_KIND + 1) for state in states)
        for (state, words), found in zip(states.items(), await asyncio.gather(*lists), strict=True):
            for job in found[:MAX_OF_KIND]:
                what = job.payload.get("tool") if isinstance(job.payload.get("tool"), str) else job.type
                yield AttentionItem(
                    "job", f"The job {what} of {job.user} {words}.", job.id, job.tenant, f"/jobs/{quote(job.id, safe='')}"
                )
            if len(found) > MAX_OF_KIND:
                yield AttentionItem("job", f"More jobs are {state}.", "", tenant, f"/jobs?state={state}")

    async def _budgets(self, tenant: str | None, known: Sequence[BudgetStatus] | None) -> AsyncIterator[AttentionItem]:
        over = [
            one
            for one in (await self._parts.budgets.status(tenant) if known is None else known)
            if (tenant is None or one.scope["tenant"] == tenant)
            and one.budget.cap
            and one.spent + one.reserved >= BUDGET_SHARE * one.budget.cap
        ]
        over.sort(key=lambda one: -(one.spent + one.reserved) / one.budget.cap)
        for one in over[:MAX_OF_KIND]:
            href = f"/budgets#budget-{one.budget.id}"
            yield AttentionItem("budget", _budget_words(one), one.budget.id, one.scope["tenant"], href)
        if len(over) > MAX_OF_KIND:
            yield AttentionItem("budget", "More budgets are used up to 80 % or more.", "", tenant, "/budgets")

    async def _denials(self, tenant: str | None) -> AsyncIterator[AttentionItem]:
        """Looks for denials by tool that rose, as far as they are counted. To its caller a tool that the policy denies is
        not there; a name that is in no catalog was mistyped, and denied by nobody."""
        tools = {entry.name for entry in self._parts.catalog.entries()}
        ways: tuple[dict[str, str], ...] = ({"status": "denied"}, {"code": "TOOL_NOT_FOUND"})
        wanted = [CountFilter(tenant=tenant, **how) for how in ways]
        begin, end = whole_hours(now() - DENIAL_PERIOD, now())
        for how, found in zip(ways, await self._parts.store.read(_risen(wanted, begin, end)), strict=True):
            for one in [item for item in found if "status" in how or item.tool in tools][:MAX_OF_KIND]:
                calls = plural(one.calls, "call")
                words = f"{calls} of {one.tool} denied in the last 24 hours, {one.before} in the 24 before."
                href = f"/calls?{urlencode({'tool': one.tool, **how})}"
                yield AttentionItem("denials", words, one.tool, one.tenant, href)

    async def _breakers(self, tenant: str | None, *, is_operator: bool) -> AsyncIterator[AttentionItem]:
        """Names open circuits of the tenant's own targets; those that tenants share, and others', only to operators."""
        try:
            targets = await self._parts.breakers.open_everywhere()
        except CoordinationError:
            targets = self._parts.breakers.open_targets()
        servers = self._parts.mcp_tools.upstreams
        tools = {entry.name for entry in self._parts.catalog.entries()}
        shown = [one for one in targets if one[0] == tenant or (is_operator and (tenant is None or not one[0]))]
        for owner, name in shown[:MAX_OF_KIND]:
            page = "servers" if name in servers else "tools"
            href = f"/{page}/{quote(name, safe='')}" if name in servers or name in tools else "/calls?code=CIRCUIT_OPEN"
            words = f"{name} failed repeatedly: calls of it are refused until a trial succeeds."
            yield AttentionItem("breaker", words, name, owner or None, href)

    async def _servers(self) -> AsyncIterator[AttentionItem]:
        for server in await ServersFacet(self._parts).list():
            href = f"/servers/{quote(server.name, safe='')}"
            if server.is_down:
                yield AttentionItem("server_down", f"The server {server.name} is down.", server.name, None, href)
            if server.waiting:
                words = f"{plural(server.waiting, 'definition')} of the server {server.name} must be reviewed before use."
                yield AttentionItem("quarantine", words, server.name, None, href)

    async def _documents(self) -> AsyncIterator[AttentionItem]:
        for document in await OpenApiFacet(self._parts).list():
            if document.waiting:
                words = f"{plural(document.waiting, 'operation')} of the OpenAPI document {document.name} must be reviewed."
                yield AttentionItem("quarantine", words, document.name, None, f"/openapi/{quote(document.name, safe='')}")

    async def _teams(self) -> AsyncIterator[AttentionItem]:
        status = await TeamsFacet(self._parts).status()
        if status.waiting:
            words = f"{plural(status.waiting, 'definition')} of organisation {status.org_id} must be reviewed before use."
            yield AttentionItem("quarantine", words, status.org_id or "", None, "/teams")


async def _listed(source: AsyncIterator[AttentionItem]) -> list[AttentionItem]:
    return [item async for item in source]


class RisenDenials(NamedTuple):
    """Denied calls of a tool that are more than in the period before."""

    tenant: str
    tool: str
    calls: int
    before: int


def _risen(wanted: Sequence[CountFilter], begin: int, end: int) -> Transaction[list[list[RisenDenials]]]:
    """For each filter, the tools whose calls rose; the most first."""
    found = []
    for one in wanted:
        lately = _by_tool((yield from call_counts.counts(one, begin, end, by="tool", statuses=False)))
        many = [(whose, calls) for whose, calls in lately.most_common() if calls >= MIN_DENIALS]
        earlier = begin - (end - begin)
        before = (yield from call_counts.counts(one, earlier, begin, by="tool", statuses=False)) if many else []
        known = _by_tool(before)
        compared = [RisenDenials(*whose, calls, known[whose]) for whose, calls in many]
        found.append([item for item in compared if item.calls >= DENIAL_RISE * item.before])
    return found


def _by_tool(found: Sequence[CallCount]) -> Counter[tuple[str, str]]:
    calls: Counter[tuple[str, str]] = Counter()
    for one in found:
        calls[one.tenant, one.name] += one.calls
    return calls


def _budget_words(one: BudgetStatus) -> str:
    scope = ", ".join(f"{name} {value}" for name, value in one.scope.items() if value is not None) or "everybody"
    used = one.spent + one.reserved
    share = f"{used / one.budget.cap * 100:.0f} %"
    period = {"day": "daily", "month": "monthly"}[one.budget.period]
    return f"{share} of the {period} budget of {scope} is used: {dollars(used)} of {dollars(one.budget.cap)}."

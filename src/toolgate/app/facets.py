"""The facets of an App: what people govern, with the same verbs for every door. The larger ones have a module each; these
are `app.budgets`, `app.idempotency`, `app.undo`, `app.workspace` and `app.sessions`."""

import os
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolgate.app.deprecated import warn_of_call
from toolgate.errors import CallError, InvalidInput
from toolgate.model import EVERY, LOCAL, Actor, can_name_actor
from toolgate.store import budgets, idempotency
from toolgate.store.budgets import BudgetRow, By, CostLine, UsageBy, UsageLine
from toolgate.store.call_counts import whole_days
from toolgate.store.database import now
from toolgate.tasks import uninterrupted
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts
    from toolgate.gates.quota.budget_accounts import BudgetStatus
    from toolgate.sandbox.quarantine import QuarantineSet
    from toolgate.store.idempotency import KeyRow
    from toolgate.undo import Undone


def check_named(**names: str | None) -> None:
    """Refuses a rule about a tenant or persona of a name that no caller can have: it would hold for nobody."""
    for what, name in names.items():
        if name == EVERY:
            raise InvalidInput(f"A {what} cannot be named '{EVERY}', which stands for all of them.")
        if name is not None and not can_name_actor(name):
            raise InvalidInput(f"The name of a {what} must be 1 to 256 printable characters, not {name!r:.80}.")


def acting_for(tenant: str | None, user: str = LOCAL.user) -> Actor:
    """Gives the person at this machine, or another user, as an actor of the tenant that something is done for: its people
    can see in their log what was done, and those of no other tenant can. LOCAL's for a name that no tenant can have."""
    return Actor(tenant if tenant is not None and can_name_actor(tenant) else LOCAL.tenant, user=user)


class Facet:
    """The verbs of an App about one thing, over the parts that it is made of."""

    def __init__(self, parts: "Parts") -> None:
        self._parts = parts


class CallableFacet(Facet):
    """A facet that was a method of the same name, and can still be called as that."""

    if not TYPE_CHECKING:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return getattr(self, warn_of_call(type(self).__name__.removesuffix("Facet").lower()))(*args, **kwargs)


class BudgetsFacet(Facet):
    """The budgets of this installation."""

    async def limits(self) -> list[BudgetRow]:
        """Gives the budgets as they are on record."""
        return await self._parts.store.read(budgets.list_budgets())

    async def get(self, id: str) -> BudgetRow | None:
        """Gives a budget as it is on record; None: there is none of this id."""
        return await self._parts.store.read(budgets.get_budget(id))

    @uninterrupted
    async def remove(self, id: str, *, actor: Actor | None = None) -> bool:
        """Removes a budget; gives whether there was one."""
        removed = await self._parts.store_sync.change(budgets.remove_budget(id))
        if removed:
            await self._parts.events.record("budget.removed", actor or LOCAL, "", {"budget": id})
        return removed

    async def costs(
        self,
        by: By = "tool",
        *,
        since: datetime | None = None,
        tenant: str | None = None,
        max_rows: int | None = None,
    ) -> "list[CostLine]":
        """Gives the calls that ran and what they cost: by tool, user, persona, tenant or day, since the beginning of the
        hour of `since`, by user of its day in UTC; without it, in the last thirty days. `max_rows`: as for `usage`."""
        return await self._parts.budgets.costs(by, since or now() - timedelta(days=30), tenant, max_rows)

    async def use_of_tenants(self, tenants: Iterable[str], *, since: datetime) -> "list[CostLine]":
        """Gives the calls of tenants that ran and their cost, by tenant and persona, since the beginning of the day of
        `since` in UTC, as far as they are counted (`app.statistics.up_to`)."""
        begin, end = whole_days(since, now())
        return await self._parts.store.read(budgets.usage_of_tenants(tenants, begin, end))

    @uninterrupted
    async def set(self, budget: BudgetRow, *, actor: Actor | None = None) -> None:
        """Sets a budget, or changes the one of the same id. A new one counts what was spent in its period already."""
        already = await self._parts.budgets.spent_already(budget)
        await self._parts.store_sync.change(budgets.set_budget(budget, already))
        await self._parts.events.record("budget.set", actor or LOCAL, budget.tool or "", {"budget": budget._asdict()})

    async def usage(
        self,
        by: UsageBy = "day",
        *,
        since: datetime | None = None,
        tenant: str | None = None,
        user: str | None = None,
        max_rows: int | None = None,
    ) -> "list[UsageLine]":
        """Gives how many calls ended, and how; by day, tool or user, since the beginning of the hour of `since`;
        without it, in the last thirty days. `max_rows`: the rows of the log, at most, that are counted now; without it, all
        that were not counted before (`app.statistics.up_to`)."""
        return await self._parts.budgets.usage(by, since or now() - timedelta(days=30), tenant, user, max_rows)

    async def counting(self, tool: str, arguments: Any, actor: Actor) -> "list[BudgetStatus]":
        """Gives the balance of each budget that would count a call; none, if its tool is free, or is gone."""
        try:
            entry = self._parts.catalog.resolve(tool, actor.tenant).of_call(arguments)
        except (CallError, KeyError):
            return []
        return await self._parts.budgets.counting(actor, entry) if entry.priced else []

    async def list(self, tenant: str | None = None) -> "list[BudgetStatus]":
        """Gives what of every budget is spent and reserved; of one tenant, or of all."""
        return await self._parts.budgets.status(tenant)


class IdempotencyFacet(Facet):
    """The idempotency keys on record: those whose call began and has no known end need a person."""

    @property
    def lease_seconds(self) -> float:
        """The longest time until the calls of a process that died are known to have no end."""
        return self._parts.presence.seconds

    async def unsettled(self, tenant: str | None = None) -> "list[KeyRow]":
        """Gives the idempotency keys whose call began and has no known end: of a tenant, or of all."""
        return await self._parts.idempotency.unsettled(tenant)

    async def list(self, tenant: str | None = None, *, state: idempotency.State | None = None) -> "list[KeyRow]":
        """Gives the latest keys, oldest first: of a tenant, or of all; in a state, or in any."""
        return await self._parts.store.read(idempotency.listed(tenant=tenant, state=state))

    async def get(self, key: str, *, actor: Actor | None = None) -> "KeyRow | None":
        """Gives what is known of an actor's key; None: nothing."""
        actor = actor or LOCAL
        return await self._parts.store.read(idempotency.find(idempotency.Scope(actor.tenant, actor.user, key)))

    @uninterrupted
    async def settle(self, key: str, *, happened: bool, output: Any = None, actor: Actor | None = None) -> "KeyRow":
        """Says whether the call with this key had its effect. If it had, callers are given `output`; if not, the key is
        free again."""
        actor = actor or LOCAL
        found = await self._parts.idempotency.settle(
            actor.tenant, actor.user, key, happened=happened, output=output, by=actor.user
        )
        details = {"key": key, "happened": happened, "call": found.holder.call_id}
        await self._parts.events.record("idempotency.settled", actor, found.holder.tool, details)
        return found


class UndoFacet(CallableFacet):
    """The backups of files that calls changed."""

    async def calls(self, beginning: str, actor: Actor | None = None) -> "list[str]":
        """Gives the ids of the actor's calls that can be undone and begin so."""
        return await self._parts.journal.calls(beginning, actor or LOCAL)

    async def is_possible(self, call_id: str, *, actor: Actor | None = None) -> bool:
        """Tells whether there are backups of files that a call of the actor's user changed, and that were not put back."""
        return await self._parts.journal.has_backups(call_id, actor or LOCAL)

    async def preview(self, call_id: str, *, actor: Actor | None = None, force: bool = False) -> "list[Undone]":
        """Gives what `revert` would do, and does nothing."""
        return await self._parts.journal.preview(call_id, actor or LOCAL, force)

    @uninterrupted
    async def revert(self, call_id: str, *, actor: Actor | None = None, force: bool = False) -> "list[Undone]":
        """Puts back the files that a call changed. `force`: also those that were changed again since."""
        undone = await self._parts.journal.undo(call_id, actor or LOCAL, force)
        details = {"call": call_id, "force": force, "count": len(undone), "paths": [one.path for one in undone[:100]]}
        await self._parts.events.record("call.undone", actor or LOCAL, "", details)
        return undone


class WorkspaceFacet(Facet):
    """The changes that were not brought into workspaces."""

    def changes(self) -> "list[QuarantineSet]":
        """Gives the sets of changes that programs and servers made in workspaces and that wait, oldest first."""
        return self._parts.places.quarantine().sets()

    def get(self, number: str) -> "QuarantineSet":
        """Gives one set of changes. Raises `ToolgateError` if there is none."""
        return self._parts.places.quarantine().get(number)

    def content(self, one: "QuarantineSet", change: Any) -> bytes | None:
        """Gives the content that a change of a set would bring in."""
        return self._parts.places.quarantine().content(one, change)

    @uninterrupted
    async def take(self, number: str, paths: Iterable[str] = (), *, actor: Actor | None = None) -> list[str]:
        """Makes the changes of a set in its workspace, or only those to some paths. Gives what could not be done."""
        quarantine = self._parts.places.quarantine()
        one, wanted = quarantine.get(number), set(paths)
        chosen = [change for change in one.changes if not wanted or change.path in wanted]
        missing = wanted.difference(change.path for change in chosen)
        if missing:
            raise InvalidInput(
                f"Set {one.id} has no change to {min(missing)}.",
                suggestion=f"`toolgate workspace show {one.id}` lists its changes.",
            )
        failed = await to_thread(quarantine.take, one, chosen)
        named = {"set": one.id, "workspace": one.workspace, "by": one.by, "count": len(chosen) - len(failed)}
        details = {**named, "paths": [change.path for change in chosen[:100]]}
        await self._parts.events.record("workspace.taken", actor or LOCAL, "", details)
        return failed

    @uninterrupted
    async def drop(self, number: str, *, actor: Actor | None = None) -> None:
        """Forgets a set of changes."""
        quarantine = self._parts.places.quarantine()
        one = quarantine.get(number)
        await to_thread(quarantine.drop, one)
        details = {"set": one.id, "workspace": one.workspace, "by": one.by, "count": len(one.changes)}
        await self._parts.events.record("workspace.dropped", actor or LOCAL, "", details)


class SessionsFacet(Facet):
    """The sessions that calls name."""

    def work_in(
        self, session: str, folder: str | os.PathLike[str], *, tenant: str = LOCAL.tenant, user: str = LOCAL.user
    ) -> Path:
        """Sets the folder in which the calls of a user's session read and write files and run commands."""
        return self._parts.places.set(Actor(tenant, user=user), session, Path(folder))

    def share(self, name: str, with_users: Iterable[str], *, tenant: str = LOCAL.tenant) -> None:
        """Shares one session, with its files and providers, among these users of a tenant, until the App is closed. For
        everybody else the name means a session of their own. The setting `sessions.shared` does it for good."""
        if isinstance(with_users, str):
            raise TypeError("with_users must be a list of users, not one text")
        self._parts.sessions.share(tenant, name, with_users)

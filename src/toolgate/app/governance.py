"""What people decide while an App runs: flags, policy data, approvals and grants, budgets, unsettled keys, undo.

The Python door to governance, and what the other doors call. Each change is on record, and holds for the next call in every
process.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from toolgate.app.assembly import Listener, to_the_end
from toolgate.app.servers import Connecting
from toolgate.errors import Denied, InvalidInput, NotOpen
from toolgate.gates.approval.answers import PAGE
from toolgate.gates.approval.request import Answer, Approval, Approver, Grant, GrantTerms, State
from toolgate.model import LOCAL, Actor, Call, Outcome, new_id
from toolgate.store import budgets
from toolgate.store import catalog as table
from toolgate.store.budgets import BudgetRow, By, CostLine
from toolgate.store.database import now
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.gates.policy.replay import Replay
    from toolgate.gates.quota.report import BudgetStatus
    from toolgate.pipeline.explain import Explanation
    from toolgate.registry.declare import ClassTool
    from toolgate.sandbox.quarantine import QuarantineSet
    from toolgate.store.idempotency import KeyRow
    from toolgate.undo import Undone


class Governing(Connecting):
    """The part of an App with which people govern."""

    # -- flags

    @to_the_end
    async def set_enabled(
        self,
        tool: str,
        enabled: bool | None,
        *,
        tenant: str | None = None,
        persona: str | None = None,
        reason: str | None = None,
        actor: Actor | None = None,
    ) -> None:
        """Enables or disables a tool for everybody, for a tenant, or for a persona. None takes the flag away again.

        Raises `CallError`: TOOL_NOT_FOUND, or PERMISSION_DENIED for a tool that `enforcement` keeps enabled.
        """
        actor = actor or LOCAL
        if tenant is not None and persona is not None:
            raise ValueError("a flag is for a tenant or for a persona, not for both")
        entry = self.catalog.resolve(tool, actor.tenant)
        if tenant is None and persona is None:
            tenant = entry.tool.tenant  # for all who have it: of a dynamic tool that is one tenant
        if not enabled and enabled is not None:
            self._refuse_enforced(tool, "disable")
        await self._keeper.switch(entry, enabled, tenant=tenant, persona=persona, reason=reason, by=actor.user)
        action = {None: "tool.flag_removed", True: "tool.enabled", False: "tool.disabled"}[enabled]
        await self._note(action, actor, tool, {"for_tenant": tenant, "for_persona": persona, "reason": reason})

    def _refuse_enforced(self, tool: str, verb: str) -> None:
        if self.catalog.is_enforced(tool):
            raise Denied("PERMISSION_DENIED", f"Cannot {verb} tool: {tool} (enforced by enterprise policy).")

    @to_the_end
    async def set_tenant_flags(self, flags: Iterable[tuple[str, str, bool | None]], actor: Actor | None = None) -> None:
        """Sets many flags of tenants at once: (tenant, tool, enabled). Recorded as one act, with the first hundred."""
        listed = list(flags)
        await self._keeper.switch_many(listed)
        await self._note("tenant.flags", actor or LOCAL, "", {"count": len(listed), "flags": listed[:100]})

    @to_the_end
    async def allow_adding_tools(self, persona: str, allowed: bool = True, *, actor: Actor | None = None) -> None:
        """Gives a persona the permission tool.enable, or takes it."""
        await self._keeper.change(table.set_can_add_tools(persona, allowed))
        await self._note("persona.permissions", actor or LOCAL, "", {"for_persona": persona, "can_add_tools": allowed})

    async def refresh(self) -> None:
        """Takes over now what other processes changed; it happens by itself before the next call."""
        await self._keeper.refresh()

    # -- policy

    @to_the_end
    async def set_global_deny(
        self, tool: str, denied: bool = True, *, reason: str | None = None, actor: Actor | None = None
    ) -> None:
        """Denies a tool to everybody, also one that is not there yet; or takes that back."""
        if denied:
            self._refuse_enforced(tool, "deny")
        await self._keeper.change(table.set_member("global_tool_deny", tool, denied, reason))
        await self._note("policy.global_deny", actor or LOCAL, tool, {"denied": denied, "reason": reason})

    @to_the_end
    async def restrict_code_execution(
        self, tenant: str, restricted: bool = True, *, reason: str | None = None, actor: Actor | None = None
    ) -> None:
        """Forbids a tenant to execute code, or takes that back."""
        await self._keeper.change(table.set_member("code_execution_restricted_tenants", tenant, restricted, reason))
        await self._note("policy.code_execution", actor or LOCAL, "", {"for_tenant": tenant, "restricted": restricted})

    async def policy_documents(self) -> dict[str, Any]:
        """Gives the data that the policy decides by."""
        return self.policy_data.whole()

    async def replay_policy(self, text: str, *, since: datetime | None = None, tenant: str | None = None) -> "Replay":
        """Gives what another policy, as Rego, would have said to the calls on record."""
        from toolgate.gates.policy.rego import EmbeddedRego
        from toolgate.gates.policy.replay import recorded_pages, replay

        await self.flush()
        return await replay(recorded_pages(self.store, since=since, tenant=tenant), EmbeddedRego(text), self.policy_data)

    async def observed_policies(self, *, since: datetime | None = None, tenant: str | None = None) -> "dict[str, Replay]":
        """Gives what the policies that are observed (`policy.observe`) would have changed, by the name of their files."""
        from toolgate.gates.policy.replay import observed, recorded_pages

        await self.flush()
        return await observed(recorded_pages(self.store, since=since, tenant=tenant))

    async def explain(
        self,
        name: "str | Callable[..., Any] | ClassTool",
        arguments: Mapping[str, Any] | str | bytes | None = None,
        *,
        actor: Actor | None = None,
        session: str | None = None,
        idempotency_key: str | None = None,
        door: str = "python",
    ) -> "Explanation":
        """Gives what every gate would say to a call, without making it."""
        from toolgate.pipeline.explain import explain

        if not isinstance(name, str):
            name = self.catalog.name_of(name)
        if self.notices.changed():
            await self.notices.catch_up(self._keeper.refresh)
        return await explain(
            self._pipeline, Call(new_id(), name, arguments, actor or LOCAL, session, idempotency_key, door=door)
        )

    # -- approvals and grants

    def add_approver(self, approver: Approver) -> None:
        """Attaches somebody who can be asked: a function that is given an `ApprovalRequest` and gives an `Answer`, True,
        False, or None for "I can't say". Where nobody answers, a call that must be asked about ends as pending."""
        self.consent.add(approver)

    async def approvals(
        self, *, state: State | None = "waiting", actor: Actor | None = None, limit: int = PAGE, after: str | None = None
    ) -> list[Approval]:
        """Gives the questions of the actor's tenant, oldest first: at most `limit`, beginning after the id `after`."""
        return await self.consent.list((actor or LOCAL).tenant, state, limit=limit, after=after)

    async def waiting(self) -> dict[str, int]:
        """Gives how many questions wait for an answer, by tenant: for whoever runs this installation."""
        return await self.consent.waiting()

    @to_the_end
    async def answer_approval(
        self, id: str, answer: Answer | bool, *, actor: Actor | None = None, through: str = "python"
    ) -> Approval:
        """Approves, edits or rejects a call that waits. It runs when it is made again, or by `resume`.

        Raises a `ToolgateError` if there is no such question, it was answered already, or this actor may not answer it:
        nobody but the person at this machine approves a call of their own.
        """
        if isinstance(answer, bool):
            answer = Answer("approve" if answer else "reject")
        return await self.consent.answer(id, answer, actor or LOCAL, through)

    async def resume(self, id: str, *, actor: Actor | None = None) -> Outcome:
        """Runs a call that was approved, as the actor that made it and through the door that it came by: what it may do, and
        the folder that it works in, depend on both. An approval for a call inside another has that one go on."""
        if not self._opened:
            raise NotOpen
        waiting = await self.consent.status(id, (actor or LOCAL).tenant)
        asked = waiting.request
        outer = await self.continuations.outer_of(id, asked.actor.tenant)
        tool, key = (asked.tool, waiting.idempotency_key) if outer is None else (outer.tool_name, outer.idempotency_key)
        return await self._invoke(Call(new_id(), tool, None, asked.actor, asked.session, key, id, door=asked.door))

    @to_the_end
    async def grant(
        self,
        tool: str,
        terms: GrantTerms,
        *,
        actor: Actor | None = None,
        session: str | None = None,
        reason: str | None = None,
        by: Actor | None = None,
    ) -> Grant:
        """Agrees ahead of time to calls of a tool by an actor; never to destructive ones. `by`: who agrees; without it, the
        person at this machine."""
        actor = actor or LOCAL
        by = by or Actor(actor.tenant, user=LOCAL.user)
        entry = self.catalog.resolve(tool, actor.tenant)
        return await self.consent.make_grant(entry, terms, actor, by, session=session, reason=reason)

    async def grants(self, *, active: bool = True, actor: Actor | None = None) -> list[Grant]:
        """Gives the grants of the actor's tenant: those that hold now, or all that there were."""
        return await self.consent.list_grants((actor or LOCAL).tenant, active=active)

    @to_the_end
    async def revoke_grant(self, id: str, *, actor: Actor | None = None) -> Grant:
        """Takes a grant back: it holds for no call from now on, in any process."""
        return await self.consent.revoke(id, actor or LOCAL)

    # -- money

    @to_the_end
    async def set_budget(self, budget: BudgetRow, *, actor: Actor | None = None) -> None:
        """Sets a budget, or changes the one of the same id. A new one counts what was spent in its period already."""
        already = await self.budgets.spent_already(budget)
        await self._keeper.change(budgets.set_budget(budget, already))
        await self._note("budget.set", actor or LOCAL, budget.tool or "", {"budget": budget._asdict()})

    @to_the_end
    async def remove_budget(self, id: str, *, actor: Actor | None = None) -> bool:
        """Removes a budget; gives whether there was one."""
        removed = await self._keeper.change(budgets.remove_budget(id))
        if removed:
            await self._note("budget.removed", actor or LOCAL, "", {"budget": id})
        return removed

    async def budget_status(self, tenant: str | None = None) -> "list[BudgetStatus]":
        """Gives what of every budget is spent and reserved; of one tenant, or of all."""
        return await self.budgets.status(tenant)

    async def costs(self, by: By = "tool", *, since: datetime | None = None, tenant: str | None = None) -> list[CostLine]:
        """Gives what calls have cost: by tool, user, persona, tenant or day; without `since`, in the last thirty days."""
        return await self.budgets.costs(by, since or now() - timedelta(days=30), tenant)

    # -- keys, backups, listeners

    async def unsettled_keys(self, tenant: str | None = None) -> "list[KeyRow]":
        """Gives the idempotency keys whose call began and has no known end: of a tenant, or of all."""
        return await self.idempotency.unsettled(tenant)

    @to_the_end
    async def settle_key(self, key: str, *, happened: bool, output: Any = None, actor: Actor | None = None) -> "KeyRow":
        """Says whether the call with this key had its effect. If it had, callers are given `output`; if not, the key is
        free again."""
        actor = actor or LOCAL
        found = await self.idempotency.settle(actor.tenant, actor.user, key, happened=happened, output=output, by=actor.user)
        details = {"key": key, "happened": happened, "call": found.holder.call_id}
        await self._note("idempotency.settled", actor, found.holder.tool, details)
        return found

    @to_the_end
    async def undo(self, call_id: str, *, actor: Actor | None = None, force: bool = False) -> "list[Undone]":
        """Puts back the files that a call changed. `force`: also those that were changed again since."""
        undone = await self.journal.undo(call_id, actor or LOCAL, force)
        details = {"call": call_id, "force": force, "count": len(undone), "paths": [one.path for one in undone[:100]]}
        await self._note("call.undone", actor or LOCAL, "", details)
        return undone

    # -- what programs changed and was not brought in

    def set_aside(self) -> "list[QuarantineSet]":
        """Gives the sets of changes that programs and servers made in workspaces and that wait, oldest first."""
        return self.places.quarantine().sets()

    @to_the_end
    async def take_changes(self, number: str, paths: Iterable[str] = (), *, actor: Actor | None = None) -> list[str]:
        """Makes the changes of a set in its workspace, or only those to some paths. Gives what could not be done."""
        quarantine = self.places.quarantine()
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
        await self._note("workspace.taken", actor or LOCAL, "", {**named, "paths": [change.path for change in chosen[:100]]})
        return failed

    @to_the_end
    async def drop_changes(self, number: str, *, actor: Actor | None = None) -> None:
        """Forgets a set of changes."""
        quarantine = self.places.quarantine()
        one = quarantine.get(number)
        await to_thread(quarantine.drop, one)
        details = {"set": one.id, "workspace": one.workspace, "by": one.by, "count": len(one.changes)}
        await self._note("workspace.dropped", actor or LOCAL, "", details)

    def add_listener(self, listener: Listener) -> None:
        """Adds a function that is called with the name and the fields of an event: budget.alert."""
        self._listeners.append(listener)

    async def flush(self) -> None:
        """Waits until everything that happened so far is on disk."""
        await self._keeper.save()
        await self.store.flush()

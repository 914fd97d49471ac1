"""`app.approvals`: the calls that wait for a person, and the people that are asked. `app.grants`: calls that somebody agreed
to ahead of time."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import orjson

from toolgate.app.argument_origins import NO_ORIGINS, ArgumentOrigins, origins
from toolgate.app.facets import CallableFacet
from toolgate.app.file_differences import FileDifference, differences
from toolgate.errors import CallError
from toolgate.gates.approval.grants import MOST_LISTED, BoundArguments
from toolgate.gates.approval.questions import ANSWERS_PAGE
from toolgate.gates.approval.records import hash_of
from toolgate.gates.approval.request import (
    Answer,
    Approval,
    ApprovalError,
    ApprovalRequest,
    Approver,
    Grant,
    GrantTerms,
    Listed,
    State,
)
from toolgate.model import LOCAL, Actor, Call, Entry, Outcome
from toolgate.store import approvals as table
from toolgate.tasks import uninterrupted

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

LAST_ANSWERS = 5


class ApprovalsFacet(CallableFacet):
    """The calls that wait for a person."""

    def __init__(self, parts: "Parts", invoke: Callable[..., Awaitable[Outcome]]) -> None:
        super().__init__(parts)
        self.canonical = parts.checks.canonical
        """Gives arguments that a person edited as they would run; raises `CallError` if they do not fit the tool."""
        self._invoke = invoke

    def add_approver(self, approver: Approver) -> None:
        """Attaches somebody who can be asked: a function that is given an `ApprovalRequest` and gives an `Answer`, True,
        False, or None for "I can't say". Where nobody answers, a call that must be asked about ends as pending."""
        self._parts.consent.add(approver)

    async def get(self, id: str, tenant: str | None) -> Approval:
        """Gives one question of a tenant, or of any (None), as an approver is shown it, and what became of it. Raises
        `ToolgateError` if there is none."""
        return await self._parts.consent.questions.show(id, tenant)

    async def on_record(self, id: str, tenant: str | None, user: str | None = None) -> Approval:
        """Gives one question of a tenant, or of any (None), as records hold it, with what looks like a secret masked; of one
        user, if one is named. Raises `ToolgateError` if there is none."""
        return await self._parts.consent.questions.status(id, tenant, user)

    async def state(self, id: str, tenant: str) -> State:
        """Gives what became of a question of a tenant, without what its approver must see."""
        return (await self._parts.consent.questions.status(id, tenant)).state

    async def is_usable(self, id: str, tenant: str) -> bool:
        """Tells whether a call that comes with this approval is answered by it or may still use it, and not a call that used
        it before and may have had its effect. Raises `ToolgateError` if there is no such question."""
        waiting = await self._parts.consent.questions.status(id, tenant)
        if waiting.request.outer_call is None:
            return waiting.state != "used"
        try:
            return await self._parts.continuations.outer_of(id, tenant) is not None
        except CallError:
            return False  # the outer call has ended

    def may_answer(self, asked: ApprovalRequest, actor: Actor, through: str) -> bool:
        """Tells whether an actor's yes would count, given through a door."""
        return self._parts.consent.questions.may_answer(asked, actor.user, through)

    def why_not(self, asked: ApprovalRequest, actor: Actor, through: str) -> str | None:
        """Gives the reason why an actor's yes would not count, given through a door; None: it would."""
        return self._parts.consent.questions.why_not(asked, actor.user, through)

    async def changes(self, asked: ApprovalRequest, actor: Actor, through: str) -> list[FileDifference]:
        """Gives what a call would change in its file, as that is now: of built-in file tools, and only for somebody whose
        yes would count and who is shown the arguments (`get`); for everybody else, nothing."""
        if asked.on_record or not self.may_answer(asked, actor, through):
            return []
        return await differences(self._parts, asked)

    async def origins(self, asked: ApprovalRequest, actor: Actor, through: str) -> ArgumentOrigins:
        """Gives the values of a call's arguments that stand in outputs of earlier calls of its session, as far as those are
        kept (setting audit.details): only for somebody whose yes would count and who is shown the arguments (`get`)."""
        if asked.on_record or not self.may_answer(asked, actor, through):
            return NO_ORIGINS
        return await origins(self._parts, asked)

    async def last_answers(
        self, asked: ApprovalRequest, *, user: str | None = None, limit: int = LAST_ANSWERS
    ) -> list[Approval]:
        """Gives the last answered questions of the same tenant about the same tool, newest first: of one user, or of all."""
        return await self._parts.consent.questions.last_answers(asked, limit, user)

    async def ids(self, tenant: str | None, beginning: str) -> list[tuple[str, str]]:
        """Gives the ids that begin so, each with its tenant: of one tenant, or of all."""
        return await self._parts.store.read(table.ids("approvals", tenant, beginning))

    async def counts(self) -> dict[str, int]:
        """Gives how many questions wait for an answer, by tenant: for whoever runs this installation."""
        return await self._parts.consent.questions.waiting()

    async def waiting(self, tenant: str | None, *, user: str | None = None) -> table.WaitingQuestions:
        """Gives how many questions wait for an answer and since when the first does: of a tenant or of all (None), and asked
        by one user or by any."""
        return await self._parts.consent.questions.all_waiting(tenant, user)

    @uninterrupted
    async def answer(
        self, id: str, answer: Answer | bool, *, actor: Actor | None = None, through: str = "python"
    ) -> Approval:
        """Approves, edits or rejects a call that waits. It runs when it is made again, or by `resume`.

        Raises a `ToolgateError` if there is no such question, it was answered already, or this actor may not answer it:
        nobody but the person at this machine approves a call of their own.
        """
        if isinstance(answer, bool):
            answer = Answer("approve" if answer else "reject")
        answered = await self._parts.consent.questions.answer(id, answer, actor or LOCAL, through)
        await self._parts.jobs.release()
        return answered

    @uninterrupted
    async def withdraw(self, id: str, *, actor: Actor | None = None, reason: str = "") -> None:
        """Ends a question because its call is given up: an answer comes too late from now on, and runs nothing. One that is
        over stays as it is."""
        await self._parts.consent.questions.withdraw(id, actor or LOCAL, reason)

    async def resume(self, id: str, *, actor: Actor | None = None) -> Outcome:
        """Runs a call that was approved, as the actor that made it and through the door that it came by: what it may do, and
        the folder that it works in, depend on both. An approval for a call inside another has that one go on."""
        waiting = await self._parts.consent.questions.status(id, (actor or LOCAL).tenant)
        asked = waiting.request
        outer = await self._parts.continuations.outer_of(id, asked.actor.tenant)
        tool, key, who, session = asked.tool, waiting.idempotency_key, asked.actor, asked.session
        if outer is not None:  # which another actor may have made: one inside may be a subordinate's
            tool, key, session = outer.tool_name, outer.idempotency_key, outer.session_id
            who = Actor(outer.tenant_id, outer.persona_id, outer.user_id, tuple(orjson.loads(outer.scopes)))
        # In any other folder it works only if it still would by itself: an operator may have taken that away since.
        where = asked.workspace if asked.workspace.startswith("/") and asked.workspace.endswith("/") else None
        return await self._invoke(
            tool, actor=who, session=session, idempotency_key=key, approval=id, door=asked.door,
            workspace=where, internal=True, connection=waiting.connection,
        )  # fmt: skip

    async def list(
        self,
        *,
        state: Listed | None = "waiting",
        actor: Actor | None = None,
        tool: str | None = None,
        user: str | None = None,
        limit: int = ANSWERS_PAGE,
        after: str | None = None,
        all_tenants: bool = False,
        newest: bool = False,
    ) -> list[Approval]:
        """Gives the questions of the actor's tenant, or of all, oldest or `newest` first: about a tool, and asked by a user,
        or by any; at most `limit`, beginning after the id `after`."""
        tenant = None if all_tenants else (actor or LOCAL).tenant
        listing = self._parts.consent.questions.list
        return await listing(tenant, state, tool=tool, user=user, limit=limit, after=after, newest=newest)


class GrantsFacet(CallableFacet):
    """The grants on record."""

    @uninterrupted
    async def create(
        self,
        tool: str,
        terms: GrantTerms,
        *,
        actor: Actor | None = None,
        session: str | None = None,
        reason: str | None = None,
        by: Actor | None = None,
        operation: str | None = None,
        arguments: dict[str, Any] | None = None,
        through: str = "python",
    ) -> Grant:
        """Agrees ahead of time to calls of a tool by an actor; never to destructive ones. `by`: who agrees; without it, the
        person at this machine. `operation`: of a tool that has several, the one that is agreed to. `arguments`: those that
        are agreed to, and no others; without them, any. `through`: the door."""
        actor = actor or LOCAL
        by = by or Actor(actor.tenant, user=LOCAL.user)
        entry = self._parts.catalog.resolve(tool, actor.tenant)
        bound = None if arguments is None else await self._bound(entry, arguments, actor, session)
        if entry.operations is not None:
            if arguments is not None and operation is None:
                operation = arguments["operation"]
            if operation not in entry.operations:
                raise ApprovalError(f"{tool} is granted by operation: name one of {', '.join(entry.operations)}.")
            entry = entry.operations[operation]
        make = self._parts.consent.grants.make
        return await make(entry, terms, actor, by, session=session, reason=reason, through=through, bound=bound)

    async def _bound(self, entry: Entry, arguments: dict[str, Any], actor: Actor, session: str | None) -> BoundArguments:
        """The arguments as a call would bring them, and as records hold them."""
        checks = self._parts.checks
        where = checks.workspace(Call("", entry.name, None, actor, session))
        try:
            canonical = checks.canonical(entry.name, actor.tenant, where, arguments)
        except CallError as error:
            raise ApprovalError(f"The arguments cannot be granted: {error.message}", suggestion=error.suggestion) from error
        recorded = await checks.masked(entry.name, actor.tenant, canonical)
        return BoundArguments(hash_of(canonical), recorded.decode())

    async def get(self, id: str, tenant: str | None, user: str | None = None) -> Grant:
        """Gives one grant of a tenant, or of any (None); for one user, if one is named. Raises `ToolgateError` if there is
        none."""
        return await self._parts.consent.grants.get(id, tenant, user)

    async def ids(self, tenant: str | None, beginning: str) -> list[tuple[str, str]]:
        """Gives the ids that begin so, each with its tenant: of one tenant, or of all."""
        return await self._parts.store.read(table.ids("grants", tenant, beginning))

    @uninterrupted
    async def revoke(self, id: str, *, actor: Actor | None = None) -> Grant:
        """Takes a grant back: it holds for no call from now on, in any process."""
        return await self._parts.consent.grants.revoke(id, actor or LOCAL)

    async def list(
        self,
        *,
        active: bool = True,
        actor: Actor | None = None,
        tool: str | None = None,
        user: str | None = None,
        limit: int = MOST_LISTED,
        after: str | None = None,
        all_tenants: bool = False,
    ) -> list[Grant]:
        """Gives the grants of the actor's tenant, or of all, oldest first: those that hold now, or all that there were; of a
        tool, and for a user, or for any; at most `limit`, beginning after the id `after`."""
        tenant = None if all_tenants else (actor or LOCAL).tenant
        listing = self._parts.consent.grants.list
        return await listing(tenant, active=active, tool=tool, user=user, limit=limit, after=after)

"""`app.approvals`: the calls that wait for a person, and the people that are asked."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from toolgate.app.renamed import CallableFacet
from toolgate.gates.approval.questions import ANSWERS_PAGE
from toolgate.gates.approval.request import Answer, Approval, ApprovalRequest, Approver, State
from toolgate.model import LOCAL, Actor, Outcome
from toolgate.store import approvals as table
from toolgate.tasks import uninterrupted

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts


class ApprovalsFacet(CallableFacet):
    """The calls that wait for a person."""

    def __init__(self, parts: "Parts", invoke: Callable[..., Awaitable[Outcome]]) -> None:
        self.canonical = parts.checks.canonical
        """Gives arguments that a person edited as they would run; raises `CallError` if they do not fit the tool."""
        self._consent = parts.consent
        self._questions = parts.consent.questions
        self._continuations = parts.continuations
        self._invoke = invoke
        self._store = parts.store

    def add_approver(self, approver: Approver) -> None:
        """Attaches somebody who can be asked: a function that is given an `ApprovalRequest` and gives an `Answer`, True,
        False, or None for "I can't say". Where nobody answers, a call that must be asked about ends as pending."""
        self._consent.add(approver)

    async def get(self, id: str, tenant: str) -> Approval:
        """Gives one question of a tenant, and what became of it. Raises `ToolgateError` if there is none."""
        return await self._questions.show(id, tenant)

    async def state(self, id: str, tenant: str) -> State:
        """Gives what became of a question of a tenant, without what its approver must see."""
        return (await self._questions.status(id, tenant)).state

    def may_answer(self, asked: ApprovalRequest, actor: Actor, through: str) -> bool:
        """Tells whether an actor's yes would count, given through a door."""
        return self._questions.may_answer(asked, actor.user, through)

    async def ids(self, tenant: str | None, beginning: str) -> list[tuple[str, str]]:
        """Gives the ids that begin so, each with its tenant: of one tenant, or of all."""
        return await self._store.read(table.ids("approvals", tenant, beginning))

    async def counts(self) -> dict[str, int]:
        """Gives how many questions wait for an answer, by tenant: for whoever runs this installation."""
        return await self._questions.waiting()

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
        return await self._questions.answer(id, answer, actor or LOCAL, through)

    async def resume(self, id: str, *, actor: Actor | None = None) -> Outcome:
        """Runs a call that was approved, as the actor that made it and through the door that it came by: what it may do, and
        the folder that it works in, depend on both. An approval for a call inside another has that one go on."""
        waiting = await self._questions.status(id, (actor or LOCAL).tenant)
        asked = waiting.request
        outer = await self._continuations.outer_of(id, asked.actor.tenant)
        tool, key = (asked.tool, waiting.idempotency_key) if outer is None else (outer.tool_name, outer.idempotency_key)
        return await self._invoke(
            tool, actor=asked.actor, session=asked.session, idempotency_key=key, approval=id, door=asked.door
        )

    async def list(
        self,
        *,
        state: State | None = "waiting",
        actor: Actor | None = None,
        limit: int = ANSWERS_PAGE,
        after: str | None = None,
        all_tenants: bool = False,
    ) -> list[Approval]:
        """Gives the questions of the actor's tenant, or of all, oldest first: at most `limit`, beginning after the id
        `after`."""
        tenant = None if all_tenants else (actor or LOCAL).tenant
        return await self._questions.list(tenant, state, limit=limit, after=after)

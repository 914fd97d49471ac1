"""The questions that wait for a person, and what was answered: checked and put on record, whichever channel it came by."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import orjson

from toolgate.errors import CallError
from toolgate.gates.approval.approvers import Terms, is_own
from toolgate.gates.approval.disclosure import PURPOSE
from toolgate.gates.approval.edits import restore, typed_secret, unknowable
from toolgate.gates.approval.grants import BoundArguments, Grants, draft
from toolgate.gates.approval.records import (
    ASK_AGAIN,
    ApprovalRoom,
    approval_of,
    asked_by,
    canonical,
    find_row,
    hash_of,
    is_whole,
    state_of,
)
from toolgate.gates.approval.request import Answer, Approval, ApprovalError, ApprovalRequest, Listed, visible, words
from toolgate.model import MASK, Actor, Call, UserMessage
from toolgate.store import approvals
from toolgate.store.approvals import AnswerRow, ApprovalRow
from toolgate.store.grants import GrantRow
from toolgate.store.sealed_values import Seal

Validate = Callable[[str, str, str, dict[str, Any]], bytes]
"""(tool, tenant, workspace, arguments) → the arguments in canonical form; raises a CallError if they do not fit the tool, or
name what may not be opened from that folder."""
Mask = Callable[[str, str, bytes], Awaitable[bytes]]
"""(tool, tenant, arguments) → the arguments as records may hold them."""
ANSWERS_PAGE = 500
"""Questions that are listed at once, if nothing else is said."""


class Questions:
    """The questions of all tenants, and the one way to answer them."""

    def __init__(self, room: ApprovalRoom, grants: Grants, validate: Validate, mask: Mask) -> None:
        self._store, self._approvers, self._note, _, self._policy_hash, self._clock, self._user_messages = room
        self._grants = grants
        self._validate = validate
        self._mask = mask
        self.seal = Seal(room.store, PURPOSE)
        self.awaited: dict[str, asyncio.Event] = {}
        """Questions that a call of this process is asking right now; set when one is answered."""

    async def answer(self, id: str, answer: Answer, by: Actor, through: str) -> Approval:
        """Answer a question of one's own tenant, from wherever. Raises ApprovalError if it can't be answered (any more)."""
        row = await self.find(id, by.tenant)
        state = state_of(row, self._clock())
        if state != "waiting":
            became = f"{'rejected' if state == 'rejected' else 'approved'} by {row.answered_by}"
            used = f", and used by call {row.used_by}" if state == "used" else ""
            what = "it expired" if state == "expired" else f"it was {became}{used}"
            raise ApprovalError(f"Approval {row.id} no longer waits for an answer: {what}.", category="conflict")
        if answer.verdict != "reject" and row.policy_hash != self._policy_hash():
            raise ApprovalError(
                f"The policy has changed since approval {row.id} was asked for.", suggestion=ASK_AGAIN, category="conflict"
            )
        shown = await self.shown(row)
        if shown is None and answer.verdict != "reject":
            raise ApprovalError(
                f"Approval {row.id} cannot be given: its arguments are masked, and what would run cannot be shown here.",
                suggestion=ASK_AGAIN,
            )
        name = words(answer.by) or by.user
        own = is_own(name, through)
        said = await self.record(row, shown, answer, name, words(answer.through) or through, by, own=own)
        if said is None:
            raise ApprovalError(f"Approval {row.id} was answered by somebody else in the meantime.", category="conflict")
        if row.id in self.awaited:
            self.awaited[row.id].set()
        return await self.status(row.id, row.tenant_id)

    async def withdraw(self, id: str, by: Actor, why: str) -> None:
        """Ends a question of a tenant because its call is given up: nobody can answer it any more, and an answer that was
        not used is void. Whoever else makes the same call is asked anew."""
        row = await self._store.read(approvals.get(id, by.tenant))
        if row is None or not await self._store.transact(approvals.withdraw(id, by.tenant, self._clock())):
            return
        await self._note("approval.withdrawn", by, row.tool_name, {"approval": id, "call": row.call_id, "reason": why})

    async def shown(self, row: ApprovalRow) -> bytes | None:
        """The arguments as an approver is shown them; None if that can't be known here, or any more."""
        if row.complete:
            return row.arguments.encode()
        sealed = await self._store.read(approvals.sealed(row.id))
        return None if sealed is None else await self.seal.open(row.id, sealed)

    async def keep_messages(self, row: ApprovalRow, call: Call) -> tuple[UserMessage, ...]:
        """Keeps with a new question what the user of its call typed last, for whoever answers it."""
        messages = await self._user_messages(call)
        if messages:
            sealed = await self.seal.close(_words_id(row), msgspec.json.encode(messages))
            if sealed is not None:
                await self._store.transact(approvals.keep_user_words(row.id, sealed, self._clock()))
        return messages

    async def messages(self, row: ApprovalRow) -> tuple[UserMessage, ...]:
        """The words that the user of a call had typed when its question was put; none once that is answered."""
        sealed = await self._store.read(approvals.user_words(row.id))
        found = None if sealed is None else await self.seal.open(_words_id(row), sealed)
        return () if found is None else msgspec.json.decode(found, type=tuple[UserMessage, ...])

    async def record(
        self,
        row: ApprovalRow,
        shown: bytes | None,
        answer: Answer,
        by: str,
        through: str,
        actor: Actor,
        used_by: str | None = None,
        *,
        own: bool,
    ) -> AnswerRow | None:
        """Put an answer to what was `shown` on record, for the use of a call that waits for it if there is one. Its state is
        still "waiting" where others must agree as well. None: it came too late. Raises ApprovalError if it can't be taken,
        or if whoever gave it may not (`own`: the door lets its person answer for themselves)."""
        terms = self._must_count(row, answer, by, own=own)
        said = await self._said(row, shown, answer, by, through, used_by)
        grant = self._granted(row, said, answer, by)
        if terms.quorum > 1 and answer.verdict == "approve":
            return await self._vote(row, said, actor, terms.quorum)
        if not await self._store.transact(approvals.answer(row.id, row.tenant_id, said, self._clock(), grant)):
            return None
        verdict = "reject" if said.state == "rejected" else "approve" if said.edited is None else "edit"
        details = {
            "approval": row.id, "call": row.call_id, "verdict": verdict, "answered_by": by, "through": through,
            "reason": said.answer_reason, "edited_hash": said.edited_hash,
        }  # fmt: skip
        await self._note("approval.answered", actor, row.tool_name, details)
        if grant is not None:
            await self._grants.note_made(grant, actor)
        return said

    def _must_count(self, row: ApprovalRow, answer: Answer, by: str, *, own: bool) -> Terms:
        """The terms of a question; raises if this answer does not meet them. Whoever asked may always take it back."""
        terms, asker = self._approvers.terms(row.tool_name, row.tenant_id), asked_by(row)
        why = self._approvers.why_not(row.tool_name, asker, by, own=own)
        if why is not None and not (answer.verdict == "reject" and words(by) == words(asker.user)):
            raise ApprovalError(
                f"{by} cannot answer approval {row.id}: {why}.",
                suggestion="Have somebody else answer it.",
                category="forbidden",
            )
        if terms.quorum > 1 and (answer.verdict == "edit" or answer.grant is not None):
            raise ApprovalError(
                f"{terms.quorum} persons must agree to approval {row.id}: one of them can neither edit it nor grant more.",
                suggestion="Reject it, and have the call made as it should be.",
            )
        return terms

    async def _vote(self, row: ApprovalRow, said: AnswerRow, actor: Actor, quorum: int) -> AnswerRow | None:
        """Count one of several who must agree."""
        counted = partial(self._approvers.counted, row.tool_name, asked_by(row))
        voting = approvals.vote(row.id, row.tenant_id, said, self._clock(), quorum, counted)
        agreed = await self._store.transact(voting)
        if agreed is None:
            return None
        details = {
            "approval": row.id, "call": row.call_id, "verdict": "approve", "answered_by": said.answered_by,
            "through": said.answered_through, "reason": said.answer_reason, "agreed": agreed, "quorum": quorum,
        }  # fmt: skip
        await self._note("approval.answered", actor, row.tool_name, details)
        return said if len(agreed) >= quorum else said._replace(state="waiting", used_by=None)

    async def _said(
        self, row: ApprovalRow, shown: bytes | None, answer: Answer, by: str, through: str, used_by: str | None
    ) -> AnswerRow:
        reason = words(answer.reason)
        if answer.verdict == "reject":
            return AnswerRow("rejected", by, through, reason)
        edited = None
        if answer.arguments is not None and shown is not None:
            edited = await self._edited(row, orjson.loads(shown), answer.arguments)
        hashed = None if edited is None else hash_of(edited.encode())
        return AnswerRow("used" if used_by else "approved", by, through, reason, edited, hashed, used_by)

    async def _edited(self, row: ApprovalRow, shown: dict[str, Any], arguments: dict[str, Any]) -> str:
        """Edited arguments as they are kept: what was left as it was shown is masked as it is on record, and the call that
        brings the original completes it."""
        recorded = orjson.loads(row.arguments)
        try:
            kept = restore(arguments, shown, recorded)
            text = canonical(kept)
            if not row.complete and (where := unknowable(kept, recorded)) is not None:
                raise ApprovalError(
                    f"{where} was shown masked, so the edit cannot change it.",
                    suggestion="Leave what is masked as it is and where it is, or name a secret: {{secret:NAME}}.",
                )
            whole = restore(kept, recorded, shown)
            if row.complete or MASK not in text.decode():
                text = self._validate(row.tool_name, row.tenant_id, row.workspace, whole)
            elif hash_of(canonical(shown)) == row.args_hash:
                self._validate(row.tool_name, row.tenant_id, row.workspace, whole)
        except CallError as error:
            raise ApprovalError(
                f"The edited arguments cannot be used: {error.message}", suggestion=error.suggestion
            ) from error
        except (orjson.JSONEncodeError, RecursionError) as error:
            raise ApprovalError(f"The edited arguments are not JSON: {error}.") from error
        masked = orjson.loads(await self._mask(row.tool_name, row.tenant_id, text))
        if (where := typed_secret(orjson.loads(text), masked)) is not None:
            raise ApprovalError(
                f"{where} looks like a secret, which is not kept in an edit.", suggestion="Name it instead: {{secret:NAME}}."
            )
        return text.decode()

    def _granted(self, row: ApprovalRow, said: AnswerRow, answer: Answer, by: str) -> GrantRow | None:
        if answer.grant is None:
            return None
        bound = None
        if answer.grant.same_arguments:
            bound = BoundArguments(row.args_hash, row.arguments)
            if said.edited is not None and said.edited_hash is not None:
                if not is_whole(row._replace(edited=said.edited)):  # its hash is that of the mask, which no call has
                    raise ApprovalError(
                        "The edited arguments hold what is masked, so a grant cannot be for the same arguments.",
                        suggestion="Approve the edit without a grant, or grant it whatever the arguments.",
                    )
                bound = BoundArguments(said.edited_hash, said.edited)
        return draft(
            row.tool_name, row.fingerprint, row.destructive, answer.grant, asked_by(row), row.session_id, row.workspace, by,
            words(answer.reason), self._clock(), priced=row.confidence != "unknown", bound=bound,
        )  # fmt: skip

    # -- what there is

    def may_answer(self, asked: ApprovalRequest, by: str, through: str) -> bool:
        """True if somebody's yes would count, given through a door."""
        return self.why_not(asked, by, through) is None

    def why_not(self, asked: ApprovalRequest, by: str, through: str) -> str | None:
        """The reason why somebody's yes would not count; None: it would."""
        return self._approvers.why_not(asked.tool, asked.actor, by, own=is_own(by, through))

    async def all_waiting(self, tenant: str | None, user: str | None) -> approvals.WaitingQuestions:
        """The questions that wait for an answer: of a tenant or of all, and asked by one user or by any."""
        return await self._store.read(approvals.all_waiting(self._clock(), tenant, user))

    async def waiting(self) -> dict[str, int]:
        """The number of questions that wait for an answer, by tenant."""
        return await self._store.read(approvals.waiting(self._clock()))

    async def last_answers(self, asked: ApprovalRequest, most: int, user: str | None = None) -> list[Approval]:
        """The last questions of the tenant about the same tool that were answered, newest first; of one user, or of all."""
        wanted = approvals.last_answers(asked.actor.tenant, asked.tool, asked.id, most, user)
        at = self._clock()
        return [approval_of(row, at, self.terms(row)) for row in await self._store.read(wanted)]

    async def list(
        self,
        tenant: str | None,
        state: Listed | None = "waiting",
        *,
        tool: str | None = None,
        user: str | None = None,
        limit: int = ANSWERS_PAGE,
        after: str | None = None,
        newest: bool = False,
    ) -> list[Approval]:
        """A page of the questions of a tenant, or of all tenants (None), oldest or `newest` first: those in one state, or
        all; about a tool, and asked by a user, or by any. The next page comes after the last id of this one."""
        at = self._clock()
        start = None if after is None else await self.find(after, tenant)
        since = None if start is None else (start.created_at, start.id)
        wanted = approvals.listed(tenant, state, at, limit, since, tool=tool, user=user, newest=newest)
        return [approval_of(row, at, self.terms(row)) for row in await self._store.read(wanted)]

    async def show(self, id: str, tenant: str | None) -> Approval:
        """A question as an approver is shown it, while it waits for one; then as it is on record. Not for who asked it."""
        row, at = await self.find(id, tenant), self._clock()
        if state_of(row, at) != "waiting":
            return approval_of(row, at, self.terms(row), agreed=await self._agreed(row))
        shown, messages = await self.shown(row), await self.messages(row)
        return approval_of(row, at, self.terms(row), shown, await self._agreed(row), messages)

    async def status(self, id: str, tenant: str | None, user: str | None = None) -> Approval:
        """A question as it is on record; of one user, if one is named."""
        row = await self.find(id, tenant, user)
        return approval_of(row, self._clock(), self.terms(row), agreed=await self._agreed(row))

    def terms(self, row: ApprovalRow) -> Terms:
        """The terms that answers to a question must satisfy."""
        return self._approvers.terms(row.tool_name, row.tenant_id)

    async def _agreed(self, row: ApprovalRow) -> Sequence[str]:
        if self.terms(row).quorum == 1:
            return ()
        return self._approvers.counted(row.tool_name, asked_by(row), await self._store.read(approvals.votes(row.id)))

    async def find(self, id: str, tenant: str | None, user: str | None = None) -> ApprovalRow:
        row = await find_row(self._store, id, tenant)
        if row is None or user not in (None, row.user_id):
            raise ApprovalError(
                f"There is no approval {visible(id)[:64]}{'' if tenant is None else ' of this tenant'}.",
                suggestion="`toolgate approvals list` shows them.",
                category="missing",
            )
        return row

    async def again(self, row: ApprovalRow) -> ApprovalRow:
        """A question as it stands now."""
        return await self._store.read(approvals.get(row.id, row.tenant_id)) or row


def _words_id(row: ApprovalRow) -> str:
    """The purpose that the user's messages are sealed for: apart from the arguments of the same question."""
    return f"{row.id} words"

"""The journal of a run: every message on record, encrypted, before anything follows from it.

What comes next is read off it. After an answer of the model come the results of its calls, at numbers that are kept free
for them, in whatever order they end; a process that takes the run over makes the calls whose results are missing.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import orjson

from toolgate.agent.run import MessageKind, PendingCall, Run, RunCall, RunLimits, RunMessage, Style
from toolgate.errors import Failed, StoreError
from toolgate.llm.completion import Message, ToolDefinition, ToolRequest
from toolgate.model import NANO, Actor, new_id
from toolgate.store import agent_runs as table
from toolgate.store.agent_runs import Claim, RunMessageRow, RunRow
from toolgate.store.database import Store
from toolgate.store.sealed_values import Seal
from toolgate.tasks import finish

PURPOSE = "agent_runs"


class RunLost(Exception):
    """The run was cancelled, or another process has it: nothing more of it is written here."""


class TurnAnswer(msgspec.Struct, frozen=True):
    """An answer of the model as it was understood, whichever style it is in."""

    text: str | None
    requests: tuple[ToolRequest, ...] = ()
    thoughts: tuple[str, ...] = ()
    headline: str | None = None
    problem: str | None = None
    """The reason why nothing of it can be used, in words for the model."""
    ending: str = "complete"


class JournalEntry(msgspec.Struct, frozen=True):
    """A message on record."""

    seq: int
    turn: int
    kind: MessageKind
    message: Message
    at: datetime
    answer: TurnAnswer | None = None
    """Of kind assistant."""
    tools: tuple[ToolDefinition, ...] = ()
    """Of kind system: the tools that the model is told of."""
    ends: str | None = None
    """Of the result of a call that ends the run: the answer."""
    sent: tuple[Message, ...] | None = None
    """Of kind assistant: the messages since the answer before as the model was sent them, where a person or a hook changed
    them. It is told no others later on."""


class Leg(msgspec.Struct, frozen=True):
    """The sums of a run when its user last spoke: its limits count from there."""

    turns: int = 0
    cost: int = 0
    seconds: float = 0.0


class _Content(msgspec.Struct, frozen=True, omit_defaults=True):
    message: Message
    answer: TurnAnswer | None = None
    tools: tuple[ToolDefinition, ...] = ()
    ends: str | None = None
    sent: tuple[Message, ...] | None = None


class Journals:
    """The journals of all runs of a store."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self.store = store
        self.clock = clock
        self._seal = Seal(store, PURPOSE)

    async def sealed(self, run: str, name: str, text: bytes) -> str:
        sealed = await self._seal.close(f"{run} {name}", text)
        if sealed is None:
            raise Failed("UNEXPECTED_ERROR", "A run cannot be kept: the package cryptography is not installed.")
        return sealed

    async def row_of(self, run: str, entry: JournalEntry) -> RunMessageRow:
        content = msgspec.json.encode(_Content(entry.message, entry.answer, entry.tools, entry.ends, entry.sent))
        sealed = await self.sealed(run, str(entry.seq), content)
        return RunMessageRow(run, entry.seq, entry.turn, entry.kind, sealed, entry.at)

    async def entries(self, run: str) -> list[JournalEntry]:
        """All messages of a run. Raises StoreError where one can't be read."""
        return [await self._opened(row) for row in await self.store.read(table.messages(run))]

    async def _opened(self, row: RunMessageRow) -> JournalEntry:
        text = await self._seal.open(f"{row.run_id} {row.seq}", row.content)
        try:
            content = msgspec.json.decode(text or b"", type=_Content)
        except msgspec.DecodeError:
            raise StoreError(
                f"Message {row.seq} of run {row.run_id} cannot be read.",
                suggestion="It was written with another key, or was changed: begin a new run.",
            ) from None
        kind: Any = row.kind
        return JournalEntry(
            row.seq, row.turn, kind, content.message, row.created_at, content.answer, content.tools, content.ends,
            content.sent,
        )  # fmt: skip

    async def told(self, row: RunRow) -> Run:
        """A run as its user is told of it."""
        answer = None if row.answer is None else await self._seal.open(f"{row.id} answer", row.answer)
        style: Any = row.style
        status: Any = row.status
        return Run(
            id=row.id,
            tenant=row.tenant_id,
            persona=row.persona_id,
            user=row.user_id,
            session=row.session_id,
            style=style,
            status=status,
            reason=row.reason,
            text=None if answer is None else answer.decode(),
            limits=limits_of(row),
            turns=row.turns,
            tokens=row.tokens,
            cost_usd=row.cost / NANO,
            pending=pending_of(row),
            parent=row.parent_run,
            created_at=row.created_at,
            updated_at=row.updated_at,
            ended_at=row.ended_at,
        )


class RunJournal:
    """The journal of one run that this process drives."""

    def __init__(self, journals: Journals, row: RunRow, entries: list[JournalEntry]) -> None:
        self._journals = journals
        self.row = row
        self.entries = entries
        self.actor = actor_of(row)
        self.limits = limits_of(row)
        self.leg = msgspec.json.decode(row.leg, type=Leg)
        self.pending = {one.seq: one for one in pending_of(row)}
        """By the number of the result that waits, what it waits for; `save` puts it on record."""
        self._saving = asyncio.Lock()

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def style(self) -> Style:
        return "json" if self.is_json else "native"

    @property
    def is_json(self) -> bool:
        return self.row.style == "json"

    # -- what is there

    @property
    def system(self) -> JournalEntry | None:
        """The system prompt in effect."""
        return next((entry for entry in reversed(self.entries) if entry.kind == "system"), None)

    @property
    def last_answer(self) -> JournalEntry | None:
        return next((entry for entry in reversed(self.entries) if entry.kind == "assistant"), None)

    @property
    def turn(self) -> int:
        """The turn that comes next."""
        answer = self.last_answer
        return 1 if answer is None else answer.turn + 1

    @property
    def next_seq(self) -> int:
        """The first number that is free: after those that are kept for results."""
        last = self.entries[-1].seq if self.entries else 0
        answer = self.last_answer
        kept = 0 if answer is None or answer.answer is None else answer.seq + len(answer.answer.requests)
        return max(last, kept) + 1

    @property
    def missing(self) -> list[tuple[int, ToolRequest]]:
        """The calls of the last answer whose results are not there: each with the number that is kept for it."""
        answer = self.last_answer
        if answer is None or answer.answer is None:
            return []
        there = {entry.seq for entry in self.entries}
        wanted = enumerate(answer.answer.requests, answer.seq + 1)
        return [(seq, request) for seq, request in wanted if seq not in there]

    @property
    def new(self) -> list[JournalEntry]:
        """The messages that the model has not seen: all since its last answer."""
        answer = self.last_answer
        since = 0 if answer is None else answer.seq
        return sorted((entry for entry in self.entries if entry.seq > since), key=lambda entry: entry.seq)

    @property
    def seen(self) -> list[JournalEntry]:
        """The messages that the model has seen, without system prompts that are not in effect any more; that comes first."""
        seen: list[JournalEntry] = []
        new: list[JournalEntry] = []
        for entry in self.entries:
            new.append(entry)
            if entry.kind == "assistant":
                seen += new if entry.sent is None else [*_as_sent(entry, entry.sent), entry]
                new = []
        prompts = [entry for entry in seen if entry.kind == "system"]
        is_replaced = any(entry.kind == "system" for entry in new)
        return [*(() if is_replaced else prompts[-1:]), *(entry for entry in seen if entry.kind != "system")]

    def of_leg(self) -> list[JournalEntry]:
        """The messages since the user last spoke."""
        spoke = max((entry.seq for entry in self.entries if entry.kind == "user"), default=0)
        return [entry for entry in self.entries if entry.seq >= spoke]

    # -- writing

    def entry(
        self,
        kind: MessageKind,
        message: Message,
        *,
        seq: int | None = None,
        answer: TurnAnswer | None = None,
        tools: tuple[ToolDefinition, ...] = (),
        ends: str | None = None,
    ) -> JournalEntry:
        """A message that is to be added: after all that are there, or at a number that is kept for it."""
        turn = self.turn if kind != "tool" else self.turn - 1
        at = self._journals.clock()
        return JournalEntry(self.next_seq if seq is None else seq, turn, kind, message, at, answer, tools, ends)

    async def save(self, *new: JournalEntry, **changes: Any) -> None:
        """Puts messages and changes of the run on record. Raises RunLost if it is not this process's any more."""
        rows = [await self._journals.row_of(self.id, entry) for entry in new]
        async with self._saving:
            row, at = self.row, self._journals.clock()
            changed: dict[str, Any] = {
                "pending": _encoded([self.pending[seq] for seq in sorted(self.pending)]),
                **changes,
                "updated_at": at,
            }
            claim = Claim(row.id, row.process_id or "", row.claims)
            if not await finish(self._journals.store.transact(table.save(claim, changed, rows))):
                raise RunLost(row.id)
            self.entries = sorted([*self.entries, *new], key=lambda entry: entry.seq)
            self.row = row._replace(**changed)

    async def end(self, status: str, reason: str | None, text: str | None, **changes: Any) -> None:
        """Puts the end of the run on record, and lets it go."""
        answer = None if text is None else await self._journals.sealed(self.id, "answer", text.encode())
        at = self._journals.clock()
        self.pending = {}
        await self.save(status=status, reason=reason, answer=answer, ended_at=at, process_id=None, **changes)

    async def wait(self, reason: str, *, keep: bool, **changes: Any) -> None:
        """Puts on record that the run waits. `keep`: this process goes on with it when there is an answer."""
        held = {} if keep else {"process_id": None}
        await self.save(status="waiting", reason=reason, **held, **changes)

    async def told(self) -> Run:
        return await self._journals.told(self.row)


def fresh_run(
    actor: Actor,
    session: str | None,
    door: str,
    workspace: str | None,
    here: str | None,
    style: Style,
    limits: RunLimits,
    process: str | None,
    at: datetime,
) -> RunRow:
    """A run that begins now."""
    return RunRow(
        id=new_id(), tenant_id=actor.tenant, persona_id=actor.persona, user_id=actor.user,
        scopes=orjson.dumps(actor.scopes).decode(), session_id=session, door=door, workspace=workspace, here=here,
        style=style, status="running", reason=None, answer=None, limits=limits_json(limits), turns=0, tokens=0, cost=0,
        seconds=0.0, leg=leg_json(Leg()), pending="[]", grants="[]", is_attended=False, is_queued=False, needs_key=False,
        parent_run=None, origin=None, args_hash=None, process_id=process, claims=1, crashes=0, created_at=at, updated_at=at,
        ended_at=None,
    )  # fmt: skip


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def limits_json(limits: RunLimits) -> str:
    return _encoded(limits)


def leg_json(leg: Leg) -> str:
    return _encoded(leg)


def limits_of(row: RunRow) -> RunLimits:
    return msgspec.json.decode(row.limits, type=RunLimits)


def pending_of(row: RunRow) -> tuple[PendingCall, ...]:
    return msgspec.json.decode(row.pending, type=tuple[PendingCall, ...])


def actor_of(row: RunRow) -> Actor:
    return Actor(row.tenant_id, row.persona_id, row.user_id, tuple(orjson.loads(row.scopes)))


def dollars_left(limits: RunLimits, leg: Leg, row: RunRow) -> int:
    """Nano-dollars that are left of a run's limit."""
    return max(int(limits.cost_usd * Decimal(NANO)) - (row.cost - leg.cost), 0)


def shown(entries: Sequence[JournalEntry], mask: Callable[[Any], Any]) -> tuple[RunMessage, ...]:
    """Messages as their user is shown them."""
    return tuple(_shown(entry, mask) for entry in entries)


def _shown(entry: JournalEntry, mask: Callable[[Any], Any]) -> RunMessage:
    message, requests = entry.message, () if entry.answer is None else entry.answer.requests
    return RunMessage(
        seq=entry.seq,
        turn=entry.turn,
        kind=entry.kind,
        text=mask(message.text),
        calls=tuple(RunCall(one.id, one.name, mask(one.arguments)) for one in requests),
        request=message.request_id,
        is_error=message.is_error,
        at=entry.at,
    )


def _as_sent(answer: JournalEntry, sent: Iterable[Message]) -> list[JournalEntry]:
    """The messages before an answer, as the model was sent them."""
    return [
        JournalEntry(answer.seq, answer.turn, "user" if one.role == "assistant" else one.role, one, answer.at)
        for one in sent
    ]


def answers_of(entries: Iterable[JournalEntry]) -> list[JournalEntry]:
    """The answers of the model among these."""
    return [entry for entry in entries if entry.kind == "assistant"]


def results_of(entries: Iterable[JournalEntry]) -> Mapping[int, JournalEntry]:
    """The results of tools among these, by their numbers."""
    return {entry.seq: entry for entry in entries if entry.kind == "tool"}

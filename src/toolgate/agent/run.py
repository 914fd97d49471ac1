"""A run of an agent as it is told: its limits, its events, its messages, and how it ended."""

from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

import msgspec

RunStatus = Literal["running", "waiting", "done", "failed", "cancelled"]
STATUSES: tuple[RunStatus, ...] = ("running", "waiting", "done", "failed", "cancelled")
"""waiting: for a person's answer, or for a job. failed: its `reason` says why; it can be resumed, or spoken to."""
Style = Literal["native", "json"]
"""native: the model calls tools as its server has it. json: it writes its calls as JSON into its text."""
EventKind = Literal["text", "thoughts", "call", "result", "pending", "turn", "notice", "end"]
MessageKind = Literal["system", "user", "assistant", "tool", "notice"]


class RunLimits(msgspec.Struct, frozen=True):
    """The limits of what an agent does until it has answered what its user said last."""

    turns: int = 40
    """Times that the model is asked."""
    seconds: float = 1800
    """Without the time for which it waits for people."""
    cost_usd: Decimal = Decimal(1)
    """Of the model and of all tools."""
    same_call: int = 3
    """Times that it may make the same call with the same result, one close to the other."""


class RunEvent(msgspec.Struct, frozen=True):
    """Something that happens in a run, for whoever watches it.

    text: `text`, a piece of the model's answer as it is written. thoughts: `thoughts` and `headline`, of style json. call:
    `request`, `tool`, `arguments`. result: `request`, `tool`, `status`, and `output` or `error`. pending: `request`, `tool`,
    `approval` or `job`, `message`. turn: the model has answered; `turn`, `tokens`, `cost_usd`. notice: `text`, of Toolgate.
    end: the fields of a `RunResult`. Whatever was masked in the output of a call is masked here.
    """

    kind: EventKind
    data: dict[str, Any]
    run: str = ""
    """The run that it happens in: one of a subordinate is told to whoever watches its caller."""


class PendingCall(msgspec.Struct, frozen=True):
    """A call of a run that waits for a person's answer, or for the end of a job."""

    seq: int
    """The place of its result among the messages; 0: the model itself is asked about."""
    kind: Literal["approval", "job"]
    id: str
    tool: str


class RunResult(msgspec.Struct, frozen=True):
    """The state of a run, or its end."""

    id: str
    status: RunStatus
    reason: str | None
    """The reason why it ended or waits, in words; None while it runs, and for an answer in the ordinary way."""
    text: str | None
    """The answer."""
    turns: int
    tokens: int
    cost_usd: float
    pending: tuple[str, ...] = ()
    """Ids of the approvals, or jobs, that it waits for."""

    @property
    def ok(self) -> bool:
        """True if the agent has answered."""
        return self.status == "done"


class Run(msgspec.Struct, frozen=True):
    """A conversation with an agent: what its user says, and what it does until it has answered."""

    id: str
    tenant: str
    persona: str | None
    user: str
    session: str | None
    style: Style
    status: RunStatus
    reason: str | None
    text: str | None
    limits: RunLimits
    turns: int
    tokens: int
    cost_usd: float
    pending: tuple[PendingCall, ...]
    parent: str | None
    """Of a subordinate: the run whose call it is in."""
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None

    @property
    def result(self) -> RunResult:
        """Its state as a result."""
        ids = tuple(one.id for one in self.pending)
        return RunResult(
            self.id, self.status, self.reason, self.text, self.turns, self.tokens, self.cost_usd, ids
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class RunCall(msgspec.Struct, frozen=True):
    """A call that the model asked for."""

    id: str
    tool: str
    arguments: dict[str, Any] | None
    """None: they could not be read."""


class RunMessage(msgspec.Struct, frozen=True):
    """A message of a run, as its user is shown it: secrets are masked."""

    seq: int
    turn: int
    kind: MessageKind
    """notice: what Toolgate told the model, in place of a user."""
    text: str
    calls: tuple[RunCall, ...] = ()
    request: str | None = None
    """Of kind tool: the call that it is the result of."""
    is_error: bool = False
    at: datetime | None = None


class Transcript(msgspec.Struct, frozen=True):
    """A run with all that was said in it."""

    run: Run
    messages: tuple[RunMessage, ...]
    subordinates: tuple[Run, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

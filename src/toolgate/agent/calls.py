"""The calls of a run, all through the one pipeline: those of an agent that a user speaks to, and those of a subordinate."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from toolgate.agent.events import Emit
from toolgate.agent.journal import RunJournal
from toolgate.agent.run import Style
from toolgate.llm.completion import Conversations
from toolgate.model import Actor, Call, Invoke, Outcome, SpendingLimit, new_id
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.hooks import Hook
from toolgate.pipeline.subordinate_calls import call_for_subordinate

MODEL_TOOL = "ask_model"
SUBORDINATE_TOOL = "call_subordinate"


class RunScope(NamedTuple):
    """The run that makes a call of `call_subordinate`, as that call is told of it. Found there with
    `ctx.try_get(RunScope)`: only the loop binds it, for its own calls."""

    run: str
    root: str
    """The outermost run, whose grants its turns are charged to."""
    style: Style
    emit: Emit
    seconds_left: Callable[[], float]


class Binding(Hook):
    """Has a call of the loop find something that no other call does."""

    def __init__(self, token: Any, instance: Any) -> None:
        self._token = token
        self._instance = instance

    def will_bind_providers(self, ctx: InvokeContext) -> None:
        ctx.bind(self._token, self._instance)


class WantedCall(NamedTuple):
    """A call that a run makes."""

    tool: str
    arguments: Mapping[str, Any]
    key: str
    """Its idempotency key: made again after a crash, it has no second effect."""
    is_repeatable: bool
    """True if it can be made again whatever became of it."""
    approval: str | None = None
    timeout: float | None = None


class RunCalls(Protocol):
    """The way of a run to the pipeline."""

    actor: Actor
    root: str
    """The outermost run."""

    async def model(self, wanted: WantedCall, conversation: Conversations) -> Outcome:
        """Asks the model."""

    async def tool(self, wanted: WantedCall, scope: RunScope) -> Outcome:
        """Calls a tool."""


class UserCalls:
    """The calls of an agent that a user speaks to."""

    def __init__(self, invoke: Invoke, journal: RunJournal, spending: SpendingLimit) -> None:
        self._invoke = invoke
        self._row = journal.row
        self._spending = spending
        self.actor = journal.actor
        self.root = journal.id

    async def model(self, wanted: WantedCall, conversation: Conversations) -> Outcome:
        return await self._call(wanted, Binding(Conversations, conversation), run=self.root)

    async def tool(self, wanted: WantedCall, scope: RunScope) -> Outcome:
        is_subordinate = wanted.tool == SUBORDINATE_TOOL
        return await self._call(wanted, *((Binding(RunScope, scope),) if is_subordinate else ()))

    async def _call(self, wanted: WantedCall, *hooks: Hook, run: str | None = None) -> Outcome:
        row = self._row
        return await self._invoke(
            Call(
                new_id(), wanted.tool, dict(wanted.arguments), self.actor, row.session_id, wanted.key, wanted.approval,
                wanted.timeout, door=row.door, spending_limit=self._spending, request_id=request_id(row.id), hooks=hooks,
                workspace=row.workspace, here=row.here, internal=run is not None, is_repeatable=wanted.is_repeatable,
                run=run,
            )
        )  # fmt: skip


class SubordinateCalls:
    """The calls of a subordinate, inside the call of `call_subordinate` that it lives in."""

    def __init__(self, ctx: InvokeContext, actor: Actor, spending: SpendingLimit, root: str) -> None:
        self._ctx = ctx
        self._spending = spending
        self.actor = actor
        self.root = root

    async def model(self, wanted: WantedCall, conversation: Conversations) -> Outcome:
        return await self._call(wanted, Binding(Conversations, conversation), run=self.root)

    async def tool(self, wanted: WantedCall, scope: RunScope) -> Outcome:
        is_subordinate = wanted.tool == SUBORDINATE_TOOL
        return await self._call(wanted, *((Binding(RunScope, scope),) if is_subordinate else ()))

    async def _call(self, wanted: WantedCall, *hooks: Hook, run: str | None = None) -> Outcome:
        return await call_for_subordinate(
            self._ctx, self.actor, wanted.tool, wanted.arguments, key=wanted.key, spending_limit=self._spending,
            is_repeatable=wanted.is_repeatable, timeout=wanted.timeout, hooks=hooks, run=run,
        )  # fmt: skip


def request_id(run: str) -> str:
    """The name under which the audit log finds all calls of a run (`app.audit.of_request`)."""
    return f"agent:{run}"

"""The steps of a continuation as they are kept, written while a call goes on and read when the next one does; and what a
caller is told where it can't go on.
"""

from typing import Any

from toolgate.errors import Denied, Failed, StoreError
from toolgate.model import ErrorInfo, Outcome
from toolgate.pipeline.call_tree import CallStep, CallTree
from toolgate.store import continuations
from toolgate.store.continuations import ContinuationRow, StepRow
from toolgate.store.database import Store


class StepRecord:
    """The record of a continuation that a call runs."""

    def __init__(self, store: Store, id: str, call_id: str) -> None:
        self._store = store
        self._id = id
        self.call_id = call_id

    async def note(self, step: CallStep) -> None:
        try:
            ours = await self._store.transact(continuations.note(row_of(self._id, step), self.call_id))
        except StoreError as error:
            words = f"What came of the inner call of {step.tool} cannot be put on record: {error.message}"
            raise Failed("UNEXPECTED_ERROR", words) from error
        if not ours:
            raise taken_over(self._id)


def row_of(id: str, step: CallStep) -> StepRow:
    outcome = None if step.outcome is None else step.outcome.decode()
    return StepRow(
        id, step.key, step.parent, step.tool, step.call_id, step.state, step.approval, step.agreed, outcome, step.cost
    )  # fmt: skip


def step_of(row: StepRow) -> CallStep:
    state: Any = row.state
    outcome = None if row.outcome is None else row.outcome.encode()
    return CallStep(
        row.step, row.parent, row.tool_name, row.call_id, True, state, row.approval_id, row.agreed, outcome, row.cost
    )  # fmt: skip


def give_up(step: CallStep) -> None:
    """A step of which nobody knows how it ended: that is what its caller is told, and it is not made again."""
    told = ErrorInfo(
        "OUTCOME_UNKNOWN",
        f"Call {step.call_id} of {step.tool} began, but nobody knows how it ended; it was not run again.",
        suggestion="Find out whether it had its effect.",
    )
    step.state, step.outcome = "done", Outcome(step.call_id, step.tool, "failure", error=told).to_json()


# -- why it can't go on


def diverged(tree: CallTree, tool: str | None) -> Failed:
    """A program that goes on, but not as it began."""
    done = ", ".join(sorted({step.tool for step in tree.unmet})) or "what it waited for"
    did = "has ended without the calls that it made before" if tool is None else f"called {tool} in another way than before"
    return Failed(
        "INVOCATION_ERROR",
        f"{tree.tool} went on after an approval, but {did} ({done}); it was stopped, and what was done is not done again.",
        suggestion="What a tool or program calls must depend on its arguments and on what its calls gave, not on time or "
        "chance. Look at what was done (`toolgate audit`) before calling again.",
        details={"diverged": True, "continues": tree.id},
        retryable=False,
    )


def cannot_go_on(found: ContinuationRow, why: str) -> Denied:
    return Denied(
        "PERMISSION_DENIED",
        f"Call {found.id} of {found.tool_name} waits for an approval, but cannot go on: {why}.",
        suggestion="Look at what it did (`toolgate audit`) before calling again, without `approval`"
        + (" and with another idempotency key." if found.idempotency_key is not None else "."),
        details={"continues": found.id},
    )


def goes_on_already(found: ContinuationRow) -> Failed:
    return Failed(
        "IDEMPOTENCY_CONFLICT",
        f"Call {found.id} of {found.tool_name} goes on already, in call {found.call_id}; it was not run a second time.",
        retryable=True,
        suggestion="Wait for what comes of it.",
        details={"continues": found.id},
    )


def taken_over(id: str) -> Failed:
    return Failed(
        "IDEMPOTENCY_CONFLICT",
        f"This process stood still for so long that another call took over what was left of call {id}; nothing was run.",
        retryable=True,
    )


def not_kept(tree: CallTree, why: str) -> Failed:
    return Failed(
        "CAPACITY_EXCEEDED",
        f"An inner call of {tree.tool} needs a person's approval, and what was done before it cannot be kept: {why}.",
        suggestion="Have it approved ahead with a grant, or make fewer calls before it.",
        retryable=False,
    )

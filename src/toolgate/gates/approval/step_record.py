"""The steps of a continuation as they are kept: written while a call goes on, and read when the next one does."""

from typing import Any

from toolgate.errors import Failed, StoreError
from toolgate.gates.approval.continuation_errors import taken_over
from toolgate.model import ErrorInfo, Outcome
from toolgate.pipeline.call_tree import CallStep
from toolgate.store import continuations
from toolgate.store.continuations import StepRow
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
            words = f"What came of the inner call of {step.tool} can't be put on record: {error.message}"
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

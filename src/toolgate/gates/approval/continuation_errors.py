"""Why an outer call that waits for an inner one can't go on, in words."""

from toolgate.errors import Denied, Failed
from toolgate.pipeline.call_tree import CallTree
from toolgate.store.continuations import ContinuationRow


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


def can_t_go_on(found: ContinuationRow, why: str) -> Denied:
    return Denied(
        "PERMISSION_DENIED",
        f"Call {found.id} of {found.tool_name} waits for an approval, but can't go on: {why}.",
        suggestion="Look at what it did (`toolgate audit`) before calling anew, without `approval`"
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
        f"An inner call of {tree.tool} needs a person's approval, and what was done before it can't be kept: {why}.",
        suggestion="Have it approved ahead with a grant, or make fewer calls before it.",
        retryable=False,
    )

"""The calls of a subordinate agent, from inside the call that it lives in."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from toolgate.model import Actor, Outcome, SpendingLimit
from toolgate.pipeline.context import InvokeContext


def keep_journal(ctx: InvokeContext) -> str:
    """Says that the tool of a call keeps a journal of the calls that it makes, each under an idempotency key: when it goes
    on, it makes no call again of which it knows the result. Gives the id of the outer call as it was first made, and of this
    call within it."""
    node = ctx.place()
    if node is None:
        raise RuntimeError("only a tool that runs keeps a journal of its calls")
    node.is_journaled = True
    node.tree.forget_journaled(node.path)
    return f"{node.tree.id}/{node.path}" if node.path else node.tree.id


async def call_for_subordinate(
    ctx: InvokeContext,
    actor: Actor,
    name: str,
    arguments: Mapping[str, Any],
    *,
    key: str,
    spending_limit: SpendingLimit,
    is_repeatable: bool,
    timeout: float | None = None,
    hooks: tuple[Any, ...] = (),
    run: str | None = None,
) -> Outcome:
    """Calls a tool for a subordinate agent that a call runs: as that agent, and only if the actor of the call might too, and
    those for whom that one acts. `key`: its idempotency key, by which it is known again when the call goes on. `run`: the
    outermost run, if it is a turn of the model."""
    inner = replace(
        ctx.inner_call(name, arguments, spending_limit),
        actor=actor,
        on_behalf_of=(*ctx.call.on_behalf_of, ctx.call.actor),
        idempotency_key=key,
        is_repeatable=is_repeatable,
        timeout=timeout,
        hooks=hooks,
        internal=run is not None,
        run=run,
        caller=None,
    )
    return await ctx.make_inner_call(inner)

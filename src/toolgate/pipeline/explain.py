"""The answers that all gates would give to a call, without making it: nothing is run, asked, counted, reserved or recorded.

For operators, so it says what a caller would not be told: that a tool exists but is hidden, and why. The gates are asked in
the order of `gate_order.LINE`.
"""

from collections.abc import Mapping
from time import perf_counter, time_ns
from typing import Any, Literal

import msgspec

from toolgate.errors import CallError, printable
from toolgate.model import NANO, Actor, Call, Entry, Tier
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import LINE, GateVerdict
from toolgate.pipeline.invoke import Pipeline
from toolgate.pipeline.usage import Confidence, Estimate

OPTIONAL = ("policy_final", "idempotency", "free tier")
"""Gates that many calls do not meet: nothing is said of them where arguments are not valid."""


class Explanation(msgspec.Struct, frozen=True):
    """The end that a call would have."""

    tool: str
    actor: Actor
    verdict: Literal["run", "ask", "deny"]
    reason: str
    tier: Tier | None
    gates: tuple[GateVerdict, ...]
    estimate: "CallEstimate | None" = None
    """What the call would cost; None: its arguments are not valid."""

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class CallEstimate(msgspec.Struct, frozen=True):
    """The cost of a call before it is made: dollars, tokens, time, and whether that is exact."""

    cost_usd: float
    tokens: int | None
    latency_ms: float
    """As long as it usually takes, where its definition says so; else as long as it may take."""
    limit_ms: float
    """As long as it may take, with every attempt."""
    confidence: Confidence
    """`unknown`: its definition names no price, and it may report one."""
    free_calls_left: int | None = None
    billing_url: str | None = None


def estimate_of(entry: Entry, found: Estimate) -> CallEstimate:
    """The estimate of a call, as people and programs are shown it."""
    is_free = entry.tool.cost.model == "free" and not entry.priced
    return CallEstimate(
        found.nano / NANO,
        found.tokens,
        entry.longest * 1000 if entry.expected_ms is None else min(entry.expected_ms, entry.longest * 1000),
        entry.longest * 1000,
        "exact" if is_free and found.confidence == "unknown" else found.confidence,
        found.free_left,
        entry.tool.cost.billing_url,
    )


async def explain(pipeline: Pipeline, call: Call) -> Explanation:
    """Asks every gate. One that says no does not keep the others from being asked."""
    try:
        entry = pipeline.catalog.resolve(call.tool, call.actor.tenant)
    except CallError as error:
        return _conclude(call, None, [GateVerdict("catalog", "deny", error.reason or error.message)])
    ctx = InvokeContext(call, pipeline.providers, pipeline, time_ns(), perf_counter(), call.arguments, None)
    ctx.entry = entry
    found = [GateVerdict("catalog", "pass", f"a tool of source {entry.tool.source}, version {entry.tool.version}")]
    for gate in LINE:
        if ctx.sealed and entry.operations is not None:
            tier, entry = entry.tier, entry.of_call(ctx.arguments)
            ctx.entry = entry
            if tier != entry.tier:  # the policy was asked about the tool's own
                found += [verdict async for verdict in pipeline.policy.explain(ctx, entry)]
        if gate.enter == "estimate" and ctx.sealed and pipeline.budgets.applies(entry):
            await pipeline.budgets.estimate(ctx, entry)
        if gate.explain is None:
            continue
        if gate.verdicts and not ctx.sealed:
            words = "it depends on arguments that are not valid"
            found += (GateVerdict(name, "unknown", words) for name in gate.verdicts if name not in OPTIONAL)
        else:
            found += [verdict async for verdict in getattr(getattr(pipeline, gate.room), gate.explain)(ctx, entry)]
    found += _said_by_hooks(ctx, entry)
    return _conclude(call, entry, found, estimate_of(entry, ctx.estimate) if ctx.sealed else None)


def _said_by_hooks(ctx: InvokeContext, entry: Entry) -> list[GateVerdict]:
    """What hooks of a built-in tool or a workflow would say: they refuse what it cannot do without, as a model's key."""
    has_names = isinstance(ctx.arguments or {}, Mapping)  # else the input gate has said what is wrong
    hooks = entry.hooks if entry.tool.source in ("builtin", "workflow") and has_names else ()
    return [hook.explain(ctx) for hook in hooks if callable(getattr(hook, "explain", None))]


def _conclude(
    call: Call, entry: Entry | None, gates: list[GateVerdict], estimate: CallEstimate | None = None
) -> Explanation:
    """The first gate that says no decides; if none does, the one that asks."""
    deciding = next((gate for gate in gates if gate.verdict == "deny"), None)
    deciding = deciding or next((gate for gate in gates if gate.verdict == "ask"), None)
    verdict: Literal["run", "ask", "deny"] = "run"
    if deciding is not None:
        verdict = "ask" if deciding.verdict == "ask" else "deny"
    reason = "every gate lets it pass" if deciding is None else f"{deciding.gate}: {deciding.reason}"
    tier = entry.tier if entry else None
    return Explanation(printable(call.tool), call.actor, verdict, reason, tier, tuple(gates), estimate)

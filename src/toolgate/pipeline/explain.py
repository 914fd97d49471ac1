"""What every gate would say to a call, without making it: nothing is run, asked, counted, reserved or recorded.

For operators, so it says what a caller would not be told: that a tool exists but is hidden, and why.
"""

from collections.abc import AsyncIterator
from time import perf_counter, time_ns
from typing import Any, Literal

import msgspec

from toolgate.errors import CallError, printable
from toolgate.gates.approval.request import Grant
from toolgate.gates.quota.money import dollars, estimate
from toolgate.model import NANO, Actor, Call, Entry, Tier
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.invoke import Pipeline
from toolgate.pipeline.usage import UNPRICED, Estimate

Verdict = Literal["pass", "deny", "ask", "unknown"]


class Gate(msgspec.Struct, frozen=True):
    """One gate's verdict, and its reason."""

    gate: str
    verdict: Verdict
    reason: str


class Explanation(msgspec.Struct, frozen=True):
    """What would become of a call."""

    tool: str
    actor: Actor
    verdict: Literal["run", "ask", "deny"]
    reason: str
    tier: Tier | None
    gates: tuple[Gate, ...]

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


async def explain(pipeline: Pipeline, call: Call) -> Explanation:
    """Ask every gate in the order of the pipeline. One that says no does not keep the others from being asked."""
    try:
        entry = pipeline.catalog.resolve(call.tool, call.actor.tenant)
    except CallError as error:
        return _conclude(call, None, [Gate("catalog", "deny", error.reason or error.message)])
    ctx = InvokeContext(call, pipeline.providers, pipeline, time_ns(), perf_counter())
    ctx.entry = entry
    gates = [Gate("catalog", "pass", f"a tool of source {entry.tool.source}, version {entry.tool.version}")]
    gates.append(await _policy(pipeline, ctx, entry))
    off = pipeline.catalog.why_off(entry, call.actor.tenant)
    gates.append(Gate("flags", "deny" if off else "pass", off or "it is enabled"))
    invalid = _input(pipeline, ctx, entry)
    gates.append(invalid or Gate("input", "pass", "the arguments fit the schema"))
    if invalid is not None:
        later = ("tier", "credentials", "consent", "budget")
        gates += (Gate(gate, "unknown", "it depends on arguments that are not valid") for gate in later)
    else:
        if pipeline.guard.reads_arguments:  # as a call would be
            again = await _policy(pipeline, ctx, entry)
            words = f"asked again with the arguments as they would run: {again.reason}"
            gates.append(Gate("policy_final", again.verdict, words))
        gates += [gate async for gate in _with_arguments(pipeline, ctx, entry)]
    gates += [gate async for gate in _room(pipeline, call, entry)]
    return _conclude(call, entry, gates)


async def _policy(pipeline: Pipeline, ctx: InvokeContext, entry: Entry) -> Gate:
    decision = await pipeline.decide(ctx, entry)
    return Gate("policy", "pass" if decision.allow else "deny", decision.reason)


def _input(pipeline: Pipeline, ctx: InvokeContext, entry: Entry) -> Gate | None:
    """What is wrong with the arguments; if nothing is, the context has them in canonical form."""
    try:
        if type(ctx.arguments) is not dict:
            pipeline.inputs.parse(ctx)
        pipeline.inputs.validate(ctx, entry)
        pipeline.inputs.normalize(ctx, entry)
    except CallError as error:
        return Gate("input", "deny", error.message)
    return None


async def _with_arguments(pipeline: Pipeline, ctx: InvokeContext, entry: Entry) -> AsyncIterator[Gate]:
    call = ctx.call
    yield _tier(pipeline, ctx, entry)
    lacking = [error.message for error in pipeline.secrets.lacking(entry, ctx.arguments, call.actor)]
    yield Gate("credentials", "deny" if lacking else "pass", " ".join(lacking) or "all that it needs are there")
    if call.idempotency_key is not None:
        used = await pipeline.idempotency.look(call, ctx.canonical)
        yield Gate("idempotency", "pass" if used.allow else "deny", used.reason)
    costs = pipeline.budgets.applies(entry)
    expected = estimate(entry, ctx.arguments) if costs else UNPRICED
    yield await _consent(pipeline, ctx, entry, expected)
    looks = await pipeline.budgets.look(call, entry, expected) if costs else []
    for look in looks:
        yield Gate("budget", "pass" if look.passes else "deny", f"{look.budget}: {look.reason}")
    if not looks:
        free = f"no budget counts its {dollars(expected.nano)}" if entry.priced else "the tool names no price"
        yield Gate("budget", "pass", free)


def _tier(pipeline: Pipeline, ctx: InvokeContext, entry: Entry) -> Gate:
    try:
        if entry.guards is not None:
            pipeline.tiers.check(entry, ctx.arguments, pipeline.places.known(ctx.call))
    except CallError as error:
        return Gate("tier", "deny", error.message)
    destructive = ", destructive" if entry.destructive else ""
    return Gate("tier", "pass", f"tier {entry.tier}{destructive}; no argument is forbidden in it")


async def _consent(pipeline: Pipeline, ctx: InvokeContext, entry: Entry, expected: Estimate) -> Gate:
    if entry.asks is None:
        return Gate("consent", "pass", f"tier {entry.tier} runs unasked")
    nobody = pipeline.consent.unanswerable(ctx.call, entry)
    if nobody is not None:
        return Gate("consent", "deny", nobody)
    grant = await pipeline.consent.covering(ctx.call, entry, expected)
    if grant is not None:
        return Gate("consent", "pass", f"covered by grant {grant.id} of {grant.granted_by}")
    full = await pipeline.consent.exhausted(ctx.call, entry, expected)
    room = "" if full is None else f"; {_exhausted(full, expected)}"
    return Gate("consent", "ask", f"a person must approve it: {entry.asks}{room}")


def _exhausted(grant: Grant, expected: Estimate) -> str:
    """Why a grant that is for the call does not cover it."""
    spent, cap = round(grant.spent_usd * NANO), round((grant.cap_usd or 0) * NANO)
    return (
        f"the cap of grant {grant.id} is exhausted: {dollars(spent)} of {dollars(cap)} are spent, and the call may cost "
        f"{dollars(expected.nano)}"
    )


async def _room(pipeline: Pipeline, call: Call, entry: Entry) -> AsyncIterator[Gate]:
    limited = await pipeline.rates.look(call, entry)
    yield Gate("rate", "deny" if limited else "pass", limited or "no limit is reached")
    broken = await pipeline.execution.breakers.look(entry)
    yield Gate("breaker", "deny" if broken else "pass", broken or "circuit closed")
    runs = entry.kind in pipeline.execution.runners
    yield Gate(
        "runner", "pass" if runs else "deny", f"kind {entry.kind}" if runs else f"nothing here runs kind {entry.kind}"
    )


def _conclude(call: Call, entry: Entry | None, gates: list[Gate]) -> Explanation:
    """The first gate that says no decides; if none does, the one that asks."""
    deciding = next((gate for gate in gates if gate.verdict == "deny"), None)
    deciding = deciding or next((gate for gate in gates if gate.verdict == "ask"), None)
    verdict: Literal["run", "ask", "deny"] = "run"
    if deciding is not None:
        verdict = "ask" if deciding.verdict == "ask" else "deny"
    reason = "every gate lets it pass" if deciding is None else f"{deciding.gate}: {deciding.reason}"
    return Explanation(printable(call.tool), call.actor, verdict, reason, entry.tier if entry else None, tuple(gates))

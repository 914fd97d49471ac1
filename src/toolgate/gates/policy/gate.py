"""The gate: whether the policy lets a call be made, and what a caller is told that it does not let.

What the policy says can change at any time, so it is asked when a call enters, never ahead.
"""

import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

from toolgate.errors import CallError, Denied, not_found
from toolgate.gates.policy.decisions import Guard
from toolgate.gates.policy.documents import PolicyError
from toolgate.gates.policy.open import Refusal, open_file
from toolgate.model import Actor, Decision, Entry
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict

logger = logging.getLogger("toolgate.policy")


class Observer:
    """Candidate policies that are asked about every call, and whose answers are only put on record: they never change how a
    call goes on, whatever they answer and however they fail. Each has a guard of its own, on the data of the policy in
    force. `toolgate policy observed` compares what they said with what was done."""

    def __init__(
        self,
        files: tuple[Path, ...],
        in_force: Guard,
        monotonic: Callable[[], float],
        seconds: float,
        refusal: Refusal | None = None,
    ) -> None:
        self._in_force = in_force
        self._epoch = -1
        self._new_guard = partial(Guard, monotonic=monotonic, seconds=seconds)
        self._open = partial(open_file, setting="policy.observe", refusal=refusal)
        self._guards = {file: self._new_guard(self._open(file)) for file in files}
        self._texts = {file: _bytes(file) for file in files}

    @property
    def reads_arguments(self) -> bool:
        return any(guard.reads_arguments for guard in self._guards.values())

    def reload_changed(self) -> None:
        """Takes files anew that have changed. One that is wrong is not taken: the candidate before is asked further."""
        for file, known in self._texts.items():
            found = _bytes(file)
            if found in (known, None):
                continue
            self._texts[file] = found
            try:
                self._guards[file] = self._new_guard(self._open(file))
            except PolicyError as error:
                logger.error("the changed policy is not observed, the one before is: %s", error)
            self._epoch = -1

    async def answers(self, actor: Actor, tool: str, **context: Any) -> list[dict[str, Any]]:
        """The answer of each candidate to a call, as the call's record holds it."""
        if self._epoch != self._in_force.epoch:
            self._epoch = self._in_force.epoch
            for guard in self._guards.values():
                guard.use(self._in_force.data)
        found: list[dict[str, Any]] = []
        for file, guard in self._guards.items():
            try:
                decision = await guard.decide(actor, "tool.request", tool, **context)
            except Exception as error:  # noqa: BLE001 - whatever it is, the call has nothing to do with it
                logger.error("the observed policy %s failed: %s", file, type(error).__name__)
                continue
            found.append(
                {"policy": file.name, "hash": guard.policy_hash[:16], "allow": decision.allow, "reason": decision.reason}
            )
        return found


class PolicyGate:
    """Asks the policy in force about calls, and candidate policies about what they would have said."""

    def __init__(
        self,
        guard: Guard,
        *,
        glance: Callable[[Any, Entry | None], dict[str, Any]],
        without_fields: Callable[[str, Any], str],
        observer: Observer | None = None,
    ) -> None:
        """`glance` reads arguments that are not validated yet; `without_fields` takes out of a reason what it may quote of
        secret fields among them."""
        self.guard = guard
        self.observer = observer
        self._glance = glance
        self._without_fields = without_fields

    async def enter(self, ctx: InvokeContext, entry: Entry) -> str:
        """Gives why the call is let through, or raises what its caller is told."""
        decision = await self.decide(ctx, entry)
        if not decision.allow:
            raise await self.refusal(ctx, decision.reason)
        return decision.reason

    async def enter_again(self, ctx: InvokeContext, entry: Entry) -> None:
        """Asks about the very arguments that will run, whatever hooks made of those that came in."""
        await self.enter(ctx, entry)

    async def decide(self, ctx: InvokeContext, entry: Entry | None) -> Decision:
        """The policy's decision on this call; on a name without a tool as on one that is hidden. What a subordinate agent
        calls must be allowed to it and to everybody for whom it acts."""
        decision = await self._decide(ctx, entry, ctx.call.actor)
        for actor in ctx.call.on_behalf_of:
            if not decision.allow:
                break
            above = await self._decide(ctx, entry, actor)
            if not above.allow:
                decision = Decision(False, f"{_who(actor)}, for whom the subordinate acts: {above.reason}", above.sure)
        return decision

    async def _decide(self, ctx: InvokeContext, entry: Entry | None, actor: Actor) -> Decision:
        call, guard = ctx.call, self.guard
        name = call.tool if entry is None else entry.name
        known = guard.known(actor, "tool.request", name)
        if known is not None:
            return known
        return await guard.decide(
            actor, "tool.request", name, tier=None if entry is None else entry.tier, session=call.session,
            door=call.door, arguments=self._glance(ctx.arguments, entry) if guard.reads_arguments else None,
        )  # fmt: skip

    async def refusal(self, ctx: InvokeContext, reason: str) -> CallError:
        """Hidden and missing look the same; only what may be seen can be denied. Where the policy can't be asked, what the
        actor had is not called missing."""
        tool = ctx.call.tool
        if self.guard.reads_arguments:
            reason = self._without_fields(reason, ctx.arguments)
        for actor in ctx.call.actors:
            view = self.guard.known(actor, "tool.view", tool) or await self.guard.decide(actor, "tool.view", tool)
            if not view.allow and (view.sure or self.guard.hides(actor, tool)):
                return not_found(tool, reason)
        return Denied("PERMISSION_DENIED", f"{tool} is not permitted: {reason}.", reason=reason)

    async def observe(self, ctx: InvokeContext, entry: Entry, observer: Observer) -> None:
        """Notes what candidate policies say of this call."""
        call = ctx.call
        arguments = self._glance(ctx.arguments, entry) if observer.reads_arguments else None
        ctx.scratch.observed = await observer.answers(
            call.actor, entry.name, tier=entry.tier, session=call.session, door=call.door, arguments=arguments
        )

    async def explain(self, ctx: InvokeContext, entry: Entry) -> AsyncIterator[GateVerdict]:
        decision = await self.decide(ctx, entry)
        yield GateVerdict("policy", "pass" if decision.allow else "deny", decision.reason)

    async def explain_again(self, ctx: InvokeContext, entry: Entry) -> AsyncIterator[GateVerdict]:
        if self.guard.reads_arguments:
            decision = await self.decide(ctx, entry)
            words = f"asked again with the arguments as they would run: {decision.reason}"
            yield GateVerdict("policy_final", "pass" if decision.allow else "deny", words)


def _who(actor: Actor) -> str:
    return "an actor without a persona" if actor.persona is None else f"persona {actor.persona}"


def _bytes(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None

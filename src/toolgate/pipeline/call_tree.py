"""The calls made inside one call: what came of them, which wait for a person, and how the whole of it stops and goes on.

Where a call inside must be asked about and nobody can answer now, the tree is halted: no further call begins, those under
way end, and then whatever made them is stopped, from the inside out. What each call came to is known by what it was (from
inside which call, which tool, which arguments, and which of several that are the same), not by when it was made: calls that
are made side by side come in any order. When the outer call comes again, its tree holds what was known before, and a call
that is known is answered from there.
"""

import asyncio
from collections.abc import Awaitable
from hashlib import sha256
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from toolgate.errors import CallError, Failed, Pending, call_error
from toolgate.model import NANO, Call, Invoke, Outcome
from toolgate.tasks import start_task, stop_tasks, wait_for_any

T = TypeVar("T")
State = Literal["running", "done", "asked", "open"]
MAX_KEPT_BYTES = 4_000_000
"""The size of the outcomes of the calls inside one call, as JSON, up to which it can wait."""
MAX_KEPT_STEPS = 10_000


class CallStep(msgspec.Struct):
    """One call inside another, or the outer call itself (its key is empty)."""

    key: str
    parent: str
    tool: str
    call_id: str
    has_effect: bool = True
    """True if it may change anything: if nobody knows how it ended, it is not made again."""
    state: State = "running"
    approval: str | None = None
    """The question that it waits for; of one that is open, the approval that it was agreed to with."""
    agreed: bool = False
    outcome: bytes | None = None
    """As JSON, once it is done."""
    cost: int = 0
    """Nano-dollars, with the calls inside it."""
    question: CallError | None = None
    """The end of its call, were it to wait now."""
    has_inner: bool = False
    """True if it made calls itself."""


class StepWriter(Protocol):
    """Puts the steps of a call that goes on on record as they are made."""

    async def note(self, step: CallStep) -> None:
        """Awaited, it is on disk. Raises a CallError if it can't be."""


class CallTree:
    """All calls inside one outer call, at any depth."""

    def __init__(self, id: str, tool: str) -> None:
        self.id = id
        """The outer call as it was first made."""
        self.tool = tool
        self.root = CallStep("", "", tool, id, state="open")
        self.steps: dict[str, CallStep] = {}
        self.halted: CallError | None = None
        """Why nothing more is begun: a question that waits, or what went wrong."""
        self.writer: StepWriter | None = None
        """Set where the outer call goes on: from then on every step is on record before its call is answered."""
        self.has_asked = False
        """True if anybody was asked about a call that is done."""
        self.too_large = False
        self._bytes = 0
        self._counts: dict[tuple[str, str, str], int] = {}
        self._unmet: dict[str, set[str]] = {}
        self._met = asyncio.Event()

    def load(self, steps: list[CallStep]) -> None:
        parents = {step.parent for step in steps}
        for step in steps:
            if step.key == "":
                self.root = step
                continue
            self.steps[step.key] = step
            self._unmet.setdefault(step.parent, set()).add(step.key)
            step.has_inner = step.key in parents
            self._bytes += len(step.outcome or b"")
        for step in steps:
            if step.state == "done" and step.has_inner:
                self._drop_inside(step.key)

    # -- the calls of this time

    def key(self, parent: str, tool: str, args_hash: str, journal_key: str | None = None) -> str:
        """The key of a call. Each further one that is the same gets a key of its own; one of a call that keeps a journal is
        known by its idempotency key."""
        if journal_key is not None:
            return sha256("\n".join((parent, journal_key)).encode()).hexdigest()
        same = (parent, tool, args_hash)
        count = self._counts.get(same, 0) + 1
        if not self.too_large:
            self._counts[same] = count
        return sha256("\n".join((*same, str(count))).encode()).hexdigest()

    def meet(self, key: str) -> CallStep | None:
        """The step of this key, if it was made before."""
        step = self.steps.get(key)
        if step is not None:
            unmet = self._unmet.get(step.parent)
            if unmet is not None and key in unmet:
                unmet.discard(key)
                self._met.set()
        return step

    def add(self, step: CallStep) -> None:
        self.steps[step.key] = step
        if (above := self.steps.get(step.parent)) is not None:
            above.has_inner = True

    async def all_met(self, parent: str, seconds: float) -> bool:
        """True if all that was called from inside a step before is called again, in this time: before that, a call that is
        new may be one that was made already, and looks different now."""
        unmet = self._unmet.get(parent)
        if not unmet:
            return True
        try:
            async with asyncio.timeout(seconds):
                while unmet and self.halted is None:
                    self._met.clear()
                    await self._met.wait()
        except TimeoutError:
            return False
        return True

    @property
    def unmet(self) -> list[CallStep]:
        """Steps that were done before, and have not been called this time."""
        keys = (key for keys in self._unmet.values() for key in keys)
        return [step for key in keys if (step := self.steps[key]).state == "done"]

    @property
    def asked(self) -> list[CallStep]:
        """Steps that wait for a person's answer."""
        return [step for step in (self.root, *self.steps.values()) if step.state == "asked"]

    def _drop_inside(self, key: str) -> None:
        """Forget the calls inside one that is done: it is answered as a whole, and does not make them again."""
        self._unmet.pop(key, None)
        self._met.set()
        for inner in [step for step in self.steps.values() if step.parent == key]:
            self._forget(inner)

    def forget_journaled(self, parent: str) -> None:
        """Forgets the steps of a call that keeps a journal itself, but for those that wait for an answer: it knows what came
        of the others, or their idempotency keys do."""
        for step in [step for step in self.steps.values() if step.parent == parent and step.state in ("done", "running")]:
            self._forget(step)
        self._unmet.pop(parent, None)

    def _forget(self, step: CallStep) -> None:
        self.has_asked = self.has_asked or step.approval is not None
        self._bytes -= len(step.outcome or b"")
        del self.steps[step.key]
        if step.has_inner:
            self._drop_inside(step.key)

    def halt(self, error: CallError) -> None:
        if self.halted is None:
            self.halted = error
            self._met.set()

    def stop(self) -> CallError:
        """The error of a call that can't go on."""
        error = self.halted or Failed("UNEXPECTED_ERROR", "The call was not halted.")
        rest: dict[str, Any] = {
            "retryable": error.retryable, "suggestion": error.suggestion, "details": error.details, "reason": error.reason,
        }  # fmt: skip
        if isinstance(error, Pending):
            return Pending(error.code, error.message, kind=error.kind, id=error.id, **rest)
        return call_error(error.code, error.message, **rest)

    def keep(self, step: CallStep, outcome: Outcome, *, is_journaled: bool = False) -> None:
        """A step is done: note what came of it, as it is now; what its caller makes of it later is the caller's.
        `is_journaled`: its caller keeps that."""
        step.state, step.question = "done", None
        step.cost += round(outcome.metrics.cost_usd * NANO)
        self.has_asked = self.has_asked or step.approval is not None
        if step.has_inner:
            self._drop_inside(step.key)
        if is_journaled:
            del self.steps[step.key]
            return
        try:
            step.outcome = None if self.too_large else outcome.to_json()
        except TypeError:  # a hook made it something that JSON can't hold
            self.too_large = True
        self._bytes += len(step.outcome or b"")
        self.too_large = self.too_large or self._bytes > MAX_KEPT_BYTES or len(self.steps) > MAX_KEPT_STEPS
        if self.too_large and self.writer is None:  # it can't wait any more, and nothing has to be answered from here
            for kept in [kept for kept in self.steps.values() if kept.state == "done"]:
                del self.steps[kept.key]
            self._counts.clear()


class CallNode:
    """A call in the tree, as the place from which others are made."""

    __slots__ = ("_changed", "_stopped", "_under_way", "is_halted", "is_journaled", "parent", "step", "tree")

    def __init__(self, tree: CallTree, parent: "CallNode | None" = None) -> None:
        self.tree = tree
        self.parent = parent
        self.step: CallStep | None = tree.root if parent is None else None
        """Set when the call is known by its arguments."""
        self.is_halted = False
        """True if a call from inside it could not go on: then neither can it, whatever it makes of that."""
        self.is_journaled = False
        """True if its tool knows by itself what came of the calls that it made before, and makes none of them again."""
        self._under_way = 0
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()

    @property
    def path(self) -> str:
        """The beginning of the keys of its calls."""
        return "" if self.step is None else self.step.key

    async def call(self, invoke: Invoke, call: Call, place: "CallNode") -> Outcome:
        """Make a call from here, and note what came of it."""
        self._under_way += 1
        try:
            outcome = await invoke(call)
            await place.ended(outcome)
            return outcome
        finally:
            self._under_way -= 1
            self._changed.set()

    async def ended(self, outcome: Outcome) -> None:
        tree, step = self.tree, self.step
        if outcome.pending is not None and outcome.pending.kind == "approval":
            try:
                outcome.raise_for_status()
            except CallError as waiting:
                tree.halt(waiting)
            return
        if step is None or step.state == "done":
            return
        is_journaled = self.parent is not None and self.parent.is_journaled
        tree.keep(step, outcome, is_journaled=is_journaled)
        if self.parent is not None and self.parent.step is not None:
            self.parent.step.cost += step.cost
        if tree.writer is not None and (step.approval is not None or not is_journaled):
            try:
                await tree.writer.note(step)
            except CallError as error:
                tree.halt(error)

    async def halts(self) -> None:
        """Wait until no call from here is under way, then have whatever runs here stopped."""
        while self._under_way:
            self._changed.clear()
            await self._changed.wait()
        self.is_halted = True
        self._stopped.set()

    async def running(self, work: Awaitable[T]) -> T | None:
        """Awaits code that makes calls from here. None: it had to be stopped, since one of its calls can't go on; code that
        runs elsewhere can't be told that by an exception."""
        task = start_task(work, unheard=True)  # whoever waits is told of its error, unless it was stopped
        try:
            await wait_for_any(self._stopped, task)
            return task.result() if task.done() and not self.is_halted else None
        finally:
            await stop_tasks(task)

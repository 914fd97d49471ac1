"""One effect for one key. Of all calls of a user with one key the first runs; the others are given its outcome, and wait
for it, holding nothing, while it runs.

The spine takes the key (`claim`) before anything else is taken, makes sure of it (`confirm`) between the start record and
the effect, and says what came of it (`complete`) before the outcome is returned. Keys are in the store, so all of this
holds between processes and over restarts. A key whose process died is judged by whether its call began: if not, the next
call takes it over; if it did, nobody knows whether the effect happened, and that is the answer (OUTCOME_UNKNOWN) until a
person settles it. Nothing is run again in silence.

In one process, one call at a time asks the store about a key; the others wait for what it learns.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any, Literal

import msgspec
import orjson

from toolgate.errors import UNSURE, Failed, StoreError
from toolgate.jsontext import find_not_json
from toolgate.model import LOCAL_DOORS, Call, Decision, Entry, Metrics, Outcome
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict
from toolgate.pipeline.held_resources import HoldingGate, hold
from toolgate.store import idempotency as keys
from toolgate.store.database import Store, Transaction, now
from toolgate.store.idempotency import KeyHolder, KeyRow, Scope, State
from toolgate.store.live_processes import ProcessHeartbeat
from toolgate.tasks import BackgroundTasks, finish, start_task

MAX_IDEMPOTENCY_KEY_BYTES = 255
SOONEST, LATEST = 0.01, 0.25
"""Seconds between two looks at a key that another process has."""
MARGIN = 5.0
"""Seconds that a call may take beyond its attempts and the pauses between them."""
PRUNE_EVERY = timedelta(hours=1)

logger = logging.getLogger("toolgate")


@dataclass(slots=True, eq=False)
class HeldKey:
    """A key that a call of this process has, or asks the store for."""

    scope: Scope
    holder: KeyHolder
    over: asyncio.Future[None]
    stage: Literal["asking", "ours", "leaving"] = "asking"
    first: KeyHolder | None = None
    """The holder of the key, once the store has said so: this call, or one of another process that it waits for."""
    answer: str | None = None
    """The outcome as JSON, once there is one."""


class Idempotency(HoldingGate):
    """The gate."""

    runs_once = is_settled_by_start = True

    def __init__(
        self, store: Store, presence: ProcessHeartbeat, *, keep_days: float = 30, clock: Callable[[], datetime] = now
    ) -> None:
        self._store = store
        self._presence = presence
        self._keep = timedelta(days=keep_days)
        self._clock = clock
        self._held: dict[Scope, HeldKey] = {}
        self._ours: dict[str, HeldKey] = {}
        """By call id, those that the store gave to a call of this process."""
        self._tasks = BackgroundTasks()
        self._prune_at = clock()

    # -- the life of a call

    async def enter(self, ctx: InvokeContext, entry: Entry, args_hash: str | None) -> bool:
        """Gives True if the call's key was used before: then what came of it comes again, and the call took nothing."""
        hold(ctx, self)
        first = await self.claim(ctx.call, entry, ctx.canonical, args_hash)
        if first is None:
            return False
        ctx.cached = True
        first.raise_for_status()
        ctx.output, ctx.artifact = first.output, first.artifact
        return True

    def leave(self, ctx: InvokeContext, _token: Any, outcome: Outcome | None) -> Awaitable[None] | None:
        """Says what came of the call, if it has its key; for any other this does nothing."""
        return None if outcome is None else self.complete(ctx.call, outcome, ctx.ran, ctx.unsure)

    async def claim(self, call: Call, entry: Entry, canonical: bytes, args_hash: str | None = None) -> Outcome | None:
        """Take the call's key: None, it is ours, run; or the outcome of the first call that had it. Raises Failed where the
        key stands for something else, its outcome is unknown, or the first call outlasts our patience. `args_hash` is of
        the arguments that the key stands for, where they are not those that will run."""
        scope = _scope(call)
        holder = self._holder(call, entry.name, args_hash or sha256(canonical).hexdigest())
        deadline = _now() + self._patience(call, entry)
        while (other := self._held.get(scope)) is not None:
            if other.first is not None and other.first.what != holder.what:
                raise _conflict(other.first, holder)
            await asyncio.wait((other.over,), timeout=max(deadline - _now(), 0))
            if other.answer is not None and other.holder.what == holder.what:
                return _again(other.answer, call)
            if not other.over.done():
                raise _still_runs()
        held = self._held[scope] = HeldKey(scope, holder, asyncio.get_running_loop().create_future())
        first = await self._ask(held, deadline)
        return None if first is None else _answer(first, call, holder)

    async def confirm(self, call: Call) -> None:
        """Make sure, once the start record is on disk, that the key was not taken from us: a process that stood still for
        long looks dead to the others. Raises Failed: then the tool must not run."""
        if call.idempotency_key is None:
            return
        try:
            ours = await self._store.transact(keys.confirm(self._ours[call.id].scope, call.id))
        except StoreError as error:
            raise _not_kept(error) from error
        if not ours:
            raise Failed(
                "IDEMPOTENCY_CONFLICT",
                "This process stood still for so long that another call took over the idempotency key; nothing was run.",
                retryable=True,
                suggestion="Call again with the same key to get what came of it.",
            )

    async def complete(self, call: Call, outcome: Outcome, ran: bool, unsure: bool = False) -> None:
        """Say what came of a call that has its key; for any other call this does nothing. `ran`: an attempt reached the
        tool. `unsure`: one that did may have had its effect, whatever became of later ones. Awaited, it is on disk, and if
        the store can't be written, it will be when it can. If the caller goes away meanwhile, it is written nevertheless."""
        held = self._ours.get(call.id)
        if held is not None:
            await self._tasks.finish(self._finish(held, outcome, ran, unsure))

    async def close(self) -> None:
        """Let what is being written be written, and give up what can't be."""
        await self._tasks.close(grace=1, limit=1)

    # -- by hand

    async def unsettled(self, tenant: str | None = None) -> list[KeyRow]:
        """The keys whose outcome nobody knows: of a tenant, or of all."""
        await self.reap()
        return await self._store.read(keys.listed(tenant=tenant, state="unknown"))

    async def settle(self, tenant: str, user: str, key: str, *, happened: bool, output: Any = None, by: str) -> KeyRow:
        """Say what became of a call whose outcome is unknown. It happened: whoever calls with the key gets `output`, as of a
        success. It did not: the key is free, and the next call with it runs. Gives the key as it was."""
        wrong = find_not_json(output)
        if wrong is not None:
            where = f" at {wrong.path}" if wrong.path else ""
            raise Failed("VALIDATION_ERROR", f"The output cannot be kept:{where} it {wrong.message}.")
        if output is not None and not happened:
            raise Failed("VALIDATION_ERROR", "A call that did not happen has no output.")
        await self.reap()
        make = partial(_settled, output=output) if happened else None
        found = await self._store.transact(keys.settle(Scope(tenant, user, key), self._clock(), make, by))
        if found is None:
            raise Failed(
                "VALIDATION_ERROR",
                f"User {user} of tenant {tenant} has no such idempotency key.",
                suggestion="`toolgate idempotency list` shows the keys whose outcome is unknown.",
            )
        if found.state == "running":
            raise Failed("IDEMPOTENCY_CONFLICT", f"Call {found.holder.call_id} with this key still runs.", retryable=True)
        if found.state == "done":
            raise Failed("IDEMPOTENCY_CONFLICT", f"How call {found.holder.call_id} with this key ended is known already.")
        return found

    async def reap(self) -> None:
        """Judge the keys of processes that died; it happens by itself when somebody asks for such a key."""
        await self._store.transact(keys.reap(self._clock(), lease=self._presence.seconds))

    async def explain(self, ctx: InvokeContext, _entry: Entry) -> AsyncIterator[GateVerdict]:
        if ctx.call.idempotency_key is not None:
            used = await self.look(ctx.call, ctx.canonical)
            yield GateVerdict("idempotency", "pass" if used.allow else "deny", used.reason)

    async def look(self, call: Call, canonical: bytes) -> Decision:
        """The decision that `claim` would come to now, taking nothing."""
        if call.idempotency_key is None:
            return Decision(True, "the call has no idempotency key")
        try:
            found = await self._store.read(keys.find(_scope(call)))
        except Failed as error:
            return Decision(False, error.message)
        if found is None or (found.state == "done" and found.updated_at < self._clock() - self._keep):
            return Decision(True, "the idempotency key is free")
        first, this = found.holder, self._holder(call, call.tool, sha256(canonical).hexdigest())
        if first.what != this.what:
            return Decision(False, _conflict(first, this).message)
        if found.state == "unknown":
            return Decision(False, _unknown(first, call).message)
        if found.state == "done":
            return Decision(True, f"call {first.call_id} with the same key has ended, and its outcome is given out again")
        return Decision(True, f"call {first.call_id} with the same key still runs, and its outcome is waited for")

    # -- asking the store, for all callers of this process

    async def _ask(self, held: HeldKey, deadline: float) -> KeyRow | None:
        """Take the key, or wait until whoever has it is through; None: it is ours."""
        try:
            if not self._presence.is_shown:
                await self._presence.show()
            while True:
                found = await self._take(held)
                if found is None:
                    held.stage, held.first = "ours", held.holder
                    self._ours[held.holder.call_id] = held
                    return None
                same = found.holder.what == held.holder.what
                if not same or found.state != "running":
                    held.answer = found.outcome if same else None
                    return found
                held.first = found.holder
                await self._watch(found, deadline)
        except StoreError as error:
            raise _not_kept(error) from error
        finally:
            if held.stage == "asking":
                self._end(held)

    async def _take(self, held: HeldKey) -> KeyRow | None:
        """One try. If the caller goes away, or the store answers with an error, the key may have been taken for nobody:
        then it is given back, and until the store has answered nobody else here asks it."""
        claim = keys.claim(held.scope, held.holder, self._clock(), keep=self._keep, lease=self._presence.seconds)
        asking = start_task(self._store.transact(claim))
        try:
            return await finish(asking)
        except asyncio.CancelledError:
            held.stage = "leaving"
            self._tasks.start(self._leave(held, asking))
            raise
        except Exception:
            self._tasks.start(self._insist(self._withdrawal(held)))
            raise

    async def _leave(self, held: HeldKey, asking: "asyncio.Future[KeyRow | None]") -> None:
        with contextlib.suppress(Exception):
            await asking
        await self._write(self._withdrawal(held), held)
        self._end(held)

    def _withdrawal(self, held: HeldKey) -> Callable[[], Transaction[bool]]:
        return partial(keys.withdraw, held.scope, held.holder, self._clock())

    async def _watch(self, first: KeyRow, deadline: float) -> None:
        """Wait for a call of another process."""
        pause = SOONEST
        while _now() < deadline:
            await asyncio.sleep(min(pause, max(deadline - _now(), 0)))
            look = keys.is_over(first.scope, first.holder.call_id, lease=self._presence.seconds)
            if await self._store.read(look):
                return
            pause = min(pause * 1.5, LATEST)
        raise _still_runs()

    # -- telling the store

    async def _finish(self, held: HeldKey, outcome: Outcome, ran: bool, unsure: bool) -> None:
        state, text = _verdict(outcome, ran, unsure)
        if state is None:
            write = partial(keys.release, held.scope, held.holder.call_id)
        else:
            write = partial(keys.finish, held.scope, held.holder, self._clock(), state, text)
        await self._write(write, held)
        held.answer = text
        self._end(held)
        self._prune_sometimes()

    async def _write(self, write: Callable[[], Transaction[bool]], held: HeldKey) -> None:
        """Write it, now or when the store can be written again. Never raises: the call has ended."""
        try:
            if not await self._store.transact(write()):
                logger.warning("call %s lost its idempotency key while it ran", held.holder.call_id)
        except Exception as error:  # noqa: BLE001 - whatever the driver raises
            logger.error("what came of the idempotency key of call %s cannot be written yet: %s", held.holder.call_id, error)
            self._tasks.start(self._insist(write))

    async def _insist(self, write: Callable[[], Transaction[bool]]) -> None:
        """Try until it is written; once this process has left, the others judge for themselves."""
        pause = LATEST
        while self._presence.is_shown:
            await asyncio.sleep(pause)
            with contextlib.suppress(Exception):
                await self._store.transact(write())
                return
            pause = min(pause * 2, MARGIN)

    def _prune_sometimes(self) -> None:
        moment = self._clock()
        if moment >= self._prune_at:
            self._prune_at = moment + PRUNE_EVERY
            self._tasks.start(self._prune(moment - self._keep))

    async def _prune(self, forgotten: datetime) -> None:
        with contextlib.suppress(StoreError):  # an hour later is soon enough
            await self._store.transact(keys.prune(forgotten))

    def _end(self, held: HeldKey) -> None:
        """Let those who wait for this key go on."""
        del self._held[held.scope]
        self._ours.pop(held.holder.call_id, None)
        held.over.set_result(None)

    # -- small questions

    def _holder(self, call: Call, tool: str, args_hash: str) -> KeyHolder:
        actor = call.actor
        home = call.door in LOCAL_DOORS  # the name of the local person can be anybody's: the door says who is at home
        where = () if call.workspace is None else (call.workspace,)
        role = repr((actor.persona, sorted(set(actor.scopes)), home, *where)).encode("utf-8", "surrogatepass")
        return KeyHolder(call.id, self._presence.id, tool, args_hash, sha256(role).hexdigest())

    def _patience(self, call: Call, entry: Entry) -> float:
        """Seconds to wait for the first call: as long as it may take, and until it is known if its process died."""
        own = entry.longest + self._presence.seconds + MARGIN
        return own if call.timeout is None else min(own, call.timeout)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _scope(call: Call) -> Scope:
    key = call.idempotency_key
    if not isinstance(key, str) or not key.isprintable() or not 0 < len(key.encode()) <= MAX_IDEMPOTENCY_KEY_BYTES:
        words = f"must be 1 to {MAX_IDEMPOTENCY_KEY_BYTES} bytes of printable text"
        raise Failed(
            "VALIDATION_ERROR",
            f"Invalid arguments: idempotency_key: {words}",
            suggestion="A random UUID makes a good key.",
            details={"errors": [{"path": "idempotency_key", "message": words}]},
        )
    return Scope(call.actor.tenant, call.actor.user, key)


def _verdict(outcome: Outcome, ran: bool, unsure: bool) -> tuple[State | None, str | None]:
    """The state and text to keep of a call: its outcome, that nobody knows it, or nothing, because nothing was done."""
    if outcome.pending is not None and outcome.pending.kind == "approval":
        return None, None  # it goes on with the same key; what it did until now is kept where it waits
    if outcome.status != "success":
        if unsure:
            return "unknown", None
        if not ran:
            return None, None
        if outcome.error is None or outcome.error.code in UNSURE:
            return "unknown", None
    try:
        return "done", outcome.to_json().decode()
    except TypeError:  # a hook made it something that JSON can't hold
        return "unknown", None


def _settled(holder: KeyHolder, output: Any) -> str:
    return Outcome(holder.call_id, holder.tool, "success", output).to_json().decode()


def _answer(first: KeyRow, call: Call, holder: KeyHolder) -> Outcome:
    """The outcome, or the error, that a row which is not ours means for a call."""
    if first.holder.what != holder.what:
        raise _conflict(first.holder, holder)
    if first.outcome is None:
        raise _unknown(first.holder, call)
    return _again(first.outcome, call)


def _again(text: str, call: Call) -> Outcome:
    """The outcome of the first call, as this call's own: it took nothing."""
    first = msgspec.convert(orjson.loads(text), Outcome)
    return msgspec.structs.replace(first, id=call.id, metrics=Metrics(cached=True))


def _conflict(first: KeyHolder, this: KeyHolder) -> Failed:
    """The key is taken. What for is said to the role that took it alone: another may not be permitted to see that tool."""
    if first.role_hash != this.role_hash:
        return Failed(
            "IDEMPOTENCY_CONFLICT",
            "The idempotency key was used by this user in another persona, with other scopes or through another door; "
            "nothing was run.",
            suggestion="Use a new key, or call with the persona and the scopes of the first call, from where that was made.",
        )
    return Failed(
        "IDEMPOTENCY_CONFLICT",
        f"The idempotency key was used for call {first.call_id} of {first.tool}, with another tool or other arguments "
        "than this one; nothing was run.",
        suggestion="Use a new key for a new call.",
        details={"first_call": first.call_id},
    )


def _unknown(first: KeyHolder, call: Call) -> Failed:
    return Failed(
        "OUTCOME_UNKNOWN",
        f"Call {first.call_id} with this idempotency key began, but nobody knows how it ended; it was not run again.",
        suggestion="Find out whether it had its effect, then say so: `toolgate idempotency settle KEY "
        f"--tenant {call.actor.tenant} --user {call.actor.user}` with --happened or --did-not-happen.",
        details={"first_call": first.call_id},
    )


def _still_runs() -> Failed:
    return Failed(
        "CAPACITY_EXCEEDED",
        "The first call with this idempotency key still runs.",
        suggestion="Call again with the same key to get what comes of it.",
    )


def _not_kept(error: StoreError) -> Failed:
    return Failed(
        "UNEXPECTED_ERROR",
        f"The idempotency key cannot be kept, so the call was not run: {error.message}",
        suggestion="`toolgate doctor` shows what is wrong with the store.",
    )

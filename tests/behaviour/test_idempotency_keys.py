"""The step that keeps one effect to a key, at its own door and on real databases: two of them on one database are two
processes. What a process is that dies for real, tests/hostile shows.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

import asyncpg
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.held_commits import held_commits
from tests.patience import SOON
from toolgate import Actor, tool
from toolgate.errors import Failed
from toolgate.gates.idempotency import Idempotency
from toolgate.model import Artifact, Call, ErrorInfo, Metrics, Outcome, new_id
from toolgate.registry.compile import entry_of
from toolgate.store import idempotency as keys
from toolgate.store.database import LogRow, Store, now, open_store
from toolgate.store.idempotency import KeyRow, Scope
from toolgate.store.live_processes import ProcessHeartbeat

pytestmark = pytest.mark.requirement("PIPE-9")

ADA = Actor(tenant="acme", user="ada")


@tool(tier="write", timeout=20)
async def pay(amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount}"


@tool(tier="write", timeout=20)
async def refund(amount: int) -> str:
    """Get it back."""
    return f"refunded {amount}"


PAY, REFUND = entry_of(pay), entry_of(refund)


class Started(NamedTuple):
    """A start record."""

    call_id: str

    def row(self) -> LogRow:
        return 1, "start", self.call_id, "acme", "pay", "started", b"{}"


class Process:
    """What a process has of all this: its own way into the database, its own sign of life, its own step."""

    def __init__(self, store: Store, seconds: float, clock: Callable[[], datetime]) -> None:
        self.store = store
        self.presence = ProcessHeartbeat(store, seconds)
        self.step = Idempotency(store, self.presence, clock=clock)

    def claim(self, call: Call, entry: Any = PAY, arguments: bytes = b'{"amount":1}') -> Awaitable[Outcome | None]:
        return self.step.claim(call, entry, arguments)

    async def take(self, key: str = "k", actor: Actor = ADA, entry: Any = PAY) -> Call:
        """A call that has the key."""
        mine = call(key, actor)
        assert await self.claim(mine, entry) is None
        return mine

    async def begin(self, call: Call) -> None:
        """As the spine does: the start is on record, then the key is made sure of."""
        await self.store.append_durably(Started(call.id))
        await self.step.confirm(call)

    async def on_record(self, key: str = "k") -> KeyRow | None:
        return await self.store.read(keys.find(Scope("acme", "ada", key)))

    async def die(self) -> None:
        """Be seen no more; what it holds stays as it is."""
        await self.presence.leave()

    async def close(self) -> None:
        await self.step.close()
        await self.presence.leave()
        await self.store.close()


Start = Callable[..., Awaitable[Process]]


@pytest.fixture
async def start(database: str) -> AsyncIterator[Start]:
    processes: list[Process] = []

    async def begin(seconds: float = 30, clock: Callable[[], datetime] = now) -> Process:
        store = open_store(database, None)
        await store.start()
        processes.append(Process(store, seconds, clock))
        return processes[-1]

    yield begin
    for process in processes:
        await process.close()


def call(key: Any = "k", actor: Actor = ADA, timeout: float | None = None) -> Call:
    return Call(new_id(), "pay", {}, actor, idempotency_key=key, timeout=timeout)


def ended(of: Call, output: Any = "paid 1") -> Outcome:
    return Outcome(of.id, "pay", "success", output, metrics=Metrics(12.5, 1, False, 7, 0.1))


def failed(of: Call, code: str, status: Any = "failure") -> Outcome:
    return Outcome(of.id, "pay", status, None, ErrorInfo(code, "no"), metrics=Metrics(1.0, 1))


async def refused(claim: Awaitable[Outcome | None]) -> Failed:
    with pytest.raises(Failed) as raised:
        await claim
    return raised.value


# ------------------------------------------------------------------------------------------------- one effect, one answer


async def test_the_second_is_given_the_outcome_of_the_first(start: Start) -> None:
    here, there = await start(), await start()
    first = await here.take()
    await here.begin(first)
    await here.step.complete(first, ended(first, {"paid": [1, 2.5, None]}), True)
    for process in (here, there, await start()):
        again = call()
        outcome = await process.claim(again)
        assert outcome == Outcome(again.id, "pay", "success", {"paid": [1, 2.5, None]}, metrics=Metrics(cached=True))


async def test_of_many_at_once_in_two_processes_one_runs_and_all_are_told_the_same(start: Start) -> None:
    processes = [await start(), await start()]
    ran: list[str] = []

    async def attempt(process: Process, mine: Call) -> Outcome:
        found = await process.claim(mine)
        if found is not None:
            return found
        await process.begin(mine)
        ran.append(mine.id)
        await asyncio.sleep(0.05)
        outcome = ended(mine, {"by": mine.id})
        await process.step.complete(mine, outcome, True)
        return outcome

    calls = [call() for _ in range(50)]
    outcomes = await asyncio.gather(*(attempt(processes[number % 2], mine) for number, mine in enumerate(calls)))
    assert len(ran) == 1
    assert [outcome.output for outcome in outcomes] == [{"by": ran[0]}] * 50
    assert {outcome.id for outcome in outcomes} == {mine.id for mine in calls}
    assert sum(outcome.metrics.cached for outcome in outcomes) == 49


async def test_an_answer_is_nobody_elses_to_change(start: Start) -> None:
    here = await start()
    first = await here.take()
    waiting = [asyncio.ensure_future(here.claim(call())) for _ in range(2)]
    await asyncio.sleep(0)
    await here.step.complete(first, ended(first, {"list": [1]}), True)
    one, two = await asyncio.gather(*waiting)
    assert one is not None and two is not None
    one.output["list"].append(2)
    assert two.output == {"list": [1]}


async def test_a_failure_that_is_certain_is_an_answer_too(start: Start) -> None:
    here = await start()
    first = await here.take()
    error = ErrorInfo("INVOCATION_ERROR", "no such account", False, "Open one.", {"account": 5})
    await here.step.complete(first, Outcome(first.id, "pay", "failure", None, error), True)
    outcome = await here.claim(call())
    assert outcome is not None
    assert (outcome.status, outcome.error) == ("failure", error)


@pytest.mark.parametrize("other", ["tool", "arguments"])
async def test_a_key_stands_for_one_tool_and_one_set_of_arguments(start: Start, other: str) -> None:
    here, there = await start(), await start()
    changed = {"entry": REFUND} if other == "tool" else {"arguments": b'{"amount":2}'}
    first = await here.take()
    for when in ("running", "done"):
        for process in (here, there):
            error = await refused(process.claim(call(), **changed))
            assert (error.code, error.details) == ("IDEMPOTENCY_CONFLICT", {"first_call": first.id})
        if when == "running":
            await here.step.complete(first, ended(first), True)


async def test_users_and_tenants_have_keys_of_their_own(start: Start) -> None:
    here = await start()
    actors = (ADA, Actor(tenant="acme", user="bob"), Actor(tenant="globex", user="ada"))
    first = [call(actor=actor) for actor in actors]
    for number, mine in enumerate(first):
        assert await here.claim(mine, arguments=b'{"amount":%d}' % number) is None
    for number, mine in enumerate(first):
        await here.step.complete(mine, ended(mine, number), True)
    for number, actor in enumerate(actors):
        outcome = await here.claim(call(actor=actor), arguments=b'{"amount":%d}' % number)
        assert outcome is not None and outcome.output == number


async def test_another_role_of_the_same_user_is_refused_and_told_nothing(start: Start) -> None:
    here, there = await start(), await start()
    first = await here.take()
    for meanwhile in (True, False):
        for process in (here, there):
            for persona, scopes in (("admin", ()), (None, ("tool:pay",))):
                error = await refused(process.claim(call(actor=Actor("acme", persona, "ada", scopes))))
                assert (error.code, error.details) == ("IDEMPOTENCY_CONFLICT", None)
                assert first.id not in error.message
        if meanwhile:
            await here.step.complete(first, ended(first), True)
    assert await there.claim(call()) is not None


# ------------------------------------------------------------------------------------------- what gives a key back


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("PERMISSION_DENIED", "denied"),
        ("BUDGET_EXCEEDED", "denied"),
        ("APPROVAL_REQUIRED", "pending"),
        ("VALIDATION_ERROR", "failure"),
        ("CIRCUIT_OPEN", "failure"),
        ("CAPACITY_EXCEEDED", "failure"),
        ("CANCELLED", "failure"),
    ],
)
@pytest.mark.sample(4)
async def test_a_call_that_did_not_run_gives_its_key_back(start: Start, code: str, status: str) -> None:
    here, there = await start(), await start()
    first = await here.take()
    second = call()
    waiting = asyncio.ensure_future(here.claim(second))
    await asyncio.sleep(0.02)
    await here.step.complete(first, failed(first, code, status), False)
    assert await asyncio.wait_for(waiting, 30) is None, "who waited is the next to try"
    await here.step.complete(second, failed(second, code, status), False)
    assert await here.on_record() is None
    assert await there.claim(call(), arguments=b'{"amount":2}') is None, "and the key may stand for something else"


async def test_an_answer_without_a_run_is_kept(start: Start) -> None:
    """A hook that responds, or a hit in the cache."""
    here = await start()
    first = await here.take()
    await here.step.complete(first, ended(first, "known"), False)
    outcome = await here.claim(call())
    assert outcome is not None and outcome.output == "known"


async def test_only_the_holder_completes(start: Start) -> None:
    here, there = await start(), await start()
    first = await here.take()
    for other in (call(), call(key="other"), Call(new_id(), "pay", {}, ADA)):
        await here.step.complete(other, ended(other, "forged"), True)
        await there.step.complete(first, ended(first, "forged"), True)
    found = await here.on_record()
    assert found is not None and (found.state, found.holder.call_id) == ("running", first.id)


# ------------------------------------------------------------------------------------------------- what nobody knows


@pytest.mark.parametrize(
    ("code", "status"), [("TIMEOUT", "timeout"), ("CANCELLED", "failure"), ("OUTCOME_UNKNOWN", "failure")]
)
async def test_a_run_that_may_have_had_its_effect_is_not_repeated(start: Start, code: str, status: str) -> None:
    here, there = await start(), await start()
    first = await here.take()
    await here.begin(first)
    await here.step.complete(first, failed(first, code, status), True)
    for process in (here, there):
        error = await refused(process.claim(call()))
        assert (error.code, error.retryable, error.details) == ("OUTCOME_UNKNOWN", False, {"first_call": first.id})
        assert first.id in error.message
        assert "toolgate idempotency settle KEY --tenant acme --user ada" in str(error.suggestion)
    assert (await refused(there.claim(call(), REFUND))).code == "IDEMPOTENCY_CONFLICT"
    assert [row.holder.call_id for row in await there.step.unsettled()] == [first.id]
    assert [row.holder.call_id for row in await there.step.unsettled("acme")] == [first.id]
    assert await there.step.unsettled("globex") == []


@pytest.mark.parametrize("code", ["CONNECTION_ERROR", "CIRCUIT_OPEN", "CAPACITY_EXCEEDED", "INVOCATION_ERROR"])
@pytest.mark.parametrize("ran", [False, True])
@pytest.mark.sample(4)
async def test_what_an_attempt_left_open_a_later_failure_does_not_settle(start: Start, code: str, ran: bool) -> None:
    here, there = await start(), await start()
    first = await here.take()
    await here.begin(first)
    await here.step.complete(first, failed(first, code), ran, unsure=True)
    for process in (here, there):
        assert (await refused(process.claim(call()))).code == "OUTCOME_UNKNOWN"


async def test_what_an_attempt_left_open_a_later_success_settles(start: Start) -> None:
    here, there = await start(), await start()
    first = await here.take()
    await here.begin(first)
    await here.step.complete(first, ended(first), True, unsure=True)
    outcome = await there.claim(call())
    assert outcome is not None and outcome.output == "paid 1"


@pytest.mark.parametrize("code", ["CIRCUIT_OPEN", "CAPACITY_EXCEEDED"])
async def test_a_refusal_after_an_attempt_that_ran_is_an_answer(start: Start, code: str) -> None:
    """The first attempt reached the tool and failed for certain; the breaker kept the second from it."""
    here, there = await start(), await start()
    first = await here.take()
    await here.begin(first)
    await here.step.complete(first, failed(first, code), True)
    outcome = await there.claim(call())
    assert outcome is not None and outcome.error is not None and outcome.error.code == code


async def test_a_key_can_stand_for_other_arguments_than_those_that_run(start: Start) -> None:
    """A person edited them: who asked repeats what was asked."""
    here, there = await start(), await start()
    asked = sha256(b'{"amount":1}').hexdigest()
    first = call()
    assert await here.step.claim(first, PAY, b'{"amount":2}', asked) is None
    await here.step.complete(first, ended(first), True)
    for process in (here, there):
        outcome = await process.claim(call())
        assert outcome is not None and outcome.output == "paid 1"
        assert (await refused(process.claim(call(), arguments=b'{"amount":2}'))).code == "IDEMPOTENCY_CONFLICT"


async def unknown(process: Process) -> Call:
    first = await process.take()
    await process.begin(first)
    await process.step.complete(first, failed(first, "TIMEOUT", "timeout"), True)
    return first


async def test_it_happened(start: Start) -> None:
    here = await start()
    first = await unknown(here)
    settled = await here.step.settle("acme", "ada", "k", happened=True, output={"receipt": 5}, by="olga")
    assert (settled.holder.call_id, settled.holder.tool, settled.state) == (first.id, "pay", "unknown")
    outcome = await here.claim(call())
    assert outcome is not None
    assert (outcome.status, outcome.output, outcome.metrics.attempts) == ("success", {"receipt": 5}, 0)
    found = await here.on_record()
    assert found is not None and (found.state, found.settled_by) == ("done", "olga")
    assert await here.step.unsettled() == []


async def test_it_did_not_happen(start: Start) -> None:
    here = await start()
    await unknown(here)
    await here.step.settle("acme", "ada", "k", happened=False, by="olga")
    second = await here.take()
    await here.step.complete(second, ended(second), True)
    outcome = await here.claim(call())
    assert outcome is not None and outcome.output == "paid 1"


async def test_only_what_is_unknown_can_be_settled_and_only_with_json(start: Start) -> None:
    here, there = await start(), await start()

    async def settle(**more: Any) -> Failed:
        given = {"happened": True, "by": "olga", **more}
        with pytest.raises(Failed) as raised:
            await there.step.settle("acme", given.pop("user", "ada"), "k", **given)
        return raised.value

    assert (await settle()).code == "VALIDATION_ERROR"
    first = await here.take()
    await here.begin(first)
    for happened in (True, False):
        error = await settle(happened=happened)
        assert (error.code, "still runs" in error.message) == ("IDEMPOTENCY_CONFLICT", True)
    await here.step.complete(first, failed(first, "TIMEOUT", "timeout"), True)
    for output in (math.nan, {"at": {1, 2}}, [b"x"], "\ud800", 2**70):
        error = await settle(output=output)
        assert (error.code, error.message[:25]) == ("VALIDATION_ERROR", "The output cannot be kept")
    assert (await settle(happened=False, output=1)).code == "VALIDATION_ERROR"
    assert (await settle(user="bob")).code == "VALIDATION_ERROR"
    assert [row.state for row in await there.step.unsettled()] == ["unknown"], "nothing was changed"
    await there.step.settle("acme", "ada", "k", happened=True, by="olga")
    for happened in (True, False):
        assert (await settle(happened=happened)).code == "IDEMPOTENCY_CONFLICT"
    outcome = await here.claim(call())
    assert outcome is not None and (outcome.status, outcome.output) == ("success", None)


# --------------------------------------------------------------------------------------------------- the dead


async def test_a_dead_one_that_never_began_leaves_a_free_key(start: Start) -> None:
    here, there = await start(), await start()
    assert await here.claim(call()) is None
    second = call()
    waiting = asyncio.ensure_future(there.claim(second))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await here.die()
    assert await asyncio.wait_for(waiting, 30) is None
    found = await there.on_record()
    assert found is not None and (found.holder.call_id, found.holder.process) == (second.id, there.presence.id)


async def test_a_dead_one_that_began_leaves_an_unknown_outcome(start: Start) -> None:
    here, there = await start(), await start()
    first = await here.take()
    await here.begin(first)
    waiting = [asyncio.ensure_future(there.claim(call())) for _ in range(3)]
    await asyncio.sleep(0.05)
    await here.die()
    for waited in waiting:
        error = await asyncio.wait_for(refused(waited), 30)
        assert (error.code, error.details) == ("OUTCOME_UNKNOWN", {"first_call": first.id})


async def test_one_that_gives_no_sign_for_the_lease_is_dead(start: Start) -> None:
    here, there = await start(seconds=1_000), await start(seconds=0.5)
    began = asyncio.get_running_loop().time()
    assert await here.claim(call()) is None  # it beats once in 200 s
    assert await asyncio.wait_for(there.claim(call()), 30) is None
    assert asyncio.get_running_loop().time() - began > 0.2


async def test_the_keys_of_the_dead_are_listed_and_settled_without_anybody_asking_for_them(start: Start) -> None:
    here, there = await start(), await start()
    for key in ("began", "did not"):
        mine = await here.take(key)
        if key == "began":
            await here.begin(mine)
    await here.die()
    assert [row.scope.key for row in await there.step.unsettled()] == ["began"]
    assert await there.on_record("did not") is None
    await there.step.settle("acme", "ada", "began", happened=False, by="olga")
    assert await there.on_record("began") is None


async def test_one_that_was_taken_for_dead_puts_it_right(start: Start) -> None:
    here, there = await start(), await start()
    first = await here.take()
    await here.begin(first)
    await here.die()
    assert (await refused(there.claim(call()))).code == "OUTCOME_UNKNOWN"
    await here.step.complete(first, ended(first, "after all"), True)
    outcome = await there.claim(call())
    assert outcome is not None and outcome.output == "after all"


async def test_one_that_was_taken_for_dead_before_it_began_does_not_begin(start: Start) -> None:
    here, there = await start(), await start()
    first = await here.take()
    await here.die()
    second = await there.take()
    await there.begin(second)
    with pytest.raises(Failed) as raised:
        await here.begin(first)
    assert (raised.value.code, raised.value.retryable) == ("IDEMPOTENCY_CONFLICT", True)
    await here.step.complete(first, failed(first, "IDEMPOTENCY_CONFLICT"), False)
    await there.step.complete(second, ended(second, "by the second"), True)
    outcome = await here.claim(call())
    assert outcome is not None and outcome.output == "by the second"


async def test_to_begin_and_to_be_taken_for_dead_at_once_never_lets_two_run(start: Start) -> None:
    """Whoever comes first with the row in hand decides, however the two are interleaved."""
    here, there = await start(), await start()
    for _ in range(25):
        key = new_id()
        first, second = call(key), call(key)
        assert await here.claim(first) is None
        await here.die()

        async def begins(process: Process, mine: Call) -> bool:
            try:
                await process.begin(mine)
            except Failed:
                return False
            return True

        async def takes_over(process: Process, mine: Call) -> bool:
            try:
                return await process.claim(mine) is None and await begins(process, mine)
            except Failed as error:
                assert error.code == "OUTCOME_UNKNOWN"
                return False

        ran = await asyncio.gather(begins(here, first), takes_over(there, second))
        assert sum(ran) == 1


async def test_what_a_process_left_behind_itself_is_judged_like_a_dead_ones(start: Start) -> None:
    """It lives, but none of its calls has the key: the store took the claim and then lost the connection, say."""
    here = await start()
    await here.presence.show()
    for key, began in (("lost", False), ("begun", True)):
        lost = call(key)
        holder = keys.KeyHolder(lost.id, here.presence.id, "pay", "other", "")
        claim = keys.claim(Scope("acme", "ada", key), holder, now(), keep=timedelta(days=1), lease=30)
        assert await here.store.transact(claim) is None
        if began:
            await here.store.append_durably(Started(lost.id))
    assert await here.claim(call("lost")) is None
    assert (await refused(here.claim(call("begun")))).code == "IDEMPOTENCY_CONFLICT"
    assert [row.scope.key for row in await here.step.unsettled()] == ["begun"]


# ------------------------------------------------------------------------------------------------- waiting, going away


@pytest.mark.parametrize("where", ["here", "there"])
async def test_patience_ends(start: Start, where: str) -> None:
    here, there = await start(), await start()
    first = await here.take()
    waiter = here if where == "here" else there
    error = await refused(waiter.claim(call(timeout=0.1)))
    assert (error.code, error.retryable) == ("CAPACITY_EXCEEDED", True)
    assert "still runs" in error.message
    await here.step.complete(first, ended(first), True)
    assert await waiter.claim(call(timeout=SOON)) is not None


@pytest.mark.parametrize("where", ["here", "there"])
async def test_who_waits_may_go_away(start: Start, where: str) -> None:
    here, there = await start(), await start()
    first = await here.take()
    waiter = here if where == "here" else there
    waiting = [asyncio.ensure_future(waiter.claim(call())) for _ in range(3)]
    await asyncio.sleep(0.05)
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    assert waiting[0].cancelled()
    await here.step.complete(first, ended(first), True)
    for waited in waiting[1:]:
        outcome = await asyncio.wait_for(waited, 30)
        assert outcome is not None and outcome.output == "paid 1"


async def test_who_goes_away_while_it_takes_the_key_does_not_keep_it(start: Start) -> None:
    here, there = await start(), await start()
    await here.presence.show()
    for turns in range(12):
        key = f"k{turns}"
        first = call(key)
        leaving = asyncio.ensure_future(here.claim(first))
        for _ in range(turns):
            await asyncio.sleep(0)
        next_one = asyncio.ensure_future(here.claim(call(key)))
        leaving.cancel()
        await asyncio.wait((leaving,))
        if not leaving.cancelled():  # it had the key already
            await here.step.complete(first, failed(first, "CANCELLED"), False)
        assert await asyncio.wait_for(next_one, 30) is None

    left = asyncio.ensure_future(here.claim(call("left")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.wait((left,))
    assert await asyncio.wait_for(there.claim(call("left")), 30) is None, "to other processes it is free as well"


async def test_what_came_of_a_call_is_written_although_its_caller_goes_away(start: Start) -> None:
    here, there = await start(), await start()
    for turns in range(6):
        key = f"k{turns}"
        first = await here.take(key)
        completing = asyncio.ensure_future(here.step.complete(first, ended(first), True))
        for _ in range(turns):
            await asyncio.sleep(0)
        was_there = turns > 0
        completing.cancel()
        await asyncio.wait((completing,))
        if was_there:
            outcome = await asyncio.wait_for(there.claim(call(key)), 30)
            assert outcome is not None and outcome.output == "paid 1"


# -------------------------------------------------------------------------------------------------- for how long


async def test_a_key_is_remembered_for_its_time_and_then_it_is_new(start: Start) -> None:
    here = await start()
    first = await here.take()
    await here.step.complete(first, ended(first), True)
    almost = await start(clock=lambda: now() + timedelta(days=29.9))
    assert await almost.claim(call()) is not None
    later = await start(clock=lambda: now() + timedelta(days=30.1))
    second = await later.take(entry=REFUND)
    await later.step.complete(second, ended(second, "anew"), True)
    outcome = await here.claim(call(), REFUND)
    assert outcome is not None and outcome.output == "anew"


async def test_old_outcomes_are_dropped_and_what_nobody_knows_is_not(start: Start) -> None:
    here = await start()
    for key in ("a", "b"):
        mine = await here.take(key)
        await here.step.complete(mine, ended(mine), True)
    await unknown(here)
    later = await start(clock=lambda: now() + timedelta(days=31))
    mine = await later.take("c")
    await later.step.complete(mine, ended(mine), True)
    await later.step.close()  # which waits for what was begun
    rows = await here.store.read(keys.listed())
    assert [(row.scope.key, row.state) for row in rows] == [("k", "unknown"), ("c", "done")]
    assert (await refused(later.claim(call()))).code == "OUTCOME_UNKNOWN"


# -------------------------------------------------------------------------------------------------- explain


async def test_it_can_be_asked_what_it_would_say(start: Start) -> None:
    here = await start()
    arguments = b'{"amount":1}'

    async def look(key: Any = "k", given: bytes = arguments) -> tuple[bool, str]:
        decision = await here.step.look(call(key), given)
        return decision.allow, decision.reason

    assert await look(None) == (True, "the call has no idempotency key")
    assert await look("") == (False, "Invalid arguments: idempotency_key: must be 1 to 255 bytes of printable text")
    assert await look() == (True, "the idempotency key is free")
    first = await here.take()
    assert (await look()) == (True, f"call {first.id} with the same key still runs, and its outcome is waited for")
    assert (await look(given=b"{}"))[0] is False
    await here.step.complete(first, ended(first), True)
    assert "is given out again" in (await look())[1]
    later = await start(clock=lambda: now() + timedelta(days=31))
    await unknown(later)
    assert (await later.step.look(call(), arguments)).allow is False
    assert "nobody knows how it ended" in (await look())[1]


# -------------------------------------------------------------------------------------------------- odd keys and outputs


async def test_a_key_that_is_none_is_refused(start: Start) -> None:
    here = await start()
    for key in ("", "x" * 256, "é" * 128, "a\nb", "\x00", "\x1b[2J", "\ud800", "\u2028", 5, b"k", ["k"]):
        error = await refused(here.claim(call(key)))
        assert error.code == "VALIDATION_ERROR"
        assert error.details is not None
        assert [fault["path"] for fault in error.details["errors"]] == ["idempotency_key"]
    assert await here.store.read(keys.listed()) == []


async def test_odd_keys_are_kept_apart(start: Start) -> None:
    here, there = await start(), await start()
    odd = [
        "k",
        "K",
        " k",
        "k ",
        "kk",
        "k'; DROP TABLE idempotency_keys; --",
        ":key",
        "$1",
        "%s",
        "é",
        "e\u0301",
        "日本",
        "🔑",
    ]
    odd += ["x" * 255, "../../k", '{"a": 1}', "null"]
    for number, key in enumerate(odd):
        mine = await here.take(key)
        await here.step.complete(mine, ended(mine, number), True)
    for number, key in enumerate(odd):
        outcome = await there.claim(call(key))
        assert outcome is not None and outcome.output == number


async def test_the_longest_names_fit(start: Start) -> None:
    here = await start()
    actor = Actor(tenant="".join(chr(0x20000 + n) for n in range(256)), user="".join(chr(0x21000 + n) for n in range(256)))
    key = "".join(chr(0x4E00 + n) for n in range(85))
    first = await here.take(key, actor)
    await here.step.complete(first, ended(first), True)
    assert await here.claim(call(key, actor)) is not None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=12,
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
ERRORS = st.builds(
    ErrorInfo,
    st.sampled_from(["INVOCATION_ERROR", "OUTPUT_INVALID", "CONNECTION_ERROR"]),
    TEXT,
    st.booleans(),
    st.none() | TEXT,
    st.none() | st.dictionaries(TEXT, JSON, max_size=3),
)
ARTIFACTS = st.none() | st.builds(Artifact, TEXT, st.integers(0, 2**40), st.lists(TEXT, max_size=3).map(tuple))


@at_most(40)
@given(output=JSON, error=ERRORS, artifact=ARTIFACTS, succeeds=st.booleans())
def test_every_outcome_comes_back_as_it_was(
    output: Any, error: ErrorInfo, artifact: Artifact | None, succeeds: bool
) -> None:
    async def round_trip() -> None:
        store = open_store("memory://", None)
        await store.start()
        process = Process(store, 30, now)
        first, second = call(), call()
        assert await process.claim(first) is None
        if succeeds:
            outcome = Outcome(first.id, "pay", "success", output, artifact=artifact)
        else:
            outcome = Outcome(first.id, "pay", "failure", None, error)
        await process.step.complete(first, outcome, True)
        again = await process.claim(second)
        await process.close()
        assert again is not None
        assert again == Outcome(
            second.id, "pay", outcome.status, outcome.output, outcome.error, None, again.metrics, outcome.artifact
        )
        assert orjson.dumps(again.output) == orjson.dumps(outcome.output)  # 1 is not 1.0, and 0.0 is not -0.0

    asyncio.run(round_trip())


# -------------------------------------------------------------------------------------------------- store trouble


async def taken(claim: Awaitable[Outcome | None]) -> bool:
    """Whether the key was taken; not if a connection was cut."""
    try:
        return await claim is None
    except (Failed, asyncpg.InternalClientError) as error:
        assert not isinstance(error, Failed) or error.code == "UNEXPECTED_ERROR"
        return False


async def cut_off(database: str) -> None:
    """End every connection to the database, as a server that restarts does."""
    admin = await asyncpg.connect(database)
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND datname = current_database()"
    )
    await admin.close()


@pytest.mark.matrix("needs PostgreSQL")
async def test_what_can_not_be_written_is_written_when_it_can(postgres_database: str) -> None:
    store, other = open_store(postgres_database, None), open_store(postgres_database, None)
    await store.start()
    await other.start()
    here, there = Process(store, 30, now), Process(other, 30, now)
    first = await here.take()
    await here.begin(first)
    admin = await asyncpg.connect(postgres_database)
    await admin.execute("ALTER TABLE idempotency_keys RENAME TO hidden")
    waiting = asyncio.ensure_future(here.claim(call()))
    await asyncio.sleep(0)
    await here.step.complete(first, ended(first), True)
    told = await waiting
    assert told is not None and told.output == "paid 1", "who waits in this process needs no store to be told"
    assert (await refused(here.claim(call()))).code == "UNEXPECTED_ERROR"
    await admin.execute("ALTER TABLE hidden RENAME TO idempotency_keys")
    await admin.close()
    outcome = await asyncio.wait_for(there.claim(call()), 30)
    assert outcome is not None and outcome.output == "paid 1"
    await here.close()
    await there.close()


@pytest.mark.matrix("needs PostgreSQL")
async def test_a_lost_connection_leaves_no_key_behind(postgres_database: str) -> None:
    store, other = open_store(postgres_database, None), open_store(postgres_database, None)
    await store.start()
    await other.start()
    here, there = Process(store, 30, now), Process(other, 30, now)
    await here.presence.show()
    for number in range(10):
        key = f"k{number}"
        first = call(key)
        claiming = asyncio.ensure_future(here.claim(first))
        await asyncio.sleep(0.0005 * number)
        await cut_off(postgres_database)
        if await taken(claiming):
            await here.step.complete(first, failed(first, "PERMISSION_DENIED", "denied"), False)
        for _ in range(10):
            if await taken(asyncio.wait_for(there.claim(call(key)), 30)):
                break
        else:
            raise AssertionError("the key never came free")
    await here.close()
    await there.close()


@pytest.mark.matrix("needs PostgreSQL")
@pytest.mark.parametrize("leaves", [False, True])
async def test_a_claim_that_was_committed_unheard_is_withdrawn(postgres_database: str, leaves: bool) -> None:
    """The connection is lost while the server commits: nobody can see the row yet, and then it is there."""
    store, other = open_store(postgres_database, None), open_store(postgres_database, None)
    await store.start()
    await other.start()
    here, there = Process(store, 30, now), Process(other, 30, now)
    await here.presence.show()
    await there.presence.show()
    async with held_commits(postgres_database, "INSERT ON idempotency_keys", "NEW.key = 'slow'") as commits:
        await commits.begin()
        claiming = asyncio.ensure_future(here.claim(call("slow")))
        await commits.one_waits()
        if leaves:
            claiming.cancel()
            await asyncio.sleep(0)
        pool: Any = store
        for holder in pool._pool._holders:
            if holder._con is not None and holder._in_use:
                holder._con._transport.abort()
        letting_go = asyncio.ensure_future(commits.let_go(after=0.3))
        if leaves:
            with pytest.raises(asyncio.CancelledError):
                await claiming
        else:
            assert (await refused(claiming)).code == "UNEXPECTED_ERROR"
        assert await asyncio.wait_for(there.claim(call("slow", timeout=SOON)), SOON) is None, "nobody has it for ever"
        await letting_go
    await asyncio.sleep(0.5)
    found = await there.on_record("slow")
    assert found is not None and found.holder.process == there.presence.id, "nobody else's is withdrawn"
    await here.close()
    await there.close()

"""Calls with an idempotency key, through the front door: one effect, one answer, and no second run in silence."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.terminal import Terminal
from toolgate import Actor, Answer, App, Hook, InvokeContext, Outcome, tool
from toolgate.errors import CallError, ToolError
from toolgate.store import audit_log
from toolgate.store import idempotency as keys
from toolgate.testing import ManualClock, memory_app

pytestmark = pytest.mark.requirement("PIPE-9")

ADA = Actor(tenant="acme", user="ada")


class Till:
    """Tools with effects that can be counted, and a gate that holds them up."""

    def __init__(self) -> None:
        self.effects: list[int] = []
        self.open = asyncio.Event()
        self.entered = asyncio.Event()
        self.open.set()

        @tool(tier="write", timeout=30, cost=0.25)
        async def pay(amount: int) -> dict[str, Any]:
            """Pay somebody."""
            self.effects.append(amount)
            self.entered.set()
            await self.open.wait()
            if amount < 0:
                raise ToolError("nobody pays that", details={"amount": amount})
            return {"paid": amount, "number": len(self.effects)}

        @tool(tier="write", timeout=0.05)
        async def pay_slowly(amount: int) -> int:
            """Pay somebody, too slowly."""
            self.effects.append(amount)
            await asyncio.sleep(30)
            return amount

        @tool(tier="write")
        async def pay_twice(ctx: InvokeContext, amount: int) -> list[Any]:
            """Pay somebody with two calls."""
            return [(await ctx.call_tool("pay", amount=amount)).output for _ in range(2)]

        self.tools = (pay, pay_slowly, pay_twice)

    def close_gate(self) -> None:
        self.open.clear()
        self.entered.clear()


@pytest.fixture
def till() -> Till:
    return Till()


@pytest.fixture
async def app(till: Till, tmp_path: Path) -> AsyncIterator[App]:
    """On SQLite; what depends on the database, test_idempotency_keys.py tries on both."""
    async with App.open(home=tmp_path / "home") as opened:
        opened.tools.register_many(till.tools)
        yield opened


def code(outcome: Outcome) -> str | None:
    return outcome.error.code if outcome.error else None


async def pay(app: App, amount: int = 1, key: str | None = "k", **more: Any) -> Outcome:
    return await app.invoke(
        more.pop("tool", "pay"), {"amount": amount}, actor=more.pop("actor", ADA), idempotency_key=key, **more
    )


# ------------------------------------------------------------------------------------------------- one effect, one answer


async def test_fifty_callers_have_one_effect_and_one_answer(app: App, till: Till) -> None:
    till.close_gate()
    calls = [asyncio.ensure_future(pay(app)) for _ in range(50)]
    await till.entered.wait()
    await asyncio.sleep(0.05)
    assert not any(call.done() for call in calls)
    till.open.set()
    outcomes = await asyncio.gather(*calls)
    assert till.effects == [1]
    assert [outcome.output for outcome in outcomes] == [{"paid": 1, "number": 1}] * 50
    assert len({outcome.id for outcome in outcomes}) == 50
    assert sorted(outcome.metrics.attempts for outcome in outcomes) == [0] * 49 + [1]
    assert sorted(outcome.metrics.cost_usd for outcome in outcomes) == [0.0] * 49 + [0.25], "one pays"
    assert sum(outcome.metrics.cached for outcome in outcomes) == 49
    await app.flush()
    rows = await app.parts.store.read(audit_log.latest(1000, tool="pay"))
    assert [row[2] for row in rows].count("start") == 1
    ends = [row for row in rows if row[2] == "end"]
    assert {row[3] for row in ends} == {outcome.id for outcome in outcomes}, "every one of them is on record"
    assert {orjson.loads(row[7])["idempotency_key"] for row in ends} == {"k"}


async def test_an_answer_outlives_the_process(till: Till, database: str, tmp_path: Path) -> None:
    for _ in range(3):
        async with App.open(home=tmp_path / "home", database_url=database) as app:
            app.tools.register_many(till.tools)
            assert (await pay(app)).output == {"paid": 1, "number": 1}
    assert till.effects == [1]


async def test_the_same_arguments_in_other_words_are_the_same(app: App, till: Till) -> None:
    for arguments in ({"amount": 1}, {"amount": 1.0}, '{ "amount" : 1 }', b'{"amount":1}'):
        outcome = await app.invoke("pay", arguments, actor=ADA, idempotency_key="k")
        assert outcome.output == {"paid": 1, "number": 1}
    assert till.effects == [1]


async def test_a_failure_of_the_tool_is_an_answer(app: App, till: Till) -> None:
    first, second = await pay(app, -1), await pay(app, -1)
    assert till.effects == [-1]
    assert code(first) == "INVOCATION_ERROR"
    assert (second.status, second.error) == (first.status, first.error)


async def test_without_a_key_nothing_is_kept_and_every_call_runs(app: App, till: Till) -> None:
    for _ in range(3):
        assert (await pay(app, key=None)).ok
    assert till.effects == [1, 1, 1]
    assert await app.parts.store.read(keys.listed()) == []


async def test_another_call_may_not_use_the_key(app: App, till: Till) -> None:
    assert (await pay(app)).ok
    for outcome in (await pay(app, 2), await pay(app, tool="pay_twice")):
        assert (outcome.status, code(outcome)) == ("failure", "IDEMPOTENCY_CONFLICT")
        assert outcome.error is not None and not outcome.error.retryable
    assert till.effects == [1]


async def test_other_users_and_tenants_are_not_concerned(app: App, till: Till) -> None:
    for actor in (ADA, Actor(tenant="acme", user="bob"), Actor(tenant="globex", user="ada"), None):
        assert (await pay(app, len(till.effects), actor=actor)).ok
    assert till.effects == [0, 1, 2, 3]


ROLES = [
    Actor("acme", "boss", "ada"),
    Actor("acme", None, "ada", ("tool:pay",)),
    Actor("acme", "boss", "ada", ("tool:pay", "tool:look")),
]


async def test_the_same_user_in_another_role_gets_neither_the_outcome_nor_a_second_effect(
    till: Till, database: str, tmp_path: Path
) -> None:
    async with App.open(home=tmp_path / "home", database_url=database) as app:
        app.tools.register_many(till.tools)
        first = await pay(app, actor=ROLES[0])
        for actor in (ADA, *ROLES[1:]):
            for tool, amount in (("pay", 1), ("pay", 2), ("pay_twice", 1)):
                other = await pay(app, amount, actor=actor, tool=tool)
                assert (code(other), other.output) == ("IDEMPOTENCY_CONFLICT", None)
                assert first.id not in repr(other) and (tool == "pay" or " pay " not in repr(other)), (
                    "what it was for is not said"
                )
            explained = await app.explain("pay", {"amount": 1}, actor=actor, idempotency_key="k")
            assert explained.verdict == "deny" and first.id not in repr(explained)
        assert (await pay(app, actor=ROLES[0])).output == first.output
        again = Actor("acme", "boss", "ada", ("tool:look", "tool:pay", "tool:pay"))
        assert (await pay(app, actor=ROLES[2], key="l")).output == (await pay(app, actor=again, key="l")).output
    assert till.effects == [1, 1]


async def test_one_in_another_role_that_comes_meanwhile_is_told_at_once(app: App, till: Till) -> None:
    till.close_gate()
    running = asyncio.create_task(pay(app, actor=ROLES[0]))
    await asyncio.wait_for(till.entered.wait(), 30)
    assert code(await asyncio.wait_for(pay(app, actor=ROLES[1]), 30)) == "IDEMPOTENCY_CONFLICT"
    till.open.set()
    assert (await running).ok
    assert till.effects == [1]


async def test_a_key_that_is_none_is_refused_and_nothing_runs(app: App, till: Till) -> None:
    for key in ("", "x" * 256, "a\nb", "\x1b[2J", "\ud800"):
        outcome = await pay(app, key=key)
        assert code(outcome) == "VALIDATION_ERROR"
        assert outcome.error is not None and outcome.error.details is not None
        assert outcome.error.details["errors"][0]["path"] == "idempotency_key"
    assert till.effects == []


async def test_a_call_in_a_call_needs_no_key_of_its_own(app: App, till: Till) -> None:
    first, second = await pay(app, tool="pay_twice"), await pay(app, tool="pay_twice")
    assert till.effects == [1, 1]
    assert first.output == second.output == [{"paid": 1, "number": 1}, {"paid": 1, "number": 2}]


async def test_a_tool_that_calls_itself_with_its_own_key_gets_no_further(till: Till) -> None:
    async with memory_app() as app:

        @tool(tier="write", timeout=60)
        async def again(depth: int) -> str | None:
            """Calls itself."""
            till.effects.append(depth)
            return code(await app.invoke("again", {"depth": depth}, idempotency_key="k", timeout=0.1))

        app.register(again)
        outcome = await app.invoke("again", {"depth": 1}, idempotency_key="k")
        assert outcome.output == "CAPACITY_EXCEEDED"
        assert till.effects == [1]


# ------------------------------------------------------------------------------------------- what a repeat may see


async def test_who_may_no_longer_call_is_not_told_either(app: App, till: Till) -> None:
    assert (await pay(app)).ok
    await app.tools.set_enabled("pay", False, tenant="acme")
    assert code(await pay(app)) == "TOOL_NOT_FOUND"
    await app.tools.set_enabled("pay", True, tenant="acme")
    assert (await pay(app)).ok
    assert till.effects == [1]


async def test_what_was_masked_or_cut_is_given_out_as_it_was(tmp_path: Path) -> None:
    secret = "correct-horse-battery"

    @tool(tier="write")
    async def report() -> dict[str, Any]:
        """A long report."""
        return {"password": secret, "text": "x" * 500}

    async with App.open(home=tmp_path / "home", limits={"output_string": 100}) as app:
        app.register(report)
        first = await app.invoke("report", idempotency_key="k")
        second = await app.invoke("report", idempotency_key="k")
        assert first.artifact is not None
        assert (second.output, second.artifact) == (first.output, first.artifact)
        assert await app.audit.artifact(second.artifact.id, actor=Actor()) is not None if second.artifact else False
        rows = await app.parts.store.read(keys.listed())
        assert len(rows) == 1
        assert rows[0].outcome is not None and secret not in rows[0].outcome


# ------------------------------------------------------------------------------------------------- what gives a key back


class Stop(Hook):
    """Ends the first call at a stage."""

    def __init__(self) -> None:
        self.stopped = False

    def will_acquire_quota(self, ctx: InvokeContext) -> None:
        if not self.stopped:
            self.stopped = True
            ctx.abort("not yet")


async def test_a_call_that_is_denied_gives_its_key_back(app: App, till: Till) -> None:
    app.add_hook(Stop())
    assert code(await pay(app)) == "PERMISSION_DENIED"
    assert (await pay(app, 2)).ok
    assert till.effects == [2]


async def test_a_call_that_is_invalid_takes_no_key(app: App, till: Till) -> None:
    assert code(await app.invoke("pay", {"amount": "x"}, actor=ADA, idempotency_key="k")) == "VALIDATION_ERROR"
    assert (await pay(app)).ok
    assert till.effects == [1]


async def test_a_call_that_the_breaker_stops_gives_its_key_back(till: Till) -> None:
    clock, works = ManualClock(), [False]

    @tool(tier="write", target="bank")
    async def transfer(amount: int) -> int:
        """Transfer."""
        if not works[0]:
            raise ToolError("down", code="CONNECTION_ERROR")
        till.effects.append(amount)
        return amount

    async with memory_app(clock=clock, breaker={"failures": 1, "reset_seconds": 60}) as app:
        app.register(transfer)
        assert code(await pay(app, tool="transfer", key="first")) == "CONNECTION_ERROR"
        assert code(await pay(app, tool="transfer")) == "CIRCUIT_OPEN"
        works[0] = True
        clock.advance(61)
        assert (await pay(app, tool="transfer")).ok
        assert code(await pay(app, tool="transfer", key="first")) == "CONNECTION_ERROR", "that one had run"
        assert till.effects == [1]


async def test_a_call_that_waits_for_a_person_gives_its_key_back(app: App) -> None:
    @tool(tier="execute")
    async def launch() -> str:
        """Launch."""
        return "launched"

    app.register(launch)
    for _ in range(2):
        assert (await app.invoke("launch", actor=ADA, idempotency_key="k")).status == "pending"
    assert await app.parts.store.read(keys.listed()) == []
    assert (await pay(app)).ok, "nothing was run, so the key stands for nothing yet"


async def test_a_call_that_was_approved_goes_on_with_its_key_and_happens_once(app: App, till: Till) -> None:
    @tool(tier="execute")
    async def launch(number: int) -> int:
        """Launch."""
        till.effects.append(number)
        return number

    app.register(launch)
    asked = await app.invoke("launch", {"number": 1}, actor=ADA, idempotency_key="k")
    assert asked.pending is not None
    await app.approvals.answer(asked.pending.id, True, actor=Actor(tenant="acme", user="olga"))
    for _ in range(3):
        again = await app.invoke("launch", {"number": 1}, actor=ADA, idempotency_key="k", approval=asked.pending.id)
        assert (again.status, again.output) == ("success", 1), (
            "who never saw the answer is told, though the approval is used"
        )
    resumed = await app.approvals.resume(asked.pending.id, actor=ADA)
    assert (resumed.status, resumed.output) == ("success", 1)
    assert till.effects == [1]


@pytest.mark.parametrize("first", ["resume", "caller"])
async def test_a_key_stands_for_what_was_asked_whatever_a_person_made_of_it(app: App, till: Till, first: str) -> None:
    @tool(tier="execute")
    async def launch(number: int) -> int:
        """Launch."""
        till.effects.append(number)
        return number

    app.register(launch)
    asked = await app.invoke("launch", {"number": 1}, actor=ADA, idempotency_key="k")
    assert asked.pending is not None
    id = asked.pending.id
    await app.approvals.answer(id, Answer("edit", arguments={"number": 2}), actor=Actor(tenant="acme", user="olga"))

    async def resume() -> Outcome:
        return await app.approvals.resume(id, actor=ADA)

    async def repeat() -> Outcome:
        return await app.invoke("launch", {"number": 1}, actor=ADA, idempotency_key="k", approval=id)

    for again in (resume, repeat, resume) if first == "resume" else (repeat, resume, repeat):
        outcome = await again()
        assert (outcome.status, outcome.output) == ("success", 2), outcome
    plain = await app.invoke("launch", {"number": 1}, actor=ADA, idempotency_key="k")
    assert (plain.status, plain.output) == ("success", 2), "nor need it bring the approval"
    other = await app.invoke("launch", {"number": 2}, actor=ADA, idempotency_key="k")
    assert code(other) == "IDEMPOTENCY_CONFLICT"
    assert till.effects == [2]


async def test_fifty_callers_ask_a_person_once(app: App, till: Till) -> None:
    questions: list[str] = []

    @tool(tier="execute")
    async def launch(number: int) -> int:
        """Launch."""
        till.effects.append(number)
        return number

    async def agree(request: Any) -> bool:
        questions.append(request.tool)
        await asyncio.sleep(0.02)
        return True

    app.register(launch)
    app.approvals.add_approver(agree)
    calls = (app.invoke("launch", {"number": 1}, actor=ADA, idempotency_key="k") for _ in range(50))
    assert [outcome.output for outcome in await asyncio.gather(*calls)] == [1] * 50
    assert (questions, till.effects) == (["launch"], [1])


# ------------------------------------------------------------------------------------------------- what nobody knows


async def test_a_call_that_ran_out_of_time_is_not_repeated(app: App, till: Till) -> None:
    first = await pay(app, tool="pay_slowly")
    assert first.status == "timeout"
    second = await pay(app, tool="pay_slowly")
    assert code(second) == "OUTCOME_UNKNOWN"
    assert second.error is not None and second.error.details == {"first_call": first.id}
    assert till.effects == [1]
    assert [row.holder.call_id for row in await app.idempotency.unsettled()] == [first.id]
    assert await app.idempotency.unsettled("globex") == []


@pytest.mark.parametrize("happened", [True, False])
async def test_a_person_says_what_happened(app: App, till: Till, happened: bool) -> None:
    first = await pay(app, tool="pay_slowly")
    row = await app.idempotency.settle("k", happened=happened, output=5 if happened else None, actor=ADA)
    assert row.holder.call_id == first.id
    assert await app.idempotency.unsettled() == []
    again = await pay(app, tool="pay_slowly")
    if happened:
        assert (again.status, again.output, till.effects) == ("success", 5, [1])
    else:
        assert (again.status, till.effects) == ("timeout", [1, 1])
    await app.flush()
    (noted,) = [row for row in await app.parts.store.read(audit_log.latest(100)) if row[2] == "idempotency.settled"]
    body = orjson.loads(noted[7])
    assert (body["happened"], body["user"]) == (happened, "ada")


async def test_only_the_unknown_can_be_settled(app: App, till: Till) -> None:
    with pytest.raises(CallError) as raised:
        await app.idempotency.settle("k", happened=True, actor=ADA)
    assert raised.value.code == "VALIDATION_ERROR"
    assert (await pay(app)).ok
    with pytest.raises(CallError) as raised:
        await app.idempotency.settle("k", happened=False, actor=ADA)
    assert raised.value.code == "IDEMPOTENCY_CONFLICT"
    assert (await pay(app)).ok
    assert till.effects == [1]


# ------------------------------------------------------------------------------------------------- going away


async def test_the_first_goes_away_while_it_runs(app: App, till: Till) -> None:
    till.close_gate()
    first = asyncio.ensure_future(pay(app))
    await till.entered.wait()
    waiting = [asyncio.ensure_future(pay(app)) for _ in range(3)]
    await asyncio.sleep(0.02)
    first.cancel()
    await asyncio.wait((first,))
    assert first.cancelled()
    assert {code(outcome) for outcome in await asyncio.gather(*waiting)} == {"OUTCOME_UNKNOWN"}
    assert till.effects == [1]


async def test_the_first_goes_away_before_it_runs(app: App, till: Till) -> None:
    reached, lingering = asyncio.Event(), [True]

    class Linger(Hook):
        async def will_acquire_quota(self, ctx: InvokeContext) -> None:  # noqa: ARG002 - a stage's signature
            if lingering.pop():
                reached.set()
                await asyncio.sleep(30)

    lingering.insert(0, False)
    app.add_hook(Linger())
    first = asyncio.ensure_future(pay(app))
    await reached.wait()
    second = asyncio.ensure_future(pay(app))
    await asyncio.sleep(0.02)
    first.cancel()
    assert (await asyncio.wait_for(second, 30)).ok
    assert first.cancelled()
    assert till.effects == [1]


async def test_one_who_waits_goes_away(app: App, till: Till) -> None:
    till.close_gate()
    first = asyncio.ensure_future(pay(app))
    await till.entered.wait()
    waiting = [asyncio.ensure_future(pay(app)) for _ in range(3)]
    await asyncio.sleep(0.02)
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    assert waiting[0].cancelled()
    impatient = await pay(app, timeout=0.05)
    assert code(impatient) == "CAPACITY_EXCEEDED"
    assert impatient.error is not None and impatient.error.retryable
    till.open.set()
    assert (await first).ok
    assert [(await call).output for call in waiting[1:]] == [{"paid": 1, "number": 1}] * 2
    assert till.effects == [1]


async def test_callers_that_go_away_at_any_moment_leave_one_effect_at_most(app: App, till: Till) -> None:
    for turns in range(20):
        key, before = f"k{turns}", len(till.effects)
        call = asyncio.ensure_future(pay(app, key=key))
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait((call,))
        outcome = await asyncio.wait_for(pay(app, key=key), 30)
        assert outcome.ok or code(outcome) == "OUTCOME_UNKNOWN"
        assert len(till.effects) <= before + 1
    assert till.effects, "no call ever ran"


async def test_a_key_is_held_for_those_who_wait_and_takes_no_place(till: Till) -> None:
    """Fifty who wait for one take no more room than the one."""
    async with memory_app(limits={"tenant_concurrency": 2}) as app:
        app.tools.register_many(till.tools)
        till.close_gate()
        calls = [asyncio.ensure_future(pay(app)) for _ in range(50)]
        await till.entered.wait()
        till.open.set()
        assert all(outcome.ok for outcome in await asyncio.gather(*calls))
        assert till.effects == [1]


# ------------------------------------------------------------------------------------------------- at the terminal

SLOW = """
    import asyncio
    from pathlib import Path
    from toolgate import tool

    @tool(tier="write", timeout=0.05)
    async def pay(amount: int) -> str:
        "Pay somebody."
        with Path("effects").open("a") as file:
            file.write("paid\\n")
        if amount > 1:
            await asyncio.sleep(30)
        return f"paid {amount}"
"""


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    terminal.add_tools(SLOW)
    return terminal


def effects(terminal: Terminal) -> int:
    return (terminal.folder / "effects").read_text().count("paid")


def test_commands_with_one_key_have_one_effect(terminal: Terminal) -> None:
    for _ in range(3):
        done = terminal("call", "pay", "amount=1", "--idempotency-key", "order 5", "--json")
        assert (done.code, done.json["output"]) == (0, "paid 1")
    assert effects(terminal) == 1
    (listed,) = terminal("idempotency", "list", "--state", "done", "--json").json["keys"]
    assert (listed["key"], listed["tool"], listed["state"], listed["settled_by"]) == ("order 5", "pay", "done", None)
    assert terminal("idempotency", "list", "--json").json == {"keys": []}
    assert "No idempotency key has an unknown outcome." in terminal("idempotency", "list").err


@pytest.mark.parametrize("happened", [True, False])
def test_a_person_settles_a_key(terminal: Terminal, happened: bool) -> None:
    pay_two = ("call", "pay", "amount=2", "--idempotency-key", "k", "--tenant", "acme", "--user", "ada", "--json")
    whose = ("--tenant", "acme", "--user", "ada")
    first = terminal(*pay_two).json
    assert first["status"] == "timeout"
    assert terminal(*pay_two).json["error"]["code"] == "OUTCOME_UNKNOWN"
    shown = terminal("idempotency", "list")
    assert shown.lines[0].split() == ["since", "state", "tool", "tenant", "user", "call", "key"]
    assert shown.lines[1].split()[-6:] == ["unknown", "pay", "acme", "ada", first["id"], "k"]
    assert terminal("idempotency", "list", "--tenant", "globex", "--json").json == {"keys": []}
    words = ("--happened", "--output", '{"receipt": 7}') if happened else ("--did-not-happen",)
    done = terminal("idempotency", "settle", "k", *whose, *words, "--json")
    assert (done.code, done.json["call_id"], done.json["happened"]) == (0, first["id"], happened)
    again = terminal(*pay_two).json
    if happened:
        assert (again["status"], again["output"], effects(terminal)) == ("success", {"receipt": 7}, 1)
    else:
        assert (again["status"], effects(terminal)) == ("timeout", 2)


def test_settling_is_said_in_words_too(terminal: Terminal) -> None:
    for key, word, said in (
        ("a", "--happened", "✓ Settled: it happened"),
        ("b", "--did-not-happen", "✓ Settled: it did not happen"),
    ):
        terminal("call", "pay", "amount=2", "--idempotency-key", key)
        done = terminal("idempotency", "settle", key, word)
        assert (done.code, done.out.startswith(said)) == (0, True)


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        (("k",), 2),
        (("k", "--did-not-happen", "--output", "1"), 2),
        (("k", "--happened", "--output", "{"), 2),
        (("k", "--happened", "--tenant", "\n"), 2),
        (("k", "--happened"), 1),
        (("\x1b[2J", "--happened"), 1),
        (("done", "--happened"), 1),
    ],
)
@pytest.mark.sample(4)
def test_what_can_not_be_settled_is_refused_and_nothing_changes(
    terminal: Terminal, words: tuple[str, ...], exit_code: int
) -> None:
    terminal("call", "pay", "amount=1", "--idempotency-key", "done")
    before = terminal("idempotency", "list", "--state", "done", "--json").json
    done = terminal("idempotency", "settle", *words, "--json")
    assert done.code == exit_code
    assert done.json["error"]["message"]
    assert terminal("idempotency", "list", "--state", "done", "--json").json == before

"""Nested approvals under attack and in trouble: programs that are not the same twice, others who go on with what is not
theirs, two at once, and processes that die in the middle. No effect happens twice, no approval is used for anything else."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviour.nesting import LIMITED, Bench, approve, left, reject, waits
from tests.examples import at_most
from toolgate import Actor, App, InvokeContext, Outcome, tool
from toolgate.store.database import Transaction
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TIER-9")
STEPS = [["note", "one"], ["risky", "two"], ["note", "three"]]
SECONDS = 60.0


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "did.txt")


# -- programs that are not the same twice


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_program_that_calls_something_else_is_stopped_before_it_does_it(bench: Bench) -> None:
    count = 0

    @tool(tier="write")
    async def fickle(ctx: InvokeContext) -> str:
        """Writes something else each time."""
        nonlocal count
        count += 1
        await ctx.call_tool("note", text=f"number {count}")
        await ctx.call_tool("risky", text="a")
        return "done"

    @tool(tier="write")
    async def whimsical(ctx: InvokeContext) -> str:
        """Asks something else each time."""
        nonlocal count
        count += 1
        await ctx.call_tool("note", text="same")
        await ctx.call_tool("risky", text=f"number {count}")
        return "done"

    @tool(tier="write")
    async def forgetful(ctx: InvokeContext) -> str:
        """Leaves away what it did before."""
        nonlocal count
        count += 1
        if count == 1:
            await ctx.call_tool("note", text="only once")
        await ctx.call_tool("risky", text="b")
        return "done"

    async with memory_app() as app:
        bench.move_into(app).tools.register_many([fickle, whimsical, forgetful])
        for name, effects in (
            ("fickle", {"note number 1": 1}),
            ("whimsical", {"note same": 1}),
            ("forgetful", {"note only once": 1, "risky b": 1}),
        ):
            count = 0
            bench.file.unlink(missing_ok=True)
            id = waits(await app.invoke(name))
            await app.approvals.answer(id, True)
            outcome = await app.invoke(name, approval=id)
            assert outcome.error is not None and (outcome.error.details or {}).get("diverged"), outcome
            assert bench.effects == effects, name
            assert await left(app) == 0
            assert (await app.invoke(name, approval=id)).status == "denied"
            assert bench.effects == effects, name
            assert await app.approvals.list() == [] and await app.approvals.list(state="approved") == []


async def test_a_program_whose_branches_race_is_no_other_program(bench: Bench) -> None:
    """What was done before comes back at once, so the branches of a program that goes on meet in another order."""

    @tool(tier="write")
    async def slow(text: str) -> str:
        """Take a while: until the other branch has asked."""
        async with asyncio.timeout(SECONDS):
            while not await app.approvals.list():
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        with bench.file.open("a") as out:
            out.write(f"note {text}\n")
        return text

    @tool(tier="write")
    async def racing(ctx: InvokeContext) -> list[Any]:
        """Two branches."""

        async def left_branch() -> Any:
            await ctx.call_tool("slow", text="a")
            return (await ctx.call_tool("note", text="b")).output

        async def right_branch() -> Any:
            await asyncio.sleep(0.05)
            await ctx.call_tool("note", text="c")
            return (await ctx.call_tool("risky", text="d")).output

        return list(await asyncio.gather(left_branch(), right_branch()))

    async with memory_app() as app:
        bench.move_into(app).tools.register_many([slow, racing])
        id = waits(await app.invoke("racing"))
        assert bench.effects == {"note a": 1, "note c": 1}
        await app.approvals.answer(id, True)
        assert (await app.invoke("racing", approval=id)).output == ["noted b", "did d"]
        assert bench.effects == {"note a": 1, "note b": 1, "note c": 1, "risky d": 1}


# -- others


async def test_nobody_goes_on_with_what_is_not_theirs(database: str, tmp_path: Path, bench: Bench) -> None:
    async with bench.move_into(App.open(os.devnull, database_url=database, home=tmp_path, entry_points=False)) as app:
        made = await app.invoke("guarded", {"steps": STEPS}, actor=LIMITED, session="s")
        await approve(app, waits(made))
        made = await app.invoke("guarded", {"steps": STEPS}, actor=LIMITED, session="s")
        id = waits(made)
        await approve(app, id)
        before = bench.effects
        for actor, session, steps in (
            (Actor("other", user="ada"), "s", STEPS),
            (Actor("acme", user="eve"), "s", STEPS),
            (Actor("acme", "p", "ada"), "s", STEPS),
            (Actor("acme", user="ada", scopes=("more",)), "s", STEPS),
            (LIMITED, "t", STEPS),
            (LIMITED, None, STEPS),
            (LIMITED, "s", [*STEPS, ["risky", "four"]]),
        ):
            outcome = await app.invoke("guarded", {"steps": steps}, actor=actor, session=session, approval=id)
            assert outcome.status == "denied", (actor, session, steps, outcome)
        for tool_name, arguments in (("risky", {"text": "two"}), ("follow", {"steps": STEPS}), ("risky", None)):
            outcome = await app.invoke(tool_name, arguments, actor=LIMITED, session="s", approval=id)
            assert outcome.status == "denied", outcome
        assert bench.effects == before
        assert (await app.invoke("risky", {"text": "two"}, actor=LIMITED, session="s")).status == "pending", "a new question"
        assert (await app.invoke("guarded", {"steps": STEPS}, actor=LIMITED, session="s", approval=id)).ok


@pytest.mark.parametrize("died", [False, True])
async def test_what_the_local_person_began_does_not_go_on_through_another_door(
    tmp_path: Path, bench: Bench, died: bool
) -> None:
    """Not either where its process died in the middle of the inner call, so that no question waits any more."""

    def die() -> Transaction[None]:
        yield "UPDATE continuation_steps SET state = 'running' WHERE state = 'asked'", {}
        yield "UPDATE continuations SET state = 'running', process_id = 'dead'", {}

    async with bench.move_into(App.open(os.devnull, home=tmp_path, entry_points=False)) as app:
        id = waits(await app.invoke("follow", {"steps": STEPS}))
        await app.approvals.answer(id, True)
        if died:
            await app.parts.store.transact(die())
        before = bench.did
        outcome = await app.invoke("follow", {"steps": STEPS}, door="mcp")
        assert outcome.status == "denied" and "another folder" in (outcome.error.message if outcome.error else ""), outcome
        assert bench.did == before, "and its code was not run"


@pytest.mark.parametrize("changed", ["outcome = 'nonsense'", "outcome = NULL", "state = 'running'", "tool_name = 'x'"])
async def test_a_record_that_was_tampered_with_runs_nothing_twice(tmp_path: Path, bench: Bench, changed: str) -> None:
    def tamper() -> Transaction[None]:
        yield f"UPDATE continuation_steps SET {changed} WHERE state = 'done'", {}

    async with bench.move_into(App.open(os.devnull, home=tmp_path, entry_points=False)) as app:
        id = waits(await app.invoke("follow", {"steps": STEPS}))
        await app.parts.store.transact(tamper())
        await app.approvals.answer(id, True)
        await app.invoke("follow", {"steps": STEPS}, approval=id)
        assert bench.effects["note one"] == 1


async def test_a_tool_or_policy_that_changed_ends_it(tmp_path: Path, bench: Bench) -> None:
    async with bench.move_into(App.open(os.devnull, home=tmp_path, entry_points=False)) as app:
        id = waits(await app.invoke("follow", {"steps": STEPS}))
        await app.approvals.answer(id, True)
    follow = bench.tools.pop(3)

    @tool(name="follow", tier="read_only", version="2.0.0")
    async def other(ctx: InvokeContext, steps: list[list[str]]) -> Any:
        """Another one of the same name."""
        return [(await ctx.call_tool(name, text=text)).output for name, text in steps]

    assert follow is not None
    bench.tools.append(other)
    async with bench.move_into(App.open(os.devnull, home=tmp_path, entry_points=False)) as app:
        outcome = await app.invoke("follow", {"steps": STEPS}, approval=id)
        assert outcome.status == "denied" and "changed" in (outcome.error.message if outcome.error else ""), outcome
        assert bench.effects == {"note one": 1}


# -- two at once, and the dead


async def test_of_many_who_go_on_at_once_one_does(database: str, tmp_path: Path, bench: Bench) -> None:
    def opened() -> App:
        return bench.move_into(App.open(os.devnull, database_url=database, home=tmp_path, entry_points=False))

    async with opened() as first, opened() as second:
        id = waits(await first.invoke("follow", {"steps": STEPS}))
        await first.approvals.answer(id, True)
        calls = [app.invoke("follow", {"steps": STEPS}, approval=id) for app in (first, second) * 4]
        outcomes: list[Outcome] = await asyncio.gather(*calls)
        assert sum(outcome.ok for outcome in outcomes) == 1, outcomes
        assert bench.effects == {"note one": 1, "risky two": 1, "note three": 1}


CHILD = """
import asyncio, os, sys
from pathlib import Path
from toolgate import App, InvokeContext, tool
from toolgate.model import LOCAL

file, database, home, approval, where = sys.argv[1:6]

def did(what):
    with Path(file).open("a") as out:
        out.write(what + "\\n")

@tool(tier="write")
async def note(text: str) -> str:
    "Note something."
    if text == where:
        did(f"here {text}")
        await asyncio.sleep(3600)
    did(f"note {text}")
    if f"after {text}" == where:
        did(f"here {text}")
        await asyncio.sleep(3600)
    return f"noted {text}"

@tool(tier="execute")
async def risky(text: str) -> str:
    "Do something that is asked about."
    did(f"risky {text}")
    return f"did {text}"

@tool(tier="write")
async def outer(ctx: InvokeContext) -> list:
    "Call others."
    given = []
    for name, text in (("note", "a"), ("risky", "b"), ("note", "c"), ("note", "d")):
        outcome = await ctx.call_tool(name, text=text)
        given.append(outcome.output if outcome.ok else outcome.error.code)
        if f"between {text}" == where:
            did(f"here {text}")
            await asyncio.sleep(3600)
    return given

async def main():
    limits = {"lease_seconds": 2}
    async with App.open(os.devnull, database_url=database, home=home, entry_points=False, limits=limits) as app:
        app.tools.register_many([note, risky, outer])
        outcome = await app.invoke("outer", {}, approval=approval or None)
        if outcome.pending is not None:
            await app.approvals.answer(outcome.pending.id, True)
        print(outcome.to_json().decode())

asyncio.run(main())
"""


def child(bench: Bench, database: str, approval: str = "", where: str = "") -> "subprocess.Popen[str]":
    words = [sys.executable, "-c", CHILD, str(bench.file), database, str(bench.file.parent / "home"), approval, where]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def told(process: "subprocess.Popen[str]") -> dict[str, Any]:
    import json

    out, _ = process.communicate(timeout=SECONDS)
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.matrix("kills processes at each place")
@pytest.mark.parametrize(
    ("where", "ends"),
    [
        ("between b", ["noted a", "did b", "noted c", "noted d"]),
        ("c", ["noted a", "did b", "OUTCOME_UNKNOWN", "noted d"]),
        ("after c", ["noted a", "did b", "OUTCOME_UNKNOWN", "noted d"]),
        ("between d", ["noted a", "did b", "noted c", "noted d"]),
    ],
)
def test_a_process_that_is_killed_while_it_goes_on_leaves_nothing_to_be_done_twice(
    database: str, bench: Bench, where: str, ends: list[str]
) -> None:
    waiting = told(child(bench, database))
    id = waiting["pending"]["id"]
    dying = child(bench, database, id, where)
    deadline = time.monotonic() + SECONDS
    while not any(line.startswith("here") for line in bench.did):
        assert dying.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    dying.send_signal(signal.SIGKILL)
    dying.communicate()
    deadline = time.monotonic() + SECONDS
    while True:
        outcome = told(child(bench, database, id))
        busy = (outcome["error"] or {}).get("code") == "IDEMPOTENCY_CONFLICT"  # until its process counts as dead
        if not busy:
            break
        assert time.monotonic() < deadline, outcome
    assert outcome["status"] == "success" and outcome["output"] == ends, outcome
    assert max(bench.effects.values()) == 1, bench.did


# -- any program

CALLS = st.lists(st.tuples(st.sampled_from(["note", "risky", "peek"]), st.sampled_from("abc")), max_size=4)
PROGRAMS = st.recursive(
    CALLS.map(lambda calls: ("calls", calls)),
    lambda inner: st.tuples(st.sampled_from(["one by one", "together", "inside"]), st.lists(inner, max_size=3)),
    max_leaves=6,
)


async def run_part(ctx: InvokeContext, part: Any) -> None:
    kind, parts = part
    if kind == "calls":
        for name, text in parts:
            await ctx.call_tool(name, text=text)
    elif kind == "together":
        await asyncio.gather(*(run_part(ctx, one) for one in parts))
    else:
        for one in parts:
            await (ctx.call_tool("nest", part=one) if kind == "inside" else run_part(ctx, one))


@tool(tier="write")
async def nest(ctx: InvokeContext, part: list[Any]) -> str:
    """Run a program."""
    await run_part(ctx, part)
    return "done"


def wanted(part: Any) -> list[str]:
    """The effects that a program has if nobody refuses one."""
    kind, parts = part
    if kind == "calls":
        return [f"{name} {text}" for name, text in parts if name != "peek"]
    return [one for inner in parts for one in wanted(inner)]


@at_most(40)
@given(program=PROGRAMS, answers=st.lists(st.booleans(), max_size=30))
async def test_any_program_has_each_of_its_effects_once(tmp_path: Path, program: Any, answers: list[bool]) -> None:
    """Programs of calls one after the other, side by side and inside others; each question is answered by chance, and what
    was approved, or needs no approval, is done exactly as often as the program says."""
    bench = Bench(tmp_path / "did.txt")
    bench.file.unlink(missing_ok=True)
    refused: list[str] = []
    replies = iter(answers)
    async with memory_app() as app:
        bench.move_into(app).register(nest)
        outcome = await app.invoke("nest", {"part": program})
        for _ in range(60):
            if outcome.status != "pending":
                break
            id = waits(outcome)
            if next(replies, True):
                await app.approvals.answer(id, True)
            else:
                refused.append(f"risky {(await app.parts.consent.questions.show(id, 'default')).request.arguments['text']}")
                await reject(app, id, Actor())
            outcome = await app.invoke("nest", {"part": program}, approval=id)
        assert outcome.output == "done", outcome
        assert sorted([*bench.effects.elements(), *refused]) == sorted(wanted(program))
        assert await left(app) == 0

"""What is kept of a call besides its records: what each gate said, how long each took, and what was given out."""

import asyncio
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from toolgate import Actor, App, Hook, InvokeContext, Retry, ToolError, tool
from toolgate.gates.ledger.details import CallDetails
from toolgate.store.database import LogRow, Transaction
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("AUD-6")
ADA = Actor(tenant="acme", user="ada")
ALL: dict[str, Any] = {"details": {"rules": [{"keep": "output"}]}}
Opened = Callable[..., AbstractAsyncContextManager[App]]


@tool(tier="read_only")
async def look(where: str) -> dict[str, str]:
    """Look."""
    return {"seen": where}


@tool(tier="write")
async def put(what: int) -> int:
    """Put."""
    return what


@tool(tier="execute")
async def run(what: int) -> int:
    """Run."""
    return what


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Opens an App on a database that stays the same in a test."""
    url = None if request.param == "sqlite" else request.getfixturevalue("postgres_database")

    def open_app(**audit: Any) -> App:
        app = App.open(home=tmp_path / "home", database_url=url, audit={"details": audit})
        app.tools.register_many((look, put, run))
        return app

    return open_app


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app(audit=ALL) as opened:
        opened.tools.register_many((look, put, run))
        yield opened


async def only(app: App, call_id: str) -> CallDetails:
    (found,) = await app.audit.details(call_id)
    return found


def gates(details: CallDetails) -> list[str]:
    return [stage["gate"] for stage in details.stages]


# -- what is kept, and of what


async def test_nothing_is_kept_unless_a_rule_says_so(opened: Opened) -> None:
    async with opened() as app:
        outcome = await app.invoke("look", {"where": "there"})
        assert await app.audit.details(outcome.id) == ()


async def test_stages_and_output_are_kept_with_the_record(opened: Opened) -> None:
    async with opened(rules=[{"keep": "output"}]) as app:
        outcome = await app.invoke("look", {"where": "there"})
        found = await only(app, outcome.id)
    assert (found.state, found.output, found.output_bytes) == ("kept", {"seen": "there"}, len('{"seen":"there"}'))
    assert gates(found) == ["catalog", "policy", "input", "redaction", "start record", "execute", "output", "masking"]
    assert [stage["verdict"] for stage in found.stages] == ["pass"] * len(found.stages)
    assert found.stages[1]["reason"] == "look is enabled"
    starts = [stage["start_ms"] for stage in found.stages]
    assert starts == sorted(starts)
    assert sum(stage["ms"] for stage in found.stages) == pytest.approx(outcome.metrics.duration_ms, abs=0.01)


async def test_the_first_rule_that_matches_decides_by_tool_and_tier(opened: Opened) -> None:
    rules = [{"tool": "look", "keep": "nothing"}, {"tool": "pu*", "keep": "output"}, {"tier": "execute"}]
    async with opened(rules=rules) as app:
        looked = await app.invoke("look", {"where": "there"})
        written = await app.invoke("put", {"what": 1})
        ran = await app.invoke("run", {"what": 1})
        assert await app.audit.details(looked.id) == ()
        assert (await only(app, written.id)).output == 1
        assert (await only(app, ran.id)).output_bytes is None


async def test_details_are_for_who_may_see_the_record(app: App) -> None:
    outcome = await app.invoke("look", {"where": "there"}, actor=ADA)
    assert await app.audit.details(outcome.id, tenant="globex") == ()
    assert (await app.audit.details(outcome.id, tenant="acme"))[0].state == "kept"


async def test_an_output_is_kept_as_it_was_given_out_whatever_its_caller_does_with_it(app: App) -> None:
    outcome = await app.invoke("look", {"where": "there"})
    outcome.output["seen"] = "elsewhere"
    assert (await only(app, outcome.id)).output == {"seen": "there"}


async def test_of_a_large_output_the_beginning_is_kept() -> None:
    rules = {"details": {"rules": [{"keep": "output"}], "output_bytes": 64}}
    async with memory_app(audit=rules) as app:
        app.register(look)
        outcome = await app.invoke("look", {"where": "über " * 1000})
        found = await only(app, outcome.id)
    assert found.output is None
    assert found.output_beginning is not None
    assert found.output_beginning.startswith('{"seen":"über über')
    assert len(found.output_beginning.encode()) <= 64
    assert found.output_bytes == len('{"seen":""}') + len("über ".encode()) * 1000


# -- where a call ended


async def test_a_denied_call_says_at_which_gate_and_why() -> None:
    @tool(tier="read_only", requires_permission="tool:post")
    async def post(text: str) -> str:
        """Post."""
        return text

    async with memory_app(audit=ALL) as app:
        app.register(post)
        outcome = await app.invoke("post", {"text": "x"}, actor=ADA)
        found = await only(app, outcome.id)
    assert outcome.status == "denied"
    assert gates(found) == ["catalog", "policy"]
    assert (found.stages[-1]["verdict"], found.stages[-1]["code"]) == ("deny", "PERMISSION_DENIED")
    assert found.stages[-1]["reason"].startswith("post needs the permission tool:post")
    assert found.output_bytes is None


async def test_a_hidden_tool_leaves_as_little_behind_as_a_missing_one(app: App) -> None:
    await app.tools.set_enabled("look", False, tenant="acme")
    hidden = await app.invoke("look", {"where": "x"}, actor=ADA)
    missing = await app.invoke("nothing", {"where": "x"}, actor=ADA)
    assert [one.error.code for one in (hidden, missing) if one.error] == ["TOOL_NOT_FOUND"] * 2
    assert await app.audit.details(hidden.id) == await app.audit.details(missing.id) == ()


async def test_invalid_arguments_end_at_the_input(app: App) -> None:
    outcome = await app.invoke("look", {"were": "x"})
    last = (await only(app, outcome.id)).stages[-1]
    assert (last["gate"], last["verdict"], last["code"]) == ("input", "fail", "VALIDATION_ERROR")


async def test_a_pending_call_asks_and_the_resumed_one_says_who_agreed(app: App) -> None:
    asked = await app.invoke("run", {"what": 1}, actor=ADA)
    last = (await only(app, asked.id)).stages[-1]
    assert (last["gate"], last["verdict"], last["code"]) == ("consent", "ask", "APPROVAL_REQUIRED")
    assert asked.pending is not None
    await app.approvals.answer(asked.pending.id, True, actor=Actor("acme", user="bob"))
    done = await app.invoke("run", {"what": 1}, actor=ADA, approval=asked.pending.id)
    assert done.ok
    consent = next(stage for stage in (await only(app, done.id)).stages if stage["gate"] == "consent")
    assert consent["verdict"] == "pass"
    assert "bob" in consent["reason"]


async def test_an_answer_out_of_the_cache_ends_there(app: App) -> None:
    @tool(tier="read_only", cache=60)
    async def slow(what: int) -> int:
        """Slow."""
        return what

    app.register(slow)
    first, second = [await app.invoke("slow", {"what": 1}) for _ in range(2)]
    assert "execute" in gates(await only(app, first.id))
    found = await only(app, second.id)
    assert (gates(found)[-1], found.stages[-1]["reason"], found.output) == ("cache", "answered from the cache", 1)


async def test_a_repeated_key_says_that_the_outcome_is_the_first_one(app: App) -> None:
    first, second = [await app.invoke("put", {"what": 1}, idempotency_key="k") for _ in range(2)]
    assert "execute" in gates(await only(app, first.id))
    found = await only(app, second.id)
    last = found.stages[-1]
    assert (last["gate"], last["reason"]) == ("idempotency", "answered with the first outcome of its key")
    assert found.output == 1


async def test_a_forbidden_file_ends_at_the_screening(app: App) -> None:
    outcome = await app.invoke("read_file", {"path": "/etc/shadow"})
    last = (await only(app, outcome.id)).stages[-1]
    assert (last["gate"], last["verdict"], last["code"]) == ("screening", "deny", "SECURITY_VIOLATION")


async def test_every_attempt_has_its_time_and_its_error(app: App) -> None:
    tries: list[int] = []

    @tool(tier="read_only", retry=Retry(max_attempts=3, backoff_ms=10))
    async def flaky() -> str:
        """Works the second time."""
        tries.append(1)
        if len(tries) < 2:
            raise ToolError("not yet", code="CONNECTION_ERROR")
        return "done"

    app.register(flaky)
    outcome = await app.invoke("flaky")
    found = await only(app, outcome.id)
    tried = [stage for stage in found.stages if stage["gate"] in ("execute", "retry wait")]
    assert [stage["gate"] for stage in tried] == ["execute", "retry wait", "execute"]
    assert [stage.get("attempt") for stage in tried] == [1, None, 2]
    assert (tried[0]["verdict"], tried[0]["code"], tried[2]["verdict"]) == ("fail", "CONNECTION_ERROR", "pass")
    assert tried[1]["ms"] >= 4


async def test_calls_inside_a_call_have_details_of_their_own(app: App) -> None:
    inner: list[str] = []

    @tool(tier="read_only")
    async def outer(ctx: InvokeContext) -> Any:
        """Calls another."""
        outcome = await ctx.call_tool("look", where="inside")
        inner.append(outcome.id)
        return outcome.output

    app.register(outer)
    outcome = await app.invoke("outer")
    assert (await only(app, outcome.id)).output == {"seen": "inside"}
    assert (await only(app, inner[0])).output == {"seen": "inside"}


async def test_a_caller_that_goes_away_leaves_what_was_passed_until_then(app: App) -> None:
    begun = asyncio.Event()
    ids: list[str] = []

    @tool(tier="read_only")
    async def wait(ctx: InvokeContext) -> None:
        """Wait."""
        ids.append(ctx.id)
        begun.set()
        await asyncio.sleep(60)

    app.register(wait)
    call = asyncio.ensure_future(app.invoke("wait"))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    last = (await only(app, ids[0])).stages[-1]
    assert (last["gate"], last["verdict"], last["code"]) == ("execute", "fail", "CANCELLED")


# -- hooks


async def test_the_time_of_hooks_is_told_apart(app: App) -> None:
    class Slow(Hook):
        async def will_authorize(self, ctx: InvokeContext) -> None:  # noqa: ARG002 - as every hook
            await asyncio.sleep(0.02)

        async def around_execute(self, ctx: InvokeContext, inner: Any) -> Any:  # noqa: ARG002 - as every hook
            return await inner()

    app.add_hook(Slow())
    found = await only(app, (await app.invoke("look", {"where": "x"})).id)
    policy = next(stage for stage in found.stages if stage["gate"] == "policy")
    assert policy["hooks_ms"] >= 19
    assert policy["ms"] < policy["hooks_ms"]
    at = gates(found).index("execute")
    assert gates(found)[at - 1 : at + 2] == ["around hooks", "execute", "around hooks"]


async def test_a_hook_that_raises_is_named_at_its_gate(app: App) -> None:
    class Broken(Hook):
        def will_validate_input(self, ctx: InvokeContext) -> None:  # noqa: ARG002 - as every hook
            raise RuntimeError("no")

    app.add_hook(Broken())
    last = (await only(app, (await app.invoke("look", {"where": "x"})).id)).stages[-1]
    assert (last["gate"], last["verdict"], last["code"]) == ("input", "fail", "UNEXPECTED_ERROR")
    assert "Broken failed at will_validate_input" in last["reason"]


async def test_a_hook_that_answers_is_named_at_its_gate(app: App) -> None:
    class Answers(Hook):
        def will_authorize(self, ctx: InvokeContext) -> None:
            ctx.respond({"seen": "nothing"})

    app.add_hook(Answers())
    outcome = await app.invoke("look", {"where": "x"})
    found = await only(app, outcome.id)
    assert (gates(found), found.output) == (["catalog", "policy", "output", "masking"], {"seen": "nothing"})
    assert found.stages[1]["reason"] == "a hook at will_authorize ended it here"


async def test_marks_are_no_hooks(app: App) -> None:
    """A call without hooks runs on its own arguments, also if its stages are kept."""
    hooked: list[bool] = []

    @tool(tier="read_only")
    async def peek(ctx: InvokeContext) -> None:
        """Peek."""
        hooked.append(ctx.hooked)

    app.register(peek)
    await app.invoke("peek")
    app.add_hook(type("Counts", (Hook,), {"will_execute": lambda _self, _ctx: None})())
    await app.invoke("peek")
    assert hooked == [False, True]


@pytest.mark.parametrize("marks", [None, (), [1, "x"], [("will_execute", "when")]], ids=repr)
async def test_a_hook_that_meddles_with_the_marks_does_not_cost_the_record(app: App, marks: Any) -> None:
    class Meddles(Hook):
        def will_transform_output(self, ctx: InvokeContext) -> None:
            ctx.marks = marks

    app.add_hook(Meddles())
    outcome = await app.invoke("look", {"where": "x"})
    assert await app.audit.details(outcome.id) == ()
    assert [record[2] for record in await app.audit.of_call(outcome.id)] == ["start", "end"]


async def test_the_hooks_of_one_call_have_their_time_too(app: App) -> None:
    class Slow(Hook):
        async def will_authorize(self, ctx: InvokeContext) -> None:  # noqa: ARG002 - as every hook
            await asyncio.sleep(0.02)

    outcome = await app.invoke("look", {"where": "x"}, hooks=[Slow()])
    policy = next(stage for stage in (await only(app, outcome.id)).stages if stage["gate"] == "policy")
    assert policy["hooks_ms"] >= 19


# -- secrets


@pytest.fixture
async def with_secret(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    monkeypatch.setenv("TOOLGATE_SECRET_SESAME", "open-sesame-42")

    @tool(tier="read_only")
    async def mirror(value: str) -> dict[str, str]:
        """Say it back."""
        return {"said": f"so: {value}"}

    use = {"use": {"SESAME": [{"tool": "mirror", "tenant": "*"}]}}
    async with memory_app(audit=ALL, secrets=use) as app:
        app.register(mirror)
        yield app


async def test_the_kept_output_is_masked_as_the_one_that_was_given_out(with_secret: App) -> None:
    outcome = await with_secret.invoke("mirror", {"value": "{{secret:SESAME}}"})
    found = await only(with_secret, outcome.id)
    assert outcome.output == found.output == {"said": "so: [REDACTED]"}


async def test_a_secret_that_a_hook_puts_back_is_not_kept(with_secret: App) -> None:
    class Unmasks(Hook):
        def will_transform_output(self, ctx: InvokeContext) -> None:
            ctx.output = {"said": "so: open-sesame-42"}

    with_secret.add_hook(Unmasks())
    outcome = await with_secret.invoke("mirror", {"value": "{{secret:SESAME}}"})
    found = await only(with_secret, outcome.id)
    assert found.output == {"said": "so: [REDACTED]"}


# -- retention, and what can be told of details that are gone


async def test_details_that_are_too_old_are_removed_and_the_record_says_so(opened: Opened) -> None:
    async with opened(rules=[{"keep": "stages"}]) as app:
        outcome = await app.invoke("put", {"what": 1})
    async with opened(rules=[{"keep": "stages"}], days=1e-9) as app:
        await app.audit.prune_details()
        assert (await only(app, outcome.id)).state == "pruned"
        assert (await app.audit.verify()).ok


async def test_beyond_the_total_size_the_oldest_go_first(opened: Opened) -> None:
    async with opened(rules=[{"keep": "output"}], total_bytes=10_000) as app:
        outcomes = [await app.invoke("look", {"where": "x" * 1000}) for _ in range(20)]
        await app.flush()
        await app.audit.prune_details()  # those that the App itself has not removed by now
        states = [(await only(app, outcome.id)).state for outcome in outcomes]
        kept = states.count("kept")
        assert states == ["pruned"] * (20 - kept) + ["kept"] * kept
        assert 3 <= kept <= 8
        assert await app.audit.prune_details() == 0


async def test_details_that_somebody_changed_or_removed_are_not_shown_and_told(opened: Opened) -> None:
    def tamper(sql: str, seq: int) -> Transaction[None]:
        yield sql, {"seq": seq}

    async with opened(rules=[{"keep": "output"}]) as app:
        outcomes = [await app.invoke("put", {"what": what}) for what in range(3)]
        _, second, third = [(await only(app, outcome.id)).seq for outcome in outcomes]
        await app.parts.store.transact(tamper("UPDATE call_details SET content = '{}' WHERE seq = :seq", second))
        await app.parts.store.transact(tamper("DELETE FROM call_details WHERE seq = :seq", third))
        found = [await only(app, outcome.id) for outcome in outcomes]
    assert [one.state for one in found] == ["kept", "changed", "removed"]
    assert [one.stages for one in found[1:]] == [(), ()]


async def test_verify_says_whose_details_were_altered_or_removed_too_early(opened: Opened) -> None:
    def tamper(sql: str, seq: int) -> Transaction[None]:
        yield sql, {"seq": seq}

    async with opened(rules=[{"keep": "output"}]) as app:
        outcomes = [await app.invoke("put", {"what": what}) for what in range(4)]
        first, second, third, _ = [(await only(app, outcome.id)).seq for outcome in outcomes]
        assert (await app.audit.verify()).ok
        await app.parts.store.transact(tamper("UPDATE call_details SET content = '{}' WHERE seq = :seq", second))
        await app.parts.store.transact(tamper("DELETE FROM call_details WHERE seq IN (:seq)", third))
        assert (await app.audit.verify()).faults == [
            f"the details of call {outcomes[1].id} (row {second}) are not what was written",
            f"the details of call {outcomes[2].id} (row {third}) are missing, and not yet due by audit.details",
        ]
        await app.parts.store.transact(tamper("DELETE FROM call_details WHERE seq <= :seq", first))
        assert f"the details of call {outcomes[0].id} (row {first}) are missing" in (await app.audit.verify()).faults[1]


async def test_verify_names_details_that_no_record_names(opened: Opened) -> None:
    def plant(seq: int) -> Transaction[None]:
        sql = "INSERT INTO call_details (seq, at, total, content) VALUES (:seq, 4102444800000000, 0, '{}')"
        yield sql, {"seq": seq}

    @tool(tier="execute")
    async def ask(what: dict[str, str]) -> int:
        """Ask."""
        return len(what)

    async with opened(rules=[{"tool": "ask", "keep": "nothing"}, {"keep": "output"}]) as app:
        app.tools.register(ask)
        kept = await app.invoke("put", {"what": 1})
        waits = await app.invoke("ask", {"what": {"details_sha256": "what a caller says is no name of details"}})
        await app.flush()
        [last] = [seq for seq, _, kind, *_ in await app.audit.of_call(waits.id) if kind == "end"]
        start = (await only(app, kept.id)).seq - 1
        for seq in (-3, start, last, last + 500):
            await app.parts.store.transact(plant(seq))
        assert (await app.audit.verify()).faults == [
            f"the details of call {waits.id} (row {last}) are not what was written",
            *(
                f"somebody added details for row {seq}, which is no end record that names any"
                for seq in (-3, start, last + 500)
            ),
        ]


async def test_verify_says_nothing_of_details_that_retention_removed(opened: Opened) -> None:
    async with opened(rules=[{"keep": "output"}], total_bytes=10_000) as app:
        for _ in range(20):
            await app.invoke("look", {"where": "x" * 1000})
        await app.flush()
        await app.audit.prune_details()
        assert (await app.audit.verify()).ok, "beyond the size"
    async with opened(days=1e-9) as app:
        await app.audit.prune_details()
        assert (await app.audit.verify()).ok, "too old"


async def test_verify_keeps_no_list_of_all_that_retention_removed() -> None:
    class Ended:
        def row(self) -> LogRow:
            return 1, "end", f"call-{id(self)}", "acme", "look", "success", b'{"details_sha256":"00"}'

    async with memory_app(audit=ALL) as app:
        for _ in range(20_000):
            app.parts.store.append(Ended())
        await app.flush()
        tracemalloc.start()
        try:
            assert await app.parts.details.faults() == []
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_a_process_that_dies_during_a_call_leaves_a_start_and_no_details(tmp_path: Path) -> None:
    program = """
        import asyncio, os, signal
        from toolgate import App, InvokeContext, tool

        @tool(tier="write")
        async def die(ctx: InvokeContext) -> None:
            "Dies."
            print(ctx.id, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        async def main() -> None:
            async with App.open("/dev/null", home="home", audit={"details": {"rules": [{"keep": "output"}]}}) as app:
                app.register(die)
                await app.invoke("die")

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)], cwd=tmp_path, env=os.environ, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr

    async def look_again() -> None:
        async with App.open("/dev/null", home=tmp_path / "home") as app:
            assert await app.audit.details(done.stdout.decode().strip()) == ()
            assert (await app.audit.verify()).ok

    asyncio.run(look_again())

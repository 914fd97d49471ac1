"""Jobs: calls and other work in the background."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from toolgate import Actor, App, InvokeContext, tool
from toolgate.errors import CallError, Failed
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.jobs.handlers import JobContext, PermanentFailure, job_handler
from toolgate.jobs.job import Job
from toolgate.model import NANO, Cost, new_id

pytestmark = pytest.mark.requirement("JOB-1")
ADA, EVE, OTHER = Actor("acme", "analyst", "ada"), Actor("acme", "analyst", "eve"), Actor("other", "analyst", "ada")
SOON = 20
QUICKLY = {"backoff_seconds": 0.01, "max_backoff_seconds": 0.02}
ENGINE: dict[str, Any] = {}
"""The settings of the engine that a test is run on, and the folder of its database."""


@pytest.fixture(autouse=True, params=["store", "dbos"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    if request.param == "dbos":
        ENGINE.update(name="dbos", folder=tmp_path)
    yield
    ENGINE.clear()


@asynccontextmanager
async def opened(database: str | None = None, home: Path | None = None, **settings: Any) -> AsyncIterator[App]:
    place: dict[str, Any] = {"database_url": database or "memory://", **({} if home is None else {"home": home})}
    jobs = settings.pop("jobs", QUICKLY)
    if ENGINE:  # it needs a file
        jobs = {**jobs, "engine": ENGINE["name"]}
        if database is None:
            place = {"database_url": f"sqlite:///{ENGINE['folder'] / new_id()}.db", "home": ENGINE["folder"]}
    async with App.open(**{"entry_points": False, "jobs": jobs, **place, **settings}) as app:
        yield app


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Shop:
    """Tools whose effects are counted."""

    def __init__(self) -> None:
        self.sold: list[str] = []
        self.failures = 0
        self.begun = asyncio.Event()
        self.enough = asyncio.Event()

    def move_into(self, app: App) -> None:
        @tool(tier="write")
        async def sell(what: str) -> str:
            """Sell something."""
            self.sold.append(what)
            return f"sold {what}"

        @tool(tier="read_only")
        async def fetch(what: str) -> str:
            """Fetch something that is not always there."""
            if self.failures:
                self.failures -= 1
                raise ConnectionError("nobody is there")
            return what

        @tool(tier="execute")
        async def tidy(room: str) -> str:
            """Tidy a room."""
            self.sold.append(room)
            return room

        @tool(tier="write")
        async def slow(what: str) -> str:
            """Take long."""
            self.begun.set()
            await self.enough.wait()
            self.sold.append(what)
            return what

        @tool(tier="write", cost=Cost(fixed="0.40"))
        async def pay(what: str) -> str:
            """Cost money."""
            self.sold.append(what)
            return what

        @tool(tier="write", background=True)
        async def later(what: str) -> str:
            """Always run in the background."""
            self.sold.append(what)
            return what

        app.tools.register_many([add, sell, fetch, tidy, slow, pay, later])


async def over(app: App, id: str, actor: Actor = ADA) -> Job:
    job = await app.jobs.wait(id, SOON, actor=actor)
    assert job.is_over, job
    return job


async def in_state(app: App, id: str, state: str, actor: Actor = ADA) -> Job:
    async with asyncio.timeout(SOON):
        while (job := await app.jobs.get(id, actor=actor)).state != state:
            await asyncio.sleep(0.01)
    return job


# -- calls of tools


async def test_a_call_is_queued_and_its_outcome_is_the_result_of_its_job(database: str, tmp_path: Path) -> None:
    async with opened(database, tmp_path) as app:
        app.register(add)
        queued = await app.enqueue("add", {"a": 1, "b": 2}, actor=ADA)
        assert (queued.status, queued.error, queued.pending and queued.pending.kind) == ("pending", None, "job")
        assert queued.pending is not None
        assert (await app.jobs.get(queued.pending.id, actor=ADA)).state == "queued"
        async with app.jobs.worker():
            job = await over(app, queued.pending.id)
        assert (job.state, job.result["status"], job.result["output"], job.error) == ("done", "success", 3, None)
        assert job.payload["arguments"] == {"a": 1, "b": 2}


async def test_a_job_survives_the_process_that_queued_it(database: str, tmp_path: Path) -> None:
    shop = Shop()
    async with opened(database, tmp_path) as app:
        shop.move_into(app)
        queued = await app.enqueue("sell", {"what": "tea"}, actor=ADA)
    assert shop.sold == [] and queued.pending is not None
    async with opened(database, tmp_path) as app:
        shop.move_into(app)
        await app.jobs.run_all()
        assert (await app.jobs.get(queued.pending.id, actor=ADA)).state == "done"
    assert shop.sold == ["tea"]


async def test_wrong_arguments_unknown_tools_and_denied_calls_are_not_queued() -> None:
    async with opened() as app:
        app.register(add)
        for name, arguments, code in (("add", {"a": "x"}, "VALIDATION_ERROR"), ("nothing", {}, "TOOL_NOT_FOUND")):
            outcome = await app.enqueue(name, arguments, actor=ADA)
            assert outcome.error is not None and outcome.error.code == code and outcome.pending is None
        assert await app.jobs.list(actor=ADA) == []


async def test_a_tool_can_be_marked_to_always_run_so() -> None:
    shop = Shop()
    async with opened() as app:
        shop.move_into(app)
        outcome = await app.invoke("later", {"what": "tea"}, actor=ADA)
        assert outcome.pending is not None and outcome.pending.kind == "job" and shop.sold == []
        await app.jobs.run_all()
        assert shop.sold == ["tea"]


@pytest.mark.requirement("JOB-4")
async def test_the_same_key_is_the_same_job_and_has_one_effect() -> None:
    shop = Shop()
    async with opened() as app:
        shop.move_into(app)
        first = await app.enqueue("sell", {"what": "tea"}, actor=ADA, idempotency_key="k")
        again = await app.enqueue("sell", {"what": "tea"}, actor=ADA, idempotency_key="k")
        assert first.pending == again.pending
        other = await app.enqueue("sell", {"what": "milk"}, actor=ADA, idempotency_key="k")
        assert other.error is not None and other.error.code == "IDEMPOTENCY_CONFLICT"
        eves = await app.enqueue("sell", {"what": "tea"}, actor=EVE, idempotency_key="k")
        assert eves.pending is not None and eves.pending != first.pending
        await app.jobs.run_all()
        assert shop.sold == ["tea", "tea"]
        known = await app.enqueue("sell", {"what": "tea"}, actor=ADA, idempotency_key="k")
        assert (known.status, known.output, known.metrics.cached) == ("success", "sold tea", True)


async def test_what_a_person_must_agree_to_waits_and_is_queued_when_they_have() -> None:
    shop = Shop()
    async with opened() as app:
        shop.move_into(app)
        queued = await app.enqueue("tidy", {"room": "kitchen"}, actor=ADA)
        assert queued.error is not None and queued.error.code == "APPROVAL_REQUIRED"
        assert queued.pending is not None and queued.pending.kind == "job"
        async with app.jobs.worker():
            assert (await app.jobs.get(queued.pending.id, actor=ADA)).state == "waiting"
            [waiting] = await app.approvals.list(actor=ADA)
            await app.approvals.answer(waiting.request.id, True, actor=EVE)
            job = await over(app, queued.pending.id)
        assert (job.state, shop.sold) == ("done", ["kitchen"])


async def test_a_no_is_the_end_of_a_job_and_nothing_runs() -> None:
    shop = Shop()
    async with opened() as app:
        shop.move_into(app)
        queued = await app.enqueue("tidy", {"room": "kitchen"}, actor=ADA)
        assert queued.pending is not None
        [waiting] = await app.approvals.list(actor=ADA)
        await app.approvals.answer(waiting.request.id, False, actor=EVE)
        async with app.jobs.worker():
            job = await over(app, queued.pending.id)
        assert job.state == "failed" and job.error is not None and job.error.code == "USER_CANCELLED"
        assert shop.sold == []


async def test_money_is_reserved_when_a_call_is_queued_and_counted_once() -> None:
    shop = Shop()
    async with opened() as app:
        shop.move_into(app)
        await app.budgets.set(new_budget("day", NANO, tenant="acme"))
        queued = [await app.enqueue("pay", {"what": str(number)}, actor=ADA) for number in range(3)]
        assert [outcome.status for outcome in queued] == ["pending", "pending", "denied"]
        await app.jobs.run_all()
        assert sorted(shop.sold) == ["0", "1"]
        refused = await app.enqueue("pay", {"what": "again"}, actor=ADA)
        assert refused.error is not None and refused.error.code == "BUDGET_EXCEEDED"


async def test_hooks_at_the_quota_run_once_when_it_is_taken() -> None:
    seen: list[tuple[str, bool]] = []

    class Watch:
        async def will_acquire_quota(self, ctx: InvokeContext) -> None:
            seen.append(("acquire", ctx.call.job is not None))

        async def did_release_quota(self, ctx: InvokeContext) -> None:
            seen.append(("release", ctx.call.job is not None))

    shop = Shop()
    async with opened() as app:
        shop.move_into(app)
        app.add_hook(Watch())
        queued = await app.enqueue("pay", {"what": "tea"}, actor=ADA)
        assert queued.pending is not None and seen == [("acquire", False)]
        await app.jobs.run_all()
        assert shop.sold == ["tea"] and seen == [("acquire", False), ("release", True)]


async def test_a_job_that_is_cancelled_gives_its_money_back() -> None:
    shop = Shop()
    async with opened() as app:
        shop.move_into(app)
        await app.budgets.set(new_budget("day", NANO // 2, tenant="acme"))
        first = await app.enqueue("pay", {"what": "one"}, actor=ADA)
        assert first.pending is not None
        assert (await app.enqueue("pay", {"what": "two"}, actor=ADA)).status == "denied"
        assert (await app.jobs.cancel(first.pending.id, actor=ADA)).state == "cancelled"
        second = await app.enqueue("pay", {"what": "two"}, actor=ADA)
        assert second.status == "pending"
        await app.jobs.run_all()
        assert shop.sold == ["two"]


async def test_a_running_job_is_cancelled() -> None:
    shop = Shop()
    async with opened() as app:
        shop.move_into(app)
        queued = await app.enqueue("slow", {"what": "tea"}, actor=ADA)
        assert queued.pending is not None
        async with app.jobs.worker():
            await asyncio.wait_for(shop.begun.wait(), SOON)
            await app.jobs.cancel(queued.pending.id, actor=ADA)
            job = await over(app, queued.pending.id)
        assert job.state == "cancelled" and shop.sold == []


async def test_a_worker_that_stops_waits_for_what_runs() -> None:
    shop = Shop()
    async with opened() as app:
        shop.move_into(app)
        queued = await app.enqueue("slow", {"what": "tea"}, actor=ADA)
        assert queued.pending is not None
        async with app.jobs.worker():
            await asyncio.wait_for(shop.begun.wait(), SOON)
            asyncio.get_running_loop().call_later(0.05, shop.enough.set)
        assert (await app.jobs.get(queued.pending.id, actor=ADA)).state == "done" and shop.sold == ["tea"]


async def test_a_call_that_failed_for_a_passing_reason_is_made_again_and_one_with_an_effect_is_not() -> None:
    shop = Shop()
    async with opened() as app:
        shop.move_into(app)

        @tool(tier="write")
        async def break_it() -> None:
            """Fail after an effect."""
            shop.sold.append("broken")
            raise ConnectionError("it broke in the middle")

        app.register(break_it)
        shop.failures = 2
        ids = [(await app.enqueue(*call, actor=ADA)).pending for call in (("fetch", {"what": "tea"}), ("break_it", {}))]
        async with app.jobs.worker():
            fetched, broken = [await over(app, pending.id) for pending in ids if pending is not None]
        assert (fetched.state, fetched.attempts, fetched.result["output"]) == ("done", 2, "tea")
        assert broken.state == "failed" and shop.sold == ["broken"]


# -- jobs of other types


async def test_a_handler_is_given_the_payload_and_its_result_is_kept(database: str, tmp_path: Path) -> None:
    @job_handler("count_words", schema={"type": "object", "required": ["text"]})
    async def count_words(ctx: JobContext) -> dict[str, Any]:
        await ctx.progress(1, 2, "half")
        return {"words": len(ctx.payload["text"].split()), "for": ctx.actor.user}

    async with opened(database, tmp_path) as app:
        app.jobs.add_handler(count_words)
        job = await app.jobs.enqueue("count_words", {"text": "one two three"}, actor=ADA)
        await app.jobs.run_all()
        job = await app.jobs.get(job.id, actor=ADA)
        assert (job.state, job.result) == ("done", {"words": 3, "for": "ada"})
        assert job.progress is not None and job.progress.message == "half"


async def test_a_payload_that_does_not_fit_is_refused_and_one_that_no_longer_fits_fails_and_is_kept() -> None:
    async def nothing(_ctx: JobContext) -> None:
        """Do nothing."""

    async with opened() as app:
        handlers = app.parts.jobs.handlers
        handlers.add("mail", nothing)
        with pytest.raises(CallError, match="unknown"):
            await app.jobs.enqueue("male", {}, actor=ADA)
        kept = await app.jobs.enqueue("mail", {"to": 7}, actor=ADA)
        del handlers._types["mail"]
        handlers.add("mail", nothing, schema={"type": "object", "properties": {"to": {"type": "string"}}})
        with pytest.raises(CallError, match="payload of a job of type mail is wrong: to: "):
            await app.jobs.enqueue("mail", {"to": 7}, actor=ADA)
        await app.jobs.run_all()
        job = await app.jobs.get(kept.id, actor=ADA)
        assert job.state == "failed" and job.error is not None and "take now" in job.error.message
        assert job.payload == {"to": 7}


async def test_attempts_end_and_a_person_can_have_it_tried_again() -> None:
    tries: list[int] = []

    async def sometimes(ctx: JobContext) -> str:
        tries.append(ctx.attempt)
        if len(tries) < 5:
            raise RuntimeError("not yet")
        return "now"

    async with opened() as app:
        app.parts.jobs.handlers.add("sometimes", sometimes, max_attempts=3)
        job = await app.jobs.enqueue("sometimes", {}, actor=ADA)
        async with app.jobs.worker():
            failed = await over(app, job.id)
            assert (failed.state, failed.attempts, tries) == ("failed", 3, [1, 2, 3])
            assert failed.error is not None and "not yet" in failed.error.message
            await app.jobs.retry(job.id, actor=ADA)
            done = await over(app, job.id)
        assert (done.state, done.result, len(tries)) == ("done", "now", 5)
        with pytest.raises(CallError, match="is done; only"):
            await app.jobs.retry(job.id, actor=ADA)


async def test_what_will_never_work_is_tried_once() -> None:
    tries: list[str] = []

    async def never(_ctx: JobContext) -> None:
        tries.append("once")
        raise PermanentFailure("There is no such mailbox.")

    async with opened() as app:
        app.parts.jobs.handlers.add("never", never)
        job = await app.jobs.enqueue("never", {}, actor=ADA)
        await app.jobs.run_all()
        job = await app.jobs.get(job.id, actor=ADA)
        assert (job.state, tries, job.error and job.error.message) == ("failed", ["once"], "There is no such mailbox.")


async def test_priorities_order_the_jobs_of_a_tenant_and_tenants_take_turns() -> None:
    order: list[str] = []

    async def note(ctx: JobContext) -> None:
        order.append(f"{ctx.actor.tenant} {ctx.payload['name']}")

    async with opened() as app:
        app.parts.jobs.handlers.add("note", note)
        for name, priority in (("low", -5), ("first", 0), ("second", 0), ("high", 5)):
            await app.jobs.enqueue("note", {"name": name}, actor=ADA, priority=priority)
        await app.jobs.enqueue("note", {"name": "only"}, actor=OTHER, priority=-10)
        await app.jobs.run_all(concurrency=1)
    assert [name for name in order if name.startswith("acme")] == ["acme high", "acme first", "acme second", "acme low"]
    async with opened() as app:
        order.clear()
        app.parts.jobs.handlers.add("note", note)
        for number in range(6):
            await app.jobs.enqueue("note", {"name": str(number)}, actor=ADA)
        await app.jobs.enqueue("note", {"name": "only"}, actor=OTHER)
        await app.jobs.run_all(concurrency=2)
    assert "other only" in order[:2]


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_job_that_is_cancelled_when_it_is_taken_and_not_begun_is_ended() -> None:
    shop = Shop()
    async with opened() as app:
        shop.move_into(app)
        queued = await app.enqueue("slow", {"what": "tea"}, actor=ADA)
        assert queued.pending is not None
        take, gate = app.parts.store.transact, asyncio.Event()

        async def transact(transaction: Any) -> Any:
            result = await take(transaction)
            if getattr(transaction, "__name__", "") in ("look", "claim_one"):
                await gate.wait()
            return result

        app.parts.store.transact = transact  # type: ignore[method-assign]
        async with app.jobs.worker():
            await in_state(app, queued.pending.id, "running")
            await app.jobs.cancel(queued.pending.id, actor=ADA)
            gate.set()
            job = await over(app, queued.pending.id)
        assert (job.state, shop.sold) == ("cancelled", [])


async def test_a_delay_is_waited_for() -> None:
    ran: list[float] = []

    async def note(_ctx: JobContext) -> None:
        ran.append(asyncio.get_running_loop().time())

    async with opened() as app:
        app.parts.jobs.handlers.add("note", note)
        began = asyncio.get_running_loop().time()
        job = await app.jobs.enqueue("note", {}, actor=ADA, delay=0.3)
        async with app.jobs.worker():
            await over(app, job.id)
        assert ran[0] - began >= 0.29


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"delay": -1}, "a delay is between"),
        ({"delay": float("nan")}, "a delay is between"),
        ({"priority": 11}, "a priority is"),
        ({"max_attempts": 0}, "the number of attempts is"),
        ({"key": ""}, "an idempotency key is"),
        ({"key": "x" * 256}, "an idempotency key is"),
    ],
)
async def test_a_wish_that_makes_no_sense_is_refused(wish: dict[str, Any], words: str) -> None:
    async def nothing(_ctx: JobContext) -> None:
        """Do nothing."""

    async with opened() as app:
        app.parts.jobs.handlers.add("nothing", nothing)
        with pytest.raises(Failed, match=words):
            await app.jobs.enqueue("nothing", {}, actor=ADA, **wish)
        assert await app.jobs.list(actor=ADA) == []


# -- whose they are


async def test_jobs_belong_to_their_actor_and_no_other_user_persona_or_tenant_sees_them() -> None:
    async with opened() as app:
        app.register(add)
        queued = await app.enqueue("add", {"a": 1, "b": 2}, actor=ADA)
        assert queued.pending is not None
        id = queued.pending.id
        role, none = Actor("acme", "clerk", "ada"), Actor("acme", None, "ada")
        for stranger, all_users in ((EVE, False), (OTHER, False), (OTHER, True), (role, False), (none, False)):
            assert await app.jobs.list(actor=stranger, all_users=all_users) == []
            for act in (app.jobs.get, app.jobs.cancel, app.jobs.retry):
                with pytest.raises(Failed, match="There is no job"):
                    await act(id, actor=stranger, all_users=all_users)
            with pytest.raises(Failed, match="There is no job"):
                await app.jobs.wait(id, 0.1, actor=stranger, all_users=all_users)
        assert [job.id for job in await app.jobs.list(actor=ADA)] == [id]
        assert await app.jobs.list(actor=EVE, all_users=True, persona="clerk") == []
        assert [job.id for job in await app.jobs.list(actor=EVE, all_users=True)] == [id]


async def test_a_tenant_can_not_have_more_than_its_share_waiting() -> None:
    async with opened(jobs={"max_queued": 2}) as app:
        app.register(add)
        outcomes = [await app.enqueue("add", {"a": 1, "b": number}, actor=ADA) for number in range(3)]
        assert [outcome.status for outcome in outcomes] == ["pending", "pending", "failure"]
        assert outcomes[2].error is not None and outcomes[2].error.code == "CAPACITY_EXCEEDED"
        assert (await app.enqueue("add", {"a": 1, "b": 2}, actor=OTHER)).status == "pending"


async def test_secrets_in_a_payload_are_not_shown_and_not_in_the_database_as_they_are(tmp_path: Path) -> None:
    seen: list[str] = []

    async def note(ctx: JobContext) -> None:
        seen.append(ctx.payload["password"])

    async with opened(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as app:
        app.parts.jobs.handlers.add("note", note)
        job = await app.jobs.enqueue("note", {"password": "correct horse battery"}, actor=ADA)
        assert "correct horse" not in str(job.to_dict())
        await app.jobs.run_all()
        assert seen == ["correct horse battery"]
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("jobs.db*"))
    assert b"correct horse" not in stored


@at_most(15)
@given(
    st.lists(
        st.tuples(st.sampled_from([ADA, EVE, OTHER]), st.integers(-10, 10), st.sampled_from([None, "a", "b"])), max_size=12
    ),
    st.integers(1, 4),
)
def test_whatever_is_queued_is_run_once(wanted: list[tuple[Actor, int, str | None]], concurrency: int) -> None:
    ran: list[str] = []

    async def note(ctx: JobContext) -> None:
        ran.append(ctx.id)

    async def act() -> None:
        async with opened() as app:
            app.parts.jobs.handlers.add("note", note)
            ids = [
                (await app.jobs.enqueue("note", {}, actor=actor, priority=priority, key=key)).id
                for actor, priority, key in wanted
            ]
            await app.jobs.run_all(concurrency=concurrency)
            assert sorted(ran) == sorted(set(ids))

    asyncio.run(act())

"""Jobs in the hands of users, personas and tools that mean ill."""

from typing import Any

import pytest

from tests.behaviour.test_jobs import ADA, EVE, Shop, in_state, opened
from toolgate import Actor, Answer, App, InvokeContext, RateLimit, tool
from toolgate.errors import CallError, Failed, ToolgateError
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.jobs.handlers import JobContext
from toolgate.model import NANO
from toolgate.store import job_claims, reservations
from toolgate.store import jobs as table
from toolgate.store.database import Transaction
from toolgate.store.live_processes import alive_since

pytestmark = pytest.mark.requirement("JOB-1")
PRICE = NANO * 2 // 5
KEY = "sk-ant-api03-" + "a1B2" * 23 + "AA"


async def money(app: App) -> tuple[int, int]:
    """What is spent and what is reserved of the tenant's budget."""

    def look() -> Transaction[tuple[int, int]]:
        [(spent, reserved)] = yield "SELECT spent, reserved FROM spending", {}
        return int(spent), int(reserved)

    return await app.parts.store.read(look())


async def queued(app: App, name: str, arguments: dict[str, Any], **how: Any) -> str:
    outcome = await app.enqueue(name, arguments, actor=ADA, **how)
    assert outcome.pending is not None and outcome.pending.kind == "job", outcome
    return outcome.pending.id


async def with_budget(app: App) -> Shop:
    shop = Shop()
    shop.move_into(app)
    await app.budgets.set(new_budget("day", 10 * NANO, tenant="acme"))
    return shop


async def test_a_call_that_is_queued_again_with_its_key_reserves_no_more_money() -> None:
    async with opened() as app:
        shop = await with_budget(app)
        ids = {await queued(app, "pay", {"what": "tea"}, idempotency_key="k") for _ in range(3)}
        assert len(ids) == 1 and await money(app) == (0, PRICE)
        await app.jobs.run_all()
        assert (shop.sold, await money(app)) == (["tea"], (PRICE, 0))
        assert (await app.enqueue("pay", {"what": "tea"}, actor=ADA, idempotency_key="k")).ok
        assert await money(app) == (PRICE, 0)


async def test_a_job_that_is_refused_before_it_takes_its_money_gives_it_back() -> None:
    async with opened() as app:
        shop = await with_budget(app)
        id = await queued(app, "pay", {"what": "tea"})
        await app.tools.disable("pay")
        await app.jobs.run_all()
        assert (await app.jobs.get(id, actor=ADA)).state == "failed"
        assert (shop.sold, await money(app)) == ([], (0, 0))
        await app.tools.enable("pay")
        await app.jobs.retry(id, actor=ADA)
        await app.jobs.run_all()
        assert (shop.sold, await money(app)) == (["tea"], (PRICE, 0))


@pytest.mark.parametrize("max_crashes", [1, 5])
async def test_a_job_whose_worker_dies_before_the_call_keeps_no_money_twice(max_crashes: int) -> None:
    async with opened() as app:
        shop = await with_budget(app)
        id = await queued(app, "pay", {"what": "tea"})
        store, queue = app.parts.store, app.parts.jobs
        [taken], _ = await store.transact(job_claims.claim("dead", queue.clock(), 1, queue.handlers.names))
        assert taken.id == id
        error = '{"code":"OUTCOME_UNKNOWN","message":"x"}'
        assert await store.transact(job_claims.recover(alive_since(10), queue.clock(), max_crashes, error)) == 1
        assert await money(app) == (0, 0)
        await app.jobs.run_all()
        assert (shop.sold, await money(app)) == (([], (0, 0)) if max_crashes == 1 else (["tea"], (PRICE, 0)))


async def test_to_cancel_a_job_whose_call_has_begun_gives_nothing_back() -> None:
    async with opened() as app:
        await with_budget(app)
        id = await queued(app, "pay", {"what": "tea"})
        row = await app.parts.store.read(_row(id))
        await app.parts.store.transact(reservations.reserve(row, "worker", PRICE, ()))  # it takes over what waits
        await app.jobs.cancel(id, actor=ADA)
        assert await money(app) == (0, PRICE)  # it is the worker's to settle, or the reaper's


def _row(id: str) -> Any:
    rows = yield "SELECT call_id FROM jobs WHERE id = :id", {"id": id}
    return rows[0][0]


async def test_a_worker_that_was_quicker_keeps_the_money_that_it_took() -> None:
    async with opened() as app:
        await with_budget(app)
        call = await app.parts.store.read(_row(await queued(app, "pay", {"what": "tea"})))
        await app.parts.store.transact(reservations.reserve(call, "worker", PRICE, ()))
        await app.parts.store.transact(reservations.hand_over(call, app.parts.presence.id))
        await app.parts.store.transact(reservations.release(call))
        assert await money(app) == (0, PRICE)


@pytest.mark.requirement("JOB-4")
@pytest.mark.parametrize(
    "other", [Actor("acme", "intern", "ada"), Actor("acme", None, "ada"), Actor("acme", "analyst", "ada", ("more",))]
)
async def test_a_key_gives_no_other_persona_the_result(other: Actor) -> None:
    async with opened() as app:

        @tool(tier="read_only")
        async def whoami(ctx: InvokeContext) -> str:
            """Say who calls."""
            return f"notes of {ctx.actor.persona}"

        app.register(whoami)
        await queued(app, "whoami", {}, idempotency_key="k")
        for _ in range(2):
            outcome = await app.enqueue("whoami", {}, actor=other, idempotency_key="k")
            assert outcome.error is not None and outcome.error.code == "IDEMPOTENCY_CONFLICT"
            assert outcome.pending is None and outcome.output is None
            await app.jobs.run_all()
        assert (await app.enqueue("whoami", {}, actor=ADA, idempotency_key="k")).output == "notes of analyst"


async def test_to_try_a_job_again_counts_for_rate_limits() -> None:
    ran = 0
    async with opened() as app:

        @tool(tier="write", rate_limit=RateLimit(per_hour=2))
        async def knock() -> str:
            """Fail."""
            nonlocal ran
            ran += 1
            raise ValueError("nobody is at home")

        app.register(knock)
        id = await queued(app, "knock", {})
        await app.jobs.run_all()
        for _ in range(4):
            if (await app.jobs.get(id, actor=ADA)).state == "failed":
                await app.jobs.retry(id, actor=ADA)
            await app.jobs.run_all()
        assert ran == 2


@pytest.mark.parametrize("key", ["\n", "\ud800", "", "x" * 256])
async def test_a_bad_key_is_an_outcome_also_where_a_person_is_asked(key: str) -> None:
    async with opened() as app:
        Shop().move_into(app)
        for name, arguments in (("tidy", {"room": "kitchen"}), ("sell", {"what": "tea"})):
            outcome = await app.enqueue(name, arguments, actor=ADA, idempotency_key=key)
            assert outcome.error is not None and outcome.error.code == "VALIDATION_ERROR" and outcome.pending is None
        assert await app.jobs.list(actor=ADA) == []


async def test_an_approval_runs_one_of_all_jobs_and_calls_that_have_it() -> None:
    async with opened() as app:
        shop = Shop()
        shop.move_into(app)
        asked = await app.invoke("tidy", {"room": "kitchen"}, actor=ADA)
        assert asked.pending is not None
        await app.approvals.answer(asked.pending.id, True, actor=EVE)
        ids = [await queued(app, "tidy", {"room": "kitchen"}, approval=asked.pending.id) for _ in range(3)]
        await app.jobs.run_all()
        by_hand = await app.invoke("tidy", {"room": "kitchen"}, actor=ADA, approval=asked.pending.id)
        assert not by_hand.ok
        for id in ids:
            if (await app.jobs.get(id, actor=ADA)).state == "failed":
                await app.jobs.retry(id, actor=ADA)
        await app.jobs.run_all()
        assert shop.sold == ["kitchen"]


async def test_a_waiting_job_runs_what_the_approver_made_of_it() -> None:
    async with opened() as app:
        shop = Shop()
        shop.move_into(app)
        id = await queued(app, "tidy", {"room": "vault"}, idempotency_key="k")
        [asked] = await app.approvals.list(actor=ADA)
        await app.approvals.answer(asked.request.id, Answer("edit", arguments={"room": "kitchen"}), actor=EVE)
        await app.jobs.run_all()
        assert ((await app.jobs.get(id, actor=ADA)).state, shop.sold) == ("done", ["kitchen"])
        again = await app.invoke("tidy", {"room": "vault"}, actor=ADA, approval=asked.request.id)
        assert not again.ok and shop.sold == ["kitchen"]


@pytest.mark.parametrize("is_approved", [False, True])
async def test_an_approval_of_a_job_that_was_cancelled_runs_nothing(is_approved: bool) -> None:
    async with opened() as app:
        shop = Shop()
        shop.move_into(app)
        id = await queued(app, "tidy", {"room": "vault"})
        [asked] = await app.approvals.list(actor=ADA)
        if is_approved:
            await app.approvals.answer(asked.request.id, True, actor=EVE)
        assert (await app.jobs.cancel(id, actor=ADA)).state == "cancelled"
        assert await app.approvals.state(asked.request.id, ADA.tenant) == "expired"
        with pytest.raises(ToolgateError, match="no longer waits"):
            await app.approvals.answer(asked.request.id, True, actor=EVE)
        assert not (await app.approvals.resume(asked.request.id, actor=EVE)).ok
        await app.jobs.run_all()
        assert shop.sold == []
        await app.jobs.retry(id, actor=ADA)  # asks anew
        await app.jobs.run_all()
        [anew] = await app.approvals.list(actor=ADA)
        assert anew.request.id != asked.request.id and shop.sold == []


async def test_words_of_tools_and_handlers_are_masked_on_record() -> None:
    async def fail(ctx: JobContext) -> None:
        await ctx.progress(1, 1, f"with {KEY}")
        raise ValueError(f"refused: {KEY}")

    async with opened() as app:

        @tool(tier="read_only")
        async def talk(ctx: InvokeContext) -> str:
            """Tell a secret."""
            await ctx.progress(1, 1, f"with {KEY}")
            raise ValueError(f"refused: {KEY}")

        app.register(talk)
        app.parts.jobs.handlers.add("fail", fail, max_attempts=1)
        ids = [await queued(app, "talk", {}), (await app.jobs.enqueue("fail", {}, actor=ADA)).id]
        async with app.jobs.worker():
            for id in ids:
                job = await in_state(app, id, "failed")
                assert job.progress is not None and job.error is not None
                assert KEY not in str(job.to_dict())


@pytest.mark.requirement("JOB-4")
async def test_results_of_handlers_are_masked_before_they_are_kept() -> None:
    async def reveal(ctx: JobContext) -> Any:
        return {"found": [f"with {KEY}"], "said": f"it is {ctx.payload['password']}", "password": "another", "rooms": 3}

    async with opened() as app:
        app.parts.jobs.handlers.add("reveal", reveal)
        job = await app.jobs.enqueue("reveal", {"password": "open sesame"}, actor=ADA)
        await app.jobs.run_all()
        done = await app.jobs.get(job.id, actor=ADA)
        assert (done.state, done.result["rooms"]) == ("done", 3)
        row = await app.parts.store.read(table.get(job.id))
        for secret in (KEY, "open sesame", "another"):
            assert secret not in str(done.to_dict()) and secret not in str(row)


async def test_a_tenant_that_queues_without_end_is_stopped_at_its_limit_however_large() -> None:
    most = 1_200
    async with opened(jobs={"max_queued": most}) as app:
        app.parts.jobs.handlers.add("idle", in_vain)

        async def enqueue(number: int) -> bool:
            try:
                await app.jobs.enqueue("idle", {"number": number}, actor=ADA)
            except Failed as error:
                assert error.code == "CAPACITY_EXCEEDED" and error.retryable
                return False
            return True

        taken = [await enqueue(number) for number in range(most + 50)]
        assert taken == [True] * most + [False] * 50
        await app.jobs.enqueue("idle", {"number": 0}, actor=Actor("other"))
        for job in await app.jobs.list(actor=ADA, limit=3):
            await app.jobs.cancel(job.id, actor=ADA)
        assert [await enqueue(number) for number in range(5)] == [True] * 3 + [False] * 2


async def in_vain(ctx: JobContext) -> None:
    raise AssertionError(ctx.id)


async def test_a_job_that_may_be_made_again_frees_no_key_of_another_tool() -> None:
    async with opened() as app:
        shop = Shop()
        shop.move_into(app)
        assert (await app.invoke("sell", {"what": "tea"}, actor=ADA, idempotency_key="k")).ok
        id = await queued(app, "fetch", {"what": "tea"}, idempotency_key="k")
        for _ in range(2):
            await app.jobs.run_all()
            job = await app.jobs.retry(id, actor=ADA)
        await app.jobs.run_all()
        job = await app.jobs.get(id, actor=ADA)
        assert job.state == "failed" and job.error is not None and job.error.code == "IDEMPOTENCY_CONFLICT"
        assert (await app.invoke("sell", {"what": "tea"}, actor=ADA, idempotency_key="k")).metrics.cached
        assert shop.sold == ["tea"]


async def test_a_job_is_not_run_once_the_key_that_queued_it_is_revoked() -> None:
    async with opened() as app:
        shop = await with_budget(app)
        key, _text = await app.keys.create("agent", ADA)
        for door in ("mcp", "python"):
            await queued(app, "pay", {"what": door}, door=door)
        waits = await queued(app, "tidy", {"room": "kitchen"}, door="mcp")
        [asked] = await app.approvals.list(actor=ADA)
        await app.approvals.answer(asked.request.id, True, actor=EVE)
        await app.keys.revoke(key.id)
        await app.jobs.run_all()
        job = await app.jobs.get(waits, actor=ADA)
        assert job.state == "failed" and job.error is not None and job.error.code == "PERMISSION_DENIED"
        assert (shop.sold, await money(app)) == (["python"], (PRICE, 0))


@pytest.mark.parametrize(
    "change", ["tenant_id = 'other'", "user_id = 'eve'", "persona_id = 'boss'", "scopes = '[\"admin\"]'"]
)
async def test_a_row_that_was_moved_to_somebody_else_is_not_run(change: str) -> None:
    def move() -> Transaction[None]:
        yield f"UPDATE jobs SET {change}", {}

    async with opened() as app:
        shop = Shop()
        shop.move_into(app)
        id = await queued(app, "sell", {"what": "tea"})
        await app.parts.store.transact(move())
        await app.jobs.run_all()
        job = await app.parts.jobs.get(id)
        assert job is not None and job.state == "failed" and shop.sold == []


async def test_jobs_that_can_be_none_are_refused_with_the_documented_code() -> None:
    async with opened() as app:
        app.parts.jobs.handlers.add("idle", in_vain, schema={"type": "object", "required": ["number"]})
        for kind, payload in (("nothing", {}), ("idle", {}), ("idle", {"number": "x" * 2_000_000}), ("execute_tool", {})):
            with pytest.raises(Failed) as raised:
                await app.jobs.enqueue(kind, payload, actor=ADA)
            assert raised.value.code == "VALIDATION_ERROR"
        assert await app.jobs.list(actor=ADA) == []


# -- loops of cancel and retry


async def test_jobs_that_are_cancelled_and_tried_again_are_not_more_than_a_tenant_may_have() -> None:
    async with opened(jobs={"max_queued": 2}) as app:
        app.parts.jobs.handlers.add("idle", in_vain)
        ids = []
        for number in range(6):
            ids.append((await app.jobs.enqueue("idle", {"number": number}, actor=ADA)).id)
            await app.jobs.cancel(ids[-1], actor=ADA)
        for id in ids[:2]:
            await app.jobs.retry(id, actor=ADA)
        for id in ids[2:]:
            with pytest.raises(Failed, match="may have no more"):
                await app.jobs.retry(id, actor=ADA)
        assert (await app.jobs.counts(actor=ADA))["queued"] == 2


async def test_to_cancel_and_retry_again_and_again_neither_leaks_money_nor_spends_what_is_not_there() -> None:
    async with opened() as app:
        shop = Shop()
        shop.move_into(app)
        await app.budgets.set(new_budget("day", NANO // 2, tenant="acme"))
        ids = []
        for what in ("tea", "rum", "gin"):
            ids.append(await queued(app, "pay", {"what": what}))
            for _ in range(3):
                await app.jobs.cancel(ids[-1], actor=ADA)
                assert await money(app) == (0, 0)
                await app.jobs.retry(ids[-1], actor=ADA)
            await app.jobs.cancel(ids[-1], actor=ADA)
        for id in ids:
            await app.jobs.retry(id, actor=ADA)
        await app.jobs.run_all()
        assert len(shop.sold) == 1 and await money(app) == (PRICE, 0)
        ends = [(await app.jobs.get(id, actor=ADA)) for id in ids]
        assert sorted(job.state for job in ends) == ["done", "failed", "failed"]
        assert {job.error.code for job in ends if job.error is not None} == {"BUDGET_EXCEEDED"}


# -- calls inside a job


def with_an_inner_call(app: App) -> list[str]:
    """Adds a tool that has an effect, and then calls another that a person is asked about."""
    ran: list[str] = []

    @tool(tier="execute")
    async def launch(what: str) -> str:
        """Launch something."""
        ran.append(f"inner {what}")
        return f"launched {what}"

    @tool(tier="write")
    async def prepare(ctx: InvokeContext, what: str) -> Any:
        """Prepare something, and launch it."""
        return (await ctx.call_tool("launch", {"what": what})).output

    app.register(launch)
    app.register(prepare)
    return ran


async def test_a_call_inside_a_job_is_answered_by_somebody_else_of_its_tenant_alone_and_run_once() -> None:
    async with opened() as app:
        ran = with_an_inner_call(app)
        id = await queued(app, "prepare", {"what": "kite"})
        await app.jobs.run_all()
        assert (await app.jobs.get(id, actor=ADA)).state == "waiting" and ran == []
        [asked] = await app.approvals.list(actor=ADA)
        for stranger in (ADA, Actor("other", "analyst", "eve")):
            with pytest.raises(ToolgateError):
                await app.approvals.answer(asked.request.id, True, actor=stranger)
        for stranger in (EVE, Actor("acme", "clerk", "ada"), Actor("other", "analyst", "ada")):
            stolen = await app.invoke("prepare", {"what": "kite"}, actor=stranger, approval=asked.request.id)
            assert not stolen.ok and stolen.output is None
        await app.approvals.answer(asked.request.id, True, actor=EVE)
        stolen = await app.invoke("prepare", {"what": "kite"}, actor=EVE, approval=asked.request.id)
        assert not stolen.ok and ran == []
        await app.jobs.run_all()
        job = await app.jobs.get(id, actor=ADA)
        assert (job.state, job.result["output"], ran) == ("done", "launched kite", ["inner kite"])


async def test_a_call_inside_a_job_that_is_resumed_by_hand_has_one_effect() -> None:
    async with opened() as app:
        ran = with_an_inner_call(app)
        id = await queued(app, "prepare", {"what": "kite"})
        await app.jobs.run_all()
        [asked] = await app.approvals.list(actor=ADA)
        await app.approvals.answer(asked.request.id, True, actor=EVE)
        by_hand = await app.approvals.resume(asked.request.id, actor=EVE)
        await app.jobs.run_all()
        with pytest.raises(CallError, match="has ended"):
            await app.approvals.resume(asked.request.id, actor=EVE)
        job = await app.jobs.get(id, actor=ADA)
        assert (by_hand.output, job.state, job.result["output"]) == ("launched kite", "done", "launched kite")
        assert ran == ["inner kite"]


async def test_a_job_that_is_cancelled_while_a_call_inside_it_waits_runs_nothing_more() -> None:
    async with opened() as app:
        ran = with_an_inner_call(app)
        id = await queued(app, "prepare", {"what": "kite"})
        await app.jobs.run_all()
        [asked] = await app.approvals.list(actor=ADA)
        await app.jobs.cancel(id, actor=ADA)
        with pytest.raises(ToolgateError, match="no longer waits"):
            await app.approvals.answer(asked.request.id, True, actor=EVE)
        assert not (await app.approvals.resume(asked.request.id, actor=EVE)).ok
        await app.jobs.run_all()
        assert ran == [] and (await app.jobs.get(id, actor=ADA)).state == "cancelled"

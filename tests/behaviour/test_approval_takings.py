"""What a call took with a person's consent is free again if the call does not run: wherever its caller goes away, and
whatever becomes of the database meanwhile.
"""

import asyncio
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.asking import ADA, BOSS, Workshop, approved, ask
from tests.held_commits import held_commits
from tests.patience import SOON, until
from toolgate import App, Hook, InvokeContext, Outcome
from toolgate.gates.approval.request import Answer, GrantTerms
from toolgate.store.database import Transaction

pytestmark = pytest.mark.requirement("TIER-7")


class GoesAway:
    """Awaits a call, and is cancelled when that waits for the nth time: as it begins to wait, or as the wait ends."""

    def __init__(self, call: Any, nth: int, *, late: bool) -> None:
        self._call, self._nth, self._late = call, nth, late
        self.waits = 0

    def __await__(self) -> Generator[Any, Any, Outcome]:
        steps, task = self._call.__await__(), asyncio.current_task()
        assert task is not None
        error: BaseException | None = None
        while True:
            try:
                wait = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome
            self.waits += 1
            if self.waits == self._nth and self._late and wait is not None:
                wait.add_done_callback(lambda _wait: task.cancel())
            elif self.waits == self._nth:
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                yield wait
                error = None
            except BaseException as raised:  # noqa: BLE001 - it is the call's
                error = raised


async def leave_at(nth: int, call: Any, *, late: bool) -> bool:
    """Go away when a call waits for the nth time; whether it waits that often."""
    leaving = GoesAway(call, nth, late=late)

    async def caller() -> Outcome:
        return await leaving

    with suppress(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.ensure_future(caller()), SOON)
    return leaving.waits >= nth


class Refuses(Hook):
    """No call runs."""

    def will_acquire_quota(self, ctx: InvokeContext) -> None:
        ctx.retry_after(1000, "too early")


async def shares(app: App) -> tuple[int, float]:
    (grant,) = await app.parts.consent.grants.list("acme")
    return grant.uses, grant.spent_usd


@pytest.mark.parametrize("late", [False, True])
async def test_a_caller_that_goes_away_costs_the_grant_nothing(database: str, tmp_path: Path, late: bool) -> None:
    work = Workshop()
    async with work.move_into(App.open(database_url=database, home=tmp_path)) as app:
        await app.grants.create("send", GrantTerms("user", 60), actor=ADA, by=BOSS)
        app.add_hook(Refuses())
        nth = 1
        while await leave_at(nth, app.invoke("send", {"to": "bob"}, actor=ADA), late=late):
            assert await shares(app) == (0, 0), f"it went away at its wait number {nth}"
            nth += 1
        assert nth > 3
        assert (await shares(app), work.ran) == ((0, 0), [])


@pytest.mark.parametrize("late", [False, True])
async def test_a_caller_that_goes_away_leaves_its_approval_to_be_used(database: str, tmp_path: Path, late: bool) -> None:
    work = Workshop()
    async with work.move_into(App.open(database_url=database, home=tmp_path)) as app:
        id, refuses = await approved(app), Refuses()
        app.add_hook(refuses)
        nth = 1
        while await leave_at(nth, app.invoke("run", {"task": "ls"}, actor=ADA, approval=id), late=late):
            assert (await app.parts.consent.questions.show(id, "acme")).state == "approved", (
                f"it went away at its wait number {nth}"
            )
            nth += 1
        assert nth > 3
        assert work.ran == []


@pytest.mark.parametrize("late", [False, True])
async def test_a_yes_to_a_caller_that_goes_away_is_not_lost(database: str, tmp_path: Path, late: bool) -> None:
    """Wherever it goes: the question still waits, or it is answered and can be used, and the log knows both."""
    work = Workshop()

    async def agree(_request: Any) -> bool:
        await asyncio.sleep(0)
        return True

    async with work.move_into(App.open(database_url=database, home=tmp_path)) as app:
        app.add_hook(Refuses())
        app.approvals.add_approver(agree)
        nth = 1
        while await leave_at(nth, app.invoke("run", {"task": str(nth)}, actor=ADA), late=late):
            nth += 1
        assert nth > 5
        found = await app.parts.consent.questions.list("acme", None)
        assert {approval.state for approval in found} == {"waiting", "approved"}
        assert work.ran == []


# -- a store that can't be written for a while


def rename(before: str, after: str) -> Transaction[None]:
    yield f"ALTER TABLE {before} RENAME TO {after}", {}


def hidden_uses() -> Transaction[list[int]]:
    return [row[0] for row in (yield "SELECT uses FROM hidden", {})]


class Loses(Hook):
    """A table is gone once the call has consent, and the call does not run."""

    def __init__(self, app: App, table: str) -> None:
        self.app, self.table = app, table

    async def will_acquire_quota(self, ctx: InvokeContext) -> None:
        await self.app.parts.store.transact(rename(self.table, "hidden"))
        ctx.retry_after(1000, "too early")


async def test_a_share_of_a_grant_is_given_back_when_the_store_can_be_written_again(database: str, tmp_path: Path) -> None:
    work = Workshop()
    async with work.move_into(App.open(database_url=database, home=tmp_path)) as app:
        await app.grants.create("send", GrantTerms("user", 60), actor=ADA, by=BOSS)
        app.add_hook(Loses(app, "grants"))
        assert (await app.invoke("send", {"to": "bob"}, actor=ADA)).status == "denied"
        assert await app.parts.store.read(hidden_uses()) == [1], "it can't be known yet"
        await app.parts.store.transact(rename("hidden", "grants"))

        async def is_given_back() -> bool:
            return await shares(app) == (0, 0)

        await until(is_given_back)
        await asyncio.sleep(0.3)
        assert await shares(app) == (0, 0), "once"


async def test_an_approval_is_given_back_when_the_store_can_be_written_again(database: str, tmp_path: Path) -> None:
    work = Workshop()
    async with work.move_into(App.open(database_url=database, home=tmp_path)) as app:
        id = await approved(app)
        app.add_hook(Loses(app, "approvals"))
        assert (await app.invoke("run", {"task": "ls"}, actor=ADA, approval=id)).status == "denied"
        await app.parts.store.transact(rename("hidden", "approvals"))

        async def is_given_back() -> bool:
            return (await app.parts.consent.questions.show(id, "acme")).state == "approved"

        await until(is_given_back)


async def test_what_can_not_be_given_back_keeps_nothing_from_closing(tmp_path: Path) -> None:
    work = Workshop()
    async with work.move_into(App.open(home=tmp_path)) as app:
        await app.grants.create("send", GrantTerms("user", 60), actor=ADA, by=BOSS)
        app.add_hook(Loses(app, "grants"))
        before = asyncio.all_tasks()
        assert (await app.invoke("send", {"to": "bob"}, actor=ADA)).status == "denied"
        await asyncio.wait_for(app.parts.consent.close(), SOON)
        assert asyncio.all_tasks() <= before
        await app.parts.store.transact(rename("hidden", "grants"))
        assert await shares(app) == (1, 0.1), "the safe side"


# -- a connection that is lost while the server commits


CHANGED = "OLD.* IS DISTINCT FROM NEW.*"


def lose_connections(app: App) -> None:
    """The server is not told, and goes on with what it is at."""
    store: Any = app.parts.store
    for holder in store._pool._holders:
        if holder._con is not None and holder._in_use:
            holder._con._transport.abort()


@pytest.mark.matrix("needs PostgreSQL")
@pytest.mark.parametrize("answered", ["before", "while it waits"])
async def test_an_approval_whose_use_was_committed_unheard_is_given_back(
    postgres_database: str, tmp_path: Path, answered: str
) -> None:
    work = Workshop()
    async with work.move_into(App.open(database_url=postgres_database, home=tmp_path)) as app:
        if answered == "before":
            id = await approved(app)
            call = app.invoke("run", {"task": "ls"}, actor=ADA, approval=id)
        else:
            id = await ask(app)
            app.approvals.add_approver(lambda _request: Answer("approve", by="boss"))
            call = app.invoke("run", {"task": "ls"}, actor=ADA)
        async with held_commits(postgres_database, "UPDATE ON approvals", CHANGED) as commits:
            await commits.begin()
            calling = asyncio.ensure_future(call)
            await commits.one_waits()
            lose_connections(app)
            letting_go = asyncio.ensure_future(commits.let_go(after=0.3))
            outcome = await asyncio.wait_for(calling, SOON)
            await letting_go
        assert outcome.error is not None and outcome.error.code == "UNEXPECTED_ERROR"
        assert (await app.parts.consent.questions.show(id, "acme")).state == "approved"
        assert (await app.invoke("run", {"task": "ls"}, actor=ADA, approval=id)).ok
        assert len(work.ran) == 1


@pytest.mark.matrix("needs PostgreSQL")
async def test_a_share_that_was_given_back_unheard_is_not_given_back_twice(postgres_database: str, tmp_path: Path) -> None:
    work = Workshop()
    async with work.move_into(App.open(database_url=postgres_database, home=tmp_path)) as app:
        await app.grants.create("send", GrantTerms("user", 60), actor=ADA, by=BOSS)
        assert (await app.invoke("send", {"to": "bob"}, actor=ADA)).ok

        class HeldFromHereOn(Refuses):
            async def will_acquire_quota(self, ctx: InvokeContext) -> None:  # type: ignore[override]
                await commits.begin()
                super().will_acquire_quota(ctx)

        async with held_commits(postgres_database, "UPDATE ON grants", CHANGED) as commits:
            app.add_hook(HeldFromHereOn())
            calling = asyncio.ensure_future(app.invoke("send", {"to": "bob"}, actor=ADA))
            await commits.one_waits()
            lose_connections(app)
            letting_go = asyncio.ensure_future(commits.let_go(after=0.3))
            assert (await asyncio.wait_for(calling, SOON)).status == "denied"
            await letting_go

        async def is_given_back() -> bool:
            return await shares(app) == (1, 0.1)

        await until(is_given_back)
        await asyncio.sleep(0.5)
        assert await shares(app) == (1, 0.1), "that of the call that ran"

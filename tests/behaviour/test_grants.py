"""Grants: bearable asking. They have an end and a sum, can be seen and taken back, and never cover what destroys."""

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviour.asking import ADA, BOSS, Workshop, ask, let_pass
from toolgate import App, Hook, InvokeContext, tool
from toolgate.gates.approval.grants import draft
from toolgate.gates.approval.request import Answer, ApprovalError, GrantScope, GrantTerms
from toolgate.model import NANO, Actor, Call
from toolgate.pipeline.usage import Estimate
from toolgate.store import grants
from toolgate.store.database import now
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TIER-7")


async def grant(app: App, tool: str = "run", terms: GrantTerms | None = None, actor: Actor = ADA, **more: Any) -> str:
    entry = app.parts.catalog.resolve(tool, actor.tenant)
    return (await app.parts.consent.grants.make(entry, terms or GrantTerms("user", 3_600), actor, BOSS, **more)).id


async def status(app: App, tool: str = "run", actor: Actor = ADA, **more: Any) -> str:
    arguments = {"run": {"task": "ls"}, "send": {"to": "bob"}, "look": {"at": "x"}}[tool]
    return (await app.invoke(tool, arguments, actor=actor, **more)).status


@pytest.mark.parametrize("name", ["run", "send", "look"])
async def test_a_grant_lets_calls_run_unasked_and_counts_them(name: str) -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        assert await status(app, name) == "pending"
        await grant(app, name)
        assert [await status(app, name) for _ in range(3)] == ["success"] * 3
        (held,) = await app.parts.consent.grants.list("acme")
        assert (held.tool, held.uses, held.granted_by) == (name, 3, "boss")
        assert held.spent_usd == pytest.approx(0.3 if name == "send" else 0)


SAME = ADA
OTHER_USER = Actor("acme", "analyst", "eve")
OTHER_PERSONA = Actor("acme", "admin", "ada")
NO_PERSONA = Actor("acme", None, "ada")
OTHER_TENANT = Actor("globex", "analyst", "ada")


@pytest.mark.parametrize(
    ("scope", "covered"),
    [
        ("session", {(SAME, "s1")}),
        ("user", {(SAME, "s1"), (SAME, "s2"), (SAME, None)}),
        ("persona", {(SAME, "s1"), (SAME, "s2"), (SAME, None), (OTHER_USER, "s1")}),
        (
            "tenant",
            {(SAME, "s1"), (SAME, "s2"), (SAME, None), (OTHER_USER, "s1"), (OTHER_PERSONA, "s1"), (NO_PERSONA, "s1")},
        ),
    ],
)
async def test_a_grant_covers_whom_it_names_and_nobody_else(
    scope: GrantScope, covered: set[tuple[Actor, str | None]]
) -> None:
    work = Workshop()
    everybody = [(SAME, "s1"), (SAME, "s2"), (SAME, None)]
    everybody += [(actor, "s1") for actor in (OTHER_USER, OTHER_PERSONA, NO_PERSONA, OTHER_TENANT)]
    async with work.move_into(memory_app()) as app:
        await grant(app, terms=GrantTerms(scope, 60), session="s1")
        for actor, session in everybody:
            expected = "success" if (actor, session) in covered else "pending"
            assert await status(app, actor=actor, session=session) == expected, (actor, session)
        assert await status(app, "send", session="s1") == "pending", "another tool"


@pytest.mark.requirement("TIER-2")
@pytest.mark.parametrize(("name", "arguments"), [("delete_file", {"file": "x"}), ("remove_server", {"name": "x"})])
@pytest.mark.parametrize("scope", ["session", "user", "persona", "tenant"])
async def test_no_grant_covers_what_destroys(name: str, arguments: dict[str, Any], scope: GrantScope) -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        with pytest.raises(ApprovalError, match="destructive"):
            await grant(app, name, GrantTerms(scope, 60), session="s1")
        id = await ask(app, name, arguments, session="s1")
        with pytest.raises(ApprovalError, match="destructive"):
            await app.parts.consent.questions.answer(id, Answer("approve", grant=GrantTerms(scope, 60)), BOSS, "cli")
        assert (await app.parts.consent.questions.show(id, "acme")).state == "waiting"
        assert await app.parts.consent.grants.list("acme", active=False) == []


async def test_a_grant_of_a_tool_that_became_destructive_is_void(tmp_path: Path) -> None:
    ran: list[str] = []

    @tool(name="clean", tier="execute")
    async def harmless(file: str) -> str:
        """Clean."""
        ran.append(file)
        return file

    @tool(name="clean", tier="execute", capabilities=["delete"])
    async def harmful(file: str) -> str:
        """Clean."""
        raise AssertionError(file)

    async with App.open(home=tmp_path) as app:
        app.register(harmless)
        await grant(app, "clean")
        assert (await app.invoke("clean", {"file": "x"}, actor=ADA)).ok
    async with App.open(home=tmp_path) as app:
        app.register(harmful)
        assert (await app.invoke("clean", {"file": "x"}, actor=ADA)).status == "pending"
    assert ran == ["x"]


async def test_a_grant_of_a_tool_that_changed_is_void(tmp_path: Path) -> None:
    @tool(name="post", tier="external_api")
    async def before(text: str) -> str:
        """Post a text."""
        return text

    @tool(name="post", tier="external_api")
    async def after(text: str) -> str:
        """Post a text, to everybody."""
        raise AssertionError(text)

    async with App.open(home=tmp_path) as app:
        app.register(before)
        await grant(app, "post")
        assert (await app.invoke("post", {"text": "x"}, actor=ADA)).ok
    async with App.open(home=tmp_path) as app:
        app.register(after)
        assert (await app.invoke("post", {"text": "x"}, actor=ADA)).status == "pending"


@pytest.mark.requirement("TIER-2")
async def test_not_even_a_grant_that_somebody_wrote_into_the_database_covers_what_destroys() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        entry = app.parts.catalog.resolve("delete_file", "acme")
        row = draft(
            entry.name, entry.fingerprint, False, GrantTerms("tenant", 60), ADA, None, "/", "boss", None, now(), priced=False
        )
        await app.parts.store.transact(grants.add(row))
        assert len(await app.parts.consent.grants.list("acme")) == 1
        assert (await app.invoke("delete_file", {"file": "x"}, actor=ADA)).status == "pending"
        assert work.ran == []


@pytest.mark.parametrize("scope", ["session", "user", "persona", "tenant"])
async def test_a_grant_can_come_with_an_answer(scope: GrantScope) -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await ask(app, session="s1")
        await app.parts.consent.questions.answer(id, Answer("approve", "fine", grant=GrantTerms(scope, 60)), BOSS, "console")
        assert (await app.invoke("run", {"task": "ls"}, actor=ADA, session="s1", approval=id)).ok
        assert (await app.invoke("run", {"task": "other"}, actor=ADA, session="s1")).ok
        (held,) = await app.parts.consent.grants.list("acme")
        assert (held.uses, held.granted_by, held.reason) == (1, "boss", "fine")


async def test_a_revoked_grant_covers_nothing_at_once_and_everywhere(database: str, tmp_path: Path) -> None:
    work, more = Workshop(), Workshop()
    async with (
        work.move_into(App.open(database_url=database, home=tmp_path / "a")) as one,
        more.move_into(App.open(database_url=database, home=tmp_path / "b")) as two,
    ):
        id = await grant(one)
        assert [await status(one), await status(two)] == ["success"] * 2
        with pytest.raises(ApprovalError, match="There is no grant"):
            await two.parts.consent.grants.revoke(id, Actor("globex"))
        revoked = await two.parts.consent.grants.revoke(id, BOSS)
        assert (revoked.uses, revoked.revoked_by) == (2, "boss")
        assert [await status(one), await status(two)] == ["pending"] * 2
        assert await one.parts.consent.grants.list("acme") == []
        assert [held.id for held in await one.parts.consent.grants.list("acme", active=False)] == [id]
        with pytest.raises(ApprovalError, match="revoked already"):
            await one.parts.consent.grants.revoke(id, BOSS)


async def test_a_grant_ends_when_it_said() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        await grant(app, terms=GrantTerms("user", 3_600))
        await let_pass(app, 3_590)
        assert await status(app) == "success"
        await let_pass(app, 11)
        assert await status(app) == "pending"
        assert await app.parts.consent.grants.list("acme") == []


async def test_a_clock_that_jumped_back_makes_no_grant_longer() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        await grant(app)
        await let_pass(app, -3_000)
        assert await status(app) == "pending"


async def test_a_grant_spends_no_more_than_its_sum_however_many_call_at_once(database: str, tmp_path: Path) -> None:
    work, more = Workshop(), Workshop()
    async with (
        work.move_into(App.open(database_url=database, home=tmp_path / "a")) as one,
        more.move_into(App.open(database_url=database, home=tmp_path / "b")) as two,
    ):
        await grant(one, "send", GrantTerms("user", 60, Decimal("0.75")))
        calls = [app.invoke("send", {"to": str(n)}, actor=ADA) for n in range(15) for app in (one, two)]
        outcomes = await asyncio.gather(*calls)
        assert sorted(outcome.status for outcome in outcomes) == ["pending"] * 23 + ["success"] * 7
        assert len(work.ran) + len(more.ran) == 7
        (held,) = await one.parts.consent.grants.list("acme")
        assert (held.uses, round(held.spent_usd, 9)) == (7, 0.7)


class Refuses(Hook):
    """No call gets a place."""

    def will_acquire_quota(self, ctx: InvokeContext) -> None:
        ctx.retry_after(1000, "too early")


async def test_a_call_that_is_refused_later_costs_the_grant_nothing(database: str, tmp_path: Path) -> None:
    work = Workshop()
    async with work.move_into(App.open(database_url=database, home=tmp_path)) as app:
        await grant(app, "send", GrantTerms("user", 60, Decimal("0.1")))
        app.add_hook(Refuses())
        assert [await status(app, "send") for _ in range(3)] == ["denied"] * 3
        (held,) = await app.parts.consent.grants.list("acme")
        assert (held.uses, held.spent_usd, work.ran) == (0, 0, [])


async def test_of_several_grants_one_that_has_room_is_used() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        await grant(app, "send", GrantTerms("user", 60, Decimal("0.1")))
        await grant(app, "send", GrantTerms("user", 120, Decimal("0.2")))
        assert [await status(app, "send") for _ in range(4)] == ["success"] * 3 + ["pending"]


async def test_what_would_cover_a_call_can_be_seen_without_using_it() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        letter, file = app.parts.catalog.resolve("send", "acme"), app.parts.catalog.resolve("delete_file", "acme")
        call, price, to_bob = Call("c", "send", {}, ADA), Estimate(100_000_000, "exact"), b'{"to":"bob"}'
        assert await app.parts.consent.covering(call, letter, price, to_bob) is None
        id = await grant(app, "send", GrantTerms("user", 60, Decimal("0.15")))
        covering = await app.parts.consent.covering(call, letter, price, to_bob)
        assert covering is not None
        assert (covering.id, covering.uses) == (id, 0)
        assert await app.parts.consent.covering(Call("c", "delete_file", {}, ADA), file, price, to_bob) is None
        assert await status(app, "send") == "success"
        assert await app.parts.consent.covering(call, letter, price, to_bob) is None, "no room"


async def test_a_grant_that_makes_no_sense_is_refused() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        with pytest.raises(ApprovalError, match="needs a call with a session"):
            await grant(app, terms=GrantTerms("session", 60))
        with pytest.raises(ApprovalError, match="needs a call with a persona"):
            await grant(app, terms=GrantTerms("persona", 60), actor=Actor("acme", user="eve"))
        with pytest.raises(ApprovalError, match="runs unasked"):
            await grant(app, "echo")
        assert await app.parts.consent.grants.list("acme", active=False) == []


async def test_a_grant_for_the_same_arguments_covers_those_alone_however_they_are_written() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await ask(app, arguments={"task": "ls", "times": 2})
        terms = GrantTerms("user", 60, same_arguments=True)
        await app.approvals.answer(id, Answer("approve", grant=terms), actor=BOSS, through="console")
        assert (await app.invoke("run", actor=ADA, approval=id)).ok
        assert (await app.invoke("run", {"times": 2, "task": "ls", "password": ""}, actor=ADA)).ok
        for other in ({"task": "ls"}, {"task": "ls ", "times": 2}, {"task": "ls", "times": 2, "password": "x"}):
            assert (await app.invoke("run", other, actor=ADA)).status == "pending", other
        (held,) = await app.grants.list(actor=BOSS)
        assert (held.uses, held.arguments) == (1, {"task": "ls", "times": 2, "password": ""})
        explained = await app.explain("run", {"task": "ls", "times": 2}, actor=ADA)
        assert explained.verdict == "run"
        assert (await app.explain("run", {"task": "other"}, actor=ADA)).verdict == "ask"


async def test_a_grant_for_edited_arguments_covers_what_was_approved_not_what_was_asked() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await ask(app, "send", {"to": "everybody"})
        terms = GrantTerms("user", 60, same_arguments=True)
        answer = Answer("edit", arguments={"to": "bob"}, grant=terms)
        await app.approvals.answer(id, answer, actor=BOSS, through="console")
        assert (await app.invoke("send", {"to": "bob"}, actor=ADA)).ok
        assert (await app.invoke("send", actor=ADA, approval=id)).ok
        assert (await app.invoke("send", {"to": "everybody"}, actor=ADA)).status == "pending"
        assert work.ran == [{"to": "bob"}, {"to": "bob"}]


async def test_a_grant_for_arguments_that_records_mask_holds_for_them_and_shows_the_mask() -> None:
    work, secret = Workshop(), "hunter2-hunter2"
    async with work.move_into(memory_app()) as app:
        given = {"task": "ls", "password": secret}
        id = await ask(app, arguments=given)
        terms = GrantTerms("user", 60, same_arguments=True)
        edit = Answer("edit", arguments={**given, "times": 2}, grant=terms)
        with pytest.raises(ApprovalError, match="hold what is masked"):
            await app.approvals.answer(id, edit, actor=BOSS, through="console")
        await app.approvals.answer(id, Answer("approve", grant=terms), actor=BOSS, through="console")
        assert (await app.invoke("run", given, actor=ADA, approval=id)).ok
        assert (await app.invoke("run", given, actor=ADA)).ok
        assert (await app.invoke("run", {"task": "ls", "password": "another"}, actor=ADA)).status == "pending"
        (held,) = await app.grants.list(actor=BOSS)
        assert held.uses == 1
        assert secret not in str(held)


async def test_arguments_are_granted_ahead_as_a_call_would_bring_them() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        terms = GrantTerms("user", 60)
        await app.grants.create("run", terms, actor=ADA, by=BOSS, arguments={"times": 3, "task": "ls"})
        assert (await app.invoke("run", {"task": "ls", "times": 3}, actor=ADA)).ok
        assert await status(app) == "pending"
        with pytest.raises(ApprovalError, match="cannot be granted"):
            await app.grants.create("run", terms, actor=ADA, by=BOSS, arguments={"tusk": "ls"})
        with pytest.raises(ApprovalError, match="needs those of a call"):
            await app.grants.create("run", GrantTerms("user", 60, same_arguments=True), actor=ADA, by=BOSS)
        with pytest.raises(ApprovalError, match="destructive"):
            await app.grants.create("delete_file", terms, actor=ADA, by=BOSS, arguments={"file": "x"})


async def test_a_grant_covers_no_more_calls_than_its_number_however_many_call_at_once(database: str, tmp_path: Path) -> None:
    work, more = Workshop(), Workshop()
    async with (
        work.move_into(App.open(database_url=database, home=tmp_path / "a")) as one,
        more.move_into(App.open(database_url=database, home=tmp_path / "b")) as two,
    ):
        id = await ask(one, "send", {"to": "bob"})
        terms = GrantTerms("user", 60, max_uses=5, same_arguments=True)
        await one.approvals.answer(id, Answer("approve", grant=terms), actor=BOSS, through="console")
        assert (await one.invoke("send", actor=ADA, approval=id)).ok  # which is none of the five
        calls = [app.invoke("send", {"to": "bob"}, actor=ADA, idempotency_key=f"{app is one} {n}")
                 for n in range(12) for app in (one, two)]  # fmt: skip
        outcomes = await asyncio.gather(*calls)
        assert sorted(outcome.status for outcome in outcomes) == ["pending"] * 19 + ["success"] * 5
        assert len(work.ran) + len(more.ran) == 1 + 5
        (held,) = await one.grants.list(actor=BOSS)
        assert (held.uses, held.max_uses, held.is_used_up) == (5, 5, True)
        asked = await two.explain("send", {"to": "bob"}, actor=ADA)
        assert f"grant {held.id} is used up: it was for 5 calls" in asked.reason


async def test_a_call_that_is_refused_later_is_not_counted(database: str, tmp_path: Path) -> None:
    work = Workshop()
    async with work.move_into(App.open(database_url=database, home=tmp_path)) as app:
        await grant(app, terms=GrantTerms("user", 60, max_uses=1))
        app.add_hook(Refuses())
        assert [await status(app) for _ in range(3)] == ["denied"] * 3
        (held,) = await app.grants.list(actor=BOSS)
        assert (held.uses, held.is_used_up) == (0, False)


@given(
    scope=st.sampled_from(["session", "user", "persona", "tenant", "world", "", None]),
    seconds=st.one_of(st.floats(), st.integers(), st.booleans(), st.text(max_size=3), st.none()),
    cap=st.one_of(st.none(), st.decimals(), st.floats(), st.integers(), st.text(max_size=3)),
    uses=st.one_of(st.none(), st.integers(), st.floats(), st.booleans(), st.text(max_size=3)),
)
def test_terms_are_bounded_or_refused(scope: Any, seconds: Any, cap: Any, uses: Any) -> None:
    try:
        terms = GrantTerms(scope, seconds, cap, uses)
    except ApprovalError:
        return
    assert uses is None or (type(uses) is int and 1 <= uses <= 1_000_000_000)
    assert scope in ("session", "user", "persona", "tenant")
    assert 0 < terms.seconds <= 366 * 86_400
    if cap is None:
        assert terms.cap is None
    else:
        assert terms.cap is not None
        assert 0 <= terms.cap <= cap * NANO < terms.cap + 1


@pytest.mark.parametrize("session", ["\0", "\ud800", "s" * 100_000, "'; DROP TABLE approvals; --", ""])
async def test_an_odd_session_gets_nothing_unasked(session: str, database: str, tmp_path: Path) -> None:
    ran: list[str] = []

    @tool(tier="execute")
    async def run(task: str) -> str:
        """Run."""
        ran.append(task)
        return task

    async with App.open(database_url=database, home=tmp_path) as app:
        app.register(run)
        await app.grants.create("run", GrantTerms("session", 60), session="s")
        assert (await app.invoke("run", {"task": "x"}, session="s")).ok
        assert not (await app.invoke("run", {"task": "x"}, session=session)).ok
        assert (await app.invoke("run", {"task": "x"}, session="s")).ok, "nothing is broken"
    assert ran == ["x", "x"]

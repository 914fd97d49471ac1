"""What a page reads: nothing twice, and no more of the log the longer that gets."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.console.hostile_world import ANN, fill
from tests.console.plain_browser import signed_in
from tests.console.test_every_page import addresses
from tests.serving import Site
from toolgate import Actor, App, tool
from toolgate.model.roles import Role
from toolgate.store.database import Statement, Transaction

pytestmark = pytest.mark.requirement("DOOR-2")

OPERATOR = Actor("default", user="op")
FILTERED = (
    "/?range=30d", "/calls?tool=echo", "/calls?status=denied&range=30d", "/calls?user=ann&tenant=acme",
    "/calls?code=TIMEOUT&range=all", "/calls?door=http", "/money?by=user", "/money?by=persona", "/money?by=day",
)  # fmt: skip
OF_ALL_TENANTS = ("/?tenant=*", "/calls?tenant=*", "/money?by=tenant&tenant=*", "/tenants", "/audit?tenant=*")
READ_AGAIN = "SELECT value FROM servers_epoch WHERE id = 1"
"""Of the servers: whether they have changed, and then with all that is on record about them."""


@contextmanager
def noted_reads(app: App) -> Iterator[list[Statement]]:
    """The statements that are read while inside."""
    store, read = app.parts.store, app.parts.store.read
    found: list[Statement] = []

    def noting(transaction: Transaction[Any]) -> Transaction[Any]:
        rows: Any = None
        while True:
            try:
                statement = transaction.send(rows)
            except StopIteration as end:
                return end.value
            found.append(statement)
            rows = yield statement

    store.read = lambda transaction: read(noting(transaction))  # type: ignore[method-assign]
    try:
        yield found
    finally:
        store.read = read  # type: ignore[method-assign]


async def test_no_page_walks_through_the_log_or_its_counts(app: App, site: Site) -> None:
    things = await fill(app)
    browser = await signed_in(app, site, ANN, "operator")
    wrong: dict[str, set[str]] = {}
    seen = 0
    database = sqlite3.connect(str(app.settings.home / "t.db"))
    for address in (*addresses(things), *FILTERED, *OF_ALL_TENANTS):
        with noted_reads(app) as found:
            assert (await browser.get(address)).status == 200
        seen += len(found)
        for sql, values in found:
            plan = database.execute(f"EXPLAIN QUERY PLAN {sql}", {name: str(one) for name, one in values.items()}).fetchall()
            walked = [step for *_, step in plan if step.startswith(("SCAN audit_log", "SCAN call_statistics"))]
            if any("call_statistics_progress" not in step for step in walked):
                wrong.setdefault(address, set()).add(sql)
    assert not wrong and seen > 100
    plan = database.execute("EXPLAIN QUERY PLAN SELECT sum(quantity) FROM tool_usage WHERE at > 0").fetchall()
    assert any("SCAN audit_log" in step for *_, step in plan), "this is how a walk through the log would look"
    database.close()


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.parametrize("address", ["/", "/calls", "/money", *FILTERED])
async def test_nothing_is_read_twice_for_a_page(app: App, site: Site, address: str) -> None:
    for _ in range(3):
        await app.invoke("echo", {"text": "x"}, actor=OPERATOR)
    browser = await signed_in(app, site, OPERATOR, "operator")
    await browser.get(address)  # counts the calls
    with noted_reads(app) as found:
        assert (await browser.get(address)).status == 200
    times = Counter((sql, tuple(sorted((name, str(one)[:16]) for name, one in values.items()))) for sql, values in found)
    assert [read for read, number in times.items() if number > 1 and read[0] != READ_AGAIN] == []
    assert len(found) > 5


async def test_money_by_persona_has_every_persona_and_what_its_twin_says(app: App, site: Site) -> None:
    names = [f"persona {number:02d}" for number in range(40)]
    for number, name in enumerate(names):
        for _ in range(1 + number % 2):
            await app.invoke("echo", {"text": "x"}, actor=Actor("default", name, "u"))
    browser = await signed_in(app, site, OPERATOR, "operator")
    page = (await browser.get("/money?by=persona")).body.decode()
    twin = (await browser.get("/v1/costs?by=persona&limit=200")).json
    assert all(f">{name}</a>" in page for name in names) and "others" not in page
    assert {one["name"]: one["calls"] for one in twin["lines"]} == {name: 1 + at % 2 for at, name in enumerate(names)}
    assert f"in {twin['calls']} calls" in page and "40 shown" in page


async def test_those_who_wait_are_counted_for_whoever_may_see_them(app: App, site: Site) -> None:
    @tool(tier="external_api")
    async def pay(amount: int) -> int:
        """Pay somebody."""
        return amount

    app.register(pay)
    for amount, (tenant, user) in enumerate((("acme", "ann"), ("acme", "ann"), ("acme", "bob"), ("globex", "eve"))):
        assert (await app.invoke("pay", {"amount": amount}, actor=Actor(tenant, user=user))).pending is not None
    wanted: dict[tuple[Actor, Role, str], int] = {
        (Actor("acme", user="ann"), "caller", "/"): 2,
        (Actor("acme", user="bob"), "caller", "/"): 1,
        (Actor("acme", user="vera"), "viewer", "/"): 3,
        (Actor("globex", user="vera"), "viewer", "/"): 1,
        (Actor("empty", user="nora"), "viewer", "/"): 0,
        (OPERATOR, "operator", "/"): 0,
        (OPERATOR, "operator", "/?tenant=acme"): 3,
        (OPERATOR, "operator", "/?tenant=*"): 4,
    }
    for (actor, role, address), number in wanted.items():
        browser = await signed_in(app, site, actor, role)
        page = (await browser.get(address)).body.decode()
        assert f'aria-label="{number} waiting">{number}</span>' in page, (actor, address)
        told = f"<b>{number}</b>" + ('<span class="change wait"' if number else '<span class="change"')
        assert f'<span class="muted">Waiting</span>{told}' in page, (actor, address)
        assert ("oldest just now" in page) == bool(number)

"""Statistics of calls: the counts are those of the log, whoever counted it and in whatever steps."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.http_people import ANN, BOB, EVE, people
from toolgate import Actor, App, tool
from toolgate.store.call_counts import CountBy, CountFilter, counts, durations
from toolgate.store.call_statistics import SLOT_BOUNDS_MS, SLOTS, count_rows, percentile, slot_of
from toolgate.store.database import LogRow, Store, open_store
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("COST-3")

BEGIN = 1_790_000_000 // 86_400 * 86_400
END = BEGIN + 4 * 86_400
STATUSES = (("success", None), ("failure", "TIMEOUT"), ("denied", "PERMISSION_DENIED"))


class Made(msgspec.Struct):
    """A record that is a row already."""

    made: LogRow

    def row(self) -> LogRow:
        return self.made


class Ended(msgspec.Struct, frozen=True):
    """A call that ended, as a test makes it up."""

    second: int
    tenant: str
    tool: str
    end: tuple[str, str | None]
    persona: str | None
    door: str
    user: str
    nano: int
    ms: float

    def record(self) -> Made:
        status, code = self.end
        body = {"persona": self.persona, "user": self.user, "session": None, "duration_ms": self.ms, "tier": "write"}
        body |= {"attempts": int(status != "denied"), "cost": self.nano, "tokens_used": 3, "door": self.door, "code": code}
        row = ((BEGIN + self.second) * 1_000_000, "end", "id", self.tenant, self.tool, status, orjson.dumps(body))
        return Made(row)


ENDED = st.builds(
    Ended, st.integers(0, 4 * 86_400 - 1), st.sampled_from(["acme", "other"]), st.sampled_from(["a", "b"]),
    st.sampled_from(STATUSES), st.sampled_from([None, "p", "q"]), st.sampled_from(["python", "http"]),
    st.sampled_from(["ann", "bob"]), st.integers(0, 10**12), st.floats(0, 10**6),
)  # fmt: skip


def name_of(one: Ended, by: CountBy) -> str:
    status, code = one.end
    return {"status": status, "code": code or ""}.get(by) or getattr(one, by, None) or ""


def is_meant(ended: Ended, wanted: CountFilter, since: int, until: int) -> bool:
    return (
        since <= BEGIN + ended.second < until
        and wanted.tenant in (None, ended.tenant)
        and wanted.tool in (None, ended.tool)
        and wanted.status in (None, ended.end[0])
    )


async def compare_counts(
    store: Store, wanted: CountFilter, period: tuple[int, int], by: CountBy, meant: list[Ended]
) -> None:
    found: Counter[tuple[str, str, str]] = Counter()
    money = 0
    for count in await store.read(counts(wanted, *period, by=by)):
        found[count.tenant, count.name, count.status] += count.calls
        money += count.nano
    assert found == Counter((ended.tenant, name_of(ended, by), ended.end[0]) for ended in meant)
    assert money == sum(ended.nano for ended in meant)


async def compare_steps(store: Store, wanted: CountFilter, period: tuple[int, int], by: CountBy, meant: list[Ended]) -> None:
    """Of steps, names are counted without their statuses; durations and everything together as well."""
    for step in (3_600, 14_400, *([86_400] if period[0] == BEGIN else [])):
        named, whole, lasted = Counter[tuple[int, str]](), Counter[int](), Counter[tuple[int, int]]()
        for count in await store.read(counts(wanted, *period, by=by, step=step, statuses=False)):
            named[count.point, count.name] += count.calls
            assert count.status == ""
        for count in await store.read(counts(wanted, *period, by=None, step=step, statuses=False)):
            whole[count.point] += count.ran
        for point, slots in (await store.read(durations(wanted, *period, step=step))).items():
            lasted.update({(point, slot): calls for slot, calls in enumerate(slots) if calls})
        points = [((BEGIN + ended.second - period[0]) // step, ended) for ended in meant]
        ran = [(point, ended) for point, ended in points if ended.end[0] != "denied"]
        assert named == Counter((point, name_of(ended, by)) for point, ended in points)
        assert +whole == Counter(point for point, _ in ran)
        assert lasted == Counter((point, slot_of(ended.ms)) for point, ended in ran)


async def test_counts_are_those_of_the_log(database: str) -> None:
    one, other = open_store(database), open_store(database)
    await one.start()
    await other.start()
    known: list[Ended] = []
    loop = asyncio.get_running_loop()

    @at_most(25)
    @given(st.lists(ENDED, max_size=30), st.integers(1, 9), st.integers(1, 9))
    def check(fresh: list[Ended], first: int, second: int) -> None:
        asyncio.run_coroutine_threadsafe(compare(fresh, first, second), loop).result(60)

    async def compare(fresh: list[Ended], first: int, second: int) -> None:
        known.extend(fresh)
        for ended in fresh:
            one.append(ended.record())
        await one.flush()
        await asyncio.gather(count_rows(one, first), count_rows(other, second), count_rows(one, second))
        await asyncio.gather(count_rows(one), count_rows(other))
        bys: tuple[CountBy, ...] = ("status", "tool", "code", "persona", "door", "user")
        for by in bys:
            for wanted in (CountFilter(), CountFilter("acme", tool="a"), CountFilter("acme", status="failure")):
                if by in ("persona", "door") and wanted.tool is not None:
                    continue  # which is not counted
                daily = by == "user"
                for since, until in ((BEGIN, END), (BEGIN, END) if daily else (BEGIN + 7_200, END - 90_000)):
                    meant = [ended for ended in known if is_meant(ended, wanted, since, until)]
                    await compare_counts(one, wanted, (since, until), by, meant)
                    if not daily:
                        await compare_steps(one, wanted, (since, until), by, meant)

    try:
        await asyncio.to_thread(check)
    finally:
        await one.close()
        await other.close()


@given(st.lists(st.floats(0.1, 400_000), min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_is_within_its_bound(durations: list[float], share: float) -> None:
    slots = [0] * SLOTS
    for one in durations:
        slots[slot_of(one)] += 1
    ordered = sorted(durations)
    true = next(one for number, one in enumerate(ordered, 1) if number >= len(ordered) * share)
    found = percentile(slots, share)
    assert found is not None
    assert found / true < 1.2251 and true / found < 1.2251
    assert percentile([0] * SLOTS, share) is None
    assert SLOT_BOUNDS_MS[-1] > 450_000


@tool(tier="read_only")
async def divide(a: int, b: int) -> float:
    """Divide two numbers."""
    return a / b


async def test_what_a_rebuild_counts_is_what_was_counted(database: str, tmp_path: Path) -> None:
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        app.register(divide)
        for number in range(5):
            await app.invoke("divide", {"a": 1, "b": number}, actor=ANN)
        await app.flush()
        log = await app.audit.after(0)
        until = datetime.now(UTC) + timedelta(seconds=1)
        period = until - timedelta(hours=1), until
        counted = await app.statistics.catch_up()
        assert counted.behind == 0 and counted.up_to is not None
        first = await app.statistics.over_time(CountFilter("acme"), *period)
        assert (first.totals.calls, first.totals.by_status) == (5, {"success": 4, "failure": 1})
        assert await app.statistics.rebuild() == counted
        assert await app.statistics.over_time(CountFilter("acme"), *period) == first
        assert await app.audit.after(0) == log, "counting changes nothing in the log"


async def test_a_request_counts_a_bounded_part_and_says_so(tmp_path: Path) -> None:
    async with App.open(home=tmp_path, entry_points=False) as app:
        app.register(divide)
        for _ in range(10):
            await app.invoke("divide", {"a": 1, "b": 1})
        assert (await app.statistics.catch_up(max_rows=6)).behind == 14
        assert (await app.statistics.catch_up(max_rows=100)).behind == 0


@pytest.mark.requirement("DOOR-3")
async def test_callers_are_counted_their_own_calls() -> None:
    async with memory_app() as app:
        app.register(divide)
        for actor, times in ((ANN, 3), (BOB, 2), (EVE, 1)):
            for _ in range(times):
                await app.invoke("divide", {"a": 1, "b": 1}, actor=actor)
        async with people(app) as all_people:
            own = (await all_people.ann.get("/v1/statistics")).json
            assert (own["totals"]["calls"], own["before"]["calls"], own["behind"]) == (3, 0, 0)
            assert sum(own["series"][0]["calls"]) == 3 and len(own["points"]) == len(own["p95_ms"])
            assert (await all_people.ann.get("/v1/statistics", user="bob")).json["totals"]["calls"] == 3
            assert (await all_people.ann.get("/v1/statistics", persona="x")).status == 422
            assert (await all_people.ann.get("/v1/statistics", step="1801")).status == 422
            facets = (await all_people.ann.get("/v1/invocations/facets")).json
            assert facets["tools"] == [{"name": "divide", "calls": 3}] and facets["users"] == []
            assert (await all_people.eve.get("/v1/statistics")).json["totals"]["calls"] == 1


async def test_attention_names_what_the_sender_may_see() -> None:
    ann, ops = Actor("acme", user="ann"), Actor("default", user="op")

    @tool(tier="external_api")
    async def pay(amount: int) -> int:
        """Pay somebody."""
        return amount

    async with memory_app() as app:
        app.register(pay)
        waiting = await app.invoke("pay", {"amount": 1}, actor=ann)
        assert waiting.pending is not None
        own: Any = await app.attention.list(ann, ["own", "call"])
        assert [(one.kind, one.href) for one in own] == [("approval", f"/approvals/{waiting.pending.id}")]
        assert "ann" in own[0].words and "pay" in own[0].words
        assert await app.attention.list(Actor("acme", user="bob"), ["own", "call"]) == []
        assert len(await app.attention.list(Actor("acme", user="bob"), ["own", "read"])) == 1
        assert await app.attention.list(Actor("other", user="eve"), ["own", "read"]) == []
        assert await app.attention.list(ops, ["own", "read"], all_tenants=True) == [], "all tenants are for operators"
        assert len(await app.attention.list(ops, ["own", "read", "operate"], all_tenants=True)) == 1
        await app.policy.deny("pay")
        for _ in range(6):
            await app.invoke("pay", {"amount": 1}, actor=ann)
        await app.statistics.catch_up()
        found = await app.attention.list(Actor("acme", user="vera"), ["own", "read"])
        (denied,) = [one for one in found if one.kind == "denials"]
        assert denied.about == "pay" and denied.href == "/calls?tool=pay&code=TOOL_NOT_FOUND" and "6 calls" in denied.words
        assert not [one for one in await app.attention.list(ann, ["own", "call"]) if one.kind == "denials"]

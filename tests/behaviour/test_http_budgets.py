"""/v1/budgets, /v1/costs and /v1/usage: who sees and sets what may be spent."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.desk import Desk
from tests.serving import serving
from toolgate import Actor, InvalidInput, tool
from toolgate.testing import memory_app

pytestmark = [pytest.mark.requirement("DOOR-1"), pytest.mark.asyncio(loop_scope="module")]


@tool(tier="read_only", cost=0.25)
async def ask(times: int = 1) -> int:
    """Ask an oracle."""
    if times < 0:
        raise InvalidInput("too few")
    return times


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with memory_app() as app:
        app.register(ask)
        async with serving(app) as site:
            made = Desk(app, site)
            await made.staff()
            await made.add("carl", Actor("acme", user="carl"), "caller")
            for who, number in (("cora", 3), ("carl", 1), ("eve", 2)):
                for _ in range(number):
                    assert (await made(who, "POST", "/v1/tools/ask/invoke", {})).status == 200
            assert (await made("cora", "POST", "/v1/tools/ask/invoke", {"arguments": {"times": -1}})).status == 422
            yield made
            await app.keys.close()


# -- budgets


@pytest.mark.requirement("COST-2")
async def test_a_budget_of_the_tenant_is_set_changed_and_removed(desk: Desk) -> None:
    made = await desk("adam", "POST", "/v1/budgets", {"period": "day", "limit_usd": "10.50", "user": "*"})
    assert made.status == 201
    budget = made.json
    assert (budget["tenant"], budget["user"], budget["limit_usd"]) == ("acme", "*", 10.5)
    assert budget["updated_by"] == "adam"
    mine = [one for one in (await desk("vera", "GET", "/v1/budgets")).json["items"] if one["id"] == budget["id"]]
    assert {one["user"]: one["spent_usd"] for one in mine} == {"cora": 0.75, "carl": 0.25}
    path = f"/v1/budgets/{budget['id']}"
    assert (await desk("adam", "POST", "/v1/budgets", {"period": "day", "limit_usd": "1", "user": "*"})).status == 409
    read = await desk("adam", "GET", path)
    assert (await desk("adam", "PUT", path, {"limit_usd": "2"}, {"If-Match": '"0"'})).status == 412
    changed = await desk("adam", "PUT", path, {"limit_usd": "0.75"}, {"If-Match": read.headers["etag"]})
    assert (changed.status, changed.json["limit_usd"], changed.json["user"]) == (200, 0.75, "*")
    refused = await desk("cora", "POST", "/v1/tools/ask/invoke", {})
    assert (refused.status, refused.json["error"]["code"]) == (402, "BUDGET_EXCEEDED")
    assert (await desk("adam", "DELETE", path, headers={"If-Match": read.headers["etag"]})).status == 412
    assert (await desk("adam", "DELETE", path)).status == 204
    assert (await desk("adam", "GET", path)).status == 404


@pytest.mark.requirement("DOOR-3")
async def test_budgets_of_others_look_missing(desk: Desk) -> None:
    own = (await desk("adam", "POST", "/v1/budgets", {"period": "month", "limit_usd": "5"})).json
    wide = await desk("op", "POST", "/v1/budgets?tenant=*", {"period": "month", "limit_usd": "100"})
    each = await desk("op", "POST", "/v1/budgets?tenant=*", {"period": "month", "limit_usd": "50", "each_tenant": True})
    assert (wide.status, wide.json["tenant"], each.json["tenant"]) == (201, None, "*")
    never = await desk("eve", "GET", "/v1/budgets/nothing")
    for who, id in (("eve", own["id"]), ("adam", wide.json["id"]), ("adam", each.json["id"])):
        for method, body in (("GET", None), ("PUT", {"limit_usd": "1"}), ("DELETE", None)):
            refused = await desk(who, method, f"/v1/budgets/{id}", body)
            assert (refused.status, refused.json["detail"]) == (404, never.json["detail"])
    shown = (await desk("adam", "GET", "/v1/budgets")).json["items"]
    assert {one["tenant"] for one in shown} == {"acme"}
    assert {own["id"], each.json["id"]} <= {one["id"] for one in shown} and wide.json["id"] not in {
        one["id"] for one in shown
    }
    everything = (await desk("op", "GET", "/v1/budgets?tenant=*&limit=500")).json["items"]
    assert {own["id"], wide.json["id"], each.json["id"]} <= {one["id"] for one in everything}
    for id in (own["id"], wide.json["id"], each.json["id"]):
        assert (await desk("op", "DELETE", f"/v1/budgets/{id}?tenant=*")).status == 204


@pytest.mark.requirement("DOOR-3")
async def test_roles(desk: Desk) -> None:
    assert await desk.statuses("GET", "/v1/budgets") == {
        "cora": 403, "vera": 200, "apu": 200, "adam": 200, "eve": 200, "op": 200,
    }  # fmt: skip
    for who in ("cora", "vera", "apu"):
        assert (await desk(who, "POST", "/v1/budgets", {"period": "day", "limit_usd": "1"})).status == 403
    assert (await desk("adam", "POST", "/v1/budgets?tenant=*", {"period": "day", "limit_usd": "1"})).status == 403


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"period": "day"},
        {"period": "year", "limit_usd": "1"},
        {"period": "day", "limit_usd": 1},
        {"period": "day", "limit_usd": "-1"},
        {"period": "day", "limit_usd": "1e3"},
        {"period": "day", "limit_usd": "9999999999"},
        {"period": "day", "limit_usd": "1", "timezone": "Mars/Olympus"},
        {"period": "day", "limit_usd": "1", "timezone": "../../etc/passwd"},
        {"period": "day", "limit_usd": "1", "until": "2001-01-01T00:00:00Z"},
        {"period": "day", "limit_usd": "1", "until": "2101-01-01T00:00:00"},
        {"period": "day", "limit_usd": "1", "tenant": "other"},
        {"period": "day", "limit_usd": "1", "each_tenant": True},
        {"period": "day", "limit_usd": "1", "user": "a\u202eb"},
    ],
)
async def test_a_wrong_budget_is_refused(desk: Desk, body: dict[str, Any]) -> None:
    assert (await desk("adam", "POST", "/v1/budgets", body)).status == 422


async def test_pages_give_every_balance_once(desk: Desk) -> None:
    made = []
    for name in ("a", "b", "c", "d", "e"):
        answer = await desk("adam", "POST", "/v1/budgets", {"period": "day", "limit_usd": "1", "persona": name})
        made.append(answer.json["id"])
    found, cursor = [], ""
    while True:
        page = (await desk("adam", "GET", f"/v1/budgets?limit=2{cursor}")).json
        found += [(one["id"], one["user"]) for one in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert len(found) == len(set(found)) and set(made) <= {id for id, _ in found}
    for id in made:
        await desk("adam", "DELETE", f"/v1/budgets/{id}")


# -- what was spent and used


@pytest.mark.requirement("COST-3")
async def test_costs_are_those_of_the_tenant(desk: Desk) -> None:
    report = (await desk("vera", "GET", "/v1/costs?by=user")).json
    assert (report["calls"], report["cost_usd"]) == (5, 1.0)
    assert {one["name"]: one["cost_usd"] for one in report["lines"]} == {"cora": 0.75, "carl": 0.25}
    assert (await desk("eve", "GET", "/v1/costs")).json["cost_usd"] == 0.5
    assert (await desk("op", "GET", "/v1/costs")).json["lines"] == []
    everything = (await desk("op", "GET", "/v1/costs?tenant=*&by=tenant")).json
    assert {one["name"]: one["cost_usd"] for one in everything["lines"]} == {"acme": 1.0, "other": 0.5}
    short = (await desk("vera", "GET", "/v1/costs?by=user&limit=1")).json
    assert ([one["name"] for one in short["lines"]], short["omitted"], short["cost_usd"]) == (["cora"], 1, 1.0)
    assert (await desk("vera", "GET", "/v1/costs?since=2100-01-01T00:00:00Z")).json["calls"] == 0
    assert (await desk("cora", "GET", "/v1/costs")).status == 403
    assert (report["behind"], everything["behind"]) == (0, 0) and report["up_to"] is not None
    assert report["since"].endswith("T00:00:00Z") and everything["since"].endswith(":00:00Z"), "the day, and the hour"


@pytest.mark.requirement("COST-3")
async def test_tenants_are_listed_with_what_they_use(desk: Desk) -> None:
    (own,) = (await desk("vera", "GET", "/v1/tenants")).json["items"]
    assert (own["name"], own["calls"], own["cost_usd"], own["personas"]) == ("acme", 5, 1.0, [])
    found: dict[str, tuple[int, float]] = {}
    cursor = ""
    while True:
        page = (await desk("op", "GET", f"/v1/tenants?limit=1{cursor}")).json
        found |= {one["name"]: (one["calls"], one["cost_usd"]) for one in page["items"]}
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert (found["acme"], found["other"]) == ((5, 1.0), (2, 0.5))


async def test_usage_counts_calls_by_their_end(desk: Desk) -> None:
    (mine,) = (await desk("cora", "GET", "/v1/usage?by=tool")).json["lines"]
    counts = ("calls", "successes", "failures", "denied", "cost_usd", "tokens")
    seen = {name: mine[name] for name in counts}
    assert seen["successes"] == 3 and seen["failures"] == 1 and seen["cost_usd"] == 0.75
    users = (await desk("vera", "GET", "/v1/usage?by=user")).json["lines"]
    assert {one["name"] for one in users} == {"cora", "carl"}
    assert (await desk("cora", "GET", "/v1/usage?by=user&user=carl")).json["lines"][0]["name"] == "cora"
    (day,) = (await desk("vera", "GET", "/v1/usage")).json["lines"]
    assert day["successes"] == 4 and len(day["name"]) == 10
    assert {one["name"] for one in (await desk("eve", "GET", "/v1/usage?by=user")).json["lines"]} == {"eve"}


@pytest.mark.parametrize(
    "query",
    ["by=colour", "since=yesterday", "since=2026-01-01T00:00:00", "since=0.5", "since=2026", "since=null", "limit=0", "x=1"],
)
async def test_a_wrong_query_is_refused(desk: Desk, query: str) -> None:
    assert (await desk("vera", "GET", f"/v1/costs?{query}")).status == 422
    assert (await desk("vera", "GET", f"/v1/usage?{query}")).status == 422

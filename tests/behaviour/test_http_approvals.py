"""/v1/approvals and /v1/grants: who sees what waits, who may answer it, and what comes of an answer."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.desk import Desk
from tests.serving import Answer, serving
from toolgate import Actor, tool
from toolgate.testing import memory_app

pytestmark = [pytest.mark.requirement("DOOR-1"), pytest.mark.asyncio(loop_scope="module")]
ANN, BOB, EVE = Actor("acme", user="ann"), Actor("acme", user="bob"), Actor("other", user="eve")
PAID: list[tuple[str, int]] = []


@tool(tier="external_api")
async def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    PAID.append((to, amount))
    return f"{amount} to {to}"


@tool(tier="external_api")
async def wire(amount: int) -> int:
    """Wire money; two must agree."""
    return amount


@tool(tier="read_only")
async def look() -> int:
    """Look."""
    return 1


class Inbox(Desk):
    """A desk at which calls wait."""

    async def ask(self, who: str = "ann", name: str = "pay", **arguments: Any) -> str:
        """Make a call that waits; gives the id of its approval."""
        given = arguments or {"to": "x", "amount": 5}
        answer = await self(who, "POST", f"/v1/tools/{name}/invoke", {"arguments": given})
        assert answer.status == 202
        found: str = answer.json["pending"]["id"]
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Inbox]:
    rules = [{"tool": "wire", "quorum": 2}]
    async with memory_app(approvals={"rules": rules}) as app:
        for one in (pay, wire, look):
            app.register(one)
        async with serving(app) as site:
            made = Inbox(app, site)
            await made.add("ann", ANN, "caller")
            await made.add("ann approves", ANN, "approver")
            await made.add("bob", BOB, "caller", "approver")
            await made.add("cleo", Actor("acme", user="cleo"), "approver")
            await made.add("vera", Actor("acme", user="vera"), "viewer")
            await made.add("adam", Actor("acme", user="adam"), "admin")
            await made.add("eve", EVE, "admin")
            await made.add("eva", Actor("other", user="eva"), "caller")
            await made.add("op", Actor("ops", user="oscar"), "operator")
            await made.add("local", Actor("acme", user="local"), "approver")
            yield made
            await app.keys.close()


# -- who sees what


@pytest.mark.requirement("DOOR-3")
async def test_a_caller_sees_its_own_and_whoever_may_read_those_of_the_tenant(desk: Inbox) -> None:
    anns, bobs, evas = (
        await desk.ask("ann", amount=11, to="x"),
        await desk.ask("bob", amount=12, to="x"),
        await desk.ask("eva"),
    )
    seen = {}
    for who in ("ann", "vera", "adam", "eve", "op"):
        items = (await desk(who, "GET", "/v1/approvals?limit=500&state=waiting")).json["items"]
        seen[who] = {one["id"] for one in items} & {anns, bobs, evas}
    assert seen == {"ann": {anns}, "vera": {anns, bobs}, "adam": {anns, bobs}, "eve": {evas}, "op": set()}
    everywhere = (await desk("op", "GET", "/v1/approvals?limit=500&tenant=*")).json["items"]
    assert {anns, bobs, evas} <= {one["id"] for one in everywhere}
    assert (await desk("ann", "GET", "/v1/approvals?user=bob")).json["items"] == (
        await desk("ann", "GET", "/v1/approvals")
    ).json["items"]
    bobs_only = (await desk("vera", "GET", "/v1/approvals?user=bob&tool=pay")).json["items"]
    assert {one["asked_by"]["user"] for one in bobs_only} == {"bob"}


@pytest.mark.requirement("DOOR-3")
async def test_what_is_somebody_elses_looks_missing(desk: Inbox) -> None:
    id = await desk.ask("bob", amount=13, to="x")
    for who in ("ann", "eve", "eva"):
        refused = await desk(who, "GET", f"/v1/approvals/{id}")
        never = await desk(who, "GET", "/v1/approvals/ap_aaaaaaaaaaaaaaaa")
        assert refused.status == never.status == 404
        assert refused.json["detail"].replace(id, "ap_aaaaaaaaaaaaaaaa") == never.json["detail"]
    answered = await desk("eve", "POST", f"/v1/approvals/{id}", {"verdict": "approve"})
    assert answered.status == 404
    assert (await desk("ann", "POST", f"/v1/approvals/{id}/resume")).status == 404
    assert (await desk("bob", "GET", f"/v1/approvals/{id}")).json["state"] == "waiting"
    assert (await desk("op", "GET", f"/v1/approvals/{id}")).status == 404
    assert (await desk("op", "GET", f"/v1/approvals/{id}?tenant=acme")).status == 200


@pytest.mark.requirement("TIER-10")
async def test_an_approver_sees_everything_that_will_run_and_others_what_records_hold(desk: Inbox) -> None:
    id = await desk.ask("ann", amount=14, to="password=hunter2hunter2")
    approver = (await desk("bob", "GET", f"/v1/approvals/{id}")).json
    assert approver["arguments"] == {"amount": 14, "to": "password=hunter2hunter2"}
    assert approver["may_answer"] and "hunter2" in approver["text"] and approver["workspace"]
    for who in ("ann", "vera", "ann approves"):
        body = await desk(who, "GET", f"/v1/approvals/{id}")
        assert body.status == 200 and b"hunter2" not in body.body and not body.json["may_answer"]
    assert b"hunter2" not in (await desk("bob", "GET", "/v1/approvals?limit=500")).body


async def test_pages_give_everything_once(desk: Inbox) -> None:
    made = [await desk.ask("ann", amount=100 + n, to="page") for n in range(5)]
    found, cursor = [], ""
    while True:
        page = (await desk("ann", "GET", f"/v1/approvals?limit=2&state=waiting{cursor}")).json
        found += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert len(found) == len(set(found))
    assert [id for id in found if id in made] == made
    assert (await desk("bob", "GET", f"/v1/approvals?limit=2&state=waiting{cursor}")).status == 400


# -- answers


@pytest.mark.requirement("TIER-6")
async def test_an_approved_call_runs_when_its_caller_resumes_it(desk: Inbox) -> None:
    id = await desk.ask("ann", amount=20, to="resumed")
    early = await desk("ann", "POST", f"/v1/approvals/{id}/resume")
    assert (early.status, early.json["code"]) == (409, "CONFLICT")
    answered = await desk("bob", "POST", f"/v1/approvals/{id}", {"verdict": "approve", "reason": "fine"})
    assert answered.status == 200 and answered.json["outcome"] is None
    approval = answered.json["approval"]
    assert (approval["state"], approval["answered_by"], approval["answered_through"]) == ("approved", "bob", "http")
    assert ("resumed", 20) not in PAID
    assert (await desk("bob", "POST", f"/v1/approvals/{id}/resume")).status == 404
    done = await desk("ann", "POST", f"/v1/approvals/{id}/resume")
    assert (done.status, done.json["outcome"]["output"], done.json["approval"]["state"]) == (200, "20 to resumed", "used")
    assert PAID.count(("resumed", 20)) == 1
    again = await desk("bob", "POST", f"/v1/approvals/{id}", {"verdict": "approve"})
    assert (again.status, again.json["code"]) == (409, "CONFLICT")


@pytest.mark.requirement("TIER-6")
async def test_run_makes_the_call_as_whoever_asked(desk: Inbox) -> None:
    id = await desk.ask("ann", amount=21, to="run")
    done = (await desk("bob", "POST", f"/v1/approvals/{id}", {"verdict": "approve", "run": True})).json
    assert (done["outcome"]["status"], done["outcome"]["output"]) == ("success", "21 to run")
    edited = {"verdict": "edit", "arguments": {"to": "run", "amount": 1}, "run": True}
    done = (await desk("bob", "POST", f"/v1/approvals/{await desk.ask('ann', amount=22, to='run')}", edited)).json
    assert done["outcome"]["output"] == "1 to run" and done["approval"]["edited"]["amount"] == 1


@pytest.mark.requirement("TIER-10")
async def test_nobody_approves_what_they_asked_for_themselves(desk: Inbox) -> None:
    id = await desk.ask("bob", amount=30, to="self")
    for who in ("bob",):
        refused = await desk(who, "POST", f"/v1/approvals/{id}", {"verdict": "approve", "run": True})
        assert (refused.status, refused.json["code"]) == (403, "PERMISSION_DENIED")
    other_key = await desk.ask("ann", amount=31, to="self")
    assert (await desk("ann approves", "POST", f"/v1/approvals/{other_key}", {"verdict": "approve"})).status == 403
    assert ("self", 30) not in PAID and ("self", 31) not in PAID
    taken_back = await desk("bob", "POST", f"/v1/approvals/{id}", {"verdict": "reject", "reason": "a mistake"})
    assert (taken_back.status, taken_back.json["approval"]["state"]) == (200, "rejected")


@pytest.mark.requirement("TIER-10")
async def test_a_quorum_counts_each_person_once(desk: Inbox) -> None:
    id = await desk.ask("ann", "wire", amount=1)
    first = (await desk("bob", "POST", f"/v1/approvals/{id}", {"verdict": "approve", "run": True})).json
    assert (first["approval"]["state"], first["approval"]["agreed"], first["outcome"]) == ("waiting", ["bob"], None)
    again = (await desk("bob", "POST", f"/v1/approvals/{id}", {"verdict": "approve"})).json
    assert again["approval"]["state"] == "waiting"
    assert (await desk("bob", "POST", f"/v1/approvals/{id}", {"verdict": "edit", "arguments": {"amount": 2}})).status == 422
    last = (await desk("cleo", "POST", f"/v1/approvals/{id}", {"verdict": "approve", "run": True})).json
    assert last["outcome"]["output"] == 1


@pytest.mark.requirement("DOOR-3")
@pytest.mark.parametrize("who", ["ann", "vera"])
async def test_a_role_that_may_not_answer_is_refused(desk: Inbox, who: str) -> None:
    id = await desk.ask("bob", amount=40, to="roles")
    assert (await desk(who, "POST", f"/v1/approvals/{id}", {"verdict": "approve"})).status == 403
    assert (await desk(who, "POST", "/v1/grants", {"tool": "pay", "scope": "tenant", "seconds": 60})).status == 403


async def test_an_answer_to_what_has_changed_meanwhile_is_refused(desk: Inbox) -> None:
    id = await desk.ask("ann", amount=41, to="etag")
    read = await desk("bob", "GET", f"/v1/approvals/{id}")
    stale = await desk("bob", "POST", f"/v1/approvals/{id}", {"verdict": "reject"}, {"If-Match": '"0"'})
    assert (stale.status, stale.json["code"]) == (412, "PRECONDITION_FAILED")
    assert (
        await desk("bob", "POST", f"/v1/approvals/{id}", {"verdict": "reject"}, {"If-Match": read.headers["etag"]})
    ).status == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"verdict": "yes"},
        {"verdict": "edit"},
        {"verdict": "approve", "arguments": {}},
        {"verdict": "approve", "by": "somebody"},
        {"verdict": "approve", "grant": {"scope": "user", "seconds": 0}},
        {"verdict": "approve", "grant": {"scope": "user", "seconds": 60, "cap_usd": "-1"}},
        {"verdict": "reject", "grant": {"scope": "user", "seconds": 60}},
        {"verdict": "edit", "arguments": {"to": "x", "amount": "much"}},
    ],
)
async def test_a_wrong_answer_changes_nothing(desk: Inbox, body: dict[str, Any]) -> None:
    id = await desk.ask("ann", amount=42, to="wrong")
    assert (await desk("bob", "POST", f"/v1/approvals/{id}", body)).status == 422
    assert (await desk("bob", "GET", f"/v1/approvals/{id}")).json["state"] == "waiting"


async def test_an_operator_answers_in_the_tenant_it_names(desk: Inbox) -> None:
    id = await desk.ask("eva", amount=43, to="op")
    assert (await desk("op", "POST", f"/v1/approvals/{id}?tenant=*", {"verdict": "approve"})).status == 422
    answered = await desk("op", "POST", f"/v1/approvals/{id}?tenant=other", {"verdict": "approve"})
    assert (answered.status, answered.json["approval"]["answered_by"]) == (200, "oscar")


# -- grants


async def grant(desk: Inbox, who: str, **terms: Any) -> Answer:
    return await desk(who, "POST", "/v1/grants", {"tool": "pay", "scope": "user", "seconds": 60, **terms})


@pytest.mark.requirement("TIER-7")
async def test_a_grant_lets_a_tool_run_unasked_until_it_is_revoked(desk: Inbox) -> None:
    made = await grant(desk, "bob", user="gil", reason="this week")
    assert (made.status, made.json["granted_by"], made.json["user"]) == (201, "bob", "gil")
    await desk.add("gil", Actor("acme", user="gil"), "caller")
    ran = await desk("gil", "POST", "/v1/tools/pay/invoke", {"arguments": {"to": "gil", "amount": 1}})
    assert ran.status == 200
    path = f"/v1/grants/{made.json['id']}"
    assert (await desk("gil", "GET", path)).json["uses"] == 1
    assert [one["id"] for one in (await desk("gil", "GET", "/v1/grants")).json["items"]] == [made.json["id"]]
    for who in ("ann", "eve"):
        assert (await desk(who, "GET", path)).status == 404
    assert (await desk("eve", "DELETE", path)).status == 404
    assert (await desk("gil", "DELETE", path)).status == 403
    assert (await desk("bob", "DELETE", path, headers={"If-Match": '"0"'})).status == 412
    revoked = await desk("bob", "DELETE", path)
    assert (revoked.status, revoked.json["revoked_by"]) == (200, "bob")
    assert (await desk("bob", "DELETE", path)).status == 409
    await desk.ask("gil", amount=2, to="gil")
    assert (await desk("gil", "GET", "/v1/grants")).json["items"] == []
    assert len((await desk("gil", "GET", "/v1/grants?all=true")).json["items"]) == 1


@pytest.mark.requirement("TIER-7")
async def test_a_grant_is_for_the_same_arguments_and_so_many_calls(desk: Inbox) -> None:
    async def paid(amount: int) -> int:
        body = {"arguments": {"amount": amount, "to": "hal"}}
        return (await desk("hal", "POST", "/v1/tools/pay/invoke", body)).status

    await desk.add("hal", Actor("acme", user="hal"), "caller")
    id = await desk.ask("hal", to="hal", amount=5)
    wish = {"scope": "user", "seconds": 60, "max_uses": 1, "same_arguments": True}
    answered = await desk("bob", "POST", f"/v1/approvals/{id}", {"verdict": "approve", "grant": wish, "run": True})
    assert answered.json["outcome"]["status"] == "success"
    assert [await paid(6), await paid(5), await paid(5)] == [202, 200, 202]
    (held,) = (await desk("hal", "GET", "/v1/grants")).json["items"]
    assert (held["uses"], held["max_uses"], held["arguments"]) == (1, 1, {"to": "hal", "amount": 5})
    ahead = await grant(desk, "bob", user="hal", arguments={"amount": 7, "to": "hal"}, max_uses=2)
    assert (ahead.status, await paid(7), await paid(8)) == (201, 200, 202)
    for wrong in ({"arguments": {"amount": "many"}}, {"max_uses": 0}, {"max_uses": "1"}, {"same_arguments": True}):
        assert (await grant(desk, "bob", user="hal", **wrong)).status == 422, wrong
    for one in (held["id"], ahead.json["id"]):
        await desk("bob", "DELETE", f"/v1/grants/{one}")


@pytest.mark.requirement("TIER-10")
async def test_nobody_grants_themselves_anything(desk: Inbox) -> None:
    assert (await grant(desk, "bob", user="bob")).status == 403
    whole = await grant(desk, "bob", scope="tenant")
    assert whole.status == 201
    await desk.ask("bob", amount=50, to="own")  # his own calls are still asked about
    assert (await desk("ann", "POST", "/v1/tools/pay/invoke", {"arguments": {"to": "w", "amount": 1}})).status == 200
    assert (await desk("bob", "DELETE", f"/v1/grants/{whole.json['id']}")).status == 200
    local = await grant(desk, "local", scope="tenant")
    assert (local.status, "machine" in local.json["detail"]) == (403, True)
    id = await desk.ask("ann", amount=51, to="local")
    answered = {"verdict": "approve", "grant": {"scope": "tenant", "seconds": 60}}
    assert (await desk("local", "POST", f"/v1/approvals/{id}", answered)).status == 403


@pytest.mark.parametrize(
    ("terms", "status"),
    [
        ({}, 422),
        ({"scope": "tenant", "user": "ann"}, 422),
        ({"user": "ann", "seconds": 40_000_000}, 422),
        ({"user": "ann", "cap_usd": "1"}, 422),
        ({"user": "ann", "tool": "look"}, 422),
        ({"user": "ann", "tool": "nothing"}, 404),
        ({"user": "ann\n"}, 422),
        ({"user": "ann", "tenant": "other"}, 422),
    ],
)
async def test_a_wrong_grant_is_refused(desk: Inbox, terms: dict[str, Any], status: int) -> None:
    assert (await grant(desk, "bob", **terms)).status == status


@pytest.mark.requirement("TIER-10")
async def test_where_a_setting_allows_it_whoever_asked_may_answer() -> None:
    async with memory_app(approvals={"asker_may_answer": "always"}) as app:
        app.register(pay)
        async with serving(app) as site:
            desk = Inbox(app, site)
            await desk.add("bob", BOB, "caller", "approver")
            id = await desk.ask("bob", amount=60, to="always")
            assert (await desk("bob", "GET", f"/v1/approvals/{id}")).json["may_answer"] is True
            done = await desk("bob", "POST", f"/v1/approvals/{id}", {"verdict": "approve", "run": True})
            assert done.json["outcome"]["output"] == "60 to always"
            await app.keys.close()

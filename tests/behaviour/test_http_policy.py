"""/v1/policy: who sees and asks the policy, tries another, and changes its lists."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.desk import Desk
from tests.serving import serving
from toolgate import tool
from toolgate.testing import memory_app

pytestmark = [pytest.mark.requirement("DOOR-1"), pytest.mark.asyncio(loop_scope="module")]
DENY_ALL = "package soma.policy\nimport rego.v1\ndefault allow := false\n"


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with memory_app() as app:
        app.register(add)
        async with serving(app) as site:
            made = Desk(app, site)
            await made.staff()
            for who, number in (("cora", 2), ("eve", 1)):
                for _ in range(number):
                    await made(who, "POST", "/v1/tools/add/invoke", {"arguments": {"a": 1, "b": 1}})
            yield made
            await app.keys.close()


async def test_the_policy_in_force(desk: Desk) -> None:
    mine, operators = await desk("vera", "GET", "/v1/policy"), await desk("op", "GET", "/v1/policy")
    assert (mine.json["engine"], mine.json["text"]) == ("embedded", None)
    assert operators.json["hash"] == mine.json["hash"] and "package soma.policy" in operators.json["text"]
    assert (await desk("cora", "GET", "/v1/policy")).status == 403


@pytest.mark.requirement("DOOR-3")
async def test_an_admin_sees_its_tenants_part_of_the_data(desk: Desk) -> None:
    await desk.app.tools.disable("add", tenant="third")
    await desk.app.tools.disable("add", persona="stranger", reason="a reason of others")
    await desk.app.policy.restrict_code("third")
    own = await desk("adam", "GET", "/v1/policy/data")
    assert "add" in own.json["tool_catalog"]
    for word in (b"third", b"stranger", b"a reason of others"):
        assert word not in own.body
    whole = await desk("op", "GET", "/v1/policy/data?tenant=*")
    assert whole.json["tenant_tool_flags"]["third"] == {"add": {"enabled": False}}
    assert b"stranger" in whole.body
    for who in ("cora", "vera", "apu"):
        assert (await desk(who, "GET", "/v1/policy/data")).status == 403
    await desk.app.tools.set_enabled("add", None, persona="stranger")


async def test_a_decision_without_the_action(desk: Desk) -> None:
    allowed = (await desk("adam", "POST", "/v1/policy/decide", {"tool": "add"})).json
    assert allowed["allow"] is True
    refused = (await desk("adam", "POST", "/v1/policy/decide", {"tool": "add", "action": "tool.enable"})).json
    assert refused["allow"] is False and refused["reason"]
    missing = (await desk("adam", "POST", "/v1/policy/decide", {"tool": "nope", "user": "ann", "persona": "x"})).json
    assert missing["allow"] is False
    for body in ({}, {"tool": "add", "action": "tool.destroy"}, {"tool": "add", "tenant": "other"}, {"tool": "a\n"}):
        assert (await desk("adam", "POST", "/v1/policy/decide", body)).status == 422
    assert (await desk("cora", "POST", "/v1/policy/decide", {"tool": "add"})).status == 403


@pytest.mark.requirement("POL-6")
async def test_a_replay_is_of_the_tenant_that_is_named(desk: Desk) -> None:
    async def replayed(query: str) -> dict[str, Any]:
        answer = await desk("op", "POST", f"/v1/policy/replay{query}", {"rego": DENY_ALL})
        assert answer.status == 200
        found: dict[str, Any] = answer.json
        return found

    assert (await replayed("?tenant=acme"))["newly_denied"] == 2
    everything = await replayed("?tenant=*")
    assert everything["newly_denied"] == 3 and {one["tenant"] for one in everything["groups"]} == {"acme", "other"}
    assert (await replayed(""))["calls"] == 0
    later = {"rego": DENY_ALL, "since": "2100-01-01T00:00:00Z"}
    assert (await desk("op", "POST", "/v1/policy/replay?tenant=*", later)).json["calls"] == 0
    for who in ("cora", "vera", "apu", "adam"):
        assert (await desk(who, "POST", "/v1/policy/replay", {"rego": DENY_ALL})).status == 403
    for rego in ("", "package other\n", "package soma.policy\nallow {", "\0" + DENY_ALL):
        assert (await desk("op", "POST", "/v1/policy/replay", {"rego": rego})).status == 422


async def test_observed_policies(desk: Desk) -> None:
    assert (await desk("adam", "GET", "/v1/policy/observed")).json == {}
    assert (await desk("vera", "GET", "/v1/policy/observed")).status == 403


@pytest.mark.requirement("DOOR-3")
async def test_only_an_operator_changes_the_lists(desk: Desk) -> None:
    changes: tuple[tuple[str, str, Any], ...] = (
        ("PUT", "denied-tools/add", {"reason": "broken"}),
        ("DELETE", "denied-tools/add", None),
        ("PUT", "code-restrictions/acme", None),
        ("DELETE", "code-restrictions/acme", None),
        ("PUT", "personas/builder", {"can_add_tools": True}),
        ("PUT", "personas/builder", {"can_add_tools": False}),
    )
    for method, path, body in changes:
        statuses = await desk.statuses(method, f"/v1/policy/{path}", body)
        assert statuses == {"cora": 403, "vera": 403, "apu": 403, "adam": 403, "eve": 403, "op": 204}
    assert (await desk("op", "PUT", "/v1/policy/personas/builder", {})).status == 422


async def test_a_denied_tool_is_gone_for_everybody(desk: Desk) -> None:
    await desk("op", "PUT", "/v1/policy/denied-tools/add", {"reason": "broken"})
    assert (await desk("cora", "GET", "/v1/tools/add")).status == 404
    await desk("op", "DELETE", "/v1/policy/denied-tools/add")
    assert (await desk("cora", "GET", "/v1/tools/add")).status == 200
    await desk("op", "PUT", "/v1/policy/code-restrictions/acme")
    assert desk.app.policy.data.restricted_tenants >= {"acme"}
    await desk("op", "DELETE", "/v1/policy/code-restrictions/acme")


@pytest.mark.requirement("POL-9")
async def test_a_suggestion_is_of_the_tenant_and_only_an_operator_sees_and_applies_it(desk: Desk) -> None:
    found = (await desk("op", "GET", "/v1/policy/suggest?tenant=acme&days=2")).json
    assert {(one["tenant"], one["persona"]) for one in found["personas"]} >= {("acme", None)}
    assert {one["tenant"] for one in found["personas"]} == {"acme"}
    assert set(found["data"]["tenant_tool_allow"]) == {"acme"}
    every = (await desk("op", "GET", "/v1/policy/suggest?tenant=*")).json
    assert {one["tenant"] for one in every["personas"]} >= {"acme", "other"}
    replayed = (await desk("op", "POST", "/v1/policy/replay?tenant=acme", {"data": found["data"]})).json
    assert (replayed["same"], replayed["newly_denied"]) == (replayed["calls"], 0)
    nothing: dict[str, Any] = {"data": {"tenant_tool_allow": {"acme": {"personas": {}}}}}
    assert (await desk("op", "POST", "/v1/policy/replay?tenant=acme", nothing)).json["newly_denied"] == 2
    assert (await desk("op", "POST", "/v1/policy/replay", {"data": {"tenant_tool_allow": []}})).status == 422
    for days in ("0", "367", "x"):
        assert (await desk("op", "GET", f"/v1/policy/suggest?days={days}")).status == 422
    statuses = await desk.statuses("GET", "/v1/policy/suggest", None)
    assert statuses == {"cora": 403, "vera": 403, "apu": 403, "adam": 403, "eve": 403, "op": 200}

    body = found["data"]["tenant_tool_allow"]["acme"]
    statuses = await desk.statuses("PUT", "/v1/policy/allow-lists/acme", body)
    assert statuses == {"cora": 403, "vera": 403, "apu": 403, "adam": 403, "eve": 403, "op": 204}
    assert (await desk("cora", "GET", "/v1/tools")).json["items"][0]["name"] == "add"
    assert len((await desk("cora", "GET", "/v1/tools")).json["items"]) == 1
    own = (await desk("adam", "GET", "/v1/policy/data")).json
    assert set(own["tenant_tool_allow"]) == {"acme"}
    assert (await desk("op", "PUT", "/v1/policy/allow-lists/acme", {"personas": {"x": "add"}})).status == 422
    assert (await desk("op", "DELETE", "/v1/policy/allow-lists/acme")).status == 204
    assert len((await desk("cora", "GET", "/v1/tools")).json["items"]) > 1

"""/v1/flags and PATCH /v1/tools: who enables and disables tools, for whom."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.desk import Desk
from tests.serving import serving
from toolgate import tool
from toolgate.testing import memory_app

pytestmark = [pytest.mark.requirement("REG-4"), pytest.mark.asyncio(loop_scope="module")]


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(tier="read_only")
async def subtract(a: int, b: int) -> int:
    """Subtract two numbers."""
    return a - b


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with memory_app() as app:
        app.register(add)
        app.register(subtract)
        async with serving(app) as site:
            made = Desk(app, site)
            await made.staff()
            yield made
            await app.keys.close()


async def has(desk: Desk, who: str, name: str = "add") -> bool:
    return (await desk(who, "POST", f"/v1/tools/{name}/invoke", {"arguments": {"a": 1, "b": 1}})).status == 200


async def test_an_admin_disables_a_tool_for_its_own_tenant(desk: Desk) -> None:
    answer = await desk("adam", "PUT", "/v1/flags/add", {"enabled": False, "reason": "not needed"})
    assert answer.json == {
        "tool": "add", "enabled": False, "everybody": True, "flag": False, "by_operator": False, "enforced": False,
    }  # fmt: skip
    assert (await has(desk, "cora"), await has(desk, "eve")) == (False, True)
    listed = (await desk("vera", "GET", "/v1/flags")).json["items"]
    assert [(one["whose"], one["tool"], one["enabled"]) for one in listed] == [("acme", "add", False)]
    assert (await desk("eve", "GET", "/v1/flags")).json["items"] == []
    assert (await desk("adam", "DELETE", "/v1/flags/add", headers={"If-Match": '"0"'})).status == 412
    assert (await desk("adam", "DELETE", "/v1/flags/add")).json["enabled"] is True
    assert await has(desk, "cora")


async def test_patch_of_a_tool_is_the_same(desk: Desk) -> None:
    read = await desk("adam", "GET", "/v1/tools/add")
    changed = await desk("adam", "PATCH", "/v1/tools/add", {"enabled": False}, {"If-Match": read.headers["etag"]})
    assert (changed.status, changed.json["enabled"]) == (200, False)
    assert (await desk("adam", "PATCH", "/v1/tools/add", {"enabled": True})).json["enabled"] is True
    assert (await desk("adam", "PATCH", "/v1/tools/nope", {"enabled": True})).status == 404
    await desk("adam", "DELETE", "/v1/flags/add")


@pytest.mark.requirement("DOOR-3")
async def test_roles(desk: Desk) -> None:
    body = {"enabled": True}
    expected = {"cora": 403, "vera": 403, "apu": 403, "adam": 200, "eve": 200, "op": 200}
    assert await desk.statuses("PUT", "/v1/flags/add", body) == expected
    assert await desk.statuses("DELETE", "/v1/flags/add") == expected
    assert (await desk("cora", "GET", "/v1/flags")).status == 403
    for scope in ("persona", "everybody"):
        assert (await desk("adam", "GET", f"/v1/flags?scope={scope}")).status == 403
    assert (await desk("adam", "PUT", "/v1/flags/add", {"enabled": False, "persona": "analyst"})).status == 403
    assert (await desk("adam", "PUT", "/v1/flags/add?tenant=*", {"enabled": False})).status == 403
    assert (await desk("adam", "PUT", "/v1/flags/add?tenant=other", {"enabled": False})).status == 403


async def test_an_operator_switches_a_tool_for_everybody_and_for_a_persona(desk: Desk) -> None:
    assert (await desk("op", "PUT", "/v1/flags/subtract?tenant=*", {"enabled": False})).json["everybody"] is False
    assert not await has(desk, "cora", "subtract") and not await has(desk, "eve", "subtract")
    refused = await desk("adam", "PUT", "/v1/flags/subtract", {"enabled": True})
    assert (refused.status, refused.json["code"]) == (403, "PERMISSION_DENIED")
    assert not await has(desk, "cora", "subtract")
    everybody = (await desk("op", "GET", "/v1/flags?scope=everybody")).json["items"]
    assert [(one["whose"], one["tool"]) for one in everybody] == [(None, "subtract")]
    assert (await desk("op", "DELETE", "/v1/flags/subtract?tenant=*")).json["everybody"] is True
    body = {"enabled": False, "persona": "analyst", "reason": "they only add"}
    assert (await desk("op", "PUT", "/v1/flags/subtract", body)).status == 200
    [persona] = (await desk("op", "GET", "/v1/flags?scope=persona")).json["items"]
    assert (persona["whose"], persona["enabled"], persona["reason"]) == ("analyst", False, "they only add")
    assert (await desk("op", "DELETE", "/v1/flags/subtract?persona=analyst")).status == 200
    unseen = {"enabled": False, "persona": "ana\u202elyst"}
    assert (await desk("op", "PUT", "/v1/flags/add", unseen)).status == 422, "nobody can have that name"
    assert (await desk("op", "GET", "/v1/tools/add/access")).status == 200


async def test_an_admin_does_not_change_what_an_operator_set_for_the_tenant(desk: Desk) -> None:
    set_by_operator = await desk("op", "PUT", "/v1/flags/add?tenant=acme", {"enabled": False})
    assert set_by_operator.json["by_operator"] is True
    for method, body in (("PUT", {"enabled": True}), ("DELETE", None)):
        refused = await desk("adam", method, "/v1/flags/add", body)
        assert (refused.status, refused.json["code"]) == (403, "PERMISSION_DENIED")
    assert (await desk("adam", "PATCH", "/v1/tools/add", {"enabled": True})).status == 403
    assert not await has(desk, "cora")
    assert (await desk("op", "DELETE", "/v1/flags/add?tenant=acme")).status == 200


@pytest.mark.parametrize("body", [{}, {"enabled": "yes"}, {"enabled": None}, {"enabled": True, "tenant": "other"}])
async def test_a_wrong_flag_is_refused(desk: Desk, body: dict[str, Any]) -> None:
    assert (await desk("adam", "PUT", "/v1/flags/add", body)).status == 422


async def test_pages_give_every_flag_once(desk: Desk) -> None:
    names = sorted(one.name for one in await desk.app.tools.list())[:7]
    await desk.app.tools.set_flags(("acme", name, False) for name in names)
    found, cursor = [], ""
    while True:
        page = (await desk("adam", "GET", f"/v1/flags?limit=3{cursor}")).json
        found += [one["tool"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert found == names
    await desk.app.tools.set_flags(("acme", name, None) for name in names)


@pytest.mark.requirement("DOOR-3")
async def test_who_names_a_tool_that_is_not_there_is_not_sent_to_the_list_of_flags(desk: Desk) -> None:
    for path in ("/v1/flags/nope", "/v1/tools/nope"):
        answer = await desk("adam", "GET", path)
        assert answer.status == 404
        assert "/v1/flags" not in answer.json["suggestion"]
    assert "GET /v1/tools lists" in answer.json["suggestion"]

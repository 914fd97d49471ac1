"""/v1/servers: MCP servers are added, looked at, accepted and removed by operators."""

from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.http_people import People, people
from tests.remote_servers import odd
from toolgate import Actor, App

pytestmark = [pytest.mark.requirement("MCP-5"), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOOLGATE_SECRETS_KEY", b64encode(bytes(range(32))).decode())
        async with App.open(None, home=tmp_path_factory.mktemp("servers")) as app:
            yield app


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def all_people(app: App) -> AsyncIterator[People]:
    async with people(app) as found:
        yield found


async def test_a_server_is_added_accepted_and_removed(app: App, all_people: People) -> None:
    operator = all_people.of["operator"]
    async with odd() as (_, running):
        url = running.url
        added = await operator.post(
            "/v1/servers", {"name": "far", "url": url, "headers": {"X-Api-Key": "sesame-1234567890"}}
        )
        assert added.status == 201, added.body
        assert b"sesame" not in added.body
        detail = added.json
        assert (detail["server"]["origin"], detail["server"]["headers"], detail["tools"]) == ("store", ["X-Api-Key"], [])
        waiting = detail["quarantined"]
        assert waiting
        assert all(one["state"] == "new" and one["diff"] for one in waiting)
        assert [one["name"] for one in (await operator.get("/v1/servers")).json["items"]] == ["far"]
        assert (await operator.post("/v1/servers", {"name": "far", "url": url})).status == 409

        wrong = await operator.post("/v1/servers/far/accept", {"hashes": [waiting[0]["hash"], "0" * 64]})
        assert wrong.status == 409
        assert (await operator.get("/v1/servers/far")).json["tools"] == []
        accepted = await operator.post("/v1/servers/far/accept", {"hashes": [one["hash"] for one in waiting]})
        assert accepted.status == 200, accepted.body
        assert accepted.json["quarantined"] == []
        names = {one["name"] for one in accepted.json["tools"]}
        assert names == {one["name"] for one in waiting if one["kind"] == "tool"}
        assert names <= {entry.name for entry in app.tools.entries()}
        assert (await operator.post("/v1/servers/far/restart")).status == 200
        assert (await operator.post("/v1/servers/far/refresh")).json["quarantined"] == []

        acts = await operator.all("/v1/audit", kind="mcp.tool_accepted")
        assert {one["body"]["user"] for one in acts} == {"operator"}
        assert (await operator.delete("/v1/servers/far")).status == 204
    gone = await operator.get("/v1/servers/far")
    assert (gone.status, gone.json["code"]) == (404, "NOT_FOUND")
    for answer in (await operator.delete("/v1/servers/far"), await operator.post("/v1/servers/far/restart")):
        assert answer.status == 404
    assert not names & {entry.name for entry in app.tools.entries()}


async def test_only_operators_see_or_change_servers(all_people: People) -> None:
    for role in ("viewer", "caller", "approver", "admin"):
        person = all_people.of[role]
        assert (await person.get("/v1/servers")).status == 403
        assert (await person.get("/v1/servers/far")).status == 403
        assert (await person.post("/v1/servers", {"name": "x", "url": "https://example.com/mcp"})).status == 403
        assert (await person.delete("/v1/servers/far")).status == 403


@pytest.mark.requirement("MCP-3")
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"settings": {"isolation": "none"}}, 403),
        ({"env": {"PLACE": "{{secret:OTHERS_KEY}}"}}, 422),
        ({"env": {"API_KEY": "{{secret:OTHERS_KEY}}"}}, 422),
        ({"command": ["/bin/cat", "--key={{secret:OTHERS_KEY}}"]}, 422),
        ({"settings": {"env": {"A": "b"}}}, 422),
        ({"settings": {"colour": "red"}}, 422),
        ({"name": "../x"}, 422),
        ({"command": []}, 422),
        ({"command": [""]}, 422),
        ({"command": None}, 422),
        ({"trust": True}, 422),
    ],
)
async def test_servers_that_are_wrong_are_refused(all_people: People, change: dict[str, Any], status: int) -> None:
    body = {"name": "near", "command": ["/bin/cat"], "start": False, **change}
    body = {name: part for name, part in body.items() if part is not None}
    answer = await all_people.of["operator"].post("/v1/servers", body)
    assert answer.status == status, answer.body
    assert (await all_people.of["operator"].get("/v1/servers")).json["items"] == []


async def test_a_server_that_cannot_be_started_is_not_added(all_people: People) -> None:
    body = {"name": "near", "command": ["/bin/false"], "settings": {"start_seconds": 5}}
    answer = await all_people.of["operator"].post("/v1/servers", body)
    assert answer.status in (502, 503, 504), answer.body
    assert (await all_people.of["operator"].get("/v1/servers")).json["items"] == []


async def test_a_server_of_another_tenants_making_needs_no_tenant(app: App, all_people: People) -> None:
    await app.policy.allow_adding_tools("builder")
    actor = Actor("other", "builder", "zoe")
    async with odd() as (_, running):
        url = running.url
        await app.servers.add("theirs", {"url": url}, actor=actor)
        assert (await all_people.of["operator"].get("/v1/servers/theirs")).json["server"]["state"] == "idle"
        assert (await all_people.of["operator"].delete("/v1/servers/theirs")).status == 204

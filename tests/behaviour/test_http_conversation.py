"""/v1/canvas, /v1/notifications, /v1/push-tokens, /v1/documents and /v1/health."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.http_people import ANN, BOB, EVE, People, people, same
from toolgate import App
from toolgate.testing import memory_app

pytestmark = [
    pytest.mark.requirement("DOOR-1"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning"),  # apprise looks whether it is there
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app() -> AsyncIterator[App]:
    overrides: dict[str, Any] = {
        "sessions": {"shared": [{"tenant": "acme", "name": "team", "users": ["ann", "bob"]}]},
        "notify": {"push": {"kinds": ["json"], "allow": ["127.0.0.1:9"]}},
    }
    async with memory_app(**overrides) as app:
        yield app


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def all_people(app: App) -> AsyncIterator[People]:
    async with people(app) as found:
        yield found


# -- canvas


async def test_a_canvas_is_written_by_a_governed_call_and_read_by_its_user(app: App, all_people: People) -> None:
    ann = all_people.ann
    first = await ann.post("/v1/canvas/talk", {"content": "# Findings"})
    assert (first.status, first.json["output"]["block"]) == (200, 1)
    assert (await ann.post("/v1/canvas/talk", {"content": {"rows": [1, 2]}, "pane": "data"})).json["output"]["block"] == 2
    whole = (await ann.get("/v1/canvas/talk")).json
    assert [(one["number"], one["pane"], one["content"]) for one in whole["blocks"]] == [
        (1, "default", "# Findings"),
        (2, "data", {"rows": [1, 2]}),
    ]
    assert whole["last"] == 2
    assert [one["number"] for one in (await ann.get("/v1/canvas/talk", after=1)).json["blocks"]] == [2]
    assert [one["number"] for one in (await ann.get("/v1/canvas/talk", pane="default")).json["blocks"]] == [1]
    [listed] = (await ann.get("/v1/canvas")).json["items"]
    assert (listed["session"], listed["blocks"], listed["is_shared"]) == ("talk", 2, False)
    assert await app.audit.of_request(first.headers["x-request-id"], tenant="acme") == (first.json["id"],)


async def test_canvases_of_others_look_empty(all_people: People) -> None:
    assert (await all_people.ann.post("/v1/canvas/own", {"content": "mine"})).status == 200
    for stranger in (all_people.bob, all_people.eve, all_people.of["admin"]):
        assert (await stranger.get("/v1/canvas/own")).json["blocks"] == []
        assert (await stranger.delete("/v1/canvas/own")).status == 404
        assert "own" not in [one["session"] for one in (await stranger.get("/v1/canvas")).json["items"]]
    assert (await all_people.of["viewer"].post("/v1/canvas/own", {"content": "x"})).status == 403
    assert (await all_people.of["viewer"].delete("/v1/canvas/own")).status == 403
    assert (await all_people.ann.delete("/v1/canvas/own")).status == 204
    assert (await all_people.ann.delete("/v1/canvas/own")).status == 404


async def test_a_shared_canvas_is_read_by_all_who_share_it(all_people: People) -> None:
    await all_people.ann.post("/v1/canvas/team", {"content": "for all"})
    assert [one["content"] for one in (await all_people.bob.get("/v1/canvas/team")).json["blocks"]] == ["for all"]
    assert (await all_people.eve.get("/v1/canvas/team")).json["blocks"] == []


@pytest.mark.parametrize("body", [{}, {"content": 5}, {"content": "x", "pane": ""}, {"content": "x", "session_id": "other"}])
async def test_wrong_blocks_are_refused(all_people: People, body: dict[str, Any]) -> None:
    assert (await all_people.ann.post("/v1/canvas/talk", body)).status == 422


async def test_a_policy_governs_who_appends(app: App, all_people: People) -> None:
    await app.policy.deny("canvas_append")
    refused = await all_people.bob.post("/v1/canvas/denied", {"content": "x"})
    await app.policy.deny("canvas_append", False)
    assert (refused.status, refused.json["error"]["code"]) == (404, "TOOL_NOT_FOUND")
    assert (await all_people.bob.get("/v1/canvas/denied")).json["blocks"] == []


# -- notifications and push tokens


@pytest.mark.requirement("WF-3")
async def test_notifications_are_their_users(app: App, all_people: People) -> None:
    for actor in (ANN, BOB, EVE):
        for number in range(3):
            outcome = await app.invoke("notify_user", {"message": f"number {number}"}, actor=actor)
            assert outcome.status == "success"
    mine = await all_people.ann.all("/v1/notifications", limit=2)
    assert [(one["user"], one["tenant"], one["message"]) for one in mine] == [
        ("ann", "acme", f"number {number}") for number in (2, 1, 0)
    ]
    assert (await all_people.ann.get("/v1/notifications", all_users="true")).status == 403
    assert len(await all_people.of["viewer"].all("/v1/notifications", all_users="true", limit=4)) == 6
    assert await all_people.of["viewer"].all("/v1/notifications") == []
    path = f"/v1/notifications/{mine[0]['id']}"
    missing = await all_people.ann.delete("/v1/notifications/nothing")
    assert missing.status == 404
    for stranger in (all_people.bob, all_people.eve, all_people.of["admin"]):
        assert same(await stranger.delete(path), missing)
    assert (await all_people.ann.delete(path)).status == 204
    assert len(await all_people.ann.all("/v1/notifications")) == 2


@pytest.mark.requirement("WF-3")
async def test_push_tokens_are_added_listed_and_removed_and_never_shown(all_people: People) -> None:
    secret = "json://user:hunter2secret@127.0.0.1:9/path"
    added = await all_people.ann.post("/v1/push-tokens", {"url": secret, "name": "phone"})
    assert added.status == 201, added.body
    listed = await all_people.ann.get("/v1/push-tokens")
    assert [one["name"] for one in listed.json["items"]] == ["phone"]
    assert b"hunter2secret" not in added.body + listed.body
    assert (await all_people.ann.post("/v1/push-tokens", {"url": secret, "name": "phone"})).status == 422
    for stranger in (all_people.bob, all_people.eve, all_people.of["admin"]):
        assert (await stranger.get("/v1/push-tokens")).json["items"] == []
        assert (await stranger.delete(f"/v1/push-tokens/{added.json['id']}")).status == 404
    assert (await all_people.of["viewer"].post("/v1/push-tokens", {"url": secret})).status == 403
    assert (await all_people.ann.delete(f"/v1/push-tokens/{added.json['id']}")).status == 204
    assert (await all_people.ann.get("/v1/push-tokens")).json["items"] == []
    for wrong in ({"url": ""}, {"url": "nothing"}, {"url": "mailto://x:y@example.com"}, {"url": secret, "kind": "x"}, {}):
        refused = await all_people.ann.post("/v1/push-tokens", wrong)
        assert refused.status in (403, 422), refused.body
        assert b"hunter2secret" not in refused.body


# -- documents


@pytest.mark.requirement("BUILTIN-4")
async def test_documents_are_listed_and_removed_by_those_who_may(app: App, all_people: People, tmp_path: Path) -> None:
    ids = {}
    for actor in (ANN, BOB, EVE):
        folder = tmp_path / f"{actor.tenant}-{actor.user}"
        folder.mkdir()
        app.sessions.work_in("files", folder, tenant=actor.tenant, user=actor.user)
        (folder / "notes.txt").write_text(f"Notes of {actor.user} in {actor.tenant}.")
        outcome = await app.invoke("document_ingest", {"path": "notes.txt"}, actor=actor, session="files")
        assert outcome.status == "success", outcome.error
        ids[actor] = outcome.output["document_id"]
    assert [one["id"] for one in await all_people.ann.all("/v1/documents")] == [ids[ANN]]
    assert [one["id"] for one in await all_people.of["viewer"].all("/v1/documents", limit=1)] == [ids[ANN], ids[BOB]]
    assert [one["id"] for one in await all_people.eve.all("/v1/documents")] == [ids[EVE]]
    missing = await all_people.ann.delete("/v1/documents/nothing")
    assert missing.status == 404
    for stranger in (all_people.bob, all_people.eve):
        assert same(await stranger.delete(f"/v1/documents/{ids[ANN]}"), missing)
    assert (await all_people.of["viewer"].delete(f"/v1/documents/{ids[ANN]}")).status == 403
    assert (await all_people.ann.delete(f"/v1/documents/{ids[ANN]}")).status == 204
    assert (await all_people.of["admin"].delete(f"/v1/documents/{ids[BOB]}")).status == 204
    assert await all_people.of["viewer"].all("/v1/documents") == []


# -- health


@pytest.mark.requirement("DOOR-4")
async def test_operators_are_told_how_each_dependency_stands(all_people: People) -> None:
    for role in ("viewer", "caller", "approver", "admin"):
        assert (await all_people.of[role].get("/v1/health")).status == 403
    found = (await all_people.of["operator"].get("/v1/health")).json
    assert found["status"] == "ready"
    assert {"store", "policy"} <= {one["name"] for one in found["checks"]}
    assert {one["status"] for one in found["checks"]} == {"ok"}
    assert {"jobs"} <= {one["name"] for one in found["checks"]}
    assert found["version"] and found["started_at"] and found["store"] in ("memory", "SQLite", "PostgreSQL")
    assert all(one["started_at"] <= one["seen_at"] for one in found["processes"])


@pytest.mark.requirement("DOOR-3")
async def test_operators_see_all_tenants_and_others_their_own(all_people: People) -> None:
    assert (await all_people.ann.get("/v1/tenants")).status == 403
    assert [one["name"] for one in await all_people.of["admin"].all("/v1/tenants")] == ["acme"]
    assert [one["name"] for one in await all_people.eve.all("/v1/tenants")] == ["other"]
    assert {"acme", "other"} <= {one["name"] for one in await all_people.of["operator"].all("/v1/tenants", limit=1)}

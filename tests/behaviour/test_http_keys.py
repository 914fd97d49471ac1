"""/v1/keys: who makes and revokes keys, and what they may do."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio

from tests.desk import Desk
from tests.serving import serving
from toolgate import Actor
from toolgate.model.roles import Role
from toolgate.testing import memory_app

pytestmark = [pytest.mark.requirement("DOOR-3"), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with memory_app() as app, serving(app) as site:
        made = Desk(app, site)
        await made.staff()
        await made.add("scoped", Actor("acme", user="scoped", scopes=("tool:web",)), "admin")
        yield made
        await app.keys.close()


async def test_only_admins_have_to_do_with_keys(desk: Desk) -> None:
    refused = {"cora": 403, "vera": 403, "apu": 403}
    assert await desk.statuses("GET", "/v1/keys") == {**refused, "adam": 200, "eve": 200, "op": 200}
    assert await desk.statuses("POST", "/v1/keys", {"name": "many"}) == {**refused, "adam": 201, "eve": 201, "op": 201}


async def test_a_key_is_shown_once_works_and_is_revoked(desk: Desk) -> None:
    made = await desk("adam", "POST", "/v1/keys", {"name": "agent", "persona": "analyst", "expires_in": 3600})
    assert made.status == 201
    key, text = made.json["key"], made.json["text"]
    assert (key["tenant"], key["persona"], key["user"], key["roles"]) == ("acme", "analyst", "key:agent", ["caller"])
    assert (key["created_by"], key["state"]) == ("adam", "valid") and key["expires_at"]
    assert (await desk.site("GET", "/v1/tools", key=text)).status == 200
    path = f"/v1/keys/{key['id']}"
    await desk.app.keys.close()  # its use is noted
    read = await desk("adam", "GET", path)
    assert text.rsplit("_", 1)[1].encode() not in read.body
    assert (await desk("adam", "DELETE", path, headers={"If-Match": '"0"'})).status == 412
    assert (await desk("adam", "DELETE", path, headers={"If-Match": read.headers["etag"]})).json["revoked_by"] == "adam"
    assert (await desk.site("GET", "/v1/tools", key=text)).status == 401
    assert (await desk("adam", "DELETE", path)).status == 409
    rows = await desk.app.audit.latest(500, tenant="acme")
    made_by = {body["name"]: body["user"] for body in (orjson.loads(row[7]) for row in rows if row[2] == "key.created")}
    assert made_by["agent"] == "adam"


async def test_keys_of_another_tenant_look_missing(desk: Desk) -> None:
    made = (await desk("adam", "POST", "/v1/keys", {"name": "hidden"})).json["key"]
    for method in ("GET", "DELETE"):
        found = await desk("eve", method, f"/v1/keys/{made['id']}")
        never = await desk("eve", method, f"/v1/keys/{'a' * len(made['id'])}")
        assert found.status == never.status == 404
        assert found.json["detail"].replace(made["id"], "a" * len(made["id"])) == never.json["detail"]
    assert made["id"] not in {one["id"] for one in (await desk("eve", "GET", "/v1/keys?limit=500")).json["items"]}
    assert (await desk("op", "GET", f"/v1/keys/{made['id']}?tenant=acme")).json["state"] == "valid"
    assert made["id"] in {one["id"] for one in (await desk("op", "GET", "/v1/keys?limit=500&tenant=*")).json["items"]}


async def test_no_key_may_do_more_than_its_maker(desk: Desk) -> None:
    async def made(who: str, **terms: Any) -> int:
        name = f"more {who} {' '.join(map(str, terms.values()))}".translate({ord(c): "-" for c in "[]':,"})
        return (await desk(who, "POST", "/v1/keys", {"name": f"{name}x", **terms})).status

    assert await made("adam", roles=["operator"]) == 403
    assert await made("adam", roles=["admin", "operator"]) == 403
    assert await made("adam", roles=["admin", "approver"]) == 201
    assert await made("op", roles=["operator"]) == 201
    assert await made("adam", may_approve=True) == 403
    assert await made("adam", user="local") == 403
    assert await made("adam", scopes=["tool:web"]) == 403
    assert await made("scoped", scopes=["tool:web"]) == 201
    assert await made("op", may_approve=True, scopes=["tool:web"]) == 201


async def test_an_admin_does_not_revoke_an_operators_key(desk: Desk) -> None:
    body = {"name": "operator here", "roles": ["operator"]}
    made = (await desk("op", "POST", "/v1/keys?tenant=acme", body)).json["key"]
    assert (await desk("adam", "DELETE", f"/v1/keys/{made['id']}")).status == 403
    assert (await desk("op", "DELETE", f"/v1/keys/{made['id']}?tenant=acme")).status == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"name": ""}, 422),
        ({"name": "bad\nname"}, 422),
        ({"name": "a", "roles": []}, 422),
        ({"name": "a", "roles": ["king"]}, 422),
        ({"name": "a", "expires_in": 0}, 422),
        ({"name": "a", "tenant": "other"}, 422),
        ({"name": "a", "user": "\u0430dam"}, 422),
        ({"name": "a", "user": "x\u202ey"}, 422),
        ({"name": "cora"}, 409),
    ],
)
async def test_a_wrong_key_is_refused(desk: Desk, body: dict[str, Any], status: int) -> None:
    assert (await desk("adam", "POST", "/v1/keys", body)).status == status


@pytest.mark.requirement("DOOR-1")
async def test_pages_give_every_key_once(desk: Desk) -> None:
    found, cursor = [], ""
    while True:
        page = (await desk("adam", "GET", f"/v1/keys?limit=2{cursor}")).json
        found += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert found == [key.id for key in await desk.app.keys.list("acme")]
    assert (await desk("eve", "GET", f"/v1/keys?limit=2{cursor}")).status == 400


async def test_admins_sign_browsers_of_their_tenant_out(desk: Desk) -> None:
    app = desk.app
    found = []
    staff: list[tuple[Actor, Role]] = [(Actor("acme", user="v"), "viewer"), (Actor("acme", user="o"), "operator")]
    for actor, role in staff:
        _, token = await app.sign_ins.create_link(actor, roles=[role])
        opened = await app.sign_ins.open_link(token)
        assert opened is not None
        found.append(opened)
    (viewer, cookie), (operator, _) = found
    listed = (await desk("adam", "GET", "/v1/sign-ins")).json["items"]
    assert [(one["id"], one["state"]) for one in listed] == [(viewer.id, "valid"), (operator.id, "valid")]
    assert (await desk("eve", "GET", "/v1/sign-ins")).json["items"] == []
    assert (await desk("eve", "DELETE", f"/v1/sign-ins/{viewer.id}")).status == 404
    assert (await desk("adam", "DELETE", f"/v1/sign-ins/{operator.id}")).status == 403
    assert (await desk("cora", "DELETE", f"/v1/sign-ins/{viewer.id}")).status == 403
    assert await app.sign_ins.check(cookie.encode()) is not None
    assert (await desk("adam", "DELETE", f"/v1/sign-ins/{viewer.id}")).json["state"] == "revoked"
    assert await app.sign_ins.check(cookie.encode()) is None

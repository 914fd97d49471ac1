"""/v1/secrets: names go out, values never do; an admin has to do with its own tenant's alone."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.desk import Desk
from tests.serving import serving
from toolgate import Actor, App
from toolgate.testing import memory_app

pytestmark = [pytest.mark.requirement("IO-5"), pytest.mark.asyncio(loop_scope="module")]
VALUE = "sk-very-secret-value-1234567890"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    async with App.open(home=tmp_path_factory.mktemp("home"), entry_points=False) as app, serving(app) as site:
        made = Desk(app, site)
        await made.staff()
        yield made
        await app.keys.close()


async def put(desk: Desk, who: str, path: str, value: Any = VALUE, **rest: Any) -> int:
    return (await desk(who, "PUT", f"/v1/secrets/{path}", {"value": value}, **rest)).status


async def test_a_secret_of_the_tenant_is_for_that_tenant_alone(desk: Desk) -> None:
    assert await put(desk, "adam", "stripe_key") == 200
    assert desk.app.secrets.has("STRIPE_KEY", Actor("acme", user="anybody"))
    assert not desk.app.secrets.has("STRIPE_KEY", Actor("other", user="anybody"))
    listed = await desk("adam", "GET", "/v1/secrets")
    [one] = listed.json["items"]
    assert (one["name"], one["tenant"], one["user"], one["source"]) == ("STRIPE_KEY", "acme", None, "file")
    assert VALUE.encode() not in listed.body
    assert (await desk("eve", "GET", "/v1/secrets")).json["items"] == []
    never = await desk("eve", "GET", "/v1/secrets/NEVER")
    for method in ("GET", "DELETE"):
        refused = await desk("eve", method, "/v1/secrets/STRIPE_KEY")
        assert (refused.status, refused.json["detail"]) == (404, never.json["detail"])
    read = await desk("adam", "GET", "/v1/secrets/STRIPE_KEY")
    assert VALUE.encode() not in read.body
    assert (await desk("adam", "DELETE", "/v1/secrets/STRIPE_KEY", headers={"If-Match": '"0"'})).status == 412
    assert await put(desk, "adam", "STRIPE_KEY", headers={"If-Match": read.headers["etag"]}) == 200
    assert (await desk("adam", "DELETE", "/v1/secrets/STRIPE_KEY")).status == 204
    assert not desk.app.secrets.has("STRIPE_KEY", Actor("acme", user="anybody"))


async def test_a_secret_of_a_user_is_that_users(desk: Desk) -> None:
    assert await put(desk, "adam", "TOKEN?user=cora") == 200
    assert desk.app.secrets.has("TOKEN", Actor("acme", user="cora"))
    assert not desk.app.secrets.has("TOKEN", Actor("acme", user="carl"))
    assert (await desk("adam", "GET", "/v1/secrets/TOKEN")).status == 404
    read = await desk("adam", "GET", "/v1/secrets/TOKEN?user=cora")
    gone = await desk("adam", "DELETE", "/v1/secrets/TOKEN?user=cora", headers={"If-Match": read.headers["etag"]})
    assert gone.status == 204


async def test_only_an_operator_sets_what_is_for_everybody(desk: Desk) -> None:
    assert await put(desk, "adam", "SHARED?tenant=*") == 403
    assert await put(desk, "adam", "SHARED?tenant=other") == 403
    assert await put(desk, "op", "SHARED?tenant=*") == 200
    assert desk.app.secrets.has("SHARED", Actor("acme", user="anybody"))
    assert (await desk("adam", "GET", "/v1/secrets/SHARED")).status == 404
    assert (await desk("adam", "DELETE", "/v1/secrets/SHARED")).status == 404
    assert "SHARED" in {one["name"] for one in (await desk("op", "GET", "/v1/secrets?tenant=*")).json["items"]}
    assert await put(desk, "op", "SHARED?tenant=*&user=cora") == 422
    assert (await desk("op", "DELETE", "/v1/secrets/SHARED?tenant=*")).status == 204


@pytest.mark.requirement("DOOR-3")
async def test_roles(desk: Desk) -> None:
    for method, path, body in (("GET", "", None), ("PUT", "/X", {"value": "x"}), ("DELETE", "/X", None)):
        for who in ("cora", "vera", "apu"):
            assert (await desk(who, method, f"/v1/secrets{path}", body)).status == 403


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("A", {}),
        ("A", {"value": ""}),
        ("A", {"value": 5}),
        ("A", {"value": "x" * 65_537}),
        ("A", {"value": "x", "tenant": "other"}),
        ("1A", {"value": "x"}),
        ("A-B", {"value": "x"}),
        ("servers:", {"value": "x"}),
        ("A%2FB", {"value": "x"}),
    ],
)
async def test_a_wrong_secret_is_refused(desk: Desk, path: str, body: dict[str, Any]) -> None:
    answer = await desk("adam", "PUT", f"/v1/secrets/{path}", body)
    assert answer.status in (404, 422) and b"xxxx" not in answer.body
    assert (await desk("adam", "GET", "/v1/secrets")).json["items"] == []


async def test_where_secrets_cannot_be_kept_the_answer_says_so() -> None:
    async with memory_app() as app, serving(app) as site:
        desk = Desk(app, site)
        await desk.add("adam", Actor("acme", user="adam"), "admin")
        answer = await desk("adam", "PUT", "/v1/secrets/A", {"value": "x"})
        assert (answer.status, "memory" in answer.json["suggestion"]) == (503, True)
        await app.keys.close()

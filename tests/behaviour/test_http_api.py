"""The layer under every route of /v1: who may, what is taken, what is answered."""

import json
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from tests.serving import Answer, Site, serving
from toolgate import Actor, App, tool
from toolgate.errors import CODES
from toolgate.model.roles import Role
from toolgate.serve.http.resources import RESOURCES
from toolgate.serve.problems import CALL_STATUSES
from toolgate.testing import memory_app

ACME = Actor("acme", user="ann")
INVOKE = "/v1/tools/add/invoke"


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(tier="external_api")
async def pay(amount: int) -> int:
    """Pay somebody."""
    return amount


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        app.register(add)
        app.register(pay)
        yield app


@pytest.fixture
async def site(app: App) -> AsyncIterator[Site]:
    async with serving(app) as site:
        await site.with_key(app, ACME)
        yield site
        await app.keys.close()


async def key_of(app: App, *roles: Role, actor: Actor = ACME) -> str:
    return (await app.keys.create(f"{actor.tenant} {' '.join(roles)}", actor, roles=roles))[1]


async def post(site: Site, path: str, body: Any = None, headers: dict[str, str] | None = None, **rest: Any) -> Answer:
    return await site("POST", path, headers or {}, b"" if body is None else orjson.dumps(body), **rest)


# -- calls


@pytest.mark.requirement("DOOR-1")
async def test_a_call_is_answered_with_its_outcome(app: App, site: Site) -> None:
    answer = await post(site, "/v1/tools/add/invoke", {"arguments": {"a": 1, "b": 2}}, {"X-Request-Id": "mine-1"})
    assert (answer.status, answer.json["status"], answer.json["output"]) == (200, "success", 3)
    assert answer.headers["x-request-id"] == "mine-1"
    assert await app.audit.of_request("mine-1", tenant="acme") == (answer.json["id"],)


@pytest.mark.requirement("DOOR-1")
async def test_the_status_of_a_call_follows_its_code(site: Site) -> None:
    wrong = await post(site, "/v1/tools/add/invoke", {"arguments": {"a": "x", "b": 2}})
    assert (wrong.status, wrong.json["error"]["code"]) == (422, "VALIDATION_ERROR")
    missing = await post(site, "/v1/tools/nothing/invoke", {"arguments": {}})
    assert (missing.status, missing.json["error"]["code"]) == (404, "TOOL_NOT_FOUND")
    waiting = await post(site, "/v1/tools/pay/invoke", {"arguments": {"amount": 5}})
    assert (waiting.status, waiting.json["pending"]["kind"]) == (202, "approval")
    queued = await post(site, "/v1/tools/add/invoke", {"arguments": {"a": 1, "b": 2}, "mode": "async"})
    assert (queued.status, queued.json["pending"]["kind"]) == (202, "job")


@pytest.mark.requirement("DOOR-1")
def test_every_code_has_a_status() -> None:
    assert CALL_STATUSES.keys() == CODES.keys()


@pytest.mark.requirement("PIPE-9")
async def test_a_call_that_is_sent_twice_with_one_key_is_made_once(site: Site) -> None:
    body, key = {"arguments": {"a": 1, "b": 2}}, {"Idempotency-Key": "k-1"}
    first, again = [await post(site, "/v1/tools/add/invoke", body, key) for _ in range(2)]
    assert first.json["output"] == again.json["output"] == 3
    assert again.json["metrics"]["attempts"] == 0 or again.json["id"] == first.json["id"]
    other = await post(site, "/v1/tools/add/invoke", {"arguments": {"a": 2, "b": 2}}, key)
    assert (other.status, other.json["error"]["code"]) == (409, "IDEMPOTENCY_CONFLICT")
    refused = await post(site, "/v1/tools/add/explain", body, key)
    assert refused.status == 400


# -- who may


@pytest.mark.requirement("DOOR-3")
async def test_a_role_that_may_not_is_refused(app: App, site: Site) -> None:
    viewer = await key_of(app, "viewer")
    assert (await site("GET", "/v1/tools", key=viewer)).status == 200
    refused = await post(site, "/v1/tools/add/invoke", {"arguments": {"a": 1, "b": 2}}, key=viewer)
    assert (refused.status, refused.json["code"]) == (403, "PERMISSION_DENIED")
    assert "caller" in refused.json["detail"]
    assert refused.json["suggestion"] == "`toolgate keys create NAME --role caller` makes a key with it."


@pytest.mark.requirement("DOOR-3")
async def test_only_an_operator_may_name_a_tenant(app: App, site: Site) -> None:
    await app.tools.disable("add", tenant="other")
    operator, admin = await key_of(app, "operator"), await key_of(app, "admin")
    names = {one["name"] for one in (await site("GET", "/v1/tools?limit=500", key=operator)).json["items"]}
    others = {one["name"] for one in (await site("GET", "/v1/tools?limit=500&tenant=other", key=operator)).json["items"]}
    assert names - others == {"add"}
    assert (await site("GET", "/v1/tools?tenant=other", key=admin)).status == 403
    assert (await site("GET", "/v1/tools?tenant=acme", key=admin)).status == 200


@pytest.mark.requirement("POL-7")
async def test_a_hidden_tool_looks_missing(app: App, site: Site) -> None:
    await app.policy.deny("pay")
    hidden, missing = await site("GET", "/v1/tools/pay"), await site("GET", "/v1/tools/nope")
    assert hidden.status == missing.status == 404
    same = [{**one.json, "request_id": ""} for one in (hidden, missing)]
    assert same[0] == same[1]
    assert (await post(site, "/v1/tools/pay/explain", {})).status == 404


# -- what is taken


@pytest.mark.requirement("DOOR-1")
@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        (b"{", "application/json", 400, "INVALID_REQUEST"),
        (b'{"arguments": {"a": "\xff"}}', "application/json", 400, "INVALID_REQUEST"),
        (b'{"arguments": ' + b"[" * 100_000, "application/json", 400, "INVALID_REQUEST"),
        (b'{"arguments": ' + b"[0," * 300_000, "application/json", 400, "INVALID_REQUEST"),
        (b"[]", "application/json", 422, "VALIDATION_ERROR"),
        (b'{"arguments": {}, "extra": 1}', "application/json", 422, "VALIDATION_ERROR"),
        (b'{"timeout": -1}', "application/json", 422, "VALIDATION_ERROR"),
        (b"{}", "text/plain", 415, "UNSUPPORTED_MEDIA_TYPE"),
        (b"{}", "application/x-www-form-urlencoded", 415, "UNSUPPORTED_MEDIA_TYPE"),
    ],
)
async def test_a_body_that_is_wrong_is_refused(site: Site, body: bytes, content_type: str, status: int, code: str) -> None:
    answer = await site("POST", "/v1/tools/add/invoke", {"Content-Type": content_type}, body)
    assert (answer.status, answer.json["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["request_id"] == answer.headers["x-request-id"]


@pytest.mark.requirement("DOOR-1")
@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=0", 422),
        ("limit=x", 422),
        ("limit=501", 422),
        ("category=null", 422),
        ("tier=NULL", 422),
        ("colour=red", 422),
        ("limit=1&limit=2", 400),
        ("tier=high", 422),
        ("source=%ff", 400),
        ("cursor=abc", 400),
        ("cursor=%00", 400),
        ("tenant=%0a", 403),
    ],
)
async def test_a_query_that_is_wrong_is_refused(site: Site, query: str, status: int) -> None:
    assert (await site("GET", f"/v1/tools?{query}")).status == status


@pytest.mark.requirement("DOOR-1")
@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        (
            "GET",
            "/v1/tools?tier=high",
            b"",
            "The query is wrong: `tier` must be one of execute, external_api, read_only, write.",
        ),
        ("GET", "/v1/tools?colour=red", b"", "The query is wrong: unknown field `colour`; the fields are "),
        ("GET", "/v1/tools?limit=x", b"", "The query is wrong: `limit` must be a whole number, not text."),
        ("GET", "/v1/tools?limit=0", b"", "The query is wrong: `limit` must be at least 1."),
        ("GET", "/v1/tools/search?q=", b"", "The query is wrong: `q[0]` must have at least 1 character."),
        ("GET", "/v1/usage?since=2026-11-01", b"", "The query is wrong: `since` must be an instant such as 2026-11-01T"),
        ("POST", INVOKE, b'{"args": {}}', "The body is wrong: unknown field `args`; the fields are arguments, "),
        ("POST", INVOKE, b"[]", "The body is wrong: it must be an object, not a list."),
        ("POST", "/v1/feedback", b'{"success": true}', "The body is wrong: the field `tool_name` is missing."),
        ("POST", "/v1/remember", b'{"text": "a", "tags": [""]}', "The body is wrong: `tags[0]` must have at least 1 char"),
        ("POST", "/v1/remember", b"{", "The body is not JSON: "),
    ],
)
async def test_a_field_that_is_wrong_is_named_with_what_it_may_be(
    site: Site, method: str, path: str, body: bytes, words: str
) -> None:
    headers = {"Content-Type": "application/json"} if body else {}
    assert (await site(method, path, headers, body)).json["detail"].startswith(words)


@pytest.mark.requirement("DOOR-1")
async def test_methods_paths_and_sizes(site: Site) -> None:
    wrong = await site("DELETE", "/v1/tools")
    assert (wrong.status, wrong.headers["allow"]) == (405, "GET, POST")
    assert (await site("GET", "/v1/nothing")).status == 404
    assert (await site("GET", "/v1/tools/" + "x" * 301)).status == 404
    too_large = await site("POST", "/v1/tools/add/invoke", {"Content-Length": str(100_000_000)}, b"{}")
    assert (too_large.status, too_large.json["code"]) == (413, "TOO_LARGE")


# -- pages and ETags


@pytest.mark.requirement("DOOR-1")
async def test_pages_give_everything_once_and_cursors_are_nobody_elses(app: App, site: Site) -> None:
    names, cursor = [], ""
    while True:
        page = (await site("GET", f"/v1/tools?limit=7{cursor}")).json
        names += [one["name"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert names == sorted(set(names))
    assert names == [one.name for one in await app.tools.list(ACME)]
    other = await key_of(app, "caller", actor=Actor("other", user="eve"))
    for path, key in ((f"/v1/tools?limit=7{cursor}", other), (f"/v1/tools?tier=write{cursor}", None)):
        refused = await site("GET", path, key=key)
        assert (refused.status, refused.json["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.requirement("DOOR-1")
async def test_what_has_not_changed_is_not_sent_again(app: App, site: Site) -> None:
    first = await site("GET", "/v1/tools/add")
    again = await site("GET", "/v1/tools/add", {"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    await app.tools.disable("add", tenant="acme")
    admin = await key_of(app, "admin")
    changed = await site("GET", "/v1/tools/add", {"If-None-Match": first.headers["etag"]}, key=admin)
    assert (changed.status, changed.json["enabled"]) == (200, False)


# -- the document


@pytest.mark.requirement("DOOR-1")
async def test_the_openapi_document_names_every_route(site: Site) -> None:
    document = (await site("GET", "/v1/openapi.json")).json
    assert document["openapi"].startswith("3.1")
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids))
    assert {"list_tools", "invoke_tool", "get_openapi"} <= set(ids)
    text = json.dumps(document)
    for ref in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert ref in document["components"]["schemas"]
    tags = [tag["name"] for tag in document["tags"]]
    assert len(tags) == len(set(tags)), "generators make one group of each tag"


@pytest.mark.requirement("DOOR-1")
def test_the_summary_of_every_route_is_a_whole_sentence() -> None:
    """It is the first line of a docstring, and must not go on in the next."""
    summaries = {f"{one.method} {one.path}": one.summary.partition("\n")[0] for each in RESOURCES for one in each.endpoints}
    assert {route: words for route, words in summaries.items() if not words.endswith(".")} == {}

"""Requests to /v1 that are odd, forged or of somebody who may not: refused, or about what they name and nothing else."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from tests.serving import Answer, Site, serving
from toolgate import Actor, App, tool
from toolgate.errors import CallError
from toolgate.model.roles import ROLES, Role
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, Resource
from toolgate.serve.http.handler import PathHandler
from toolgate.serve.http.resources import RESOURCES
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-1", "DOOR-3")

ANN, BOB, EVE = Actor("acme", user="ann"), Actor("acme", user="bob"), Actor("other", user="eve")
ENDPOINTS = [endpoint for resource in RESOURCES for endpoint in resource.endpoints]
INVOKE = "/v1/tools/echo_back/invoke"


@tool(tier="read_only")
async def echo_back(value: Any) -> Any:
    """Give back what was given."""
    return value


@tool(tier="write")
async def count_up(by: int) -> int:
    """Count."""
    COUNTED.append(by)
    return len(COUNTED)


COUNTED: list[int] = []


@tool(tier="read_only")
async def fail_with(retry_after: str) -> int:
    """Fail, and say when to come again."""
    seconds: Any = float(retry_after) if "\n" not in retry_after else retry_after
    raise CallError("RATE_LIMITED", "Later.\r\nX-Injected: 1", details={"retry_after": seconds})


@pytest.fixture
async def app() -> AsyncIterator[App]:
    COUNTED.clear()
    async with memory_app() as app:
        for one in (echo_back, count_up, fail_with):
            app.register(one)
        yield app


@pytest.fixture
async def site(app: App) -> AsyncIterator[Site]:
    """A server that must answer a proper call at the end, whatever came before."""
    async with serving(app) as site:
        await site.with_key(app, ANN)
        yield site
        assert (await call(site, {"value": 3})).json["output"] == 3
        await app.keys.close()


async def key_of(app: App, actor: Actor, *roles: Role) -> str:
    name = f"{actor.user} {' '.join(roles)} {actor.persona or ''}".strip()
    return (await app.keys.create(name, actor, roles=roles))[1]


async def call(site: Site, arguments: Any, headers: dict[str, str] | None = None, path: str = INVOKE, **rest: Any) -> Answer:
    return await site("POST", path, headers or {}, json.dumps({"arguments": arguments}).encode(), **rest)


async def head_of(site: Site, path: str, key: str) -> int:
    """The status of a HEAD, whose answer has no body whatever its headers say."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    lines = (f"HEAD {path} HTTP/1.1", f"Host: {site.host}", f"Authorization: Bearer {key}", "Connection: close", "", "")
    writer.write("\r\n".join(lines).encode())
    said = await reader.read()
    writer.close()
    assert said.endswith(b"\r\n\r\n")
    return int(said.split()[1])


def is_problem(answer: Answer, *statuses: int) -> bool:
    """It is refused in the way of all refusals, and says nothing about our insides."""
    assert answer.status in statuses, (answer.status, answer.body)
    for inside in (b"Traceback", b"site-packages", b".py", b"SELECT", b"sqlite", b"0x"):
        assert inside not in answer.body
    return answer.headers["content-type"] == "application/problem+json" and answer.json["status"] == answer.status


# -- headers


@pytest.mark.parametrize("given", ["a\x00b", "é", "x" * 300, "\x7f", " "])
async def test_a_request_id_that_no_record_may_hold_is_replaced(site: Site, given: str) -> None:
    answer = await site("GET", "/v1/tools", {"X-Request-Id": given})
    if answer.status == 200:
        assert answer.headers["x-request-id"] not in (given, "")
    else:
        assert (answer.status, answer.headers["connection"]) == (400, "close")  # it is no HTTP
    assert (await site("GET", "/v1/tools", {"X-Request-Id": "good-1"})).headers["x-request-id"] == "good-1"


@pytest.mark.parametrize(
    "name",
    [
        "Authorization", "Host", "Origin", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID",
        "Content-Encoding",
    ],
)  # fmt: skip
async def test_a_header_that_counts_stands_once(site: Site, name: str) -> None:
    usual = {"authorization": f"Bearer {site.key}", "host": site.host, "content-type": "application/json"}
    value = usual.get(name.lower(), "identity" if name == "Content-Encoding" else "1")
    pairs = [(name, value), (name.upper(), value)]
    assert is_problem(await site("POST", INVOKE, pairs, b"{}"), 400)


async def test_keys_of_idempotency_are_text_and_of_whoever_sent_them(app: App, site: Site) -> None:
    path = "/v1/tools/count_up/invoke"
    for bad in ("é", "x" * 257, "a\tb"):
        assert is_problem(await call(site, {"by": 1}, {"Idempotency-Key": bad}, path), 400)
    assert COUNTED == []
    first = await call(site, {"by": 1}, {"Idempotency-Key": "k"}, path)
    assert (await call(site, {"by": 1}, {"Idempotency-Key": "k"}, path)).json["output"] == first.json["output"] == 1
    for number, actor in enumerate((BOB, EVE), start=2):
        other = await call(site, {"by": 1}, {"Idempotency-Key": "k"}, path, key=await key_of(app, actor, "caller"))
        assert other.json["output"] == number  # a call of its own
    persona = await key_of(app, Actor("acme", "analyst", "ann"), "caller")
    refused = await call(site, {"by": 1}, {"Idempotency-Key": "k"}, path, key=persona)
    assert (refused.status, refused.json["error"]["code"]) == (409, "IDEMPOTENCY_CONFLICT")
    assert len(COUNTED) == 3


@pytest.mark.parametrize("said", ["inf", "1e300", "5", "5\r\nX-Injected: 1"])
async def test_what_a_tool_says_does_not_become_a_header(site: Site, said: str) -> None:
    answer = await call(site, {"retry_after": said}, path="/v1/tools/fail_with/invoke")
    assert answer.status == 429
    assert "x-injected" not in answer.headers
    assert answer.headers.get("retry-after") == {"5": "5", "1e300": "86400"}.get(said)


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("LOCALHOST", True), ("localhost:1", True), ("[::1]:80", True), ("[0:0:0:0:0:0:0:1]", True), ("localhost.", False),
        ("localhost.evil.example", False), ("[::1].evil.example", False), ("127.0.0.1@evil.example", False),
        ("127.0.0.1:80:80", False), ("[::ffff:127.0.0.1]", False), ("2130706433", False), ("127.1", False),
        ("localhost:0", False), ("localhost:99999", False), ("x" * 5_000, False), ("", False), ("localhost, evil", False),
        ("l\u00f6calhost", False), ("localhost#", False), ("localhost/", False),
    ],
)  # fmt: skip
@pytest.mark.sample(6)
async def test_only_hosts_that_are_ours_are_answered_to(site: Site, host: str, is_ours: bool) -> None:
    answer = await site("GET", "/v1/tools", {"Host": host})
    assert answer.status == 200 if is_ours else is_problem(answer, 421)


@pytest.mark.parametrize("origin", ["null", "https://evil.example", "http://localhost.evil.example", "file://", "", "é"])
async def test_pages_of_others_can_neither_read_nor_cause_anything(site: Site, origin: str) -> None:
    body = json.dumps({"arguments": {"by": 1}}).encode()
    path = "/v1/tools/count_up/invoke"
    if origin:
        assert is_problem(await site("POST", path, {"Origin": origin}, body), 403)
        assert is_problem(await site("OPTIONS", path, {"Origin": origin, "Access-Control-Request-Method": "POST"}), 403)
    for own in (f"http://{site.host}", "http://localhost:3000"):
        asked = await site("OPTIONS", path, {"Origin": own, "Access-Control-Request-Headers": "authorization"})
        assert is_problem(asked, 405)  # so that a browser sends no request with a key
        assert not any(name.startswith("access-control-") for name in asked.headers)
        simple = await site("POST", path, {"Origin": own, "Authorization": "", "Content-Type": "text/plain"}, body)
        assert is_problem(simple, 401)  # which a browser sends without asking, and without a key
    assert COUNTED == []
    answer = await site("GET", "/v1/tools", {"Origin": "http://localhost:3000"})
    assert answer.status == 200
    assert not any(name.startswith("access-control-") for name in answer.headers)


# -- paths


@pytest.mark.parametrize(
    "path",
    [
        "/v1/tools/../tools", "/v1/tools/%2e%2e/tools", "/v1/tools/%2E%2E%2Ftools", "/v1/tools/echo_back%2Finvoke",
        "//v1/tools", "/v1//tools", "/v1/tools/", "/v1/tools/%65cho_back%252finvoke", "/v1/tools/echo_back%00",
        "/v1/tools/echo_back%0d%0aX:1", "/v1/tools/%ff", "/v1/tools/%c0%af", "/v1/tools/%ed%a0%80", "/V1/tools",
        "/v1/tools/\uff45cho_back".encode().decode("latin-1"), "/v1/tools/%EF%BD%85cho_back", "/v1/tools/Echo_back",
        "/v1/tools/echo_back;x=1", "/v1/tools/echo_back%20", "/v1/tools/echo%5Fback%5C..", "/v1/tools/" + "x" * 5_000,
        "/v1/tools/.", "/v1/tools/%e2%80%8becho_back", "/v1/./tools", "/v1/tools/..%5c..%5ckeys",
    ],
)  # fmt: skip
@pytest.mark.sample(6)
async def test_an_address_is_one_address(site: Site, path: str) -> None:
    for method in ("GET", "POST"):
        answer = await site(method, path)
        assert answer.status in (400, 404, 405), answer.body
        assert answer.status == 400 or is_problem(answer, 404, 405)
    assert (await site("GET", "/v1/tools/%65cho%5Fback")).json["name"] == "echo_back"


async def test_a_target_with_a_host_of_its_own_is_looked_at_by_its_path_alone(site: Site) -> None:
    """The absolute form is for proxies; the host that counts here is the header's."""
    lines = f"Host: {site.host}\r\nAuthorization: Bearer {site.key}\r\nConnection: close\r\n\r\n"
    assert (await site.raw(f"GET http://{site.host}/v1/tools HTTP/1.1\r\n{lines}".encode())).status == 200
    assert (await site.raw(f"GET http://{site.host}/v1/none HTTP/1.1\r\n{lines}".encode())).status == 404
    evil = lines.replace(site.host, "evil.example")
    assert (await site.raw(f"GET http://{site.host}/v1/tools HTTP/1.1\r\n{evil}".encode())).status == 421


async def test_every_route_answers_to_every_method(site: Site, app: App) -> None:
    key = await key_of(app, ANN, "operator")
    for path in {endpoint.path for endpoint in ENDPOINTS}:
        methods = {endpoint.method for endpoint in ENDPOINTS if endpoint.path == path}
        address = path.replace("{name}", "echo_back")
        for method in ("OPTIONS", "TRACE", "PROPFIND", "PUT", "DELETE", "PATCH"):
            if method not in methods:
                answer = await site(method, address, key=key)
                assert is_problem(answer, 405)
                assert set(answer.headers["allow"].split(", ")) == methods
        if "GET" in methods:
            async with asyncio.timeout(10):  # also of a stream, which would never end
                assert await head_of(site, address, key) in (200, 403, 404, 422), address  # it may need an id
    assert len(site.http.streams) == 0


# -- bodies


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "é", "*/*"])
async def test_a_body_must_say_that_it_is_json(site: Site, kind: str) -> None:
    answer = await site("POST", INVOKE, {"Content-Type": kind}, b'{"arguments": {"value": 1}}')
    assert is_problem(answer, 415)


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "identity, gzip", "zstd", "x"])
async def test_a_compressed_body_is_not_unpacked(site: Site, coding: str) -> None:
    answer = await site("POST", INVOKE, {"Content-Encoding": coding}, b'{"arguments": {"value": 1}}')
    assert is_problem(answer, 415)
    plain = await site("POST", INVOKE, {"Content-Encoding": "identity"}, b'{"arguments": {"value": 1}}')
    assert plain.json["output"] == 1


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 50_000, b'{"arguments":' * 50_000, b'{"arguments":{"value":' + b"[" * 5_000 + b"]" * 5_000 + b"}}",
        b'{"arguments":{"value":[' + b"0," * 2_000_000 + b"0]}}", b'{"arguments":{"value":1e400}}',
        b'{"arguments":{"value":NaN}}', b'{"arguments":{"value":-Infinity}}', b'{"arguments":{"value":"\xff"}}',
        b'{"arguments":{"value":"\\ud800"}}', b'{"arguments":{"\\udfff":1}}',
        b'{"arguments":{"value":1}}x', b"\xef\xbb\xbf{}",
        b'{"arguments":[]}', b'{"arguments":null}', b'{"arguments":"{}"}', b'{"timeout":1e400}', b'{"timeout":-1}',
        b'{"session":"\\ud800"}', b'{"nothing":1}', b"null", b"1", b"\x00", '{"arguments":{"value":1}}'.encode("utf-16"),
        b'{"arguments":{"value":' + b"9" * 5_000 + b"}}",
    ],
    ids=lambda body: repr(body[:30]),
)  # fmt: skip
@pytest.mark.sample(8)
async def test_a_body_that_is_no_call_is_refused(site: Site, body: bytes) -> None:
    answer = await site("POST", INVOKE, {}, body)
    assert answer.status in (400, 413, 422), answer.body[:300]
    for inside in (b"Traceback", b"site-packages", b".py"):
        assert inside not in answer.body


async def test_what_is_checked_of_arguments_named_twice_is_what_the_tool_gets(site: Site) -> None:
    """All read the last of them, once: no check sees another value than the tool."""
    told = []

    @tool(tier="read_only", name="told_tool")
    async def told_tool(path: str) -> str:
        """Take note."""
        told.append(path)
        return path

    site.http.app.register(told_tool)
    path = "/v1/tools/told_tool/invoke"
    good = await site("POST", path, {}, b'{"arguments": {"path": 1}, "arguments": {"path": 2, "path": "b"}}')
    assert (good.json["output"], told) == ("b", ["b"])
    bad = await site("POST", path, {}, b'{"arguments": {"path": "a"}, "arguments": {"path": "b", "path": 2}}')
    assert (bad.status, told) == (422, ["b"])


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=501", "limit=1e3", "limit=x", "limit=1&limit=2", "cursor=x&cursor=y", "nothing=1", "%ff=1",
        "source=%00", "tier=%F0%9F%92%A9", "a=1" * 4_000, "&".join(f"a{number}=1" for number in range(60)), "limit=-1",
        "access_token=x", "key=x", "api_key=x",
    ],
)  # fmt: skip
@pytest.mark.sample(6)
async def test_a_query_that_is_not_understood_is_refused(site: Site, query: str) -> None:
    assert is_problem(await site("GET", f"/v1/tools?{query}"), 400, 422)
    assert (await site("GET", "/v1/tools?limit=1")).status == 200


@pytest.mark.parametrize(
    "path", ["statistics", "invocations/facets", "invocations", "costs", "usage", "audit", "policy/observed"]
)
@pytest.mark.parametrize("at", ["0001-01-01T00:00:00%2B23:59", "9999-12-31T23:59:59-23:59", "1969-12-31T23:59:59Z"])
@pytest.mark.sample(4)
async def test_an_instant_that_cannot_be_reckoned_with_is_refused(site: Site, app: App, path: str, at: str) -> None:
    await site.with_key(app, roles=["admin"])
    names = ("since", "until") if "until" in str(site.http.openapi["paths"][f"/v1/{path}"]) else ("since",)
    for name in names:
        answer = await site("GET", f"/v1/{path}?{name}={at}")
        assert is_problem(answer, 422) and "must be of a year from 1970 to 2999" in answer.json["detail"]
        assert (await site("GET", f"/v1/{path}?{name}=2026-11-01T00:00:00Z")).status == 200


async def test_an_instant_in_a_body_cannot_be_out_of_reach_either(site: Site, app: App) -> None:
    await site.with_key(app, roles=["admin"])
    wish = b'{"limit_usd": "5", "period": "day", "until": "%s"}'
    assert is_problem(await site("POST", "/v1/budgets", {}, wish % b"9999-12-31T23:59:59-23:59"), 422)
    assert (await site("POST", "/v1/budgets", {}, wish % b"2999-12-31T23:59:59Z")).status == 201


# -- keys


@pytest.mark.parametrize("name", ["key", "access_token", "api_key", "token", "authorization"])
async def test_a_key_in_the_address_is_neither_taken_nor_logged(
    site: Site, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert is_problem(await site("GET", f"/v1/tools?{name}={site.key}", {"Authorization": ""}), 401)
    assert is_problem(await site("GET", f"/v1/tools/{site.key}", {"Authorization": ""}), 401)
    assert str(site.key).rpartition("_")[2] not in caplog.text


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_guesses_are_slowed_and_nobody_else(site: Site) -> None:
    clock = asyncio.get_running_loop().time
    assert (await site("GET", "/v1/tools")).status == 200
    id = str(site.key).split("_")[1]

    async def guess(text: str) -> float:
        began = clock()
        assert is_problem(await site("GET", "/v1/tools", key=text), 401)
        return clock() - began

    for number in range(12):
        last = await guess(f"tg_{id}_{number:043d}")
    assert last > 1.0
    answers = await asyncio.gather(guess(f"tg_{id}_{'z' * 43}"), site("GET", "/v1/tools"), asyncio.sleep(0.5))
    began = clock()
    assert (await site("GET", "/v1/tools")).status == 200
    assert clock() - began < 1.0
    assert answers[0] > 1.0
    assert answers[1].status == 200
    unknown = {(await site("GET", "/v1/tools", key=f"tg_{one}_{'a' * 43}")).body[:-50] for one in (id, "0" * 12)}
    assert len(unknown) == 1  # an id that is there looks like one that is not


# -- cursors and ETags


async def test_a_cursor_is_good_for_its_list_and_its_owner_alone(app: App, site: Site) -> None:
    own = (await site("GET", "/v1/tools?limit=1")).json["next"]
    assert (await site("GET", f"/v1/tools?limit=2&cursor={own}")).status == 200
    text = own[:-2] + ("AA" if own[-2:] != "AA" else "BB")
    for bad in (text, "", "x", "A" * 1_999, "%00", "é".encode().hex(), "A" * 5_000, own + own):
        assert is_problem(await site("GET", f"/v1/tools?cursor={bad}"), 400, 422)
    assert is_problem(await site("GET", f"/v1/tools?tier=read_only&cursor={own}"), 400)
    for actor, roles in ((BOB, ["caller"]), (EVE, ["caller"]), (ANN, ["viewer"])):
        other = await key_of(app, actor, *roles)  # type: ignore[arg-type]
        assert is_problem(await site("GET", f"/v1/tools?cursor={own}", key=other), 400)
    operator = await key_of(app, ANN, "operator")
    there = (await site("GET", "/v1/tools?limit=1&tenant=other", key=operator)).json["next"]
    assert (await site("GET", f"/v1/tools?tenant=other&cursor={there}", key=operator)).status == 200
    assert is_problem(await site("GET", f"/v1/tools?cursor={there}", key=operator), 400)
    key, ending = await app.keys.create("ending", ANN)
    cursor = (await site("GET", "/v1/tools?limit=1", key=ending)).json["next"]
    await app.keys.revoke(key.id)
    assert is_problem(await site("GET", f"/v1/tools?cursor={cursor}", key=ending), 401)


async def test_etags_in_odd_lists(site: Site) -> None:
    tag = (await site("GET", "/v1/tools/echo_back")).headers["etag"]
    for header in (tag, f"W/{tag}", f'"x", {tag}', "*", ",".join(['"x"'] * 5_000) + f",{tag}"):
        assert (await site("GET", "/v1/tools/echo_back", {"If-None-Match": header})).status == 304
    for header in (tag.strip('"'), f"w/{tag}", '"*"', "*, *", tag[:-2] + '"', "W/*", "é"):
        assert (await site("GET", "/v1/tools/echo_back", {"If-None-Match": header})).status == 200
    assert is_problem(await site("POST", INVOKE, {"If-Match": tag}, b'{"arguments": {"value": 1}}'), 412)


class Text(ApiModel, frozen=True):
    text: str


async def test_of_two_changes_of_one_thing_one_is_made(site: Site, app: App) -> None:
    """If-Match is compared and obeyed as one step, by strong comparison, and tells nobody what they may not read."""
    thing, made = Resource("thing"), []
    value = {"text": "a"}

    @thing.get("/v1/thing", permission="read")
    async def read_thing(request: ApiRequest) -> dict[str, Any]:
        assert request.actor == ANN
        await asyncio.sleep(0.01)
        return dict(value)

    @thing.put("/v1/thing", permission="call")
    async def write_thing(request: ApiRequest, body: Text) -> dict[str, Any]:
        assert request.actor == ANN
        await asyncio.sleep(0.01)
        value["text"] = body.text
        made.append(body.text)
        return dict(value)

    handler = PathHandler(thing.endpoints)
    site.http._routes.routes.append(_route(handler))
    admin = await key_of(app, ANN, "admin")
    tag = (await site("GET", "/v1/thing", key=admin)).headers["etag"]
    terms = {"If-Match": tag}
    assert is_problem(await site("PUT", "/v1/thing", terms, b'{"text":"b"}'), 403)  # a caller may not read it
    assert is_problem(await site("PUT", "/v1/thing", {"If-Match": f"W/{tag}"}, b'{"text":"b"}', key=admin), 412)
    bodies = [orjson.dumps({"text": f"t{number}"}) for number in range(8)]
    answers = await asyncio.gather(*(site("PUT", "/v1/thing", terms, body, key=admin) for body in bodies))
    assert sorted(answer.status for answer in answers) == [200, *[412] * 7]
    assert len(made) == 1
    assert (await site("PUT", "/v1/thing", {"If-Match": "*"}, b'{"text":"z"}', key=admin)).status == 200


def _route(handler: PathHandler) -> Any:
    from starlette.routing import Route

    return Route("/v1/thing", handler)


# -- who may


@pytest.mark.parametrize("role", ROLES)
async def test_only_an_operator_names_a_tenant(site: Site, app: App, role: Role) -> None:
    key = await key_of(app, BOB, role)
    for tenant in ("other", "%2a", "Acme", "acme%20", "ac%6De%00", "%61cme%CC%81"):
        answer = await site("GET", f"/v1/tools?tenant={tenant}", key=key)
        assert is_problem(answer, 422, 403) if role != "operator" else answer.status in (200, 422)
    assert (await site("GET", "/v1/tools?tenant=acme", key=key)).status == 200


@pytest.mark.parametrize("tenant", ["", "%00", "x%0a", "x" * 257, "%ff", "%ed%a0%80", "a&tenant=b"])
async def test_a_tenant_that_nobody_can_be_is_refused(site: Site, app: App, tenant: str) -> None:
    key = await key_of(app, BOB, "operator")
    assert is_problem(await site("GET", f"/v1/tools?tenant={tenant}", key=key), 400, 422)


async def test_all_tenants_are_only_listed(site: Site, app: App) -> None:
    """A route that is about one tenant takes no other for `*`, least of all its sender's own."""
    key = await key_of(app, BOB, "operator")
    for method, path in (("GET", "/v1/tools"), ("GET", "/v1/tools/echo_back"), ("POST", "/v1/tools/count_up/invoke")):
        body = b'{"arguments": {"by": 1}}' if method == "POST" else b""
        assert is_problem(await site(method, f"{path}?tenant=*", {}, body, key=key), 422)
    assert COUNTED == []
    made = await call(site, {"by": 1}, path="/v1/tools/count_up/invoke?tenant=other", key=key)
    assert made.json["output"] == 1
    await app.flush()
    [*_, record] = await app.audit.of_call(made.json["id"])
    assert record[4] == "other"


async def test_a_persona_does_not_follow_an_operator_into_another_tenant(site: Site, app: App) -> None:
    key = await key_of(app, Actor("acme", "analyst", "bob"), "operator")
    for tenant, persona in (("other", None), ("acme", "analyst")):
        made = await call(site, {"value": 1}, path=f"{INVOKE}?tenant={tenant}", key=key)
        await app.flush()
        [*_, record] = await app.audit.of_call(made.json["id"])
        assert (record[4], orjson.loads(record[7]).get("persona")) == (tenant, persona)

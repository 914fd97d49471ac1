"""Tools whose definition is an HTTP request: each argument goes to its place, and cannot leave it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.loopback import Said, Site, site
from tests.services import Answer, failed, hang_up, scripted
from toolgate import Actor, App, DefinitionError
from toolgate.model.http_endpoint import FORM
from toolgate.registry.compile import compile_entry, definition
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("REG-1")
BUILDER = Actor(tenant="acme", persona="builder", user="u-1")
TEXT = {"type": "string"}


def fields(url: str, *, method: str = "GET", properties: dict[str, Any], required: tuple[str, ...] = (), **http: Any) -> Any:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    endpoint = {"method": method, "url": url, **http}
    return {"name": "ask", "description": "Ask it.", "kind": "http", "input_schema": schema, "http": endpoint}


def user(url: str, **more: Any) -> dict[str, Any]:
    """A tool with an argument in each place but the body."""
    return {
        **fields(
            f"{url}/users/{{id}}/posts",
            properties={"id": TEXT, "tags": {"type": "array", "items": TEXT}, "trace": TEXT},
            required=("id",),
            parameters=[
                {"argument": "id", "place": "path"},
                {"argument": "tags", "place": "query", "name": "tag"},
                {"argument": "trace", "place": "header", "name": "X-Trace"},
            ],
        ),
        **more,
    }


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[tuple[App, Site]]:
    async with site(scripted(answers)) as service:
        allow = {"allow": [f"127.0.0.1:{service.port}"]}
        async with memory_app(network=allow, registration=allow) as app:
            app.approvals.add_approver(lambda _request: True)
            yield app, service


def register(app: App, made: dict[str, Any]) -> None:
    app.tools.register(compile_entry(definition(made), None, (), app.parts.rules))


async def test_arguments_go_to_the_path_the_query_and_headers() -> None:
    async with serving(Said(200, {"name": "Ada"}, {"etag": '"1"', "set-cookie": "s=1"})) as (app, service):
        register(app, user(service.url))
        outcome = await app.invoke("ask", {"id": "a/b?c", "tags": ["x", "y z"], "trace": "t-1"})
    asked = service.asked[0]
    assert outcome.output["body"] == {"name": "Ada"}
    assert (outcome.output["status"], outcome.output["headers"]["etag"]) == (200, '"1"')
    assert "set-cookie" not in outcome.output["headers"]
    assert (asked.method, asked.path, asked.query["tag"]) == ("GET", "/users/a%2Fb%3Fc/posts", "y z")
    assert asked.headers["x-trace"] == "t-1"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_body_is_one_argument_or_made_of_several(method: str) -> None:
    async with serving(Said(201, {})) as (app, service):
        whole = fields(f"{service.url}/w", method=method, properties={"body": {}}, body={"argument": "body"})
        parts = fields(
            f"{service.url}/p", method=method, properties={"a": TEXT, "b": TEXT}, body={"media_type": FORM},
            parameters=[{"argument": "a", "place": "body"}, {"argument": "b", "place": "body", "name": "B b"}],
        )  # fmt: skip
        register(app, {**whole, "name": "whole"})
        register(app, {**parts, "name": "parts"})
        assert (await app.invoke("whole", {"body": [1, {"a": None}]})).output["status"] == 201
        assert (await app.invoke("parts", {"a": "1&b=2", "b": "ü"})).ok
    first, second = service.asked
    assert (first.method, first.json, first.headers["content-type"]) == (method, [1, {"a": None}], "application/json")
    assert second.form == {"a": "1&b=2", "B b": "ü"}


@pytest.mark.parametrize("id", ["..", ".", "../admin", "a/../../b", "%2e%2e", "%252e%252e%252fadmin", "..\\b", "..;x", ""])
async def test_an_argument_never_leads_to_another_path(id: str) -> None:
    async with serving(Said(200, {})) as (app, service):
        register(app, user(service.url))
        failed(await app.invoke("ask", {"id": id}), "INVALID_INPUT")
    assert service.asked == []


async def test_a_line_end_in_a_header_is_refused() -> None:
    async with serving(Said(200, {})) as (app, service):
        register(app, user(service.url))
        failed(await app.invoke("ask", {"id": "1", "trace": "a\r\nAuthorization: mine"}), "INVALID_INPUT")
    assert service.asked == []


async def test_a_private_host_that_no_setting_names_is_refused() -> None:
    async with site(scripted([Said(200, {})])) as service, memory_app() as app:
        app.approvals.add_approver(lambda _request: True)
        register(app, user(service.url))
        failed(await app.invoke("ask", {"id": "1"}), "SECURITY_VIOLATION")
    assert service.connections == 0


@pytest.mark.parametrize(
    ("status", "method", "code", "retryable"),
    [
        (400, "GET", "INVALID_INPUT", False), (404, "POST", "INVALID_INPUT", False), (401, "GET", "MISSING_AUTH", False),
        (403, "GET", "PERMISSION_DENIED", False), (429, "POST", "RATE_LIMITED", True),
        (500, "GET", "CONNECTION_ERROR", True), (503, "POST", "OUTCOME_UNKNOWN", False),
    ],
)  # fmt: skip
async def test_an_error_status_is_an_error_with_the_words_of_the_service(
    status: int, method: str, code: str, retryable: bool
) -> None:
    said = Said(status, {"error": {"message": "no\x1b[31m such\nuser " + "very " * 400}}, {"retry-after": "7"})
    async with serving(said) as (app, service):
        register(app, fields(f"{service.url}/x", method=method, properties={}))
        error = failed(await app.invoke("ask", {}), code)
    assert "no [31m such user very" in error.message
    assert len(error.message) < 700
    assert error.retryable is retryable
    assert error.details["status"] == status
    assert status != 429 or error.details["retry_after"] == 7


async def test_only_requests_that_may_be_repeated_are() -> None:
    retry = {"max_attempts": 2, "backoff_ms": 0}
    async with serving(Said(raw=hang_up), Said(200, {"ok": 1})) as (app, service):
        register(app, {**user(service.url), "retry": retry})
        assert (await app.invoke("ask", {"id": "1"})).output["body"] == {"ok": 1}
        with pytest.raises(DefinitionError, match="not repeated"):
            register(app, {**fields(f"{service.url}/x", method="POST", properties={}), "retry": retry})
    assert len(service.asked) == 2


async def test_a_service_that_refuses_arguments_keeps_its_circuit_closed() -> None:
    async with serving(Said(404, {})) as (app, service):
        register(app, user(service.url))
        for _ in range(12):
            failed(await app.invoke("ask", {"id": "1"}), "INVALID_INPUT")
    assert len(service.asked) == 12


async def test_a_redirect_to_another_host_carries_no_credential_and_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_KEY", "k-123456789")
    credentials = [{"secret": "KEY", "scheme": "bearer"}]
    async with (
        site(scripted([Said(200, {})])) as other,
        site(scripted([Said(307, b"", {"location": f"{other.url}/y"})])) as service,
        memory_app(network={"allow": [f"127.0.0.1:{one.port}" for one in (service, other)]}) as app,
    ):
        app.approvals.add_approver(lambda _request: True)
        for name, method in (("get_it", "GET"), ("post_it", "POST")):
            made = fields(f"{service.url}/x", method=method, properties={}, credentials=credentials)
            register(app, {**made, "name": name, "requires_auth": {"config_key": "KEY"}})
        assert (await app.invoke("get_it", {})).ok
        failed(await app.invoke("post_it", {}), "SECURITY_VIOLATION")
    assert [asked.headers.get("authorization") for asked in service.asked] == ["Bearer k-123456789"] * 2
    assert [(asked.method, asked.headers.get("authorization")) for asked in other.asked] == [("GET", None)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://127.0.0.1/{id}/.."},
        {"url": "http://{id}.example.com/x"},
        {"url": "http://u:p@example.com/{id}"},
        {"url": "file:///etc/{id}"},
        {"url": "https://example.com/{id}?a={id}"},
        {"url": "https://example.com/x"},
        {"parameters": []},
        {"parameters": [{"argument": "id", "place": "path"}, {"argument": "t", "place": "header", "name": "Host"}]},
        {"parameters": [{"argument": "id", "place": "path"}, {"argument": "t", "place": "header", "name": "Authorization"}]},
        {
            "parameters": [{"argument": "id", "place": "header", "name": "X-HTTP-Method-Override"}],
            "url": "https://example.com/",
        },
        {"parameters": [{"argument": "id", "place": "header", "name": "x-rewrite-url"}], "url": "https://example.com/"},
        {"parameters": [{"argument": "id", "place": "path"}, {"argument": "t", "place": "query"}]},
        {"body": {"argument": "id"}},
        {"credentials": [{"secret": "not a name"}]},
        {"credentials": [{"secret": "KEY"}]},
        {"more": 1},
    ],
)
def test_a_definition_that_cannot_be_sent_is_refused(wrong: dict[str, Any]) -> None:
    endpoint = {"url": "https://example.com/{id}", "parameters": [{"argument": "id", "place": "path"}]}
    good = fields("", properties={"id": TEXT}, required=("id",))
    assert compile_entry(definition({**good, "http": endpoint}), None).tier == "external_api"
    with pytest.raises(DefinitionError):
        compile_entry(definition({**good, "http": {**endpoint, **wrong}}), None)


async def test_a_tenant_registers_one_at_run_time_and_it_asks_whatever_it_says_of_its_tier() -> None:
    async with serving(Said(200, {"ok": 1})) as (app, service):
        made = {**user(service.url), "tier": "read_only"}
        await app.policy.allow_adding_tools("builder")
        await app.tools.add_dynamic(made, BUILDER)
        assert app.tools.get("ask", BUILDER).tier == "external_api"
        assert (await app.invoke("ask", {"id": "1"}, actor=BUILDER)).output["body"] == {"ok": 1}
        credential = {"credentials": [{"secret": "KEY"}], **made["http"]}
        with pytest.raises(DefinitionError, match="cannot name a credential"):
            taken = {**made, "name": "other", "http": credential, "requires_auth": {"config_key": "KEY"}}
            await app.tools.add_dynamic(taken, BUILDER)

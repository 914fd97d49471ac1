"""Workflows of an n8n server as tools: the request that is sent, and what its answers become."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builtin_tools import WORKFLOWS
from tests.loopback import Asked, Said, Site, site
from tests.services import Answer, failed, hang_up, never, records, scripted
from toolgate import Actor, App, tool
from toolgate.errors import DefinitionError, SettingsError
from toolgate.settings import Settings
from toolgate.settings.workflows import WEBHOOK_PATH
from toolgate.testing import memory_app
from toolgate.workflow.client import header_text
from toolgate.workflow.standard import STANDARD

pytestmark = pytest.mark.requirement("WF-1")
SECRET = "hook-secret-4f1d2c"
ANN = Actor("acme", "assistant", "ann", ("tool:send_email", "tool:calendar", "tool:notifications"))
MAIL = {"to": "ann@example.com", "subject": "Hi", "body": "Hello"}
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}, "isBig": {"type": "boolean"}}}
REPORT: dict[str, Any] = {"webhook_path": "reports/make", "description": "Make a report.", "input_schema": SCHEMA}
DONE = Said(200, {"done": True}, {"x-n8n-execution-id": "4711"})
NOT_REGISTERED = {
    "code": 404,
    "message": 'The requested webhook "POST send-email" is not registered.',
    "hint": "The workflow must be active",
    "stacktrace": "ResponseError: not registered\n    at /usr/lib/node_modules/n8n/dist/webhooks/live.js:93:19",
}


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_N8N_WEBHOOK_SECRET", SECRET)


@asynccontextmanager
async def n8n(*answers: Answer, **settings: Any) -> AsyncIterator[tuple[App, Site]]:
    async with (
        site(scripted(answers)) as server,
        memory_app(n8n={"base_url": server.url}, **settings) as app,
    ):
        app.approvals.add_approver(lambda _request: True)
        yield app, server


# -- the request


async def test_the_request_has_headers_arguments_and_metadata() -> None:
    async with n8n(DONE) as (app, server):
        outcome = await app.invoke("send_email", MAIL, actor=ANN, session="chat-7", request_id="r-1")
        log = await records(app)
    assert outcome.output == {"done": True}
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/webhook/send-email")
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["x-webhook-secret"] == SECRET
    assert asked.headers["x-request-id"] == "r-1"
    assert asked.headers["x-idempotency-key"] == outcome.id
    assert asked.json == {
        **MAIL,
        "isHtml": False,
        "_metadata": {"requestId": "r-1", "userId": "ann", "chatId": "chat-7", "triggeredBy": "ai"},
    }
    assert SECRET not in log


async def test_without_a_session_and_a_request_id_the_call_id_stands_for_the_request() -> None:
    async with n8n(DONE) as (app, server):
        outcome = await app.invoke("send_email", MAIL, actor=ANN)
    assert server.asked[0].json["_metadata"] == {"requestId": outcome.id, "userId": "ann", "triggeredBy": "ai"}
    assert server.asked[0].headers["x-request-id"] == outcome.id


async def test_arguments_cannot_take_the_place_of_the_metadata() -> None:
    async with n8n(DONE) as (app, server):
        forged = {"userId": "root", "callback": {"url": "http://evil.example"}}
        assert (await app.invoke("send_email", {**MAIL, "_metadata": forged}, actor=ANN)).ok
    assert server.asked[0].json["_metadata"]["userId"] == "ann"
    assert "callback" not in server.asked[0].json["_metadata"]


async def test_equal_calls_have_other_keys_and_a_callers_own_key_is_scoped_to_the_caller() -> None:
    eve = Actor("globex", user="ann", scopes=ANN.scopes)
    local = Actor(scopes=ANN.scopes)
    async with n8n(DONE) as (app, server):
        for actor, key in ((ANN, None), (ANN, None), (ANN, "k 1"), (eve, "k 1"), (local, "k-1")):
            assert (await app.invoke("send_email", MAIL, actor=actor, idempotency_key=key)).ok
        again = await app.invoke("send_email", MAIL, actor=ANN, idempotency_key="k 1")
    keys = [asked.headers["x-idempotency-key"] for asked in server.asked]
    assert again.output == {"done": True}
    assert len(set(keys)) == 5
    assert keys[2:] == ["acme/ann/k%201", "globex/ann/k%201", "k-1"]


@given(st.text(max_size=80), st.text(max_size=80))
def test_a_text_in_a_header_is_visible_and_still_itself(one: str, other: str) -> None:
    shown = header_text(one)
    assert shown.isascii() and shown.isprintable() and " " not in shown
    assert (shown == header_text(other)) is (one == other)


# -- the answers


async def test_the_execution_id_is_kept_with_the_call() -> None:
    async with n8n(DONE) as (app, _):
        outcome = await app.invoke("send_email", MAIL, actor=ANN)
        log = await records(app)
    assert outcome.to_dict()["metrics"]["resources_used"] == ["n8n:execution:4711"]
    assert "n8n execution 4711" in log


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (Said(403, "Authorization data is wrong!", {"content-type": "text/plain"}), 403, "Authorization data is wrong!"),
        (Said(404, NOT_REGISTERED), 404, "is not registered."),
        (Said(422, {"code": 422, "message": "Failed to parse request body"}), 422, "Failed to parse request body"),
        (Said(500, {"message": "Error in workflow"}), 500, "Error in workflow"),
        (Said(500, b"<html>" + b"x" * 100_000), 500, "returned 500."),
        (Said(500, {"message": "m" * 100_000}), 500, "characters)"),
        (Said(502, "Bad gateway\n    at /usr/lib/node.js:1", {"content-type": "text/plain"}), 502, "Bad gateway"),
        (Said(302, b"", {"location": "https://elsewhere.example/"}), 302, "302"),
        (Said(400, b"[" * 200_000), 400, "400."),
    ],
)
async def test_an_answer_that_is_no_success_is_an_n8n_error_without_its_stack_trace(
    answer: Said, status: int, words: str
) -> None:
    async with n8n(answer) as (app, server):
        outcome = await app.invoke("send_email", MAIL, actor=ANN)
        error = failed(outcome, "N8N_ERROR")
        log = await records(app)
    assert error.details["status"] == status
    assert words in error.message and len(error.message) < 500
    assert error.retryable is False
    assert len(server.asked) == 1
    shown = json.dumps(outcome.to_dict()) + log
    assert "stacktrace" not in shown and "node" not in shown and "elsewhere" not in shown


async def test_a_busy_server_may_be_asked_again_and_the_execution_of_a_failure_is_told() -> None:
    busy = Said(503, {"message": "n8n is starting"}, {"retry-after": "7"})
    bad = Said(500, {"message": "Error in workflow"}, {"x-n8n-execution-id": "9"})
    async with n8n(busy, bad) as (app, _):
        first = failed(await app.invoke("send_email", MAIL, actor=ANN), "N8N_ERROR")
        second = failed(await app.invoke("send_email", MAIL, actor=ANN), "N8N_ERROR")
    assert first.retryable is True and first.details["retry_after"] == 7
    assert second.details["execution_id"] == "9"


async def test_a_workflow_that_is_slower_than_its_time_is_a_timeout() -> None:
    async with n8n(never) as (app, server):
        outcome = await app.invoke("send_email", MAIL, actor=ANN, timeout=0.3)
    error = failed(outcome, "TIMEOUT")
    assert outcome.status == "timeout"
    assert "0.3 s" in error.message and error.retryable is False
    assert len(server.asked) == 1


async def test_a_server_that_is_down_was_not_reached_and_is_tried_again() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    retry = {"max_attempts": 3, "initial_delay_ms": 1, "backoff_multiplier": 1, "max_delay_ms": 5}
    async with memory_app(n8n={"base_url": url}, workflows={"report": {**REPORT, "retry": retry}}) as app:
        app.approvals.add_approver(lambda _request: True)
        outcome = await app.invoke("report", {"number": 1})
    error = failed(outcome, "CONNECTION_ERROR")
    assert error.retryable is True
    assert outcome.metrics.attempts == 3


async def test_a_connection_that_breaks_leaves_it_open_what_became_of_the_call() -> None:
    async with n8n(Said(raw=hang_up)) as (app, server):
        error = failed(await app.invoke("send_email", MAIL, actor=ANN, idempotency_key="k"), "INVOCATION_ERROR")
        again = failed(await app.invoke("send_email", MAIL, actor=ANN, idempotency_key="k"), "OUTCOME_UNKNOWN")
    assert "before you call again" in error.suggestion
    assert again.retryable is False
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", None), (b"null", None), (b"[1, 2]", None), (b"{", "INVOCATION_ERROR"), (b"\xff", "INVOCATION_ERROR"),
        (b"<p>done</p>", "INVOCATION_ERROR"), (b"[" * 5_000 + b"]" * 5_000, "INVOCATION_ERROR"),
        (b'"' + b"x" * 5_000_001 + b'"', "INVOCATION_ERROR"),
    ],
)  # fmt: skip
async def test_an_answer_is_json_or_empty(body: bytes, code: str | None) -> None:
    async with n8n(Said(200, body)) as (app, server):
        outcome = await app.invoke("send_email", MAIL, actor=ANN)
    assert (outcome.error.code if outcome.error else None) == code
    assert len(server.asked) == 1


# -- the tools


@pytest.mark.requirement("WF-3")
async def test_the_three_workflows_are_tools_of_tier_external_api() -> None:
    async with n8n(DONE) as (app, server):
        tools = {name: app.tools.get(name, actor=ANN).tool for name in WORKFLOWS}
        assert {tool.tier for tool in tools.values()} == {"external_api"}
        assert {tool.source for tool in tools.values()} == {tool.kind for tool in tools.values()} == {"workflow"}
        assert {name: tool.requires_permission for name, tool in tools.items()} == {
            "send_email": "tool:send_email",
            "create_calendar_event": "tool:calendar",
            "send_notification": "tool:notifications",
        }
        assert {name: (tool.timeout, float(tool.cost.fixed)) for name, tool in tools.items()} == {
            "send_email": (30, 0.001),
            "create_calendar_event": (30, 0.001),
            "send_notification": (10, 0),
        }
        times = {"startTime": "2026-12-01T09:00:00Z", "endTime": "2026-12-01T10:00:00Z"}
        spent = await app.invoke("create_calendar_event", {"title": "Review", **times}, actor=ANN)
        assert spent.metrics.cost_usd == 0.001
        wrong = await app.invoke("create_calendar_event", {"title": "Review", **times, "endTime": "soon"}, actor=ANN)
        failed(wrong, "VALIDATION_ERROR")
        assert (await app.invoke("send_notification", {"title": "t", "body": "b", "data": {"a": 1}}, actor=ANN)).ok
    assert [asked.path for asked in server.asked] == ["/webhook/calendar-create", "/webhook/send-notification"]


@pytest.mark.requirement("WF-3")
@pytest.mark.parametrize("name", sorted(WORKFLOWS))
async def test_a_person_is_asked_and_the_permission_is_needed(name: str) -> None:
    async with memory_app(n8n={"base_url": "http://127.0.0.1:9"}) as app:
        (example,) = app.tools.get(name, actor=ANN).tool.examples
        assert (await app.invoke(name, example.arguments, actor=ANN)).status == "pending"
        failed(await app.invoke(name, example.arguments, actor=Actor("acme", user="bob")), "PERMISSION_DENIED")


@pytest.mark.requirement("WF-3")
@pytest.mark.parametrize("name", sorted(WORKFLOWS))
async def test_what_is_not_configured_is_said_before_anybody_is_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_app() as app:
        (example,) = app.tools.get(name, actor=ANN).tool.examples
        error = failed(await app.invoke(name, example.arguments, actor=ANN), "MISSING_AUTH")
        assert "n8n.base_url" in str(error)
        assert "n8n" in {step.gate for step in (await app.explain(name, example.arguments, actor=ANN)).gates}
    monkeypatch.delenv("TOOLGATE_SECRET_N8N_WEBHOOK_SECRET")
    async with memory_app(n8n={"base_url": "http://127.0.0.1:9"}) as app:
        error = failed(await app.invoke(name, example.arguments, actor=ANN), "MISSING_AUTH")
        assert "N8N_WEBHOOK_SECRET" in error.message


@pytest.mark.requirement("WF-3")
def test_the_files_for_n8n_are_for_these_tools_and_check_the_secret() -> None:
    """Whether n8n runs them, `make test-n8n` tells."""
    folder = Path(__file__).resolve().parents[2] / "examples" / "n8n"
    credentials = {one["id"]: one for one in json.loads((folder / "credentials.example.json").read_text())}
    hooks = {}
    for file in sorted(folder.glob("*-*.json")):
        nodes = json.loads(file.read_text())["nodes"]
        hook = nodes[0]["parameters"]
        hooks[hook["path"]] = (hook["httpMethod"], hook["authentication"])
        for node in nodes:
            for kind, used in node.get("credentials", {}).items():
                assert credentials[used["id"]]["type"] == kind
    assert {known.webhook_path for known in STANDARD} < hooks.keys()
    assert set(hooks.values()) == {("POST", "headerAuth")}
    header = next(one for one in credentials.values() if one["type"] == "httpHeaderAuth")
    assert header["data"]["name"] == "X-Webhook-Secret"


# -- workflows of the settings


async def test_a_workflow_of_the_settings_is_a_tool_with_all_that_they_say(tmp_path: Path) -> None:
    async with site(scripted([Said(500, {"message": "busy"}), DONE])) as server:
        (tmp_path / "toolgate.yaml").write_text(
            f"""
home: {tmp_path / "home"}
n8n: {{baseUrl: {server.url}, webhookSecret: OTHER_SECRET}}
workflows:
  makeReport:
    webhookPath: reports/make
    description: Make a report.
    inputSchema:
      type: object
      properties: {{isBig: {{type: boolean}}}}
      additionalProperties: false
      required: [isBig]
    tier: read_only
    cost: 0.25
    timeout: 5
    requiresPermission: "tool:reports"
    retry: {{maxAttempts: 2, initialDelayMs: 1, backoffMultiplier: 1, maxDelayMs: 1, retryableErrors: [N8N_ERROR]}}
"""
        )
        async with App.open(tmp_path / "toolgate.yaml", entry_points=False) as app:
            app.parts.secrets.sources = (lambda key: SECRET if key == "OTHER_SECRET" else None,)
            actor = Actor(scopes=("tool:reports",))
            failed(await app.invoke("makeReport", {"isBig": True, "other": 1}, actor=actor), "VALIDATION_ERROR")
            outcome = await app.invoke("makeReport", {"isBig": True}, actor=actor)
    assert outcome.output == {"done": True}, outcome.error
    assert outcome.metrics.attempts == 2
    assert [asked.path for asked in server.asked] == ["/webhook/reports/make"] * 2
    assert len({asked.headers["x-idempotency-key"] for asked in server.asked}) == 1
    assert server.asked[0].headers["x-webhook-secret"] == SECRET


async def test_a_workflow_of_the_settings_takes_the_place_of_one_that_is_known() -> None:
    mine = {"webhook_path": "mine", "description": "Mine.", "input_schema": {"type": "object"}}
    async with n8n(DONE, workflows={"send_email": mine, "echo": mine}) as (app, server):
        assert (await app.invoke("send_email", {"any": 1})).ok
        assert ["taken" in problem.why for problem in app.tools.problems] == [True]
        assert app.tools.get("echo").tool.source == "builtin"
    assert [asked.path for asked in server.asked] == ["/webhook/mine"]


async def test_a_wrong_schema_is_a_problem_of_that_workflow_alone() -> None:
    bad = {**REPORT, "input_schema": {"type": "object", "properties": {"a": {"type": "nonsense"}}}}
    async with n8n(DONE, workflows={"bad": bad, "report": REPORT}) as (app, _):
        assert [problem.where for problem in app.tools.problems] == ["setting workflows.bad"]
        assert (await app.invoke("report", {})).ok


@pytest.mark.parametrize(
    "wrong",
    [
        {"n8n": {"base_url": "http://n8n.example.com"}}, {"n8n": {"base_url": "http://u:p@127.0.0.1"}},
        {"n8n": {"webhook_secret": "s3cret-value"}}, {"n8n": {"callback_url": "ftp://x"}},
        {"workflows": {"1x": REPORT}}, {"workflows": {"x": {**REPORT, "webhook_path": "../rest/login"}}},
        {"workflows": {"x": {**REPORT, "webhook_path": "a?b"}}}, {"workflows": {"x": {**REPORT, "tier": "none"}}},
        {"workflows": {"x": {**REPORT, "retry": {"retryable_errors": ["NOPE"]}}}},
        {"workflows": {"x": {**REPORT, "async": True}}}, {"workflows": {"x": {**REPORT, "timeout": 480}}},
    ],
)  # fmt: skip
def test_settings_that_would_not_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings().with_overrides(wrong)
    assert "s3cret-value" not in str(caught.value)


@given(st.text(max_size=40) | st.text("abc./~%?#\\", max_size=12))
def test_a_webhook_path_stays_below_webhook(path: str) -> None:
    if WEBHOOK_PATH.match(path):
        assert path.isascii() and not set(path) & set("?#%\\ ") and not path.startswith("/")
        assert not {"", ".", ".."} & set(path.split("/"))


async def test_a_secret_in_the_arguments_of_a_workflow_is_named_or_refused() -> None:
    async with n8n(DONE, workflows={"report": {**REPORT, "input_schema": {"type": "object"}}}) as (app, server):
        error = failed(await app.invoke("report", {"token": "{{secret:N8N_WEBHOOK_SECRET}}"}), "PERMISSION_DENIED")
    assert "source: workflow" in error.suggestion
    assert server.asked == []


async def test_an_answer_that_repeats_the_secret_is_masked() -> None:
    def echo(asked: Asked) -> Said:
        return Said(200, {"headers": asked.headers})

    async with n8n(echo) as (app, _):
        outcome = await app.invoke("send_email", MAIL, actor=ANN)
    assert SECRET not in json.dumps(outcome.to_dict())


@tool(name="send_email", tier="read_only")
async def own_mail(to: str) -> str:
    """Send a mail in a way of one's own."""
    return f"own {to}"


@pytest.mark.parametrize("base_url", [None, "http://127.0.0.1:9"])
async def test_a_python_tool_of_the_same_name_is_taken_without_a_word(base_url: str | None) -> None:
    async with memory_app(n8n={"base_url": base_url}) as app:
        app.register(own_mail)
        assert (await app.invoke("send_email", {"to": "bob"})).output == "own bob"
        assert bool(app.tools.problems) is (base_url is not None)
    first = memory_app(n8n={"base_url": base_url})
    first.register(own_mail)
    async with first as app:
        assert (await app.invoke("send_email", {"to": "bob"})).output == "own bob"
        assert app.tools.problems == []


@pytest.mark.parametrize("base_url", [None, "http://127.0.0.1:9"])
async def test_a_later_source_takes_the_name_only_where_there_is_no_server(base_url: str | None, tmp_path: Path) -> None:
    (tmp_path / "home" / "tools").mkdir(parents=True, mode=0o700)
    code = "export async function execute() { return 1; }"
    own = {"name": "send_email", "description": "Mine.", "schema": {"type": "object"}, "code": code}
    (tmp_path / "home" / "tools" / "mail.yml").write_text(json.dumps(own))
    async with App.open(home=tmp_path / "home", entry_points=False, n8n={"base_url": base_url}) as app:
        found = app.tools.get("send_email", actor=ANN).tool
        assert found.source == ("custom" if base_url is None else "workflow"), app.tools.problems
        mine = {"name": "create_calendar_event", "description": "Mine.", "kind": "sandbox", "program": {"code": code}}
        await app.policy.allow_adding_tools("builder")
        builder = Actor("acme", "builder", "ann")
        with pytest.raises(DefinitionError):
            await app.tools.add_dynamic(mine, builder)
        with pytest.raises(DefinitionError):
            await app.tools.add_dynamic({"name": "hook", "description": "Mine.", "kind": "workflow"}, builder)

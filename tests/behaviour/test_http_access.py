"""The matrix of access: every route of /v1, times every role, times one's own things, another user's and another tenant's.

A route that is added without a sample fails here. Each role of each of three senders sends the sample of each route; the
world is ann's of tenant acme, and holds one of everything.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.serving import Answer, Site, serving
from toolgate import Actor, App, tool
from toolgate.learning.feedback import Feedback
from toolgate.model import Call
from toolgate.model.roles import ROLES, Permission, Role, permissions_of
from toolgate.serve.http.endpoint import Endpoint
from toolgate.serve.http.resources import RESOURCES
from toolgate.testing import memory_app

# apprise looks whether it is there
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

ANN, BOB, EVE = Actor("acme", user="ann"), Actor("acme", user="bob"), Actor("other", user="eve")
MARK = "acme-own-thing"
"""In the name or text of everything that is ann's."""
UNKNOWN = "nothing-has-this-name"
ENDPOINTS = {endpoint.id: endpoint for resource in RESOURCES for endpoint in resource.endpoints}


@dataclass(frozen=True)
class Sample:
    """A request that makes sense of a route. Parts of its path are names of the world's things."""

    parts: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    query: str = ""
    is_shared: bool = False
    """True if what it names is nobody's: a tool of the catalog, a name that each tenant or user has for itself."""
    raw: bytes = b""
    streams: bool = False
    by_read: bool = False
    """True if a role with the permission `read` may look at another user's."""


OWN_CANVAS: dict[str, Any] = {"parts": {"session": "session"}, "is_shared": True}
TOOL: dict[str, Any] = {"parts": {"name": "tool"}, "is_shared": True}
FLAG: dict[str, Any] = {"parts": {"tool": "tool"}, "is_shared": True}
ABSENT = ("get_server", "get_openapi_document", "get_pin")
"""Routes that are asked for one that is not there."""
SAMPLES: dict[str, Sample] = {
    "list_tools": Sample(),
    "invoke_tool": Sample(**TOOL, body={"arguments": {"text": "x"}}),
    "explain_call": Sample(**TOOL, body={}),
    "search_tools": Sample(query="q=echo"),
    "export_tools": Sample(),
    "count_tokens": Sample(),
    "show_prompt": Sample(),
    "register_tool": Sample(body={"name": "made", "description": "x", "kind": "nothing"}),
    "get_tool": Sample(**TOOL),
    "get_access": Sample(**TOOL),
    "get_pin": Sample(**TOOL),
    "remove_tool": Sample(**TOOL),
    "change_tool": Sample(**TOOL, body={"enabled": True}),
    "follow_events": Sample(streams=True),
    "list_approvals": Sample(by_read=True),
    "get_approval": Sample(parts={"id": "approval"}, by_read=True),
    "answer_approval": Sample(parts={"id": "approval"}, body={"verdict": "reject"}, by_read=True),
    "resume_approval": Sample(parts={"id": "approval"}),
    "list_grants": Sample(),
    "get_grant": Sample(parts={"id": "grant"}, by_read=True),
    "make_grant": Sample(body={"tool": "pay", "scope": "user", "seconds": 60, "user": "zoe"}),
    "revoke_grant": Sample(parts={"id": "grant"}, by_read=True),
    "list_budgets": Sample(),
    "get_budget": Sample(parts={"id": "budget"}, by_read=True),
    "make_budget": Sample(body={"limit_usd": "5", "period": "day", "user": "zoe"}),
    "change_budget": Sample(parts={"id": "budget"}, body={"limit_usd": "6"}, by_read=True),
    "remove_budget": Sample(parts={"id": "budget"}, by_read=True),
    "get_costs": Sample(),
    "get_usage": Sample(),
    "list_keys": Sample(),
    "get_key": Sample(parts={"id": "key"}, by_read=True),
    "make_key": Sample(body={"name": "made by nobody"}),
    "revoke_key": Sample(parts={"id": "key"}, by_read=True),
    "list_secrets": Sample(),
    "get_secret": Sample(parts={"name": "secret"}, by_read=True),
    "set_secret": Sample(parts={"name": "secret"}, body={"value": "v"}, is_shared=True),
    "remove_secret": Sample(parts={"name": "secret"}, is_shared=True),
    "list_flags": Sample(),
    "get_flags_of_tool": Sample(**FLAG),
    "set_flag": Sample(**FLAG, body={"enabled": True}),
    "remove_flag": Sample(**FLAG),
    "get_policy": Sample(),
    "get_policy_data": Sample(),
    "ask_policy": Sample(body={"tool": "echo"}),
    "replay_policy": Sample(body={"rego": "package soma.policy\n\nallow := true\n"}),
    "get_observed": Sample(),
    "deny_tool": Sample(parts={"tool": "tool"}, body={}, is_shared=True),
    "undeny_tool": Sample(parts={"tool": "tool"}, is_shared=True),
    "restrict_code": Sample(parts={"restricted": "tool"}, is_shared=True),
    "unrestrict_code": Sample(parts={"restricted": "tool"}, is_shared=True),
    "set_persona_permissions": Sample(parts={"persona": "tool"}, body={"can_add_tools": False}, is_shared=True),
    "suggest_policy": Sample(),
    "set_allow_list": Sample(parts={"restricted": "tool"}, body={"personas": {}}, is_shared=True),
    "remove_allow_list": Sample(parts={"restricted": "tool"}, is_shared=True),
    "undo_call": Sample(parts={"id": "call"}, body={"preview": True}),
    "get_statistics": Sample(),
    "get_learning": Sample(query="task=say+hello"),
    "forget_learning": Sample(query="user=nobody"),
    "give_feedback": Sample(body={"tool_name": "echo", "success": True}),
    "list_feedback": Sample(),
    "recall": Sample(body={"query": "say hello"}),
    "remember": Sample(body={"text": "say hello"}),
    "list_suggestions": Sample(),
    "answer_suggestion": Sample(parts={"id": "suggestion"}, body={"verdict": "reject"}, is_shared=True),
    "get_call_facets": Sample(),
    "get_attention": Sample(),
    "list_invocations": Sample(),
    "get_invocation": Sample(parts={"id": "call"}, by_read=True),
    "list_calls_within": Sample(parts={"id": "call"}, by_read=True),
    "list_audit_rows": Sample(),
    "get_audit_row": Sample(parts={"seq": "row"}, by_read=True),
    "get_audit_head": Sample(),
    "verify_audit_log": Sample(),
    "prove_call": Sample(parts={"call_id": "call"}, by_read=True),
    "export_audit_log": Sample(),
    "get_artifact": Sample(parts={"id": "artifact"}, by_read=True),
    "list_jobs": Sample(),
    "count_jobs": Sample(),
    "get_job": Sample(parts={"id": "job"}, by_read=True),
    "retry_job": Sample(parts={"id": "job"}),
    "cancel_job": Sample(parts={"id": "job"}),
    "read_cron_line": Sample(query="cron=0+8+*+*+*"),
    "list_schedules": Sample(),
    "add_schedule": Sample(body={"cron": "0 8 * * *", "tool": "echo", "arguments": {"text": "x"}}),
    "get_schedule": Sample(parts={"id": "schedule"}, by_read=True),
    "remove_schedule": Sample(parts={"id": "schedule"}),
    "pause_schedule": Sample(parts={"id": "schedule"}),
    "resume_schedule": Sample(parts={"id": "schedule"}),
    "run_schedule": Sample(parts={"id": "schedule"}),
    "say_words": Sample(**OWN_CANVAS, body={"text": "words of somebody"}),
    "list_canvases": Sample(),
    "get_canvas": Sample(**OWN_CANVAS),
    "append_to_canvas": Sample(**OWN_CANVAS, body={"content": "x"}),
    "clear_canvas": Sample(**OWN_CANVAS),
    "list_notifications": Sample(),
    "dismiss_notification": Sample(parts={"id": "notification"}),
    "list_push_tokens": Sample(),
    "add_push_token": Sample(body={"url": "ntfy://127.0.0.1/topic"}),
    "remove_push_token": Sample(parts={"id": "push_token"}),
    "list_documents": Sample(),
    "remove_document": Sample(parts={"id": "document"}),
    "list_attachments": Sample(),
    "upload_attachment": Sample(query="name=x.txt", raw=b"x"),
    "get_attachment": Sample(parts={"id": "attachment"}, by_read=True),
    "remove_attachment": Sample(parts={"id": "attachment"}),
    "list_servers": Sample(),
    "list_quarantine": Sample(),
    "get_server": Sample(parts={"name": "server"}, is_shared=True),
    "add_server": Sample(body={"name": "x", "url": "http://127.0.0.1:9/mcp", "start": False}),
    "refresh_server": Sample(parts={"name": "server"}, is_shared=True),
    "restart_server": Sample(parts={"name": "server"}, is_shared=True),
    "accept_definitions": Sample(parts={"name": "server"}, body={"hashes": []}, is_shared=True),
    "remove_server": Sample(parts={"name": "server"}, is_shared=True),
    "get_teams": Sample(),
    "sync_teams": Sample(),
    "accept_team_tools": Sample(body={"hashes": ["0"]}),
    "reject_team_tools": Sample(body={"hashes": ["0"]}),
    "remove_teams": Sample(),
    "get_bundle": Sample(parts={"org_id": "server"}, is_shared=True),
    "list_openapi_documents": Sample(),
    "get_openapi_document": Sample(parts={"name": "openapi_document"}, is_shared=True),
    "add_openapi_document": Sample(body={"name": "x", "document": {}}),
    "refresh_openapi_document": Sample(parts={"name": "openapi_document"}, is_shared=True),
    "accept_operations": Sample(parts={"name": "openapi_document"}, body={"hashes": []}, is_shared=True),
    "remove_openapi_document": Sample(parts={"name": "openapi_document"}, is_shared=True),
    "get_health": Sample(),
    "list_tenants": Sample(),
    "list_sign_ins": Sample(),
    "end_sign_in": Sample(parts={"id": "sign_in"}, by_read=True),
    "get_session": Sample(),
    "end_session": Sample(),
    "get_openapi": Sample(),
}


@tool(tier="external_api")
async def pay(amount: int, note: str = "") -> str:
    """Pay somebody."""
    return f"{amount} {note}"


@asynccontextmanager
async def world(home: Path) -> AsyncIterator[tuple[App, Site, dict[str, str]]]:
    """A server, and ids of what is ann's on it."""
    push = {"kinds": ["ntfy"], "allow": ["127.0.0.1:80"]}
    terms: dict[str, Any] = {"home": home, "database_url": f"sqlite:///{home}/toolgate.db", "notify": {"push": push}}
    async with memory_app(**terms, limits={"output_string": 200}) as app, serving(app) as site:
        app.register(pay)
        things = {"tool": "echo", "session": MARK, "secret": "ACME_OWN_THING"}
        waiting = await app.invoke("pay", {"amount": 1, "note": MARK}, actor=ANN)
        assert waiting.pending is not None
        things["approval"] = waiting.pending.id
        done = await app.invoke("echo", {"text": MARK * 100}, actor=ANN, session=MARK)
        assert done.artifact is not None
        things |= {"call": done.id, "artifact": done.artifact.id}
        queued = await app.enqueue("echo", {"text": MARK}, actor=ANN, delay=3600)
        assert queued.pending is not None
        things["job"] = queued.pending.id
        things["schedule"] = (await app.schedules.add("0 8 * * *", "echo", {"text": MARK}, name=MARK, actor=ANN)).id
        await app.invoke("canvas_append", {"content": MARK}, actor=ANN, session=MARK)
        await app.say(MARK, MARK, actor=ANN)
        await app.invoke("notify_user", {"message": MARK}, actor=ANN)
        things["notification"] = (await app.notifications.list(actor=ANN))[0].id
        things["push_token"] = (await app.push_tokens.add("ntfy://127.0.0.1/topic", MARK, actor=ANN)).id
        _, token = await app.sign_ins.create_link(ANN, roles=["viewer"])
        opened = await app.sign_ins.open_link(token)
        assert opened is not None
        things["sign_in"] = opened[0].id
        things["row"] = f"{(await app.audit.of_call(done.id))[-1][0]:015d}"  # long enough to be told from other numbers
        key, _ = await app.keys.create(MARK, ANN)
        things["key"] = key.id
        _, admin = await app.keys.create("admin of the world", Actor("acme", user="adam"), roles=["admin"])
        made = {
            "grant": ("/v1/grants", {"tool": "pay", "scope": "user", "seconds": 600, "user": "ann", "reason": MARK}),
            "budget": ("/v1/budgets", {"limit_usd": "77", "period": "day", "user": MARK}),
        }
        for name, (path, body) in made.items():
            answer = await site("POST", path, {}, orjson.dumps(body), key=admin)
            assert answer.status == 201, answer.body
            things[name] = answer.json["id"]
        answer = await site("PUT", f"/v1/secrets/{things['secret']}", {}, b'{"value": "s3cr3t-value"}', key=admin)
        assert answer.status == 200, answer.body
        answer = await site(
            "POST", f"/v1/attachments?name={MARK}", {}, MARK.encode(), key=(await app.keys.create("up", ANN))[1]
        )
        assert answer.status == 201, answer.body
        things |= {"attachment": answer.json["id"], "server": UNKNOWN, "openapi_document": UNKNOWN}
        await app.learning.feedback(Feedback(tool_name="echo", success=True, comment=MARK), actor=ANN)
        things["document"] = "no-document"  # what takes one in needs a model; its routes are asked for one that is not there
        yield app, site, things
        await app.keys.close()


async def send(site: Site, endpoint: Endpoint, sample: Sample, things: Mapping[str, str], key: str | None) -> Answer:
    path = endpoint.path.format(**{name: things.get(thing, thing) for name, thing in sample.parts.items()})
    target = f"{path}?{sample.query}" if sample.query else path
    body = sample.raw if sample.body is None else orjson.dumps(sample.body)
    if sample.streams:  # refused with a number that is none, once the sender is known to be allowed
        return await site(endpoint.method, target, {"Last-Event-ID": "x"}, body, key=key)
    return await site(endpoint.method, target, {}, body, key=key)


async def everything_of_ann(app: App) -> list[Any]:
    """What nobody else's request may have changed."""
    return [
        [(one.request.id, one.state) for one in await app.approvals.list(state=None, actor=ANN)],
        [(one.id, one.state) for one in await app.jobs.list(actor=ANN, all_users=True)],
        [(one.id, one.state) for one in await app.schedules.list(actor=ANN, all_users=True)],
        [one.id for one in await app.grants.list(actor=ANN)],
        [one.id for one in await app.notifications.list(actor=ANN)],
        [one.id for one in await app.push_tokens.list(actor=ANN)],
        [(one.id, one.revoked_at) for one in await app.keys.list("acme") if one.name == MARK],
        [block.content for block in await app.canvas.read(MARK, actor=ANN)],
        [one.id for one in await app.attachments.list(actor=ANN)],
        [one.text for one in await app.parts.user_words.messages(Call("", "echo", None, ANN, MARK))],
        [one.id for one in await app.learning.said(tenant="acme", user="ann") if one.comment == MARK],
        app.secrets.has("ACME_OWN_THING", ANN),
        sorted(str(row) for row in await app.budgets.limits() if MARK in str(row)),
    ]


async def _speaking_key(app: App, role: Role) -> str:
    """A key of ann's that may speak for her: what else a route asks for is not what is tested here."""
    return (await app.keys.create(f"{role} of acme", ANN, roles=[role], may_speak=True))[1]


@pytest.fixture(scope="module")
def roles_with() -> dict[Permission, set[Role]]:
    permissions: tuple[Permission, ...] = ("own", "call", "read", "answer", "administer", "operate")
    return {one: {role for role in ROLES if one in permissions_of([role])} for one in permissions}


@pytest.mark.requirement("DOOR-3")
def test_every_route_has_a_sample() -> None:
    assert SAMPLES.keys() == ENDPOINTS.keys()


@pytest.mark.requirement("DOOR-3")
async def test_a_role_without_the_permission_is_refused_everywhere(
    roles_with: dict[Permission, set[Role]], tmp_path: Path
) -> None:
    async with world(tmp_path) as (app, site, things):
        before = await everything_of_ann(app)
        keys = {role: await _speaking_key(app, role) for role in ROLES}
        seen = {}
        for name, sample in SAMPLES.items():
            for role in set(ROLES) - roles_with[ENDPOINTS[name].permission]:
                answer = await send(site, ENDPOINTS[name], sample, things, keys[role])
                seen[name, role] = (answer.status, answer.json["code"])
        assert set(seen.values()) == {(403, "PERMISSION_DENIED")}, {k: v for k, v in seen.items() if v[0] != 403}
        assert await everything_of_ann(app) == before
        nobody = {name: (await send(site, ENDPOINTS[name], SAMPLES[name], things, None)).status for name in SAMPLES}
        assert set(nobody.values()) == {401}, nobody


@pytest.mark.requirement("DOOR-3")
@pytest.mark.parametrize("role", ["caller", "admin", "viewer", "approver", "operator"])
@pytest.mark.sample(2)
async def test_things_of_another_tenant_look_missing(role: Role, tmp_path: Path) -> None:
    """Whatever the role there, also an operator who does not name the tenant."""
    async with world(tmp_path) as (app, site, things):
        before = await everything_of_ann(app)
        _, key = await app.keys.create(f"{role} of other", EVE, roles=[role], may_speak=True)
        nothing = dict.fromkeys(things, UNKNOWN) | {"tool": things["tool"], "secret": "NOTHING"}
        wrong: dict[str, Any] = {}
        for name, sample in SAMPLES.items():
            endpoint = ENDPOINTS[name]
            if endpoint.permission not in permissions_of([role]) or name in (
                "end_session",
                "verify_audit_log",
                "export_audit_log",
            ):
                continue
            answer = await send(site, endpoint, sample, things, key)
            if MARK.encode() in answer.body and MARK not in sample.parts.values():
                told = answer.body.replace(MARK.encode(), b"", answer.body.count(b'"session":"' + MARK.encode()))
                if MARK.encode() in told and "session" not in sample.parts:
                    wrong[name] = answer.body[:300]
            if sample.parts and not sample.is_shared:
                unknown = await send(site, endpoint, sample, nothing, key)
                if (answer.status, _shape(answer, things)) != (404, _shape(unknown, nothing)):
                    wrong[name] = (answer.status, answer.body[:200], unknown.body[:200])
        assert not wrong
        assert await everything_of_ann(app) == before


def _shape(answer: Answer, named: Mapping[str, str]) -> str:
    """An answer without what it says of the request itself."""
    text = orjson.dumps({**answer.json, "request_id": ""}).decode() if answer.body else ""
    for one in sorted({*named.values()}, key=len, reverse=True):
        text = text.replace(one, "…")
    return text


@pytest.mark.requirement("DOOR-3")
@pytest.mark.parametrize("role", ["caller", "admin", "viewer", "approver", "operator"])
@pytest.mark.sample(2)
async def test_things_of_another_user_look_missing_to_callers(role: Role, tmp_path: Path) -> None:
    async with world(tmp_path) as (app, site, things):
        before = await everything_of_ann(app)
        _, key = await app.keys.create(f"{role} bob", BOB, roles=[role], may_speak=True)
        wrong = {}
        permissions = permissions_of([role])
        for name, sample in SAMPLES.items():
            endpoint = ENDPOINTS[name]
            if endpoint.permission not in ("own", "call") or endpoint.permission not in permissions:
                continue
            if not sample.parts or sample.is_shared or "administer" in permissions:
                continue
            answer = await send(site, endpoint, sample, things, key)
            may_read = (
                sample.by_read and "read" in permissions and things.get(next(iter(sample.parts.values()))) != "no-document"
            )
            if (answer.status == 404) == may_read:
                wrong[name] = (answer.status, answer.body[:200])
        assert not wrong
        assert await everything_of_ann(app) == before


@pytest.mark.requirement("DOOR-3")
async def test_a_role_with_the_permission_is_served_in_its_tenant(
    roles_with: dict[Permission, set[Role]], tmp_path: Path
) -> None:
    """Each route by each role that may, on ann's own things as ann; what one has ended the next finds ended."""
    async with world(tmp_path) as (app, site, things):
        keys = {role: await _speaking_key(app, role) for role in ROLES}
        wrong = {}
        late = [name for name in SAMPLES if ENDPOINTS[name].method == "DELETE"]
        for name in [*(one for one in SAMPLES if one not in late), *late]:
            for role in sorted(roles_with[ENDPOINTS[name].permission]):
                answer = await send(site, ENDPOINTS[name], SAMPLES[name], things, keys[role])
                # What the policy, another person or an operator decides, whatever the role, is refused in other words.
                by_role = answer.status == 403 and answer.json["detail"].startswith("This needs the role")
                if answer.status in (401, 405) or answer.status >= 500 or by_role:
                    wrong[name, role] = (answer.status, answer.body[:200])
                expected = 404 if name in ("get_server", "get_openapi_document", "get_pin") else 200
                expected = 400 if SAMPLES[name].streams else expected
                expected = 403 if name == "get_bundle" else expected  # it needs a scope, whatever the role
                if ENDPOINTS[name].method == "GET" and answer.status != expected:
                    wrong[name, role] = (answer.status, answer.body[:200])
        assert not wrong

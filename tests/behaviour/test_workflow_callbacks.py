"""Workflows that are not waited for: started with a callback, ended by it, recorded and told of."""

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import loopback
from tests.loopback import Asked, Said
from tests.services import Answer, failed, hang_up, never, records, scripted
from tests.serving import serving
from toolgate import Actor, App
from toolgate.testing import ManualClock, memory_app
from toolgate.workflow.callbacks import CallbackRefused, parse
from toolgate.workflow.invocations import Invocation

pytestmark = pytest.mark.requirement("WF-2")
SECRET = "hook-secret-4f1d2c"
ANN = Actor("acme", "assistant", "ann")
TAKEN = Said(200, {"message": "Workflow was started"}, {"x-n8n-execution-id": "4711"})
REPORT: dict[str, Any] = {
    "webhook_path": "reports/make",
    "description": "Make a report.",
    "input_schema": {"type": "object", "properties": {"number": {"type": "integer"}}},
    "output_schema": {"type": "object", "required": ["pages"]},
    "timeout": 480,
}


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_N8N_WEBHOOK_SECRET", SECRET)


@asynccontextmanager
async def n8n(*answers: Answer, database: str | None = None, **workflow: Any) -> AsyncIterator[tuple[App, loopback.Site]]:
    async with loopback.site(scripted(answers)) as server:
        where = {"base_url": server.url, "callback_url": "http://toolgate.example", "start_seconds": 5}
        settings: dict[str, Any] = {"n8n": where, "workflows": {"report": {**REPORT, **workflow}}}
        if database is not None:
            settings["database_url"] = database
        opened = memory_app(**settings) if database is None else App.open(entry_points=False, **settings)
        async with opened as app:
            app.approvals.add_approver(lambda _request: True)
            yield app, server


async def started(app: App, server: loopback.Site, **how: Any) -> tuple[str, str]:
    """An invocation's id, and its key."""
    outcome = await app.invoke("report", {"number": 7}, actor=ANN, **how)
    assert outcome.ok, outcome.error
    callback = server.asked[-1].json["_metadata"]["callback"]
    assert outcome.output == {"invocationId": callback["invocationId"], "status": "running"}
    return callback["invocationId"], callback["key"]


def signed(key: str, body: bytes, at: float | None = None) -> dict[str, str]:
    """The headers of a callback, made as the documentation says."""
    stamp = str(int(time.time() if at is None else at))
    digest = hmac.new(key.encode(), f"{stamp}.".encode() + body, sha256).hexdigest()
    return {"X-Toolgate-Timestamp": stamp, "X-Toolgate-Signature": f"sha256={digest}"}


def said(**report: Any) -> bytes:
    return json.dumps({"success": True, "output": {"pages": 3}, **report}).encode()


async def got(app: App, id: str) -> Invocation:
    found = await app.workflows.get(id, actor=ANN)
    assert found is not None
    return found


async def test_a_workflow_that_is_not_waited_for_is_ended_by_its_callback() -> None:
    heard: list[tuple[str, dict[str, Any]]] = []
    async with n8n(TAKEN) as (app, server), serving(app) as site:
        app.add_listener(lambda event, fields: heard.append((event, fields)))
        id, key = await started(app, server, session="chat-7")
        assert server.asked[0].json["_metadata"] == {
            "requestId": server.asked[0].headers["x-request-id"], "userId": "ann", "chatId": "chat-7", "triggeredBy": "ai",
            "callback": {"invocationId": id, "url": f"http://toolgate.example/webhooks/workflows/{id}", "key": key},
        }  # fmt: skip
        assert (await got(app, id)).state == "running"
        waiting = asyncio.ensure_future(app.workflows.wait(id, 30, actor=ANN))
        body = said(executionId="4712")
        answer = await site("POST", f"/webhooks/workflows/{id}", signed(key, body), body)
        assert (answer.status, answer.json) == (200, {"recorded": True})
        done = await waiting
        log = await records(app)
    assert done is not None and done.is_over
    assert (done.state, done.output, done.execution_id, done.error) == ("success", {"pages": 3}, "4712", None)
    ((_, fields),) = [one for one in heard if one[0] == "workflow.completed"]
    assert fields["invocation"] == id and fields["status"] == "success" and fields["scope"] == {"tenant": "acme"}
    assert log.count(id) >= 1 and key not in log and SECRET not in log


async def test_the_end_is_in_the_audit_log() -> None:
    async with n8n(TAKEN) as (app, server):
        id, key = await started(app, server)
        await report(app, id, key, said(success=False, error={"message": "no data\n    at node.js:1"}))
        await app.flush()
        tail = [record async for record in _tail(app)]
        found = await got(app, id)
    (record,) = [one for one in tail if one["kind"] == "workflow.completed"]
    assert record["tenant"] == "acme" and record["tool"] == "report"
    assert found.state == "failure"
    assert found.error is not None and found.error["code"] == "N8N_ERROR" and "\n" not in found.error["message"]


async def _tail(app: App) -> AsyncIterator[dict[str, Any]]:
    from toolgate.store.audit_log import latest
    from toolgate.store.database import LOG_COLUMNS

    for row in await app.parts.store.read(latest(100)):
        yield dict(zip(LOG_COLUMNS, row, strict=False))


async def report(app: App, id: str, key: str, body: bytes, at: float | None = None) -> None:
    headers = signed(key, body, at)
    proof = {"timestamp": headers["X-Toolgate-Timestamp"], "signature": headers["X-Toolgate-Signature"]}
    await app.workflows.report(id, body, **proof)


@pytest.mark.parametrize(
    "forge",
    [
        lambda headers, _key, _body: {**headers, "X-Toolgate-Signature": ""},
        lambda headers, _key, _body: {**headers, "X-Toolgate-Timestamp": ""},
        lambda headers, _key, _body: {**headers, "X-Toolgate-Signature": "sha256=" + "0" * 64},
        lambda headers, _key, _body: {**headers, "X-Toolgate-Signature": headers["X-Toolgate-Signature"].upper()},
        lambda headers, _key, _body: {**headers, "X-Toolgate-Timestamp": str(int(headers["X-Toolgate-Timestamp"]) + 1)},
        lambda _headers, key, body: signed(key, body, time.time() - 301),
        lambda _headers, key, body: signed(key, body, time.time() + 310),
        lambda _headers, key, body: signed(key, body + b" "),
        lambda _headers, _key, body: signed(SECRET, body),
        lambda headers, _key, _body: {**headers, "X-Toolgate-Timestamp": "9" * 5_000},
        lambda headers, _key, _body: {**headers, "X-Toolgate-Timestamp": "1e9"},
    ],
)
@pytest.mark.sample(3)
async def test_a_callback_that_is_not_signed_is_refused_alike_for_every_id(
    forge: Callable[[dict[str, str], str, bytes], dict[str, str]],
) -> None:
    async with n8n(TAKEN) as (app, server), serving(app) as site:
        id, key = await started(app, server)
        body = said()
        forged = forge(signed(key, body), key, body)
        answers = [await site("POST", f"/webhooks/workflows/{one}", forged, body) for one in (id, "wfi_unknown", "%00")]
        assert {answer.status for answer in answers} == {401}
        assert len({answer.body.split(b',"request_id"')[0] for answer in answers}) == 1
        assert (await got(app, id)).state == "running"


async def test_a_key_of_one_invocation_ends_no_other() -> None:
    async with n8n(TAKEN) as (app, server), serving(app) as site:
        mine, key = await started(app, server)
        other, _ = await started(app, server)
        body = said()
        assert (await site("POST", f"/webhooks/workflows/{other}", signed(key, body), body)).status == 401
        assert (await got(app, other)).state == "running"
        assert mine != other


async def test_only_the_first_report_counts_however_often_and_at_once_it_comes() -> None:
    heard: list[str] = []
    async with n8n(TAKEN) as (app, server), serving(app) as site:
        app.add_listener(lambda event, _fields: heard.append(event))
        id, key = await started(app, server)
        bodies = [said(output={"pages": number}) for number in range(8)]
        sent = [site("POST", f"/webhooks/workflows/{id}", signed(key, body), body) for body in bodies]
        statuses = [answer.status for answer in await asyncio.gather(*sent)]
        again = await site("POST", f"/webhooks/workflows/{id}", signed(key, bodies[0]), bodies[0])
        found = await got(app, id)
    assert sorted(statuses) == [200] + [409] * 7
    assert again.status == 409
    assert found.output == {"pages": statuses.index(200)}
    assert heard.count("workflow.completed") == 1


async def test_a_callback_may_come_before_the_start_is_answered_and_whatever_is_answered() -> None:
    async with n8n(Said()) as (app, server):

        async def early(asked: Asked) -> Said:
            callback = asked.json["_metadata"]["callback"]
            await report(app, callback["invocationId"], callback["key"], said())
            return Said(500, {"message": "Error in workflow"})

        server._handler = early
        outcome = await app.invoke("report", {"number": 1}, actor=ANN)
        failed(outcome, "N8N_ERROR")
        (found,) = await app.workflows.list(actor=ANN)
    assert (found.state, found.output) == ("success", {"pages": 3})


async def test_one_of_which_nothing_is_heard_times_out_stays_visible_and_may_still_be_reported() -> None:
    clock = ManualClock()
    heard: list[dict[str, Any]] = []
    async with loopback.site(scripted([TAKEN])) as server:
        where = {"base_url": server.url, "callback_url": "http://toolgate.example"}
        async with memory_app(clock=clock, n8n=where, workflows={"report": {**REPORT, "async": True}}) as app:
            app.approvals.add_approver(lambda _request: True)
            app.add_listener(lambda _event, fields: heard.append(fields))
            id, key = await started(app, server)
            clock.advance(479)
            assert (await got(app, id)).state == "running"
            clock.advance(2)
            late = await got(app, id)
            assert late.state == "timeout"
            assert late.error is not None and late.error["code"] == "TIMEOUT"
            await app.parts.invocations.expire()
            assert [one.id for one in await app.workflows.list(actor=ANN, state="timeout")] == [id]
            await report(app, id, key, said(), clock.time())
            assert ((await got(app, id)).state, (await got(app, id)).output) == ("success", {"pages": 3})
    assert [(one["status"], one["late"]) for one in heard if "invocation" in one] == [("timeout", False), ("success", True)]


@pytest.mark.parametrize("answer", [never, Said(raw=hang_up)])
async def test_a_start_that_is_not_answered_is_decided_by_the_callback(answer: Answer) -> None:
    async with n8n(answer) as (app, server):
        outcome = await app.invoke("report", {"number": 1}, actor=ANN, timeout=0.3)
        assert outcome.ok and outcome.output["status"] == "running"
        callback = server.asked[0].json["_metadata"]["callback"]
        await report(app, callback["invocationId"], callback["key"], said())
        assert (await got(app, callback["invocationId"])).state == "success"


async def test_a_start_that_is_refused_is_tried_again_as_the_policy_says_under_the_same_id() -> None:
    retry = {"max_attempts": 2, "initial_delay_ms": 1, "max_delay_ms": 1, "retryable_errors": ["N8N_ERROR"]}
    refused = Said(503, {"message": "starting"})
    async with n8n(refused, TAKEN, retry=retry) as (app, server):
        id, _ = await started(app, server)
        ids = {asked.json["_metadata"]["callback"]["invocationId"] for asked in server.asked}
        keys = {asked.headers["x-idempotency-key"] for asked in server.asked}
        assert (await got(app, id)).state == "running"
        assert len(server.asked) == 2 and ids == {id} and len(keys) == 1
    async with n8n(refused, retry=retry) as (app, _):
        failed(await app.invoke("report", {}, actor=ANN), "N8N_ERROR")
        (found,) = await app.workflows.list(actor=ANN)
        assert found.state == "not_started" and found.error is not None and found.error["code"] == "N8N_ERROR"


async def test_a_call_with_the_same_key_starts_nothing_again() -> None:
    async with n8n(TAKEN) as (app, server):
        id, _ = await started(app, server, idempotency_key="k-1")
        again = await app.invoke("report", {"number": 7}, actor=ANN, idempotency_key="k-1")
        assert again.output["invocationId"] == id
        other = await app.invoke("report", {"number": 7}, actor=Actor("acme", user="bob"), idempotency_key="k-1")
        assert other.output["invocationId"] != id
    assert len(server.asked) == 2


async def test_others_do_not_see_an_invocation() -> None:
    async with n8n(TAKEN) as (app, server):
        id, _ = await started(app, server)
        for stranger in (Actor("acme", user="bob"), Actor("globex", user="ann")):
            assert await app.workflows.get(id, actor=stranger) is None
            assert await app.workflows.wait(id, 5, actor=stranger) is None
            assert await app.workflows.list(actor=stranger) == []
        assert len(await app.workflows.list(actor=Actor("acme", user="bob"), all_users=True)) == 1


async def test_what_is_reported_is_masked_and_checked_as_an_output_is() -> None:
    async with n8n(TAKEN) as (app, server):
        id, key = await started(app, server)
        await report(app, id, key, said(output={"pages": 1, "password": "hunter2-hunter2", "echo": f"got {SECRET} {key}"}))
        output = (await got(app, id)).output
        assert output["pages"] == 1 and key not in json.dumps(output)
        assert SECRET not in json.dumps(output) and "hunter2" not in json.dumps(output)
        id, key = await started(app, server)
        await report(app, id, key, said(output={"chapters": 1}))
        found = await got(app, id)
    assert (found.state, found.output) == ("failure", None)
    assert found.error is not None and found.error["code"] == "OUTPUT_INVALID"


async def test_a_secret_that_the_arguments_brought_is_masked_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_CRM", "crm value 12345")
    use = {"CRM": [{"tool": "report", "source": "workflow", "tenant": "acme"}]}
    async with loopback.site(scripted([TAKEN])) as server:
        where = {"base_url": server.url, "callback_url": "http://toolgate.example"}
        said_of_it = {**REPORT, "input_schema": {"type": "object"}}
        async with memory_app(n8n=where, workflows={"report": said_of_it}, secrets={"use": use}) as app:
            app.approvals.add_approver(lambda _request: True)
            outcome = await app.invoke("report", {"token": "{{secret:CRM}}"}, actor=ANN)
            callback = server.asked[0].json["_metadata"]["callback"]
            assert server.asked[0].json["token"] == "crm value 12345"
            app.parts.invocations._known.clear()  # as in another process
            await report(app, callback["invocationId"], callback["key"], said(output={"pages": "crm value 12345"}))
            found = await got(app, outcome.output["invocationId"])
    assert "12345" not in json.dumps(found.output)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400), (b"[]", 400), (b"{", 400), (b'{"success": "yes"}', 400), (b'{"success": 1}', 400), (b"null", 400),
        (b'{"success": true, "output": ' + b"[" * 500 + b"]" * 500 + b"}", 400),
        (b'{"success": true, "output": [' + b"1," * 400_000 + b"1]}", 400),
        (b'{"success": true, "output": "' + b"x" * 1_000_000 + b'"}', 413),
    ],
)  # fmt: skip
@pytest.mark.sample(3)
async def test_a_report_that_cannot_be_read_is_refused_and_may_be_made_again(body: bytes, status: int) -> None:
    async with n8n(TAKEN) as (app, server), serving(app) as site:
        id, key = await started(app, server)
        answer = await site("POST", f"/webhooks/workflows/{id}", signed(key, body), body)
        assert answer.status == status, answer.body
        assert answer.headers["content-type"] == "application/problem+json"
        good = said()
        assert (await site("POST", f"/webhooks/workflows/{id}", signed(key, good), good)).status == 200


async def test_an_unsigned_flood_is_refused_before_it_is_read() -> None:
    async with n8n(TAKEN) as (app, _), serving(app) as site:
        head = f"POST /webhooks/workflows/wfi_1 HTTP/1.1\r\nHost: {site.host}\r\nContent-Length: 900000\r\n\r\n"
        assert (await site.raw(head.encode())).status == 401
        assert (await site("GET", "/webhooks/workflows/wfi_1")).status == 405


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.booleans() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_whatever_is_reported_is_understood_or_refused(body: bytes) -> None:
    try:
        parse(body)
    except CallbackRefused as refused:
        assert refused.refusal == "malformed"


async def test_invocations_are_kept_by_every_database_and_over_a_restart(database: str, tmp_path: Any) -> None:
    home = {"home": tmp_path / "home"}
    async with loopback.site(scripted([TAKEN])) as server:
        where = {"base_url": server.url, "callback_url": "http://toolgate.example"}
        settings: dict[str, Any] = {"n8n": where, "workflows": {"report": REPORT}, "database_url": database, **home}
        async with App.open(entry_points=False, **settings) as app:
            app.approvals.add_approver(lambda _request: True)
            id, key = await started(app, server, idempotency_key="k-1")
        async with App.open(entry_points=False, **settings) as app:
            await report(app, id, key, said())
            with pytest.raises(CallbackRefused):
                await report(app, id, key, said())
            found = await got(app, id)
            await app.parts.invocations.expire()
            assert [one.id for one in await app.workflows.list(actor=ANN)] == [id]
    assert (found.state, found.output, found.execution_id) == ("success", {"pages": 3}, "4711")


async def test_what_cannot_even_be_sent_is_not_said_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.network.http_client.is_installed", lambda _extra: False)
    async with n8n(TAKEN) as (app, server):
        error = failed(await app.invoke("report", {}, actor=ANN), "INVOCATION_ERROR")
        (found,) = await app.workflows.list(actor=ANN)
    assert "toolgate[http]" in str(error)
    assert found.state == "not_started"
    assert server.asked == []


# -- as a job


@pytest.mark.requirement("JOB-1")
async def test_a_job_runs_a_workflow_and_has_its_output() -> None:
    mail = Said(200, {"sent": True})
    async with n8n(mail, timeout=30, output_schema=None) as (app, server), app.jobs.worker():
        job = await app.jobs.enqueue("execute_workflow", {"workflow": "report", "input": {"number": 1}}, actor=ANN)
        done = await app.jobs.wait(job.id, 20, actor=ANN)
        assert (done.state, done.result) == ("done", {"status": "success", "output": {"sent": True}}), done.error
        assert server.asked[0].json["number"] == 1
        assert "workflow.completed" in {record["kind"] async for record in _tail(app)}
        for wrong in ("calculator", "nothing"):
            job = await app.jobs.enqueue("execute_workflow", {"workflow": wrong, "input": {}}, actor=ANN)
            failure = await app.jobs.wait(job.id, 20, actor=ANN)
            assert failure.state == "failed" and failure.error is not None and failure.error.code == "TOOL_NOT_FOUND"


@pytest.mark.requirement("JOB-1")
async def test_a_job_waits_for_the_report_without_a_worker_and_starts_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.app.workflow_jobs.WAIT_SECONDS", 0.05)
    monkeypatch.setattr("toolgate.app.workflow_jobs.MIN_PAUSE_SECONDS", 0.1)
    async with n8n(TAKEN) as (app, server), app.jobs.worker():
        job = await app.jobs.enqueue("execute_workflow", {"workflow": "report", "input": {"number": 1}}, actor=ANN)
        async with asyncio.timeout(20):
            while (await app.jobs.get(job.id, actor=ANN)).error is None:  # it was put back
                await asyncio.sleep(0.02)
        callback = server.asked[0].json["_metadata"]["callback"]
        await report(app, callback["invocationId"], callback["key"], said())
        done = await app.jobs.wait(job.id, 20, actor=ANN)
    assert done.state == "done", done.error
    assert done.result["output"] == {"pages": 3}
    assert len(server.asked) == 1
    assert done.attempts == 0


@pytest.mark.requirement("JOB-1")
async def test_a_workflow_that_reports_a_failure_is_started_again_as_its_policy_says() -> None:
    retry = {"max_attempts": 1, "retryable_errors": ["N8N_ERROR"]}
    async with n8n(TAKEN, retry=retry, database="memory://") as (app, server), app.jobs.worker():

        async def reports(asked: Asked) -> Said:
            callback = asked.json["_metadata"]["callback"]
            well = len(server.asked) > 1
            body = said() if well else said(success=False, error="no data")
            await report(app, callback["invocationId"], callback["key"], body)
            return TAKEN

        server._handler = reports
        job = await app.jobs.enqueue("execute_workflow", {"workflow": "report", "input": {}}, actor=ANN)
        done = await app.jobs.wait(job.id, 20, actor=ANN)
    assert done.state == "done", done.error
    assert len(server.asked) == 2 and done.attempts == 1
    ids = {asked.json["_metadata"]["callback"]["invocationId"] for asked in server.asked}
    assert len(ids) == 2


@pytest.mark.requirement("JOB-1")
async def test_a_job_whose_workflow_nobody_agreed_to_waits_for_a_person() -> None:
    async with loopback.site(scripted([Said(200, {"sent": True})])) as server:
        workflow = {**REPORT, "timeout": 30, "output_schema": None}
        async with memory_app(n8n={"base_url": server.url}, workflows={"report": workflow}) as app, app.jobs.worker():
            job = await app.jobs.enqueue("execute_workflow", {"workflow": "report", "input": {"number": 1}}, actor=ANN)
            async with asyncio.timeout(20):
                while (await app.jobs.get(job.id, actor=ANN)).state != "waiting":
                    await asyncio.sleep(0.02)
            assert server.asked == []
            approval = (await app.jobs.get(job.id, actor=ANN)).approval
            assert approval is not None
            await app.approvals.answer(approval, True, actor=Actor("acme", user="boss"))
            done = await app.jobs.wait(job.id, 20, actor=ANN)
    assert done.state == "done", done.error
    assert len(server.asked) == 1

"""The workflows of `examples/n8n` in a real n8n, called as tools: run by `make test-n8n`."""

import asyncio
import email
import email.policy
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from tests.loopback import Asked, Said, Site, site
from tests.n8n.server import N8n, free_port
from tests.services import failed
from toolgate import Actor, App
from toolgate.serve.app import HttpApp
from toolgate.serve.http_server import serve
from toolgate.testing import memory_app

pytestmark = [pytest.mark.slow, pytest.mark.needs("n8n"), pytest.mark.requirement("WF-1", "WF-3")]
SECRET = "a-secret-for-webhooks-1f9c"
ANN = Actor("acme", "assistant", "ann", ("tool:send_email", "tool:calendar", "tool:notifications"))
TIMES = {"startTime": "2026-12-01T09:00:00+01:00", "endTime": "2026-12-01T10:00:00+01:00"}
SECONDS = 60


class Mailbox:
    """What a mail server has taken."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], EmailMessage]] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        read = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.mails.append((list(envelope.rcpt_tos), read))
        return "250 OK"


class World:
    """n8n, and the ports of what its workflows reach."""

    def __init__(self, n8n: N8n, mailbox: Mailbox, endpoint_port: int) -> None:
        self.n8n, self.mailbox, self.endpoint_port = n8n, mailbox, endpoint_port


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home: Path = tmp_path_factory.mktemp("n8n")
    mailbox, port = Mailbox(), free_port()
    smtp = Controller(mailbox, hostname="127.0.0.1", port=free_port())
    smtp.start()
    try:
        n8n = N8n(home, SECRET)
        endpoint = f"http://127.0.0.1:{port}"
        settings = {"sender": "bot@example.org", "calendar": f"{endpoint}/calendars/ann", "push": f"{endpoint}/push"}
        n8n.prepare(settings, smtp.port)
        with n8n.running():
            yield World(n8n, mailbox, port)
    finally:
        smtp.stop()


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_N8N_WEBHOOK_SECRET", SECRET)


@asynccontextmanager
async def opened(world: World, **settings: Any) -> AsyncIterator[App]:
    n8n = {"base_url": world.n8n.url, **settings.pop("n8n", {})}
    async with memory_app(n8n=n8n, **settings) as app:
        app.approvals.add_approver(lambda _request: True)
        yield app


@asynccontextmanager
async def endpoints(world: World) -> AsyncIterator[Site]:
    """The calendar and the push service."""

    async def handle(asked: Asked) -> Said:
        return Said(201 if asked.method == "PUT" else 200, b"")

    async with site(handle) as server:
        await server.stop()
        server.port = world.endpoint_port
        await server.start()
        yield server


@pytest.mark.parametrize("is_html", [False, True])
async def test_a_mail_arrives(world: World, is_html: bool) -> None:
    world.mailbox.mails.clear()
    body = "<p>Grüße</p>" if is_html else "Grüße {{ 1 + 1 }}"
    mail = {"to": "ann@example.com", "subject": "Your order\r\nBcc: eve@example.com", "body": body, "isHtml": is_html}
    async with opened(world) as app:
        outcome = await app.invoke("send_email", mail, actor=ANN)
    assert outcome.ok, outcome.error
    assert outcome.output["sent"] is True and outcome.output["messageId"]
    assert outcome.to_dict()["metrics"]["resources_used"][0].startswith("n8n:execution:")
    ((receivers, read),) = world.mailbox.mails
    assert receivers == ["ann@example.com"]
    assert read["from"] == "bot@example.org" and "Your order" in read["subject"] and read["bcc"] is None
    assert read.get_content_type() == ("text/html" if is_html else "text/plain")
    assert read.get_content().strip() == body


async def test_a_calendar_event_arrives(world: World) -> None:
    event = {"title": "Review; part\nBEGIN:VALARM", "description": "All of it", "attendees": ["bob@example.com"], **TIMES}
    async with opened(world) as app, endpoints(world) as calendar:
        outcome = await app.invoke("create_calendar_event", event, actor=ANN, idempotency_key="k-1")
    assert outcome.ok, outcome.error
    assert outcome.output["created"] is True
    (asked,) = calendar.asked
    assert asked.method == "PUT" and asked.path.startswith("/calendars/ann/") and asked.path.endswith(".ics")
    assert asked.headers["authorization"].startswith("Basic ")
    lines = asked.body.decode().split("\r\n")
    assert "DTSTART:20261201T080000Z" in lines and "DTEND:20261201T090000Z" in lines
    assert "SUMMARY:Review\\; part\\nBEGIN:VALARM" in lines
    assert "ATTENDEE:mailto:bob@example.com" in lines
    assert f"UID:{outcome.output['uid']}" in lines and "acme" in outcome.output["uid"]


async def test_a_notification_arrives(world: World) -> None:
    async with opened(world) as app, endpoints(world) as push:
        outcome = await app.invoke("send_notification", {"title": "Done", "body": 'It\'s "ok"', "data": {"n": 1}}, actor=ANN)
    assert outcome.ok, outcome.error
    assert outcome.output == {"sent": True}
    assert push.asked[0].json == {"user": "ann", "title": "Done", "body": 'It\'s "ok"', "data": {"n": 1}}


async def test_what_fails_there_is_an_n8n_error_without_a_stack_trace(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = {"webhook_path": "nowhere", "description": "Nothing."}
    async with opened(world, workflows={"nowhere": nowhere}) as app:
        missing = failed(await app.invoke("nowhere", {}), "N8N_ERROR")
        broken = failed(await app.invoke("create_calendar_event", {"title": "t", **TIMES}, actor=ANN), "N8N_ERROR")
        monkeypatch.setenv("TOOLGATE_SECRET_N8N_WEBHOOK_SECRET", "another")
        refused = failed(
            await app.invoke("send_email", {"to": "a@b.c", "subject": "s", "body": "b"}, actor=ANN), "N8N_ERROR"
        )
    assert missing.details["status"] == 404 and "not registered" in missing.message
    assert broken.details["status"] == 500  # nothing listens where the calendar was
    assert refused.details["status"] == 403 and "N8N_WEBHOOK_SECRET" in refused.suggestion
    for error in (missing, broken, refused):
        assert "at " not in error.message.partition(": ")[2][:3] and ".js" not in str(error) and len(error.message) < 500


@pytest.mark.requirement("WF-2")
async def test_a_long_workflow_reports_its_end(world: World) -> None:
    port = free_port()
    long = {"webhook_path": "reports/long", "description": "Make a report.", "async": True, "timeout": 480}
    long |= {"input_schema": {"type": "object", "properties": {"team": {"type": "string"}}}}
    where = {"callback_url": f"http://127.0.0.1:{port}"}
    async with opened(world, n8n=where, workflows={"long_report": long}, serve={"port": port}) as app:
        up = asyncio.Event()

        async def ready(_url: str, _http: HttpApp) -> None:
            up.set()

        serving = asyncio.ensure_future(serve(app, ready))
        try:
            await asyncio.wait_for(up.wait(), SECONDS)
            outcome = await app.invoke("long_report", {"team": "blue"}, actor=ANN)
            assert outcome.ok, outcome.error
            done = await app.workflows.wait(outcome.output["invocationId"], SECONDS, actor=ANN)
        finally:
            serving.cancel()
            await asyncio.wait((serving,), timeout=SECONDS)
    assert done is not None
    assert (done.state, done.output) == ("success", {"pages": 3, "team": "blue"}), done
    assert done.execution_id

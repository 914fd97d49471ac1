"""People are told of calls that wait for them: by mail, by a signed webhook, as notifications of a user."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.asking import ADA, BOSS, Workshop
from tests.behaviour.test_tools_conversation import acts
from tests.loopback import Asked, Said, site
from tests.mailbox import mail_server, text_of
from tests.serving import serving
from toolgate import App, tool
from toolgate.app.approval_notices import TYPE
from toolgate.app.keys import NOTICES_USER
from toolgate.errors import SettingsError
from toolgate.model import Actor
from toolgate.pipeline.context import InvokeContext
from toolgate.workflow.callbacks import WINDOW_SECONDS, signature

pytestmark = [
    pytest.mark.requirement("DOOR-7"),
    pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning"),  # apprise looks whether it is there
]
QUICKLY = {"backoff_seconds": 0.01, "max_backoff_seconds": 0.02}
PUBLIC = "https://gate.example.com"
SECRET, KEY = "HOOK_KEY", "correct-horse-battery-staple-32-bytes"
TOLD = Actor("acme", user=NOTICES_USER)


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"TOOLGATE_SERVER_SECRET_{SECRET}", KEY)


@asynccontextmanager
async def opened(home: Path, places: dict[str, Any], **settings: Any) -> AsyncIterator[App]:
    settings = {"entry_points": False, "jobs": QUICKLY, "serve": {"public_url": PUBLIC}, **settings}
    async with App.open(os.devnull, home=home, approvals={"notify": places}, **settings) as app:
        Workshop().move_into(app)
        yield app


async def pending(app: App, task: str = "rm -r cache", actor: Actor = ADA) -> str:
    """Makes a call that waits, and gives the id of its approval once all who should be told are to be."""
    outcome = await app.invoke("run", {"task": task, "password": "hunter2hunter2"}, actor=actor)
    assert outcome.pending is not None
    await app.parts.consent._telling.wait()
    return outcome.pending.id


def mail_to(port: int) -> str:
    return f"mailto://127.0.0.1:{port}?from=gate@example.com&to=ops@example.com&mode=insecure"


def webhook(port: int, **more: Any) -> dict[str, Any]:
    return {"webhook": {"url": f"http://127.0.0.1:{port}/hook", "secret": SECRET, "allow_private": True}, **more}


async def test_a_mail_says_who_asks_for_what_until_when_and_has_a_link_to_exactly_it(tmp_path: Path) -> None:
    async with mail_server() as mailbox, opened(tmp_path, {"ops": {"to": mail_to(mailbox.port)}}) as app:
        id = await pending(app)
        await app.jobs.run_all()
        [message] = mailbox.messages
        text = text_of(message)
        assert message["subject"] == "run waits for approval" and message["to"] == "ops@example.com"
        for part in ("Tool: run 1.0.0", "Tier: execute", "Asked by: acme/analyst/ada", f"{PUBLIC}/approvals/{id}"):
            assert part in text
        until = (await app.approvals.get(id, "acme")).request.expires_at
        assert f"Answer until: {until:%Y-%m-%d %H:%M} UTC" in text
        assert "rm -r" not in text and "hunter2" not in text, "arguments are told only where a setting says so"
        [act] = await acts(app, "approval.notified")
        assert (act["place"], act["approval"], act["result"]) == ("ops", id, "delivered")
        again = await app.invoke("run", {"task": "rm -r cache", "password": "hunter2hunter2"}, actor=ADA)
        assert again.pending is not None and again.pending.id == id
        await app.jobs.run_all()
        assert len(mailbox.messages) == 1, "the same question is told once"


async def test_a_busy_mail_server_is_tried_again_by_a_job_and_only_it(tmp_path: Path) -> None:
    async def answer(_asked: Asked) -> Said:
        return Said(204)

    async with mail_server() as mailbox, site(answer) as hook:
        mailbox.refusals += ["451 later"] * 2
        notify = {"ops": {"to": mail_to(mailbox.port)}, "chat": webhook(hook.port)}
        async with opened(tmp_path, notify) as app:
            await pending(app)
            async with app.jobs.worker():
                jobs = await app.jobs.list(actor=TOLD, type=TYPE)
                over = [await app.jobs.wait(job.id, 20, actor=TOLD) for job in jobs]
            assert sorted((job.state, job.attempts) for job in over) == [("done", 0), ("done", 2)]
            assert len(mailbox.messages) == 1 and len(hook.asked) == 1
            assert await app.jobs.list(actor=ADA) == [], "whoever asked neither sees nor cancels the jobs"


async def test_a_webhook_is_signed_over_its_time_and_body(tmp_path: Path) -> None:
    busy = [503, 429, 200]

    async def answer(_asked: Asked) -> Said:
        return Said(busy.pop(0))

    async with site(answer) as hook, opened(tmp_path, {"chat": webhook(hook.port)}) as app:
        id = await pending(app)
        async with app.jobs.worker():
            [job] = await app.jobs.list(actor=TOLD, type=TYPE)
            assert (await app.jobs.wait(job.id, 20, actor=TOLD)).result == {"sent": True}
        asked = hook.asked[-1]
        stamp = asked.headers["x-toolgate-timestamp"]
        assert asked.headers["x-toolgate-signature"] == signature(KEY, stamp, asked.body)
        assert abs(time.time() - int(stamp)) < WINDOW_SECONDS
        assert (asked.json["approval"], asked.json["tool"], asked.json["tier"]) == (id, "run", "execute")
        assert asked.json["url"] == f"{PUBLIC}/approvals/{id}" and "arguments" not in asked.json
        assert len({one.json["id"] for one in hook.asked}) == 1, "a receiver knows a repetition by its id"


async def test_a_private_webhook_is_asked_only_where_the_settings_say_so_and_no_redirect_is_followed(tmp_path: Path) -> None:
    async def answer(asked: Asked) -> Said:
        return Said(302, headers={"location": "/elsewhere"}) if asked.path == "/hook" else Said(200)

    async with site(answer) as hook:
        refused = {"webhook": {"url": f"http://127.0.0.1:{hook.port}/hook", "secret": SECRET}}
        async with opened(tmp_path, {"private": refused, "moved": webhook(hook.port)}) as app:
            await pending(app)
            await app.jobs.run_all()
            jobs = {job.payload["place"]: job for job in await app.jobs.list(actor=TOLD)}
            assert {name: job.state for name, job in jobs.items()} == {"private": "failed", "moved": "failed"}
            assert "refused" in str(jobs["private"].error) and "302" in str(jobs["moved"].error)
            assert [one.path for one in hook.asked] == ["/hook"]


async def test_without_its_secret_a_webhook_is_sent_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(f"TOOLGATE_SERVER_SECRET_{SECRET}")

    async def answer(_asked: Asked) -> Said:
        return Said(200)

    async with site(answer) as hook, opened(tmp_path, {"chat": webhook(hook.port)}) as app:
        await pending(app)
        await app.jobs.run_all()
        [job] = await app.jobs.list(actor=TOLD)
        assert job.state == "failed" and f"secrets set {SECRET}" in str(job.error) and not hook.asked


async def test_what_was_answered_meanwhile_is_not_told(tmp_path: Path) -> None:
    async with mail_server() as mailbox, opened(tmp_path, {"ops": {"to": mail_to(mailbox.port)}}) as app:
        id = await pending(app)
        await app.approvals.answer(id, True, actor=BOSS)
        await app.jobs.run_all()
        [job] = await app.jobs.list(actor=TOLD)
        assert job.result["sent"] is False and not mailbox.messages


async def test_only_calls_of_the_named_tools_tiers_and_tenants_are_told(tmp_path: Path) -> None:
    notify = {
        "tools": {"user": "boss", "tools": ["se*"]},
        "tiers": {"user": "boss", "tiers": ["execute"]},
        "tenants": {"user": "boss", "tenants": ["globex"]},
    }
    async with opened(tmp_path, notify) as app:
        await pending(app)
        await app.invoke("send", {"to": "bob"}, actor=ADA)
        await pending(app, actor=Actor("globex", user="gus"))
        for tenant, expected in (("acme", ["tiers", "tools"]), ("globex", ["tenants", "tiers"])):
            jobs = await app.jobs.list(actor=Actor(tenant, user=NOTICES_USER))
            assert sorted(job.payload["place"] for job in jobs) == expected


async def test_a_user_finds_it_among_their_notifications_and_at_their_push_tokens(tmp_path: Path) -> None:
    async def answer(_asked: Asked) -> Said:
        return Said(200)

    async with site(answer) as phone:
        push = {"push": {"kinds": ["json"], "allow": [f"127.0.0.1:{phone.port}"]}}
        async with opened(tmp_path, {"boss": {"user": "boss"}}, notify=push) as app:
            await app.push_tokens.add(f"json://127.0.0.1:{phone.port}/boss", "phone", actor=BOSS)
            id = await pending(app)
            await app.jobs.run_all()
            [kept] = await app.notifications.list(actor=BOSS)
            assert kept.title == "run waits for approval" and kept.delivered == ["push:phone"]
            assert kept.data is not None and kept.data["approval"] == id
            assert f"{PUBLIC}/approvals/{id}" in phone.asked[0].json["message"]


async def test_arguments_are_told_where_a_setting_says_so_with_secrets_masked(tmp_path: Path) -> None:
    async with opened(tmp_path, {"boss": {"user": "boss", "arguments": True}}) as app:
        await pending(app)
        await app.jobs.run_all()
        [kept] = await app.notifications.list(actor=BOSS)
        assert "rm -r cache" in kept.message and "hunter2" not in str(kept)


async def test_names_of_callers_cannot_write_lines_of_their_own_into_a_message(tmp_path: Path) -> None:
    async with opened(tmp_path, {"boss": {"user": "boss", "arguments": True}}) as app:
        await pending(app, "x\nTier: read_only\u202e", actor=Actor("acme", user="\u0430da"))
        await app.jobs.run_all()
        [kept] = await app.notifications.list(actor=BOSS)
        assert [line for line in kept.message.splitlines() if line.startswith("Tier:")] == ["Tier: execute"]
        assert "\u202e" not in kept.message and "\u0430" not in kept.message


async def test_a_flood_of_questions_becomes_one_message_with_their_number(tmp_path: Path) -> None:
    async with opened(tmp_path, {"boss": {"user": "boss", "per_hour": 2}}) as app:
        ids = [await pending(app, f"task {number}") for number in range(7)]
        jobs = await app.jobs.list(actor=TOLD)
        many = [job for job in jobs if job.payload["approval"] is None]
        assert len(jobs) - len(many) == 2 and len(many) in (1, 2), "two, if a new period of gathering began meanwhile"
        await app.approvals.answer(ids[0], False, actor=BOSS)
        for job in many:
            await app.parts.jobs.hasten(job.id)
        await app.jobs.run_all()
        titles = [one.title for one in await app.notifications.list(actor=BOSS)]
        assert titles.count("6 calls wait for approval") == len(many) and titles.count("run waits for approval") == 1


async def test_a_call_inside_a_call_is_told_once_with_the_outer_tool(tmp_path: Path) -> None:
    @tool(tier="read_only")
    async def outer(ctx: InvokeContext) -> str:
        """Run a command inside."""
        return str((await ctx.call_tool("run", task="inside")).output)

    async with opened(tmp_path, {"boss": {"user": "boss"}}) as app:
        app.tools.register(outer)
        outcome = await app.invoke("outer", {}, actor=ADA)
        assert outcome.status == "pending"
        await app.parts.consent._telling.wait()
        await app.jobs.run_all()
        [kept] = await app.notifications.list(actor=BOSS)
        assert "Tool: run" in kept.message and "Inside: outer" in kept.message


async def test_a_queue_that_takes_no_more_fails_no_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path, {"boss": {"user": "boss"}}, jobs={**QUICKLY, "max_queued": 1}) as app:
        await pending(app, "one")
        await pending(app, "two")
        assert "boss is not told of approval" in caplog.text


async def test_a_job_of_another_tenant_or_for_another_place_tells_nothing(tmp_path: Path) -> None:
    notify = {"acme": {"user": "boss", "tenants": ["acme"]}, "globex": {"user": "boss", "tenants": ["globex"]}}
    async with opened(tmp_path, notify) as app:
        id = await pending(app)
        mallory = Actor("globex", user="mallory")
        stolen = await app.jobs.enqueue(TYPE, {"place": "globex", "approval": id}, actor=mallory)
        wrong = await app.jobs.enqueue(TYPE, {"place": "globex", "approval": id}, actor=TOLD)
        gone = await app.jobs.enqueue(TYPE, {"place": "nowhere", "approval": id}, actor=TOLD)
        await app.jobs.run_all()
        assert (await app.jobs.get(stolen.id, actor=mallory)).state == "failed"
        assert {(await app.jobs.get(one.id, actor=TOLD)).state for one in (wrong, gone)} == {"failed"}
        assert len(await app.notifications.list(actor=BOSS)) == 1
        assert await app.notifications.list(actor=Actor("globex", user="boss")) == []


async def test_the_link_alone_approves_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, {"boss": {"user": "boss"}}) as app, serving(app) as server:
        id = await pending(app)
        for method in ("GET", "POST", "PUT"):
            answer = await server(method, f"/approvals/{id}")
            assert id not in answer.body.decode() or answer.status >= 400
        assert await app.approvals.state(id, "acme") == "waiting"


async def test_a_message_whose_worker_is_killed_while_it_is_sent_is_sent_by_the_next(tmp_path: Path, database: str) -> None:
    arrived, release = asyncio.Event(), asyncio.Event()

    async def answer(_asked: Asked) -> Said:
        arrived.set()
        await release.wait()
        return Said(200)

    async with site(answer) as hook:
        notify = {"chat": webhook(hook.port)}
        variables = {
            "TOOLGATE_HOME": str(tmp_path), "TOOLGATE_DATABASE_URL": database, "TOOLGATE_LIMITS__LEASE_SECONDS": "1",
            "TOOLGATE_APPROVALS__NOTIFY": json.dumps(notify), "TOOLGATE_ENTRY_POINTS": "false",
        }  # fmt: skip
        async with opened(tmp_path, notify, database_url=database, limits={"lease_seconds": 1}) as app:
            await pending(app)
            worker = await asyncio.create_subprocess_exec(
                str(Path(sys.executable).with_name("toolgate")), "worker", env={**os.environ, **variables}, cwd=tmp_path,
                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            async with asyncio.timeout(30):
                await arrived.wait()
                worker.kill()
                await worker.wait()
            release.set()
            async with app.jobs.worker():
                [job] = await app.jobs.list(actor=TOLD)
                over = await app.jobs.wait(job.id, 30, actor=TOLD)
            assert (over.state, over.crashes, over.result) == ("done", 1, {"sent": True})
            assert len({one.json["id"] for one in hook.asked}) == 1 and len(hook.asked) == 2


@pytest.mark.parametrize(
    "place",
    [
        {}, {"to": "x://y", "user": "ada"}, {"webhook": {"url": "http://example.com/x", "secret": "K"}},
        {"webhook": {"url": "https://example.com/x", "secret": "not a name"}}, {"user": "ada", "tiers": ["nonsense"]},
        {"user": "ada", "per_hour": 0}, {"user": "ada", "tools": []},
    ],
)  # fmt: skip
async def test_a_place_that_leads_nowhere_is_refused_with_the_settings(place: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="notify"):
        async with opened(tmp_path, {"ops": place}):
            pass

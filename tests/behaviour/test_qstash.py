"""Jobs that QStash brings, and jobs that it is handed."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.loopback import site
from tests.qstash_server import CURRENT, FOLLOWING, PUBLIC, TOKEN, FakeQStash, delivery
from tests.serving import Site, serving
from toolgate import Actor, App, SettingsError
from toolgate.app.checks.qstash import qstash_checks
from toolgate.errors import Failed
from toolgate.extras import MissingExtra
from toolgate.jobs.handlers import JobContext, job_handler
from toolgate.settings import load_settings
from toolgate.store.database import Transaction

pytestmark = pytest.mark.requirement("JOB-2")
BODY = orjson.dumps({"n": 1})
WHOSE = Actor("acme", "clerk", "qstash")
COUNT_SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CURRENT_SIGNING_KEY": CURRENT, "NEXT_SIGNING_KEY": FOLLOWING, "TOKEN": TOKEN}.items():
        monkeypatch.setenv(f"TOOLGATE_SERVER_SECRET_QSTASH_{name}", value)


@asynccontextmanager
async def opened(home: Path, **settings: Any) -> AsyncIterator[tuple[App, Site, list[JobContext]]]:
    """A server that takes jobs of the types `count` and `lost` from QStash; only `count` has a handler. None are run but
    by `run_all`."""
    ran: list[JobContext] = []

    @job_handler("count", schema=COUNT_SCHEMA)
    async def count(ctx: JobContext) -> int:
        ran.append(ctx)
        return int(ctx.payload["n"])

    whose = {"tenant": "acme", "persona": "clerk"}
    qstash = {"url": PUBLIC, "take": {"count": whose, "lost": whose, "execute_tool": whose}, **settings.pop("qstash", {})}
    settings = {"entry_points": False, "jobs": {"serve": False}, "serve": {"port": 0}, **settings}
    async with App.open(os.devnull, home=home, qstash=qstash, **settings) as app, serving(app) as server:
        app.jobs.add_handler(count)
        yield app, server, ran


def statement(sql: str) -> Transaction[None]:
    yield sql, {}


async def refused(app: App) -> list[dict[str, Any]]:
    await app.flush()
    return [orjson.loads(row[7]) for row in await app.audit.latest(100) if row[2] == "qstash.refused"]


# -- in


@pytest.mark.parametrize("key", [CURRENT, FOLLOWING])
async def test_a_signed_message_becomes_a_job_once(key: str, tmp_path: Path, database: str) -> None:
    async with opened(tmp_path, database_url=database) as (app, server, ran):
        first = await server("POST", "/jobs/count", delivery("count", BODY, key=key), BODY)
        assert (first.status, first.json["state"]) == (202, "queued")
        again = await server("POST", "/jobs/count", delivery("count", BODY, key=key), BODY)
        assert (again.status, again.json["job"]) == (202, first.json["job"])
        await app.jobs.run_all()
        later = await server("POST", "/jobs/count", delivery("count", BODY, key=key), BODY)
        assert later.json == {"job": first.json["job"], "state": "done"}
        other = await server("POST", "/jobs/count", delivery("count", BODY, "msg_2", key=key), BODY)
        assert other.json["job"] != first.json["job"]
        await app.jobs.run_all()
        assert [ctx.actor for ctx in ran] == [WHOSE, WHOSE]
        job = await app.jobs.get(first.json["job"], actor=WHOSE)
        assert (job.result, job.key, job.tenant) == (1, "qstash:msg_1", "acme")


async def test_deliveries_at_once_make_one_job(tmp_path: Path, database: str) -> None:
    async with opened(tmp_path, database_url=database) as (app, server, ran):
        brought = (server("POST", "/jobs/count", delivery("count", BODY), BODY) for _ in range(8))
        answers = await asyncio.gather(*brought)
        assert {answer.status for answer in answers} == {202}
        assert len({answer.json["job"] for answer in answers}) == 1
        await app.jobs.run_all()
        assert len(ran) == 1


async def test_a_recorded_request_makes_no_second_job_under_another_id(tmp_path: Path, database: str) -> None:
    async with opened(tmp_path, database_url=database) as (app, server, ran):
        recorded = delivery("count", BODY)
        assert (await server("POST", "/jobs/count", recorded, BODY)).status == 202
        replayed = await server("POST", "/jobs/count", {**recorded, "Upstash-Message-Id": "msg_2"}, BODY)
        assert (replayed.status, len(await app.jobs.list(actor=WHOSE))) == (401, 1)
        assert (await server("POST", "/jobs/count", recorded, BODY)).status == 202
        await app.jobs.run_all()
        assert len(ran) == 1


async def test_a_message_id_with_another_payload_is_a_conflict(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, server, _ran):
        other = orjson.dumps({"n": 2})
        assert (await server("POST", "/jobs/count", delivery("count", BODY), BODY)).status == 202
        assert (await server("POST", "/jobs/count", delivery("count", other), other)).status == 409


@pytest.mark.parametrize(
    ("job_type", "body", "why"),
    [
        ("lost", b'{"n": 1}', "is unknown"), ("count", b'{"n": "one"}', "payload"),
        ("count", b'{"n": 1, "x": 2}', "payload"), ("count", b"[1]", "JSON object"), ("count", b"{", "not JSON"),
        ("count", b'{"n":' * 500 + b"1" + b"}" * 500, "deep"), ("count", b"null", "nothing"),
    ],
)  # fmt: skip
async def test_what_can_be_no_job_goes_to_the_dead_letters_of_qstash(
    job_type: str, body: bytes, why: str, tmp_path: Path
) -> None:
    async with opened(tmp_path) as (app, server, _ran):
        answer = await server("POST", f"/jobs/{job_type}", delivery(job_type, body), body)
        assert (answer.status, answer.headers["upstash-nonretryable-error"]) == (489, "true")
        assert answer.json["code"] == "NOT_RETRYABLE"
        assert why in answer.json["detail"]
        [act] = await refused(app)
        assert (act["type"], act["message"]) == (job_type, "msg_1")
        assert await app.jobs.list(actor=WHOSE) == []


async def test_no_type_is_taken_unless_a_setting_names_it(tmp_path: Path) -> None:
    async with opened(tmp_path, qstash={"take": {}}) as (app, server, _ran):
        for job_type in ("count", "send_notification", "generate_embedding", "nonsense"):
            answer = await server("POST", f"/jobs/{job_type}", delivery(job_type, BODY), BODY)
            assert (answer.status, answer.json["detail"]) == (489, "Jobs of this type are not taken from QStash.")
        assert await app.jobs.list(actor=WHOSE, all_users=True) == []
    async with opened(tmp_path) as (_, server, _ran):  # whatever a setting says
        body = orjson.dumps({"tool": "echo", "arguments": {}, "door": "python"})
        assert (await server("POST", "/jobs/execute_tool", delivery("execute_tool", body), body)).status == 489


async def test_the_door_is_shut_without_an_address(tmp_path: Path) -> None:
    async with opened(tmp_path, qstash={"url": None}) as (_, server, _ran):
        assert (await server("POST", "/jobs/count", delivery("count", BODY), BODY)).status == 404


async def test_where_it_cannot_be_kept_qstash_is_to_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    async with opened(tmp_path, jobs={"serve": False, "max_queued": 1}) as (app, server, _ran):
        assert (await server("POST", "/jobs/count", delivery("count", BODY), BODY)).status == 202
        assert (await server("POST", "/jobs/count", delivery("count", BODY, "msg_2"), BODY)).status == 503
        await app.parts.store.transact(statement("DROP TABLE jobs"))
        answer = await server("POST", "/jobs/count", delivery("count", BODY, "msg_3"), BODY)
        assert (answer.status, "jobs" in answer.json["detail"]) == (500, False)
    monkeypatch.delenv("TOOLGATE_SERVER_SECRET_QSTASH_CURRENT_SIGNING_KEY")
    async with opened(tmp_path / "other") as (_, server, _ran):
        assert (await server("POST", "/jobs/count", delivery("count", BODY), BODY)).status == 503
        assert "QSTASH_CURRENT_SIGNING_KEY is not set" in caplog.text


# -- out


async def test_a_job_goes_out_and_comes_back_when_it_is_due(tmp_path: Path, database: str) -> None:
    fake = FakeQStash()
    async with site(fake) as api:
        out = {"send": ["count"], "take": {}, "base_url": api.url, "retries": 2}
        async with opened(tmp_path, database_url=database, qstash=out) as (app, server, ran):
            ada = Actor("acme", "analyst", "ada")
            job = await app.jobs.enqueue("count", {"n": 7}, actor=ada, key="k", delay=30)
            assert (await app.jobs.enqueue("count", {"n": 7}, actor=ada, key="k", delay=30)).id == job.id
            with pytest.raises(Failed, match="another"):
                await app.jobs.enqueue("count", {"n": 8}, actor=ada, key="k")
            [(once, asked)] = fake.taken.items()
            assert (once, asked.path) == (job.id, f"/v2/publish/{PUBLIC}/jobs/count")
            wanted = {"content-type": "application/json", "upstash-retries": "2", "upstash-delay": "30s"}
            assert {name: asked.headers[name] for name in wanted} == wanted
            assert asked.json.keys() == {"job", "toolgate_signature"}, "the payload stays here"
            assert asked.json["job"] == job.id
            await app.jobs.run_all()
            assert ran == [], "it is not due"
            path, headers, body = fake.bring(once)
            assert not any(name.lower().startswith("toolgate") for name in headers), "all that counts is in the signed body"
            answers = [await server("POST", path, headers, body) for _ in range(2)]
            assert [(answer.status, answer.json["job"]) for answer in answers] == [(202, job.id)] * 2
            await app.jobs.run_all()
            assert [(ctx.actor, ctx.payload) for ctx in ran] == [(ada, {"n": 7})]
            assert (await server("POST", path, headers, body)).json == {"job": job.id, "state": "done"}
            assert len(ran) == 1


async def test_without_qstash_the_job_is_run_here(tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.jobs.qstash.PUBLISH_RETRY", False)
    fake = FakeQStash()
    async with site(fake) as api:
        out = {"send": ["count"], "base_url": api.url}
        async with opened(tmp_path, qstash=out) as (app, _server, ran):
            fake.status = 500
            await app.jobs.enqueue("count", {"n": 1})
            fake.status = 200
            monkeypatch.setenv("TOOLGATE_SERVER_SECRET_QSTASH_TOKEN", "wrong")
            await app.jobs.enqueue("count", {"n": 2})
            monkeypatch.delenv("TOOLGATE_SERVER_SECRET_QSTASH_TOKEN")
            await app.jobs.enqueue("count", {"n": 3})
            await api.stop()
            await app.jobs.enqueue("count", {"n": 4})
            await app.jobs.run_all()
            assert sorted(ctx.payload["n"] for ctx in ran) == [1, 2, 3, 4]
            assert caplog.text.count("QStash did not take job") == 4
            assert TOKEN not in caplog.text


async def test_a_job_that_is_gone_is_told(tmp_path: Path) -> None:
    fake = FakeQStash()
    async with site(fake) as api, opened(tmp_path, qstash={"send": ["count"], "base_url": api.url}) as (app, server, _ran):
        job = await app.jobs.enqueue("count", {"n": 1})
        cancelled = await app.jobs.cancel(job.id)
        assert (await server("POST", *fake.bring(job.id))).json == {"job": job.id, "state": "cancelled"}
        await app.parts.store.transact(statement("DELETE FROM jobs"))
        assert (await server("POST", *fake.bring(job.id))).status == 489
        assert cancelled.state == "cancelled"


async def test_doctor_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = {"send": ["count"]}
    async with (
        site(FakeQStash()) as api,
        opened(tmp_path, qstash={**out, "base_url": api.url}) as (app, _server, _ran),
    ):
        found = [(check.status, check.message.partition(" in ")[0]) async for check in qstash_checks(app)]
        assert found == [("warning", "no handler is here for jobs of type lost"), ("ok", "answered")]
        await api.stop()
        for name in ("TOKEN", "CURRENT_SIGNING_KEY", "NEXT_SIGNING_KEY"):
            monkeypatch.delenv(f"TOOLGATE_SERVER_SECRET_QSTASH_{name}")
        checks = [check async for check in qstash_checks(app)]
        assert {check.status for check in checks} == {"warning"}
        told = " ".join(check.message for check in checks)
        assert all(name in told for name in ("QSTASH_TOKEN", "QSTASH_CURRENT", "QSTASH_NEXT", "cannot be reached"))
    async with opened(tmp_path, qstash={"url": None, "take": {}}) as (app, _server, _ran):
        assert [check async for check in qstash_checks(app)] == []


async def test_without_the_extra_messages_wait_and_jobs_are_run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr("toolgate.jobs.qstash.is_installed", lambda _extra: False)
    monkeypatch.setattr("toolgate.jobs.qstash.require", fail)
    async with opened(tmp_path, qstash={"send": ["count"]}) as (app, server, ran):
        assert (await server("POST", "/jobs/count", delivery("count", BODY), BODY)).status == 503
        assert "toolgate[qstash]" in caplog.text
        await app.jobs.enqueue("count", {"n": 1})
        await app.jobs.run_all()
        assert len(ran) == 1


def fail(extra: str) -> None:
    raise MissingExtra(extra)


def test_the_names_of_types_in_a_file_are_left_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text("qstash: {url: https://x.example.com, bodyBytes: 2048, take: {sendReport: {tenant: acme}}}")
    settings = load_settings(file).qstash
    assert (list(settings.take), settings.body_bytes) == (["sendReport"], 2048)


@pytest.mark.parametrize(
    "wrong",
    [
        {"send": ["count"]}, {"url": "http://toolgate.example.com"}, {"base_url": "http://qstash.upstash.io"},
        {"take": {"count": {}}}, {"take": {"co/unt": {"tenant": "acme"}}}, {"take": {"count": {"tenant": ""}}},
        {"token": "no name"}, {"url": "https://user:pass@toolgate.example.com"},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        App.open(os.devnull, qstash=wrong)

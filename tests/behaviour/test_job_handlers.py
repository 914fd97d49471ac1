"""Jobs of the types `send_notification` and `generate_embedding`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.test_tools_conversation import acts, done
from tests.loopback import Asked, Said, site
from toolgate import Actor, App
from toolgate.embeddings import Embedder
from toolgate.errors import Failed
from toolgate.memory.note_embeddings import FORGOTTEN_AFTER
from toolgate.store import memories

pytestmark = [
    pytest.mark.requirement("JOB-1"),
    pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning"),  # apprise looks whether it is there
]
ANN, GUS, SYSTEM = Actor("acme", "analyst", "ann"), Actor("globex", "analyst", "ann"), Actor("acme", "analyst", "system")
QUICKLY = {"backoff_seconds": 0.01, "max_backoff_seconds": 0.02}
NOTE = {"text": "The office of Acme is in Lisbon."}


@asynccontextmanager
async def opened(home: Path, port: int = 0, **settings: Any) -> AsyncIterator[App]:
    notify = {"seconds": 5, "push": {"kinds": ["json"], "allow": [f"127.0.0.1:{port}"] if port else []}}
    settings = {"entry_points": False, "jobs": QUICKLY, "notify": notify, **settings}
    async with App.open(os.devnull, home=home, **settings) as app:
        app.approvals.add_approver(lambda _request: True)
        yield app


# -- send_notification


async def test_a_notification_is_sent_by_a_job_and_tried_again_only_where_it_was_not_taken(tmp_path: Path) -> None:
    busy = [503, 503, 200]

    async def answer(asked: Asked) -> Said:
        return Said(busy.pop(0) if asked.path == "/busy" else 410 if asked.path == "/gone" else 200)

    async with site(answer) as server, opened(tmp_path, server.port) as app:
        for name in ("busy", "gone", "fine"):
            await app.push_tokens.add(f"json://127.0.0.1:{server.port}/{name}", name, actor=ANN)
        payload = {"userId": "ann", "title": "Ready", "body": "The report is ready.", "data": {"report": 7}}
        job = await app.jobs.enqueue("send_notification", payload, actor=SYSTEM, key="report-7")
        assert (await app.jobs.enqueue("send_notification", payload, actor=SYSTEM, key="report-7")).id == job.id
        async with app.jobs.worker():
            over = await app.jobs.wait(job.id, 20, actor=SYSTEM)
        assert (over.state, over.attempts, over.result["delivered"]) == ("done", 2, ["push:busy"])
        assert sorted(asked.path for asked in server.asked) == ["/busy", "/busy", "/busy", "/fine", "/gone"]
        assert {asked.json["title"] for asked in server.asked} == {"Ready"}
        [kept] = await app.notifications.list(actor=ANN)
        assert (sorted(kept.delivered), kept.title, kept.data) == (["push:busy", "push:fine"], "Ready", {"report": 7})
        assert [one.name for one in await app.push_tokens.list(actor=ANN)] == ["busy", "fine"]
        sent = await acts(app, "notification.sent")
        assert [(act["title"], act["token_count"], act["success_count"]) for act in reversed(sent)] in (
            [("Ready", 3, 1), ("Ready", 1, 0), ("Ready", 1, 1)],
            [("Ready", 1, 1), ("Ready", 1, 0), ("Ready", 3, 1)],
        )
        assert "The report" not in str(sent)


async def test_a_notification_that_was_dismissed_is_not_sent_again(tmp_path: Path) -> None:
    async def answer(_asked: Asked) -> Said:
        return Said(503)

    async with site(answer) as server, opened(tmp_path, server.port) as app:
        await app.push_tokens.add(f"json://127.0.0.1:{server.port}/x", "x", actor=ANN)
        send = app.parts.notifications.send_once
        assert (await send("ntf_1", ANN, "t", "m", None)).passing == ("push:x",)
        await app.notifications.dismiss("ntf_1", actor=ANN)
        assert (await send("ntf_1", ANN, "t", "m", None, again=True)).passing == ()
        assert len(server.asked) == 1


async def test_a_job_reaches_users_of_its_own_tenant_only(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        job = await app.jobs.enqueue("send_notification", {"userId": "ann", "title": "t", "body": "b"}, actor=SYSTEM)
        await app.jobs.run_all()
        assert (await app.jobs.get(job.id, actor=SYSTEM)).state == "done"
        assert [one.message for one in await app.notifications.list(actor=ANN)] == ["b"]
        assert await app.notifications.list(actor=GUS) == []


@pytest.mark.parametrize(
    "payload",
    [
        {}, {"userId": "ann"}, {"userId": "", "title": "t", "body": "b"}, {"userId": "ann", "title": "t", "body": ""},
        {"userId": "ann", "title": "t" * 201, "body": "b"}, {"userId": "ann", "title": "t", "body": "b", "tenant": "globex"},
        {"userId": "ann", "title": "t", "body": "b" * 4_001}, {"userId": ["ann"], "title": "t", "body": "b"},
    ],
)  # fmt: skip
async def test_a_payload_that_does_not_fit_is_refused(payload: dict[str, Any], tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        with pytest.raises(Failed, match="payload"):
            await app.jobs.enqueue("send_notification", payload)


async def test_what_says_nothing_or_too_much_ends_as_failed(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        empty = await app.jobs.enqueue("send_notification", {"userId": "ann", "title": "t", "body": " \n"})
        large = {"userId": "ann", "title": "t", "body": "b", "data": {"x": "y" * 5_000}}
        much = await app.jobs.enqueue("send_notification", large)
        nobody = await app.jobs.enqueue("send_notification", {"userId": "an\x07n", "title": "t", "body": "b"})
        await app.jobs.run_all()
        for job in (empty, much, nobody):
            assert (await app.jobs.get(job.id)).state == "failed", "trying again would not help"


# -- generate_embedding


async def test_a_note_is_embedded_in_the_background(tmp_path: Path, database: str) -> None:
    async with opened(tmp_path, database_url=database, memory={"embedding": "background"}) as app:
        saved = await done(app, "memory_save", NOTE)
        wanted = {"query": "Where is the office?", "threshold": 0.5}
        assert (await done(app, "memory_load", wanted))["notes"] == []
        [job] = await app.jobs.list(actor=ANN)
        assert (job.type, job.payload) == ("generate_embedding", {"type": "memory", "id": saved["id"]})
        await app.jobs.run_all()
        [found] = (await done(app, "memory_load", wanted))["notes"]
        assert (found["id"], found["text"]) == (saved["id"], NOTE["text"])
        [act] = await acts(app, "embedding.generated")
        assert (act["resource"], act["id"], act["dimensions"]) == ("memory", saved["id"], Embedder.dimensions)
        again = await app.jobs.enqueue("generate_embedding", {"type": "memory", "id": saved["id"]}, actor=ANN)
        await app.jobs.run_all()
        assert (await app.jobs.get(again.id, actor=ANN)).result == {"computed": False}
        await done(app, "memory_delete", {"ids": [saved["id"]]})
        assert (await done(app, "memory_load", wanted))["notes"] == []


async def test_the_kept_text_is_embedded_and_not_that_of_the_job(tmp_path: Path) -> None:
    async with opened(tmp_path, memory={"embedding": "background"}) as app:
        saved = await done(app, "memory_save", NOTE)
        stranger = {"type": "memory", "id": saved["id"], "content": "Bananas are yellow."}
        [own] = await app.jobs.list(actor=ANN)
        await app.jobs.cancel(own.id, actor=ANN)
        for actor in (GUS, Actor("acme", "clerk", "ann")):
            job = await app.jobs.enqueue("generate_embedding", stranger, actor=actor)
            await app.jobs.run_all()
            assert (await app.jobs.get(job.id, actor=actor)).result == {"computed": False}
        await app.jobs.enqueue("generate_embedding", stranger, actor=ANN)
        await app.jobs.run_all()
        [found] = (await done(app, "memory_load", {"query": "Where is the office?", "threshold": 0.5}))["notes"]
        assert found["score"] > 0.7


async def test_a_note_whose_job_was_lost_is_embedded_with_the_next_one(tmp_path: Path) -> None:
    async with opened(tmp_path, memory={"embedding": "background"}) as app:
        first = await done(app, "memory_save", NOTE)

        def age() -> Any:
            yield "DELETE FROM jobs", {}
            yield "UPDATE memories SET created_at = :then", {"then": app.parts.now() - 2 * FORGOTTEN_AFTER}

        await app.parts.store.transact(age())
        second = await done(app, "memory_save", {"text": "Lunch is at noon."})
        await app.jobs.run_all()
        assert {act["id"] for act in await acts(app, "embedding.generated")} == {first["id"], second["id"]}


async def test_without_room_for_a_job_a_note_is_embedded_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path, memory={"embedding": "background"}, jobs={"max_queued": 1}) as app:
        await done(app, "memory_save", {"text": "Lunch is at noon."})
        await done(app, "memory_save", NOTE)
        found = (await done(app, "memory_load", {"query": "Where is the office?", "threshold": 0.5}))["notes"]
        assert [one["text"] for one in found] == [NOTE["text"]]


async def test_a_document_of_another_model_is_embedded_anew(tmp_path: Path, database: str) -> None:
    async with opened(tmp_path, database_url=database) as app:
        taken = await app.parts.documents.ingest(ANN, "a.txt", b"The office of Acme is in Lisbon.", origin="a")

        def older() -> Any:
            yield "UPDATE documents SET model = 'an older one'", {}
            yield "UPDATE document_passages SET embedding = :none", {"none": b"\0" * 8}
            yield "UPDATE document_libraries SET revision = revision + 1", {}

        await app.parts.store.transact(older())
        ask = partial(app.parts.documents.query, ANN, "Where is the office?", limit=3, threshold=0.3)
        assert await ask() == []
        payload = {"type": "knowledge", "id": taken.document.id}
        foreign = await app.jobs.enqueue("generate_embedding", payload, actor=GUS)
        job = await app.jobs.enqueue("generate_embedding", payload, actor=ANN)
        await app.jobs.run_all()
        assert (await app.jobs.get(foreign.id, actor=GUS)).result == {"computed": False}
        assert (await app.jobs.get(job.id, actor=ANN)).result == {"computed": True}
        [found] = await ask()
        assert found.passage.text == "The office of Acme is in Lisbon."


async def test_a_note_that_is_embedded_later_takes_its_room_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path, memory={"embedding": "background"}) as app:
        await done(app, "memory_save", NOTE)
        before = await app.parts.store.read(memories.space_of("acme", "analyst"))
        await app.jobs.run_all()
        after = await app.parts.store.read(memories.space_of("acme", "analyst"))
        assert before is not None
        assert after is not None
        assert (after.notes, after.bytes) == (before.notes, before.bytes)
        assert after.bytes > Embedder.dimensions * 4

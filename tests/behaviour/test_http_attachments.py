"""/v1/attachments: files are uploaded, fetched and removed by those whose they are, and taken in as documents."""

from collections.abc import AsyncIterator
from hashlib import sha256

import pytest
import pytest_asyncio

from tests.http_people import ANN, BOB, EVE, People, Person, people, same
from tests.serving import Answer
from toolgate import App
from toolgate.testing import memory_app

pytestmark = [pytest.mark.requirement("DOOR-1"), pytest.mark.asyncio(loop_scope="module")]
TEXT = "The meeting is on Tuesday at nine, in the red room."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app() -> AsyncIterator[App]:
    async with memory_app(limits={"attachment_bytes": 5_000, "attachments_bytes": 12_000}) as app:
        yield app


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def all_people(app: App) -> AsyncIterator[People]:
    async with people(app) as found:
        yield found


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def nothing_is_left(app: App) -> AsyncIterator[None]:
    yield
    for actor in (ANN, EVE):
        for row in await app.attachments.list(actor=actor, all_users=True):
            await app.attachments.remove(row.id, actor=actor, all_users=True)


async def upload(who: Person, name: str, content: bytes = TEXT.encode(), kind: str = "text/plain") -> Answer:
    return await who.post(f"/v1/attachments?name={name}", content, {"Content-Type": kind})


async def test_a_file_is_uploaded_listed_fetched_and_removed(app: App, all_people: People) -> None:
    ann = all_people.ann
    added = await upload(ann, "notes.txt")
    assert added.status == 201, added.body
    assert (added.json["name"], added.json["media_type"], added.json["size_bytes"]) == ("notes.txt", "text/plain", len(TEXT))
    assert added.json["sha256"] == sha256(TEXT.encode()).hexdigest()
    assert await ann.all("/v1/attachments") == [added.json]
    found = await ann.get(f"/v1/attachments/{added.json['id']}")
    assert (found.status, found.body) == (200, TEXT.encode())
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["content-disposition"] == "attachment; filename*=UTF-8''notes.txt"
    again = await ann.get(f"/v1/attachments/{added.json['id']}", {"If-None-Match": found.headers["etag"]})
    assert again.status == 304
    assert (await ann.delete(f"/v1/attachments/{added.json['id']}")).status == 204
    assert await ann.all("/v1/attachments") == []
    kinds = [row[2] for row in await app.audit.latest(5, tenant="acme")]
    assert {"attachment.added", "attachment.removed"} <= set(kinds)


async def test_files_of_others_look_missing(all_people: People) -> None:
    ids = [(await upload(all_people.ann, f"{number}.txt")).json["id"] for number in range(5)]
    bobs = (await upload(all_people.bob, "bob.txt")).json["id"]
    assert [one["id"] for one in await all_people.ann.all("/v1/attachments", limit=2)] == ids[::-1]
    for role in ("viewer", "approver", "admin", "operator"):
        assert [one["id"] for one in await all_people.of[role].all("/v1/attachments", limit=4)] == [bobs, *ids[::-1]]
    assert await all_people.eve.all("/v1/attachments") == []
    path = f"/v1/attachments/{ids[0]}"
    missing = await all_people.ann.get("/v1/attachments/nothing")
    assert missing.status == 404
    for stranger in (all_people.bob, all_people.eve):
        assert same(await stranger.get(path), missing)
        assert same(await stranger.delete(path), missing)
    assert (await all_people.of["viewer"].get(path)).status == 200
    assert (await all_people.of["viewer"].delete(path)).status == 403
    assert (await upload(all_people.of["viewer"], "x.txt")).status == 403
    assert (await all_people.of["admin"].delete(path)).status == 204


async def test_sizes_and_numbers_are_limited(all_people: People) -> None:
    ann = all_people.ann
    assert (await upload(ann, "large.bin", b"x" * 5_001)).status == 413
    assert (await upload(ann, "empty.bin", b"")).status == 422
    assert [(await upload(ann, f"{number}.bin", b"x" * 4_000)).status for number in range(4)] == [201, 201, 201, 409]
    assert (await upload(all_people.bob, "bob.bin", b"x" * 4_000)).status == 201
    assert len(await ann.all("/v1/attachments")) == 3


@pytest.mark.parametrize(
    ("query", "header", "name"),
    [
        ("name=..%2F..%2Fetc%2Fpasswd", None, "passwd"),
        ("name=C%3A%5Cnotes%5Ca.txt", None, "a.txt"),
        ("name=%C3%BCber%20uns.pdf", None, "über uns.pdf"),
        ("name=a%0D%0AX-Evil%3A%201.txt", None, "aX-Evil: 1.txt"),
        ("", 'attachment; filename="report 1.pdf"', "report 1.pdf"),
        ("", "attachment; filename*=UTF-8''%E2%82%AC.txt", "€.txt"),
        ("name=%3Cscript%3E.html", None, "<script>.html"),
    ],
)
async def test_names_are_data(all_people: People, query: str, header: str | None, name: str) -> None:
    headers = {"Content-Type": "text/html", **({} if header is None else {"Content-Disposition": header})}
    added = await all_people.ann.post(f"/v1/attachments?{query}", b"<script>alert(1)</script>", headers)
    assert added.status == 201, added.body
    assert added.json["name"] == name
    found = await all_people.ann.get(f"/v1/attachments/{added.json['id']}")
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["content-disposition"].startswith("attachment; ")
    assert "x-evil" not in found.headers


@pytest.mark.parametrize(
    ("query", "kind", "status"),
    [
        ("", "text/plain", 422),
        ("name=", "text/plain", 422),
        ("name=..", "text/plain", 422),
        ("name=a%2F", "text/plain", 422),
        (f"name={'x' * 256}", "text/plain", 422),
        ("name=a&folder=b", "text/plain", 422),
        ("name=a.txt", "multipart/form-data; boundary=x", 415),
    ],
)
async def test_wrong_uploads_are_refused(all_people: People, query: str, kind: str, status: int) -> None:
    answer = await all_people.ann.post(f"/v1/attachments?{query}", b"text", {"Content-Type": kind})
    assert answer.status == status, answer.body
    assert await all_people.ann.all("/v1/attachments") == []


@pytest.mark.requirement("BUILTIN-4")
async def test_an_attachment_is_taken_in_as_a_document(app: App, all_people: People) -> None:
    id = (await upload(all_people.ann, "meeting.txt")).json["id"]
    for arguments in ({}, {"path": "a.txt", "attachment_id": id}, {"attachment_id": "nothing"}):
        refused = await app.invoke("document_ingest", arguments, actor=ANN)
        assert refused.error is not None
        assert refused.error.code == "INVALID_INPUT"
    for stranger in (BOB, EVE):
        outcome = await app.invoke("document_ingest", {"attachment_id": id}, actor=stranger)
        assert outcome.error is not None
        assert outcome.error.code == "INVALID_INPUT"
    kept = await app.invoke("document_ingest", {"attachment_id": id}, actor=ANN)
    assert kept.status == "success", kept.error
    assert kept.output["name"] == "meeting.txt"
    asked = await app.invoke("document_query", {"query": "When is the meeting?"}, actor=ANN)
    assert TEXT in asked.output["passages"][0]["text"]
    newer = (await upload(all_people.ann, "meeting.txt", b"The meeting is on Friday.")).json["id"]
    assert (await app.invoke("document_ingest", {"attachment_id": newer}, actor=ANN)).output["replaced"] is True

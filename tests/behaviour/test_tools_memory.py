"""`memory_save`, `memory_load`, `memory_delete`, `memory_forget`: notes that are found by meaning, and how much is kept."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolgate import Actor, App, Outcome
from toolgate.embeddings import embedder
from toolgate.errors import StoreError
from toolgate.memory.matrix_index import MatrixIndex
from toolgate.store.sql import column, value

pytestmark = pytest.mark.requirement("BUILTIN-4")
ANN = Actor("acme", "analyst", "ann")
NOTES: list[tuple[str, dict[str, Any]]] = [
    ("Deployments on Fridays are forbidden.", {"topic": "operations", "priority": 3}),
    ("Acme wants its invoices in euros.", {"topic": "billing", "priority": 2, "tags": ["money", "customer"]}),
    ("Invoices are paid within 30 days.", {"topic": "billing", "priority": 1}),
    ("The user's cat is called Mizzi.", {}),
]


@pytest.fixture
def settings(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name in list(os.environ):
        if name.startswith("TOOLGATE_") and name != "TOOLGATE_TRUST":
            monkeypatch.delenv(name)
    return {"home": tmp_path / "home", "database_url": database}


@pytest.fixture
async def app(settings: dict[str, Any]) -> AsyncIterator[App]:
    async with App.open(os.devnull, **settings) as app:
        app.approvals.add_approver(lambda _request: True)
        yield app


async def call(app: App, name: str, actor: Actor = ANN, **arguments: Any) -> Any:
    outcome = await app.invoke(name, arguments, actor=actor)
    assert outcome.status == "success", outcome
    return outcome.output


def failed(outcome: Outcome, code: str) -> str:
    assert outcome.error is not None, outcome
    assert outcome.error.code == code, outcome.error
    return f"{outcome.error.message} {outcome.error.suggestion}"


async def save_all(app: App, actor: Actor = ANN) -> list[str]:
    return [(await call(app, "memory_save", actor, text=text, metadata=metadata))["id"] for text, metadata in NOTES]


async def texts(app: App, query: str, actor: Actor = ANN, **arguments: Any) -> list[str]:
    output = await call(app, "memory_load", actor, query=query, **arguments)
    return [note["text"] for note in output["notes"]]


# -- finding


async def test_a_note_is_found_by_its_meaning(app: App) -> None:
    ids = await save_all(app)
    (note,) = (await call(app, "memory_load", query="What is the name of the user's pet?", limit=1))["notes"]
    assert note["text"] == "The user's cat is called Mizzi."
    assert (note["id"], note["metadata"]) == (ids[3], {})
    assert 0.7 < note["score"] < 1
    assert note["created_at"].endswith("Z")


async def test_the_nearest_stand_first_and_the_threshold_ends_them(app: App) -> None:
    await save_all(app)
    found = (await call(app, "memory_load", query="invoices and their payment", threshold=0, limit=4))["notes"]
    scores = [note["score"] for note in found]
    assert scores == sorted(scores, reverse=True)
    assert {note["text"] for note in found[:2]} == {NOTES[1][0], NOTES[2][0]}
    few = await texts(app, "invoices and their payment", threshold=scores[1] - 0.002, limit=100)
    assert few == [note["text"] for note in found[:2]]
    assert await texts(app, "invoices and their payment", threshold=0, limit=1) == few[:1]
    assert await texts(app, NOTES[0][0], threshold=1) == [NOTES[0][0]]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("topic == 'billing'", {1, 2}),
        ("topic == 'billing' and priority >= 2", {1}),
        ("topic != 'billing'", {0, 3}),
        ("'money' in tags", {1}),
        ("not topic", {3}),
        ("priority in [1, 3] or 'x' == topic", {0, 2}),
        ("created_at > '2020' and topic = \"operations\"", {0}),
        ("created_at < '2020'", set()),
        ("  ", {0, 1, 2, 3}),
    ],
)
@pytest.mark.sample(4)
async def test_a_filter_looks_at_metadata(app: App, condition: str, expected: set[int]) -> None:
    await save_all(app)
    found = await texts(app, "anything", threshold=0, limit=100, filter=condition)
    assert set(found) == {NOTES[index][0] for index in expected}


async def test_with_a_filter_notes_beyond_the_nearest_are_looked_at(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.memory.notes.FIRST_LOOKS", (1, 2))
    monkeypatch.setattr("toolgate.memory.notes.ROWS_AT_ONCE", 2)
    await save_all(app)
    assert await texts(app, NOTES[0][0], threshold=0, limit=1, filter="priority == 1") == [NOTES[2][0]]
    assert await texts(app, NOTES[0][0], threshold=0, limit=1, filter="priority == 3") == [NOTES[0][0]]
    assert await texts(app, NOTES[0][0], threshold=0.99, limit=2, filter="priority >= 1") == [NOTES[0][0]]
    assert len(await texts(app, NOTES[0][0], threshold=0, limit=3, filter="priority >= 1")) == 3


async def test_an_empty_answer_says_why(app: App) -> None:
    assert await call(app, "memory_load", query="x") == {"notes": [], "note": "There are no notes yet."}
    await save_all(app)
    other = Actor("acme", "writer", "ann")
    assert await call(app, "memory_load", other, query="x") == {"notes": [], "note": "There are no notes yet."}
    assert "note" not in await call(app, "memory_load", query="Can I release on a Friday?")
    answer = await call(app, "memory_load", query="When may we ship?")
    nearest = (await call(app, "memory_load", query="When may we ship?", threshold=0, limit=1))["notes"][0]
    told = f"No note reaches the threshold 0.7; the nearest has {nearest['score']:g}. "
    assert answer == {"notes": [], "note": f"{told}Ask in other words, or lower the threshold."}
    answer = await call(app, "memory_load", query="When may we ship?", threshold=0, filter="topic == 'none'")
    assert answer == {"notes": [], "note": "No note fits the filter."}


async def test_nothing_is_found_where_nothing_was_saved(app: App) -> None:
    assert await texts(app, "anything", threshold=0) == []
    assert await call(app, "memory_forget", query="anything", threshold=0) == {"deleted": 0}
    assert await call(app, "memory_delete", ids="0123456789abcdef") == {"deleted": 0, "missing": ["0123456789abcdef"]}


@pytest.mark.parametrize("name", ["memory_load", "memory_save", "memory_delete", "memory_forget"])
async def test_the_examples_do_what_they_say(app: App, name: str) -> None:
    tool = app.parts.catalog.resolve(name, "acme").tool
    assert tool.examples
    assert tool.errors
    for example in tool.examples:
        output = await call(app, name, **example.arguments)
        assert example.output in (None, output)


# -- deleting


async def test_notes_are_deleted_by_id(app: App) -> None:
    ids = await save_all(app)
    assert await call(app, "memory_delete", ids=f"{ids[0]}, {ids[1]},,{ids[0]},nothing") == {
        "deleted": 2, "missing": ["nothing"],
    }  # fmt: skip
    assert set(await texts(app, "anything", threshold=0)) == {NOTES[2][0], NOTES[3][0]}
    assert await call(app, "memory_delete", ids=[ids[2], ids[0]]) == {"deleted": 1, "missing": [ids[0]]}
    assert await texts(app, "anything", threshold=0) == [NOTES[3][0]]


async def test_notes_are_forgotten_by_meaning(app: App) -> None:
    await save_all(app)
    assert await call(app, "memory_forget", query="Invoices are paid within a month.", threshold=0.9) == {"deleted": 1}
    assert await call(app, "memory_forget", query="x", threshold=0, filter="topic == 'billing'") == {"deleted": 1}
    assert set(await texts(app, "anything", threshold=0)) == {NOTES[0][0], NOTES[3][0]}
    assert await call(app, "memory_forget", query="x", threshold=0) == {"deleted": 2}


async def test_what_deletes_asks_each_time(settings: dict[str, Any]) -> None:
    async with App.open(os.devnull, **settings) as app:
        id = (await call(app, "memory_save", text="kept"))["id"]
        for name, arguments in (("memory_forget", {"query": "kept", "threshold": 0}), ("memory_delete", {"ids": id})):
            assert (await app.invoke(name, arguments, actor=ANN)).status == "pending"
        app.approvals.add_approver(lambda _request: False)
        for name, arguments in (("memory_forget", {"query": "kept", "threshold": 0}), ("memory_delete", {"ids": id})):
            failed(await app.invoke(name, arguments, actor=ANN), "USER_CANCELLED")
        assert await texts(app, "kept") == ["kept"]
        described = {one.name: one for one in await app.tools.list(ANN)}
        assert described["memory_load"].tier == "read_only"
        assert {described[f"memory_{verb}"].tier for verb in ("save", "delete", "forget")} == {"write"}


# -- staying


async def test_notes_are_there_after_a_restart(settings: dict[str, Any]) -> None:
    for _ in range(2):
        async with App.open(os.devnull, **settings) as app:
            app.approvals.add_approver(lambda _request: True)
            if not await texts(app, "pets", threshold=0):
                await save_all(app)
    async with App.open(os.devnull, **settings) as app:
        assert len(await texts(app, "pets", threshold=0)) == len(NOTES)


async def test_what_another_process_saves_and_deletes_holds_at_once(settings: dict[str, Any]) -> None:
    async with App.open(os.devnull, **settings) as one, App.open(os.devnull, **settings) as other:
        for app in (one, other):
            app.approvals.add_approver(lambda _request: True)
        for turn in range(3):
            ids = await save_all(one if turn % 2 else other)
            for app in (one, other):
                assert len(await texts(app, "pets", threshold=0, limit=100)) == 4 + turn
            gone = await call(other if turn % 2 else one, "memory_delete", ids=ids[:3])
            assert gone["deleted"] == 3
            for app in (one, other):
                assert len(await texts(app, "pets", threshold=0, limit=100)) == 1 + turn


async def test_vectors_of_another_model_are_not_compared(app: App) -> None:
    await save_all(app)
    store = app.parts.store
    await store.transact(column("UPDATE memories SET model = 'another' WHERE text LIKE '%Mizzi%' RETURNING id"))
    await store.transact(column("UPDATE memories SET vector = NULL, model = NULL WHERE text LIKE 'Invoices%' RETURNING id"))
    if store.name == "postgres":
        await store.transact(column("DELETE FROM memory_index RETURNING seq"))
    async with App.open(os.devnull, home=app.settings.home, database_url=app.settings.database) as again:
        assert set(await texts(again, "anything", threshold=0)) == {NOTES[0][0], NOTES[1][0]}


# -- limits


async def test_a_note_that_is_too_long_or_empty_is_refused(settings: dict[str, Any]) -> None:
    async with App.open(os.devnull, **settings, memory={"note_chars": 20}) as app:
        app.approvals.add_approver(lambda _request: True)
        await call(app, "memory_save", text="é" * 20)
        outcome = await app.invoke("memory_save", {"text": "e" * 21}, actor=ANN)
        assert "A note has at most 20 characters; this one has 21." in failed(outcome, "INVALID_INPUT")
        for name, arguments in (
            ("memory_save", {"text": " \n"}),
            ("memory_load", {"query": " "}),
            ("memory_forget", {"query": ""}),
        ):
            failed(await app.invoke(name, arguments, actor=ANN), "INVALID_INPUT")


@pytest.mark.parametrize(
    "metadata",
    [{"a": {"b": 1}}, {"a": [[1]]}, {"not a name": 1}, {"": 1}, {"1": 1}, {"a" * 65: 1}, {"a": "x" * 4_000}, {"a": [{}]}],
)
@pytest.mark.sample(4)
async def test_metadata_that_is_not_flat_or_too_large_is_refused(app: App, metadata: dict[str, Any]) -> None:
    failed(await app.invoke("memory_save", {"text": "a", "metadata": metadata}, actor=ANN), "INVALID_INPUT")
    assert await texts(app, "a", threshold=0) == []


async def test_a_persona_keeps_so_many_notes_and_a_tenant_so_many_bytes(settings: dict[str, Any]) -> None:
    async with App.open(os.devnull, **settings, memory={"notes": 2, "tenant_bytes": 6_000}) as app:
        app.approvals.add_approver(lambda _request: True)
        first = (await call(app, "memory_save", text="one"))["id"]
        await call(app, "memory_save", text="two")
        outcome = await app.invoke("memory_save", {"text": "three"}, actor=ANN)
        assert "2 notes are kept already" in failed(outcome, "CAPACITY_EXCEEDED")
        assert outcome.error is not None
        assert not outcome.error.retryable
        await call(app, "memory_delete", ids=first)
        await call(app, "memory_save", text="three")
        await call(app, "memory_save", Actor("acme", "other", "ann"), text="four")
        outcome = await app.invoke("memory_save", {"text": "x" * 3_000}, actor=Actor("acme", "other", "ann"))
        assert "The tenant's notes would take more than 6,000 bytes." in failed(outcome, "CAPACITY_EXCEEDED")
        await call(app, "memory_save", Actor("globex", "other", "ann"), text="x" * 3_000)
        counted = await app.parts.store.read(value("SELECT sum(bytes) FROM memory_spaces"))
        kept = await app.parts.store.read(value("SELECT sum(bytes) FROM memories"))
        assert counted == kept


async def test_vectors_that_are_kept_in_memory_are_bounded(settings: dict[str, Any]) -> None:
    async with App.open(os.devnull, **settings, memory={"cache_bytes": 20_000}) as app:
        app.approvals.add_approver(lambda _request: True)
        app.parts.memory._index = index = MatrixIndex(app.parts.store, embedder.Embedder.name, 384, 20_000)
        actors = [Actor("acme", f"persona{number}", "ann") for number in range(8)]
        for actor in actors:
            await call(app, "memory_save", actor, text=f"I am {actor.persona}")
        for actor in actors * 2:
            assert await texts(app, "who?", actor, threshold=0) == [f"I am {actor.persona}"]
            assert index.cached_bytes <= 20_000


# -- secrets


async def test_secrets_are_masked_before_a_note_is_kept(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_SESAME", "open sesame 42")
    use = {"use": {"SESAME": [{"tool": "memory_save", "tenant": "*"}]}}
    async with App.open(os.devnull, **settings, secrets=use) as app:
        app.approvals.add_approver(lambda _request: True)
        key = "sk-abcdefghij1234567890abcdefgh"
        assert (await call(app, "memory_save", text=f"The key is {key}.", metadata={"password": "hunter22"}))[
            "masked"
        ] is True
        assert (await call(app, "memory_save", text="The word is {{secret:SESAME}}"))["masked"] is True
        assert "masked" not in await call(app, "memory_save", text="Nothing secret")
        rows = await app.parts.store.read(column("SELECT text || metadata FROM memories ORDER BY seq"))
        assert rows == ['The key is [REDACTED].{"password":"[REDACTED]"}', "The word is [REDACTED]{}", "Nothing secret{}"]


# -- without the extra


async def test_without_the_extra_the_tool_says_so_and_names_no_path(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    await save_all(app)
    embedder._model.cache_clear()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for name, arguments in (
        ("memory_save", {"text": "a"}),
        ("memory_load", {"query": "a"}),
        ("memory_forget", {"query": "a"}),
    ):
        outcome = await app.invoke(name, arguments, actor=ANN)
        words = failed(outcome, "INVOCATION_ERROR")
        assert words == (
            "Search by meaning is not installed: install the extra toolgate[embeddings]. "
            "Ask the operator to install toolgate[embeddings]."
        )
        assert str(Path(sys.executable).parent) not in words
    async with App.open(os.devnull, home=app.settings.home, database_url=app.settings.database) as again:
        again.approvals.add_approver(lambda _request: True)
        monkeypatch.undo()
        assert len(await texts(again, "anything", threshold=0)) == len(NOTES)


async def test_where_the_store_fails_the_caller_is_not_told_where_it_is(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost:
        async def read(self, _transaction: Any) -> None:
            raise StoreError("The database /home/operator/toolgate.db cannot be used.")

    monkeypatch.setattr(app.parts.memory, "_store", Lost())  # of the memory alone: the line itself has the real one
    words = failed(await app.invoke("memory_load", {"query": "a"}, actor=ANN), "UNEXPECTED_ERROR")
    assert words == "The store cannot be used. `toolgate doctor` shows what is wrong with the store."
    await app.parts.store.flush()
    (record,) = await app.parts.store.read(column("SELECT body FROM audit_log WHERE kind = 'end'"))
    assert "/home/operator/toolgate.db" in str(record)

"""Attempts to see, delete or crowd out another tenant's or persona's notes: by names, filters, ids, numbers and haste."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolgate import Actor, App
from toolgate.errors import InvalidInput, ToolError
from toolgate.memory.notes import Memory
from toolgate.store.sql import column, value

pytestmark = pytest.mark.requirement("BUILTIN-4")
NAMES: list[tuple[str, str | None]] = [
    ("acme", None), ("acme", "null"), ("acme", "None"), ("acme", "analyst"), ("acme", "Analyst"), ("acme", "analyst "),
    ("ACME", "analyst"), ("acme%", "analyst"), ("a_me", "analyst"), ("acme", "%"), ("acme", "_"),
    ("%", "%"),
    ('acme","analyst', None), ("acme", 'x","y'), ('acme","x', "y"), ("acme'--", "analyst"), ("acme\\", "analyst"),
    ("caf\u00e9", None), ("cafe\u0301", None), ("\u0430cme", "analyst"), ("\uff41cme", "analyst"),
    ("ss", None), ("\u00df", None),
    ("acme", "0"), ("0", "acme"), ("1", None), ("default", None),
]  # fmt: skip
ACTORS = [Actor(tenant, persona, "eve") for tenant, persona in NAMES]
EVE, VICTIM = Actor("globex", "analyst", "eve"), Actor("acme", "analyst", "ann")
SECRET = "The launch is on the third of May."


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found: str = request.getfixturevalue("postgres_tables") if request.param == "postgres" else ""
    return found or f"sqlite:///{tmp_path / 'toolgate.db'}"


@pytest.fixture
async def app(url: str, tmp_path: Path) -> AsyncIterator[App]:
    async with App.open(os.devnull, home=tmp_path / "home", database_url=url) as app:
        app.approvals.add_approver(lambda _request: True)
        yield app


async def call(app: App, actor: Actor, tool: str, **arguments: Any) -> Any:
    outcome = await app.invoke(tool, arguments, actor=actor)
    assert outcome.status == "success", outcome
    return outcome.output


async def all_texts(app: App, actor: Actor, query: str = "anything", **arguments: Any) -> list[str]:
    output = await call(app, actor, "memory_load", query=query, threshold=0, limit=100, **arguments)
    return [note["text"] for note in output["notes"]]


async def test_names_that_look_alike_are_not_the_same_memory(app: App) -> None:
    for number, actor in enumerate(ACTORS):
        await call(app, actor, "memory_save", text=f"note {number}")
    for number, actor in enumerate(ACTORS):
        assert await all_texts(app, actor) == [f"note {number}"]
    assert await call(app, ACTORS[0], "memory_forget", query="note", threshold=0) == {"deleted": 1}
    for number, actor in enumerate(ACTORS[1:], 1):
        assert await all_texts(app, actor) == [f"note {number}"]


@pytest.mark.parametrize(
    "condition",
    [
        "true", "1 == 1", "1 == 1 or topic == 'x'", "tenant_id == 'acme'", "tenant == 'acme' or true", "space_id == 1",
        "not false",
        "id != ''", "created_at > ''", "id in ['x'] or true", "text != null or true", "topic != 'x'", "'' in ''",
        "persona_id == null",
    ],
)  # fmt: skip
@pytest.mark.sample(4)
async def test_no_filter_reaches_another_memory(app: App, condition: str) -> None:
    await call(app, VICTIM, "memory_save", text=SECRET, metadata={"topic": "launch"})
    lure = {"tenant": "acme", "tenant_id": "acme", "persona_id": None, "space_id": 1, "space": '["acme","analyst"]'}
    await call(app, EVE, "memory_save", text="lure", metadata=lure)
    found = await all_texts(app, EVE, SECRET, filter=condition)
    assert found in (["lure"], [])
    await call(app, EVE, "memory_forget", query=SECRET, threshold=0, filter=condition)
    assert await all_texts(app, VICTIM) == [SECRET]


@pytest.mark.parametrize(
    "condition", ["' OR 1=1 --", "topic == 'x' UNION SELECT text FROM memories", "1; DELETE FROM memories", "topic LIKE '%'"]
)
async def test_sql_is_no_filter(app: App, condition: str) -> None:
    await call(app, VICTIM, "memory_save", text=SECRET)
    for tool in ("memory_load", "memory_forget"):
        outcome = await app.invoke(tool, {"query": SECRET, "threshold": 0, "filter": condition}, actor=VICTIM)
        assert outcome.error is not None
        assert outcome.error.code == "INVALID_INPUT"
    assert await all_texts(app, VICTIM) == [SECRET]


async def test_anothers_ids_look_like_none(app: App) -> None:
    id = (await call(app, VICTIM, "memory_save", text=SECRET))["id"]
    await call(app, EVE, "memory_save", text="mine")
    for ids in (id, [id], f"{id},{id.upper()}", ["%", "*", "_" * 16, "' OR '1'='1", "\x00", "0" * 16, "\u0660" * 16]):
        gone = await call(app, EVE, "memory_delete", ids=ids)
        assert gone["deleted"] == 0
        assert gone == await call(app, Actor("initech", None, "eve"), "memory_delete", ids=ids)  # where there is no memory
    assert await all_texts(app, VICTIM) == [SECRET]
    assert await all_texts(app, EVE) == ["mine"]


@pytest.mark.parametrize(
    "threshold", [float("nan"), float("inf"), -float("inf"), -0.1, 1.1, -1, "0", "nan", None, True, [0]]
)
@pytest.mark.sample(4)
async def test_a_threshold_is_a_number_from_0_to_1(app: App, threshold: Any) -> None:
    await call(app, VICTIM, "memory_save", text=SECRET)
    for tool in ("memory_load", "memory_forget"):
        outcome = await app.invoke(tool, {"query": "unrelated", "threshold": threshold}, actor=VICTIM)
        assert outcome.error is not None, threshold
        assert outcome.error.code in ("VALIDATION_ERROR", "INVALID_INPUT")
    assert await all_texts(app, VICTIM) == [SECRET]


async def test_the_room_itself_refuses_what_no_schema_has_looked_at(app: App) -> None:
    memory: Memory = app.parts.memory
    await memory.save(VICTIM, [(SECRET, {})])
    for threshold in (float("nan"), float("inf"), 2.0, -1.0):
        with pytest.raises(InvalidInput, match="threshold"):
            await memory.forget(VICTIM, "x", threshold=threshold)
    for limit in (0, -1, 101):
        with pytest.raises(InvalidInput, match="limit"):
            await memory.load(VICTIM, "x", threshold=0, limit=limit)
    with pytest.raises(InvalidInput, match="written as JSON"):
        await memory.save(VICTIM, [("x", {"a": 2**70})])
    assert await memory.save(VICTIM, []) == []
    assert await all_texts(app, VICTIM) == [SECRET]


@pytest.mark.parametrize(
    "text", ["a\x00b", "\u202egnp.exe", "\x1b[31mred", "\ud83d lone", "🙂" * 2_000, "'; DROP TABLE memories; --"]
)
async def test_any_text_can_be_a_note(app: App, text: str) -> None:
    await app.parts.memory.save(VICTIM, [(text, {})])
    (found,) = await all_texts(app, VICTIM)
    assert found == text.replace("\x00", "\ufffd").replace("\ud83d", "?")


async def test_many_at_once_keep_no_more_than_there_is_room_for(url: str, tmp_path: Path) -> None:
    limits = {"notes": 5, "tenant_bytes": 1_000_000}
    async with (
        App.open(os.devnull, home=tmp_path / "home", database_url=url, memory=limits) as one,
        App.open(os.devnull, home=tmp_path / "home", database_url=url, memory=limits) as other,
    ):
        saving = (app.parts.memory.save(EVE, [(f"note {number}", {})]) for number in range(10) for app in (one, other))
        done = await asyncio.gather(*saving, return_exceptions=True)
        refused = [error for error in done if isinstance(error, BaseException)]
        assert len(refused) == 15
        assert all(isinstance(error, ToolError) and error.code == "CAPACITY_EXCEEDED" for error in refused)
        assert await one.parts.store.read(value("SELECT count(*) FROM memories")) == 5
        await asyncio.gather(*(app.parts.memory.forget(EVE, "x", threshold=0) for app in (one, other)))
        rows = await other.parts.store.read(column("SELECT notes || ' ' || bytes || ' ' || removed FROM memory_spaces"))
        assert rows == ["0 0 5"]


async def test_saving_and_deleting_at_once_leaves_both_sides_in_step(app: App) -> None:
    memory: Memory = app.parts.memory

    async def come_and_go(number: int) -> None:
        for turn in range(3):
            (note,) = await memory.save(EVE, [(f"note {number} {turn}", {})])
            assert note.id in {found.id for found in await memory.load(EVE, "note", threshold=0, limit=100)}
            assert await memory.delete(EVE, [note.id]) == [note.id]
            assert note.id not in {found.id for found in await memory.load(EVE, "note", threshold=0, limit=100)}

    await asyncio.gather(*(come_and_go(number) for number in range(8)))
    assert await memory.load(EVE, "note", threshold=0, limit=100) == []

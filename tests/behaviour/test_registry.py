"""Where tools come from, and what of them is on record."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import splintr

from tests.builtin_tools import ALIASES
from toolgate import Actor, App, tool
from toolgate.registry import export
from toolgate.registry.export import count_tokens, definition_text, is_exact
from toolgate.store.database import Rows, Transaction, moment
from toolgate.testing import memory_app

TOOL = (
    'from toolgate import tool\n@tool(tier="read_only")\ndef {name}() -> str:\n    """Say a name."""\n    return "{name}"\n'
)


@tool(tier="read_only", timeout=5)
async def divide(a: float, b: float) -> float:
    """Divide two numbers."""
    return a / b


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two installed distributions: one offers a function and a package of tools, the other is broken."""
    site = tmp_path / "site"
    inner = site / "offered_tools"
    inner.mkdir(parents=True)
    (site / "offered_one.py").write_text(TOOL.format(name="offered_one") + TOOL.format(name="not_offered"))
    (inner / "__init__.py").write_text("from offered_tools.deep import offered_deep\nfrom offered_one import not_offered\n")
    (inner / "deep.py").write_text(TOOL.format(name="offered_deep"))
    for name, points in {
        "offered": "one = offered_one:offered_one\nmany = offered_tools\n",
        "wrong": "lost = offered_nowhere\nplain = os:getcwd\n",
    }.items():
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[toolgate.tools]\n{points}")
    monkeypatch.syspath_prepend(str(site))
    return site


async def names(app: App, source: Any = None) -> set[str]:
    return {found.name for found in await app.tools.list(source=source)}


@pytest.mark.requirement("REG-1")
async def test_tools_come_with_toolgate_from_a_folder_and_from_installed_packages(packages: Path, tmp_path: Path) -> None:
    folder = tmp_path / "home" / "tools"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(TOOL.format(name="mine"))
    async with App.open(home=tmp_path / "home") as app:
        app.register(divide)
        assert await names(app, "python") == {"mine", "offered_one", "offered_deep", "divide"}
        assert {"echo", "timestamp", "calculator", "datetime"} <= await names(app, "builtin")
        assert await names(app) == {name for one in ("python", "builtin", "workflow") for name in await names(app, one)}
        assert await names(app, "mcp") == set()
        assert [(await app.invoke(name)).output for name in ("mine", "offered_one", "offered_deep")] == [
            "mine", "offered_one", "offered_deep",
        ]  # fmt: skip
        lost, plain = app.tools.problems
    assert lost == ("entry point lost (offered_nowhere)", "ModuleNotFoundError: No module named 'offered_nowhere'")
    assert plain.where == "entry point plain (os:getcwd)"
    assert "it is not declared as a tool" in plain.why
    assert packages.is_dir()


@pytest.mark.requirement("REG-1")
@pytest.mark.parametrize(
    "setting",
    [{"enforcement": {"disable_local_tools": True}}, {"auto_load_custom_tools": False}, {"python_tools": []}],
)
async def test_the_folder_is_not_read_if_the_settings_forbid_it(setting: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "bad.py").write_text("raise RuntimeError")
    async with App.open(home=tmp_path, entry_points=False, **setting) as app:
        assert (await names(app, "python"), app.tools.problems) == (set(), [])
        assert "echo" in await names(app, "builtin")


@pytest.mark.requirement("REG-1", "REG-4")
async def test_without_entry_points_installed_packages_offer_nothing(packages: Path, tmp_path: Path) -> None:
    assert (packages / "offered_one.py").is_file()
    async with App.open(home=tmp_path, entry_points=False) as app:
        assert (await names(app, "python"), app.tools.problems) == (set(), [])


# --------------------------------------------------------------------------------------------------------- on record

FIXED_COLUMNS = {
    "tool_catalog": "name enabled description params source created_at updated_at",
    "tenant_tool_flags": "tenant_id tool_name enabled updated_at",
    "persona_tool_restrictions": "persona_id tool_name allowed reason updated_at",
    "tool_execution_log": "id tool_name tenant_id persona_id session_id args_hash success duration_ms error_message "
    "created_at",
    "dynamic_tools": "id name registered_by_tenant registered_by_persona source_type source_url input_schema enabled "
    "created_at",
}


def select(columns: str, table: str, rest: str = "") -> Transaction[Rows]:
    return (yield f"SELECT {columns} FROM {table} {rest}", {})


@pytest.mark.requirement("REG-2")
@pytest.mark.parametrize(("table", "columns"), FIXED_COLUMNS.items())
async def test_the_tables_of_document_d_are_there_with_its_columns(
    database: str, table: str, columns: str, tmp_path: Path
) -> None:
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        rows = await app.parts.store.read(select(", ".join(columns.split()), table, "LIMIT 1"))
        assert all(len(row) == len(columns.split()) for row in rows)
        assert bool(rows) == (table == "tool_catalog")


@pytest.mark.requirement("REG-2")
async def test_the_execution_log_shows_every_finished_call(database: str, tmp_path: Path) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    actor = Actor(tenant="acme", persona="analyst", user="u-1")
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        app.register(divide)
        good = await app.invoke("divide", {"b": 2, "a": 1}, actor=actor, session="s-1")
        bad = await app.invoke("divide", {"a": 1, "b": 0})
        await app.flush()
        columns = ", ".join(FIXED_COLUMNS["tool_execution_log"].split()[1:])
        first, second = await app.parts.store.read(select(columns, "tool_execution_log", "ORDER BY id"))
    assert bad.error is not None
    hashes = [sha256(text.encode()).hexdigest() for text in ('{"a":1,"b":2}', '{"a":1,"b":0}')]
    assert (*first[:5], bool(first[5]), first[7]) == ("divide", "acme", "analyst", "s-1", hashes[0], True, None)
    assert first[6] == pytest.approx(good.metrics.duration_ms, rel=1e-3)
    assert (*second[:5], bool(second[5]), second[7]) == (
        "divide",
        "default",
        None,
        None,
        hashes[1],
        False,
        bad.error.message,
    )
    assert all(before <= moment(row[8]) <= datetime.now(UTC) + timedelta(milliseconds=1) for row in (first, second))


def described(words: str) -> Any:
    async def divide(a: float, b: float) -> float:
        return a / b

    divide.__doc__ = words
    return tool(tier="read_only")(divide)


COLUMNS = "name, enabled, description, params, fingerprint, created_at, updated_at"


@pytest.mark.requirement("REG-3")
async def test_seeding_again_changes_nothing(database: str, tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
            app.register(divide)
            await app.flush()
            seen.append(await app.parts.store.read(select(COLUMNS, "tool_catalog", "ORDER BY name")))
    assert seen[0] == seen[1]
    assert {"calculator", "datetime", "divide", "echo", "timestamp"} <= {row[0] for row in seen[0]}


@pytest.mark.requirement("REG-3")
async def test_an_operators_changes_survive_the_next_start_and_a_new_description_is_taken(
    database: str, tmp_path: Path
) -> None:
    for words in ("Old words.", "New words."):
        async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
            app.register(described(words))
            if words == "Old words.":
                await app.tools.set_enabled("divide", False, actor=Actor(user="ada"))
                await app.tools.set_enabled("echo", False, tenant="acme")
                await app.tools.set_enabled("timestamp", False, persona="intern", reason="no clocks")
            await app.flush()
            ((*row,),) = await app.parts.store.read(
                select("enabled, enabled_by, description, definition", "tool_catalog", "WHERE name = 'divide'")
            )
            assert (bool(row[0]), row[1], row[2], json.loads(row[3])["description"]) == (False, "ada", words, words)
            assert "divide" not in await names(app)
            assert "echo" not in {found.name for found in await app.tools.list(Actor(tenant="acme"))}
            assert "timestamp" not in {found.name for found in await app.tools.list(Actor(persona="intern"))}


@pytest.mark.requirement("REG-3")
async def test_the_settings_beat_the_seed_and_the_store_beats_the_settings(database: str, tmp_path: Path) -> None:
    off: dict[str, Any] = {"home": tmp_path, "database_url": database, "tools": {"echo": {"enabled": False}}}
    async with App.open(**off) as app:
        assert "echo" not in await names(app)
        await app.tools.set_enabled("echo", True)
        assert "echo" in await names(app)
    async with App.open(**off) as app:
        assert "echo" in await names(app)
        await app.tools.set_enabled("echo", None)
        assert "echo" not in await names(app)
    async with App.open(home=tmp_path, database_url=database) as app:
        assert "echo" in await names(app)


@pytest.mark.requirement("REG-2")
async def test_a_tool_is_on_record_before_a_flag_on_it_however_soon_that_comes(database: str, tmp_path: Path) -> None:
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        app.register(divide)
        await app.parts.store.ping()  # the record is on its way, and not there yet
        await app.tools.set_enabled("divide", False, tenant="acme")
        assert "divide" not in {found.name for found in await app.tools.list(Actor(tenant="acme"))}


# ------------------------------------------------------------------------------------------------------------ tokens


@pytest.mark.requirement("REG-7")
async def test_the_cost_of_a_definition_is_what_the_tokenizer_counts_and_is_kept() -> None:
    encode = splintr.Tokenizer.from_pretrained("o200k_base").encode
    assert is_exact()
    async with memory_app() as app:
        app.register(divide)
        costs = await app.tools.token_costs()
        kept: dict[str, int] = dict(await app.parts.store.read(select("name, token_cost", "tool_catalog")))
        for found in await app.tools.list():
            shown = {"name": found.name, "description": found.description, "parameters": found.input_schema}
            assert json.loads(definition_text(found)) == shown
            assert costs[found.name] == kept[found.name] == len(encode(definition_text(found))) > 10


@pytest.mark.requirement("REG-7")
async def test_an_actor_pays_only_for_what_it_sees() -> None:
    async with memory_app() as app:
        whole = await app.tools.token_costs()
        await app.tools.set_enabled("echo", False, tenant="acme")
        seen = await app.tools.token_costs(Actor(tenant="acme"))
        unseen = {"echo", "ask_model", *ALIASES}  # an internal tool is shown to no model
        assert seen == {name: cost for name, cost in whole.items() if name not in unseen}
        assert sum(seen.values()) == sum(whole.values()) - sum(whole[name] for name in unseen)


@pytest.fixture
def without_tokenizer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if the extra `tokens` were not installed."""
    monkeypatch.setitem(__import__("sys").modules, "splintr", None)
    export._tokenizer.cache_clear()
    yield
    export._tokenizer.cache_clear()


@pytest.mark.requirement("REG-7")
@pytest.mark.usefixtures("without_tokenizer")
async def test_without_a_tokenizer_the_cost_is_an_estimate_that_says_so_and_is_not_kept() -> None:
    assert not is_exact()
    assert [count_tokens("x" * length) for length in (0, 1, 4, 5)] == [0, 1, 1, 2]
    async with memory_app() as app:
        app.register(divide)
        assert (await app.tools.token_costs())["divide"] == -(
            -len(definition_text(app.parts.catalog.resolve("divide", "t").tool)) // 4
        )
        assert {cost for (cost,) in await app.parts.store.read(select("token_cost", "tool_catalog"))} == {None}

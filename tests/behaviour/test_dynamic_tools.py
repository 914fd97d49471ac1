"""Tools that are registered at run time, for one tenant."""

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from toolgate import Actor, App, CallError, DefinitionError, InvokeContext, StoreError, tool
from toolgate.model import Entry
from toolgate.store import audit_log
from toolgate.store.database import Rows, Transaction
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("REG-5")
BUILDER = Actor(tenant="acme", persona="builder", user="u-1")
OTHER = Actor(tenant="globex", persona="builder")
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
FIELDS: dict[str, Any] = {
    "name": "shout", "description": "Say it loudly.", "kind": "loud", "tier": "read_only", "target": "loud.example",
    "input_schema": SCHEMA, "tags": ["fun"],
}  # fmt: skip


class LoudRunner:
    """Runs tools of the kind `loud`: gives the text in capitals, with the target that the definition names."""

    def run(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> Awaitable[Any]:
        return self._shout(ctx, entry, arguments)

    async def _shout(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> str:
        return f"{arguments['text'].upper()} ({ctx.actor.tenant}, {entry.tool.target})"

    async def close(self) -> list[str]:
        return []


def loud_app(database: str, home: Path) -> App:
    app = App.open(home=home, database_url=database, entry_points=False)
    app.add_runner("loud", LoudRunner(), tier="read_only")
    return app


async def seen(app: App, actor: Actor) -> bool:
    """Whether the actor sees the tool and can call it: never one without the other."""
    outcome = await app.invoke("shout", {"text": "hi"}, actor=actor)
    listed = "shout" in {found.name for found in await app.tools.list(actor)}
    assert listed == (outcome.error is None or outcome.error.code != "TOOL_NOT_FOUND")
    return listed


def rows(sql: str) -> Transaction[Rows]:
    return (yield sql, {})


async def test_a_registered_tool_is_called_like_any_other_and_is_still_there_after_a_restart(
    database: str, tmp_path: Path
) -> None:
    async with loud_app(database, tmp_path) as app:
        await app.policy.allow_adding_tools("builder")
        made = await app.tools.add_dynamic(FIELDS, BUILDER)
        assert (made.source, made.tenant, made.tags) == ("dynamic", "acme", ("fun",))
        assert (await app.invoke("shout", {"text": "hi"}, actor=BUILDER)).output == "HI (acme, loud.example)"
        wrong = await app.invoke("shout", {"text": 1}, actor=BUILDER)
        assert wrong.error is not None
        assert wrong.error.code == "VALIDATION_ERROR"
    async with loud_app(database, tmp_path) as app:
        assert (await app.invoke("shout", {"text": "again"}, actor=BUILDER)).output == "AGAIN (acme, loud.example)"
        assert [found.name for found in await app.tools.list(BUILDER, "dynamic")] == ["shout"]
        (again,) = await app.tools.list(BUILDER, "dynamic")
        assert again == made
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        app.approvals.add_approver(lambda _request: True)  # of a kind that nobody speaks for, every call is asked about
        lost = await app.invoke("shout", {"text": "again"}, actor=BUILDER)
        assert lost.error is not None
        assert lost.error.code == "UNKNOWN_TOOL_TYPE"
        app.add_runner("loud", LoudRunner(), tier="read_only")
        assert (await app.invoke("shout", {"text": "late"}, actor=BUILDER)).ok


async def test_the_registration_is_on_record_in_full(database: str, tmp_path: Path) -> None:
    async with loud_app(database, tmp_path) as app:
        await app.policy.allow_adding_tools("builder")
        await app.tools.add_dynamic(FIELDS, BUILDER)
        ((*row, schema, enabled),) = await app.parts.store.read(
            rows("SELECT name, registered_by_tenant, registered_by_persona, source_type, source_url, input_schema, enabled "
                 "FROM dynamic_tools")
        )  # fmt: skip
        audited = (await app.parts.store.read(audit_log.latest(1, tool="shout")))[0]
    assert row == ["shout", "acme", "builder", "loud", "loud.example"]
    assert (json.loads(schema), bool(enabled)) == (SCHEMA, True)
    assert (audited[2], audited[4], audited[6]) == ("tool.registered", "acme", "done")
    assert {"persona": "builder", "user": "u-1"}.items() <= json.loads(audited[7]).items()


async def test_other_tenants_do_not_have_it_and_may_have_one_of_the_same_name(database: str, tmp_path: Path) -> None:
    async with loud_app(database, tmp_path) as app:
        await app.policy.allow_adding_tools("builder")
        await app.tools.add_dynamic(FIELDS, BUILDER)
        assert [await seen(app, actor) for actor in (BUILDER, Actor(tenant="acme"), OTHER, Actor())] == [
            True,
            True,
            False,
            False,
        ]
        await app.tools.add_dynamic({**FIELDS, "target": "other.example"}, OTHER)
        assert (await app.invoke("shout", {"text": "a"}, actor=OTHER)).output == "A (globex, other.example)"
        assert (await app.invoke("shout", {"text": "a"}, actor=BUILDER)).output == "A (acme, loud.example)"


@pytest.mark.parametrize("persona", [None, "stranger", "Builder", "builder ", "former"])
async def test_who_was_not_given_the_right_cannot_register_and_the_attempt_is_on_record(persona: str | None) -> None:
    async with memory_app() as app:
        app.add_runner("loud", LoudRunner(), tier="read_only")
        await app.policy.allow_adding_tools("builder")
        await app.policy.allow_adding_tools("former")
        await app.policy.allow_adding_tools("former", False)
        actor = Actor(tenant="acme", persona=persona)
        with pytest.raises(CallError) as caught:
            await app.tools.add_dynamic(FIELDS, actor)
        assert caught.value.code == "PERMISSION_DENIED"
        assert not await seen(app, actor)
        assert await app.parts.store.read(rows("SELECT name FROM dynamic_tools")) == []
        (denied,) = [
            row
            for row in await app.parts.store.read(audit_log.latest(10, tool="shout"))
            if row[2] == "tool.registration_denied"
        ]
        assert denied[4] == "acme"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"kind": "local"}, "kind"),
        ({"kind": "nowhere"}, "kind"),
        ({"kind": "mcp"}, "mcp"),
        ({"kind": "sandbox"}, "program"),
        ({"mcp": {"url": "https://mcp.example/", "tool": "say"}}, "mcp"),
        ({"requires_auth": {"config_key": "STRIPE"}}, "requires_auth"),
        ({"name": "a b"}, "name"),
        ({"name": "echo"}, "name"),
        ({"input_schema": {"properties": {"a": {"type": "txt"}}}}, "input_schema.properties.a.type"),
    ],
)
async def test_a_bad_registration_is_refused_with_its_path_and_leaves_nothing_behind(
    fields: dict[str, Any], path: str
) -> None:
    async with memory_app() as app:
        app.add_runner("loud", LoudRunner(), tier="read_only")
        await app.policy.allow_adding_tools("builder")
        with pytest.raises(DefinitionError) as caught:
            await app.tools.add_dynamic({**FIELDS, **fields}, BUILDER)
        assert [fault.path for fault in caught.value.faults] == [path]
        assert await app.parts.store.read(rows("SELECT name FROM dynamic_tools")) == []
        assert await app.tools.list(BUILDER, "dynamic") == ()


@pytest.mark.requirement("TOOL-5", "TIER-4")
@pytest.mark.parametrize(("kind_tier", "declared", "effective"), [
    (None, "read_only", "external_api"), ("write", "read_only", "write"), ("read_only", "execute", "execute"),
])  # fmt: skip
async def test_what_a_call_risks_is_said_by_the_kind_and_not_by_who_registers_it(
    database: str, tmp_path: Path, kind_tier: Any, declared: str, effective: str
) -> None:
    fields = {**FIELDS, "tier": declared, "annotations": {"readOnlyHint": True}}
    more = {} if kind_tier is None else {"tier": kind_tier}
    for registers in (True, False):
        app = App.open(home=tmp_path, database_url=database, entry_points=False)
        async with app:
            app.add_runner("loud", LoudRunner(), **more)
            if registers:
                await app.policy.allow_adding_tools("builder")
                await app.tools.add_dynamic(fields, BUILDER)
            assert app.parts.catalog.resolve("shout", "acme").tier == effective
            outcome = await app.invoke("shout", {"text": "hi"}, actor=BUILDER)
            assert (outcome.status == "pending") == (effective in ("execute", "external_api"))
            assert app.tools.problems == []
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        assert app.parts.catalog.resolve("shout", "acme").tier == "external_api", (
            "of a kind that nobody speaks for, the most"
        )
    with pytest.raises(ValueError, match="tier must be"):
        memory_app().add_runner("loud", LoudRunner(), tier="none")  # type: ignore[arg-type]


async def test_neither_the_tenant_nor_the_source_is_the_callers_to_choose() -> None:
    async with memory_app() as app:
        app.add_runner("loud", LoudRunner(), tier="read_only")
        await app.policy.allow_adding_tools("builder")
        with pytest.raises(DefinitionError) as caught:
            await app.tools.add_dynamic({**FIELDS, "tenant": "globex", "source": "builtin"}, BUILDER)
        assert sorted(fault.path for fault in caught.value.faults) == ["source", "tenant"]
        made = await app.tools.add_dynamic(FIELDS, BUILDER)
        assert (made.tenant, made.source) == ("acme", "dynamic")
        assert not await seen(app, OTHER)


@pytest.mark.requirement("REG-4")
async def test_it_can_be_switched_off_like_any_other_for_its_tenant_and_for_a_persona(database: str, tmp_path: Path) -> None:
    intern = Actor(tenant="acme", persona="intern")
    async with loud_app(database, tmp_path) as app:
        await app.policy.allow_adding_tools("builder")
        await app.tools.add_dynamic(FIELDS, BUILDER)
        await app.tools.add_dynamic(FIELDS, OTHER)
        await app.tools.set_enabled("shout", False, persona="intern", actor=BUILDER)
        assert [await seen(app, actor) for actor in (BUILDER, intern, OTHER)] == [True, False, True]
        await app.tools.set_enabled("shout", False, actor=BUILDER)
        assert [await seen(app, actor) for actor in (BUILDER, intern, OTHER)] == [False, False, True]
    async with loud_app(database, tmp_path) as app:
        assert [await seen(app, actor) for actor in (BUILDER, OTHER)] == [False, True]
        await app.tools.set_enabled("shout", True, actor=BUILDER)
        assert await seen(app, BUILDER)


@pytest.mark.requirement("REG-4")
async def test_one_that_settings_disable_is_so_from_the_start() -> None:
    async with memory_app(tools={"shout": {"enabled": False}}) as app:
        app.add_runner("loud", LoudRunner(), tier="read_only")
        await app.policy.allow_adding_tools("builder")
        await app.tools.add_dynamic(FIELDS, BUILDER)
        assert not await seen(app, BUILDER)


async def test_the_others_on_the_same_database_get_it_without_a_restart(database: str, tmp_path: Path) -> None:
    async with loud_app(database, tmp_path / "a") as one, loud_app(database, tmp_path / "b") as other:
        await one.policy.allow_adding_tools("builder")
        await one.tools.add_dynamic(FIELDS, BUILDER)
        async with asyncio.timeout(30):
            while not await seen(other, BUILDER):
                await asyncio.sleep(0.02)
        assert (await other.invoke("shout", {"text": "a"}, actor=BUILDER)).ok


async def test_two_processes_cannot_both_register_a_name(database: str, tmp_path: Path) -> None:
    async with loud_app(database, tmp_path / "a") as one, loud_app(database, tmp_path / "b") as other:
        await one.policy.allow_adding_tools("builder")
        await other.refresh()
        tries = [app.tools.add_dynamic({**FIELDS, "target": target}, BUILDER) for app, target in ((one, "1"), (other, "2"))]
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sorted(isinstance(result, StoreError | DefinitionError) for result in results) == [False, True]
        await one.refresh()
        await other.refresh()
        outputs = {(await app.invoke("shout", {"text": "a"}, actor=BUILDER)).output for app in (one, other)}
        assert len(outputs) == 1


async def test_a_name_that_a_program_takes_later_is_the_programs(database: str, tmp_path: Path) -> None:
    @tool(tier="read_only")
    async def shout(text: str) -> str:
        """Whisper."""
        return text.lower()

    async with loud_app(database, tmp_path) as app:
        await app.policy.allow_adding_tools("builder")
        await app.tools.add_dynamic(FIELDS, BUILDER)
    app = loud_app(database, tmp_path)
    app.register(shout)
    async with app:
        assert (await app.invoke("shout", {"text": "Hi"}, actor=BUILDER)).output == "hi"
        assert [problem.where for problem in app.tools.problems] == ["dynamic tool shout of tenant acme"]
        await app.refresh()
        assert len(app.tools.problems) == 1


@pytest.mark.parametrize("change", [None, {"tenant": "globex"}, {"tenant": None}, {"source": "builtin"}, {"name": "other"}])
async def test_a_record_that_contradicts_itself_is_a_problem_and_no_tool(
    change: dict[str, Any] | None, database: str, tmp_path: Path
) -> None:
    async with loud_app(database, tmp_path) as app:
        await app.policy.allow_adding_tools("builder")
        for name in ("shout", "cry"):
            await app.tools.add_dynamic({**FIELDS, "name": name}, BUILDER)
        made = json.loads(app.tools.get("shout", BUILDER).tool.model_dump_json())
        await app.parts.store.transact(rewritten([] if change is None else {**made, **change}))
    async with loud_app(database, tmp_path) as app:
        for actor in (BUILDER, Actor(tenant="globex", persona="builder")):
            own = {tool.name for tool in await app.tools.list(actor) if tool.name in ("shout", "cry", "other")}
            assert own == ({"cry"} if actor is BUILDER else set())
        assert any("dynamic tool shout of tenant" in problem.where for problem in app.tools.problems)


def rewritten(definition: Any) -> Transaction[Rows]:
    text = json.dumps(definition)
    return (yield "UPDATE dynamic_tools SET definition = :text WHERE name = 'shout' RETURNING name", {"text": text})

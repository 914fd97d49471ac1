"""Who has a tool: everybody, a tenant, a persona. What one does not have is not there."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.patience import until
from toolgate import Actor, App, CallError, Outcome, tool
from toolgate.model import ErrorInfo
from toolgate.store import audit_log, catalog
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("REG-4")
ACME, GLOBEX = Actor(tenant="acme"), Actor(tenant="globex")
INTERN = Actor(tenant="acme", persona="intern")


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        app.register(add)
        yield app


async def has(app: App, actor: Actor | None = None, name: str = "add") -> bool:
    """Whether the actor sees the tool and can call it: never one without the other."""
    seen = name in {found.name for found in await app.tools.list(actor)}
    outcome = await app.invoke(name, {"a": 1, "b": 2}, actor=actor)
    assert seen == (outcome.error is None or outcome.error.code != "TOOL_NOT_FOUND")
    return seen


async def test_a_tool_is_switched_off_and_on_for_everybody(app: App) -> None:
    assert await has(app)
    await app.tools.set_enabled("add", False)
    assert not await has(app)
    assert not await has(app, INTERN)
    await app.tools.set_enabled("add", True)
    assert await has(app)


async def test_a_tenants_own_flag_beats_what_holds_for_everybody(app: App) -> None:
    await app.tools.set_enabled("add", False, tenant="acme")
    assert [await has(app, actor) for actor in (ACME, INTERN, GLOBEX, None)] == [False, False, True, True]
    await app.tools.set_enabled("add", False)
    await app.tools.set_enabled("add", True, tenant="acme")
    assert [await has(app, actor) for actor in (ACME, INTERN, GLOBEX, None)] == [True, True, False, False]
    await app.tools.set_enabled("add", None, tenant="acme")
    assert [await has(app, actor) for actor in (ACME, GLOBEX)] == [False, False]


async def test_a_persona_can_be_denied_a_tool_in_every_tenant(app: App) -> None:
    await app.tools.set_enabled("add", False, persona="intern", reason="still learning")
    elsewhere = Actor(tenant="globex", persona="intern")
    assert [await has(app, actor) for actor in (INTERN, elsewhere, ACME, Actor(persona="analyst"))] == [
        False,
        False,
        True,
        True,
    ]
    await app.tools.set_enabled("add", True, persona="intern")
    assert await has(app, INTERN)


async def test_many_flags_are_set_at_once(app: App) -> None:
    await app.tools.set_flags([(f"t{number}", "add", number % 2 == 0) for number in range(500)])
    assert [await has(app, Actor(tenant=f"t{number}")) for number in range(6)] == [True, False] * 3


FLAG = st.none() | st.booleans()


@at_most(60)
@given(everybody=FLAG, tenant=FLAG, persona=FLAG)
async def test_the_nearest_flag_decides_but_a_persona_that_is_denied_stays_so(
    app: App, everybody: bool | None, tenant: bool | None, persona: bool | None
) -> None:
    await app.tools.set_enabled("add", everybody)
    await app.tools.set_enabled("add", tenant, tenant="acme")
    await app.tools.set_enabled("add", persona, persona="intern")
    expected = tenant if tenant is not None else everybody is not False
    assert await has(app, ACME) == expected
    assert await has(app, INTERN) == (expected and persona is not False)


# ------------------------------------------------------------------------------------------------- not there, and why


def shown(outcome: Outcome) -> Any:
    """All that the caller is told, but for the call's own id, time and the name it asked for."""
    told = msgspec.to_builtins(outcome)
    told["metrics"].pop("duration_ms")
    return json.loads(json.dumps({**told, "id": None}).replace(outcome.tool, "NAME"))


@pytest.mark.requirement("POL-7")
@pytest.mark.parametrize(
    ("switch", "why"),
    [
        (lambda app: app.tools.set_enabled("add", False), "add is disabled"),
        (lambda app: app.tools.set_enabled("add", False, tenant="acme"), "add is disabled for tenant acme"),
        (
            lambda app: app.tools.set_enabled("add", False, persona="intern", reason="still learning"),
            "persona intern: still learning",
        ),
    ],
)
async def test_a_tool_that_one_does_not_have_looks_like_none_but_the_log_knows_better(
    app: App, switch: Callable[[App], Awaitable[None]], why: str
) -> None:
    await switch(app)
    for arguments in ({"a": 1, "b": 2}, {"wrong": True}, None, "not json"):
        hidden = await app.invoke("add", arguments, actor=INTERN)
        missing = await app.invoke("nix", arguments, actor=INTERN)
        assert shown(hidden) == shown(missing)
        assert isinstance(hidden.error, ErrorInfo)
        assert hidden.error.code == "TOOL_NOT_FOUND"
        await app.flush()
        reasons = [
            json.loads((await app.parts.store.read(audit_log.of_call(call.id)))[-1][7])["decision"]
            for call in (hidden, missing)
        ]
        assert reasons == [why, "no such tool"]


async def test_a_switch_is_on_record_with_who_did_it_and_why(app: App) -> None:
    await app.tools.set_enabled("add", False, tenant="acme", reason="budget", actor=Actor(user="ada"))
    await app.tools.set_enabled("add", True, actor=Actor(user="bob"))
    rows = [(row[2], row[5], json.loads(row[7])) for row in await app.parts.store.read(audit_log.latest(10, tool="add"))]
    assert [(kind, tool, body["user"], body["for_tenant"], body["reason"]) for kind, tool, body in rows] == [
        ("tool.disabled", "add", "ada", "acme", "budget"),
        ("tool.enabled", "add", "bob", None, None),
    ]


async def test_what_does_not_exist_cannot_be_switched(app: App) -> None:
    with pytest.raises(CallError) as caught:
        await app.tools.set_enabled("nix", False)
    assert caught.value.code == "TOOL_NOT_FOUND"


# ---------------------------------------------------------------------------------------------------------- enforced


async def test_what_an_organisation_enforces_nobody_can_disable(database: str, tmp_path: Path) -> None:
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        await app.tools.set_enabled("echo", False)
        await app.tools.set_enabled("echo", False, tenant="acme")
        await app.tools.set_enabled("echo", False, persona="intern")
        await app.policy.deny("echo", reason="a mistake")
        assert not await has(app, ACME, "echo")
    enforced: dict[str, Any] = {"enforcement": {"enforced_tools": ["echo"]}, "tools": {"echo": {"enabled": False}}}
    async with App.open(home=tmp_path, database_url=database, entry_points=False, **enforced) as app:
        assert await has(app, ACME, "echo")
        assert await has(app, None, "echo")
        intern = Actor("acme", "intern", "ida")
        assert (await app.invoke("echo", {"text": "hello"}, actor=intern)).ok
        assert "echo" in [tool.name for tool in await app.tools.list(intern)]
        with pytest.raises(CallError, match="Cannot deny tool: echo"):
            await app.policy.deny("echo")
        everybody: dict[str, Any] = {}
        for whom in (everybody, {"tenant": "acme"}, {"persona": "intern"}):
            with pytest.raises(CallError, match="enforced") as caught:
                await app.tools.set_enabled("echo", False, **whom)
            assert caught.value.code == "PERMISSION_DENIED"
        await app.tools.set_enabled("echo", True)


# ----------------------------------------------------------------------------------------------------- other processes


async def test_a_change_reaches_the_others_on_the_same_database_without_a_restart(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolgate.app.sync.EPOCH_POLL_SECONDS", 3_600)
    here: dict[str, Any] = {"database_url": database, "entry_points": False}
    async with App.open(home=tmp_path / "a", **here) as one, App.open(home=tmp_path / "b", **here) as other:
        await one.tools.set_enabled("echo", False, tenant="acme")
        await one.tools.set_enabled("timestamp", False, persona="intern")

        async def arrived() -> bool:
            return not await has(other, ACME, "echo") and not await has(other, INTERN, "timestamp")

        if database.startswith("sqlite"):
            assert await arrived()  # the very next call sees it
        else:
            await until(arrived)  # a notice travels; it is not waited for until the next poll
        assert await has(other, GLOBEX, "echo")
        await one.tools.set_enabled("echo", None, tenant="acme")
        await until(lambda: has(other, ACME, "echo"))


async def test_an_older_view_of_the_flags_never_replaces_a_newer_one(database: str, tmp_path: Path) -> None:
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        for turn in range(10):
            switches = [app.tools.set_enabled("echo", (number + turn) % 2 == 0, tenant=f"t{number}") for number in range(10)]
            await asyncio.gather(*switches)
            stored = (await app.parts.store.read(catalog.flags())).tenants
            assert {tenant: await has(app, Actor(tenant=tenant), "echo") for tenant in stored} == {
                tenant: flags["echo"] for tenant, flags in stored.items()
            }

"""What is ruled for a tool holds for its second name, which models are not shown and can call."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.builtin_tools import ALIASES
from toolgate import Actor, App
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TIER-2")
ANN = Actor("acme", "clerk", "ann")


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        yield app


async def code_of(app: App, name: str, folder: Path, actor: Actor = ANN) -> str | None:
    outcome = await app.invoke(name, {"path": "a.txt"}, actor=actor, workspace=folder)
    return None if outcome.error is None else outcome.error.code


async def listed(app: App) -> set[str]:
    return {one["name"] for one in await app.tools.export("mcp", ANN)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("text")
    return tmp_path


@pytest.mark.parametrize("first", sorted(set(ALIASES.values())))
async def test_a_denied_or_disabled_tool_is_so_by_its_second_name(app: App, first: str) -> None:
    second = next(name for name, of in ALIASES.items() if of == first)
    await app.policy.deny(first, True)
    await is_gone(app, first, second)
    await app.policy.deny(first, False)
    assert first in await listed(app)
    await app.tools.disable(first)
    await is_gone(app, first, second)


async def is_gone(app: App, *names: str) -> None:
    assert await listed(app) & set(names) == set()
    for name in names:
        outcome = await app.invoke(name, {}, actor=ANN)
        assert outcome.error is not None and outcome.error.code == "TOOL_NOT_FOUND", name


async def test_a_tool_that_is_off_for_a_tenant_or_a_persona_is_so_by_its_second_name(app: App, folder: Path) -> None:
    assert await code_of(app, "file_read", folder) is None
    await app.tools.disable("read_file", tenant="acme")
    assert await code_of(app, "file_read", folder) == "TOOL_NOT_FOUND"
    assert await code_of(app, "file_read", folder, Actor("other", user="ann")) is None
    await app.tools.enable("read_file", tenant="acme")
    assert await code_of(app, "file_read", folder) is None
    await app.tools.disable("read_file", persona="clerk")
    assert await code_of(app, "file_read", folder) == "TOOL_NOT_FOUND"
    assert await code_of(app, "file_read", folder, Actor("acme", user="ann")) is None


async def test_a_raised_tier_and_named_approvers_hold_for_the_second_name(folder: Path) -> None:
    rules = [{"tool": "read_file", "approvers": ["cleo"]}]
    async with memory_app(tier_overrides={"read_file": "external_api"}, approvals={"rules": rules}) as app:
        outcome = await app.invoke("file_read", {"path": "a.txt"}, actor=ANN, workspace=folder)
        assert outcome.error is not None and outcome.error.details is not None
        assert outcome.error.code == "APPROVAL_REQUIRED"
        asked = (await app.approvals.get(outcome.error.details["approval"], "acme")).request
        assert not app.approvals.may_answer(asked, Actor("acme", user="bob"), "cli")
        assert app.approvals.may_answer(asked, Actor("acme", user="cleo"), "cli")

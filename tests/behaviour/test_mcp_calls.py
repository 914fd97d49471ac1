"""What the pipeline does for calls of tools on MCP servers, besides asking them."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_upstream import Upstream, tool
from tests.secret_use import named
from toolgate import App

pytestmark = pytest.mark.requirement("MCP-1")

FAILS = {"content": [{"type": "text", "text": "no such row"}], "isError": True}


@asynccontextmanager
async def opened(folder: Path, server: dict[str, Any], **more: Any) -> AsyncIterator[App]:
    """An App with one server, whose tools are in use."""
    async with App.open(home=folder / "home", servers={"one": {"trust_first_seen": True, **server}}, **more) as app:
        await app.servers.refresh("one")
        yield app


async def test_a_server_that_answers_is_well_whatever_it_answers(tmp_path: Path) -> None:
    """Its tools share one circuit: one that fails on what it is given must not shut the others."""
    upstream = Upstream(tmp_path, tool("fails"), tool("works"), answers={"fails": FAILS})
    async with opened(tmp_path, upstream.settings(), breaker={"failures": 2}) as app:
        for _ in range(5):
            outcome = await app.invoke("mcp_one_fails", {})
            assert outcome.error is not None
            assert (outcome.error.code, outcome.error.message) == ("MCP_ERROR", "no such row")
        assert (await app.invoke("mcp_one_works", {})).ok


async def test_one_that_can_not_be_reached_is_left_alone_after_a_while(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, tool("works"))
    async with opened(tmp_path, upstream.settings(restarts=0), breaker={"failures": 2}) as app:
        assert (await app.invoke("mcp_one_works", {})).ok
        upstream.file.unlink()
        await app.parts.servers_engine["one"].stop()
        codes = [
            outcome.error and outcome.error.code for outcome in [await app.invoke("mcp_one_works", {}) for _ in range(3)]
        ]
    assert codes == ["CONNECTION_ERROR", "CONNECTION_ERROR", "CIRCUIT_OPEN"]


@pytest.mark.requirement("MCP-3", "IO-2", "IO-5")
async def test_a_secret_goes_to_no_server_that_was_not_named_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_CARD", "4000-1234-5678")
    upstream = Upstream(tmp_path, tool("says"), tool("pays"))
    pays = named("CARD", "pays", server="one")
    by_name_here, of_another = named("CARD", "mcp_one_pays"), named("CARD", "pays", server="two")
    for secrets, name, code in (
        ({}, "says", "PERMISSION_DENIED"),
        (pays, "says", "PERMISSION_DENIED"),
        (by_name_here, "pays", "PERMISSION_DENIED"),
        (of_another, "pays", "PERMISSION_DENIED"),
        (pays, "pays", None),
    ):
        async with opened(tmp_path, upstream.settings(), secrets=secrets) as app:
            outcome = await app.invoke(f"mcp_one_{name}", {"text": "{{secret:CARD}}"})
            assert (outcome.error and outcome.error.code) == code
            assert "4000-1234-5678" not in json.dumps(outcome.to_dict())


async def test_a_jailed_server_ends_in_order_when_the_app_does(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The sandbox, which holds it, is closed after it: nothing is killed, and nothing is started again."""
    upstream = Upstream(tmp_path, tool("works"))
    read = [str(upstream.file), str(Path(upstream.command[-2]))]
    with caplog.at_level(logging.WARNING, "toolgate"):
        async with opened(tmp_path, upstream.settings(isolation="required", read=read)) as app:
            assert (await app.invoke("mcp_one_works", {})).ok
            [standing] = app.parts.servers_engine.statuses()
            assert standing.jail is not None
    assert [record.message for record in caplog.records if record.name.startswith("toolgate")] == []

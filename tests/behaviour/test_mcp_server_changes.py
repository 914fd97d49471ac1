"""Clients are told when what they see has changed, and of nothing that is not theirs."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.subscriptions import ToolsListChanged

from tests.behaviour.test_dynamic_tools import FIELDS, LoudRunner
from tests.mcp_clients import connected, key_for
from tests.serving import Site, serving
from toolgate import Actor, App, tool
from toolgate.mcp.server.change_notifications import ChangeNotifier
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("MCP-4", "REG-5")

ADA = Actor("acme", "analyst", "ada")
BOB = Actor("other", None, "bob")
SOON = 30.0
"""Seconds in which a change is told."""
QUIET = 0.8
"""Seconds after which nothing is told any more."""


@tool(tier="read_only")
async def extra() -> str:
    """One more."""
    return "extra"


class Told:
    """What a client was told of its list of tools."""

    def __init__(self) -> None:
        self.times = 0
        self._news = asyncio.Event()

    def note(self) -> None:
        self.times += 1
        self._news.set()

    async def once(self) -> None:
        async with asyncio.timeout(SOON):
            await self._news.wait()
        self._news.clear()

    async def __call__(self, message: Any) -> None:
        """The message handler of a client of the handshake era."""
        if isinstance(message, types.ToolListChangedNotification):
            self.note()


async def listening(stack: AsyncExitStack, site: Site, key: str, era: str) -> Told:
    """A client that listens, until the stack is closed."""
    told = Told()
    if era == "legacy":
        client = await stack.enter_async_context(connected(site, key, era, message_handler=told))
        await client.list_tools()  # whoever has seen no list need not be told that it changed
        return told
    client = await stack.enter_async_context(connected(site, key, era))
    stream = await stack.enter_async_context(client.listen(tools_list_changed=True))

    async def hear() -> None:
        async for event in stream:
            assert isinstance(event, ToolsListChanged)
            told.note()

    hearing = asyncio.create_task(hear())
    stack.callback(hearing.cancel)
    return told


CHANGES: dict[str, Callable[[App], Awaitable[Any]]] = {
    "a tool is registered": lambda app: _registered(app),
    "a tool is registered at run time": lambda app: _registered_at_run_time(app),
    "a tool is switched off for the tenant": lambda app: app.tools.set_enabled("calculator", False, tenant="acme"),
    "a tool is denied to the persona": lambda app: app.tools.set_enabled("echo", False, persona="analyst"),
    "a tool is denied to all": lambda app: app.policy.deny("datetime"),
}


async def _registered(app: App) -> None:
    app.register(extra)


async def _registered_at_run_time(app: App) -> None:
    app.add_runner("loud", LoudRunner(), tier="read_only")
    await app.policy.allow_adding_tools("analyst")
    await app.tools.add_dynamic(FIELDS, ADA)


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.sample(2)
async def test_a_client_is_told_once_that_its_list_has_changed(era: str, what: str) -> None:
    async with memory_app() as app, serving(app) as site, AsyncExitStack() as stack:
        told = await listening(stack, site, await key_for(app, ADA), era)
        await CHANGES[what](app)
        await told.once()
        await asyncio.sleep(QUIET)
        assert told.times == 1


@pytest.mark.requirement("DOOR-3")
@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_who_is_not_concerned_is_not_told(era: str) -> None:
    async with memory_app() as app, serving(app) as site, AsyncExitStack() as stack:
        ada = await listening(stack, site, await key_for(app, ADA), era)
        bob = await listening(stack, site, await key_for(app, BOB), era)
        await app.tools.set_enabled("calculator", False, tenant="acme")
        await ada.once()
        await app.tools.set_enabled("calculator", False, tenant="other")
        await bob.once()
        await app.tools.set_enabled("calculator", True, tenant="third")
        await asyncio.sleep(QUIET)
        assert (ada.times, bob.times) == (1, 1)


async def test_what_another_process_changed_is_told_too(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(App.open(home=tmp_path))
        other = await stack.enter_async_context(App.open(home=tmp_path))
        site = await stack.enter_async_context(serving(app))
        told = await listening(stack, site, await key_for(app, ADA), "2026-07-28")
        await other.tools.set_enabled("calculator", False, tenant="acme")
        await told.once()


async def test_clients_that_left_leave_nothing_behind() -> None:
    async with memory_app() as app, serving(app) as site:
        await asyncio.shield(site.http.mcp.by_sdk)
        heard = [getattr(one, "__self__", None) for one in app.parts.servers_engine._listeners]
        [watchers] = [one._watchers for one in heard if isinstance(one, ChangeNotifier)]
        for era in ("legacy", "2026-07-28"):
            async with AsyncExitStack() as stack:
                await listening(stack, site, await key_for(app, ADA), era)
                assert len(watchers) == 1
            async with asyncio.timeout(SOON):
                while watchers:
                    await asyncio.sleep(0.01)

"""What a call and a list take does not depend on how many tools and tenants there are: the work is counted, not timed."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.many_tools import many
from toolgate import Actor, App
from toolgate.testing import memory_app
from toolgate.tool_search import semantic_search

pytestmark = pytest.mark.requirement("REG-6")
FEW, MANY = 10, 300
TENANTS = 1_000
SLACK = 1.2
"""The share by which the work may be more: one call in a while refreshes something."""


async def work_of(doing: Callable[[], Awaitable[Any]]) -> int:
    """How many functions run, of Python and of C."""
    count = 0

    def counted(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        await doing()
    finally:
        sys.setprofile(None)
    return count


async def filled(app: App, tools: int, tenants: int) -> None:
    app.tools.register_many(many(tools))
    await app.tools.set_flags([(f"tenant-{number}", "assign_invoice", False) for number in range(tenants)])


async def _at_once(work: Callable[..., Any], *given: Any) -> Any:
    return work(*given)


@pytest.mark.parametrize("what", ["call", "list", "search"])
async def test_a_call_a_list_and_a_search_take_no_more_among_many_tools_and_tenants(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semantic_search, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(semantic_search, "to_thread", _at_once)  # what runs in a thread would not be counted
    monkeypatch.setattr(semantic_search, "MAX_FOUND", 3)  # the work for each that is found
    counted = []
    for tools, tenants in ((FEW, 1), (MANY, TENANTS)):
        async with memory_app() as app:
            await filled(app, tools, tenants)
            actor = Actor("tenant-0", user="ann")

            async def doing(app: App = app, actor: Actor = actor) -> None:
                if what == "call":
                    assert (await app.invoke("archive_invoice", {"number": 1}, actor=actor)).ok
                elif what == "search":
                    ranking = await app.tools.search("archive an invoice that is paid", actor)
                    assert (ranking.found[0].tool.name, ranking.basis) == ("archive_invoice", "meaning")
                else:
                    assert len(await app.tools.list(actor)) >= FEW

            for _ in range(3):
                await doing()  # what is kept is made
            counted.append(min([await work_of(doing) for _ in range(3)]))
    few, much = counted
    assert 0 < much <= SLACK * few, counted

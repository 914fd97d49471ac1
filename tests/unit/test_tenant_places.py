"""Places for processes: few at once, and fewer of one tenant."""

import asyncio
from contextlib import AsyncExitStack

from toolgate.sandbox.tenant_places import MAX_PROCESSES, MAX_TENANT_PROCESSES, TenantPlaces

SOON = 10


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_tenant_takes_few_places_and_leaves_others_theirs() -> None:
    places, over, running = TenantPlaces(), asyncio.Event(), list[str]()

    async def work(tenant: str) -> None:
        async with places.place(tenant):
            running.append(tenant)
            await over.wait()

    greedy = [asyncio.ensure_future(work("greedy")) for _ in range(50)]
    await settle()
    assert running == ["greedy"] * MAX_TENANT_PROCESSES
    others = [asyncio.ensure_future(work(f"t{number}")) for number in range(MAX_PROCESSES)]
    await settle()
    assert len(running) == MAX_PROCESSES
    assert running.count("greedy") == MAX_TENANT_PROCESSES
    greedy[-1].cancel()
    over.set()
    async with asyncio.timeout(SOON):
        await asyncio.gather(*greedy, *others, return_exceptions=True)
    assert len(running) == 49 + MAX_PROCESSES
    assert places._tenants == {}


async def test_a_place_is_given_back_whatever_happens() -> None:
    places = TenantPlaces()
    async with asyncio.timeout(SOON):
        for _ in range(MAX_PROCESSES * 2):
            try:
                async with places.place("a"):
                    raise ValueError
            except ValueError:
                pass
        async with AsyncExitStack() as stack:
            for number in range(MAX_PROCESSES):
                await stack.enter_async_context(places.place(f"t{number}"))

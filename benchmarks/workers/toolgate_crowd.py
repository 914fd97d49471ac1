"""Toolgate with 100,000 tools in the catalog and flags of 10,000 tenants: is a call still as quick, and is the list?

`hot` is one tool for one tenant; `spread` takes another tool and another tenant each time, so that nothing is found cached.
"""

import asyncio
import random
import tempfile
from itertools import cycle
from time import perf_counter_ns
from typing import Any

from measure import add, serve, timed
from toolgate_add import ACTOR, output

from toolgate import Actor, App, tool
from toolgate.registry.compile import compile_entry, entry_of

TOOLS, TENANTS, CALLS = 100_000, 10_000, 50_000


async def fill(app: App) -> None:
    """Definitions made by the thousand, as a source of tools makes them: `@tool` would read the same hints 100,000 times."""
    one = entry_of(tool(tier="read_only")(add))
    app.register(one)
    named = (one.tool.model_copy(update={"name": f"t{number}"}) for number in range(TOOLS))
    app.tools.register_many(compile_entry(made, one.implementation) for made in named)
    await app.tools.set_flags((f"tenant-{number}", f"t{number}", False) for number in range(TENANTS))


def spread_calls() -> Any:
    """Pairs of a tool and an actor, none of them twice before the first comes again; no tenant meets its disabled tool."""
    chosen = random.Random(1)
    actors = [Actor(tenant=f"tenant-{number}", persona="analyst", user="u-1") for number in range(TENANTS)]
    return cycle([(f"t{chosen.randrange(TENANTS, TOOLS)}", chosen.choice(actors)) for _ in range(CALLS)])


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        async with App.open(home=home) as app:
            await fill(app)
            calls = spread_calls()
            fresh = (Actor(tenant=f"tenant-{number}", persona="analyst", user="u-9") for number in range(TENANTS))

            def spread() -> Any:
                name, actor = next(calls)
                return app.invoke(name, {"a": 1, "b": 2}, actor=actor)

            async def list_for(actor: Actor) -> dict[str, Any]:
                begin = perf_counter_ns()
                permitted = await app.tools.list(actor)
                took = perf_counter_ns() - begin
                if len(permitted) < TOOLS // 2:
                    raise AssertionError(f"only {len(permitted)} tools permitted")
                return {"ms": took / 1e6}

            async def list_cached(_: dict[str, Any]) -> dict[str, Any]:
                await app.tools.list(ACTOR)
                return await list_for(ACTOR)

            await serve(
                {
                    "hot": timed(lambda: app.invoke("add", {"a": 1, "b": 2}, actor=ACTOR), output),
                    "spread": timed(spread, output),
                    "list_cold": lambda _: list_for(next(fresh)),
                    "list_cached": list_cached,
                }
            )


if __name__ == "__main__":
    asyncio.run(main())

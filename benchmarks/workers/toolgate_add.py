"""Toolgate: `App.invoke` with default settings, every gate on, audit into a SQLite file.

The actor is made once, as a session has it; `actor_each` makes one for every call. `suspends` calls a tool that waits, which
needs a timer for its timeout. `closing` counts what `run` leaves for later: the records are all on disk when it is over.
"""

import asyncio
import tempfile
from time import perf_counter_ns
from typing import Any

from measure import TURN, add, add_later, serve, timed

from toolgate import Actor, App, tool

ACTOR = Actor(tenant="acme", persona="analyst", user="u-1")
TOOLS = (tool(tier="read_only")(add), tool(tier="read_only")(add_later))


def output(outcome: Any) -> Any:
    return outcome.output if outcome.status == "success" else outcome


async def closing(request: dict[str, Any]) -> dict[str, Any]:
    """The mean over calls and the close of the App after them."""
    with tempfile.TemporaryDirectory() as home:
        async with App.open(home=home) as app:
            app.register(TOOLS[0])
            await app.invoke("add", {"a": 1, "b": 2}, actor=ACTOR)
            begin = perf_counter_ns()
            for index in range(request["calls"]):
                await app.invoke("add", {"a": 1, "b": 2}, actor=ACTOR)
                if index % TURN == TURN - 1:
                    await asyncio.sleep(0)
        return {"mean": (perf_counter_ns() - begin) / request["calls"] / 1e3}


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        async with App.open(home=home) as app:
            for one in TOOLS:
                app.register(one)

            def actor_each() -> Any:
                return app.invoke("add", {"a": 1, "b": 2}, actor=Actor(tenant="acme", persona="analyst", user="u-1"))

            await serve(
                {
                    "run": timed(lambda: app.invoke("add", {"a": 1, "b": 2}, actor=ACTOR), output),
                    "actor_each": timed(actor_each, output),
                    "suspends": timed(lambda: app.invoke("add_later", {"a": 1, "b": 2}, actor=ACTOR), output),
                    "closing": closing,
                }
            )


if __name__ == "__main__":
    asyncio.run(main())

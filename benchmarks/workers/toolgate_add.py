"""Toolgate: `App.invoke` with default settings, every gate on, audit into a SQLite file.

The actor is made once, as a session has it; `actor_each` makes one for every call. `add` is the easiest tool there is:
it takes no text, so there is nothing to mask, and never waits, so it needs no timer. `text` and `suspends` call tools that
do; `limited` has a rate and a concurrency limit to count. `closing` counts what `run` leaves for later: all records are
on disk when it is over, and it looks whether they are.
"""

import asyncio
import sqlite3
import tempfile
from contextlib import closing as closing_connection
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from measure import THREE_WORDS, TURN, add, add_later, count_words, serve, timed

from toolgate import Actor, App, RateLimit, tool

ACTOR = Actor(tenant="acme", persona="analyst", user="u-1")
ADD = tool(tier="read_only")(add)
OTHERS = (tool(tier="read_only")(add_later), tool(tier="read_only")(count_words))


async def limited(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


LIMITED = tool(tier="read_only", rate_limit=RateLimit(per_minute=100_000_000), concurrency=1_000)(limited)


def output(outcome: Any) -> Any:
    return outcome.output if outcome.status == "success" else outcome


async def closing(request: dict[str, Any]) -> dict[str, Any]:
    """The mean over calls and the close of the App after them."""
    with tempfile.TemporaryDirectory() as home:
        async with App.open(home=home) as app:
            app.register(ADD)
            await app.invoke("add", {"a": 1, "b": 2}, actor=ACTOR)
            begin = perf_counter_ns()
            for index in range(request["calls"]):
                await app.invoke("add", {"a": 1, "b": 2}, actor=ACTOR)
                if index % TURN == TURN - 1:
                    await asyncio.sleep(0)
        took = perf_counter_ns() - begin
        with closing_connection(sqlite3.connect(Path(home) / "toolgate.db")) as database:
            [records] = database.execute(
                "SELECT count(*) FROM audit_log WHERE tool = 'add' AND kind IN ('start', 'end')"
            ).fetchone()
        if records != 2 * (request["calls"] + 1):
            raise AssertionError(f"{records} records of {request['calls'] + 1} calls")
        return {"mean": took / request["calls"] / 1e3}


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        async with App.open(home=home) as app:
            app.tools.register_many((ADD, LIMITED, *OTHERS))
            await app.tools.set_enabled("add", True, tenant="acme")
            await app.tools.set_enabled("limited", False, persona="intern", reason="a rule to look past")

            def actor_each() -> Any:
                return app.invoke("add", {"a": 1, "b": 2}, actor=Actor(tenant="acme", persona="analyst", user="u-1"))

            await serve(
                {
                    "run": timed(lambda: app.invoke("add", {"a": 1, "b": 2}, actor=ACTOR), output),
                    "actor_each": timed(actor_each, output),
                    "suspends": timed(lambda: app.invoke("add_later", {"a": 1, "b": 2}, actor=ACTOR), output),
                    "text": timed(lambda: app.invoke("count_words", {"text": THREE_WORDS}, actor=ACTOR), output),
                    "limited": timed(lambda: app.invoke("limited", {"a": 1, "b": 2}, actor=ACTOR), output),
                    "closing": closing,
                }
            )


if __name__ == "__main__":
    asyncio.run(main())

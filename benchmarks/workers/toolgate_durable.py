"""Toolgate with a tool of tier write and many callers: both records of a call are on disk before its outcome is given."""

import asyncio
import tempfile
from time import perf_counter
from typing import Any

from measure import add, serve
from toolgate_add import ACTOR, output

from toolgate import App, tool


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        async with App.open(home=home) as app:
            app.register(tool(name="put", tier="write")(add))

            async def run(request: dict[str, Any]) -> dict[str, Any]:
                callers = request["callers"]
                each = request["calls"] // callers

                async def caller() -> None:
                    for _ in range(each):
                        outcome = await app.invoke("put", {"a": 1, "b": 2}, actor=ACTOR)
                        if output(outcome) != 3:
                            raise AssertionError(f"1 + 2 gave {outcome!r}")

                begin = perf_counter()
                async with asyncio.TaskGroup() as group:
                    for _ in range(callers):
                        group.create_task(caller())
                return {"per_second": each * callers / (perf_counter() - begin)}

            await serve({"run": run})


if __name__ == "__main__":
    asyncio.run(main())

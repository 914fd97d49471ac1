"""A process that calls a tool at ten cents over and over, and notes each effect and each outcome that it was given.

    python -m tests.hostile.spender FOLDER CALLS AT_ONCE LEASE_SECONDS [DATABASE_URL]

Prints `ready`, waits for a line, makes all calls, so many at once, and prints how many succeeded and how many were over the
budget. Notes in FOLDER are plain appends (`effects`, `returned`: call ids), so that a kill loses none of them.
"""

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

from toolgate import App, InvokeContext, tool

LEASE_SECONDS = 1.0


async def main(folder: Path, calls: int, at_once: int, lease: float, database_url: str | None) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    effects = os.open(folder / "effects", flags, 0o600)
    returned = os.open(folder / "returned", flags, 0o600)

    @tool(tier="write", cost=0.10)
    async def buy(ctx: InvokeContext, number: int) -> int:
        """Costs ten cents."""
        os.write(effects, f"{ctx.id}\n".encode())
        await asyncio.sleep(0.005)
        return number

    limits = {"lease_seconds": lease}
    async with App.open(home=folder / "home", database_url=database_url, limits=limits) as app:
        app.register(buy)
        await app.flush()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)

        room = asyncio.Semaphore(at_once)

        async def call(number: int) -> str:
            async with room:
                outcome = await app.invoke("buy", {"number": number})
            os.write(returned, f"{outcome.id} {outcome.status}\n".encode())
            return "ok" if outcome.error is None else outcome.error.code

        ended = Counter(await asyncio.gather(*(call(number) for number in range(calls))))
        sys.stdout.write(f"{ended.pop('ok', 0)} {ended.pop('BUDGET_EXCEEDED', 0)} {dict(ended)}\n")


if __name__ == "__main__":
    place, count, crowd, lease, *url = sys.argv[1:]
    asyncio.run(main(Path(place), int(count), int(crowd), float(lease), url[0] if url else None))

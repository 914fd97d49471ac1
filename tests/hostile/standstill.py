"""A process that buys once, and waits for a word between its reservation and its call's beginning: to be stopped there.

python -m tests.hostile.standstill FOLDER [DATABASE_URL]
"""

import asyncio
import sys
from pathlib import Path

from tests.hostile.spender import LEASE_SECONDS
from toolgate import App, InvokeContext, tool


class Waits:
    """Says that money is reserved, and goes on when it is told to."""

    async def will_inject_secrets(self, _ctx: InvokeContext) -> None:
        sys.stdout.write("reserved\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)


async def main(folder: Path, url: str | None) -> None:
    @tool(tier="write", cost=0.10)
    async def buy() -> None:
        """Costs ten cents, and leaves a trace."""
        with (folder / "effects").open("a") as effects:
            effects.write("bought\n")

    async with App.open(home=folder / "home", database_url=url, limits={"lease_seconds": LEASE_SECONDS}) as app:
        app.register(buy)
        app.parts.hooks.add(Waits())
        outcome = await app.invoke("buy")
        sys.stdout.write(outcome.error.code if outcome.error else outcome.status)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))

"""A process that calls a tool of tier write over and over, and notes each effect and each outcome it was given.

    python -m tests.hostile.caller FOLDER CALLERS CALLS [DATABASE_URL]

Writes to FOLDER: `effects` (the tool ran: call id), `returned` (the caller has the outcome: call id). Notes are plain
appends straight to the file, so that a kill loses none of them. Prints `ready` before the first call.
"""

import asyncio
import os
import sys
from pathlib import Path

from toolgate import App, InvokeContext, tool


async def main(folder: Path, callers: int, calls: int, database_url: str | None) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    effects = os.open(folder / "effects", flags, 0o600)
    returned = os.open(folder / "returned", flags, 0o600)

    @tool(tier="write")
    async def effect(ctx: InvokeContext, number: int) -> int:
        """Leaves a trace."""
        os.write(effects, f"{ctx.id}\n".encode())
        await asyncio.sleep(0)
        return number

    async with App.open(home=folder / "home", database_url=database_url) as app:
        app.register(effect)
        await app.flush()
        sys.stdout.write("ready\n")
        sys.stdout.flush()

        async def caller() -> None:
            for number in range(calls):
                outcome = await app.invoke("effect", {"number": number})
                assert outcome.ok, outcome
                os.write(returned, f"{outcome.id}\n".encode())

        await asyncio.gather(*(caller() for _ in range(callers)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else None))

"""A process that takes calls from an event stream and leaves a trace of each effect, until somebody kills it.

    python -m tests.hostile.event_worker FOLDER SETTINGS_JSON

The tool `effect` notes its number in FOLDER/effects, straight to the file, so that a kill loses none; with `linger` it then
waits so many seconds, in which it can be killed. Prints `ready` when requests are taken.
"""

import asyncio
import os
import sys
from pathlib import Path

import orjson

from toolgate import App, tool
from toolgate.app.event_stream import taking_events


async def main(folder: Path, settings: dict[str, object]) -> None:
    effects = os.open(folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    @tool(tier="write")
    async def effect(number: int, linger: float = 0.0) -> int:
        """Leaves a trace."""
        os.write(effects, f"{number}\n".encode())
        await asyncio.sleep(linger)
        return number

    async with App.open(home=folder / "home", events=settings, limits={"lease_seconds": 1}) as app:
        app.register(effect)
        await app.flush()
        async with taking_events(app):
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), orjson.loads(sys.argv[2])))

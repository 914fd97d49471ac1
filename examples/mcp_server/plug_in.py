"""Plugs a server of your own into an App: what `toolgate servers add`, `tools accept` and `call` do at a terminal.

The server runs in a jail. It may read its own folder and the Python that runs it, and has no network.
"""

import asyncio
import sys
from pathlib import Path

from toolgate import App

HERE = Path(__file__).resolve().parent
SERVER = {"command": [sys.executable, "server.py"], "cwd": str(HERE), "tools": {"price": {"tier": "read_only"}}}


async def main() -> None:
    async with App.open() as app:
        if not any(status.name == "shop" for status in await app.servers.list()):
            await app.servers.try_out("shop", SERVER)  # raises if it can't be started; nothing is kept then
            await app.servers.add("shop", SERVER)
            await app.servers.refresh("shop")
        for waiting in await app.servers.quarantined("shop"):
            print(f"{waiting.name}: {waiting.found.get('description')}")  # look at it before you accept it
        await app.servers.accept(await app.servers.quarantined("shop"))
        outcome = await app.invoke("mcp_shop_price", {"article": "apple", "pieces": 4})
        print(outcome.status, outcome.output)


asyncio.run(main())

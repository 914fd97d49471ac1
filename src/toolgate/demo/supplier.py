"""The MCP server of the demo: plugged in, accepted, and later changed behind everybody's back."""

import sys

from toolgate.app.app import App
from toolgate.demo.folder import DemoFolder
from toolgate.demo.people import LEAD

NAME = "supplier"
CHANGED = "track_delivery"
"""The tool whose description the server changes, with a character that no eye sees."""


async def plug_in(app: App, folder: DemoFolder) -> None:
    """Adds the server, which runs in a jail, and accepts its tools as it describes them."""
    readers = ("search_catalogue", "quote", CHANGED)
    await app.servers.add(
        NAME,
        {
            "command": [sys.executable, "-I", "-S", "supplier.py"],
            "cwd": str(folder.server),
            "tools": {tool: {"tier": "read_only"} for tool in readers} | {"quote": {"tier": "read_only", "cost": "0.02"}},
        },
    )
    await app.servers.refresh(NAME)
    await app.servers.accept(await app.servers.quarantined(NAME), operator=LEAD)


async def change(app: App, folder: DemoFolder) -> None:
    """Has the server describe a tool differently: the tool is quarantined until somebody has looked at the change."""
    (folder.server / "changed.json").replace(folder.server / "definitions.json")
    await app.servers.refresh(NAME)

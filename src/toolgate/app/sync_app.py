"""`App.open_sync`: an App for scripts and notebooks, whose methods block.

    with App.open_sync() as app:
        outcome = app.invoke("add", {"a": 1, "b": 2})

Everything is done by the async App, in a thread of its own (`sync_bridge`). `sync_app.pyi`, which `make reference` writes,
says what a type checker may rely on.
"""

from toolgate.app.sync_bridge import BridgedApp


class SyncApp(BridgedApp):
    """Toolgate in one process, for programs without an event loop. Made by `App.open_sync`."""

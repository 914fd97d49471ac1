"""Loads the MCP SDK once, whole, and by one thread at a time.

It takes most of a second, so it is loaded in a thread and only when it is needed. Its modules import one another in cycles:
two threads that load parts of it at once can each get half a module. So whatever imports from it lazily waits for this
first.
"""

import threading
from importlib import import_module

from toolgate.threads import to_thread

SDK_MODULES = (
    "mcp",
    "mcp.client.streamable_http",
    "mcp.client.sse",
    "mcp.client.auth",
    "mcp.client.auth.extensions.client_credentials",
    "mcp.server.lowlevel",
    "mcp.server.stdio",
    "mcp.server.streamable_http_manager",
    "mcp.server.subscriptions",
    "toolgate.mcp.client.connection",
    "toolgate.mcp.client.stdio",
)

HTTP_MODULES = ("aiohttp", "toolgate.mcp.client.http_transport", "toolgate.mcp.client.oauth.provider")
"""Needed besides for remote servers."""

_lock = threading.Lock()
_loaded: set[str] = set()


def load(modules: tuple[str, ...] = ()) -> None:
    with _lock:
        for module in (*SDK_MODULES, *modules):
            import_module(module)
            _loaded.add(module)


async def loaded(modules: tuple[str, ...] = ()) -> None:
    """Loads it, and then these modules, in a thread."""
    if not _loaded.issuperset((*SDK_MODULES, *modules)):
        await to_thread(load, modules)

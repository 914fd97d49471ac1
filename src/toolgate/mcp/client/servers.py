"""All MCP servers that Toolgate calls: the entry to this package. The SDK is not loaded before a server is used."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolgate.errors import described
from toolgate.mcp.client import sdk
from toolgate.mcp.client.errors import Unreachable
from toolgate.mcp.client.model import ConnectionStatus, ListKind, OnServerChange
from toolgate.mcp.client.oauth.token_store import LoginStore
from toolgate.mcp.client.secret_masking import SecretMasker
from toolgate.mcp.client.supervisor import ServerSupervisor
from toolgate.settings import ServerSettings
from toolgate.tasks import BackgroundTasks, finish

if TYPE_CHECKING:
    from toolgate.mcp.client.connection import ServerChannel
    from toolgate.network.http_client import HttpClient
    from toolgate.sandbox.engine import Sandbox
    from toolgate.sandbox.workspaces import Workspaces
    from toolgate.screening.paths import SensitivePaths

logger = logging.getLogger("toolgate.mcp")


class UpstreamServers:
    """The servers by name. Each has a supervisor of its own, so that none waits for another."""

    def __init__(
        self,
        *,
        secrets: Callable[[str], str | None],
        sandbox: "Sandbox",
        home: Path | None,
        keep: Callable[[str, str], None] | None = None,
        tokens: Callable[[str], str | None] | None = None,
        rules: "Callable[[], SensitivePaths] | None" = None,
        places: "Workspaces | None" = None,
        http: "HttpClient | None" = None,
    ) -> None:
        """`secrets` reads the secrets that settings name. `keep` and `tokens` store and read those of logins, which no
        settings can name. `home`: None in memory. `rules`: what no program may open. `places` decides which changes in
        folders are applied. `http`: judges the addresses of servers that the operator did not name."""
        self.restarts_by_itself = True
        """True: a server that fails is restarted before anybody calls it. A command that ends at once sets it to False."""
        self._secrets = secrets
        self._tried: dict[str, Mapping[str, str]] = {}
        """Secrets of servers on trial, which are not stored yet."""
        self._keep = keep
        self._tokens = tokens
        self._rules = rules
        self._places = places
        self._http = http
        self._sandbox = sandbox
        self._home = home
        self._servers: dict[str, ServerSupervisor] = {}
        self._maskers: dict[str, SecretMasker] = {}
        self._listeners: list[OnServerChange] = []
        self._going = BackgroundTasks()

    def set(self, name: str, settings: ServerSettings) -> None:
        """Adds a server, or changes it: then it is stopped, and started when it is next needed."""
        before = self._servers.get(name)
        if before is not None and before.settings == settings:
            return
        after = None
        if before is not None and before.status().state not in ("idle", "off"):
            after = self._going.start(before.close())
        masker = self._maskers.setdefault(name, SecretMasker())
        self._servers[name] = ServerSupervisor(name, settings, self._open, self._told, masker, after)
        self._servers[name].restarts = self.restarts_by_itself

    @asynccontextmanager
    async def trial(self, name: str, settings: ServerSettings, secrets: Mapping[str, str]) -> AsyncIterator[None]:
        """Adds a server that may yet be refused: if this is left with an error, it is removed, and what had its name is
        back. It is started once, with these secrets besides the stored ones."""
        before = self._servers.get(name)
        self._tried[name] = secrets
        self.set(name, settings)
        self._servers[name].restarts = False
        try:
            yield
        except BaseException as error:
            failed = self._servers[name]
            await finish(self.remove(name))
            if before is not None:
                self.set(name, before.settings)
            if isinstance(error, Unreachable) and failed.failure is not None:
                said = {"stderr": list(failed.status().last_lines)}
                failure = failed.failure
                raise Unreachable(failure.code, failure.message, suggestion=failure.suggestion, details=said) from None
            raise
        finally:
            del self._tried[name]
        self._servers[name].restarts = self.restarts_by_itself

    async def remove(self, name: str) -> None:
        server = self._servers.pop(name, None)
        self._maskers.pop(name, None)
        if server is not None:
            await server.close()

    def names(self) -> list[str]:
        return sorted(self._servers)

    def statuses(self) -> list[ConnectionStatus]:
        return [self._servers[name].status() for name in self.names()]

    def __getitem__(self, name: str) -> ServerSupervisor:
        found = self._servers.get(name)
        if found is None:
            raise Unreachable(message=f"There is no server named {name!r}: see toolgate servers list.")
        return found

    # What doors have of it, which nothing can be called through (`mcp.server.upstreams.UpstreamConnections`)

    def settings(self, name: str) -> ServerSettings:
        return self[name].settings

    async def listed(self, server: str, what: ListKind) -> list[dict[str, Any]]:
        return await self[server].listed(what)

    async def unsubscribe(self, server: str, uri: str) -> None:
        await self[server].unsubscribe(uri)

    def listen(self, listener: OnServerChange) -> None:
        self._listeners.append(listener)

    async def close(self) -> list[str]:
        """Stops all servers at once; returns a line for each that could not be stopped."""
        names = self.names()
        stopped = await asyncio.gather(*(self._servers[name].close() for name in names))
        await self._going.wait()
        return [f"MCP server {name} could not be stopped" for name, done in zip(names, stopped, strict=True) if not done]

    def _told(self, server: str, what: str, uri: str | None) -> None:
        for listener in self._listeners:
            try:
                listener(server, what, uri)
            except Exception as error:  # noqa: BLE001 - one listener's fault is not the others'
                logger.error("a listener for server changes failed: %s", described(error))

    async def _open(
        self, name: str, settings: ServerSettings, stack: AsyncExitStack, masker: SecretMasker
    ) -> "ServerChannel":
        """Opens the transport of a server, which is closed with the stack."""

        tried = self._tried.get(name, {})

        def secrets(wanted: str) -> str | None:
            value = tried.get(wanted) or self._secrets(wanted)
            masker.learn(value)
            return value

        if settings.url is not None:
            await sdk.loaded(sdk.HTTP_MODULES)
            from toolgate.mcp.client.http_transport import open_transport

            self._told(name, "step", "connecting")
            kept = LoginStore(name, settings.url, self._tokens, self._keep)
            return await stack.enter_async_context(open_transport(name, settings, secrets, masker, kept, self._http))

        from toolgate.mcp.client.launch import launch_server
        from toolgate.mcp.client.stdio import open_stdio

        program = await launch_server(
            name, settings, secrets, self._sandbox, self._home, rules=None if self._rules is None else self._rules(),
            places=self._places, step=lambda words: self._told(name, "step", words),
        )  # fmt: skip
        return await stack.enter_async_context(open_stdio(program, settings.output_bytes, masker.mask_text))

"""All MCP servers that Toolgate calls: the door of the package. The SDK is not loaded before a server is used."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolgate.errors import described
from toolgate.mcp.client.errors import Unreachable
from toolgate.mcp.client.model import ConnectionStatus, ListKind, ServerInfo
from toolgate.mcp.client.secret_masking import SecretMasker
from toolgate.mcp.client.supervisor import ServerSupervisor
from toolgate.model import Caller
from toolgate.settings import ServerSettings

if TYPE_CHECKING:
    from toolgate.mcp.client.connection import ServerChannel
    from toolgate.sandbox.engine import Sandbox
    from toolgate.sandbox.workspaces import Workspaces
    from toolgate.screening.paths import SensitivePaths

OnServerChange = Callable[[str, str, str | None], None]

logger = logging.getLogger("toolgate.mcp")


class UpstreamServers:
    """Servers by name. Each has its own task, so that none waits for another."""

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
    ) -> None:
        """`secrets`: the value of a secret that settings name. `keep` and `tokens`: keep and read those of logins, which no
        settings can name. `home`: None in memory. `rules`: what no program may open. `places`: decides what of their changes
        in folders is brought in."""
        self.restarts_by_itself = True
        """True: a server that fails is started again before anybody asks. A command that ends at once sets it to False."""
        self._secrets = secrets
        self._tried: dict[str, Mapping[str, str]] = {}
        """The secrets of servers that are tried out, which are not kept yet."""
        self._keep = keep
        self._tokens = tokens
        self._rules = rules
        self._places = places
        self._sandbox = sandbox
        self._home = home
        self._servers: dict[str, ServerSupervisor] = {}
        self._concealers: dict[str, SecretMasker] = {}
        self._listeners: list[OnServerChange] = []
        self._going: set[asyncio.Task[bool]] = set()

    # -- which there are

    def set(self, name: str, settings: ServerSettings) -> None:
        """Add one, or change it: then it is stopped, and started anew when it is next needed."""
        before = self._servers.get(name)
        if before is not None and before.settings == settings:
            return
        after = None
        if before is not None and before.standing().state not in ("idle", "off"):
            after = asyncio.create_task(before.close())
            self._going.add(after)
            after.add_done_callback(self._going.discard)
        concealer = self._concealers.setdefault(name, SecretMasker())
        self._servers[name] = ServerSupervisor(name, settings, self._open, self._told, concealer, after)
        self._servers[name].restarts = self.restarts_by_itself

    @asynccontextmanager
    async def trial(self, name: str, settings: ServerSettings, secrets: Mapping[str, str]) -> AsyncIterator[None]:
        """A server that may yet be refused: it is gone if this is left with an error, and what had its name is back. It is
        started once, with these secrets besides those that are kept. Otherwise it stays."""
        before = self._servers.get(name)
        self._tried[name] = secrets
        self.set(name, settings)
        self._servers[name].restarts = False
        try:
            yield
        except BaseException as error:
            failed = self._servers[name]
            await asyncio.shield(self.remove(name))
            if before is not None:
                self.set(name, before.settings)
            if isinstance(error, Unreachable) and failed.failure is not None:
                said = {"stderr": list(failed.standing().last_lines)}
                failure = failed.failure
                raise Unreachable(failure.code, failure.message, suggestion=failure.suggestion, details=said) from None
            raise
        finally:
            del self._tried[name]
        self._servers[name].restarts = self.restarts_by_itself

    async def remove(self, name: str) -> None:
        """Stop it and forget it."""
        server = self._servers.pop(name, None)
        self._concealers.pop(name, None)
        if server is not None:
            await server.close()

    def names(self) -> list[str]:
        """In order."""
        return sorted(self._servers)

    def settings(self, name: str) -> ServerSettings:
        """Of one of them."""
        return self._of(name).settings

    def standings(self) -> list[ConnectionStatus]:
        """How each stands."""
        return [self._servers[name].standing() for name in self.names()]

    def starts(self, server: str) -> int:
        """How often it was started: of two requests with the same number between, the same program answers both."""
        return self._of(server).starts

    # -- asking them

    async def request(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any],
        *,
        caller: Caller | None = None,
        start: int | None = None,
        seconds: float | None = None,
    ) -> Mapping[str, Any]:
        """Ask a server, which is started if need be. Raises Unreachable, Lost, Refused or InputRequired; if whoever asks is
        cancelled, the server is told. `start`: ask only the one with this number (`starts`); Anew, if there is another.
        `seconds`: how long whoever asks will wait, during which a silent server is taken to be at work on it."""
        return await self._of(server).request(method, params, caller, start, seconds)

    def conceal(self, server: str, values: Iterable[str]) -> None:
        """A call is about to hand the server these secrets: nobody is to see them in what it says."""
        self._of(server).concealer.learn_handed(values)

    async def listed(self, server: str, what: ListKind, *, fresh: bool = False) -> list[dict[str, Any]]:
        """All of a list of the server's."""
        return await self._of(server).listed(what, fresh=fresh)

    async def about(self, server: str) -> ServerInfo:
        """What a server says of itself."""
        return await self._of(server).about()

    async def subscribe(self, server: str, uri: str) -> None:
        """Listeners hear when the resource changes, until as many have unsubscribed as have subscribed."""
        of = self._of(server)
        await of.subscribing.add(await of.connection(), uri)

    async def unsubscribe(self, server: str, uri: str) -> None:
        """No more."""
        of = self._of(server)
        await of.subscribing.remove(of.live, uri)

    def listen(self, listener: OnServerChange) -> None:
        """Hear of changes: the server; "tools", "prompts", "resources", "resource", "up", "down" or "step"; the resource's
        URI, or what is done next with a server that is started."""
        self._listeners.append(listener)

    # -- stopping them

    async def restart(self, server: str) -> None:
        """Stop it, and start it now."""
        await self._of(server).restart()

    async def stop(self, server: str) -> None:
        """Until it is needed again."""
        await self._of(server).stop()

    async def close(self) -> list[str]:
        """Stop all of them, all at once. What could not be stopped, in words."""
        names = self.names()
        stopped = await asyncio.gather(*(self._servers[name].close() for name in names), *self._going)
        return [
            f"the MCP server {name} could not be stopped" for name, done in zip(names, stopped, strict=False) if not done
        ]

    # -- inside

    def _of(self, name: str) -> ServerSupervisor:
        found = self._servers.get(name)
        if found is None:
            raise Unreachable(message=f"There is no MCP server {name!r}.", suggestion="`toolgate servers list` shows them.")
        return found

    def _told(self, server: str, what: str, uri: str | None) -> None:
        for listener in self._listeners:
            try:
                listener(server, what, uri)
            except Exception as error:  # noqa: BLE001 - one listener's fault is not the others'
                logger.error("a listener to the servers failed: %s", described(error))

    async def _open(
        self, name: str, settings: ServerSettings, stack: AsyncExitStack, concealer: SecretMasker
    ) -> "ServerChannel":
        """The transport of a server, which is closed with the stack."""

        tried = self._tried.get(name, {})

        def secrets(wanted: str) -> str | None:
            value = tried.get(wanted) or self._secrets(wanted)
            concealer.learn(value)
            return value

        if settings.url is not None:
            from toolgate.mcp.client.http_transport import open_transport

            self._told(name, "step", "connecting")
            remote = open_transport(name, settings, secrets, concealer, self._keep, self._tokens)
            return await stack.enter_async_context(remote)

        from toolgate.mcp.client.launch import launch_server
        from toolgate.mcp.client.stdio import open_stdio

        program = await launch_server(
            name, settings, secrets, self._sandbox, self._home, rules=None if self._rules is None else self._rules(),
            places=self._places, step=lambda words: self._told(name, "step", words),
        )  # fmt: skip
        return await stack.enter_async_context(open_stdio(program, settings.output_bytes, concealer.words))

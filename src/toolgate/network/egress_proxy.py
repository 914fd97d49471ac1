"""The egress proxy of a jail: forwards the connections of a server or a command to the allowed hosts.

Two kinds of listeners come out of the jail (`sandbox.jails.child_ends`). On one, it is an HTTP proxy: CONNECT, and plain
HTTP. Each of the others stands for one host and port that were named, and forwards bytes there, so that programs without
proxy support, databases among them, work unchanged. Either way the host is resolved here, once, and the checked address is
the one that is connected to.
"""

import asyncio
import logging
import re
import socket
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from toolgate.network.addresses import canonical, is_own, is_public, split_port
from toolgate.network.allowed_hosts import AllowedHosts, ForwardedPort
from toolgate.network.resolver import BoundedResolver, Resolve, resolve
from toolgate.tasks import start_task

MAX_HEAD_BYTES = 32_768
HEAD_SECONDS = 15.0
PROXY_CONNECT_SECONDS = 15.0
PROXY_IDLE_SECONDS = 3_600.0
"""A silent connection is closed after this. Those to databases are silent for long."""
MAX_PROXY_CONNECTIONS = 128
"""Of one program."""
MAX_SERVER_LOOKUPS = 8
"""Host names that are resolved at once for one program."""
MAX_CONNECTION_BYTES = 4 * 1024 * 1024 * 1024
"""In each direction."""
RELAY_CHUNK_BYTES = 65_536
REFUSAL_LOG_SECONDS = 60.0
"""The same refusal is logged once in this time."""
MAX_LOGGED_REFUSALS = 100
MAX_TOLD_PRIVATE = 4
INTERIM = re.compile(rb"HTTP/1\.[01] 1\d\d ")
"""The first line of an answer after which another comes: 100 Continue."""

logger = logging.getLogger("toolgate.network.proxy")


class ProxyRefusal(Exception):
    """A host that may not or can't be reached."""

    def __init__(self, status: str, words: str) -> None:
        super().__init__(words)
        self.status = status


class EgressProxy:
    """The proxy of one server or command."""

    def __init__(
        self, owner: str, hosts: AllowedHosts, *, setting: str = "the setting `domains`", resolve: Resolve = resolve
    ) -> None:
        """`owner`: for the log. `setting`: where the hosts are named."""
        self.refusals = 0
        self.private: dict[str, None] = {}
        """Some of the allowed hosts, with their ports, that were refused because they resolve to private addresses."""
        self._owner = owner
        self._hosts = hosts
        self._setting = setting
        self._resolver = BoundedResolver(resolve, MAX_SERVER_LOOKUPS)
        self._servers: list[asyncio.Server] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._closed = False
        self._noted: OrderedDict[tuple[str, int], float] = OrderedDict()

    async def serve(self, listeners: Sequence[socket.socket], places: Sequence[ForwardedPort]) -> None:
        """Serves each listener as its place says. They are closed with the proxy."""
        waiting = list(listeners)
        try:
            for place in places:
                take = partial(self._take, place)
                self._servers.append(await asyncio.start_server(take, sock=waiting[0], limit=MAX_HEAD_BYTES))
                waiting.pop(0)
        except BaseException:
            for listener in waiting:
                listener.close()
            await self.close()
            raise

    async def close(self) -> None:
        """Ends every connection. May be called twice."""
        self._closed = True
        for server in self._servers:
            server.close()
        self._servers.clear()
        under_way = [task for task in self._under_way if task is not asyncio.current_task()]
        for task in under_way:
            task.cancel()
        self._resolver.close()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _take(self, place: ForwardedPort, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or self._closed or len(self._under_way) >= MAX_PROXY_CONNECTIONS:
            writer.transport.abort()
            return
        self._under_way.add(task)
        try:
            if place.host is None:
                await self._answer(reader, writer)
            else:
                with suppress(ProxyRefusal):
                    await _relay((reader, writer), await self.connect(place.host, place.port))
            writer.close()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            # The other side is gone or never said what it wants, or we close: nobody waits for this task.
            writer.transport.abort()
        finally:
            self._under_way.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        try:
            method, host, port, onward = read_head(head)
            theirs = await self.connect(host, port)
        except ProxyRefusal as refusal:
            words = f"Toolgate: {refusal}\n".encode()
            said = f"HTTP/1.1 {refusal.status}\r\nContent-Type: text/plain\r\nContent-Length: {len(words)}\r\n"
            writer.write(f"{said}Connection: close\r\n\r\n".encode() + words)
            await writer.drain()
            return
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            theirs[1].write(onward)
        await _relay((reader, writer), theirs, answers=_pump if method == "CONNECT" else _pump_last_answer)

    async def connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connects to an allowed host at a checked address. Raises ProxyRefusal."""
        leave = self._hosts.leave(host, port)
        if leave is None:
            self._note(host, port, f"it is not in {self._setting}")
            raise ProxyRefusal("403 Forbidden", f"{host}:{port} is not in {self._setting}.")
        try:
            async with asyncio.timeout(PROXY_CONNECT_SECONDS):
                addresses = await self._resolver.look_up(host, port)
        except (OSError, TimeoutError, UnicodeError):
            raise ProxyRefusal("502 Bad Gateway", f"{host} cannot be resolved.") from None
        fit = [address for address in addresses if leave == "any" or (is_public(address) and not is_own(address))]
        if not fit:
            self._note(host, port, "it resolves to a private address")
            if len(self.private) < MAX_TOLD_PRIVATE:
                self.private[f"{canonical(host) or 'a host'}:{port}"] = None
            raise ProxyRefusal(
                "403 Forbidden",
                f"{host} resolves to a private address; to allow it, name it with its port in {self._setting}.",
            )
        for address in fit[:4]:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(PROXY_CONNECT_SECONDS):
                    return await asyncio.open_connection(address, port, limit=RELAY_CHUNK_BYTES)
        raise ProxyRefusal("502 Bad Gateway", f"{host}:{port} cannot be reached.")

    def _note(self, host: str, port: int, why: str) -> None:
        """Logs a refusal; the same one once a minute."""
        self.refusals += 1
        key, now = (host[:253], port), monotonic()
        while self._noted and now - next(iter(self._noted.values())) > REFUSAL_LOG_SECONDS:
            self._noted.popitem(last=False)
        if key not in self._noted and len(self._noted) < MAX_LOGGED_REFUSALS:
            self._noted[key] = now
            logger.warning("%s: connection to %s:%d refused: %s", self._owner, ascii(key[0])[1:-1], port, why)


def read_head(head: bytes) -> tuple[str, str, int, bytes]:
    """Method, host, port, and the head that is forwarded in place of this one. Raises ProxyRefusal."""
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    target, _, version = rest.rpartition(" ")
    strange = any(sign in line for line in (first, *lines) for sign in "\n\r\0")
    if strange or not method.isalpha() or version not in ("HTTP/1.1", "HTTP/1.0"):
        raise ProxyRefusal("400 Bad Request", "this is not HTTP.")
    if method == "CONNECT":
        return method, *split(target, 0), b""
    if not target.lower().startswith("http://"):
        raise ProxyRefusal("400 Bad Request", "this is a proxy: it wants CONNECT, or a whole http:// address.")
    place, slash, path = target[len("http://") :].partition("/")
    host, port = split(place, 80)
    kept = [line for line in lines if _is_for_them(line)]
    said = [f"{method} {slash or '/'}{path} HTTP/1.1", f"Host: {place}", *kept, "Connection: close"]
    return method, host, port, ("\r\n".join(said) + "\r\n\r\n").encode("latin-1")


def _is_for_them(line: str) -> bool:
    name = line.partition(":")[0].strip().lower()
    return not name.startswith("proxy-") and name not in ("host", "connection", "keep-alive", "upgrade", "te", "")


def split(place: str, port: int) -> tuple[str, int]:
    """Host and port, which is this one unless another is named. Raises ProxyRefusal, also for a user name before an @."""
    with suppress(ValueError):
        host, named = split_port(place)
        if "@" not in host and (found := named or port):
            return host, found
    raise ProxyRefusal("400 Bad Request", "that is not a host and port, such as api.example.com:443.")


Pump = Callable[[asyncio.StreamReader, asyncio.StreamWriter, list[float]], Coroutine[Any, Any, None]]


async def _relay(
    ours: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    theirs: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    answers: "Pump | None" = None,
) -> None:
    """Copies both ways, until both have ended or one breaks. `answers`: how what they say is copied."""
    heard = [monotonic()]
    ways = [start_task(_pump(ours[0], theirs[1], heard)), start_task((answers or _pump)(theirs[0], ours[1], heard))]
    try:
        await asyncio.gather(*ways)
    finally:
        # First what needs no waiting: whoever waits may be cancelled once more.
        theirs[1].transport.abort()
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _pump_last_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: list[float]) -> None:
    """Copies the answer to a plain request, and says that the connection ends with it. The next request of the same client
    may be for another host, and would go to this one, with all that was meant for the other."""
    try:
        async with asyncio.timeout(PROXY_IDLE_SECONDS):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_with_end(head))
                if not INTERIM.match(head):
                    break
    except asyncio.IncompleteReadError as ended:
        writer.write(ended.partial)
    await _pump(reader, writer, heard)


def _with_end(head: bytes) -> bytes:
    first, *lines = head[:-4].split(b"\r\n")
    kept = (line for line in lines if line.partition(b":")[0].strip().lower() not in (b"connection", b"keep-alive"))
    return b"\r\n".join((first, *kept, b"Connection: close", b"", b""))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: list[float]) -> None:
    """Copies one way. `heard` is when anything came on either."""
    passed = 0
    while passed < MAX_CONNECTION_BYTES:
        try:
            async with asyncio.timeout(PROXY_IDLE_SECONDS):
                data = await reader.read(RELAY_CHUNK_BYTES)
        except TimeoutError:
            if monotonic() - heard[0] < PROXY_IDLE_SECONDS:
                continue
            raise
        if not data:
            if writer.can_write_eof():
                writer.write_eof()
            return
        heard[0] = monotonic()
        passed += len(data)
        writer.write(data)
        await writer.drain()
    raise ConnectionAbortedError("more than one connection may carry")

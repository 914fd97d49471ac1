"""The HTTP client of the built-in tools: their one way to other machines, guarded against server-side request forgery.

A URL in a tool's arguments is written by a model, which may have read it on a hostile page. So each request, and each hop
of a redirect, is judged before anything is sent: the scheme, the port, the host's name, and every address that it resolves
to. One private address among them refuses all, and the connection goes to the judged addresses, so that a second answer of
the DNS server changes nothing. No proxy of the environment is used: it would resolve the name itself.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import orjson

from toolgate.errors import Denied, Failed, InvalidInput, NotReached, TimedOut, ToolError, printable
from toolgate.extras import is_installed, not_installed
from toolgate.network.addresses import is_address, is_local_name, is_own, is_public
from toolgate.network.allowed_hosts import DEFAULT_PORTS, AllowedHosts
from toolgate.network.http_headers import CROSS_ORIGIN_HEADERS, checked_headers
from toolgate.network.http_response import ENCODINGS, REDIRECTS, HttpResponse, TooLong, body_parts, read_body
from toolgate.network.resolver import BoundedResolver, Resolve, resolve
from toolgate.network.urls import Url, parse_url, redirect_target, refused_url
from toolgate.threads import to_thread
from toolgate.version import VERSION

if TYPE_CHECKING:
    from toolgate.network.http_connection import Exchange, Opened, PinnedBackend

MAX_CLIENT_LOOKUPS = 16
"""Host names that are resolved at once: half of the threads, so that jailed servers can always resolve theirs."""
MAX_TENANT_LOOKUPS = 8
"""The same for tools that tenants registered, which have no part in those of the others."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS = SAFE_METHODS | {"POST", "PUT", "PATCH", "DELETE"}
REPEATABLE_METHODS = METHODS - {"POST", "PATCH"}


class Request:
    """A request on its way, which redirects may change."""

    encodings = ENCODINGS

    def __init__(self, method: str, url: Url, headers: dict[str, str], content: bytes, *, trusted: bool) -> None:
        self.method, self.url, self.headers, self.content, self.trusted = method, url, headers, content, trusted

    def sent_headers(self) -> Sequence[tuple[str, str]]:
        own = {"host": self.url.authority, "accept-encoding": self.encodings, "connection": "close"}
        if self.content or self.method not in SAFE_METHODS:
            own["content-length"] = str(len(self.content))
        given = {"accept": "*/*", "user-agent": f"toolgate/{VERSION}", **self.headers}
        return [*own.items(), *given.items()]

    def follow(self, status: int, location: str) -> None:
        """Becomes the request of a redirect. To another origin go no credentials, no body and nothing that changes data."""
        target = redirect_target(self.url, location)
        if self.method != "HEAD" and (status == 303 or (status in (301, 302) and self.method == "POST")):
            self.method, self.content = "GET", b""
            self.headers = {name: value for name, value in self.headers.items() if not name.startswith("content-")}
        if target.origin != self.url.origin:
            if self.method not in SAFE_METHODS or self.content:
                raise refused_url(f"a redirect would send the {self.method} request on to {target.host}")
            self.headers = {name: value for name, value in self.headers.items() if name in CROSS_ORIGIN_HEADERS}
            self.trusted = False
        self.url = target


class HttpStream:
    """An answer while it comes: status and headers at once, the body in parts."""

    def __init__(self, response: "Opened", url: Url, *, idle: float, most: int) -> None:
        self.status, self.headers, self._url = response.status, response.headers, url
        self._idle, self._most = idle, most
        self._parts = body_parts(response.chunks, response.headers.get("content-encoding", ""), most)

    def __aiter__(self) -> "HttpStream":
        return self

    async def __anext__(self) -> bytes:
        """The next part of the body, decompressed."""
        try:
            async with asyncio.timeout(self._idle) as time:
                return await anext(self._parts)
        except TimeoutError:
            if not time.expired():
                raise
            raise TimedOut(message=f"{self._url.host} sent nothing for {self._idle:g} s.", retryable=False) from None

    async def read(self) -> HttpResponse:
        """The whole body."""
        return HttpResponse(self.status, self.headers, await read_body(self, "", self._most), str(self._url))

    async def close(self) -> None:
        await self._parts.aclose()


class HttpClient:
    """Sends requests to public hosts, and to those that the operator named. One for an App."""

    def __init__(
        self,
        allow: Sequence[str] = (),
        ports: Sequence[int] = DEFAULT_PORTS,
        *,
        resolve: Resolve = resolve,
        setting: str = "network.allow",
        lookups: int = MAX_CLIENT_LOOKUPS,
    ) -> None:
        """`allow`: hosts with port that may be reached although their address is private; `setting` names them, for
        messages. `ports`: of all others. `lookups`: names that are resolved at once."""
        self._setting = setting
        self._allowed = AllowedHosts(allow)
        self._ports = frozenset(ports)
        self._resolver = BoundedResolver(resolve, lookups)

    async def close(self) -> None:
        """Lets go of lookups that are under way; connections end with their requests."""
        self._resolver.close()

    def is_allowed(self, url: str) -> bool:
        """True for URLs of hosts that the operator named. Raises as `request` for what is no URL."""
        found = parse_url(url)
        return self._allowed.leave(found.host, found.port) == "any"

    def check(self, url: str) -> None:
        """Raises as `request` for a URL that is refused as it is written, whatever its host resolves to."""
        if not self.is_allowed(url):
            self._judge(parse_url(url))

    async def addresses(self, url: str) -> list[str]:
        """The addresses that a host may be connected to now. Raises Denied, or NotReached if it has none."""
        return await self._addresses(parse_url(url), None, trusted=False)

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        json: Any = None,
        form: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        timeout: float = 30.0,
        max_bytes: int = 5_000_000,
        redirects: int = 5,
        trusted: bool = False,
        cut: bool = False,
        tenant: str | None = None,
    ) -> HttpResponse:
        """Sends a request and follows redirects. Any status is an answer.

        `trusted`: the host comes from the operator's settings, so its address may be private and its port any; a redirect
        to another origin is judged as every other. `cut`: a longer body is cut at `max_bytes` instead of refused. `tenant`:
        whose caller chose the host. Raises Denied for an address that is refused, before anything connects; NotReached if
        nothing was sent; TimedOut, Failed or ToolError for what comes back.
        """
        request = _made(method, _with_query(parse_url(url), query), headers, _encoded(json, form, content), trusted=trusted)
        try:
            async with asyncio.timeout(timeout):
                for _ in range(redirects + 1):
                    addresses = await self._addresses(request.url, tenant, trusted=request.trusted)
                    found = await _exchanged(request, addresses, max_bytes, cut=cut)
                    location = found.headers.get("location")
                    if found.status not in REDIRECTS or location is None or not redirects:
                        return HttpResponse(
                            found.status, found.headers, found.body, str(request.url), truncated=found.truncated
                        )
                    request.follow(found.status, _decoded(location))
        except TimeoutError:
            raise _too_slow(request, timeout) from None
        raise ToolError(f"{request.url.host} redirected more than {redirects} times.")

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        timeout: float = 30.0,
        idle: float = 30.0,
        max_bytes: int = 5_000_000,
        trusted: bool = False,
    ) -> AsyncIterator[HttpStream]:
        """Sends a request and gives the answer while it comes. Any status is an answer, also that of a redirect: none is
        followed. `timeout`: seconds for all of it; `idle`: between two parts of the body. Raises as `request`, here and
        where the body is read."""
        request = _made(method, parse_url(url), headers, _encoded(json, None, None), trusted=trusted)
        request.encodings = "identity"  # a server may hold back what it compresses
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._addresses(request.url, None, trusted=trusted)
                http = await to_thread(import_module, "toolgate.network.http_connection")
                backend = http.PinnedBackend(addresses)
                with _told(request, backend, http, max_bytes):
                    sending = http.opened(backend, method, request.url, request.sent_headers(), request.content)
                    async with sending as response:
                        stream = HttpStream(response, request.url, idle=idle, most=max_bytes)
                        try:
                            yield stream
                        finally:
                            await stream.close()
        except TimeoutError:
            raise _too_slow(request, timeout) from None

    async def _addresses(self, url: Url, tenant: str | None, *, trusted: bool) -> list[str]:
        """The addresses of a host that may be connected to. Raises Denied, or NotReached if it has none."""
        anywhere = trusted or self._allowed.leave(url.host, url.port) == "any"
        if not anywhere:
            self._judge(url)
        addresses = [url.host] if is_address(url.host) else await self._resolved(url, tenant)
        if not anywhere and not all(is_public(address) and not is_own(address) for address in addresses):
            raise self._private(url)
        return addresses

    def _judge(self, url: Url) -> None:
        """Raises Denied for what no name server can make public. The host comes first: for a private one, `network.ports`
        would not help."""
        if not is_public(url.host) if is_address(url.host) else is_local_name(url.host):
            raise self._private(url)
        if url.port not in self._ports:
            raise refused_url(
                f"port {url.port} is not among the allowed ports", "An operator can allow it in the setting `network.ports`."
            )

    def _private(self, url: Url) -> Denied:
        return refused_url(
            f"{url.host} is a host of this machine or of a private network",
            f"An operator can allow it in the settings: `{self._as_setting(url.address)}`.",
        )

    def _as_setting(self, address: str) -> str:
        """The setting with this address, as a settings file has it."""
        return f'{self._setting.replace(".", ": {")}: ["{address}"]{"}" * self._setting.count(".")}'

    async def _resolved(self, url: Url, tenant: str | None) -> list[str]:
        try:
            found = await self._resolver.look_up(url.host, url.port, tenant)
        except (OSError, UnicodeError):
            found = []
        if not found:
            raise NotReached("CONNECTION_ERROR", f"The host {url.host} cannot be resolved.")
        return found


async def _exchanged(request: Request, addresses: Sequence[str], most: int, *, cut: bool) -> "Exchange":
    """One hop."""
    http = await to_thread(import_module, "toolgate.network.http_connection")
    backend = http.PinnedBackend(addresses)
    with _told(request, backend, http, most):
        found: Exchange = await http.exchange(
            backend, request.method, request.url, request.sent_headers(), request.content, most, cut=cut
        )
    return found


@contextmanager
def _told(request: Request, backend: "PinnedBackend", http: Any, most: int) -> Iterator[None]:
    """The errors of a connection in words."""
    host, again = request.url.host, request.method in REPEATABLE_METHODS
    try:
        yield
    except TooLong:
        raise ToolError(f"The answer of {host} is longer than {most:,} bytes.", suggestion="Ask for less.") from None
    except zlib.error:
        raise ToolError(f"The answer of {host} is not compressed as it says.") from None
    except http.Broken as error:
        if not backend.connected or http.is_connect_error(error):
            words = f"{request.url.address} cannot be reached: {http.words(error)}."
            raise NotReached("CONNECTION_ERROR", words) from None
        words = f"The connection to {host} broke before the answer was complete: {http.words(error)}."
        raise Failed("CONNECTION_ERROR", words, retryable=again) from None


def _too_slow(request: Request, seconds: float) -> TimedOut:
    return TimedOut(
        message=f"{request.url.host} did not answer within {seconds:g} s.",
        retryable=request.method in REPEATABLE_METHODS,
        suggestion="Try again later, or give it more time.",
    )


def _decoded(location: str) -> str:
    """A header as it was meant: servers send UTF-8 there."""
    try:
        return location.encode("latin-1").decode()
    except UnicodeDecodeError:
        return location


def _with_query(url: Url, query: Mapping[str, Any] | None) -> Url:
    if not query:
        return url
    mark = "&" if "?" in url.target else "?"
    return url._replace(target=f"{url.target}{mark}{urlencode(dict(query), doseq=True)}")


def _made(
    method: str, url: Url, headers: Mapping[str, str] | None, body: tuple[bytes, str | None], *, trusted: bool
) -> Request:
    """A request that can be sent. Raises InvalidInput, or ToolError where HTTP is not installed."""
    if method not in METHODS:
        raise InvalidInput(f"There is no method {printable(method)}.", suggestion=f"Use {', '.join(sorted(METHODS))}.")
    content, kind = body
    given = checked_headers(headers or {})
    if kind:
        given.setdefault("content-type", kind)
    if not is_installed("http"):
        raise ToolError(not_installed("http"), charged=False)
    return Request(method, url, given, content, trusted=trusted)


def _encoded(json: Any, form: Mapping[str, Any] | None, content: bytes | None) -> tuple[bytes, str | None]:
    """The body, and its media type."""
    if json is not None:
        return orjson.dumps(json), "application/json"
    if form is not None:
        return urlencode(dict(form), doseq=True).encode(), "application/x-www-form-urlencoded"
    return content or b"", None

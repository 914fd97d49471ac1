"""The HTTP client of the built-in tools: their one way to other machines, guarded against server-side request forgery.

A URL in a tool's arguments is written by a model, which may have read it on a hostile page. So each request, and each hop
of a redirect, is judged before anything is sent: the scheme, the port, the host's name, and every address that it resolves
to. One private address among them refuses all, and the connection goes to the judged addresses, so that a second answer of
the DNS server changes nothing. No proxy of the environment is used: it would resolve the name itself.
"""

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import orjson

from toolgate.errors import Denied, Failed, InvalidInput, NotReached, TimedOut, ToolError, printable
from toolgate.extras import is_installed, not_installed
from toolgate.network.addresses import is_address, is_local_name, is_own, is_public
from toolgate.network.allowed_hosts import DEFAULT_PORTS, AllowedHosts
from toolgate.network.http_headers import CROSS_ORIGIN_HEADERS, checked_headers
from toolgate.network.http_response import ENCODINGS, REDIRECTS, HttpResponse, TooLong
from toolgate.network.resolver import BoundedResolver, Resolve, resolve
from toolgate.network.urls import Url, parse_url, redirect_target, refused_url
from toolgate.threads import to_thread
from toolgate.version import VERSION

if TYPE_CHECKING:
    from toolgate.network.http_connection import Exchange

MAX_CLIENT_LOOKUPS = 16
"""Host names that are resolved at once: half of the threads, so that jailed servers can always resolve theirs."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS = SAFE_METHODS | {"POST", "PUT", "PATCH", "DELETE"}
REPEATABLE_METHODS = METHODS - {"POST", "PATCH"}


class Request:
    """A request on its way, which redirects may change."""

    def __init__(self, method: str, url: Url, headers: dict[str, str], content: bytes, *, trusted: bool) -> None:
        self.method, self.url, self.headers, self.content, self.trusted = method, url, headers, content, trusted

    def sent_headers(self) -> Sequence[tuple[str, str]]:
        own = {"host": self.url.authority, "accept-encoding": ENCODINGS, "connection": "close"}
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


class HttpClient:
    """Sends requests to public hosts, and to those that the operator named. One for an App."""

    def __init__(
        self, allow: Sequence[str] = (), ports: Sequence[int] = DEFAULT_PORTS, *, resolve: Resolve = resolve
    ) -> None:
        """`allow`: hosts with port that may be reached although their address is private. `ports`: of all others."""
        self._allowed = AllowedHosts(allow)
        self._ports = frozenset(ports)
        self._resolver = BoundedResolver(resolve, MAX_CLIENT_LOOKUPS)

    async def close(self) -> None:
        """Lets go of lookups that are under way; connections end with their requests."""
        self._resolver.close()

    def is_allowed(self, url: str) -> bool:
        """True for URLs of hosts that the operator named in `network.allow`. Raises as `request` for what is no URL."""
        found = parse_url(url)
        return self._allowed.leave(found.host, found.port) == "any"

    def check(self, url: str) -> None:
        """Raises as `request` for a URL that is refused as it is written, whatever its host resolves to."""
        if not self.is_allowed(url):
            self._judge(parse_url(url))

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
        if method not in METHODS:
            raise InvalidInput(f"There is no method {printable(method)}.", suggestion=f"Use {', '.join(sorted(METHODS))}.")
        body, kind = _encoded(json, form, content)
        given = checked_headers(headers or {})
        if kind:
            given.setdefault("content-type", kind)
        request = Request(method, _with_query(parse_url(url), query), given, body, trusted=trusted)
        if not is_installed("http"):
            raise ToolError(not_installed("http"), charged=False)
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

    async def _addresses(self, url: Url, tenant: str | None, *, trusted: bool) -> list[str]:
        """The addresses of a host that may be connected to. Raises Denied, or NotReached if it has none."""
        anywhere = trusted or self._allowed.leave(url.host, url.port) == "any"
        if not anywhere:
            self._judge(url)
        addresses = [url.host] if is_address(url.host) else await self._resolved(url, tenant)
        if not anywhere and not all(is_public(address) and not is_own(address) for address in addresses):
            raise _private(url)
        return addresses

    def _judge(self, url: Url) -> None:
        """Raises Denied for what no name server can make public. The host comes first: for a private one, `network.ports`
        would not help."""
        if not is_public(url.host) if is_address(url.host) else is_local_name(url.host):
            raise _private(url)
        if url.port not in self._ports:
            raise refused_url(
                f"port {url.port} is not among the allowed ports", "An operator can allow it in the setting `network.ports`."
            )

    async def _resolved(self, url: Url, tenant: str | None) -> list[str]:
        try:
            found = await self._resolver.look_up(url.host, url.port, tenant)
        except (OSError, UnicodeError):
            found = []
        if not found:
            raise NotReached("CONNECTION_ERROR", f"The host {url.host} cannot be resolved.")
        return found


def _private(url: Url) -> Denied:
    return refused_url(
        f"{url.host} is a host of this machine or of a private network",
        f"An operator can allow it: `network.allow: [{url.address}]`.",
    )


async def _exchanged(request: Request, addresses: Sequence[str], most: int, *, cut: bool) -> "Exchange":
    """One hop, with the errors of the connection in words."""
    http = await to_thread(import_module, "toolgate.network.http_connection")
    backend, host = http.PinnedBackend(addresses), request.url.host
    again = request.method in REPEATABLE_METHODS
    try:
        found: Exchange = await http.exchange(
            backend, request.method, request.url, request.sent_headers(), request.content, most, cut=cut
        )
    except TooLong:
        raise ToolError(f"The answer of {host} is longer than {most:,} bytes.", suggestion="Ask for less.") from None
    except zlib.error:
        raise ToolError(f"The answer of {host} is not compressed as it says.") from None
    except http.Broken as error:
        if not backend.connected or http.is_connect_error(error):
            words = f"{request.url.address} cannot be reached: {http.words(error)}."
            raise NotReached("CONNECTION_ERROR", words) from None
        raise Failed(
            "CONNECTION_ERROR", f"The connection to {host} broke before the answer: {http.words(error)}.", retryable=again
        ) from None
    return found


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


def _encoded(json: Any, form: Mapping[str, Any] | None, content: bytes | None) -> tuple[bytes, str | None]:
    """The body, and its media type."""
    if json is not None:
        return orjson.dumps(json), "application/json"
    if form is not None:
        return urlencode(dict(form), doseq=True).encode(), "application/x-www-form-urlencoded"
    return content or b"", None

"""The HTTP requests of an OAuth login: discovery, registration and tokens, sent only where the operator allows.

Nearly every URL of a login is named by a remote server or by its authorization server, so each is checked first: https at a
public address, unless an operator named that origin (the server's own `url`, `oauth.issuer`, or `toolgate servers login
--accept-issuer`). Loopback is allowed only where the operator's own `url` is on loopback. The checked address is the one
that is connected to, which defeats DNS rebinding. Imported only where a server has a login.
"""

import asyncio
import ipaddress
from collections.abc import Iterable
from contextlib import suppress

import httpx2
from mcp.client.auth import OAuthFlowError

from toolgate.errors import described
from toolgate.mcp.client.errors import shown
from toolgate.mcp.client.guarded_http import BoundedClient, ResponseTooLong, goes_through_proxy
from toolgate.network.addresses import canonical, is_address, is_public
from toolgate.network.resolver import resolve

LOGIN_SECONDS = 30.0
MAX_LOGIN_BYTES = 1_048_576
MAX_ADDRESSES = 4
BODY_KEEPING_REDIRECTS = frozenset({307, 308})


class LoginGuard:
    """Checks the URLs of one server's login. `named`: URLs that an operator wrote, the server's own first."""

    def __init__(self, server: str, named: Iterable[str]) -> None:
        urls = [httpx2.URL(url) for url in named]
        self._server = server
        self._named = frozenset(map(_origin, urls))
        self._local = urls[0].host == "localhost" or _is_loopback(urls[0].host)

    async def check(self, url: httpx2.URL | str) -> list[str]:
        """Returns the allowed addresses; none: by name, through the operator's proxy. Raises OAuthFlowError."""
        url = httpx2.URL(url)
        if url.scheme not in ("https", "http") or not url.host or url.userinfo:
            raise self._refusal(url, "is not an https address")
        named = _origin(url) in self._named
        if not named and not is_address(url.host) and canonical(url.host) is None:
            raise self._refusal(url, "does not name a host")
        found = await self._resolved(url)
        if not found:
            return []
        fit = [address for address in found if named or is_public(address) or (self._local and _is_loopback(address))]
        if not fit:
            raise self._refusal(url, "is at a private address")
        if url.scheme == "http":
            fit = [address for address in fit if _is_loopback(address)]
            if not fit:
                raise self._refusal(url, "is not an https address")
        return fit[:MAX_ADDRESSES]

    async def _resolved(self, url: httpx2.URL) -> list[str]:
        if is_address(url.host):
            return [url.host]
        try:
            async with asyncio.timeout(LOGIN_SECONDS):
                return await resolve(url.host, url.port or (443 if url.scheme == "https" else 80))
        except (OSError, TimeoutError, UnicodeError) as error:
            if url.scheme == "https" and goes_through_proxy(str(url)):
                return []
            raise httpx2.ConnectError(f"{shown(url.host)} cannot be looked up: {shown(described(error))}") from None

    def _refusal(self, url: httpx2.URL, why: str) -> OAuthFlowError:
        place = shown(f"{url.scheme}://{url.netloc.decode('ascii', 'replace').rpartition('@')[2]}")
        return OAuthFlowError(
            f"its login leads to {place}, which {why}. If that is right, name the authorization server: set `oauth.issuer` "
            f"of the server, or run `toolgate servers login {self._server} --accept-issuer URL`"
        )


async def send(request: httpx2.Request, guard: LoginGuard) -> httpx2.Response:
    """Sends one request of a login, bounded in time and size. Redirects are not followed here: the SDK sends the next
    request if it stays within the origin, and that one is checked again."""
    addresses = await guard.check(request.url)
    await request.aread()
    timeout = httpx2.Timeout(10.0, read=LOGIN_SECONDS)
    limits = httpx2.Limits(max_keepalive_connections=0)  # hosts of one address must not share a TLS connection
    try:
        async with (
            asyncio.timeout(LOGIN_SECONDS),
            BoundedClient(MAX_LOGIN_BYTES, timeout=timeout, limits=limits, trust_env=not addresses) as client,
        ):
            for address in addresses[:-1]:
                with suppress(httpx2.ConnectError):
                    return await _answer(client, _to(request, address), request)
            return await _answer(client, _to(request, addresses[-1]) if addresses else request, request)
    except TimeoutError:
        raise httpx2.ReadTimeout(f"no answer of {shown(request.url.host)} within {LOGIN_SECONDS:g} s") from None


async def _answer(client: BoundedClient, sent: httpx2.Request, request: httpx2.Request) -> httpx2.Response:
    sent.headers["accept-encoding"] = "identity"
    try:
        response = await client.send(sent)
    except ResponseTooLong:
        raise OAuthFlowError(f"the answer of {shown(request.url.host)} is longer than {MAX_LOGIN_BYTES} bytes") from None
    response.request = request
    response.next_request = _next(request, response)
    return response


def _to(request: httpx2.Request, address: str) -> httpx2.Request:
    """The same request to a checked address; the certificate must still be the host's."""
    url = request.url.copy_with(host=address)
    extensions = {**request.extensions, "sni_hostname": request.url.host}
    return httpx2.Request(request.method, url, headers=request.headers, content=request.content, extensions=extensions)


def _next(request: httpx2.Request, answer: httpx2.Response) -> httpx2.Request | None:
    """The request of a redirect, if it keeps the method and the body."""
    if not answer.has_redirect_location or (request.method != "GET" and answer.status_code not in BODY_KEEPING_REDIRECTS):
        return None
    try:
        url = request.url.join(answer.headers["location"])
    except (httpx2.InvalidURL, ValueError):
        return None
    headers = {name: value for name, value in request.headers.items() if name != "host"}
    return httpx2.Request(request.method, url, headers=headers, content=request.content)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _is_loopback(host: str) -> bool:
    found = ipaddress.ip_address(host) if is_address(host) else None
    return found is not None and (getattr(found, "ipv4_mapped", None) or found).is_loopback

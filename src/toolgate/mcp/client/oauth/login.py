"""Logs a person in to a remote server in a browser and stores the tokens (`toolgate servers login NAME`).

The login URL is shown (and opened, where there is a browser); the browser is redirected to a port of this machine with a
code. Only a redirect with the state of this very login counts: any page in a browser can send requests to that port.
"""

import asyncio
import os
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from shlex import quote
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from toolgate.errors import CallError, ToolgateError, described
from toolgate.mcp.client import sdk
from toolgate.mcp.client.errors import shown
from toolgate.mcp.client.oauth.token_store import KeepToken, LoginStore, ReadToken, pinned_issuer
from toolgate.mcp.client.request_meta import MODERN_VERSION, request_headers, request_meta
from toolgate.mcp.client.secret_masking import SecretMasker
from toolgate.mcp.client.secret_refs import ReadSecret
from toolgate.settings import OAuthSettings, ServerSettings
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from mcp.shared.auth import AuthorizationCodeResult

LOGIN_WAIT_SECONDS = 300.0
LOGIN_READ_SECONDS = 30.0
"""Seconds without a byte after which the server itself is given up."""
MAX_CALLBACK_BYTES = 16_384
CALLBACK_PATH = "/callback"
DISCOVER_METHOD = "server/discover"
CALLBACK_PAGE = "<!doctype html><meta charset=utf-8><title>Toolgate</title><p>{}"


class LoginFailed(ToolgateError):
    other_issuer: str | None = None
    """The authorization server that the server names in place of the pinned one, if that is the reason."""


async def login(
    name: str,
    settings: ServerSettings,
    secrets: ReadSecret,
    keep: KeepToken | None,
    show: Callable[[str], None],
    *,
    tokens: ReadToken | None = None,
    browser: bool = True,
    wait_seconds: float = LOGIN_WAIT_SECONDS,
    accept_issuer: str | None = None,
) -> str | None:
    """Logs in, stores the tokens and returns the pinned authorization server. Raises LoginFailed. `tokens` reads what `keep`
    stores. `accept_issuer`: the authorization server that a person accepts."""
    if settings.url is None or settings.oauth is None:
        raise LoginFailed(
            f"Server {name} has no OAuth login.",
            suggestion="Set `url` and `oauth` in its settings (`oauth: {}` where it registers clients itself).",
        )
    await sdk.loaded(sdk.HTTP_MODULES)
    kept = LoginStore(name, settings.url, tokens, keep)
    if accept_issuer is not None:
        await _accept(name, settings.oauth, kept, accept_issuer)
    try:
        async with asyncio.timeout(wait_seconds):
            if settings.oauth.grant == "client_credentials":
                await _log_in(name, settings, secrets, kept, None)
            else:
                async with listen_for_redirect(settings.oauth, show, browser=browser) as back:
                    await _log_in(name, settings, secrets, kept, back)
    except TimeoutError:
        raise LoginFailed(
            f"The login to {name} was not completed within {wait_seconds:g} s.",
            suggestion=f"Run `toolgate servers login {name}` again.",
        ) from None
    return issuer_of(name, settings, tokens) if tokens is not None else None


def issuer_of(name: str, settings: ServerSettings, tokens: ReadToken) -> str | None:
    """The authorization server that a server's login is pinned to: by its settings, by a person, or by the first login."""
    if settings.url is None or settings.oauth is None:
        return None
    pin = pinned_issuer(LoginStore(name, settings.url, tokens, None))
    return settings.oauth.issuer or (pin.issuer if pin else None)


async def _accept(name: str, oauth: OAuthSettings, kept: LoginStore, issuer: str) -> None:
    """Pins the authorization server that a person named."""
    parts = urlsplit(issuer)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        raise LoginFailed(
            f"{shown(issuer)} is not the address of an authorization server.",
            suggestion="It looks like https://login.example.com, without a query.",
        )
    if oauth.issuer is not None and oauth.issuer != issuer:
        raise LoginFailed(
            f"The settings of {name} name the authorization server {shown(oauth.issuer)}.",
            suggestion=f"Change servers.{name}.oauth.issuer instead.",
        )
    await kept.set("ISSUER", {"issuer": issuer, "accepted": True})


async def _log_in(
    name: str, settings: ServerSettings, secrets: ReadSecret, kept: LoginStore, back: "BrowserRedirect | None"
) -> None:
    from toolgate.mcp.client.http_transport import HttpTransport

    show, wait = (back.show, back.result) if back else (None, None)
    try:
        remote = HttpTransport(name, settings, secrets, kept, SecretMasker(), asks=True, show=show, wait=wait)
    except CallError as error:
        raise LoginFailed(f"The login to {name} cannot be tried: {shown(described(error))}") from error
    body = {"jsonrpc": "2.0", "id": 1, "method": DISCOVER_METHOD, "params": {"_meta": request_meta(MODERN_VERSION, {})}}
    headers = {"accept": "application/json, text/event-stream", **request_headers(MODERN_VERSION, DISCOVER_METHOD)}
    async with remote.client as client:
        request = client.build_request("POST", remote.url, json=body, headers=headers, timeout=LOGIN_READ_SECONDS)
        await (await client.send(request, stream=True)).aclose()
    if remote.login is not None and not remote.login.renewed:
        other = remote.login.other_issuer
        command = f"toolgate servers login {name} --accept-issuer {quote(shown(other))}" if other else None
        failed = LoginFailed(
            client.failure or f"The login to {name} gave no token.",
            suggestion=f"If the change is right: `{command}`." if command else None,
        )
        failed.other_issuer = other
        raise failed


class BrowserRedirect:
    """The browser's way to the login and back."""

    def __init__(self, show: Callable[[str], None], *, browser: bool) -> None:
        self._show, self._browser = show, browser
        self._state: str | None = None
        self._came: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def show(self, url: str) -> None:
        self._state = next(iter(parse_qs(urlsplit(url).query).get("state", ())), None)
        self._show(url)
        if self._browser and _has_browser() and urlsplit(url).scheme in ("http", "https"):
            await to_thread(webbrowser.open, url)

    async def result(self) -> "AuthorizationCodeResult":
        """The query of the redirect. The SDK checks state and issuer."""
        from mcp.shared.auth import AuthorizationCodeResult

        found = await self._came
        if "error" in found:
            raise LoginFailed(f"The login was refused: {shown(found.get('error_description') or found['error'])}")
        return AuthorizationCodeResult(code=found.get("code", ""), state=found.get("state"), iss=found.get("iss"))

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
                status, words = self._take(head.split(b"\r\n", 1)[0].decode("latin-1"))
                page = CALLBACK_PAGE.format(words).encode()
                writer.write(
                    f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/html; charset=utf-8\r\n"
                    f"content-length: {len(page)}\r\nconnection: close\r\n\r\n".encode()
                    + page
                )
                await writer.drain()
        writer.close()

    def _take(self, line: str) -> tuple[HTTPStatus, str]:
        method, _, rest = line.partition(" ")
        where = urlsplit(rest.partition(" ")[0])
        if method != "GET" or where.path != CALLBACK_PATH:
            return HTTPStatus.NOT_FOUND, "Not found."
        found = {name: values[0] for name, values in parse_qs(where.query).items()}
        if self._state is None or found.get("state") != self._state or self._came.done():
            return HTTPStatus.BAD_REQUEST, "No login with this state is under way."
        self._came.set_result(found)
        return HTTPStatus.OK, "The login is complete. You can close this window."


@asynccontextmanager
async def listen_for_redirect(
    oauth: OAuthSettings, show: Callable[[str], None], *, browser: bool
) -> AsyncIterator[BrowserRedirect]:
    """Listens for the redirect, on loopback only."""
    back = BrowserRedirect(show, browser=browser)
    try:
        server = await asyncio.start_server(back.answer, "127.0.0.1", oauth.redirect_port, limit=MAX_CALLBACK_BYTES)
    except OSError as error:
        raise LoginFailed(
            f"Port {oauth.redirect_port} for the login's redirect cannot be opened: {error.strerror}.",
            suggestion="Set `oauth.redirect_port` of the server to a free port.",
        ) from None
    async with server:
        yield back


def _has_browser() -> bool:
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))

"""Connects to a remote server: the SDK's transports for streamable HTTP and for the older SSE, made safe to share.

`open_transport` gives an `HttpTransport`: the streams that the SDK's session uses, the last failure, and the fast path for
the most frequent requests. Secrets are put into headers for each request, so that a changed secret holds at once; none is
ever logged. Redirects to another origin are not followed, so nothing of this reaches another host. Imported only where a
remote server is used (`sdk.HTTP_MODULES`), since the HTTP libraries take long to load.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp.client._transport import ReadStream, WriteStream
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from toolgate.errors import CallError
from toolgate.mcp.client.errors import Unreachable, as_call_error, status_message
from toolgate.mcp.client.fast_http import FastHttp
from toolgate.mcp.client.guarded_http import MAX_READ_SECONDS, GuardedClient, goes_through_proxy
from toolgate.mcp.client.model import ServerInfo
from toolgate.mcp.client.oauth.provider import AwaitRedirect, OAuthProvider, ShowUrl
from toolgate.mcp.client.oauth.token_store import LoginStore
from toolgate.mcp.client.secret_masking import SecretMasker
from toolgate.mcp.client.secret_refs import ReadSecret, fill, fill_url
from toolgate.mcp.client.untrusted_text import innermost, longest_timeout, sentence, span
from toolgate.network.http_client import HttpClient
from toolgate.settings import ServerSettings

RESERVED_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "host"}
)
"""Headers that settings can't set, since the protocol needs them. Besides these, all that begin with `mcp-`."""


class HttpTransport:
    """The transport to one remote server."""

    read: ReadStream[SessionMessage | Exception]
    write: WriteStream[SessionMessage]
    jail = layers = pid = None  # there is no program

    def __init__(
        self,
        name: str,
        settings: ServerSettings,
        secrets: ReadSecret,
        kept: LoginStore,
        masker: SecretMasker,
        *,
        asks: bool = False,
        show: ShowUrl | None = None,
        wait: AwaitRedirect | None = None,
        http: HttpClient | None = None,
    ) -> None:
        """`kept` stores the login, and `masker` learns its tokens. `http`: judges each address that is connected to; None:
        the operator named the server. The rest is for logins (`OAuthProvider`)."""
        self.name, self.url, self.most = name, fill_url(_address(name, settings), secrets, name), settings.output_bytes
        self.masker, self.http = masker, http
        self.login: OAuthProvider | None = None
        self._settings, self._secrets = settings, secrets
        self._unfilled = _checked(name, settings.headers)
        self._plain = None if any("{{" in value for value in self._unfilled.values()) else self._unfilled
        if settings.oauth is not None:
            try:
                self.login = OAuthProvider(
                    name, self.url, settings.oauth, secrets, kept, learn=masker.learn, asks=asks, show=show, wait=wait
                )
            except ValueError as error:
                raise Unreachable(message=f"The OAuth settings of server {name} are invalid: {sentence(error)}") from None
        self.client = GuardedClient(self, max(MAX_READ_SECONDS, longest_timeout(settings)))

    def headers(self) -> Mapping[str, str]:
        """The headers of the settings, with secrets filled in."""
        if self._plain is not None:
            return self._plain
        what = f"A header of server {self.name}"
        return {name: fill(value, self._secrets, what) for name, value in self._unfilled.items()}

    def give_up(self) -> None:
        """The server is gone, so its session is not deleted."""
        self.client.hopeless = True

    async def why(self) -> str | None:
        """The reason why it ended, as a sentence."""
        return self.client.failure

    def said(self) -> str:
        return ""

    def last_lines(self) -> tuple[str, ...]:
        return ()

    def fast_http(self, about: ServerInfo) -> FastHttp | None:
        """The fast path; None for the SSE transport, through a proxy, and where addresses are judged."""
        if self.http is not None or self._settings.transport == "sse" or goes_through_proxy(self.url):
            return None
        return FastHttp(self, about.protocol)


@asynccontextmanager
async def open_transport(
    name: str,
    settings: ServerSettings,
    secrets: ReadSecret,
    masker: SecretMasker,
    kept: LoginStore,
    http: HttpClient | None = None,
) -> AsyncIterator[HttpTransport]:
    """Opens the transport to a remote server. Entered and left in the same task. Raises Unreachable."""
    remote = HttpTransport(name, settings, secrets, kept, masker, http=http)
    remote.headers()  # what is missing is said before anything is tried
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(settings.start_seconds):
                if settings.transport == "sse":
                    streams = _sse_streams(remote)
                else:
                    client = await stack.enter_async_context(remote.client)
                    streams = streamable_http_client(remote.url, http_client=client, max_sse_event_size=remote.most)
                remote.read, remote.write = await stack.enter_async_context(streams)
        except TimeoutError:
            words = (
                f"Server {name} did not open the connection within {span(settings.start_seconds)} (setting start_seconds)."
            )
            raise Unreachable(message=words) from None
        except Exception as error:
            raise _not_open(remote, error) from error
        yield remote


@asynccontextmanager
async def _sse_streams(remote: HttpTransport) -> AsyncIterator[tuple[Any, Any]]:
    """Opens the SSE transport: all responses come on one stream, also ours to requests that can't be sent."""
    to_us, ours = create_context_streams[SessionMessage | Exception](0)

    async def late(body: dict[str, Any]) -> None:
        await to_us.send(SessionMessage(jsonrpc_message_adapter.validate_python(body)))

    def client(
        headers: dict[str, str] | None = None,  # noqa: ARG001 - ours has all of this already
        timeout: httpx2.Timeout | None = None,  # noqa: ARG001
        auth: httpx2.Auth | None = None,  # noqa: ARG001
    ) -> httpx2.AsyncClient:
        return remote.client

    async def pass_on(theirs: Any) -> None:
        async with to_us:
            async for message in theirs:
                await to_us.send(message)

    remote.client.late = late
    async with (
        to_us,
        ours,
        sse_client(remote.url, httpx_client_factory=client) as (theirs, write),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(pass_on, theirs)
        yield ours, write
        tasks.cancel_scope.cancel()


def _not_open(remote: HttpTransport, error: Exception) -> CallError:
    first = innermost(error)
    if isinstance(first, CallError):
        return first
    if isinstance(first, httpx2.HTTPStatusError):
        status = first.response.status_code
        words = status_message(remote.name, status)
        if status in (401, 403):
            return as_call_error("login", remote.name, words, oauth=remote.login is not None)
        return Unreachable(message=words)
    return Unreachable(message=f"Server {remote.name} cannot be reached: {sentence(first)}")


def _address(name: str, settings: ServerSettings) -> str:
    parts = urlsplit(settings.url or "")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Unreachable(
            message=f"Server {name} has no valid url.", suggestion="Its `url` begins with https:// or http://."
        )
    return settings.url or ""


def _checked(name: str, headers: Mapping[str, str]) -> dict[str, str]:
    for header in headers:
        if header.lower() in RESERVED_HEADERS or header.lower().startswith("mcp-"):
            raise Unreachable(
                message=f"The header {header!r} of server {name} is reserved for the protocol.",
                suggestion=f"Remove it from `servers.{name}.headers`.",
            )
    return dict(headers)

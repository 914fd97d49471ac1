"""The HTTP authentication of requests to a server with OAuth: before a request is sent, and when it is refused.

The SDK's own flow holds a lock for as long as a request is under way, so that calls would wait for each other. Here a valid
token is simply used; an expired one is refreshed, once for all who need it; and the SDK's flow is used only for a new login.
Imported only where a server has one.
"""

from collections.abc import AsyncGenerator

import httpx2
from mcp.client.auth.utils import extract_field_from_www_auth

from toolgate.mcp.client.login_http import send
from toolgate.mcp.client.oauth import OAuthProvider

Flow = AsyncGenerator[httpx2.Request, httpx2.Response]


class OAuthHttpAuth(httpx2.Auth):
    """Authenticates requests to one server. `asks`: a person is there to log in now."""

    def __init__(self, provider: OAuthProvider, *, asks: bool = False) -> None:
        self.provider, self._asks = provider, asks

    async def async_auth_flow(self, request: httpx2.Request) -> Flow:
        """Tries one stage after the other, until the server accepts."""
        attempt = _Attempt(self.provider, request)
        if self._asks:
            stages = [attempt.challenged(), attempt.with_login()]
        else:
            stages = [attempt.with_token(), attempt.without_token(), attempt.with_login()]
        for stage in stages:
            try:
                outgoing = await anext(stage)
                while True:
                    if outgoing is request:
                        answer = yield outgoing
                    else:  # where a server or its authorization server sends us: never over the server's own connections
                        answer = await send(outgoing, self.provider.guard())
                    outgoing = await stage.asend(answer)
            except StopAsyncIteration:
                if attempt.refusal is None:
                    continue
            finally:
                await stage.aclose()
            if not _wants_login(attempt.refusal):
                return


class _Attempt:
    """One request to a server. `refusal`: the last response to it."""

    def __init__(self, provider: OAuthProvider, request: httpx2.Request) -> None:
        self._provider, self._request = provider, request
        self.refusal: httpx2.Response | None = None

    async def challenged(self) -> Flow:
        """Without a token, for the server's challenge; unless that is stored from a refused call."""
        self.refusal = self._provider.wanted(self._request)
        if self.refusal is None:
            answer = yield self._request
            self.refusal = answer if _wants_login(answer) else httpx2.Response(401, request=self._request)

    async def with_token(self) -> Flow:
        """With the stored token, or a refreshed one."""
        refused: str | None = None
        for _ in range(2):
            token = self._provider.token(refused)
            too_little = self.refusal is not None and self.refusal.status_code == 403  # a renewed one would be no more
            if token is None and not too_little and self._provider.renewable():
                async with self._provider.context.lock:
                    token = self._provider.token(refused)
                    if token is None:
                        answer = yield await self._provider._refresh_token()
                        await self._provider._handle_refresh_response(answer)
                        token = self._provider.token(refused)
            if token is None:
                return
            self._request.headers["Authorization"] = f"Bearer {token}"
            self.refusal = yield self._request
            if not _wants_login(self.refusal):
                return
            refused = token

    async def without_token(self) -> Flow:
        """Without a token, if there is none: some servers require one only for some requests."""
        if self.refusal is None:
            self.refusal = yield self._request

    async def with_login(self) -> Flow:
        """With a new login: by client credentials, or by the person who is there. If nobody is, the challenge is stored."""
        provider, refusal = self._provider, self.refusal
        assert refusal is not None
        if not provider.by_itself and provider.context.redirect_handler is None:
            await provider.kept.want(refusal.status_code, refusal.headers.get("www-authenticate", ""))
            raise provider.needs_login()
        flow = provider.async_auth_flow(self._request)
        try:
            outgoing = await anext(flow)
            if outgoing is self._request:
                outgoing = await flow.asend(refusal)
            while True:
                answer = yield outgoing
                if outgoing is self._request:
                    self.refusal = answer
                outgoing = await flow.asend(answer)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()


def _wants_login(response: httpx2.Response) -> bool:
    if response.status_code == 403:
        return extract_field_from_www_auth(response, "error") == "insufficient_scope"
    return response.status_code == 401

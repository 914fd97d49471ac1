"""The OAuth client of a remote server: the SDK's provider, with what a gateway needs besides.

The SDK's provider forgets the token endpoint when the process ends, sends a client's secret wherever the server says, opens
the browser in the middle of a call, and holds a lock for as long as a request is under way. Here the whole login is stored;
the issuer is pinned on first use, and secrets, codes and refresh tokens go only to the endpoints in the pinned issuer's own
metadata; a person is asked only by `toolgate servers login`, and a call that would need one fails and says so. A valid token
is simply used, an expired one refreshed, once for all who need it, and the SDK's flow is used only for a new login. Imported
only where a server has one, since the SDK takes long to load.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import extract_field_from_www_auth, issuers_match, union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, ValidationError

from toolgate.mcp.client.errors import LoginRequired, login_suggestion, shown
from toolgate.mcp.client.oauth.requests import LoginGuard, send
from toolgate.mcp.client.oauth.token_store import LoginStore, pinned_issuer
from toolgate.mcp.client.secret_refs import ReadSecret, fill
from toolgate.settings import OAuthSettings

EXPIRY_MARGIN_SECONDS = 10.0
REFUSAL_SECONDS = 10.0

LearnToken = Callable[[str | None], None]
ShowUrl = Callable[[str], Awaitable[None]]
AwaitRedirect = Callable[[], Awaitable[AuthorizationCodeResult]]
Deliver = Callable[[], Awaitable[httpx2.Response]]
"""Sends the request at hand to the server itself, as it is now."""


class OAuthProvider(OAuthClientProvider):
    """The SDK's provider for one server, with its state stored."""

    def __init__(
        self, server: str, url: str, settings: OAuthSettings, secrets: ReadSecret, kept: LoginStore, *,
        learn: LearnToken | None = None, asks: bool = False, show: ShowUrl | None = None, wait: AwaitRedirect | None = None,
    ) -> None:  # fmt: skip
        """`learn` is given every token before it is used. `asks`: this is a login, which begins anew; with `show` and `wait`
        it can ask a person."""
        if not _is_private(url):
            raise ValueError("tokens are sent only over https, or to this machine")
        self.server, self.kept, self._settings = server, kept, settings
        self.renewed = False
        self._learn, self._asks, self._show = learn, asks, show
        self._by_itself = settings.grant == "client_credentials"
        secret = fill(settings.client_secret, secrets, f"The login to {server}") if settings.client_secret else None
        self._fixed = _registration(settings, secret)
        self.other_issuer: str | None = None
        """The authorization server that the server named in place of the pinned one."""
        super().__init__(
            url, _metadata(settings), self, self._show_checked if show else None, wait,
            client_metadata_url=settings.client_metadata_url,
        )  # fmt: skip

    async def send(self, request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
        """Sends a request with a token: the stored one, a refreshed one, or that of a new login. Some servers require one
        only for some requests, so without any it is tried as it is."""
        if self._asks:
            response = self._challenge(request) or await _read_refusal(deliver)
            if not _wants_login(response):
                await response.aclose()
                response = httpx2.Response(401, request=request)
        else:
            response = await self._send_with_token(request, deliver) or await _read_refusal(deliver)
        return await self._send_with_login(request, deliver, response) if _wants_login(response) else response

    async def _send_with_token(self, request: httpx2.Request, deliver: Deliver) -> httpx2.Response | None:
        response, refused = None, None
        for _ in range(2):
            # A refreshed token would be granted no more than one that is refused for what it grants.
            refresh = response is None or response.status_code != 403
            token = await self._refreshed_token(refused) if refresh else self.token(refused)
            if token is None:
                break
            request.headers["Authorization"] = f"Bearer {token}"
            response = await _read_refusal(deliver)
            if not _wants_login(response):
                break
            refused = token
        return response

    async def _refreshed_token(self, refused: str | None) -> str | None:
        token = self.token(refused)
        if token is None and self.context.can_refresh_token():
            async with self.context.lock:
                token = self.token(refused)
                if token is None:
                    await self._handle_refresh_response(await send(await self._refresh_token(), self.guard()))
                    token = self.token(refused)
        return token

    async def _send_with_login(self, request: httpx2.Request, deliver: Deliver, refusal: httpx2.Response) -> httpx2.Response:
        """Logs in by client credentials, or by the person who is there. If nobody is, the challenge is stored."""
        if not self._by_itself and self.context.redirect_handler is None:
            await self.kept.want(refusal.status_code, refusal.headers.get("www-authenticate", ""))
            raise self._needs_login()
        flow, response = self.async_auth_flow(request), refusal
        try:
            outgoing = await anext(flow)
            if outgoing is request:
                outgoing = await flow.asend(refusal)
            while True:
                if outgoing is request:
                    answer = response = await _read_refusal(deliver)
                else:  # where a server or its authorization server sends us: never over the server's own connections
                    answer = await send(outgoing, self.guard())
                outgoing = await flow.asend(answer)
        except StopAsyncIteration:
            return response
        finally:
            await flow.aclose()

    def _challenge(self, request: httpx2.Request) -> httpx2.Response | None:
        """The stored challenge of the server, as a response; None if there is none."""
        wanted = self.kept.get("TOKENS").get("wanted")
        if not wanted:
            return None
        return httpx2.Response(wanted["status"], headers={"www-authenticate": wanted["challenge"]}, request=request)

    def _needs_login(self) -> LoginRequired:
        words = f"Server {self.server} requires a login, and no valid one is stored."
        return LoginRequired(message=words, suggestion=login_suggestion(self.server, oauth=True))

    def guard(self) -> LoginGuard:
        """The check of this login's URLs, by what the operator has named so far."""
        pin = pinned_issuer(self.kept)
        named = (self.context.server_url, self._settings.issuer, pin.issuer if pin and pin.accepted else None)
        return LoginGuard(self.server, [url for url in named if url])

    async def _show_checked(self, url: str) -> None:
        assert self._show is not None
        await self.guard().check(url)
        await self._show(url)

    def token(self, refused: str | None = None) -> str | None:
        """A valid token other than a refused one. Another task, another process or a person may have stored a new one."""
        found = self._good(refused)
        if found is None:
            self._take_up()
            found = self._good(refused)
        return found

    def _good(self, refused: str | None) -> str | None:
        tokens, until = self.context.current_tokens, self.context.token_expiry_time
        if tokens is None or tokens.access_token == refused:
            return None
        return tokens.access_token if until is None or until >= time.time() + EXPIRY_MARGIN_SECONDS else None

    def _take_up(self) -> None:
        """Loads the stored login."""
        found, context = self.kept.get("TOKENS"), self.context
        try:
            if found.get("tokens"):
                context.current_tokens = self._learned(OAuthToken.model_validate(found["tokens"]))
                context.token_expiry_time = found.get("until")
            if found.get("metadata"):
                context.oauth_metadata = OAuthMetadata.model_validate(found["metadata"])
            if found.get("resource"):
                context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(found["resource"])
            client = self.kept.get("CLIENT").get("client")
            context.client_info = OAuthClientInformationFull.model_validate(client) if client else None
        except ValidationError:
            context.clear_tokens()
        context.client_info = self._fixed or context.client_info
        context.auth_server_url = found.get("at") or context.auth_server_url
        if found.get("tokens") and not self._is_of_pinned_issuer(str(found.get("issuer"))):
            context.clear_tokens()
            context.oauth_metadata = None
        self._initialized = True

    def _learned(self, tokens: OAuthToken) -> OAuthToken:
        if self._learn is not None:
            self._learn(tokens.access_token)
            self._learn(tokens.refresh_token)
        return tokens

    # -- what the SDK asks of its storage, which is this

    async def get_tokens(self) -> OAuthToken | None:
        return self.context.current_tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._learned(tokens)
        self.renewed, context = True, self.context
        metadata, resource = context.oauth_metadata, context.protected_resource_metadata
        await self.kept.set(
            "TOKENS",
            {
                "tokens": tokens.model_dump(mode="json", exclude_none=True),
                "until": None if tokens.expires_in is None else time.time() + tokens.expires_in,
                "metadata": metadata.model_dump(mode="json", exclude_none=True) if metadata else None,
                "resource": resource.model_dump(mode="json", exclude_none=True) if resource else None,
                "at": context.auth_server_url,
                "issuer": super()._expected_issuer(),
            },
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.context.client_info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self.kept.set("CLIENT", {"client": client_info.model_dump(mode="json", exclude_none=True)})

    # -- where ours differs

    async def _initialize(self) -> None:
        self._take_up()

    def _pinned_issuer(self) -> str | None:
        pin = pinned_issuer(self.kept)
        return self._settings.issuer or (pin.issuer if pin else None)

    def _is_of_pinned_issuer(self, issuer: str) -> bool:
        pinned = self._pinned_issuer()
        return pinned is None or issuers_match(issuer, pinned)

    def _expected_issuer(self) -> str:
        """Raises if the server names another issuer than the pinned one: what is for one is not sent to another."""
        issuer = super()._expected_issuer()
        if not self._is_of_pinned_issuer(issuer):
            if self._settings.issuer is None:
                self.other_issuer = issuer
            where = (
                f"the setting servers.{self.server}.oauth.issuer"
                if self._settings.issuer
                else f"the login: a person can accept it with `toolgate servers login {self.server} --accept-issuer URL`"
            )
            raise OAuthFlowError(
                f"the server names another authorization server ({shown(issuer)}) than {self._pinned_issuer()}, "
                f"pinned by {where}"
            )
        return issuer

    def _select_authorization_server(self, advertised: list[str]) -> str:
        wanted = self._pinned_issuer()
        return next((one for one in advertised if wanted and issuers_match(one, wanted)), advertised[0])

    def _check_endpoints(self) -> None:
        """Raises unless the endpoints are the pinned issuer's: as its own metadata says, or those of the server itself where
        it is its own issuer. Without metadata the SDK would use the server's, whatever issuer it named."""
        context = self.context
        issuer = self._expected_issuer()
        if context.oauth_metadata is not None and issuers_match(str(context.oauth_metadata.issuer), issuer):
            return
        own = context.get_authorization_base_url(context.server_url)
        if context.oauth_metadata is not None or not issuers_match(issuer, own):
            raise OAuthFlowError(f"the authorization server {shown(issuer)} publishes no metadata of its own")

    def _get_token_endpoint(self) -> str:
        self._check_endpoints()
        return super()._get_token_endpoint()

    async def _refresh_token(self) -> httpx2.Request:
        self._check_endpoints()
        return await super()._refresh_token()

    async def _pin(self) -> None:
        """Pins the issuer before anything secret is sent to it."""
        if self._pinned_issuer() is None:
            await self.kept.set("ISSUER", {"issuer": self._expected_issuer(), "accepted": False})

    async def _perform_authorization(self) -> httpx2.Request:
        if self._settings.scopes:
            self.context.client_metadata.scope = union_scopes(
                self.context.client_metadata.scope, " ".join(self._settings.scopes)
            )
        self._choose_how_to_show_secret()
        self._check_endpoints()
        if self._by_itself:
            await self._pin()
            return self._ask_by_itself()
        if self.context.redirect_handler is None:
            raise self._needs_login()
        code, verifier = await self._perform_authorization_code_grant()
        await self._pin()
        return await self._exchange_token_authorization_code(code, verifier)

    def _choose_how_to_show_secret(self) -> None:
        """Uses the client authentication method that the authorization server supports."""
        metadata = self.context.oauth_metadata
        ways = (metadata.token_endpoint_auth_methods_supported if metadata else None) or ()
        if self._fixed is not None and self._fixed.client_secret and ways and "client_secret_basic" not in ways:
            self._fixed.token_endpoint_auth_method = "client_secret_post"

    def _ask_by_itself(self) -> httpx2.Request:
        data = {"grant_type": "client_credentials"}
        if self.context.should_include_resource_param(self.context.protocol_version):
            data["resource"] = self.context.get_resource_url()
        if self.context.client_metadata.scope:
            data["scope"] = self.context.client_metadata.scope
        data, headers = self.context.prepare_token_auth(data, {"Content-Type": "application/x-www-form-urlencoded"})
        return httpx2.Request("POST", self._get_token_endpoint(), data=data, headers=headers)


async def _read_refusal(deliver: Deliver) -> httpx2.Response:
    """Delivers the request. A refusal is read or closed at once, so that its connection is free whatever comes of the
    login."""
    response = await deliver()
    if _wants_login(response):
        try:
            with suppress(TimeoutError, httpx2.HTTPError):
                async with asyncio.timeout(REFUSAL_SECONDS):
                    await response.aread()
        finally:
            await response.aclose()
    return response


def _wants_login(response: httpx2.Response) -> bool:
    if response.status_code == 403:
        return extract_field_from_www_auth(response, "error") == "insufficient_scope"
    return response.status_code == 401


def _is_private(url: str) -> bool:
    """True if nobody on the way can read what is sent there."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1")


def _metadata(settings: OAuthSettings) -> OAuthClientMetadata:
    scope = " ".join(settings.scopes) or None
    if settings.grant == "client_credentials":
        return OAuthClientMetadata(
            redirect_uris=None, grant_types=["client_credentials"], scope=scope, client_name="Toolgate"
        )
    return OAuthClientMetadata(
        redirect_uris=[AnyUrl(f"http://127.0.0.1:{settings.redirect_port}/callback")], scope=scope, client_name="Toolgate"
    )


def _registration(settings: OAuthSettings, secret: str | None) -> OAuthClientInformationFull | None:
    """The client as an operator registered it."""
    if settings.client_id is None:
        return None
    metadata = _metadata(settings)
    return OAuthClientInformationFull(
        client_id=settings.client_id,
        client_secret=secret,
        redirect_uris=metadata.redirect_uris,
        grant_types=metadata.grant_types,
        token_endpoint_auth_method="client_secret_basic" if secret else "none",
    )

"""An OAuth authorization server, and an MCP server that takes its tokens: real ones as far as a client can tell.

Codes are bound to their client, address and PKCE challenge; tokens run out; refresh tokens are used up by using them.
"""

import asyncio
import base64
import hashlib
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import unquote, urlencode

from tests.loopback import Asked, Said, Site, site
from tests.remote_servers import Odd


class Authority:
    """The authorization server."""

    def __init__(self) -> None:
        self.at: Site | None = None
        self.seconds = 3_600
        """How long a token is good."""
        self.refreshes = True
        self.says_no = False
        self.clients: dict[str, dict[str, Any]] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.tokens: dict[str, tuple[float, str]] = {}
        """By token: until when it is good, and for what."""
        self.renewals: dict[str, str] = {}
        """By refresh token, what it is for."""
        self.scopes_asked: list[str] = []

    @property
    def url(self) -> str:
        assert self.at is not None
        return self.at.url

    def asked(self, path: str) -> list[Asked]:
        """What was asked of it at an address."""
        assert self.at is not None
        return [one for one in self.at.asked if one.path == path]

    def allows(self, token: str, scope: str) -> bool | None:
        """Whether a token allows something; None if it is not good at all."""
        until, granted = self.tokens.get(token, (0.0, ""))
        return scope in granted.split() if until > time.time() else None

    async def __call__(self, asked: Asked) -> Said:
        match asked.method, asked.path:
            case "GET", "/.well-known/oauth-authorization-server":
                return Said(200, self._metadata())
            case "POST", "/register":
                client = secrets.token_hex(8)
                self.clients[client] = {**asked.json, "client_id": client}
                return Said(201, self.clients[client])
            case "GET", "/authorize":
                return self._authorize(asked.query)
            case "POST", "/token":
                return self._token(asked)
        return Said(404)

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
        }

    def _authorize(self, query: dict[str, str]) -> Said:
        client = self.clients.get(query["client_id"])
        if (
            client is None
            or query["redirect_uri"] not in client["redirect_uris"]
            or query["code_challenge_method"] != "S256"
        ):
            return Said(400, {"error": "invalid_request"})
        back = {"state": query["state"], "iss": self.url}
        if self.says_no:
            back |= {"error": "access_denied", "error_description": "the person said no"}
        else:
            back["code"] = secrets.token_hex(8)
            self.codes[back["code"]] = query
            self.scopes_asked.append(query.get("scope", ""))
        return Said(302, b"", {"location": f"{query['redirect_uri']}?{urlencode(back)}"})

    def _token(self, asked: Asked) -> Said:
        form = asked.form
        match form["grant_type"]:
            case "authorization_code":
                code = self.codes.pop(form["code"], None)
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                proof = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                if code is None or (code["client_id"], code["redirect_uri"], code["code_challenge"]) != (
                    form["client_id"], form["redirect_uri"], proof,
                ):  # fmt: skip
                    return Said(400, {"error": "invalid_grant"})
                return self._granted(code.get("scope", ""))
            case "refresh_token":
                scope = self.renewals.pop(form["refresh_token"], None)
                return Said(400, {"error": "invalid_grant"}) if scope is None else self._granted(scope)
            case "client_credentials":
                given = base64.b64decode(asked.headers.get("authorization", "").removeprefix("Basic ")).decode()
                name, _, secret = given.partition(":")
                client = self.clients.get(unquote(name))
                if client is None or client.get("client_secret") != unquote(secret):
                    return Said(401, {"error": "invalid_client"})
                return self._granted(form.get("scope", ""), renewable=False)
        return Said(400, {"error": "unsupported_grant_type"})

    def _granted(self, scope: str, *, renewable: bool = True) -> Said:
        token, renewal = f"access-{secrets.token_hex(8)}", f"refresh-{secrets.token_hex(8)}"
        self.tokens[token] = (time.time() + self.seconds, scope)
        said: dict[str, Any] = {"access_token": token, "token_type": "Bearer", "expires_in": self.seconds, "scope": scope}
        if renewable and self.refreshes:
            self.renewals[renewal] = scope
            said["refresh_token"] = renewal
        return Said(200, said)


class Guarded:
    """An MCP server that wants a token: any for most things, one with the scope `admin` for the tool `slow`."""

    def __init__(self, authority: Authority, server: Odd) -> None:
        self._authority, self._server = authority, server
        self.at: Site | None = None

    async def __call__(self, asked: Asked) -> Said:
        assert self.at is not None
        about = f"{self.at.url}/.well-known/oauth-protected-resource"
        if asked.path.startswith("/.well-known/oauth-protected-resource"):
            return Said(200, {"resource": f"{self.at.url}/mcp", "authorization_servers": [self._authority.url]})
        if asked.path.startswith("/.well-known"):
            return Said(404)
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if self._authority.allows(token, "basic") is None:
            challenge = f'Bearer resource_metadata="{about}", scope="basic"'
            return Said(401, {"error": "invalid_token"}, {"www-authenticate": challenge})
        if b'"slow"' in asked.body and not self._authority.allows(token, "admin"):
            challenge = f'Bearer error="insufficient_scope", scope="admin", resource_metadata="{about}"'
            return Said(403, {"error": "insufficient_scope"}, {"www-authenticate": challenge})
        return await self._server(asked)


@asynccontextmanager
async def guarded(*, old: bool = False) -> AsyncIterator[tuple[Authority, str, Odd]]:
    """An authorization server, and the address of an MCP server that takes its tokens."""
    authority, server = Authority(), Odd(old=old)
    resource = Guarded(authority, server)
    async with site(authority) as first, site(resource) as second:
        authority.at, resource.at = first, second
        yield authority, f"{second.url}/mcp", server


class Browser:
    """Shown an address, it goes there and wherever that leads, as a browser does whose person says yes."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self._going: set[asyncio.Task[None]] = set()

    def __call__(self, url: str) -> None:
        self.shown.append(url)
        task = asyncio.get_running_loop().create_task(asyncio.to_thread(visit, url))
        self._going.add(task)
        task.add_done_callback(self._going.discard)


def visit(url: str) -> None:
    """Go to an address, and wherever it leads."""
    with suppress(urllib.error.HTTPError), urllib.request.urlopen(url, timeout=60) as answer:
        answer.read()

"""An issuer of tokens (JWT): its metadata and its keys on loopback, and tokens as good or as bad as a test wants them."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.authority import Authority
from tests.loopback import Asked, Said, Site, site

AUDIENCE = "https://gate.example.com/mcp"
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
_made: dict[str, PrivateKey] = {}


def private_key(name: str, kind: str = "RS256") -> PrivateKey:
    """A key of this name, made once: those of RSA take a while."""
    if name not in _made:
        if kind.startswith("ES"):
            curves: dict[str, ec.EllipticCurve] = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
            _made[name] = ec.generate_private_key(curves[kind])
        elif kind == "EdDSA":
            _made[name] = ed25519.Ed25519PrivateKey.generate()
        else:
            _made[name] = rsa.generate_private_key(65_537, 1_024 if name == "short" else 2_048)
    return _made[name]


def public_jwk(name: str, kind: str = "RS256", **more: Any) -> dict[str, Any]:
    """The public part of a key, as a key set has it."""
    algorithm = jwt.get_algorithm_by_name(kind)
    return {**json.loads(algorithm.to_jwk(private_key(name, kind).public_key())), "kid": name, **more}


def unsigned(header: Mapping[str, Any] | bytes, claims: Mapping[str, Any] | bytes, signature: bytes = b"") -> str:
    """A token of these very parts."""
    parts = (part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, claims))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, signature))


class Issuer:
    """The server of an issuer."""

    def __init__(self) -> None:
        self.at: Site | None = None
        self.keys: list[dict[str, Any]] = [public_jwk("one")]
        self.said: Said | None = None
        """What is answered to who asks for the keys, in place of them."""
        self.hangs = False
        self.metadata: dict[str, Any] = {}
        """Besides the usual metadata, or in its place."""

    @property
    def url(self) -> str:
        assert self.at is not None
        return self.at.url

    def settings(self, **more: Any) -> dict[str, Any]:
        """An entry of `auth.issuers`."""
        usual = {
            "issuer": self.url, "audience": [AUDIENCE], "tenant": "acme",
            "roles": {"staff": "caller", "admins": "admin", "watchers": "viewer"},
        }  # fmt: skip
        return {**usual, **more}

    def claims(self, **more: Any) -> dict[str, Any]:
        """Claims of a good token, with some changed, or left away (None)."""
        at = int(time.time())
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "roles": ["staff"], "iat": at, "nbf": at, "exp": at + 600}
        return {name: value for name, value in {**usual, **more}.items() if value is not None}

    def token(self, key: str = "one", kind: str = "RS256", *, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        """A token, signed."""
        headers = {"kid": key, **(header or {})}
        return jwt.encode(self.claims(**claims), private_key(key, kind), kind, headers=headers)

    def asked(self, path: str) -> int:
        """How often an address was asked for."""
        assert self.at is not None
        return sum(one.path == path for one in self.at.asked)

    async def __call__(self, asked: Asked) -> Said:
        if self.hangs:
            await asyncio.sleep(3_600)
        match asked.path:
            case "/.well-known/openid-configuration":
                return Said(200, {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **self.metadata})
            case "/keys":
                return self.said or Said(200, {"keys": self.keys})
        return Said(404)


@asynccontextmanager
async def an_issuer() -> AsyncIterator[Issuer]:
    made = Issuer()
    async with site(made) as at:
        made.at = at
        yield made


class TokenAuthority(Authority):
    """An authorization server whose access tokens are JWT for the resource that was asked for (RFC 8707)."""

    resource = ""

    async def __call__(self, asked: Asked) -> Said:
        if asked.path == "/keys":
            return Said(200, {"keys": [public_jwk("one")]})
        if asked.path == "/token":
            self.resource = asked.form.get("resource", "")
        return await super().__call__(asked)

    def _metadata(self) -> dict[str, Any]:
        return {**super()._metadata(), "jwks_uri": f"{self.url}/keys"}

    def _granted(self, scope: str, *, renewable: bool = True) -> Said:
        said = super()._granted(scope, renewable=renewable)
        at = int(time.time())
        claims = {"iss": self.url, "aud": self.resource, "sub": "ann", "roles": "staff", "iat": at, "exp": at + self.seconds}
        assert isinstance(said.body, dict)
        header = {"kid": "one", "typ": "at+jwt"}
        said.body["access_token"] = jwt.encode({**claims, "scope": scope}, private_key("one"), "RS256", headers=header)
        return said

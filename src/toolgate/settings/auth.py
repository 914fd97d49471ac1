"""Settings of sign-in: the issuers whose tokens are taken, and how long browsers stay signed in. API keys need none."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from toolgate.model.roles import Role
from toolgate.network.addresses import is_loopback
from toolgate.settings.section import Section

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures with a public key. One that is made with a shared secret could be made by whoever checks it."""
Claim = Annotated[str, StringConstraints(min_length=1, max_length=256)] | Annotated[tuple[str, ...], Field(min_length=1)]
"""A claim's name, or the names that lead to it: `[realm_access, roles]`."""


def _issuer_url(url: str) -> str:
    """An address as tokens write it, so that nothing of it is changed."""
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname or not url.isascii() or not url.isprintable():
        raise ValueError("must be an address such as https://login.example.com")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("must have no user, password or fragment")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError("must begin with https://: http:// is for this machine only")
    return url


IssuerUrl = Annotated[str, AfterValidator(_issuer_url)]


class ClaimSettings(Section):
    """The claims of an issuer's tokens that say who their holder is."""

    tenant: Claim | None = None
    """None: the issuer's `tenant` says it."""
    persona: Claim | None = None
    """None: its holders have no persona. If it is set, a token without it is refused."""
    user: Claim = "sub"
    roles: Claim = "roles"
    """A list, or names with blanks between them."""
    scopes: Claim | None = None
    """A list, or names with blanks between them: what tools may ask for (`tool:web_search`). None: its holders have none."""


class IssuerSettings(Section):
    """One issuer of tokens (JWT)."""

    issuer: IssuerUrl
    """As the claim `iss` has it, to the letter."""
    audience: tuple[str, ...] = ()
    """What the claim `aud` must name one of; empty: the address of /mcp, by `serve.public_url`."""
    jwks_url: IssuerUrl | None = None
    """Where its public keys are; None: where its metadata says."""
    algorithms: tuple[Algorithm, ...] = Field(default=("RS256", "PS256", "ES256", "ES384", "EdDSA"), min_length=1)
    """The signatures that are taken."""
    claims: ClaimSettings = ClaimSettings()
    tenant: str | None = Field(default=None, min_length=1, max_length=256)
    """The tenant of all its tokens, in place of a claim."""
    roles: dict[str, Role] = Field(default_factory=dict)
    """Roles by values of the claim: `{gate-admins: admin, staff: caller}`. A token with none of them is refused."""
    required_scopes: tuple[Annotated[str, StringConstraints(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]{1,256}$")], ...] = ()
    """Scopes that a token must have in its claim `scope` (or `scp`). MCP clients are told to ask for them."""
    leeway: float = Field(default=30, ge=0, le=300)
    """Seconds that its clock may differ from this machine's."""

    @model_validator(mode="after")
    def _has_one_tenant(self) -> "IssuerSettings":
        if (self.tenant is None) == (self.claims.tenant is None):
            raise ValueError("either tenant or claims.tenant must say whose its tokens are")
        return self


class AuthSettings(Section):
    """Who may use the HTTP server, besides holders of API keys."""

    issuers: tuple[IssuerSettings, ...] = ()
    """Whose tokens (JWT) are taken."""
    link_seconds: float = Field(default=600, ge=1, le=86_400)
    """How long a sign-in link can be opened."""
    idle_seconds: float = Field(default=43_200, ge=60, le=31_536_000)
    """How long a browser that sends nothing stays signed in."""
    session_seconds: float = Field(default=604_800, ge=60, le=31_536_000)
    """How long a browser stays signed in at most."""

    @field_validator("issuers")
    @classmethod
    def _each_once(cls, issuers: tuple[IssuerSettings, ...]) -> tuple[IssuerSettings, ...]:
        names = [one.issuer for one in issuers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the issuer {name} stands there more than once")
        return issuers

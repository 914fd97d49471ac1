"""`app.issuers`: tokens (JWT) of the issuers in the setting `auth.issuers` are checked, and say who their holder is.

Tenant, persona, user, roles and scopes come from the settings of the issuer and from claims that it signed. What is absent
is refused: a token without a role that the settings map, without a user, or of a tenant whose name no key could have.
"""

from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any

import orjson

from toolgate.app.facets import Facet
from toolgate.app.json_web_tokens import NotAToken, UnverifiedToken, check_claims, read, verified
from toolgate.app.keys import MAX_SCOPES, check_letters, check_user, own_user
from toolgate.app.known_credentials import KnownCredentials
from toolgate.errors import KeyRefused, ToolgateError
from toolgate.mcp.server.identity import Credential
from toolgate.model import LOCAL, Actor
from toolgate.model.roles import permissions_of
from toolgate.network.http_client import HttpClient
from toolgate.network.key_sets import KeySet, KeySetSource
from toolgate.screening.lookalikes import person
from toolgate.settings.auth import Claim, IssuerSettings
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

KNOWN_SECONDS = 300.0
"""The time in which a token that was checked is not checked again: a key that its issuer gave up counts no longer."""
ID_PREFIX = "jwt:"
"""Before the id of a token's credential."""


class MissingScope(ToolgateError):
    """The token lacks a scope that its issuer's tokens must have."""

    def __init__(self, required: tuple[str, ...]) -> None:
        super().__init__(f"The token does not have all of the scopes that it must have: {' '.join(required)}.")
        self.required = required


class IssuersFacet(Facet):
    """The issuers whose tokens are taken."""

    def __init__(self, parts: "Parts") -> None:
        super().__init__(parts)
        settings = parts.settings
        self._http = HttpClient((), settings.network.ports)
        self._known = KnownCredentials(parts)
        public = settings.serve.public_url
        own = frozenset() if public is None else frozenset({f"{public}/mcp"})
        self._issuers = {
            one.issuer: Issuer(one, self._http, frozenset(one.audience) or own) for one in settings.auth.issuers
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The issuers, as their tokens name them."""
        return tuple(self._issuers)

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that tokens must have."""
        return tuple(dict.fromkeys(scope for one in self._issuers.values() for scope in one.settings.required_scopes))

    def known(self, text: bytes) -> Credential | None:
        """Gives who holds a token, if it was checked a moment ago; None: ask `check`."""
        return self._known.get(text) if self._issuers else None

    async def check(self, text: bytes) -> Credential | None:
        """Gives who holds a token; None if it is none that is taken. Raises `MissingScope`, and `KeySetUnavailable` where
        that can't be told."""
        if not self._issuers:
            return None
        epoch = await self._known.catch_up()
        try:
            token = read(text)
            issuer = self._issuers.get(token.issuer)
            if issuer is None:
                return None
            await to_thread(import_module, "jwt")  # here it would hold the loop
            credential, until = await issuer.check(token, self._parts.wall_time())
        except (NotAToken, KeyRefused):
            return None
        self._known.keep(text, credential, min(KNOWN_SECONDS, until - self._parts.wall_time()), epoch)
        return credential

    def recall(self, id: str) -> None:
        """Raises `KeyRefused` if this is the id of a token's holder: tokens are not kept, so that nobody can go on in their
        name."""
        if id.startswith(ID_PREFIX):
            raise KeyRefused("It was begun with a token, and tokens are not kept.")

    async def close(self) -> None:
        """Lets go of what is being fetched."""
        for issuer in self._issuers.values():
            await issuer.keys.close()
        await self._http.close()


class Issuer:
    """One issuer: its keys, and what its claims mean."""

    def __init__(self, settings: IssuerSettings, http: HttpClient, audiences: frozenset[str]) -> None:
        self.settings = settings
        self.keys = KeySet(settings.issuer, KeySetSource(http, settings.issuer, settings.jwks_url).fetch)
        self._audiences = audiences

    async def check(self, token: UnverifiedToken, at: float) -> tuple[Credential, float]:
        """The credential of a token, and until when it is valid. Raises NotAToken, KeyRefused, MissingScope and
        KeySetUnavailable."""
        settings = self.settings
        if token.algorithm not in settings.algorithms:
            raise NotAToken
        claims = verified(token, await self.keys.find(token.key_id))
        until = check_claims(claims, settings.issuer, self._audiences, at, settings.leeway)
        credential = self._credential(claims)
        if not frozenset(settings.required_scopes) <= granted_scopes(claims):
            raise MissingScope(settings.required_scopes)
        return credential, until

    def _credential(self, claims: dict[str, Any]) -> Credential:
        names = self.settings.claims
        tenant = self.settings.tenant or _text(claims, names.tenant)
        user, persona = _text(claims, names.user), _text(claims, names.persona)
        if tenant is None or user is None or (persona is None and names.persona is not None):
            raise NotAToken
        values = _words(claims, names.roles)
        roles = {self.settings.roles[value] for value in values if value in self.settings.roles}
        scopes = tuple(dict.fromkeys(_words(claims, names.scopes)))
        if not roles or len(scopes) > MAX_SCOPES or any(not one.isprintable() or len(one) > 256 for one in scopes):
            raise NotAToken
        actor = _actor(tenant, persona, user, scopes)
        # Without the token's own id: whoever renews a token goes on with the calls that the last one began.
        holder = orjson.dumps([self.settings.issuer, claims.get("sub"), tenant, persona, user])
        return Credential(ID_PREFIX + sha256(holder).hexdigest()[:32], actor, False, permissions_of(roles))


def _actor(tenant: str, persona: str | None, user: str, scopes: tuple[str, ...]) -> Actor:
    """Raises NotAToken and KeyRefused for names that no key could have."""
    try:
        check_letters(tenant, "tenant")
        check_letters(persona or "", "persona")
        check_user(user)
        if is_reserved(user):
            raise NotAToken
        return Actor(tenant, persona, user, scopes)
    except ValueError:
        raise NotAToken from None


def is_reserved(user: str) -> bool:
    """Tells whether this is the person at this machine, or the user of a key: no token makes its holder one of them."""
    return person(user) == LOCAL.user or person(user).startswith(own_user(""))


def granted_scopes(claims: dict[str, Any]) -> frozenset[str]:
    """The scopes that an authorization server granted, as RFC 9068 has them (`scope`) or as some others do (`scp`)."""
    return frozenset(_words(claims, "scope")) | frozenset(_words(claims, "scp"))


def _claim(claims: dict[str, Any], name: Claim | None) -> Any:
    found: Any = claims
    for step in () if name is None else (name,) if isinstance(name, str) else name:
        found = found.get(step) if isinstance(found, dict) else None
    return None if name is None else found


def _text(claims: dict[str, Any], name: Claim | None) -> str | None:
    found = _claim(claims, name)
    if found is not None and not isinstance(found, str):
        raise NotAToken
    return found


def _words(claims: dict[str, Any], name: Claim | None) -> list[str]:
    found = _claim(claims, name)
    if isinstance(found, str):
        return found.split()
    return [one for one in found if isinstance(one, str) and one] if isinstance(found, list) else []

"""Tokens of issuers (JWT, RFC 7519) as they are read: strictly, by lists of what is allowed (RFC 8725).

Of a token's header only `alg`, `typ` and `kid` are read. Where its key is comes from the settings: what a token says of that
(`jku`, `jwk`, `x5u`, `x5c`) was written by whoever made it. Names that stand twice are refused, since two readers would not
agree on which counts.
"""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from typing import Any, NamedTuple

from toolgate.network.key_sets import Jwk

MAX_TOKEN_BYTES = 16_384
TYPES = frozenset({None, "jwt", "at+jwt", "application/at+jwt"})
"""What a token may say that it is. There are others which look like an access token and are none."""
KEYS: dict[str, tuple[str, str | None]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""The type of key, and its curve, of each signature."""
_FORM = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+")


class NotAToken(Exception):
    """The text is no token that could be taken."""


class UnverifiedToken(NamedTuple):
    """A token of which only the form is known to be right."""

    text: bytes
    algorithm: str
    key_id: str | None
    issuer: str


def read(text: bytes) -> UnverifiedToken:
    """Reads what must be known to find the key of a token. Raises NotAToken."""
    found = _FORM.fullmatch(text) if len(text) <= MAX_TOKEN_BYTES else None
    if found is None:
        raise NotAToken
    header, claims = _object(found[1]), _object(found[2])
    algorithm, kind, key_id, issuer = header.get("alg"), header.get("typ"), header.get("kid"), claims.get("iss")
    if not isinstance(algorithm, str) or not isinstance(issuer, str) or not isinstance(key_id, str | None):
        raise NotAToken
    if "crit" in header or "b64" in header or "enc" in header:
        raise NotAToken  # it must not be taken by who does not know these extensions
    if (kind.lower() if isinstance(kind, str) else kind) not in TYPES:
        raise NotAToken
    return UnverifiedToken(text, algorithm, key_id, issuer)


def verified(token: UnverifiedToken, keys: Sequence[Jwk]) -> dict[str, Any]:
    """The claims of a token that one of these keys has signed. Raises NotAToken."""
    from jwt import PyJWK
    from jwt.api_jws import PyJWS
    from jwt.exceptions import PyJWTError

    signatures = PyJWS(algorithms=[token.algorithm], options={"verify_signature": True, "enforce_minimum_key_length": True})
    fit = [key for key in keys if fits(key, token.algorithm)]
    if token.key_id is None and len(fit) != 1:
        raise NotAToken  # which one is meant is not for us to try out
    for key in fit:
        try:
            made = PyJWK(dict(key), token.algorithm)
            return strict_object(signatures.decode_complete(token.text, made, [token.algorithm])["payload"])
        except (PyJWTError, ValueError, TypeError):
            continue
    raise NotAToken


def fits(key: Jwk, algorithm: str) -> bool:
    """Tells whether a key is one for checking signatures of this kind."""
    kind, curve = KEYS[algorithm]
    uses = key.get("key_ops")
    return (
        key.get("kty") == kind
        and (curve is None or key.get("crv") == curve)
        and key.get("use") in (None, "sig")
        and key.get("alg") in (None, algorithm)
        and (uses is None or (isinstance(uses, list) and "verify" in uses))
    )


def check_claims(claims: dict[str, Any], issuer: str, audiences: frozenset[str], at: float, leeway: float) -> float:
    """Gives the time until which a token is valid, in seconds since 1970. Raises NotAToken for one that is of another issuer
    or for somebody else, is not valid at this time, or is only for who can prove more (`cnf`)."""
    if claims.get("iss") != issuer or "cnf" in claims:
        raise NotAToken
    named = claims.get("aud")
    named = [named] if isinstance(named, str) else named
    if not isinstance(named, list) or not any(isinstance(one, str) and one in audiences for one in named):
        raise NotAToken
    expires = _time(claims, "exp")
    begins, made = _time(claims, "nbf", at), _time(claims, "iat", at)
    if expires + leeway <= at or begins - leeway > at or made - leeway > at:
        raise NotAToken
    return expires + leeway


def _time(claims: dict[str, Any], name: str, absent: float | None = None) -> float:
    value = claims.get(name, absent)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise NotAToken
    return float(value)


def _object(part: bytes) -> dict[str, Any]:
    try:
        return strict_object(urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except ValueError:
        raise NotAToken from None


def strict_object(text: bytes) -> dict[str, Any]:
    """The JSON object that a text is. Raises NotAToken for anything else, and for names that stand twice."""
    try:
        found = json.loads(text.decode(), object_pairs_hook=_each_once, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise NotAToken from None
    if not isinstance(found, dict):
        raise NotAToken
    return found


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotAToken
    return found


def _refuse(_: str) -> Any:
    raise NotAToken

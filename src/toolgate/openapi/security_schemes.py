"""The credentials that an operation sends: the secrets that a person named for the security schemes of its document."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from toolgate.errors import printable
from toolgate.openapi.document import Document, DocumentError, DocumentOperation
from toolgate.openapi.document_settings import DocumentSettings

MAX_NAMED_SCHEMES = 10
PLAIN_SCHEMES = ("bearer", "basic")
"""Schemes that can be named though a document has none: many leave out how their service knows a caller."""


def _schemes(document: Document) -> Mapping[str, Any]:
    components = document.root.get("components")
    schemes = components.get("securitySchemes") if isinstance(components, Mapping) else None
    return schemes if isinstance(schemes, Mapping) else {}


def _scheme(document: Document, name: str) -> Mapping[str, Any] | None:
    given = _schemes(document).get(name)
    if given is None and name in PLAIN_SCHEMES:
        return {"type": "http", "scheme": name}
    return None if given is None else document.resolved(given, f"components.securitySchemes.{name}")


def check_secrets(document: Document, settings: DocumentSettings) -> None:
    """Refuses a secret for a scheme that the document does not have, or that cannot be sent."""
    for name, secret in settings.secrets.items():
        scheme = _scheme(document, name)
        if scheme is None:
            known = [printable(one) for one in islice(_schemes(document), MAX_NAMED_SCHEMES)]
            has = f"it has {', '.join(known)}" if known else f"it has none: name {' or '.join(PLAIN_SCHEMES)}"
            raise DocumentError(f"components.securitySchemes.{name}", f"there is no such scheme; {has}")
        _sent(name, scheme, secret)


def _sent(name: str, scheme: Mapping[str, Any], secret: str) -> dict[str, Any]:
    """A credential as an endpoint has it. Its token comes from the secret: no address that the document names for tokens is
    ever asked."""
    kind = scheme.get("type")
    if kind == "apiKey" and scheme.get("in") in ("header", "query", "cookie") and isinstance(scheme.get("name"), str):
        return {"secret": secret, "place": scheme["in"], "name": scheme["name"]}
    word = str(scheme.get("scheme")).lower() if kind == "http" else "bearer" if kind in ("oauth2", "openIdConnect") else None
    if word in ("bearer", "basic"):
        return {"secret": secret, "place": "header", "name": "Authorization", "scheme": word}
    raise DocumentError(f"components.securitySchemes.{name}", "it is neither an API key, nor bearer, basic or OAuth 2.0")


def _alternatives(document: Document, operation: DocumentOperation) -> Sequence[Mapping[str, Any]]:
    said = operation.value.get("security", document.root.get("security"))
    return [one for one in said if isinstance(one, Mapping)] if isinstance(said, list) else []


def credentials_of(document: Document, settings: DocumentSettings, operation: DocumentOperation) -> list[dict[str, Any]]:
    """The credentials of the first alternative for which all secrets are named. A document that says nothing of security
    gets those that were named for it all the same: many documents leave it out."""
    for one in _alternatives(document, operation):
        if one and all(name in settings.secrets for name in one):
            schemes = {name: _scheme(document, name) for name in one}
            return [_sent(name, scheme, settings.secrets[name]) for name, scheme in schemes.items() if scheme is not None]
    if "security" not in operation.value and "security" not in document.root:
        return [
            _sent(name, scheme, secret)
            for name, secret in list(settings.secrets.items())[:1]
            if (scheme := _scheme(document, name)) is not None
        ]
    return []


def unmet_schemes(document: Document, settings: DocumentSettings, operation: DocumentOperation) -> Sequence[str]:
    alternatives = _alternatives(document, operation)
    if not alternatives or {} in alternatives or credentials_of(document, settings, operation):
        return ()
    return [str(name) for name in alternatives[0]]

"""Where a server's settings refer to a secret (`{{secret:NAME}}` in a header or a variable), its value is put in.

It is done when the value is needed, not when the settings are read: a secret that was set anew holds from then on.
"""

import re
from collections.abc import Callable

from toolgate.errors import StoreError
from toolgate.mcpclient.port import Unreachable

Secrets = Callable[[str], str | None]
"""The value of a secret by name; None if there is none."""

REFERENCE = re.compile(r"\{\{\s{0,8}secret:([^{}]{0,200})\}\}")


class NeedsSecret(Unreachable):
    """A secret that a server's settings refer to is not set."""

    code = "MISSING_AUTH"


def fill(text: str, secrets: Secrets, what: str) -> str:
    """The text with references replaced. `what` says where it stands, for the error if a secret is not there."""
    if "{{" not in text:
        return text
    return REFERENCE.sub(lambda found: _value(found[1].strip(), secrets, what), text)


def _value(name: str, secrets: Secrets, what: str) -> str:
    try:
        value = secrets(name)
    except StoreError as error:
        words = f"{what} needs the secret {name!r}, which can't be looked up: {error.message}"
        raise NeedsSecret(message=words, suggestion=error.suggestion, details={"missing": name}) from None
    if not value:
        raise NeedsSecret(
            message=f"{what} needs the secret {name!r}, which is not set.",
            suggestion=f"`toolgate secrets set {name}`.",
            details={"missing": name},
        )
    return value

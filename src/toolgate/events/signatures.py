"""Signatures of messages: HMAC-SHA256 over a message exactly as it is sent.

The signature stands in a header, `v1 NAME HEX`: the form, the name of the key, and the HMAC of `v1`, what the message is
(`request` or `result`), the name of the key and the body, with a line feed after each of the first three. It is checked
before anything of the body is read. A request can't pass for a result, and a result is signed with the key of its request:
who may ask is who can check the answer, and nobody else's key makes one.
"""

import hmac
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Literal

from toolgate.errors import ToolgateError
from toolgate.settings.events import KEY_NAME, EventKeySettings

SIGNATURE = "toolgate-signature"
"""The name of the header."""
VERSION = "v1"
MIN_KEY_BYTES = 32
HEX_CHARS = 64
MAX_SIGNATURE_CHARS = 160

Purpose = Literal["request", "result"]


class BadSignature(ToolgateError):
    """The message has no valid signature."""


class SigningKeys:
    """The keys of the settings. Each is looked up when it is used, so that a secret that is replaced holds at once."""

    def __init__(self, keys: Mapping[str, EventKeySettings], find_secret: Callable[[str], str | None]) -> None:
        self._keys = keys
        self._find_secret = find_secret

    def settings(self, name: str) -> EventKeySettings:
        """The settings of a key: what it may be used for."""
        return self._keys[name]

    def sign(self, name: str, purpose: Purpose, body: bytes) -> str:
        """The signature of a body, for the header. Raises BadSignature if there is no such key."""
        return f"{VERSION} {name} {signature(self._secret(name), name, purpose, body)}"

    def verify(self, header: str | None, purpose: Purpose, body: bytes) -> str:
        """Gives the name of the key that signed a body. Raises BadSignature."""
        if header is None:
            raise BadSignature("It has no signature.")
        parts = header.split(" ") if len(header) <= MAX_SIGNATURE_CHARS and header.isascii() else []
        if len(parts) != 3 or parts[0] != VERSION or not KEY_NAME.match(parts[1]) or len(parts[2]) != HEX_CHARS:
            raise BadSignature("Its signature is not of the form v1 NAME HEX.")
        name, given = parts[1], parts[2]
        if name not in self._keys:
            raise BadSignature(f"It is signed with the key {name!r}, which is not known here.")
        if not hmac.compare_digest(signature(self._secret(name), name, purpose, body), given):
            raise BadSignature(f"Its signature is not one of the key {name!r}.")
        return name

    def why_not(self, name: str) -> str | None:
        """The reason why a key can't be used; None: it can."""
        try:
            self._secret(name)
        except BadSignature as error:
            return error.message
        return None

    def _secret(self, name: str) -> bytes:
        known = self._keys.get(name)
        if known is None:
            raise BadSignature(f"There is no key {name!r} in the setting events.keys.")
        value = (self._find_secret(known.secret) or "").encode()
        if len(value) < MIN_KEY_BYTES:
            state = f"has fewer than {MIN_KEY_BYTES} bytes" if value else "is not set"
            raise BadSignature(
                f"The secret {known.secret!r} of the key {name!r} {state}.",
                suggestion=f"Run `toolgate secrets set {known.secret} --servers`.",
            )
        return value


def signature(secret: bytes, name: str, purpose: Purpose, body: bytes) -> str:
    """The HMAC of a body in hex."""
    return hmac.new(secret, f"{VERSION}\n{purpose}\n{name}\n".encode() + body, sha256).hexdigest()

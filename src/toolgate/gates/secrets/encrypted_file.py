"""Secrets in a file, encrypted as a whole with AES-GCM: names, values, and when each was set.

The key is TOOLGATE_SECRETS_KEY (32 bytes in base64), or the file `secrets.key` beside it, made when the first secret
is set. What was decrypted is kept in memory until the file changes, so a lookup costs one look at its state; what another
process sets is seen by the next call.

    toolgate-secrets 1 <fingerprint of the key>\\n <nonce, 12 bytes> <ciphertext>

The first line is authenticated too. The fingerprint tells a wrong key from a damaged file.
"""

import base64
import binascii
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from toolgate.errors import StoreError
from toolgate.gates.secrets.names import folded
from toolgate.gates.secrets.shared_file import ParsedFile, damaged, locked, replace, unusable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_VARIABLE = "TOOLGATE_SECRETS_KEY"
KEY_BYTES, NONCE_BYTES = 32, 12
_HEADER = re.compile(rb"toolgate-secrets 1 ([0-9a-f]{16})\n")


@dataclass(slots=True, frozen=True)
class StoredSecret:
    """A secret and when it was set."""

    value: str = field(repr=False)
    set_at: datetime


class EncryptedFile:
    """The source that is an encrypted file, with its key (`.key`) and its lock (`.lock`) beside it."""

    name = "file"

    def __init__(self, path: Path, environment: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.key_path = path.with_suffix(".key")
        self._lock_path = path.with_suffix(".lock")
        self._variables = os.environ if environment is None else environment
        self._file = ParsedFile(path, self._decrypted)

    def __call__(self, key: str) -> str | None:
        kept = self._content().get(folded(key))
        return None if kept is None else kept.value

    def why_not(self) -> str | None:
        try:
            import cryptography  # noqa: F401 - whether it is there
        except ImportError:
            return "the package cryptography is not installed: pip install cryptography"
        try:
            self._content()
        except StoreError as error:
            return str(error)
        return None

    def held(self) -> dict[str, datetime | None]:
        return {key: kept.set_at for key, kept in sorted(self._content().items())}

    def set(self, key: str, value: str) -> None:
        with locked(self._lock_path):
            self._replace({**self._content(), folded(key): StoredSecret(value, datetime.now(UTC))})

    def remove(self, key: str) -> bool:
        with locked(self._lock_path):
            content = dict(self._content())
            if content.pop(folded(key), None) is None:
                return False
            self._replace(content)
            return True

    # -- the file

    def _content(self) -> dict[str, StoredSecret]:
        return self._file.content(self._variables.get(KEY_VARIABLE))

    def _decrypted(self, content: bytes) -> dict[str, StoredSecret]:
        aead, invalid = _cipher()
        header = _HEADER.match(content)
        if header is None:
            raise damaged(f"The file of secrets {self.path}")
        key = self._key()
        if _fingerprint(key) != header[1]:
            raise StoreError(
                f"The secrets in {self.path} were written with another key.",
                suggestion=f"Nothing was changed. Put the key that they were written with into {KEY_VARIABLE} or "
                f"{self.key_path}.",
            )
        nonce, rest = content[header.end() :][:NONCE_BYTES], content[header.end() + NONCE_BYTES :]
        try:
            plain = orjson.loads(aead(key).decrypt(nonce, rest, header[0]))
            return {name: StoredSecret(value, datetime.fromisoformat(at)) for name, (value, at) in plain.items()}
        except (invalid, ValueError, TypeError, AttributeError):
            raise damaged(f"The file of secrets {self.path}") from None

    def _replace(self, content: Mapping[str, StoredSecret]) -> None:
        aead, _ = _cipher()
        key = self._key(make=not self.path.exists())
        header = b"toolgate-secrets 1 " + _fingerprint(key) + b"\n"
        nonce = os.urandom(NONCE_BYTES)
        plain = orjson.dumps({name: (kept.value, kept.set_at.isoformat()) for name, kept in content.items()})
        replace(self.path, header + nonce + aead(key).encrypt(nonce, plain, header))

    # -- the key

    def _key(self, *, make: bool = False) -> bytes:
        given = self._variables.get(KEY_VARIABLE)
        if given is not None:
            return _decoded(given, KEY_VARIABLE)
        text = self._key_file()
        if text is None and make:
            replace(self.key_path, base64.b64encode(os.urandom(KEY_BYTES)) + b"\n")
            text = self._key_file()
        if text is None:
            raise StoreError(
                f"The key of the secrets in {self.path} is missing.",
                suggestion=f"Set {KEY_VARIABLE}, or put the key back into {self.key_path}.",
            )
        return _decoded(text, str(self.key_path))

    def _key_file(self) -> str | None:
        """The text of the key file, if nobody else may read it."""
        try:
            with self.key_path.open("rb") as file:
                found = os.fstat(file.fileno())
                text = file.read(1_000)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unusable(self.key_path, error) from None
        if os.name == "posix" and (found.st_mode & 0o077 or found.st_uid not in (os.geteuid(), 0)):
            raise StoreError(
                f"The key file {self.key_path} can be read by others, or belongs to another user, so it is not used.",
                suggestion=f"`chmod 600 {self.key_path}`, and think about whether the key is still a secret.",
            )
        return text.decode("ascii", "replace")


def _cipher() -> tuple["type[AESGCM]", type[Exception]]:
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise StoreError("Secrets in a file need the package cryptography.", suggestion="pip install cryptography") from None
    return AESGCM, InvalidTag


def _decoded(text: str, where: str) -> bytes:
    try:
        key = base64.b64decode(text.strip().replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise StoreError(
            f"What {where} holds is no key: it must be {KEY_BYTES} bytes in base64.",
            suggestion=f"Nothing was changed. Make one with `openssl rand -base64 {KEY_BYTES}`.",
        )
    return key


def _fingerprint(key: bytes) -> bytes:
    return sha256(b"toolgate secrets key " + key).hexdigest()[:16].encode()

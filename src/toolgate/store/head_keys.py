"""The keys with which heads of the audit log are signed. They are kept apart from the log: in a file outside `home`, in the
system's keyring, or in a KMS behind the port `HeadKeys`.

A key that is replaced can't sign any more, but what it signed can still be checked.
"""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, cast

import orjson

from toolgate.errors import StoreError
from toolgate.store.chain import locked
from toolgate.store.system_keyring import ask_keyring
from toolgate.trust import replace_file

SERVICE = "toolgate-audit"
"""The name under which the system's keyring holds keys."""
SUGGESTION = "Unlock it, or keep the key of the audit log in a file: audit.key: file."


class HeadKeys(Protocol):
    """Signs heads, and knows what signed them before. A KMS is one of these: `App.sign_heads_with`."""

    place: str
    """The place of the keys, for people."""

    def key_id(self) -> str:
        """The key that signs now; made if there is none. Raises StoreError."""

    def public_key(self, key_id: str) -> str | None:
        """In hex; None: not known here, or not of a kind that a proof can hold."""

    def sign(self, statement: bytes) -> bytes: ...

    def verify(self, key_id: str, statement: bytes, signature: bytes) -> bool | None:
        """Tells whether the key signed it; None: a key that is not known here."""

    def rotate(self) -> str:
        """Makes a new key, which signs from now on; gives its id."""


def id_of(public_key: str) -> str:
    return sha256(bytes.fromhex(public_key)).hexdigest()[:16]


class _Ed25519:
    """Keys as one small JSON text, wherever that is kept."""

    place: str

    def _load(self) -> str | None:
        raise NotImplementedError

    def _save(self, text: str) -> None:
        raise NotImplementedError

    def _alone(self) -> AbstractContextManager[object]:
        return nullcontext()

    def key_id(self) -> str:
        found = self._keys()
        if found is None:
            with self._alone():  # several processes may sign their first head at once, and must agree on a key
                found = self._keys()
                if found is None:
                    return self.rotate()
        return id_of(found["public"])

    def public_key(self, key_id: str) -> str | None:
        return self._public().get(key_id)

    def sign(self, statement: bytes) -> bytes:
        found = self._keys()
        if found is None:
            raise StoreError(f"There is no key in {self.place} to sign the audit log's head with.")
        private = _ed25519().Ed25519PrivateKey.from_private_bytes(bytes.fromhex(found["private"]))
        signature: bytes = private.sign(statement)
        return signature

    def verify(self, key_id: str, statement: bytes, signature: bytes) -> bool | None:
        public = self._public().get(key_id)
        return None if public is None else is_signed(public, statement, signature)

    def rotate(self) -> str:
        private = _ed25519().Ed25519PrivateKey.generate()
        public = private.public_key().public_bytes_raw().hex()
        fresh = {
            "private": private.private_bytes_raw().hex(),
            "public": public,
            "made": int(time.time()),
            "retired": list(self._public().values()),
        }
        self._save(orjson.dumps(fresh).decode())
        return id_of(public)

    def _public(self) -> dict[str, str]:
        found = self._keys()
        return {} if found is None else {id_of(key): key for key in (found["public"], *found["retired"])}

    def _keys(self) -> Mapping[str, Any] | None:
        text = self._load()
        if text is None:
            return None
        try:
            found = orjson.loads(text)
            if len(bytes.fromhex(found["private"])) != 32:
                raise ValueError("not 32 bytes")
            for key in (found["public"], *found["retired"]):
                id_of(key)
        except (ValueError, TypeError, KeyError):
            raise StoreError(
                f"The keys for the audit log's head in {self.place} are damaged.",
                suggestion="Put back a copy of them. `toolgate audit sign --anew` starts again, with a new key.",
            ) from None
        return cast("Mapping[str, Any]", found)


class KeyFile(_Ed25519):
    """Keys in a file that only its owner may read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = str(path)

    def _load(self) -> str | None:
        try:
            return self.path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise unusable(self.path, error) from None

    def _save(self, text: str) -> None:
        write_private(self.path, text.encode())

    def _alone(self) -> AbstractContextManager[object]:
        try:
            make_private(self.path.parent)
            return locked(self.path.with_suffix(".lock"))
        except OSError as error:
            raise unusable(self.path, error) from None


class KeyringKeys(_Ed25519):
    """Keys in the keyring of the operating system."""

    place = "the system's keyring"

    def __init__(self, log: str, backend: str | None = None) -> None:
        self._log = log
        self._backend = backend

    def _load(self) -> str | None:
        return ask_keyring(lambda keyring: keyring.get_password(SERVICE, self._log), SUGGESTION, self._backend)

    def _save(self, text: str) -> None:
        ask_keyring(lambda keyring: keyring.set_password(SERVICE, self._log, text), SUGGESTION, self._backend)


def is_signed(public_key: str, statement: bytes, signature: bytes) -> bool:
    ed25519 = _ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def _ed25519() -> Any:
    """The module of the package cryptography, which takes long to import."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise StoreError(
            "Heads of the audit log cannot be signed: the package cryptography is not installed.",
            suggestion="pip install cryptography",
        ) from None
    return ed25519


def make_private(folder: Path) -> None:
    """Makes a folder, and those above it that are not there, for the owner alone."""
    for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, content: bytes) -> None:
    """Puts a content in place of what is there, on disk before this returns, for the owner alone."""
    try:
        make_private(path.parent)
        replace_file(path, content)
    except OSError as error:
        raise unusable(path, error) from None


def unusable(path: Path, error: Exception) -> StoreError:
    words = getattr(error, "strerror", None) or type(error).__name__
    return StoreError(
        f"{path}, which is kept apart from the audit log, cannot be used: {words}.",
        suggestion="Check the rights on it and its folder, or name another folder in audit.folder.",
    )

"""Secrets in the keyring of the operating system, under the service `toolgate`.

A keyring can't say what it holds, and asking it may make it ask a person. So the keys (no values) are listed in a file, and
only what is listed there is asked for: a caller that names things at random reaches nothing, neither does an installation
that shares the keyring with another. An answer is remembered for a few seconds, because it can take long.
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import orjson

from toolgate.gates.secrets.names import folded
from toolgate.gates.secrets.shared_file import ParsedFile, damaged, locked, replace
from toolgate.store.system_keyring import ask_keyring, refusal

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

T = TypeVar("T")
SERVICE = "toolgate"
REMEMBER_SECONDS = 10.0


class Keyring:
    """The source that is the system's keyring."""

    name = "keyring"

    def __init__(self, folder: Path, backend: str | None = None) -> None:
        """`backend`: one that is used besides those that are known to encrypt (`module.Class`)."""
        self.path = folder / "secrets.keyring"
        self._backend = backend
        self._lock_path = folder / "secrets.lock"
        self._listed = ParsedFile(self.path, self._parsed)
        self._answers: dict[str, tuple[float, datetime, str]] = {}
        """By key: until when an answer holds, for which setting of it, and the answer."""

    def __call__(self, key: str) -> str | None:
        key = folded(key)
        set_at = self._listed.content().get(key)
        if set_at is None:
            return None
        known = self._answers.get(key)
        if known is not None and known[0] > time.monotonic() and known[1] == set_at:
            return known[2]
        value = self._ask(lambda keyring: keyring.get_password(SERVICE, key))
        if value is None:
            return None  # somebody took it out of the keyring
        self._answers[key] = (time.monotonic() + REMEMBER_SECONDS, set_at, value)
        return value

    def why_not(self) -> str | None:
        return refusal(self._backend)

    def held(self) -> dict[str, datetime | None]:
        return dict(sorted(self._listed.content().items()))

    def set(self, key: str, value: str) -> None:
        key = folded(key)
        with locked(self._lock_path):
            keys = self._listed.content()
            self._ask(lambda keyring: keyring.set_password(SERVICE, key, value))
            self._list({**keys, key: datetime.now(UTC)})

    def remove(self, key: str) -> bool:
        key = folded(key)
        with locked(self._lock_path):
            keys = dict(self._listed.content())
            if keys.pop(key, None) is None:
                return False
            self._ask(lambda keyring: _delete(keyring, key))
            self._list(keys)
            return True

    # -- which there are

    def _parsed(self, content: bytes) -> dict[str, datetime]:
        try:
            return {key: datetime.fromisoformat(at) for key, at in orjson.loads(content).items()}
        except (ValueError, TypeError, AttributeError):
            raise damaged(f"The list of secrets in the keyring, {self.path},") from None

    def _list(self, keys: Mapping[str, datetime]) -> None:
        replace(self.path, orjson.dumps({key: at.isoformat() for key, at in keys.items()}))

    # -- the keyring

    def _ask(self, question: "Callable[[KeyringBackend], T]") -> T:
        advice = "Unlock it, or keep the secret in the encrypted file (`toolgate secrets set NAME --in file`)."
        return ask_keyring(question, advice, self._backend)


def _delete(keyring: "KeyringBackend", key: str) -> None:
    if keyring.get_password(SERVICE, key) is not None:
        keyring.delete_password(SERVICE, key)

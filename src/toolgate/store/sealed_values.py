"""Encryption of what a table holds and only some may see."""

import base64
import os
from typing import TYPE_CHECKING

from toolgate.store.database import Store
from toolgate.store.keys import key_for

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12


class Seal:
    """Encrypts the values of one purpose (AES-GCM), each bound to the id of its row. The key is in the store, so that every
    process that shares it can read them: it keeps them out of what is looked at or copied of the table and out of pages that
    a database leaves behind, not from whoever has the whole database."""

    def __init__(self, store: Store, purpose: str) -> None:
        self._store = store
        self._purpose = purpose
        self._cipher: AESGCM | None = None

    async def close(self, id: str, text: bytes) -> str | None:
        """None: nothing can be encrypted here."""
        if (cipher := await self._made()) is None:
            return None
        nonce = os.urandom(NONCE_BYTES)
        return base64.b64encode(nonce + cipher.encrypt(nonce, text, id.encode())).decode()

    async def open(self, id: str, sealed: str) -> bytes | None:
        """None: it can't be read here."""
        if (cipher := await self._made()) is None:
            return None
        from cryptography.exceptions import InvalidTag

        try:
            data = base64.b64decode(sealed)
            return cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], id.encode())
        except (InvalidTag, ValueError):  # not sealed here, or not at all
            return None

    async def _made(self) -> "AESGCM | None":
        if self._cipher is None:
            try:
                from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            except ImportError:
                return None
            self._cipher = AESGCM(bytes.fromhex(await self._store.transact(key_for(self._purpose))))
        return self._cipher

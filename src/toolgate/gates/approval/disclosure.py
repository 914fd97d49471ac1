"""The arguments that an approver is shown: every argument as it will run, but for secrets that Toolgate itself holds.

Records mask whatever looks like a secret. A question does not: what is hidden by its name or its looks could be anything,
and would run all the same. A caller who wants a secret kept from the approver names it (`{{secret:NAME}}`), and the name is
shown. What differs from what records hold is kept encrypted beside the question, until that is answered or expires.
"""

import base64
import os
import re
from typing import TYPE_CHECKING, Any

import orjson

from toolgate.errors import Denied
from toolgate.model import MASK
from toolgate.screening.secret_patterns import shapes
from toolgate.store.database import Store
from toolgate.store.keys import key_for

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

PURPOSE = "approvals.arguments"
NONCE_BYTES = 12


def disclosed(canonical: bytes, held: tuple[str, ...]) -> bytes:
    """Arguments as an approver is shown them: `held` are the values of secrets that Toolgate put into them."""
    if not held:
        return canonical
    hidden = frozenset(shape for secret in held for shape in shapes(secret))
    return orjson.dumps(_without(orjson.loads(canonical), hidden), option=orjson.OPT_SORT_KEYS)


def _without(value: Any, hidden: frozenset[str]) -> Any:
    """A value without the secrets and their codings, and with all that stands around them: unlike a record, which masks a
    whole text that may hold a secret, a question must not hide what a program put beside it."""
    if isinstance(value, str):
        present = sorted((shape for shape in hidden if shape in value), key=len, reverse=True)
        return re.sub("|".join(map(re.escape, present)), MASK, value) if present else value
    if isinstance(value, dict):
        return {_without(key, hidden): _without(part, hidden) for key, part in value.items()}
    if isinstance(value, list):
        return [_without(part, hidden) for part in value]
    return MASK if type(value) in (int, float) and str(value) in hidden else value


def unkept(tool: str) -> Denied:
    """A call that a person can't be asked about: what would have to be shown can't be kept until then."""
    return Denied(
        "PERMISSION_DENIED",
        f"{tool} needs a person's approval, but its arguments hold what looks like a secret, and cannot be kept for that "
        "person: the package cryptography is not installed.",
        suggestion="Name the secret in its place ({{secret:NAME}}), or install the package cryptography.",
    )


class Seal:
    """Encrypts what only approvers may see (AES-GCM), bound to its approval. The key is in the store, so that every process
    that shares it can show the question: it keeps the arguments out of what is looked at or copied of the table and out of
    pages that a database leaves behind, not from whoever has the whole database."""

    def __init__(self, store: Store) -> None:
        self._store = store
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

        data = base64.b64decode(sealed)
        try:
            return cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], id.encode())
        except InvalidTag:
            return None

    async def _made(self) -> "AESGCM | None":
        if self._cipher is None:
            try:
                from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            except ImportError:
                return None
            self._cipher = AESGCM(bytes.fromhex(await self._store.transact(key_for(PURPOSE))))
        return self._cipher

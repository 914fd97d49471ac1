"""The user's words of one session: which of their tokens were typed, and in which order, but not the tokens themselves.

Each token is a keyed hash of 64 bits, so that a search for a value needs the key and a look at the table says nothing. Eight
zero bytes stand between two messages: no value is made of the end of one and the beginning of the next.
"""

from collections import deque
from decimal import Decimal
from hashlib import blake2b
from math import isfinite

from toolgate.gates.flow.tokens import TextToken, tokens

HASH_BYTES = 8
MAX_TOKENS = 20_000
"""Of a session; the oldest are forgotten first. What is forgotten costs a question, and no safety."""
MAX_TEXT_CHARS = 100_000
"""Of one message; what follows is not known."""
MAX_VALUE_CHARS, MAX_NUMBER = 10_000, 10**30
GAP = bytes(HASH_BYTES)
EVEN = bytes(number & 0xFE for number in range(256))
WHITE = " \t\r\n"


class SessionWords:
    """The words of one session, for whoever has its key."""

    def __init__(self, key: bytes, hashes: bytes = b"") -> None:
        self._key = key
        self._hashes = hashes
        self._plain: bytes | None = None

    def __len__(self) -> int:
        """The number of tokens, and of gaps between messages."""
        return len(self._hashes) // HASH_BYTES

    def hashed(self, text: str) -> bytes:
        """Gives the hashes of a message's tokens, of a long one the last of them. The last bit of each says whether the
        token was marked: a plain word in small letters is no name."""
        known: dict[tuple[str, str, bool], bytes] = {}
        parts = []
        for kind, compared, is_marked, _, _ in deque(tokens(text[:MAX_TEXT_CHARS]), MAX_TOKENS):
            token = kind, compared, is_marked
            if token not in known:
                known[token] = self._hash(kind, compared, is_marked=is_marked)
            parts.append(known[token])
        return b"".join(parts)

    def names(self, value: str | int | float, *, marked: bool = False) -> bool:
        """Tells whether a value was typed: all its tokens, in a row, in one message. `marked`: a plain word alone counts
        only where it was capitalised, quoted or behind # or @ ("mail" names no recipient)."""
        text = value if isinstance(value, str) else _written(value)
        if not self._hashes or len(text) > MAX_VALUE_CHARS or not _is_visible(text):
            return False
        found = list(tokens(text))
        if not found or not _is_whole(found, text):
            return False
        wanted = b"".join(self._hash(token.kind, token.text) for token in found)
        if marked and len(found) == 1 and found[0].kind == "word":
            return _holds(self._hashes, wanted[:-1] + bytes([wanted[-1] | 1]))
        if self._plain is None:
            even = bytearray(self._hashes)
            even[HASH_BYTES - 1 :: HASH_BYTES] = even[HASH_BYTES - 1 :: HASH_BYTES].translate(EVEN)
            self._plain = bytes(even)
        return _holds(self._plain, wanted)

    def _hash(self, kind: str, text: str, *, is_marked: bool = False) -> bytes:
        token = f"{kind} {text}".encode(errors="surrogatepass")
        digest = blake2b(token, digest_size=HASH_BYTES, key=self._key).digest()
        return digest[:-1] + bytes([(digest[-1] & 0xFE) | is_marked])


def appended(before: bytes, message: bytes) -> bytes | None:
    """Gives the hashes of a session with those of another message, the oldest left out where they are too many. None: it is
    the message that came last, told again."""
    if before == message or before.endswith(GAP + message):
        return None
    return (before + GAP + message if before else message)[-MAX_TOKENS * HASH_BYTES :]


def _holds(hashes: bytes, wanted: bytes) -> bool:
    at = hashes.find(wanted)
    while at % HASH_BYTES and at > 0:  # found across two hashes, by chance
        at = hashes.find(wanted, at + 1)
    return at >= 0


def _written(value: int | float) -> str:
    """A number as a person writes it; of one that is none, nothing."""
    if isinstance(value, bool) or not isfinite(value) or abs(value) >= MAX_NUMBER:
        return ""
    return format(Decimal(repr(value)), "f")


def _is_visible(text: str) -> bool:
    """True if nothing in a text hides: who reads it sees what it says."""
    return all(char.isprintable() or char in WHITE for char in text)


def _is_whole(found: list[TextToken], text: str) -> bool:
    """True unless an address has more behind it than it is compared by."""
    if len(found) > 1 or found[0].kind != "url":
        return True
    return found[0].start == 0 and found[0].end == len(text)

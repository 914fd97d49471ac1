"""Secrets out of what people and models get to see: by the name of a field, and by what a value looks like.

The tool itself gets its arguments unharmed; this works on copies. Names: `password`, `api_key`, `clientSecret` and the like,
unless the tool's schema marks a field as `x-public`. Values: well-known forms of credentials always, and all that
kingfisher knows if it is installed; it takes seconds to load, so it is loaded when a value first looks as if it might
hold a secret.
"""

import asyncio
import re
import threading
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import orjson

MASK = "[REDACTED]"
SHORTEST = 12
"""No credential is shorter, as a value on its own."""

STRONG = frozenset(
    {"password", "passwd", "passphrase", "pwd", "secret", "secrets", "token", "apikey", "credential", "credentials"}
    | {"authorization", "cookie", "privatekey", "accesskey", "secretkey"}
)
"""A field with one of these words in its name is masked."""
PAIRS = frozenset(
    {("api", "key"), ("private", "key"), ("access", "key"), ("secret", "key"), ("signing", "key"), ("auth", "key")}
)
WEAK = frozenset({"key", "auth", "bearer", "jwt", "session"})
"""A field with one of these is masked if its value looks like a credential."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_TOKEN_LIKE = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[^\s]{16,}\Z")
_KNOWN = re.compile(
    r"-----BEGIN (?:[A-Z ]+ )?PRIVATE KEY-----.*?(?:-----END (?:[A-Z ]+ )?PRIVATE KEY-----|\Z)"
    r"|\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,})"
    r"|\bsk-(?:ant-|proj-|svcacct-)?[A-Za-z0-9_-]{20,}"
    r"|\b[rs]k_(?:live|test)_[A-Za-z0-9]{10,}|\bwhsec_[A-Za-z0-9]{10,}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{30,}"
    r"|\b(?:npm_|hf_|dop_v1_|SG\.)[A-Za-z0-9_.-]{20,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
    r"|(?<=://)[^\s/:@]+:[^\s/@]+(?=@)"
    r"|(?i:(?<=\bbearer )[A-Za-z0-9._~+/-]{12,}=*)",
    re.DOTALL,
)
_CANDIDATE = re.compile(r"(?<![A-Za-z0-9_\-+=])(?=[A-Za-z_\-+=]*\d)(?=[\d_\-+=]*[A-Za-z])[A-Za-z0-9_\-+=]{20,}")
_UUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\Z")


class Redactor:
    """Masks secrets in values."""

    def __init__(self, more_keys: Iterable[str] = (), scan: bool = True) -> None:
        self._more = frozenset(key.lower() for key in more_keys)
        self._scan = scan
        self._sensitive: dict[str, int] = {}
        self._scanner: Any = None
        self._scanner_lock = threading.Lock()

    # -- values

    def arguments(self, canonical: bytes, value: Any, public: frozenset[str]) -> bytes:
        """The arguments as records may hold them, as JSON."""
        masked = self.mask(value, public)
        return canonical if masked is value else orjson.dumps(masked, option=orjson.OPT_SORT_KEYS)

    def is_harmless(self, value: Any) -> bool:
        """Whether a value surely holds no secret: quick, and true of most numbers and short texts."""
        kind = type(value)
        if kind is dict:
            for key, part in value.items():
                part_kind = type(part)
                if part_kind is int or part_kind is bool or part is None or part_kind is float:
                    continue
                if part_kind is not str or len(part) >= SHORTEST or self._rank(key):
                    return False
            return True
        return kind is int or kind is bool or value is None or kind is float or (kind is str and len(value) < SHORTEST)

    def mask(self, value: Any, public: frozenset[str] = frozenset(), known: tuple[str, ...] = ()) -> Any:
        """The value with secrets masked; the same object if there are none."""
        if isinstance(value, str):
            return self.text(value, known)
        if isinstance(value, dict):
            changed = {
                key: masked for key, part in value.items() if (masked := self._field(key, part, public, known)) is not part
            }
            return {**value, **changed} if changed else value
        if isinstance(value, list | tuple):
            parts = [self.mask(part, public, known) for part in value]
            return parts if any(new is not old for new, old in zip(parts, value, strict=True)) else value
        return value

    def _field(self, key: Any, part: Any, public: frozenset[str], known: tuple[str, ...]) -> Any:
        rank = 0 if key in public else self._rank(key)
        if rank and part and isinstance(part, str | dict | list | tuple):
            if rank == 2:
                return MASK
            if isinstance(part, str) and _TOKEN_LIKE.match(part):
                return MASK
        return self.mask(part, public, known)

    def text(self, text: str, known: tuple[str, ...] = ()) -> str:
        """A text with secrets masked: those given as known, well-known forms, and what the scanner finds."""
        for secret in known:
            if secret and secret in text:
                text = text.replace(secret, MASK)
        if len(text) < SHORTEST:
            return text
        text = _KNOWN.sub(MASK, text)
        return self._scanned(text) if self._scan and self._has_candidate(text) else text

    # -- names

    def _rank(self, key: Any) -> int:
        """2: mask, 1: mask what looks like a credential, 0: leave."""
        if not isinstance(key, str):
            return 0
        rank = self._sensitive.get(key)
        if rank is None:
            rank = self._judge(key)
            if len(self._sensitive) < 10_000:
                self._sensitive[key] = rank
        return rank

    def _judge(self, key: str) -> int:
        words = [word.lower() for word in _WORD.findall(key[:200])]
        if key.lower() in self._more or STRONG & set(words) or PAIRS & set(pairwise(words)):
            return 2
        return 1 if WEAK & set(words) else 0

    # -- the scanner

    @property
    def ready(self) -> bool:
        """Whether masking needs nothing more to be loaded."""
        return self._scanner is not None or not self._scan

    async def prepare(self, value: Any) -> None:
        """Load the scanner, off the event loop, if this value is the first that needs it."""
        if not self.ready and self._has_candidate(value):
            await asyncio.to_thread(self._load_scanner)

    def _has_candidate(self, value: Any) -> bool:
        if isinstance(value, str):
            return any(not _UUID.match(found[0]) for found in _CANDIDATE.finditer(value))
        if isinstance(value, dict):
            return any(self._has_candidate(part) for part in value.values())
        return isinstance(value, list | tuple) and any(self._has_candidate(part) for part in value)

    @property
    def scanner_name(self) -> str | None:
        """The scanner that is in use, or would be."""
        if not self._scan:
            return None
        from importlib.util import find_spec

        return "kingfisher" if find_spec("kingfisher_sdk") else None

    def _scanned(self, text: str) -> str:
        scanner = self._load_scanner()
        if scanner is None:
            return text
        secrets = {finding.secret for finding in scanner.scan(text) if finding.secret}
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, MASK)
        return text

    def _load_scanner(self) -> Any:
        with self._scanner_lock:
            if self._scanner is None:
                try:
                    from kingfisher_sdk import Scanner
                except ImportError:
                    self._scanner = False
                else:
                    self._scanner = Scanner(redact=False)
        return self._scanner or None

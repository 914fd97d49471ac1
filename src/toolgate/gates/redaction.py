"""Secrets out of what people and models get to see: by the name of a field, and by what a value looks like.

The tool itself gets its arguments unharmed; this works on copies. Names: `password`, `api_key`, `clientSecret` and the like,
unless the tool's schema marks a field as `x-public`. Values: well-known forms of credentials always, and all that
kingfisher knows if it is installed; it takes seconds to load, so it is loaded when a value first looks as if it might
hold a secret.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import orjson

from toolgate.errors import CallError, shortened
from toolgate.jsontext import texts_in, valid_text, with_texts
from toolgate.model import MASK, Entry, ErrorInfo
from toolgate.pipeline.context import InvokeContext
from toolgate.screening import secret_scanner
from toolgate.screening.secret_fields import HINTS, looks_like_a_token, rank_of, without, without_assigned
from toolgate.screening.secret_patterns import masker
from toolgate.threads import LARGE, Offload, to_thread

MIN_SECRET_CHARS = 12
"""No credential is shorter, as a value on its own."""
MIN_FIELD_CHARS = 5
"""Nor is one with its name before it: `pwd=1`."""
MAX_JSON_CHARS = 1_000_000
"""Characters of a text that is read as JSON."""
MAX_TOLD_CHARS = 10_000
"""Characters of an error's message, and of its details as JSON."""
MAX_RAW_ERROR_CHARS = 100_000
"""And of what is looked at of it, for others wait meanwhile; it is cut between words."""
PROSE = 300
"""Texts up to this long are first looked at word by word."""
CREDENTIAL_MARKS = ("://", "earer ", "EARER ", "asic ", "ASIC ")
"""What stands before a credential that may itself be short."""
SCAN_CHARS = 65_536
"""Characters of a text that are searched at once."""
MOST_KEYS = 10_000
"""Names of fields that are kept in mind."""
MOST_PASSES = 10
"""What is masked may have hidden where the next secret begins."""

_REFERENCE = re.compile(r"\{\{\s{0,8}secret:[A-Za-z_][A-Za-z0-9_]{0,127}\s{0,8}\}\}\Z")
"""The name of a secret, and nothing else: that may be seen."""
_CANDIDATE = re.compile(r"(?<![A-Za-z0-9_\-+=])(?=[A-Za-z_\-+=]*\d)(?=[\d_\-+=]*[A-Za-z])[A-Za-z0-9_\-+=]{20,}")
_SPACE = re.compile(r"\s")
_HAS_DIGIT = re.compile(r"\d")
_UUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\Z")


def _form(pattern: str, *hints: str) -> tuple[tuple[str, ...], re.Pattern[str]]:
    return hints, re.compile(pattern, re.DOTALL)


_PEM = r"-----{} (?:[A-Z0-9 ]{{1,40}} )?PRIVATE KEY(?: BLOCK)?-----"
_GAP = r"(?:\\[rn]|\s)"
"""Between the lines of a key, also as JSON writes it. What is no line of a key is shown: nothing can hide behind one."""
_DIGIT = r"(?=[A-Za-z_.~+/=-]{0,48}\d)"
FORMS = (
    _form(
        rf"{_PEM.format('BEGIN')}(?:{_GAP}*[A-Za-z][A-Za-z-]{{2,30}}: [^\r\n\\]{{1,200}})*"
        rf"(?:{_GAP}*[A-Za-z0-9+/=]{{16,}})*(?:{_GAP}*[A-Za-z0-9+/=]{{1,76}})?(?:{_GAP}*{_PEM.format('END')})?",
        "PRIVATE KEY",
    ),
    _form(r"\btg_[a-z0-9]{12}_[A-Za-z0-9]{20,}", "tg_"),
    _form(r"\bgh[pousr]_[A-Za-z0-9]{20,}", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _form(r"\bgithub_pat_[A-Za-z0-9_]{20,}", "github_pat_"),
    _form(r"\bglpat-[A-Za-z0-9_-]{16,}", "glpat-"),
    _form(rf"\bsk-{_DIGIT}[A-Za-z0-9_-]{{20,}}", "sk-"),
    _form(r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{10,}", "k_live_", "k_test_"),
    _form(r"\bwhsec_[A-Za-z0-9]{10,}", "whsec_"),
    _form(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\bxapp-\d-[A-Za-z0-9-]{10,}", "xox", "xapp-"),
    _form(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", "AKIA", "ASIA"),
    _form(r"\bAIza[0-9A-Za-z_-]{30,}", "AIza"),
    _form(r"\b(?:npm|hf)_[A-Za-z0-9]{30,}", "npm_", "hf_"),
    _form(r"\bdop_v1_[a-f0-9]{40,}", "dop_v1_"),
    _form(r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}", "SG."),
    _form(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?", "eyJ"),
    _form(r"(?<=://)[^\s/:@\"'<>]*:[^\s/?\"'<>]+(?=@)", "://"),
    _form(
        r"(?i)(?P<keep>[?&](?:(?:access|auth|refresh|id)[_-]?token|token|(?:api|access|secret)[_-]?key|(?:client[_-]?)?secret"
        r"|password|passwd)=)(?!\[REDACTED\])[^\s&#\"'<>]{8,}",
        "=",
    ),
    _form(rf"(?i)(?P<keep>\bbearer )(?:{_DIGIT}[A-Za-z0-9._~+/-]{{12,}}|[A-Za-z0-9._~+/-]{{24,}})=*", "earer ", "EARER "),
    _form(r"(?i)(?P<keep>\bauthorization[\"']?[:=] ?[\"']?basic )[A-Za-z0-9+/]{6,}=*", "asic ", "ASIC "),
)
"""Credentials that can be told by their looks: what a text must hold for a look to be worth it, and the look. All of it but
`keep` is masked. Each takes time in proportion to the text, whatever the text."""


class Redactor:
    """Masks secrets in values."""

    def __init__(self, more_keys: Iterable[str] = (), scan: bool = True) -> None:
        self._more = frozenset(key.lower() for key in more_keys)
        self._hints = (*HINTS, *self._more)
        self._scan = scan
        self._sensitive: dict[str, int] = {}
        self._plain_keys: set[str] = set()
        """Names that hold no secret themselves."""
        self._scanner = secret_scanner.SHARED

    # -- values

    def arguments(self, canonical: bytes, value: Any, public: frozenset[str], known: tuple[str, ...] = ()) -> bytes:
        """The arguments as records may hold them, as JSON."""
        masked = self.mask(value, public, known)
        return canonical if masked is value else orjson.dumps(masked, option=orjson.OPT_SORT_KEYS)

    def is_harmless(self, value: Any) -> bool:
        """True of a value that surely holds no secret: quick, and so for most numbers and short texts."""
        kind = type(value)
        if kind is dict:
            for key, part in value.items():
                if len(key) >= MIN_SECRET_CHARS and key not in self._plain_keys:
                    return False
                part_kind = type(part)
                if part_kind is int or part_kind is bool or part is None or part_kind is float:
                    continue
                if (
                    part_kind is not str
                    or self._rank(key)
                    or (len(part) >= MIN_FIELD_CHARS and self._may_hold_secrets(part))
                ):
                    return False
            return True
        if kind is str:
            return len(value) < MIN_FIELD_CHARS or not self._may_hold_secrets(value)
        return kind is int or kind is bool or value is None or kind is float

    def mask(self, value: Any, public: frozenset[str] = frozenset(), known: tuple[str, ...] = ()) -> Any:
        """The value with secrets masked; the same object if there are none."""
        if isinstance(value, str):
            return self.text(value, known)
        if isinstance(value, dict):
            return self._mask_fields(value, public, known)
        if isinstance(value, list | tuple):
            parts = [self.mask(part, public, known) for part in value]
            if any(new is not old for new, old in zip(parts, value, strict=True)):
                return parts
            return MASK if known and masker(known).parts(value) else value
        return MASK if known and type(value) in (int, float) and masker(known).number(value) else value

    def _mask_fields(self, value: dict[Any, Any], public: frozenset[str], known: tuple[str, ...]) -> dict[Any, Any]:
        masked, changed = {}, False
        for key, part in value.items():
            name = self._name(key, known) if isinstance(key, str) else key
            new = masked[name] = self._field(key, part, public, known)
            changed = changed or name is not key or new is not part
        return masked if changed else value

    def _name(self, key: str, known: tuple[str, ...]) -> str:
        name = self.text(key, known)
        if name is key and len(key) <= 64 and len(self._plain_keys) < MOST_KEYS:
            self._plain_keys.add(key)
        return name

    def _field(self, key: Any, part: Any, public: frozenset[str], known: tuple[str, ...]) -> Any:
        rank = 0 if key in public else self._rank(key)
        if rank == 2 and part and isinstance(part, str | dict | list | tuple):
            return part if isinstance(part, str) and _REFERENCE.match(part) else MASK
        if rank == 1 and looks_like_a_token(part):
            return MASK
        return self.mask(part, public, known)

    def text(self, text: str, known: tuple[str, ...] = ()) -> str:
        """A text with secrets masked: those given as known, well-known forms, and what the scanner finds."""
        if known:
            text = masker(known).text(text)
        for _ in range(MOST_PASSES):
            if len(text) < MIN_FIELD_CHARS or not self._may_hold_secrets(text):
                break
            masked = self._masked_once(text)
            if masked == text:
                break
            text = masked
        return text

    def _may_hold_secrets(self, text: str) -> bool:
        """False of short prose. Each of FORMS, and all that the scanner is asked about, has a word of at least
        MIN_SECRET_CHARS characters, or one of CREDENTIAL_MARKS; and where a name has a value, there is a sign between."""
        if len(text) > PROSE or (("=" in text or ":" in text) and self._has_hint(text)):
            return True
        if len(text) < MIN_SECRET_CHARS:
            return "://" in text
        for word in text.split():
            if len(word) >= MIN_SECRET_CHARS:
                return True
        for mark in CREDENTIAL_MARKS:  # noqa: SIM110 - a generator costs twice as much, and every text comes by here
            if mark in text:
                return True
        return False

    def _has_hint(self, text: str) -> bool:
        """True if a look at the names in a text is worth it."""
        low = text.lower()
        return any(hint in low for hint in self._hints)

    def _masked_once(self, text: str) -> str:
        for hints, form in FORMS:
            for hint in hints:
                if hint in text:
                    text = form.sub(_masked, text)
                    break
        if self._has_hint(text):
            text = self._without_fields_in(text)
        return self._scanned(text) if self._scan and self._has_candidate(text) else text

    def _without_fields_in(self, text: str) -> str:
        """A text without what fields in it hold: JSON as a whole, and what is assigned to the names of secrets."""
        if len(text) <= MAX_JSON_CHARS and text[:64].lstrip()[:1] in ("{", "["):
            try:
                value = orjson.loads(valid_text(text))
            except orjson.JSONDecodeError:
                pass
            else:
                masked = self.mask(value)
                return text if masked is value else orjson.dumps(masked).decode()
        return without_assigned(text, self._rank)

    def without_fields(self, text: str, value: Any) -> str:
        """A text that may quote a value, without what would be masked in that value because of its field's name."""
        return without(tuple(self.named_secrets(value)), text)

    def named_secrets(self, value: Any, public: frozenset[str] = frozenset()) -> Iterator[str]:
        """The texts in a value that would be masked because of their field's name, wherever they stand below it."""
        if isinstance(value, dict):
            for key, part in value.items():
                rank = 0 if key in public else self._rank(key)
                if rank == 2 or (rank == 1 and looks_like_a_token(part)):
                    yield from (text for text in texts_in(part) if not _REFERENCE.match(text))
                else:
                    yield from self.named_secrets(part, public)
        elif isinstance(value, list | tuple):
            for part in value:
                yield from self.named_secrets(part, public)

    async def error(self, error: CallError, known: tuple[str, ...] = (), quoted: tuple[str, ...] = ()) -> ErrorInfo:
        """An error as a caller and the records are told it: valid text and plain JSON, without secrets. `quoted`: those
        among the arguments, which a tool may have put into its words."""
        message = valid_text(shortened(without(quoted, error.message), MAX_RAW_ERROR_CHARS))
        suggestion = valid_text(shortened(without(quoted, error.suggestion or ""), MAX_RAW_ERROR_CHARS))
        details = None if error.details is None else with_texts(_plain(error.details), partial(without, quoted), names=True)
        if not self.ready:
            await self.prepare([message, suggestion, details])
        masked = self.mask(details, known=known)
        if details is not None and len(orjson.dumps(masked)) > MAX_TOLD_CHARS:
            masked = {"left_out": "the details were too long"}
        return ErrorInfo(
            error.code,
            _short(self.text(message, known)),
            error.retryable,
            _short(self.text(suggestion, known)) or None,
            masked,
        )

    # -- names

    def _rank(self, key: Any) -> int:
        """2: mask, 1: mask what looks like a credential, 0: leave."""
        if not isinstance(key, str):
            return 0
        rank = self._sensitive.get(key)
        if rank is None:
            rank = 2 if key.lower() in self._more else rank_of(key)
            if len(self._sensitive) < MOST_KEYS and len(key) <= 200:
                self._sensitive[key] = rank
        return rank

    # -- the scanner

    @property
    def ready(self) -> bool:
        """True once masking needs nothing more to be loaded."""
        return self._scanner.is_loaded or not self._scan

    async def prepare(self, value: Any) -> None:
        """Load the scanner, off the event loop, if this value is the first that needs it."""
        if not self.ready and self._has_candidate(value):
            await to_thread(self._scanner.load)

    def _has_candidate(self, value: Any) -> bool:
        if isinstance(value, str):
            if len(value) < MIN_SECRET_CHARS or _HAS_DIGIT.search(value) is None:
                return False
            return any(not _UUID.match(found[0]) for piece in _pieces(value) for found in _CANDIDATE.finditer(value, *piece))
        if isinstance(value, dict):
            return any(self._has_candidate(key) or self._has_candidate(part) for key, part in value.items())
        return isinstance(value, list | tuple) and any(self._has_candidate(part) for part in value)

    @property
    def scanner_name(self) -> str | None:
        """The scanner that is in use, or would be."""
        if not self._scan:
            return None
        from importlib.util import find_spec

        return "kingfisher" if find_spec("kingfisher_sdk") else None

    def _scanned(self, text: str) -> str:
        scanner = self._scanner.load()
        if scanner is None:
            return text
        found = {finding.secret for finding in scanner.scan(valid_text(text)) if finding.secret}
        return without(tuple(found), text) if found else text


class Redaction:
    """The gate: the copy of the arguments that records hold, and the output that is given out, without secrets."""

    def __init__(self, redactor: Redactor, offload: Offload) -> None:
        self._redactor = redactor
        self._offload = offload

    def enter(self, ctx: InvokeContext, entry: Entry) -> Awaitable[None] | None:
        """Makes the copy of the arguments that records hold."""
        ctx.recorded = ctx.canonical
        if entry.takes_text and (ctx.injected or not self._redactor.is_harmless(ctx.arguments)):
            return self.mask_arguments(ctx, entry)
        return None

    def mask_arguments(self, ctx: InvokeContext, entry: Entry) -> Awaitable[None] | None:
        """Masks the copy; a large one, and where a scanner has to be loaded first, when awaited."""
        if len(ctx.canonical) > LARGE or not self._redactor.ready:
            return self._mask_later(ctx, entry, self._mask_arguments, ctx.arguments, len(ctx.canonical))
        self._mask_arguments(ctx, entry)
        return None

    def _mask_arguments(self, ctx: InvokeContext, entry: Entry) -> None:
        arguments = orjson.loads(ctx.canonical) if ctx.hooked else ctx.arguments  # whatever hooks did to theirs
        ctx.recorded = self._redactor.arguments(ctx.canonical, arguments, entry.public_input, ctx.injected)

    def mask_output(self, ctx: InvokeContext, entry: Entry, size: int) -> Awaitable[None] | None:
        """Masks the output, which has so many bytes as JSON; when awaited, as above."""
        if not ctx.injected and self._redactor.is_harmless(ctx.result):
            return None
        if size > LARGE or not self._redactor.ready:
            return self._mask_later(ctx, entry, self._mask_output, ctx.result, size)
        self._mask_output(ctx, entry)
        return None

    def _mask_output(self, ctx: InvokeContext, entry: Entry) -> None:
        masked = self._redactor.mask(ctx.result, entry.public_output, ctx.injected)
        if masked is not ctx.result:
            ctx.output = masked

    async def _mask_later(
        self, ctx: InvokeContext, entry: Entry, mask: Callable[[InvokeContext, Entry], None], value: Any, size: int
    ) -> None:
        if size > LARGE:
            await self._offload(ctx.call.actor.tenant, mask, ctx, entry)
        else:
            await self._redactor.prepare(value)
            mask(ctx, entry)


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Pieces of a long text, cut between words. One search through all of it would let no other thread run."""
    begin = 0
    while len(text) - begin > SCAN_CHARS:
        space = _SPACE.search(text, begin + SCAN_CHARS)
        end = len(text) if space is None else space.end()
        yield begin, end
        begin = end
    yield begin, len(text)


def _short(text: str) -> str:
    return text if len(text) <= MAX_TOLD_CHARS else text[:MAX_TOLD_CHARS] + "...[truncated]"


def _masked(found: re.Match[str]) -> str:
    return f"{found['keep']}{MASK}" if "keep" in found.re.groupindex else MASK


def _plain(details: Mapping[str, Any]) -> Any:
    """Details as JSON values; an object becomes its name."""
    try:
        named = orjson.dumps(details, default=lambda value: f"<{type(value).__name__}>", option=orjson.OPT_NON_STR_KEYS)
        return orjson.loads(named)
    except (TypeError, ValueError, RecursionError):
        return {"unreadable": "the details cannot be written as JSON"}

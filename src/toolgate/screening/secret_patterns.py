"""Finds a secret again in the shapes that it may come back in.

Each value is looked for in any letter case, forwards and backwards, as JSON, Python, URLs, HTML, base64 and hexadecimal
digits write it; with anything but letters and digits between its characters, or without what it has of that itself; in
texts that are coded several times over; as a number, a list of characters or of bytes; and by its beginning or end, where
a text was cut. What a tool computes from it in any other way is not found: that is why only named tools are given secrets.
"""

import json
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import cache, lru_cache
from html import escape, unescape
from os.path import commonprefix
from typing import Any
from urllib.parse import quote, quote_plus, unquote_plus

from toolgate.screening import MASK

SHORTEST_CODE = 8
"""A shorter piece of base64 or hexadecimal digits may be anything; so may a shorter text without its punctuation."""
SHORTEST_BACKWARDS = 6
SHORTEST_LINE = 12
SHORTEST_NUMBER = 4
SHORTEST_PIECE, SHORTEST_WORDY_PIECE = 8, 12
"""Of the beginning or the end of a secret: without a digit it may be a prefix that all keys of a kind have."""
MOST_LAYERS = 4
"""Codings, one in the other, that are taken off."""
MOST_DECODED = 12
"""Characters that are decoded in all, for each of a text."""
LONGEST_ON_LOOP = 131_072
"""Characters of a text that is looked into layer by layer where others wait for it."""

_BETWEEN = bytes(byte for byte in range(128) if not chr(byte).isalnum())
"""ASCII that is neither a letter nor a digit."""
_READABLE = bytes([*range(32, 127), *b"\t\r\n"])
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_SECRET_WORD = re.compile(r"\S+")


# -- the shapes of one value


@lru_cache(maxsize=1_024)
def shapes(value: str) -> frozenset[str]:
    """All shapes of a value that can be written down, in small letters."""
    found = {value, value.strip(), value.replace("\n", "\r\n"), value.upper()}
    found.update(_quoted(value), _in_url(value), _in_html(value))
    found.update(code for code in _coded(value) if len(code) >= SHORTEST_CODE)
    if "\n" in value:
        lines = (line.strip() for line in value.splitlines())
        found.update(line for line in lines if len(line) >= SHORTEST_LINE and not line.startswith("-----"))
    found.update([text[::-1] for text in found if len(text) >= SHORTEST_BACKWARDS])
    return frozenset(lower(text) for text in found if text.strip())


def _quoted(value: str) -> Iterator[str]:
    once = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    for text in once:
        yield text
        yield text.replace("/", "\\/")
        yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]


def _in_url(value: str) -> Iterator[str]:
    for write in (quote, quote_plus):
        for safe in ("", "/"):
            yield write(value, safe=safe, errors="backslashreplace")


def _in_html(value: str) -> Iterator[str]:
    whole = escape(value)
    yield whole
    yield escape(value, quote=False)
    yield whole.replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
    yield whole.replace("&#x27;", "&#39;")


def _coded(value: str) -> Iterator[str]:
    content = value.encode("utf-8", "backslashreplace")
    yield content.hex()
    for text in _in_base64(content):
        yield text
        yield text.replace("+", "-").replace("/", "_")


def _in_base64(content: bytes) -> Iterator[str]:
    """On its own, and the characters that it alone determines where it stands 0, 1 or 2 bytes off a group of three."""
    alone = b64encode(content).decode()
    yield alone
    yield alone.rstrip("=")
    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(content)) * 8 // 6
        yield b64encode(bytes(before) + content).decode()[first:last]


def lower(text: str) -> str:
    """In small letters, each character for itself: `str.lower` makes two of some, and looks at the neighbours of others."""
    return text.lower() if text.isascii() else text.translate(_small_letters())


@cache
def _small_letters() -> dict[int, str]:
    pairs = ((number, chr(number).lower()) for number in range(0x1E944))
    return {number: small for number, small in pairs if len(small) == 1 and small != chr(number)}


def _squeezed(text: str) -> bytes:
    """Without what stands between letters and digits."""
    return text.encode("utf-8", "surrogatepass").translate(None, _BETWEEN)


# -- in what is said


class Masker:
    """Takes some secrets out of what is said."""

    def __init__(self, values: Iterable[str]) -> None:
        values = {value for value in values if value}
        found = {shape for value in values for shape in shapes(value)}
        self._shapes = sorted(found, key=len, reverse=True)
        self._squeezed = sorted({one for shape in found if _is_telling(one := _squeezed(shape))}, key=len, reverse=True)
        self._pieces = [piece for value in values if (piece := _piece(lower(value))) is not None]
        self._numbers = {number for value in values for number in _numbers(value)}
        self._in_bytes = [shape.encode("utf-8", "surrogatepass") for shape in self._shapes if len(shape) >= SHORTEST_CODE]
        known_by = [length for _, *ends in self._pieces for length in ends]
        self._least = min([*map(len, self._shapes), *map(len, self._squeezed), *known_by], default=0)
        shortest = min((len(value) for value in values if len(value) >= SHORTEST_CODE), default=0)
        self._codes = _codes(shortest) if shortest else None

    def text(self, text: str, least: int = 0, *, on_loop: bool = False) -> str:
        """The text without secrets whose shapes have at least so many characters."""
        if len(text) < self._least or not self._shapes:
            return text
        text = self._without_shapes(text, least)
        text = self._without_squeezed(text, least)
        text = self._without_pieces(text, least)
        if self._codes is None or (on_loop and len(text) > LONGEST_ON_LOOP):
            return text
        return self._without_layers(text, self._codes)

    def has(self, text: str) -> bool:
        """True if there is a secret in a text. Quick, if there is none."""
        return self.text(text, on_loop=True) is not text

    def number(self, value: float) -> bool:
        """True if a number is one of the secrets, or has a long one among its digits."""
        if not self._numbers or not math.isfinite(value):
            return False
        digits = f"{Decimal(repr(value)):f}".lstrip("-")
        digits = (digits.rstrip("0").replace(".", "") if "." in digits else digits).lstrip("0")
        whole = digits.rstrip("0")
        return any(
            number in (digits, whole) or (len(number) >= SHORTEST_CODE and number in digits) for number in self._numbers
        )

    def parts(self, value: list[Any] | tuple[Any, ...]) -> bool:
        """True if a list is a secret in pieces: characters, parts of a text, or bytes."""
        if len(value) < 2:
            return False
        if all(type(part) is int and 0 <= part < 0x110000 for part in value):
            small = all(part < 256 for part in value)
            return self.has(bytes(value).decode("utf-8", "replace") if small else "".join(map(chr, value)))
        return all(type(part) is str for part in value) and self.has("".join(value))

    # -- one pass each, over what the ones before it left

    def _without_shapes(self, text: str, least: int) -> str:
        low = lower(text)
        present = [shape for shape in self._shapes if shape in low and len(shape) >= least]
        if not present:
            return text
        pattern = "|".join(map(re.escape, present))
        return mask_spans(text, [found.span() for found in re.finditer(pattern, low)])

    def _without_squeezed(self, text: str, least: int) -> str:
        low = lower(text)
        squeezed = _squeezed(low)
        present = [shape for shape in self._squeezed if shape in squeezed and len(shape) >= least]
        if not present:
            return text
        places = [at for at, char in enumerate(low) for _ in _squeezed(char)]
        pattern = b"|".join(map(re.escape, present))
        return mask_spans(text, [(places[m.start()], places[m.end() - 1] + 1) for m in re.finditer(pattern, squeezed)])

    def _without_pieces(self, text: str, least: int) -> str:
        """Without the beginnings and ends of secrets, as far as they go."""
        low, spans = lower(text), []
        for value, first, last in self._pieces:
            if len(value) < least:
                continue
            at = low.find(value[:first])
            while at >= 0:
                end = at + _common(low[at : at + len(value)], value)
                spans.append((at, end))
                at = low.find(value[:first], end)
            at = low.find(value[-last:])
            while at >= 0:
                end = at + last
                spans.append((end - _common(low[max(end - len(value), 0) : end][::-1], value[::-1]), end))
                at = low.find(value[-last:], end)
        return mask_spans(text, spans) if spans else text

    # -- layers of codings

    def _without_layers(self, text: str, codes: re.Pattern[str]) -> str:
        budget = [MOST_DECODED * len(text) + 4_096]
        spans = [found.span() for found in codes.finditer(text) if self._is_in_code(found[0], MOST_LAYERS, budget)]
        if spans:
            text = mask_spans(text, spans)
        if not self._is_in_escapes(text, MOST_LAYERS, budget):
            return text
        words = [word.span() for word in _SECRET_WORD.finditer(text) if self._is_in_escapes(word[0], MOST_LAYERS, budget)]
        return mask_spans(text, words) if words else MASK

    def _is_in(self, text: str, layers: int, budget: list[int]) -> bool:
        low = lower(text)
        if any(shape in low for shape in self._shapes if len(shape) >= SHORTEST_CODE):
            return True
        squeezed = _squeezed(low)
        if any(shape in squeezed for shape in self._squeezed):
            return True
        if layers == 0 or self._codes is None:
            return False
        coded = any(self._is_in_code(found[0], layers, budget) for found in self._codes.finditer(text))
        return coded or self._is_in_escapes(text, layers, budget)

    def _is_in_code(self, code: str, layers: int, budget: list[int]) -> bool:
        """True if a secret is in what base64 or hexadecimal digits stand for, wherever in them it begins."""
        for content in _decoded(code):
            budget[0] -= len(content)
            if budget[0] < 0:
                return False
            if not _is_readable(content):
                if any(shape in content.lower() for shape in self._in_bytes):
                    return True
            elif self._is_in(content.decode("utf-8", "replace"), layers - 1, budget):
                return True
        return False

    def _is_in_escapes(self, text: str, layers: int, budget: list[int]) -> bool:
        """True if a secret is in what URLs, HTML, JSON and Python have written with escapes."""
        for mark, read in (("%", unquote_plus), ("&", unescape), ("\\", _unescaped)):
            if mark in text and (plain := read(text)) != text:
                budget[0] -= len(plain)
                if budget[0] < 0:
                    return False
                if self._is_in(plain, layers - 1, budget):
                    return True
        return False


@lru_cache(maxsize=64)
def masker(values: tuple[str, ...]) -> Masker:
    return Masker(values)


def mask_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text with a mask in place of each span; of those that overlap, one for all."""
    parts, end = [], 0
    merged: list[list[int]] = []
    for first, last in sorted(spans):
        if merged and first < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    for first, last in merged:
        parts += [text[end:first], MASK]
        end = last
    return "".join([*parts, text[end:]])


def _is_telling(squeezed: bytes) -> bool:
    return len(squeezed) >= SHORTEST_CODE and squeezed not in _squeezed(lower(MASK))


def _piece(value: str) -> tuple[str, int, int] | None:
    """The lengths of the beginning and the end that a value is known by; None if it is too short for that."""
    if any(char.isspace() for char in value):
        first = last = max(len(value) // 2, SHORTEST_WORDY_PIECE)
    else:
        scheme = value.find("://") + 3 if "://" in value else 0
        first = scheme + _telling(value[scheme:])
        last = _telling(value[::-1])
    return (value, first, last) if max(first, last) < len(value) else None


def _telling(value: str) -> int:
    digit = next((at + 1 for at, char in enumerate(value) if char.isdigit()), SHORTEST_WORDY_PIECE)
    return min(max(digit, SHORTEST_PIECE), SHORTEST_WORDY_PIECE)


def _numbers(value: str) -> Iterator[str]:
    """The digits of a value that is a number, forwards and backwards, without zeros that a number would not have."""
    plain = re.sub(r"[\s,._-]", "", value)
    if plain.isascii() and plain.isdigit() and len(plain) >= SHORTEST_NUMBER:
        for digits in (plain, plain[::-1], plain.rstrip("0") if "." in value else plain):
            if len(number := digits.lstrip("0")) >= SHORTEST_NUMBER:
                yield number


def _codes(shortest: int) -> re.Pattern[str]:
    """Runs of what base64 and hexadecimal digits are made of, long enough to hold a secret."""
    return re.compile(rf"[A-Za-z0-9+/_-]{{{shortest + 2},}}")


def _decoded(code: str) -> Iterator[bytes]:
    plain = code.replace("-", "+").replace("_", "/")
    for start in range(4):
        part = plain[start : start + (len(plain) - start) // 4 * 4 or None]
        rest = plain[start + len(part) :] if len(part) < len(plain) - start else ""
        padded = part + (rest + "=" * (4 - len(rest)) if len(rest) >= 2 else "")
        if len(padded) % 4 == 0:
            yield b64decode(padded)
    for start in range(2):
        found = re.fullmatch(r"(?:[0-9a-fA-F]{2})+", code[start : start + (len(code) - start) // 2 * 2])
        if found is not None:
            yield bytes.fromhex(found[0])


def _is_readable(content: bytes) -> bool:
    """True if bytes may be text, which may be coded again; what was cut out of the middle of a code is not."""
    return len(content.translate(None, _READABLE)) * 4 <= len(content) or content.isascii() or _is_utf8(content)


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _unescaped(text: str) -> str:
    def read(found: re.Match[str]) -> str:
        number = found[1] or found[2]
        return chr(int(number, 16)) if number else _CONTROLS.get(found[3], found[3])

    return _ESCAPE.sub(read, text)


def _common(one: str, other: str) -> int:
    """The number of characters that two texts have in common at their beginning."""
    return len(commonprefix((one, other)))  # noqa: RUF071 - characters are meant, not parts of a path

"""Texts as tokens: addresses, accounts, numbers and words. Two texts name the same thing if their tokens are the same.

Case is folded, and nothing else: a look-alike letter, one of full width or one of no width makes another token. A token is a
whole: `general` is none of `#general-2`, nor `acme.com` one of `https://acme.com@evil.org`. Where spelling is a matter of
taste it is levelled: `https://acme.com` and `acme.com/`, `1,000.50` and `1000.5`, an IBAN in groups of four, a telephone
number with blanks. What punctuation stands between two tokens does not matter.

No pattern here can be made slow: each either takes one class of characters to its end or has bounded repetitions.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Literal, NamedTuple

Kind = Literal["url", "mail", "iban", "phone", "ip", "number", "word"]

BREAKS = r"\s,;\"()\[\]{}<>«»“”„\u2039\u203a"
"""Characters of which no word has any."""
IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Scripts in which an address stands beside a word without a blank between them."""
AT_END = r"(?![\w]|[-./:@=&+]\w)"
"""Behind a number, account or telephone number: it is not part of something longer."""
SCAN = re.compile(
    rf"""
      (?P<url>[a-zA-Z][a-zA-Z0-9+.-]{{1,20}}://[^\s<>"«»“”„{IDEOGRAPHS}]+)
    | (?P<iban>(?<!\w)[a-zA-Z]{{2}}[0-9]{{2}}(?:[ ][a-zA-Z0-9]{{4}}){{2,7}}(?:[ ][a-zA-Z0-9]{{1,4}})?{AT_END})
    | (?P<phone>(?<!\w)(?![0-9]{{1,2}}[./-][0-9]{{1,2}}[./-][0-9]{{2,4}}\b)
        (?:\+|\(?0)[0-9](?:[ ()./-]{{0,3}}[0-9]){{5,13}}{AT_END})
    | (?P<number>(?<!\w)[-+]?[$€£¥]?[-+]?(?:[0-9]{{1,3}}(?:[,'\u2019_][0-9]{{3}}){{1,9}}(?:\.[0-9]{{1,20}})?
        |[0-9]{{1,3}}(?:\.[0-9]{{3}}){{0,9}},[0-9]{{1,2}}){AT_END})
    | (?P<ideographs>[{IDEOGRAPHS}]+)
    | (?P<other>(?:(?!https?://)[^{BREAKS}{IDEOGRAPHS}])+)
    """,
    re.VERBOSE,
)
SINGLE_QUOTES = "'`\u2018\u2019"
BEFORE, AFTER, AFTER_URL = f"{SINGLE_QUOTES}#@", f"{SINGLE_QUOTES}.:!?…", f"{SINGLE_QUOTES}.,;:!?…)]}}"
"""Punctuation around a word, and behind an address, that is not of it."""
CURRENCIES = "$€£¥%"
QUOTES = f'{SINGLE_QUOTES}"“”„«»\u2039\u203a'
DEFAULT_PORTS = {"http": ":80", "https": ":443"}
HOST = re.compile(r"(?:[a-z0-9_-]{1,63}\.){1,10}(?P<last>[a-z]{2,24})(?::[0-9]{1,5})?(?:[/?#].*)?")
BARE_DOMAINS = frozenset(
    (
        "com", "org", "net", "edu", "gov", "eu", "at", "be", "ca", "ch", "cn", "cz", "de", "dk", "es", "fi", "fr", "ie",
        "io", "it", "jp", "kr", "nl", "no", "nz", "pt", "se", "uk", "us",
    )
)  # fmt: skip
"""Last labels of a host that is taken for one without https:// before it. Those that are also what names of files end with
(md, py, sh, zip) are not: `README.md` names no address."""
MAIL = re.compile(r"[^@/\\:]{1,64}@(?:[^@/\\:.]{1,63}\.){1,10}[^@/\\:.]{1,63}")
COMPACT_IBAN = re.compile(r"[a-z]{2}[0-9]{2}[a-z0-9]{11,30}")
MIN_IBAN_CHARS = 15
NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,29})(?:\.[0-9]{1,20})?")
IP = re.compile(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}|[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,8}")
KELVIN = "\u212a"
"""A letter of its own that str.lower makes a plain k."""


class TextToken(NamedTuple):
    """A part of a text that stands for something."""

    kind: Kind
    text: str
    """As it is compared."""
    is_marked: bool
    """True unless it is a plain word in small letters: it is capitalised, quoted, behind # or @, or no plain word."""
    start: int
    end: int


def tokens(text: str) -> Iterator[TextToken]:
    """Gives the tokens of a text in their order."""
    for found in SCAN.finditer(text):
        kind, start, end = found.lastgroup, *found.span()
        if kind == "url":
            end = start + len(found[0].rstrip(AFTER_URL))
            yield TextToken("url", _url(text[start:end]), True, start, end)
        elif kind == "phone":
            yield TextToken("phone", _phone(found[0]), True, start, end)
        elif kind == "number":
            yield TextToken("number", _grouped(found[0]), True, start, end)
        elif kind == "iban":
            yield from _account(text, start, end)
        else:
            yield from _word(text, start, end)


def folded(text: str) -> str:
    """A text in small letters. Nothing that is not ASCII becomes ASCII."""
    return text.lower() if text.isascii() else KELVIN.join(part.lower() for part in text.split(KELVIN))


def _url(text: str) -> str:
    """An address without what makes no difference. User, other port and backslash stay in it, and so make one."""
    scheme, _, rest = folded(text).partition("://")
    if scheme not in DEFAULT_PORTS:
        return f"{scheme}://{rest}"
    host = re.match(r"[^/?#\\]*", rest)
    assert host is not None
    name, behind = host[0].removesuffix(DEFAULT_PORTS[scheme]), rest[host.end() :]
    return f"{name}{behind if behind.startswith('/') else f'/{behind}'}"


def _phone(text: str) -> str:
    digits = "".join(char for char in text if char.isdigit())
    return f"+{digits}" if text.startswith("+") else f"+{digits[2:]}" if digits.startswith("00") else digits


def _grouped(text: str) -> str:
    """A number with marks between groups of digits, or with a comma before its fraction."""
    plain = re.sub(r"[$€£¥'\u2019_]", "", text)
    whole, comma, last = plain.rpartition(",")
    if comma and len(last) < 3:
        return _number(f"{whole.replace('.', '')}.{last}")
    return _number(plain.replace(",", ""))


def _number(text: str) -> str:
    if text.isdigit():
        return text
    exact = Decimal(text)
    return format(exact.normalize(), "f") if exact else "0"


def _account(text: str, start: int, end: int) -> Iterator[TextToken]:
    """An IBAN in groups, as far as its check digits are right; what follows it, or all if it is none, is read as words."""
    cut = end
    while len(written := text[start:cut].replace(" ", "")) >= MIN_IBAN_CHARS:
        if _is_iban(written):
            yield TextToken("iban", folded(written), True, start, cut)
            break
        cut = text.rindex(" ", start, cut)
    else:
        cut = start
    for part in re.finditer(r"[^ ]+", text[cut:end]):
        yield from _word(text, cut + part.start(), cut + part.end())


def _is_iban(text: str) -> bool:
    turned = text[4:] + text[:4]
    return int("".join(str(int(char, 36)) for char in turned)) % 97 == 1


def _word(text: str, start: int, end: int) -> Iterator[TextToken]:
    """A run of characters without a break: what it is once the punctuation around it is gone."""
    kept = text[start:end].lstrip(BEFORE)
    start = end - len(kept)
    written = kept.rstrip(AFTER)
    end = start + len(written)
    if written.isalpha():
        yield TextToken("word", folded(written), written[0].isupper() or _is_set_off(text, start, end), start, end)
    elif written:
        kind, compared = _kind(folded(written))
        yield TextToken(kind, compared, True, start, end)


def _kind(text: str) -> tuple[Kind, str]:
    if NUMBER.fullmatch(amount := text.strip(CURRENCIES)):
        return "number", _number(amount)
    if "@" in text and MAIL.fullmatch(address := text.removeprefix("mailto:")):
        return "mail", address
    host = HOST.fullmatch(text) if "." in text else None
    if host is not None and (host["last"] in BARE_DOMAINS or text.startswith("www.")):
        return "url", _url(f"https://{text}")
    if IP.fullmatch(text):
        return "ip", text
    if COMPACT_IBAN.fullmatch(text) and _is_iban(text):
        return "iban", text
    return "word", text


def _is_set_off(text: str, start: int, end: int) -> bool:
    """True if a word is quoted, or stands behind # or @."""
    before = text[start - 1] if start else " "
    return before in "#@" or (before in QUOTES and end < len(text) and text[end] in QUOTES)

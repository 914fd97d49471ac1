# ruff: noqa: RUF001 - typographic quotes and full-width marks are what models write
"""JSON as language models write it: with comments, trailing commas, single or typographic quotes, bare keys, Python's words
and line breaks within texts. Each character is read once.

Nothing is guessed. What can be read in two ways is refused with its place (a key twice, a missing comma, a quote within a
text that is not escaped), and a value that ends too early is never taken for whole: what json-repair would close and fill in
may be half of an argument.
"""

import re
from typing import Any, NoReturn

from toolgate.llm.json_extraction import MAX_DEPTH, Unfit, sound

MAX_VALUES = 100_000
"""Values in one text."""
MAX_NUMBER_CHARS = 400
CLOSING = {'"': '"', "'": "'", "`": "`", "“": "“”", "”": "”", "„": "“”", "‘": "’", '"""': '"', "'''": "'"}
"""By the mark that opens a text, those that close it; three of them one that was opened by three."""
WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
QUOTES = frozenset("\"'`")
CHARACTERS = {
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "\\": "\\",
    "/": "/",
    **{quote: quote for quote in QUOTES},
}
"""By the letter after a backslash."""

_SPACE = re.compile(r"(?:[\s\ufeff\u200b]++|//[^\n]*+|/\*.*?\*/|\#[^\n]*+)*+", re.DOTALL)
_OPENING = re.compile(r"\"\"\"|'''|[\"'`“”„‘]")
_BODIES = {
    opening: re.compile(
        rf"(?:[^\\{closing}]++|\\.|{closing}(?!{closing * 2}))*+" if len(opening) == 3 else rf"(?:[^\\{closing}]++|\\.)*+",
        re.DOTALL,
    )
    for opening, closing in CLOSING.items()
}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_QUOTE = re.compile(r"\\([\"'`])")
_KEY = re.compile(r"[A-Za-z_$][\w$-]*+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+")
_END = re.compile(r"[\s,，\]}/#]")
"""The character after a number that is whole."""


class UnreadableJson(ValueError):
    """A text is not JSON, or has more than one reading."""

    def __init__(self, why: str, position: int) -> None:
        super().__init__(why)
        self.position = position


class CutOff(UnreadableJson):
    """A text ends within a value."""


class RelaxedJson:
    """One value in a text."""

    def __init__(self, text: str, position: int = 0) -> None:
        self._text = text
        self.position = position
        self.members: dict[str, Any] = {}
        """Of an object: its members that are whole, however the rest is."""
        self.open_member: str | None = None
        """Of an object: the member that is being read; empty while its key is."""
        self._values = 0

    def read(self) -> Any:
        """The value that begins at `position`, which is then after it. Raises UnreadableJson; CutOff if it is not whole."""
        try:
            return sound(self._value(0))
        except Unfit as error:
            raise UnreadableJson(str(error), self.position) from None

    def skip(self) -> None:
        """Goes past white space and comments."""
        found = _SPACE.match(self._text, self.position)
        if found is not None:
            self.position = found.end()

    def _next(self) -> str:
        """The next character that means something."""
        self.skip()
        if self.position >= len(self._text) or self._text.startswith("/*", self.position):
            raise CutOff("the text ends within it", self.position)
        return self._text[self.position]

    def _refuse(self, why: str) -> NoReturn:
        raise UnreadableJson(why, self.position)

    def _value(self, depth: int) -> Any:
        self._values += 1
        if depth > MAX_DEPTH:
            self._refuse(f"it is nested more than {MAX_DEPTH} levels deep")
        if self._values > MAX_VALUES:
            self._refuse(f"it has more than {MAX_VALUES:,} values")
        char = self._next()
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._list(depth)
        if _OPENING.match(self._text, self.position):
            return self._string()
        return self._scalar()

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        if depth == 0:
            self.members = members
        self.position += 1
        while self._next() != "}":
            self._open(depth, "")
            key = self._key()
            if key in members:
                self._refuse(f"the key {key[:80]!r} stands there twice")
            self._open(depth, key)
            if self._next() not in ":：":
                self._refuse("a colon is missing after a key")
            self.position += 1
            members[key] = self._value(depth + 1)
            self._open(depth, None)
            self._separated("}")
        self.position += 1
        return members

    def _open(self, depth: int, member: str | None) -> None:
        if depth == 0:
            self.open_member = member

    def _list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self.position += 1
        while self._next() != "]":
            items.append(self._value(depth + 1))
            self._separated("]")
        self.position += 1
        return items

    def _separated(self, closing: str) -> None:
        """Goes past a comma; none is needed before the bracket that closes."""
        char = self._next()
        if char in ",，":
            self.position += 1
        elif char != closing:
            self._refuse(f"a comma or {closing} is missing, or a quote within a text is not escaped")

    def _key(self) -> str:
        if _OPENING.match(self._text, self.position):
            return self._string()
        found = _KEY.match(self._text, self.position)
        if found is None:
            self._refuse("a key is missing")
        self.position = found.end()
        return found[0]

    def _scalar(self) -> Any:
        start = self.position
        found = _KEY.match(self._text, start) or _NUMBER.match(self._text, start)
        if found is None:
            self._refuse("there is no value where one must be")
        end, word = found.end(), found[0]
        if end == len(self._text):  # 12 of 123
            raise CutOff("the text ends within it", end)
        if word not in WORDS and (word[0] not in "-0123456789" or not _END.match(self._text, end)):
            self._refuse("it has a value without quotes that is neither a number nor true, false or null")
        if len(word) > MAX_NUMBER_CHARS:
            self._refuse("it holds a number that is too long")
        self.position = end
        if word in WORDS:
            return WORDS[word]
        return float(word) if set(word) & set(".eE") else int(word)

    # -- texts

    def _string(self) -> str:
        opening = _OPENING.match(self._text, self.position)
        if opening is None:
            self._refuse("a text is missing")
        start, closing = opening.end(), CLOSING[opening[0]]
        body = _BODIES[opening[0]].match(self._text, start)
        end = start if body is None else body.end()
        if end + len(opening[0]) > len(self._text) or self._text[end] not in closing:
            raise CutOff("the text ends within it", end)
        content = self._unescaped(self._text[start:end])
        self.position = end + len(opening[0])
        return content

    def _unescaped(self, body: str) -> str:
        if "\\" not in body:
            return body
        escapes = set(_ESCAPE.findall(body))
        unknown = {escape for escape in escapes if escape not in CHARACTERS and len(escape) != len("u0000")}
        if not unknown:
            return _paired(_ESCAPE.sub(_character, body))
        if escapes - unknown - QUOTES:  # of C:\Users\new nobody knows what \n is
            self._refuse("a text has backslashes that JSON does not know, besides others: double each that is meant")
        return _QUOTE.sub(r"\1", body)


def _character(escape: re.Match[str]) -> str:
    name = escape[1]
    return CHARACTERS[name] if len(name) == 1 else chr(int(name[1:], 16))


def _paired(text: str) -> str:
    """A text in which two halves of a surrogate pair have become one character; a single half stays, and is refused."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

"""JSON with the position of every value, names that stand twice, and the place of a mistake in words that help."""

import json
import re
from typing import Any, NamedTuple

from toolgate.errors import ToolgateError

MAX_DEPTH = 200
MAX_NUMBER_CHARS = 1_000
SPACE = re.compile(r"[ \t\n\r]*")
TEXT_BODY = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
OPEN_STRING, STRING = re.compile(TEXT_BODY), re.compile(TEXT_BODY + '"')
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
WORDS = {"true": True, "false": False, "null": None}

Parts = tuple[str | int, ...]


class MalformedJson(ToolgateError):
    """The document is not valid, from an offset on."""

    def __init__(self, offset: int, message: str, parts: Parts = ()) -> None:
        super().__init__(message)
        self.offset, self.parts = offset, parts


class OpenValue(NamedTuple):
    """An object or list that is being read, and the offsets of what is in it."""

    value: Any
    offsets: Any
    start: int


class JsonReader:
    """Reads JSON with the offset of every value. The depth is bounded, so the stack is too."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith("\ufeff") else 0
        self._stack: list[OpenValue] = []
        self._keys: list[str | int] = []
        self.repeated: list[MalformedJson] = []
        """Names that stand twice in one object: the last value counts, as everywhere."""
        self.value: Any = None
        self.offsets: Any = None

    def read(self) -> None:
        """Reads the whole text; raises MalformedJson."""
        self._value()
        while self._stack:
            self._next()
        self._skip()
        if self._at < len(self._text):
            raise self._wrong("the document ends here, and more text follows")

    def _skip(self) -> str:
        """The next character that is no white space; empty at the end."""
        found = SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def _wrong(self, message: str) -> MalformedJson:
        if self._at >= len(self._text):
            message = "the text ends too early"
        return MalformedJson(self._at, message, tuple(self._keys))

    # -- values

    def _value(self) -> None:
        """Reads a value, or the beginning of one that holds others."""
        first = self._skip()
        start = self._at
        if first in ("{", "["):
            if len(self._stack) >= MAX_DEPTH:
                raise self._wrong(f"values are nested more than {MAX_DEPTH} levels deep")
            self._at += 1
            opened = OpenValue({}, {}, start) if first == "{" else OpenValue([], [], start)
            self._stack.append(opened)
            if self._skip() == ("}" if first == "{" else "]"):
                self._close()
            elif first == "{":
                self._member()
            else:
                self._keys.append(0)
                self._value()
        else:
            self._put(self._scalar(first), start)

    def _scalar(self, first: str) -> Any:
        if first == '"':
            return self._string()
        number = NUMBER.match(self._text, self._at)
        if number is not None:
            if self._text[number.end() : number.end() + 1].isalnum():
                raise self._wrong("this is no number of JSON")
            self._at = number.end()
            return self._number(number[0], number.start())
        word = WORD.match(self._text, self._at)
        if word is not None and word[0] in WORDS:
            self._at = word.end()
            return WORDS[word[0]]
        raise self._wrong(_strange(first, word[0] if word else ""))

    def _number(self, digits: str, start: int) -> int | float:
        if len(digits) > MAX_NUMBER_CHARS:
            raise MalformedJson(start, f"a number has more than {MAX_NUMBER_CHARS:,} digits", tuple(self._keys))
        value = float(digits) if any(mark in digits for mark in ".eE") else int(digits)
        if isinstance(value, float) and value - value != 0:
            raise MalformedJson(start, "the number is too large", tuple(self._keys))
        return value

    def _string(self) -> str:
        found = STRING.match(self._text, self._at)
        if found is None:
            raise self._bad_string()
        self._at = found.end()
        if "\\" not in found[0]:
            return found[0][1:-1]
        return str(json.loads(found[0])).encode(errors="backslashreplace").decode()  # halves of surrogate pairs

    def _bad_string(self) -> MalformedJson:
        """The error of a string that is not one: at the character that must not be there, or at its beginning."""
        good = OPEN_STRING.match(self._text, self._at)
        end = good.end() if good else self._at
        if end >= len(self._text) or self._text[end] in "\n\r":
            return MalformedJson(self._at, "a text in quotation marks has no end in its line", tuple(self._keys))
        words = "an unknown escape after \\" if self._text[end] == "\\" else "a control character, which must be escaped"
        return MalformedJson(end, f"a text holds {words}", tuple(self._keys))

    # -- objects and lists

    def _member(self) -> None:
        """Reads the name of a member and the beginning of its value."""
        first = self._skip()
        start = self._at
        if first != '"':
            raise self._wrong("a name in double quotation marks is expected" + (" after the comma" if first == "}" else ""))
        name = self._string()
        if name in self._stack[-1].value:
            self.repeated.append(MalformedJson(start, "the name stands twice in its object", (*self._keys, name)))
        if self._skip() != ":":
            raise self._wrong("a colon is expected after the name")
        self._at += 1
        self._keys.append(name)
        self._value()

    def _next(self) -> None:
        """Goes on after a value: with the next one, or with the end of what holds it."""
        is_object = isinstance(self._stack[-1].value, dict)
        mark = self._skip()
        if mark == ("}" if is_object else "]"):
            self._close()
        elif mark != ",":
            raise self._wrong(f"a comma or {'}' if is_object else ']'} is expected")
        else:
            self._at += 1
            if is_object:
                self._member()
            else:
                if self._skip() == "]":
                    raise self._wrong("a value is expected after the comma")
                self._keys.append(len(self._stack[-1].value))
                self._value()

    def _close(self) -> None:
        self._at += 1
        done = self._stack.pop()
        self._put(done.value, done.start, done.offsets)

    def _put(self, value: Any, start: int, inner: Any = None) -> None:
        offsets = (start, inner)
        if not self._stack:
            self.value, self.offsets = value, offsets
            return
        holder, key = self._stack[-1], self._keys.pop()
        if isinstance(holder.value, dict):
            holder.value[key], holder.offsets[key] = value, offsets
        else:
            holder.value.append(value)
            holder.offsets.append(offsets)

    def offset_of(self, parts: list[Any]) -> int:
        """The offset of a value, or of the innermost one around it that is there."""
        offset, inner = self.offsets
        for part in parts:
            try:
                offset, inner = inner[part]
            except (LookupError, TypeError):
                break
        return int(offset)


def _strange(first: str, word: str) -> str:
    if first == "'":
        return "texts stand in double quotation marks, not in single ones"
    if first in ("/", "#"):
        return "JSON has no comments"
    if word in ("NaN", "Infinity", "undefined", "None", "True", "False"):
        return f"{word} is no value of JSON"
    return "a value is expected"

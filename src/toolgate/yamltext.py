"""YAML that somebody else wrote, read as plain JSON values: small, shallow, without surprises, and with the place of
every value.

Safe, because nothing is built from it but text, numbers, booleans, null, lists and mappings: tags are refused. Bounded,
because it is read as a stream of events: what an alias repeats counts as if it had been written out. Without surprises,
because scalars mean what YAML 1.2 says (`on`, `yes` and `2026-11-15` are text), and because a key that stands twice, or that
is no text, is a mistake.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from toolgate.errors import ToolgateError

if TYPE_CHECKING:
    import yaml

MOST_BYTES = 262_144
"""What a file may have."""
MOST_WEIGHT = 2 * MOST_BYTES
VALUE_WEIGHT = 20
"""Each value weighs so much, and each of its characters 1; with aliases written out, that is the most there may be."""
DEEPEST = 64

Path = tuple[str | int, ...]

_UNPRINTABLE = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
"""Compiled when it is first needed: that takes 5 ms."""
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_BASED = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_LONGEST_NUMBER = 100


class Place(NamedTuple):
    """Where something stands, counted from 1."""

    line: int
    column: int


class YamlError(ToolgateError):
    """A text is not the YAML that is read here."""

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(message)
        self.place = place


class Document(NamedTuple):
    """What was read: the value, and the places of its parts. That of a mapping's value is the place of its key."""

    value: Any
    places: dict[Path, Place]
    blocks: dict[Path, int]
    """Of texts that stand in lines of their own (`|`), the first of these lines."""

    def place(self, path: Path) -> Place | None:
        """Where a part is, or else the innermost part around it that is there."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path)


def read_yaml(content: bytes) -> Document:
    """The one document of a YAML file; YamlError says where it is wrong."""
    if len(content) > MOST_BYTES:
        raise YamlError(f"it has more than {MOST_BYTES:,} bytes")
    text = _decoded(content)
    found = re.search(_UNPRINTABLE, text)
    if found is not None:
        raise YamlError(f"it holds the character U+{ord(found[0]):04X}, which can't be seen", _at(text, found.start()))
    return _Builder().build(_events(text))


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", "replace")
        raise YamlError("it is not UTF-8", _at(before, len(before))) from None


def _at(text: str, offset: int) -> Place:
    return Place(text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1)


def _events(text: str) -> "Iterator[yaml.Event]":
    import yaml  # 40 ms, and most installations have no such file

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = None if mark is None else Place(mark.line + 1, mark.column + 1)
        words = ", ".join(part for part in (error.problem, error.context) if part)
        raise YamlError(f"it is not valid YAML: {words}", place) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise YamlError(f"it is not valid YAML: {type(error).__name__}") from None


def scalar(text: str) -> Any:
    """What a text that stands without quotes means, as YAML 1.2 says; ValueError if JSON can't hold it."""
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _NO_NUMBER.match(text):
        raise ValueError("it is NaN or infinite, which JSON has no word for")
    number = bool(_INTEGER.match(text) or _BASED.match(text))
    if not number and not _FLOAT.match(text):
        return text
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number has {_LONGEST_NUMBER} characters at most; quote it if it is text")
    return _integer(text) if number else _float(text)


def _integer(text: str) -> int:
    value = int(text, 0) if _BASED.match(text) else int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError("an integer has 64 bits at most; quote it if it is text")
    return value


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("it is too large for a number")
    return value


@dataclass(slots=True)
class _Open:
    """A list or mapping that is being read."""

    value: list[Any] | dict[str, Any]
    path: Path
    anchor: str | None
    weight: int
    """Of all that was read before it."""
    place: Place
    key: tuple[str, Place] | None = None
    """In a mapping: the key whose value comes next."""
    height: int = 1
    """Levels from here down, as far as it was read."""


class _Done(NamedTuple):
    """A value that was read, and how much it is."""

    value: Any
    weight: int
    height: int


class _Builder:
    """Puts a document together from events. Nothing here calls itself, so depth costs no stack."""

    def __init__(self) -> None:
        self._stack: list[_Open] = []
        self._weight = 0
        self._anchors: dict[str, _Done] = {}
        self._unfinished: set[str] = set()
        self._places: dict[Path, Place] = {}
        self._blocks: dict[Path, int] = {}
        self._documents = 0
        self._root: Any = None

    def build(self, events: "Iterator[yaml.Event]") -> Document:
        import yaml

        for event in events:
            place = Place(event.start_mark.line + 1, event.start_mark.column + 1) if event.start_mark else Place(1, 1)
            if isinstance(event, yaml.DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    raise YamlError("it holds more than one document", place)
            elif isinstance(event, yaml.AliasEvent):
                self._repeat(str(event.anchor), place)
            elif isinstance(event, yaml.ScalarEvent):
                self._take_scalar(event, place)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._open(event, place, {} if isinstance(event, yaml.MappingStartEvent) else [])
            elif isinstance(event, yaml.CollectionEndEvent):
                self._close()
        if not self._documents:
            raise YamlError("it is empty", Place(1, 1))
        return Document(self._root, self._places, self._blocks)

    # -- one event each

    def _take_scalar(self, event: "yaml.ScalarEvent", place: Place) -> None:
        self._refuse_tag(event.tag, place)
        try:
            value = scalar(event.value) if not event.style else event.value
        except ValueError as error:
            raise YamlError(str(error), place) from None
        if isinstance(value, str) and "\0" in value:
            raise YamlError("it holds a NUL character", place)
        if self._wants_key():
            self._take_key(value, place)
            return
        if event.style == "|":
            self._blocks[self._path()] = place.line + 1
        self._put(_Done(value, VALUE_WEIGHT + len(event.value), 0), event.anchor, place)

    def _take_key(self, value: Any, place: Place) -> None:
        mapping = self._stack[-1].value
        if not isinstance(value, str):
            raise YamlError("a key must be text: put it in quotes", place)
        if value == "<<":
            raise YamlError("merging with << is not read here: write the values out", place)
        if value in mapping:
            raise YamlError(f"the key {value[:64]!r} stands here a second time", place)
        self._weigh(len(value), place)
        self._stack[-1].key = value, place

    def _open(self, event: "yaml.CollectionStartEvent", place: Place, value: list[Any] | dict[str, Any]) -> None:
        self._refuse_tag(event.tag, place)
        if self._wants_key():
            raise YamlError("a key must be text, not a list or mapping", place)
        self._refuse_depth(1, place)
        if event.anchor is not None:
            self._unfinished.add(event.anchor)
        self._stack.append(_Open(value, self._path(), event.anchor, self._weight, place))

    def _close(self) -> None:
        done = self._stack.pop()
        if done.anchor is not None:
            self._unfinished.discard(done.anchor)
        weight, self._weight = self._weight - done.weight, done.weight
        self._put(_Done(done.value, VALUE_WEIGHT + weight, done.height), done.anchor, done.place)

    def _repeat(self, anchor: str, place: Place) -> None:
        if anchor in self._unfinished:
            raise YamlError(f"the alias *{anchor[:64]} stands inside of what it repeats", place)
        if anchor not in self._anchors:
            raise YamlError(f"there is nothing that the alias *{anchor[:64]} could repeat", place)
        if self._wants_key():
            raise YamlError("a key must be text: write it out", place)
        repeated = self._anchors[anchor]
        self._refuse_depth(repeated.height, place)
        self._put(repeated, None, place)

    # -- values

    def _put(self, done: _Done, anchor: str | None, place: Place) -> None:
        """Give a finished value to what is around it."""
        self._weigh(done.weight, place)
        if anchor is not None:
            self._anchors[anchor] = done
        path = self._path()
        if not self._stack:
            self._root = done.value
        else:
            around = self._stack[-1]
            around.height = max(around.height, done.height + 1)
            if isinstance(around.value, list):
                around.value.append(done.value)
            elif around.key is not None:
                key, place = around.key
                around.value[key], around.key = done.value, None
        self._places[path] = place

    def _weigh(self, weight: int, place: Place) -> None:
        self._weight += weight
        if self._weight > MOST_WEIGHT:
            raise YamlError("it holds too many values, or too much that aliases repeat", place)

    def _path(self) -> Path:
        """Of the value that comes next."""
        if not self._stack:
            return ()
        around = self._stack[-1]
        return (*around.path, around.key[0] if around.key is not None else len(around.value))

    def _wants_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None

    def _refuse_depth(self, height: int, place: Place) -> None:
        if len(self._stack) + height > DEEPEST:
            raise YamlError(f"it is nested more than {DEEPEST} levels deep", place)

    def _refuse_tag(self, tag: str | None, place: Place) -> None:
        if tag is not None:
            raise YamlError(f"the tag {tag[:64]} is not read here: write the plain value", place)

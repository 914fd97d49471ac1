"""The one reader of YAML, for settings, custom tools and policy cases alike: plain JSON values, small, shallow, without
surprises, and with the position of every value.

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

MAX_YAML_BYTES = 262_144
"""The largest file that is read."""
YAML_WEIGHT_FACTOR = 2
VALUE_WEIGHT = 20
"""Each value weighs so much, and each of its characters 1; with aliases written out, that is the most there may be."""
MAX_YAML_DEPTH = 64

Path = tuple[str | int, ...]

_UNPRINTABLE = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
# Compiled when it is first needed: that takes 5 ms.
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_BASED = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
MAX_NUMBER_CHARS = 100


class Position(NamedTuple):
    """A line and column of a text, counted from 1."""

    line: int
    column: int


class YamlError(ToolgateError):
    """The text is not valid YAML, or uses more of YAML than is read here."""

    def __init__(self, message: str, position: Position | None = None) -> None:
        super().__init__(message)
        self.position = position


class EmptyYaml(YamlError):
    """The text holds no document."""


class YamlDocument(NamedTuple):
    """The value that was read, and the positions of its parts. That of a mapping's value is the position of its key."""

    value: Any
    positions: dict[Path, Position]
    blocks: dict[Path, int]
    """Of texts that stand in lines of their own (`|`), the first of these lines."""

    def position(self, path: Path) -> Position | None:
        """The position of a part, or else of the innermost part around it that is there."""
        while path and path not in self.positions:
            path = path[:-1]
        return self.positions.get(path)


def read_yaml(content: bytes, max_bytes: int = MAX_YAML_BYTES, *, number_keys: bool = False) -> YamlDocument:
    """Reads the one document of a YAML file; YamlError says where it is wrong. `number_keys`: a key that is a number is read
    as the text that it is written as, for formats whose keys people often leave unquoted."""
    if len(content) > max_bytes:
        raise YamlError(f"it has more than {max_bytes:,} bytes")
    text = _decoded(content)
    found = re.search(_UNPRINTABLE, text)
    if found is not None:
        raise YamlError(
            f"it holds the character U+{ord(found[0]):04X}, which cannot be seen: remove it", _at(text, found.start())
        )
    return _Builder(YAML_WEIGHT_FACTOR * max_bytes, number_keys=number_keys).build(_events(text))


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", "replace")
        raise YamlError("it is not UTF-8: save it in that encoding", _at(before, len(before))) from None


def _at(text: str, offset: int) -> Position:
    return Position(text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1)


def _events(text: str) -> "Iterator[yaml.Event]":
    import yaml  # 40 ms, and most installations have no such file

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = None if mark is None else Position(mark.line + 1, mark.column + 1)
        words = ", ".join(part for part in (error.problem, error.context) if part)
        if mark is not None and "".join(text.split("\n")[mark.line : mark.line + 1]).startswith("\t"):
            words += ": indent with spaces, YAML takes no tabs"
        raise YamlError(f"it is not valid YAML: {words}", position) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise YamlError(f"it is not valid YAML: {type(error).__name__}") from None


def scalar(text: str) -> Any:
    """The value of a text without quotes, as YAML 1.2 reads it; ValueError if JSON can't hold it."""
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _NO_NUMBER.match(text):
        raise ValueError("it is NaN or infinite, which JSON has no word for")
    number = bool(_INTEGER.match(text) or _BASED.match(text))
    if not number and not _FLOAT.match(text):
        return text
    if len(text) > MAX_NUMBER_CHARS:
        raise ValueError(f"a number has {MAX_NUMBER_CHARS} characters at most; quote it if it is text")
    if not number and math.isinf(float(text)):
        raise ValueError("it is too large for a number")
    value = float(text) if not number else int(text, 0 if _BASED.match(text) else 10)
    if number and not -(2**63) <= value < 2**63:
        raise ValueError("an integer has 64 bits at most; quote it if it is text")
    return value


@dataclass(slots=True)
class _Open:
    """A list or mapping that is being read."""

    value: list[Any] | dict[str, Any]
    path: Path
    anchor: str | None
    weight: int
    """Of all that was read before it."""
    position: Position
    key: tuple[str, Position] | None = None
    """In a mapping: the key whose value comes next."""
    height: int = 1
    """Levels from here down, as far as it was read."""


class _Value(NamedTuple):
    """A value that was read, and how much it is."""

    value: Any
    weight: int
    height: int


class _Builder:
    """Puts a document together from events. Nothing here calls itself, so depth costs no stack."""

    def __init__(self, max_weight: int, *, number_keys: bool) -> None:
        self._max_weight = max_weight
        self._number_keys = number_keys
        self._stack: list[_Open] = []
        self._weight = 0
        self._anchors: dict[str, _Value] = {}
        self._unfinished: set[str] = set()
        self._positions: dict[Path, Position] = {}
        self._blocks: dict[Path, int] = {}
        self._documents = 0
        self._root: Any = None

    def build(self, events: "Iterator[yaml.Event]") -> YamlDocument:
        import yaml

        for event in events:
            position = (
                Position(event.start_mark.line + 1, event.start_mark.column + 1) if event.start_mark else Position(1, 1)
            )
            if isinstance(event, yaml.DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    raise YamlError("it holds more than one document: keep one to a file", position)
            elif isinstance(event, yaml.AliasEvent):
                self._repeat(str(event.anchor), position)
            elif isinstance(event, yaml.ScalarEvent):
                self._take_scalar(event, position)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._open(event, position, {} if isinstance(event, yaml.MappingStartEvent) else [])
            elif isinstance(event, yaml.CollectionEndEvent):
                self._close()
        if not self._documents:
            raise EmptyYaml("it is empty", Position(1, 1))
        return YamlDocument(self._root, self._positions, self._blocks)

    # -- one event each

    def _take_scalar(self, event: "yaml.ScalarEvent", position: Position) -> None:
        self._refuse_tag(event.tag, position)
        try:
            value = scalar(event.value) if not event.style else event.value
        except ValueError as error:
            raise YamlError(str(error), position) from None
        if isinstance(value, str) and "\0" in value:
            raise YamlError("it holds a NUL character", position)
        if self._wants_key():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            self._take_key(event.value if is_number and self._number_keys else value, position)
            return
        if event.style == "|":
            self._blocks[self._path()] = position.line + 1
        self._put(_Value(value, VALUE_WEIGHT + len(event.value), 0), event.anchor, position)

    def _take_key(self, value: Any, position: Position) -> None:
        mapping = self._stack[-1].value
        if not isinstance(value, str):
            raise YamlError("a key must be text: put it in quotes", position)
        if value == "<<":
            raise YamlError("merging with << is not read here: write the values out", position)
        if value in mapping:
            lines = f"{self._positions[(*self._stack[-1].path, value)].line} and {position.line}"
            raise YamlError(f"the key {value[:64]!r} stands twice, in lines {lines}: keep one of them", position)
        self._weigh(len(value), position)
        self._stack[-1].key = value, position

    def _open(self, event: "yaml.CollectionStartEvent", position: Position, value: list[Any] | dict[str, Any]) -> None:
        self._refuse_tag(event.tag, position)
        if self._wants_key():
            raise YamlError("a key must be text, not a list or mapping: write a name", position)
        self._refuse_depth(1, position)
        if event.anchor is not None:
            self._unfinished.add(event.anchor)
        self._stack.append(_Open(value, self._path(), event.anchor, self._weight, position))

    def _close(self) -> None:
        done = self._stack.pop()
        if done.anchor is not None:
            self._unfinished.discard(done.anchor)
        weight, self._weight = self._weight - done.weight, done.weight
        self._put(_Value(done.value, VALUE_WEIGHT + weight, done.height), done.anchor, done.position)

    def _repeat(self, anchor: str, position: Position) -> None:
        if anchor in self._unfinished:
            raise YamlError(f"the alias *{anchor[:64]} stands inside of what it repeats: write the value out", position)
        if anchor not in self._anchors:
            raise YamlError(
                f"the alias *{anchor[:64]} has no anchor &{anchor[:64]} before it: write the value out", position
            )
        if self._wants_key():
            raise YamlError("a key must be text: write it out", position)
        repeated = self._anchors[anchor]
        self._refuse_depth(repeated.height, position)
        self._put(repeated, None, position)

    # -- values

    def _put(self, done: _Value, anchor: str | None, position: Position) -> None:
        """Give a finished value to what is around it."""
        self._weigh(done.weight, position)
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
                key, position = around.key
                around.value[key], around.key = done.value, None
        self._positions[path] = position

    def _weigh(self, weight: int, position: Position) -> None:
        self._weight += weight
        if self._weight > self._max_weight:
            raise YamlError("it holds too many values, with those that aliases repeat: make it smaller", position)

    def _path(self) -> Path:
        """Of the value that comes next."""
        if not self._stack:
            return ()
        around = self._stack[-1]
        return (*around.path, around.key[0] if around.key is not None else len(around.value))

    def _wants_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None

    def _refuse_depth(self, height: int, position: Position) -> None:
        if len(self._stack) + height > MAX_YAML_DEPTH:
            raise YamlError(f"it is nested more than {MAX_YAML_DEPTH} levels deep: make it flatter", position)

    def _refuse_tag(self, tag: str | None, position: Position) -> None:
        if tag is not None:
            raise YamlError(f"the tag {tag[:64]} is not read here: write the plain value", position)

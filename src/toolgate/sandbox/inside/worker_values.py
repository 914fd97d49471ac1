"""The values that sandboxed Python gives to the host: made of JSON's own types, or refused with the reason.

Part of the Python worker (`python_worker`), which shares its process with the code it runs. So the functions here look their
built-in names up in a copy, and take what they need of other modules while those are still as they were.
"""

from __future__ import annotations

import _json
import builtins
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

globals()["__builtins__"] = dict(vars(builtins))
MAX_DEPTH = 250
"""Levels of nesting that the host reads."""
_LIST, _DECODE = "; use list(…)", "; use .decode() or base64"
JSON_ADVICE = {
    "set": "; use sorted(…) or list(…)", "frozenset": "; use sorted(…) or list(…)", "generator": _LIST, "map": _LIST,
    "filter": _LIST, "zip": _LIST, "range": _LIST, "bytes": _DECODE, "bytearray": _DECODE, "coroutine": "; await it",
    "Decimal": "; use str(…) or float(…)", "function": "; call it",
}  # fmt: skip
_make_encoder, _escape = _json.make_encoder, _json.encode_basestring_ascii
_scan = _json.make_scanner(
    types.SimpleNamespace(  # type: ignore[arg-type]  # a decoder, as the scanner knows it
        strict=True, memo={}, object_hook=None, object_pairs_hook=None, parse_float=float, parse_int=int,
        parse_constant=float,
    )
)  # fmt: skip


class NotJson(Exception):
    """A value that JSON has no word for, or too much of it."""


def _no_default(value: object) -> NoReturn:
    raise NotJson(f"it is a {type(value).__name__}")


def encode(value: Any) -> str:
    return "".join(_make_encoder(None, _no_default, _escape, None, ":", ",", False, False, False)(value, 0))


def decode(text: str) -> Any:
    return _scan(text, 0)[0]


def plain(value: Any, max_bytes: int) -> Any:
    """The value made of nothing but JSON's own types; raises NotJson, saying where and why."""
    path: list[Any] = []
    try:
        return _Conversion(max_bytes).of(value, path)
    except NotJson as error:
        where = "".join(f"[{key}]" if type(key) is int else f".{key}" for key in path)[:200]
        raise NotJson(f"at {where.lstrip('.')} {error}" if where else str(error)) from None


class _Conversion:
    """The size that is left, and the containers around the value that is looked at."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = self._left = max_bytes
        self._above: set[int] = set()

    def of(self, value: Any, path: list[Any]) -> Any:
        # A subclass may do anything when it is asked, so the base classes are.
        kind = type(value)
        if value is None or kind is bool:
            return self._counted(value, 4)
        if issubclass(kind, str):
            return self._text(value)
        if issubclass(kind, int):
            whole = int.__int__(value)
            if not -(2**63) <= whole < 2**64:
                raise NotJson("it is an integer of more than 64 bits; give it as text")
            return self._counted(whole, 1)
        if issubclass(kind, float):
            number = float.__float__(value)
            if number - number != 0:
                raise NotJson("it is NaN or infinite, which JSON has no word for")
            return self._counted(number, 3)
        if issubclass(kind, (dict, list, tuple)):
            return self._container(value, path)
        raise NotJson(f"it is {_article(kind.__name__)}, which JSON has no word for{JSON_ADVICE.get(kind.__name__, '')}")

    def _text(self, value: str) -> str:
        text = str.__str__(value)
        try:
            self._counted(text, len(text) if text.isascii() else len(text.encode()))
        except UnicodeEncodeError:
            raise NotJson("it holds half of a surrogate pair, which is not valid Unicode") from None
        return text

    def _container(self, value: Any, path: list[Any]) -> Any:
        if id(value) in self._above:
            raise NotJson("it contains itself")
        if len(path) >= MAX_DEPTH:
            path.clear()
            raise NotJson(f"it is nested more than {MAX_DEPTH} levels deep")
        self._above.add(id(value))
        made = self._object(value, path) if issubclass(type(value), dict) else self._array(value, path)
        self._above.discard(id(value))
        return self._counted(made, 2)

    def _object(self, value: dict[Any, Any], path: list[Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, part in dict.items(value):
            name = self._name(key)
            if name in made:
                raise NotJson("it has two keys that are the same in JSON, like 1 and '1'")
            path.append(name)
            made[name] = self.of(part, path)
            path.pop()
        return made

    def _array(self, value: Any, path: list[Any]) -> list[Any]:
        made: list[Any] = []
        for part in (list if issubclass(type(value), list) else tuple).__iter__(value):
            path.append(len(made))
            made.append(self.of(part, path))
            path.pop()
        return made

    def _name(self, key: Any) -> str:
        """A key as JSON has it: text. Numbers, true, false and null are written out, as json.dumps does."""
        kind = type(key)
        if issubclass(kind, str):
            return self._text(key)
        if key is None or kind is bool or issubclass(kind, (int, float)):
            return encode(self.of(key, []))
        raise NotJson(f"it has a key that is {_article(kind.__name__)}, not text")

    def _counted(self, value: Any, size: int) -> Any:
        self._left -= size + 1
        if self._left < 0:
            raise NotJson(f"it is larger than {self._max_bytes:,} bytes")
        return value


def _article(name: str) -> str:
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name[:100]}"


def shortened(text: str, max_chars: int) -> str:
    """Text that can be sent, and no more of it than this."""
    text = str.__str__(text)
    return (text if len(text) <= max_chars else text[:max_chars] + "…").encode("utf-8", "backslashreplace").decode()

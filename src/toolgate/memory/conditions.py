"""Conditions on the metadata of notes: `topic == 'billing' and priority >= 2`.

A small language with a reader of its own: names, texts, numbers, comparisons, `in`, `and`, `or`, `not` and parentheses.
Nothing in it calls, computes or reaches anything but the values of one note. A name that a note does not have is null;
a comparison of values that have no order is false.
"""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from toolgate.errors import InvalidInput, quoted

MAX_CONDITION_CHARS = 1_000
MAX_DEPTH = 32
"""Parentheses and `not` within each other."""

Condition = Callable[[Mapping[str, Any]], bool]
_Operand = Callable[[Mapping[str, Any]], Any]

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>-?\d+(?:\.\d+)?(?![\w.]))
  | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
  | (?P<name>[^\W\d]\w*)
  | (?P<sign>==|!=|<=|>=|<|>|=|\(|\)|\[|\]|,)
  | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}
_WORDS = ("and", "or", "not", "in")
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
ADVICE = "Write it like topic == 'billing' and (priority >= 2 or 'urgent' in tags)."


def read_condition(text: str) -> Condition:
    """Reads a condition; raises InvalidInput."""
    if len(text) > MAX_CONDITION_CHARS:
        raise InvalidInput(f"The filter has more than {MAX_CONDITION_CHARS:,} characters.", suggestion=ADVICE)
    return _Reader(text).whole()


def quoted_text(text: str) -> str:
    """A text as a condition has it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class _Reader:
    """Reads a condition by recursive descent, as deep as MAX_DEPTH."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._kind = self._token = ""
        self._next()

    def whole(self) -> Condition:
        condition = self._any()
        if self._kind != "end":
            raise self._fault(f"{quoted(self._token)} is not expected there")
        return condition

    def _next(self) -> None:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            rest = self._text[self._at :].lstrip()
            self._at += len(self._text[self._at :]) - len(rest)
            raise self._fault(f"{quoted(rest[0])} is not understood")
        self._kind = found.lastgroup or "end"
        self._token = found[self._kind]
        self._at = found.end()
        if self._kind == "name" and self._token.lower() in _WORDS:
            self._kind, self._token = "word", self._token.lower()

    def _takes(self, *tokens: str) -> str | None:
        """The token, if it is one of these signs or words; the next is looked at then."""
        if self._kind not in ("sign", "word") or self._token not in tokens:
            return None
        token = self._token
        self._next()
        return token

    def _fault(self, what: str) -> InvalidInput:
        place = "at its end" if self._kind == "end" else f"before character {self._at + 1}"
        return InvalidInput(f"The filter can't be read {place}: {what}.", suggestion=ADVICE)

    # -- conditions

    def _any(self) -> Condition:
        parts = [self._all()]
        while self._takes("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else lambda note: any(part(note) for part in parts)

    def _all(self) -> Condition:
        parts = [self._one()]
        while self._takes("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else lambda note: all(part(note) for part in parts)

    def _one(self) -> Condition:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._fault(f"it is nested more than {MAX_DEPTH} deep")
        try:
            if self._takes("not"):
                inner = self._one()
                return lambda note: not inner(note)
            if self._takes("("):
                condition = self._any()
                if not self._takes(")"):
                    raise self._fault("a parenthesis is not closed")
                return condition
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Condition:
        left = self._operand()
        if (sign := self._takes("==", "=", "!=", *_ORDERS)) is not None:
            right = self._operand()
            if sign in _ORDERS:
                return _ordered(_ORDERS[sign], left, right)
            wanted = sign != "!="
            return lambda note: _alike(left(note), right(note)) is wanted
        negated = self._takes("not") is not None
        if self._takes("in"):
            among = self._operand()
            return lambda note: _is_in(left(note), among(note)) is not negated
        if negated:
            raise self._fault("`in` is expected after `not`")
        return lambda note: bool(left(note))

    # -- values

    def _operand(self) -> _Operand:
        kind, token = self._kind, self._token
        if kind == "name":
            self._next()
            if token.lower() in _CONSTANTS:
                return _constant(_CONSTANTS[token.lower()])
            return lambda note: note.get(token)
        if kind in ("number", "text"):
            self._next()
            return _constant(_literal(kind, token))
        if self._takes("["):
            return self._listed()
        raise self._fault("a name, a text in quotation marks or a number is expected")

    def _listed(self) -> _Operand:
        values: list[Any] = []
        while self._kind in ("number", "text"):
            values.append(_literal(self._kind, self._token))
            self._next()
            if not self._takes(","):
                break
        if not self._takes("]"):
            raise self._fault("a list of texts and numbers is not closed")
        return _constant(values)


def _constant(value: Any) -> _Operand:
    return lambda _note: value


def _literal(kind: str, token: str) -> Any:
    if kind == "text":
        return _ESCAPED.sub(r"\1", token[1:-1])
    return float(token) if "." in token else int(token)


def _ordered(compare: Callable[[Any, Any], bool], left: _Operand, right: _Operand) -> Condition:
    def holds(note: Mapping[str, Any]) -> bool:
        one, other = left(note), right(note)
        return _have_order(one, other) and compare(one, other)

    return holds


def _have_order(one: Any, other: Any) -> bool:
    return (_is_number(one) and _is_number(other)) or (isinstance(one, str) and isinstance(other, str))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _alike(one: Any, other: Any) -> bool:
    """Equal and of one kind: true is not 1."""
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _is_in(one: Any, other: Any) -> bool:
    """A part of a text, or an item of a list."""
    if isinstance(other, str):
        return isinstance(one, str) and one in other
    return isinstance(other, list) and any(_alike(one, item) for item in other)

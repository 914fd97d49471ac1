"""JSON found in text that a person or a model wrote: direct, in a fence or in prose, or repaired.

What is quick whatever the text is can be called anywhere. The repair of a text takes time in the square of its length, and
checking a value against a caller's schema may take any: `answer` runs in a process that can be ended
(`sandbox.helper_process`), so this module imports nothing of Toolgate.
"""

import math
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

MAX_REPAIRED_CHARS = 32_768
"""The longest text that json-repair is given: 40,000 characters can take it half a minute."""
MAX_DEPTH = 200
"""Levels of a value, as jiter has it too."""
MAX_PARTS = 10_000
"""Parts of a text that are looked at."""
MAX_SLIPS = 8
"""Brackets without an end that are passed over: each is looked for up to the end of the text."""
MAX_FAULTS = 3
MAX_FAULT_CHARS = 200
DRAFT = re.compile(r"https?://json-schema\.org/draft(/20(19-09|20-12)|-0[467])/schema#?")

Method = Literal["direct_parse", "regex_extraction", "repair"]
NOT_FOUND = "Could not parse JSON from text"


class Unfit(ValueError):
    """A value that is not taken, and why."""


class Extracted(NamedTuple):
    """A value, and how it was found."""

    method: Method
    data: Any


# -- one value


def parse(text: str) -> Any:
    """The value of a text that is JSON and nothing else. Raises ValueError; so it does for NaN, for numbers beyond 64 bits
    or beyond a float, for half surrogate pairs, and for more than MAX_DEPTH levels."""
    import jiter

    data = text.strip().lstrip("\ufeff").encode("utf-8", "surrogatepass")
    return sound(jiter.from_json(data, allow_inf_nan=False, cache_mode="keys"))


def sound(value: Any) -> Any:
    """A value, if JSON can hold it everywhere. Raises Unfit."""
    waiting = [value]
    for _ in range(MAX_DEPTH + 1):
        inner: list[Any] = []
        for part in waiting:
            if isinstance(part, dict):
                inner += part
                inner += part.values()
            elif isinstance(part, list):
                inner += part
            else:
                _check_scalar(part)
        if not inner:
            return value
        waiting = inner
    raise Unfit(f"it is nested more than {MAX_DEPTH} levels deep")


def _check_scalar(part: Any) -> None:
    if isinstance(part, float) and not math.isfinite(part):
        raise Unfit("it holds a number that is NaN or infinite")
    if isinstance(part, int) and not -(2**63) <= part < 2**64:
        raise Unfit("it holds an integer of more than 64 bits")
    if isinstance(part, str) and not part.isascii():
        try:
            part.encode()
        except UnicodeEncodeError:
            raise Unfit("it holds half of a surrogate pair") from None


# -- within a text


_THOUGHT = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)


def without_thoughts(text: str) -> str:
    """A text without what a model thought aloud: <think>…</think>. What is never closed goes to the end; what was opened
    before the text begins, up to its close."""
    kept: list[str] = []
    position, is_open = 0, False
    for tag in _THOUGHT.finditer(text):
        if tag[1] and not is_open:
            kept.clear()
        elif not is_open:
            kept.append(text[position : tag.start()])
        is_open = not tag[1]
        position = tag.end()
    return "".join(kept if is_open else [*kept, text[position:]])


def fenced(text: str) -> list[str]:
    """The contents of fenced blocks. A fence begins a line: JSON has no line breaks in its texts, so none is inside it."""
    blocks: list[str] = []
    open_block: list[str] | None = None
    for line in text.split("\n"):  # at no other break: JSON may hold those in its texts
        if line.lstrip().startswith("```"):
            if open_block is None:
                open_block = []
            else:
                blocks.append("\n".join(open_block))
                open_block = None
        elif open_block is not None:
            open_block.append(line)
    return blocks if open_block is None else [*blocks, "\n".join(open_block)]


_BEGINNING = re.compile(
    r"""\{\s*+(?:["'“}]|[A-Za-z_$][\w$-]{0,63}+\s*+:|//|/\*|\#)|\[\s*+(?:[\[{"\]]|-?\d|true|false|null)"""
)
"""The beginning of what is meant as an object or a list: not of `{name}` or `[sic]` in a sentence."""
_STRING = r"""\"(?:[^"\\]++|\\.)*+(?:"|\Z)"""
_BRACKET = re.compile(rf"{_STRING}|([\[{{])|[\]}}]", re.DOTALL)
_TEXT = re.compile(_STRING, re.DOTALL)
_CITATION = re.compile(r"\[\s*+\d{1,4}(?:\s*+[,-]\s*+\d{1,4})*+\s*+\]")
"""A list of small numbers, which in prose is more often a footnote than an answer."""
_MEANINGLESS = re.compile(r"\b(?:NaN|Infinity|undefined)\b|:\s*+[,}\]]|,\s*+,")
"""Values that json-repair would make a text of, or guess."""


class Part(NamedTuple):
    """A part of a text that is meant as JSON. `data` is its value, unless it is broken."""

    text: str
    data: Any = None
    broken: bool = False
    cites: bool = False


def parts_of(text: str) -> list[Part]:
    """The parts of a text that are meant as JSON, none inside another: fenced blocks, else what begins in prose like an
    object or a list, up to the bracket that closes it. Each character is read a few times, however they are nested."""
    blocks = [_part(block.strip()) for block in fenced(text)]
    if blocks and any(not block.broken or block.text[:1] in ("{", "[") for block in blocks):
        return blocks
    found: list[Part] = []
    slips = 0
    beginning = _BEGINNING.search(text)
    while beginning is not None and len(found) < MAX_PARTS and slips < MAX_SLIPS:
        start, end = beginning.start(), _closing(text, beginning.start())
        if end is None and beginning[0][-1].isdigit() and text[:start].strip():  # `[1` without an end, in a sentence
            slips, end = slips + 1, beginning.end()
        else:
            found.append(_part(text[start:end].strip()))
        beginning = None if end is None else _BEGINNING.search(text, end)
    return found


def _part(text: str) -> Part:
    try:
        return Part(text, parse(text), cites=_CITATION.fullmatch(text) is not None)
    except ValueError:
        return Part(text, broken=True)


def _closing(text: str, start: int) -> int | None:
    """The place where the bracket that opens at `start` is closed; None if it never is."""
    depth = 0
    for token in _BRACKET.finditer(text, start):
        if token[1]:
            depth += 1
        elif token[0] in "]}":
            depth -= 1
            if depth == 0:
                return token.end()
    return None


def find(text: str, *, last: bool = False, fits: Callable[[Any], bool] = lambda _: True) -> Part | None:
    """The value in a text that fits. Of several the longest: a text that is about a large value may quote small ones.
    `last`: the last, as of a model that comes to its answer step by step."""
    fit = [part for part in parts_of(text) if not part.broken and fits(part.data)]
    if not fit:
        return None
    return fit[-1] if last else max(fit, key=lambda part: len(part.text))


# -- repaired


def repair(text: str) -> Any:
    """The value that a text seems to mean. Takes time in the square of its length. Raises Unfit."""
    import jiter

    broken = [part.text for part in parts_of(text) if part.broken and part.text.startswith(("{", "["))]
    if not broken:
        raise Unfit(NOT_FOUND)
    region = max(broken, key=len)
    kind = dict if region.startswith("{") else list
    try:
        jiter.from_json(region.encode(), allow_inf_nan=False)
    except ValueError as error:
        if str(error).startswith("EOF "):  # valid as far as it goes
            return _meant(jiter.from_json(region.encode(), partial_mode="trailing-strings", allow_inf_nan=False), kind)
    if len(region) > MAX_REPAIRED_CHARS:
        raise Unfit(f"It is not valid JSON, and too long to be repaired (more than {MAX_REPAIRED_CHARS:,} characters)")
    if _MEANINGLESS.search(_TEXT.sub('""', region)):
        raise Unfit("It has no value, or one that JSON has no word for, where a value must be")
    from json_repair import repair_json

    try:
        value: Any = repair_json(region, return_objects=True, skip_json_loads=True)
    except Exception as error:  # it asserts, and indexes, what a text may not hold
        raise Unfit(NOT_FOUND) from error
    return _meant(value, kind)


def _meant(value: Any, kind: type) -> Any:
    """A repaired value, if it is of the kind that the text begins like, and holds something."""
    if not isinstance(value, kind) or not value:
        raise Unfit(NOT_FOUND)
    return sound(value)


# -- all of it, and the schema


def extract(text: str, *, last: bool = False, fits: Callable[[Any], bool] = lambda _: True) -> Extracted:
    """The value in a text, by the first way that gives one which fits. Raises Unfit with the nearest reason."""
    why: Unfit | None = None
    try:
        value = parse(text)
        if fits(value):
            return Extracted("direct_parse", value)
    except Unfit as error:
        why = error
    except ValueError:
        pass
    said = without_thoughts(text)
    found = find(said, last=last, fits=fits)
    if found is not None and not found.cites:
        return Extracted("regex_extraction", found.data)
    try:
        value = repair(said)
        if fits(value):
            return Extracted("repair", value)
    except Unfit as error:
        why = why or error
    if found is not None:
        return Extracted("regex_extraction", found.data)
    raise Unfit(str(why or NOT_FOUND))


class Schema:
    """A caller's schema. It says of the values that do not fit what is wrong with the first of them."""

    def __init__(self, schema: Any) -> None:
        import jsonschema_rs

        draft = schema.get("$schema") if isinstance(schema, dict) else None
        if draft is not None and not (isinstance(draft, str) and DRAFT.fullmatch(draft)):
            raise Unfit("$schema is no known draft of JSON Schema")  # it would be fetched
        try:
            jsonschema_rs.meta.validate(schema)
            self._validator = jsonschema_rs.validator_for(schema, offline=True)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            raise Unfit(str(getattr(error, "message", error)).split("\n", 1)[0][:MAX_FAULT_CHARS]) from None
        self.faults: list[str] = []

    def fits(self, value: Any) -> bool:
        if self._validator.is_valid(value):
            return True
        if not self.faults:
            for error, _ in zip(self._validator.iter_errors(value), range(MAX_FAULTS), strict=False):
                where = "/".join(str(part) for part in error.instance_path)
                self.faults.append(f"{where or '(top)'}: {error.message}"[:MAX_FAULT_CHARS])
        return False


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """For {text, schema, last}: {method, data}, or {error}, or {refusal} of the schema."""
    schema = None
    if asked.get("schema") is not None:
        try:
            schema = Schema(asked["schema"])
        except Unfit as error:
            return {"refusal": str(error)}
    try:
        found = extract(asked["text"], last=asked["last"], fits=(lambda _: True) if schema is None else schema.fits)
    except Unfit as error:
        faults = "" if schema is None else "; ".join(schema.faults)
        return {"error": f"The JSON does not fit the schema: {faults}" if faults else str(error)}
    return {"method": found.method, "data": found.data}

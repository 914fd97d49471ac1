"""Finds in a policy's text what it reads of its input: the rest need not be part of a cached decision's key.

The finding errs on one side only. Comments and strings are taken out; if then every mention of `input` is one of the known
fields, written with dots, those are read. Anything else (an alias, a bracket, `with`, a template string) counts as reading
everything.
"""

import re
from typing import NamedTuple

from toolgate.gates.policy.documents import DOCUMENTS_SCHEMA
from toolgate.gates.policy.engine import EVERYTHING, INPUT_FIELDS, Reads

_TOKEN = re.compile(r'#[^\n]*|"(?:\\.|[^"\\\n])*"|`[^`]*`', re.DOTALL)
_INPUT = re.compile(r"(?<![\w.])input(?![\w])(?P<path>(?:\.[A-Za-z_]\w*)*)(?P<more>\s*\[)?")
_KNOWN = {("tenant",), ("persona_id",), ("action",), ("resource",), ("resources",)}
_DATA = re.compile(r"(?<![\w.])data(?!\w)(?:\.([A-Za-z_]\w*))?")
_BRACKET = re.compile(r"[\[{\]}]")
MAX_BRACKET_DEPTH = 10
"""Each level doubles the time that Regorus takes to read a term: 0.1 s at ten, hours at thirty."""
_TRAP = re.compile(r"\bnot\s+data\.[\w.]*(?:\[[^\]\n]*\][\w.]*)*")


class Trap(NamedTuple):
    """A line that does not mean what it seems to."""

    line: int
    words: str


def code_of(text: str) -> str:
    """The text without comments, and with empty strings in place of strings; lines stay where they are."""
    return _TOKEN.sub(_blank, text)


def _blank(found: re.Match[str]) -> str:
    token = found[0]
    lines = "\n" * token.count("\n")
    return lines if token[0] == "#" else f"{token[0]}{lines}{token[-1]}"


def what_is_read(text: str) -> Reads:
    code = code_of(text)
    if '$"' in code or "$`" in code:
        return EVERYTHING
    fields: set[str] = set()
    for found in _INPUT.finditer(code):
        path = tuple(found["path"].split(".")[1:])
        if path[:1] == ("context",) and len(path) > 1 and path[1] in INPUT_FIELDS:
            fields.add(path[1])
        elif path not in _KNOWN or found["more"]:
            return EVERYTHING
    return Reads(frozenset(fields))


def looks_elsewhere(text: str) -> bool:
    """Whether a policy refers to data that are none of our documents: on a server, rules of another policy, which may read
    anything."""
    return any(found[1] not in DOCUMENTS_SCHEMA["properties"] for found in _DATA.finditer(code_of(text)))


def too_deep(text: str) -> int | None:
    """The line where brackets are nested so deeply that the engine would take long to read them; None if nowhere."""
    depth = 0
    code = code_of(text)
    for found in _BRACKET.finditer(code):
        depth += 1 if found[0] in "[{" else -1
        if depth > MAX_BRACKET_DEPTH:
            return code.count("\n", 0, found.start()) + 1
    return None


def traps(text: str) -> list[Trap]:
    """`not data.x[input.k]`: true for every key that nobody thought of, also for one that is misspelt."""
    code = code_of(text)
    return [
        Trap(code.count("\n", 0, found.start()) + 1, f"`{' '.join(found[0].split())}` holds for every name not in the data")
        for found in _TRAP.finditer(code)
        if "[" in found[0] and "input" in found[0]
    ]

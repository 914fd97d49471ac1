"""Finds what a policy reads of input and data, and references in it that can't exist.

In Rego such a reference is not an error but undefined, and `not` over an undefined value is true: with
`allow if not denied`, one misspelled field of the rule `denied` allows everything. So a policy that has one is refused.

Works on the syntax tree that the engine gives. What it can't follow (a computed key, a value that was handed to a
function) it does not judge.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import orjson

from toolgate.errors import nearest
from toolgate.gates.policy.documents import DOCUMENTS_SCHEMA
from toolgate.gates.policy.engine import EVERYTHING, INPUT_FIELDS, InputsRead

Step: TypeAlias = str | None
"""A key of a reference; None: one that is computed."""
Node: TypeAlias = dict[str, Any]
MAX_FAULTS = 10

_TOKEN = re.compile(r'#[^\n]*|"(?:\\.|[^"\\\n])*"|`[^`]*`', re.DOTALL)
_INPUT = re.compile(r"(?<![\w.])input(?![\w])(?P<path>(?:\.[A-Za-z_]\w*)*)(?P<more>\s*\[)?")
_KNOWN = {("tenant",), ("persona_id",), ("action",), ("resource",), ("resources",)}
_DATA = re.compile(r"(?<![\w.])data(?!\w)(?:\.([A-Za-z_]\w*))?")
_BRACKET = re.compile(r"[\[{\]}]")
MAX_BRACKET_DEPTH = 10
"""Each level doubles the time that Regorus takes to read a term: 0.1 s at ten, hours at thirty."""
_TRAP = re.compile(r"\bnot\s+data\.[\w.]*(?:\[[^\]\n]*\][\w.]*)*")


class ByName(NamedTuple):
    """An object whose keys are names that somebody gave; all values have one shape."""

    value: "Shape"


Shape: TypeAlias = Mapping[str, "Shape"] | ByName | bool | None
"""The keys of an object. None: a value without keys. True: anything."""
ANY_VALUE = True
INPUT: Shape = {
    **dict.fromkeys(("tenant", "persona_id", "action", "resource")),
    "resources": ANY_VALUE,
    "context": {name: ANY_VALUE if name in ("scopes", "arguments") else None for name in INPUT_FIELDS},
}


def _shape(schema: Mapping[str, Any]) -> Shape:
    """The shape of what fits a schema of the policy's documents."""
    if "properties" in schema:
        return {name: _shape(part) for name, part in schema["properties"].items()}
    if "additionalProperties" in schema:
        return ByName(_shape(schema["additionalProperties"]))
    return ANY_VALUE if schema.get("type") == "array" else None


class ReferenceFault(NamedTuple):
    """A reference that can't exist."""

    line: int
    path: str
    nearest: str | None = None

    def __str__(self) -> str:
        hint = f" (did you mean {self.nearest}?)" if self.nearest else ""
        return f"line {self.line}: {self.path} does not exist{hint}"


class Argument(NamedTuple):
    """An argument of a call that a policy looks at."""

    line: int
    name: str


class References(NamedTuple):
    """The findings on the references of a policy."""

    faults: list[ReferenceFault]
    arguments: list[Argument]
    rules: frozenset[str]
    """The names of the rules that the policy defines."""


def references_of(tree: str, *, any_data: bool = False) -> References:
    """Judges the references in a syntax tree, as the engine writes it. `any_data`: the data is not only ours."""
    module = orjson.loads(tree)[0]
    return _RegoReader(module["ast"], module["source"]["contents"].encode(), any_data=any_data).read()


class _RegoReader:
    def __init__(self, tree: Node, source: bytes, *, any_data: bool) -> None:
        self._tree = tree
        self._source = source
        self._rules = frozenset(name for rule in tree["rules"] for name in _names(rule))
        own: Shape = {"policy": dict.fromkeys(self._rules, ANY_VALUE)}
        ours: Shape = {**{name: _shape(part) for name, part in DOCUMENTS_SCHEMA["properties"].items()}, "soma": own}
        self._roots: dict[str, Shape] = {"input": INPUT, "data": ANY_VALUE if any_data else ours}
        self._aliases = self._find_aliases()

    def read(self) -> References:
        faults: dict[ReferenceFault, None] = {}
        arguments: dict[Argument, None] = {}
        for chain, line in self._chains({key: part for key, part in self._tree.items() if key != "package"}):
            path = self._resolved(chain)
            if path is None:
                continue
            fault = self._fault(path, line)
            if fault is not None:
                faults[fault] = None
            if path[:3] == ("input", "context", "arguments") and len(path) > 3 and path[3] is not None:
                arguments[Argument(line, path[3])] = None
        return References(sorted(faults, key=lambda fault: fault.line), list(arguments), self._rules)

    # -- references

    def _chains(self, node: Any) -> Iterator[tuple[tuple[Step, ...], int]]:
        """All references below a node, each as a whole, with the line where it stands."""
        if isinstance(node, list):
            for part in node:
                yield from self._chains(part)
        elif isinstance(node, dict):
            chain, inner = _chain(node)
            if chain:
                yield chain, _line(node)
            for part in inner if inner or chain else node.values():
                yield from self._chains(part)

    def _resolved(self, chain: tuple[Step, ...]) -> tuple[Step, ...] | None:
        """A reference with the alias that it begins with written out; None if it is neither input nor data."""
        first = chain[0]
        if first in self._roots:
            return chain
        known = self._aliases.get(first) if first is not None else None
        return None if known is None else (*known, *chain[1:])

    def _fault(self, path: tuple[Step, ...], line: int) -> ReferenceFault | None:
        shape = self._roots[str(path[0])]
        for number, step in enumerate(path[1:], 1):
            if shape is ANY_VALUE or (step is None and isinstance(shape, Mapping)):
                return None
            if isinstance(shape, ByName):
                shape = shape.value
            elif isinstance(shape, Mapping) and step is not None and step in shape:
                shape = shape[step]
            else:
                near = nearest(step or "", shape) if isinstance(shape, Mapping) else None
                begins = path[:number]
                return ReferenceFault(line, _written((*begins, step)), _written((*begins, near)) if near else None)
        return None

    # -- other names for input and data, or for a part of them

    def _find_aliases(self) -> dict[str, tuple[Step, ...]]:
        """Names that always stand for the same reference."""
        found: dict[str, tuple[Step, ...]] = {}
        given: list[tuple[str, tuple[Step, ...] | None]] = [*self._imports(), *self._assigned(self._tree["rules"])]
        unclear = {name for name, chain in given if chain is None or chain[0] not in self._roots}
        for name, chain in given:
            if chain is not None and found.setdefault(name, chain) != chain:
                unclear.add(name)
        return {name: chain for name, chain in found.items() if name not in unclear}

    def _imports(self) -> Iterator[tuple[str, tuple[Step, ...]]]:
        for imported in self._tree["imports"]:
            chain, _ = _chain(imported["refr"])
            alias = imported.get("as")
            name = self._source[alias["start"] : alias["end"]].decode() if alias else chain[-1]
            if name is not None and chain[0] in self._roots and len(chain) > 1:
                yield name, chain

    def _assigned(self, node: Any) -> Iterator[tuple[str, tuple[Step, ...] | None]]:
        """Names that get a value, with the reference that it is, or None for any other value."""
        if isinstance(node, list):
            for part in node:
                yield from self._assigned(part)
        elif isinstance(node, dict):
            yield from _assignment(node)
            for part in node.values():
                yield from self._assigned(part)


def _assignment(node: Node) -> Iterator[tuple[str, tuple[Step, ...] | None]]:
    """The names that a node gives a value to: by `:=`, as the head of a rule, as a parameter, or by `some`."""
    if (assign := node.get("AssignExpr")) is not None:
        yield from ((name, _chain(assign["rhs"])[0] or None) for name in _variables(assign["lhs"]))
    if (head := node.get("Compr")) is not None and "assign" in head:
        value = head["assign"]
        yield from ((name, _chain(value["value"])[0] or None if value else None) for name in _variables(head["refr"]))
    if (function := node.get("Func")) is not None:
        yield from ((name, None) for name in _variables(function["args"]))
    if (some := node.get("SomeIn")) is not None:
        yield from ((name, None) for name in _variables([some["key"], some["value"]]))


def _chain(node: Any) -> tuple[tuple[Step, ...], list[Node]]:
    """A reference as its keys, and the nodes in it that hold references of their own; empty if it is something else."""
    if not isinstance(node, dict):
        return (), []
    if (variable := node.get("Var")) is not None:
        return (variable["value"],), []
    if (dot := node.get("RefDot")) is not None:
        return _longer(dot["refr"], dot["field"][1])
    if (bracket := node.get("RefBrack")) is not None:
        index = bracket["index"]
        key = _text(index)
        chain, inner = _longer(bracket["refr"], key)
        return chain, inner if key is not None else [*inner, index]
    if (call := node.get("Call")) is not None and _chain(call["fcn"])[0] == ("object", "get"):
        holder, key, *rest = call["params"]
        chain, inner = _longer(holder, _text(key))
        return chain, [*inner, key, *rest]
    return (), []


def _longer(node: Node, key: Step) -> tuple[tuple[Step, ...], list[Node]]:
    chain, inner = _chain(node)
    return ((*chain, key), inner) if chain else ((), [node])


def _text(node: Node) -> str | None:
    found = node.get("String") or node.get("RawString")
    return None if found is None else str(found["value"])


def _variables(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for part in node:
            yield from _variables(part)
    elif isinstance(node, dict):
        if "Var" in node:
            yield node["Var"]["value"]
        else:
            for part in node.values():
                yield from _variables(part)


def _names(rule: Node) -> Iterator[str]:
    """The name that a rule defines."""
    part = rule.get("Spec") or rule["Default"]
    head = next(iter(part["head"].values())) if "head" in part else part
    chain, _ = _chain(head["refr"])
    if chain and chain[0] is not None:
        yield chain[0]


def _line(node: Node) -> int:
    span = next(iter(node.values()))["span"]
    return int(span["line"])


def _written(path: tuple[Step, ...]) -> str:
    """A reference as text."""
    words = ""
    for step in path:
        plain = step is not None and step.isidentifier()
        words += f".{step}" if plain and words else step if plain and step else f'["{step}"]' if step is not None else "[…]"
    return words


# -- what the text reads, whether it compiles or not


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


@lru_cache(maxsize=16)
def what_is_read(text: str) -> InputsRead:
    """The fields of its input that a policy reads: the rest need not be part of a cached decision's key. Errs on one side
    only: comments and strings are taken out; if then every mention of `input` is one of the known fields, written with dots,
    those are read. Anything else (an alias, a bracket, `with`, a template string) counts as reading everything."""
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
    return InputsRead(frozenset(fields))


def looks_elsewhere(text: str) -> bool:
    """True if a policy refers to data that are none of our documents: on a server, rules of another policy, which may read
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

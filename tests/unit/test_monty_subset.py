"""Which programs are for Monty; and that for those, Monty and CPython say the same."""

import asyncio
import contextlib
import io
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.sandbox.jail import MB, ResourceLimits
from toolgate.sandbox.runtimes.monty import subset
from toolgate.sandbox.runtimes.monty.runtime import MontyRuntime
from toolgate.sandbox.runtimes.monty.subset import MAX_PROGRAM_BYTES, misfit

LIMITS = ResourceLimits(seconds=10)


@pytest.mark.parametrize(
    "code",
    [
        "",
        "1 + 1",
        "x = [n * n for n in range(10) if n % 2]\nsum(x)",
        "def f(n, *rest, key=None, **more):\n    return n if n < 2 else f(n - 1) + f(n - 2)\nf(10)",
        "import math\nfrom collections import Counter as C\nmath.sqrt(C('aab').most_common()[0][1])",
        "words = 'a b c'.split()\nprint(f'{len(words):>5}', sep='-')\n{w: w.upper() for w in words}",
        "total = 0\nwhile total < 5:\n    total += 1\nelse:\n    print('done')\ntotal",
        "x: int = 3\nassert x == 3, 'no'\n(y := x)\ny",
        "from typing import List, Optional\ndef f(x: List[int]) -> Optional[int]:\n    return x[0]\nf(args['a'])",
        "import itertools as i\nlist(i.islice(i.count(), 3))",
        "def f():\n    x = 1\n    def g():\n        nonlocal x\n        x += 1\n        return x\n    return g()\nf()",
    ],
)
def test_small_pure_programs_fit(code: str) -> None:
    assert misfit(code) is None


@pytest.mark.parametrize(
    "code",
    [
        "import os",
        "import sys\nsys.exit()",
        "import numpy",
        "from os import path",
        "from math import *",
        "from . import x",
        "import math\nmath.nothing",
        "from collections import OrderedDict",
        "import math\nmath = 3",
        "import json\njson.JSONEncoder",
        "open('x')",
        "eval('1')",
        "exec('1')",
        "__import__('os')",
        "input()",
        "getattr(1, 'real')",
        "type(1)",
        "globals()",
        "undefined",
        "tools.add(a=1)",
        "class A:\n    pass",
        "def g():\n    yield 1",
        "async def f(): ...",
        "await f()",
        "try:\n    1\nexcept Exception:\n    2",
        "try:\n    1\nfinally:\n    2",
        "with open('x') as f: ...",
        "del args",
        "match 1:\n    case _: 1",
        "@print\ndef f(): ...",
        "lambda: (yield)",
        "[x async for x in y]",
        "x @ x",
        "b'bytes'",
        "1j",
        "...",
        "'\\ud800'",
        "(1).real",
        "'x'.__class__",
        "(1.5).is_integer()",
        "'x'.encode()",
        "'{}'.format(1)",
        "x = []\nx.attribute = 1",
        "f'{x.__class__}'",
        "__name__",
        "print(__builtins__)",
        "{1: 'a', True: 'b'}",
        "{2.0: 'a'}",
        "x" * (MAX_PROGRAM_BYTES + 1),
        "'é'" * MAX_PROGRAM_BYTES,
        "(" * 500,
        "-" * 100_000 + "1",
        "a\0b",
        "def f(",
        "\ud800",
    ],
)
def test_everything_else_does_not(code: str) -> None:
    assert misfit(code) is not None


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("tools.add(a=1)", True),
        ("tools.call('odd-name', {})", True),
        ("[tools.get(n=n) for n in range(3)]", True),
        ("x = tools.add", False),
        ("tools['odd-name'](a=1)", False),
        ("print(tools)", False),
        ("tools = 3", False),
        ("def f(tools): ...", False),
        ("tools.__class__", False),
        ("tools._private()", False),
        ("try:\n    tools.add()\nexcept ToolError as e:\n    print(e.code)", False),
        ("await tools.add()", False),
        ("tools.add.more()", False),
    ],
)
def test_a_programs_tools_can_be_called_and_nothing_else(code: str, expected: bool) -> None:
    assert (misfit(code, True) is None) is expected


def test_what_may_be_used_is_there_in_monty() -> None:
    """Every name and every module's name of the lists; methods are tried on values below."""
    lines = [f"{name}" for name in sorted(subset.NAMES)]
    for module, names in subset.MODULES.items():
        lines += [f"import {module}", *(f"{module}.{name}" for name in sorted(names))]
    with contextlib.closing(Pair()) as pair:
        assert pair.in_monty("\n".join([*lines, "'all'"])) == Gave('"all"', "")


# -- the same in both


class Gave(NamedTuple):
    """What came of a program: its value as JSON (None: it failed), and what it printed."""

    value: str | None
    printed: str


class Pair:
    """Monty and CPython side by side."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lane = MontyRuntime(LIMITS)

    def in_monty(self, code: str) -> Gave:
        job: dict[str, Any] = {"mode": "script", "code": code, "arguments": {}, "tools": None}
        assert self._lane.takes(job), misfit(code)
        heard, stopped = self._loop.run_until_complete(self._lane.run(job, None, LIMITS))
        assert stopped is None
        if heard.failure is not None:
            assert heard.doubtful
            return Gave(None, "")
        return Gave(json.dumps(heard.value), heard.stdout)

    def in_cpython(self, code: str) -> Gave:
        names: dict[str, Any] = {"args": {}}
        *before, last = code.split("\n")
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec("\n".join(before), names)
                value = eval(last, names)
            text = json.dumps(value, allow_nan=False)
        except Exception:  # noqa: BLE001 - that it fails is all that is compared
            return Gave(None, "")
        return Gave(text, printed.getvalue())

    def close(self) -> None:
        self._loop.run_until_complete(self._lane.close())
        self._loop.close()


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with contextlib.closing(Pair()) as made:
        yield made


names = st.sampled_from(["a", "b", "c"])
numbers = st.integers(-50, 50).map(str) | st.sampled_from(["0.5", "2.0", "1e3", "3.25", "7 / 3", "10**12", "True"])
texts = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"]), max_size=6).map(repr)
plain = numbers | texts | st.just("None")


def lists(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=4).map(lambda parts: f"[{', '.join(parts)}]")


number: st.SearchStrategy[str] = st.deferred(
    lambda: (
        numbers
        | st.builds("({} {} {})".format, number, st.sampled_from("+-*"), number)
        | st.builds("({} {} {})".format, number, st.sampled_from(["//", "%", "/"]), numbers)
        | st.builds("{}({})".format, st.sampled_from(["abs", "int", "float", "round", "bool"]), number)
        | st.builds("len({})".format, text)
        | st.builds("{}({}, default=0)".format, st.sampled_from(["max", "min"]), lists(numbers))
        | st.builds("sum({})".format, lists(numbers))
        | st.builds("({} if {} else {})".format, number, number, number)
        | st.builds("divmod({}, {})[{}]".format, numbers, numbers, st.sampled_from("01"))
        | st.builds("(lambda x, y=2: x * y)({})".format, numbers)
        | st.builds("math.{}({})".format, st.sampled_from(["floor", "ceil", "fabs", "trunc", "degrees"]), numbers)
    )
)
text: st.SearchStrategy[str] = st.deferred(
    lambda: (
        texts
        | st.builds("({} + {})".format, text, texts)
        | st.builds("({} * {})".format, texts, st.integers(-1, 3))
        | st.builds(
            "{}.{}()".format,
            texts,
            st.sampled_from(["upper", "lower", "strip", "title", "capitalize", "swapcase", "casefold"]),
        )
        | st.builds("{}.replace({}, {})".format, texts, texts, texts)
        | st.builds("{}.{}({})".format, texts, st.sampled_from(["ljust", "rjust", "center", "zfill"]), st.integers(0, 9))
        | st.builds("str({})".format, number)
        | st.builds("repr({})".format, texts | lists(plain))
        | st.builds("f'{{{}:{}}}'".format, numbers, st.sampled_from(["", ">8", "<8", "^9", "+", "08", ".2f", ",", "e", "g"]))
        | st.builds("{}.join(str(n) for n in {})".format, texts, lists(numbers))
        | st.builds("{}[{}:{}:{}]".format, texts, st.integers(-3, 3), st.integers(-3, 5), st.sampled_from(["1", "2", "-1"]))
        | st.builds("json.dumps({}, sort_keys=True)".format, lists(plain))
    )
)
listed: st.SearchStrategy[str] = st.deferred(
    lambda: (
        lists(number | text)
        | st.builds("sorted({}, reverse={})".format, lists(numbers), st.booleans())
        | st.builds("sorted({}, key=len)".format, lists(texts))
        | st.builds("list(reversed({}))".format, lists(plain))
        | st.builds("[x for x in {} if x]".format, lists(plain))
        | st.builds("[(i, x) for i, x in enumerate({})]".format, lists(plain))
        | st.builds("list(zip({}, {}))".format, lists(plain), lists(plain))
        | st.builds("list(map(str, {}))".format, lists(numbers))
        | st.builds("{}.split()".format, texts)
        | st.builds("{}.{}({})".format, texts, st.sampled_from(["split", "partition", "rpartition", "count", "find"]), texts)
        | st.builds("sorted(set({}))".format, lists(numbers))
        | st.builds("list({{str(x): x for x in {}}}.items())".format, lists(plain))
        | st.builds("[*{}, *{}]".format, lists(plain), lists(plain))
        | st.builds("list(itertools.accumulate({}))".format, lists(numbers))
        | st.builds("sorted(Counter({}).items())".format, texts)
        | st.builds("[bool(x) for x in {}]".format, lists(plain))
        | st.builds("list(range({}, {}, {}))".format, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 4))
    )
)
value = number | text | listed
condition = st.builds(
    "{} {} {}".format, numbers, st.sampled_from(["<", "<=", "==", "!=", ">", "in", "is not"]), numbers
).filter(lambda code: " in " not in code and "is not" not in code) | st.builds("{} in {}".format, plain, lists(plain))
statement = (
    st.builds("{} = {}".format, names, value)
    | st.builds("print({}, {}, sep={}, end={})".format, value, plain, texts, texts)
    | st.builds("{} = {}\nfor n in range({}):\n    {} += n".format, names, numbers, st.integers(0, 5), st.just("a"))
    | st.builds(
        "if {}:\n    a = {}\nelif {}:\n    b = {}\nelse:\n    c = {}".format, condition, value, condition, value, value
    )
    | st.builds("def f(x, *rest, k={}):\n    return [x, rest, k]\na = f({}, {})".format, plain, plain, plain)
    | st.builds("b = {}\nwhile len(b) < 6:\n    b.append({})".format, lists(plain), plain)
    | st.builds("c, *b = {}".format, lists(plain))
    | st.builds("d = {{}}\nfor k in {}:\n    d[str(k)] = d.get(str(k), 0) + 1\nc = d".format, lists(plain))
)
programs = st.builds(
    lambda body, last: "\n".join(
        ["import math, json, itertools", "from collections import Counter", "a = b = c = 0", *body, last]
    ),
    st.lists(statement, max_size=5),
    value | st.sampled_from(["a", "b", "c", "[a, b, c]"]),
)


@given(programs)
def test_both_give_the_same(pair: Pair, code: str) -> None:
    here, there = pair.in_monty(code), pair.in_cpython(code)
    if here.value is not None:
        assert here == there


outsiders = st.sampled_from(
    [
        "import os",
        "open('x')",
        "try:\n    pass\nexcept ValueError:\n    pass",
        "class A: ...",
        "x = a.b",
        "del a",
        "b''",
        "eval('1')",
    ]
)


@given(st.lists(statement, max_size=4), outsiders, st.lists(statement, max_size=4))
def test_one_thing_from_outside_is_enough_not_to_fit(before: list[str], outsider: str, after: list[str]) -> None:
    assert misfit("\n".join(["a = 0", *before, outsider, *after])) is not None


@given(st.text(max_size=200))
def test_any_text_can_be_judged(code: str) -> None:
    misfit(code)


TWO_NUMBERS = {"copysign", "fmod", "hypot", "atan2", "pow"}
POSITIVE = {"sqrt", "log", "log10", "log2", "exp"}
ONE_OR_TWO_NUMBERS = (
    {"ceil", "degrees", "fabs", "floor", "radians", "trunc", "cos", "sin", "tan", "atan"} | TWO_NUMBERS | POSITIVE
)


@given(
    st.sampled_from(sorted(subset.MODULES["math"] & ONE_OR_TWO_NUMBERS)),
    st.floats(-1e6, 1e6),
    st.floats(0.001, 50),
)
def test_mathematics_agrees_to_the_last_bit(pair: Pair, name: str, first: float, second: float) -> None:
    given = f"{second!r}, {first / 1e5!r}" if name in TWO_NUMBERS else repr(second if name in POSITIVE else first)
    code = f"import math\nmath.{name}({given})"
    assert pair.in_monty(code) == pair.in_cpython(code)


def test_a_large_result_is_no_result() -> None:
    with contextlib.closing(Pair()) as pair:
        assert pair.in_monty(f"'x' * {2 * MB}").value is None

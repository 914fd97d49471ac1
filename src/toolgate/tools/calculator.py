"""`calculator`: arithmetic on real numbers, safe to give any text to.

The text is read here, word by word, so that nothing but numbers, operators and known names reaches Python's parser.
`simpleeval` then walks the tree with the operators and functions below, each of which refuses what would take long or
is not a finite real number.
"""

import ast
import math
import operator
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cache
from typing import Any, Literal

from typing_extensions import TypedDict

from toolgate.errors import InvalidInput, quoted
from toolgate.model import ErrorCase, Example
from toolgate.registry.decorator import tool

MAX_LENGTH = 500
MAX_BITS = 4096
"""The largest whole number on the way; factorial(500) fits."""
MAX_FACTORIAL = 500
MAX_DECIMALS = 15
MAX_EXACT = 2**63 - 1
"""A whole result beyond this is given as a float: few readers of JSON would keep it exact."""

Number = int | float


class Calculated(TypedDict):
    """The expression as it was given, and its value."""

    expression: str
    result: float
    resultType: Literal["number"]


@tool(
    tier="read_only",
    category="development",
    tags=["math"],
    capabilities=["calculate"],
    pure=True,
    errors=[
        ErrorCase("INVALID_INPUT", "the expression cannot be read, or has a name that is unknown", "Correct it as told."),
        ErrorCase("INVALID_INPUT", "it has no finite real value, or one that is too large", "Use other numbers."),
    ],
    examples=[
        Example(
            name="roots and powers",
            arguments={"expression": "sqrt(16) + 2^3"},
            output={"expression": "sqrt(16) + 2^3", "result": 12, "resultType": "number"},
        ),
        Example(name="division by zero", arguments={"expression": "1 / 0"}, error="INVALID_INPUT"),
    ],
)
async def calculator(expression: str) -> Calculated:
    """Evaluate a mathematical expression: arithmetic (+ - * / // % ^), powers, roots, logarithms, trigonometry in
    radians, rounding, min, max, sum, mean, median, gcd, lcm, factorial, and the constants pi, e and tau.

    Args:
        expression: The expression, for example "sqrt(16) + 2^3".
    """
    if len(expression) > MAX_LENGTH:
        raise InvalidInput(
            f"The expression is {len(expression)} characters long; {MAX_LENGTH} is the most.",
            suggestion="Calculate it in parts.",
        )
    return {"expression": expression, "result": _plain(_evaluate(_as_python(expression))), "resultType": "number"}


def _plain(value: Number) -> Number:
    """The value as JSON should have it: a whole number where that is exact, else a float."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    try:
        return value if abs(value) <= MAX_EXACT else float(value)
    except OverflowError as error:
        raise _too_large("the expression") from error


# -- reading the text

_NAME = re.compile(
    r"(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z][A-Za-z0-9]*)"
    r"|(?P<sign>\*\*|//|[-+*/%^(),]))\s*"
)


def _as_python(expression: str) -> str:
    """The expression in Python's spelling: 2^3 as 2 ** 3, and 007 as 7."""
    text, words, position = expression.strip(), list[str](), 0
    while position < len(text):
        word = _NAME.match(text, position)
        if word is None:
            raise InvalidInput(
                f"The expression cannot be read from its character {position + 1} on.",
                suggestion="Use numbers, + - * / // % ^, brackets, and functions such as sqrt(2).",
            )
        if number := word["number"]:
            words.append(number.lstrip("0") or "0" if number.isdigit() else number)
        elif name := word["name"]:
            words.append(_known(name.lower()))
        else:
            words.append("**" if word["sign"] == "^" else word["sign"])
        position = word.end()
    return " ".join(words)


def _known(name: str) -> str:
    if name not in CONSTANTS and name not in FUNCTIONS:
        raise InvalidInput(
            f"There is no function or constant {quoted(name)}.",
            suggestion=f"There are {', '.join([*CONSTANTS, *FUNCTIONS])}.",
        )
    return name


# -- evaluating


def _evaluate(python: str) -> Number:
    from simpleeval import InvalidExpression

    try:
        value: Number = _evaluator().eval("", previously_parsed=ast.parse(python, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise InvalidInput(
            "The expression is incomplete, out of order or nested too deeply.",
            suggestion="Check operators and brackets; write 2*pi, not 2pi.",
        ) from error
    except InvalidExpression as error:
        raise InvalidInput(
            "The expression has a comma or brackets where arithmetic has none.",
            suggestion="Write 1000, not 1,000, and 2*(3), not 2(3).",
        ) from error
    return value


@cache
def _evaluator() -> Any:
    """An evaluator that knows only these five kinds of node."""
    from simpleeval import SimpleEval

    evaluator = SimpleEval(operators=OPERATORS, functions=FUNCTIONS, names=CONSTANTS)
    evaluator.nodes = {
        ast.BinOp: evaluator.nodes[ast.BinOp],
        ast.UnaryOp: evaluator.nodes[ast.UnaryOp],
        ast.Call: evaluator.nodes[ast.Call],
        ast.Constant: lambda node: _sound("a number", node.value),
        ast.Name: _constant,
    }
    return evaluator


def _constant(node: ast.Name) -> Number:
    if node.id not in CONSTANTS:
        raise InvalidInput(f"{node.id} is a function.", suggestion=f"Write {node.id}(…).")
    return CONSTANTS[node.id]


# -- computing


def _guarded(name: str, compute: Callable[..., Any]) -> Callable[..., Number]:
    """The same computation, with a message for every way in which it can fail."""

    def guarded(*numbers: Number) -> Number:
        try:
            return _sound(name, compute(*numbers))
        except ZeroDivisionError as error:
            raise InvalidInput(f"Division by zero in {name}.") from error
        except OverflowError as error:
            raise _too_large(name) from error
        except ValueError as error:
            raise InvalidInput(f"{name} is not defined for these numbers.") from error
        except TypeError as error:
            raise InvalidInput(f"{name} does not take {len(numbers)} numbers.") from error

    return guarded


def _sound(name: str, value: Any) -> Number:
    """The value, if it is a real number of bearable size."""
    if isinstance(value, complex):
        raise InvalidInput(f"The value of {name} is not a real number.", suggestion="For cube roots use cbrt(x).")
    if value.bit_length() > MAX_BITS if isinstance(value, int) else not math.isfinite(value):
        raise _too_large(name)
    number: Number = value
    return number


def _too_large(name: str) -> InvalidInput:
    return InvalidInput(f"The value of {name} is too large.", suggestion="Use smaller numbers, or their logarithms.")


def _power(base: Number, exponent: Number) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and (base.bit_length() - 1) * exponent > MAX_BITS:
        raise OverflowError
    return base**exponent


def _cbrt(number: Number) -> Number:
    """Exact for cubes, where some C libraries are off by a bit."""
    root = math.cbrt(number)
    return round(root) if round(root) ** 3 == number else root


def _nthroot(number: Number, degree: Number) -> Number:
    """The real root; of a negative number, of odd degree only."""
    whole = _whole(degree)
    if whole == 0 or (number < 0 and whole % 2 == 0):
        raise ValueError
    root = math.copysign(abs(number) ** (1 / whole), number)
    exact = 0 < whole <= MAX_BITS and abs(root) < 2**53 and _power(round(root), whole) == number
    return round(root) if exact else root


def _median(*numbers: Number) -> Number:
    if not numbers:
        raise TypeError
    ordered, middle = sorted(numbers), len(numbers) // 2
    return ordered[middle] if len(numbers) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _log(number: Number, base: Number = math.e) -> float:
    if base == 2:
        return math.log2(number)
    return math.log10(number) if base == 10 else math.log(number, base)


def _round(number: Number, decimals: Number = 0) -> Number:
    """Halves go away from zero, as on paper, and 2.675 counts as what it says, not as its binary neighbour."""
    places = _whole(decimals)
    if not 0 <= places <= MAX_DECIMALS:
        raise ValueError
    if isinstance(number, int):
        return number
    rounded = Decimal(repr(number)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, Context(prec=400))
    return float(rounded) if places else int(rounded)


def _factorial(number: Number) -> int:
    if number > MAX_FACTORIAL:
        raise OverflowError
    return math.factorial(_whole(number))


def _whole(number: Number) -> int:
    if number != int(number):
        raise ValueError
    return int(number)


def _lcm(first: Number, *rest: Number) -> int:
    multiple = abs(_whole(first))
    for number in rest:
        multiple = math.lcm(multiple, _whole(number))
        if multiple.bit_length() > MAX_BITS:
            raise OverflowError
    return multiple


_AS_IN_MATH = (
    *("ceil", "floor", "trunc", "exp", "sqrt", "hypot", "log2", "log10", "degrees", "radians"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)

CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}

OPERATORS = {
    ast.Add: _guarded("+", operator.add),
    ast.Sub: _guarded("-", operator.sub),
    ast.Mult: _guarded("*", operator.mul),
    ast.Div: _guarded("/", operator.truediv),
    ast.FloorDiv: _guarded("//", operator.floordiv),
    ast.Mod: _guarded("%", operator.mod),
    ast.Pow: _guarded("^", _power),
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}

FUNCTIONS = {
    name: _guarded(name, compute)
    for name, compute in {
        "abs": abs,
        "sign": lambda x: (x > 0) - (x < 0),
        "round": _round,
        "mod": operator.mod,
        "min": lambda first, *rest: min([first, *rest]),
        "max": lambda first, *rest: max([first, *rest]),
        "sum": lambda first, *rest: sum(rest, first),
        "mean": lambda first, *rest: sum(rest, first) / (1 + len(rest)),
        "median": _median,
        "gcd": lambda first, *rest: math.gcd(*map(_whole, (first, *rest))),
        "lcm": _lcm,
        "factorial": _factorial,
        "pow": _power,
        "cbrt": _cbrt,
        "nthroot": _nthroot,
        "log": _log,
        "ln": math.log,
        "sec": lambda x: 1 / math.cos(x),
        "csc": lambda x: 1 / math.sin(x),
        "cot": lambda x: 1 / math.tan(x),
        **{name: getattr(math, name) for name in _AS_IN_MATH},
    }.items()
}

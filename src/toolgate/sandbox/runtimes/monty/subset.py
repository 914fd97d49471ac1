"""The part of Python that Monty runs wholly: a program is judged by its text before anything of it runs.

Monty is a Python of its own, with a part of the language and of the library. What stands here is a part of that part: names,
methods and syntax of which trials against CPython showed that both give the same. Whatever is not listed does not fit, and
goes to a CPython worker, which is slower to start and lacks nothing.

There is no `try` in it, so whatever fails in Monty ends the program, and one that had no effect can be run again elsewhere.
"""

import ast
from functools import lru_cache

MAX_PROGRAM_BYTES = 16_384
"""Bytes. To judge a longer program would take longer than a worker takes to run it."""
SYNTAX = (
    ast.Module, ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.For, ast.While, ast.Break, ast.Continue,
    ast.Pass, ast.FunctionDef, ast.Return, ast.arguments, ast.arg, ast.Lambda, ast.Global, ast.Nonlocal, ast.Assert,
    ast.Raise, ast.Import, ast.ImportFrom, ast.alias, ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp, ast.IfExp,
    ast.Compare, ast.Call, ast.keyword, ast.Dict, ast.Set, ast.List, ast.Tuple, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp, ast.comprehension, ast.FormattedValue, ast.JoinedStr, ast.Constant, ast.Attribute, ast.Subscript,
    ast.Slice, ast.Starred, ast.Name, ast.expr_context, ast.boolop, ast.unaryop, ast.cmpop, ast.operator,
)  # fmt: skip


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NAMES = _words(
    """abs all any bin bool chr dict divmod enumerate filter float format frozenset hex int isinstance iter len list map max
    min next oct ord pow print range repr reversed round set slice sorted str sum tuple zip
    ArithmeticError AssertionError AttributeError Exception IndexError KeyError LookupError NameError NotImplementedError
    OverflowError RecursionError RuntimeError StopIteration TypeError ValueError ZeroDivisionError"""
)
"""Names that a program need not define."""

METHODS = _words(
    """capitalize casefold center count endswith find index isalnum isalpha isascii isdecimal isdigit islower isnumeric
    isspace isupper join ljust lower lstrip partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit
    rstrip split splitlines startswith strip swapcase title upper zfill
    append clear copy extend insert pop remove reverse sort
    fromkeys get items keys popitem setdefault update values
    add difference discard intersection isdisjoint issubset issuperset symmetric_difference union
    most_common appendleft popleft extendleft rotate bit_length"""
)
"""Methods that may be called on a value, whatever it is."""

MODULES = {
    "math": _words(
        """ceil comb copysign degrees dist e factorial fabs floor fmod fsum gcd hypot inf isclose isfinite isinf isnan isqrt
        lcm perm pi prod radians sqrt tau trunc cos sin tan acos asin atan atan2 exp log log10 log2 pow"""
    ),
    "json": _words("dumps loads"),
    "itertools": _words(
        """accumulate chain combinations combinations_with_replacement compress count cycle dropwhile filterfalse groupby
        islice pairwise permutations product repeat starmap takewhile zip_longest"""
    ),
    "functools": _words("partial reduce"),
    "collections": _words("Counter defaultdict deque"),
    "bisect": _words("bisect bisect_left bisect_right insort insort_left insort_right"),
    "copy": _words("copy deepcopy"),
    "typing": _words("Any Dict List Optional Set Tuple Union"),
}
"""Modules that may be imported, and the names that may be used of them."""

TOOLS = "tools"
GIVEN = frozenset(("args",))


@lru_cache(maxsize=512)
def misfit(code: str, program: bool = False) -> str | None:
    """The reason why Monty cannot run it, or None if it can. `program`: with tools to call."""
    if len(code) > MAX_PROGRAM_BYTES or len(code.encode("utf-8", "surrogatepass")) > MAX_PROGRAM_BYTES:
        return "it is long"
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return "it cannot be parsed"
    return _SubsetCheck(program).misfit(tree)


class _SubsetCheck:
    """One look at all of a program, in no particular order."""

    def __init__(self, program: bool) -> None:
        self._program = program
        self._modules: dict[str, str] = {}
        """Names of imported modules."""
        self._bound: set[str] = set()
        self._read: set[str] = set()
        self._uses: list[tuple[str, str]] = []
        """Attributes of names: they may be modules."""
        self._tool_calls = self._tool_reads = 0

    def misfit(self, tree: ast.Module) -> str | None:
        for node in ast.walk(tree):
            reason = self._look(node)
            if reason is not None:
                return reason
        return self._names()

    def _look(self, node: ast.AST) -> str | None:
        if not isinstance(node, SYNTAX):
            return f"it has {type(node).__name__}"
        look = getattr(self, f"_look_{type(node).__name__.lower()}", None)
        found: str | None = None if look is None else look(node)
        return found

    def _names(self) -> str | None:
        """Judges what every name stands for."""
        clash = self._bound & self._modules.keys()
        if clash:
            return f"{min(clash)} is a module and something else"
        known = self._bound | self._modules.keys() | NAMES | GIVEN | ({TOOLS} if self._program else set())
        unknown = self._read - known
        if unknown:
            return f"it uses {min(unknown)}"
        for name, attribute in self._uses:
            if name in self._modules and attribute not in MODULES[self._modules[name]]:
                return f"it uses {self._modules[name]}.{attribute}"
            if name not in self._modules and attribute not in METHODS:
                return f"it uses .{attribute}"
        if self._program and TOOLS in self._bound:
            return "it gives the name of the tools to something else"
        return "it uses its tools as a value" if self._tool_reads != self._tool_calls else None

    # -- one kind of node each

    def _look_name(self, node: ast.Name) -> str | None:
        if node.id.startswith("__"):
            return f"it uses {node.id}"
        if isinstance(node.ctx, ast.Load):
            self._read.add(node.id)
            self._tool_reads += self._program and node.id == TOOLS
        else:
            self._bound.add(node.id)
        return None

    def _look_attribute(self, node: ast.Attribute) -> str | None:
        if not isinstance(node.ctx, ast.Load):
            return "it sets attributes"
        if isinstance(node.value, ast.Name):
            if not (self._program and node.value.id == TOOLS):
                self._uses.append((node.value.id, node.attr))
            return None
        return None if node.attr in METHODS else f"it uses .{node.attr}"

    def _look_call(self, node: ast.Call) -> str | None:
        called = node.func
        of = called.value if self._program and isinstance(called, ast.Attribute) else None
        if isinstance(called, ast.Attribute) and isinstance(of, ast.Name) and of.id == TOOLS:
            if called.attr.startswith("_"):
                return f"it calls tools.{called.attr}"
            self._tool_calls += 1
        return None

    def _look_dict(self, node: ast.Dict) -> str | None:
        # Of keys that are equal, like 1 and True, CPython keeps the first and Monty the last.
        keys = (key.value for key in node.keys if isinstance(key, ast.Constant))
        return "it has keys that equal others" if any(isinstance(key, bool | float) for key in keys) else None

    def _look_functiondef(self, node: ast.FunctionDef) -> str | None:
        if node.decorator_list:
            return "it has decorators"
        if getattr(node, "type_params", None):
            return "it has type parameters"
        self._bound.add(node.name)
        return None

    def _look_arg(self, node: ast.arg) -> None:
        self._bound.add(node.arg)

    def _look_comprehension(self, node: ast.comprehension) -> str | None:
        return "it has async comprehensions" if node.is_async else None

    def _look_matmult(self, _node: ast.MatMult) -> str:
        return "it has @"

    def _look_constant(self, node: ast.Constant) -> str | None:
        value = node.value
        if isinstance(value, str):
            return "it has text that is not valid Unicode" if not value.isascii() and _has_surrogate(value) else None
        return None if value is None or isinstance(value, bool | int | float) else f"it has {type(value).__name__}"

    def _look_import(self, node: ast.Import) -> str | None:
        for name in node.names:
            if name.name not in MODULES:
                return f"it imports {name.name}"
            self._modules[name.asname or name.name] = name.name
        return None

    def _look_importfrom(self, node: ast.ImportFrom) -> str | None:
        known = MODULES.get(node.module or "")
        if node.level or known is None:
            return f"it imports {node.module}"
        for name in node.names:
            if name.name not in known:
                return f"it imports {node.module}.{name.name}"
            self._bound.add(name.asname or name.name)
        return None


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)

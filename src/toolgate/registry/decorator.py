"""`@tool`: how a Python function or class becomes a tool.

The definition is read off the code: name, description and schema from the function's name, docstring and hints. What
can't be read is refused here, with its path, before anything runs. Made into a catalog `Entry` by `compile`.
"""

import dis
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from decimal import Decimal
from functools import lru_cache
from types import CodeType
from typing import Any, Literal, Protocol, TypeVar, overload

import msgspec

from toolgate.errors import DefinitionError, Fault, nearest
from toolgate.model import (
    Auth,
    CacheRule,
    Capability,
    Category,
    Cost,
    Entry,
    ErrorCase,
    Example,
    Implementation,
    Mode,
    Operation,
    RateLimit,
    Retry,
    Tier,
    Tool,
)
from toolgate.registry.signature import FunctionSchema, read_docstring

DECLARED_ATTRIBUTE = "__toolgate__"
JAILS_COMMANDS_ATTRIBUTE = "__toolgate_jails_commands__"
REACHES_ATTRIBUTE = "__toolgate_reaches__"
AUTH_TEST_ATTRIBUTE = "test_auth"
MAX_TITLE_CHARS = 128
OPTIONS = (
    "name", "title", "tier", "category", "version", "description", "cost", "timeout", "retry", "cache", "rate_limit",
    "concurrency", "requires_auth", "requires_permission", "capabilities", "hooks", "documentation", "tags", "target",
    "pure", "errors", "examples", "operations", "alias_of", "internal", "background", "route",
)  # fmt: skip
"""What `@tool` takes, as it is documented."""
keeps_going: ContextVar[bool] = ContextVar("keeps_going", default=False)
"""True while a file of tools is loaded: a function that is refused is marked with its error, and what follows it runs."""

Code = TypeVar("Code", bound=Callable[..., Any])


class ClassTool(Protocol):
    """An object of a class that `@tool` declared."""

    @property
    def execute(self) -> Any: ...


class Declaration(msgspec.Struct, frozen=True):
    """The declaration that `@tool` leaves on a function or class: the fields of its definition and the code behind it."""

    fields: dict[str, Any]
    make: Callable[[Any], Implementation]
    """Given what is registered: the function, perhaps wrapped since; the class, or an object of it."""
    hooks: tuple[Any, ...]
    definitions: dict[str, tuple[Tool, dict[str, Callable[[], Any]]]] = msgspec.field(default_factory=dict)
    """The definition by source, once an App has taken it, and what copies its changeable fields: it is read off the code,
    which stays the same."""
    compiled: dict[Any, Entry] = msgspec.field(default_factory=dict)
    """Of a built-in tool, what Apps share of its entry, by what their settings say of it."""


@overload
def tool(code: Code, /) -> Code: ...
@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    tier: Tier | None = None,
    category: Category | None = None,
    version: str | None = None,
    description: str | None = None,
    cost: float | str | Decimal | Cost | None = None,
    timeout: float | None = None,
    retry: int | Retry | None = None,
    cache: float | CacheRule | None = None,
    rate_limit: RateLimit | None = None,
    concurrency: int | None = None,
    requires_auth: str | Auth | None = None,
    requires_permission: str | None = None,
    capabilities: Sequence[str | Capability] | None = None,
    hooks: Sequence[Any] = (),
    documentation: str | None = None,
    tags: Sequence[str] | None = None,
    target: str | None = None,
    pure: bool | None = None,
    errors: Sequence[ErrorCase] | None = None,
    examples: Sequence[Example] | None = None,
    operations: Mapping[str, Tier | Operation] | None = None,
    alias_of: str | None = None,
    internal: bool | None = None,
    background: bool | None = None,
    route: Literal["events"] | None = None,
) -> Callable[[Code], Code]: ...
def tool(code: Any = None, /, *, hooks: Sequence[Any] = (), **options: Any) -> Any:
    """Declares a function, or a class with an `execute` method, as a tool. It stays what it was and can be called.

    The name, the description and the schema come from the code's own name, its docstring and its hints.

    Args:
        name: Its name, if not the function's.
        title: A name for people, which lists and MCP clients show.
        tier: What a call may do: `read_only`, `write` (without it), `execute`, `external_api`. The last two always ask.
        category: What it is about, for search and lists.
        version: A semantic version; without it 1.0.0.
        description: What a model reads, if not the docstring's first paragraph.
        cost: Dollars a call, or a `Cost`.
        timeout: Seconds for one attempt.
        retry: How many attempts in all, or a `Retry`.
        cache: Seconds for which a result may be given out again, or a `CacheRule`.
        rate_limit: How often one user may call it.
        concurrency: How many calls may run at once.
        requires_auth: The name of the secret that it needs, found as `ctx.credential`, or an `Auth`.
        requires_permission: The scope that a caller must have.
        capabilities: What it can do; one may ask for confirmation.
        hooks: Hooks of this tool alone.
        documentation: More about it, for people; `toolgate tools info` shows it.
        tags: Words for search.
        target: The system that it depends on; tools with one target share a circuit breaker.
        pure: True if the output depends on the arguments alone: no secret is put into it.
        errors: The errors that it ends with: code, when, and what to do.
        examples: Calls that show what it does.
        operations: The tier of each value of its argument `operation`, or an `Operation`; `tier` is what lists show.
        alias_of: The tool that it is a second name of: models are shown the first alone.
        internal: True if only Toolgate's own code, and other tools by `ctx.call_inside(..., internal=True)`, may call it: no
            list for models shows it.
        background: True if its calls always run as jobs: whoever calls it is given the job's id.
        route: `events` has its calls run by whoever takes them from the event stream.

    Raises `DefinitionError`, with the path of every fault.
    """

    def declare(declared: Code) -> Code:
        try:
            mark: Declaration | DefinitionError = _declare(declared, options, tuple(hooks))
        except DefinitionError as error:
            mark = error.at(where_of(declared))
            if not keeps_going.get():
                raise mark from error.__cause__
        setattr(declared, DECLARED_ATTRIBUTE, mark)
        return declared

    return declare(code) if code is not None else declare


def jails_commands(function: Code) -> Code:
    """Declares that a built-in tool runs the commands among its arguments in the sandbox, and nowhere else.

    Their arguments are then free, because the jail is the boundary. Said in code and below `@tool`, never in a definition:
    those come from others too.
    """
    setattr(function, JAILS_COMMANDS_ATTRIBUTE, True)
    return function


def reaches(setting: str) -> Callable[[Code], Code]:
    """Declares that a built-in tool runs programs in the sandbox that reach the hosts of a setting, for all of its calls.

    Whoever is asked about a call is told of them. Said below `@tool`, as `jails_commands` is.
    """

    def declare(function: Code) -> Code:
        setattr(function, REACHES_ATTRIBUTE, setting)
        return function

    return declare


def tests_credential(test: Callable[..., Any]) -> Callable[[Code], Code]:
    """Declares the test of a tool's credential: `test(credential, ctx)` gives whether the service accepts it."""

    def declare(function: Code) -> Code:
        setattr(function, AUTH_TEST_ATTRIBUTE, test)
        return function

    return declare


def declared(code: Any) -> Declaration | None:
    """Gives what `@tool` said of this function or class, or of the class of this object. Raises the DefinitionError that it
    was refused with."""
    found = _mark_of(code)
    if isinstance(found, DefinitionError):
        raise found
    return found


def _title(tool: str, title: Any) -> str:
    if not isinstance(title, str) or not 0 < len(title) <= MAX_TITLE_CHARS or not title.isprintable():
        raise DefinitionError(tool, [Fault("title", f"1 to {MAX_TITLE_CHARS} printable characters")])
    return title


def is_marked(code: Any) -> bool:
    """Tells whether `@tool` stands above this function or class, whatever came of it."""
    try:
        return _mark_of(code) is not None
    except Exception:  # noqa: BLE001 - a proxy of something that is not there, say
        return False


def _mark_of(code: Any) -> Declaration | DefinitionError | None:
    found = vars(code).get(DECLARED_ATTRIBUTE) if inspect.isclass(code) else getattr(code, DECLARED_ATTRIBUTE, None)
    return found if isinstance(found, Declaration | DefinitionError) else None


def where_of(code: Any) -> str | None:
    """The file and line of a function, or of what a class-based tool runs; None if it has none."""
    function = code if inspect.isroutine(code) else getattr(code, "execute", None)
    inner = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return f"{inner.co_filename}:{inner.co_firstlineno}" if inner is not None else None


def _declare(code: Any, options: dict[str, Any], hooks: tuple[Any, ...]) -> Declaration:
    if not callable(code):
        raise DefinitionError(str(code), [Fault("", "@tool takes options by name, such as @tool(name='greet')")])
    is_class = inspect.isclass(code)
    function = getattr(code, "execute", None) if is_class else code
    name = options.get("name") or getattr(code, "name", None) or getattr(code, "__name__", type(code).__name__)
    if not callable(function):
        raise DefinitionError(str(name), [Fault("execute", "a class-based tool needs a method `execute`")])
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(str(name), [Fault("", "a generator cannot be a tool: return a list of what it yields")])
    if (title := options.get("title")) is not None:
        options = {**options, "annotations": {**(options.get("annotations") or {}), "title": _title(str(name), title)}}
        del options["title"]
    if strange := [option for option in options if option not in Tool.model_fields]:
        raise DefinitionError(str(name), [Fault(option, _no_option(option)) for option in strange])
    doc = read_docstring(inspect.getdoc(code) or "")
    inner = read_docstring(inspect.getdoc(function) or "")
    takes_self = is_class and inspect.isfunction(inspect.getattr_static(code, "execute"))
    read = FunctionSchema(str(name), function, doc.arguments or inner.arguments, skip_self=takes_self)
    fields: dict[str, Any] = {
        "name": name,
        "description": doc.summary or inner.summary,
        "input_schema": read.input_schema,
        "output_schema": read.output_schema,
        **{key: _shorthand(key, value) for key, value in options.items() if value is not None},
    }
    fields = {key: value for key, value in fields.items() if value is not None}

    def make(given: Any) -> Implementation:
        made: Any = given() if inspect.isclass(given) else given if is_class else None
        run = made.execute if is_class else given
        mode = _mode(run)
        return Implementation(
            function=run,
            mode=mode,
            bind=read.bind,
            context_parameter=read.context_parameter,
            instance=made,
            plain=mode == "inline" and not (read.bind or read.context_parameter or is_class),
            jails_commands=getattr(function, JAILS_COMMANDS_ATTRIBUTE, False) is True,
            reaches=getattr(function, REACHES_ATTRIBUTE, None),
        )

    return Declaration(fields, make, hooks)


def _no_option(option: str) -> str:
    near = nearest(option, OPTIONS)
    return f"unknown option, did you mean {near}?" if near else f"unknown option, there are {', '.join(OPTIONS)}"


def _shorthand(key: str, value: Any) -> Any:
    """The short forms that `@tool` takes: cost=0.01, retry=3, cache=60, requires_auth="KEY", capabilities=["read"]."""
    if key == "cost" and isinstance(value, int | float | str | Decimal):
        return {"fixed": str(value)}
    if key == "retry" and isinstance(value, int):
        return {"max_attempts": value}
    if key == "cache" and isinstance(value, int | float):
        return {"ttl": value}
    if key == "requires_auth" and isinstance(value, str):
        return {"config_key": value}
    if key == "capabilities":
        given = [value] if isinstance(value, str) else value
        return [{"action": item} if isinstance(item, str) else item for item in given]
    if key == "operations":
        return {name: {"tier": item} if isinstance(item, str) else item for name, item in value.items()}
    return value


SUSPENDING = frozenset({"GET_AWAITABLE", "GET_ANEXT", "GET_AITER", "BEFORE_ASYNC_WITH", "YIELD_VALUE", "SEND"})


def _mode(function: Any) -> Mode:
    """A coroutine function without a single `await` can't suspend, so it needs neither a task nor a timer of its own."""
    if not inspect.iscoroutinefunction(function):
        return "thread"
    plain = inspect.unwrap(function)
    code = getattr(getattr(plain, "__func__", plain), "__code__", None)
    if plain is not function and plain is not getattr(function, "__func__", None):
        return "task"
    return "task" if code is None or _suspends(code) else "inline"


@lru_cache(maxsize=1024)
def _suspends(code: CodeType) -> bool:
    return any(instruction.opname in SUSPENDING for instruction in dis.get_instructions(code))

"""`@tool`: how a Python function or class becomes a tool.

The definition is read off the code: name, description and schema from the function's name, docstring and hints. What
can't be read is refused here, with its path, before anything runs. Made into a catalog `Entry` by `compile`.
"""

import dis
import inspect
from collections.abc import Callable, Sequence
from decimal import Decimal
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Protocol, TypeVar, Union, get_args, get_origin, overload

import msgspec
from pydantic import Field, TypeAdapter, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo

from toolgate.context import InvokeContext
from toolgate.errors import DefinitionError, Fault
from toolgate.model import Auth, CacheRule, Capability, Category, Cost, Implementation, Mode, RateLimit, Retry, Tier
from toolgate.registry.docstring import read_docstring

MARK = "__toolgate__"
PLAIN = {str, bool, float, int, list, dict, Any, None, NoneType, inspect.Parameter.empty}
"""Hints whose JSON form is what the function wants to be given."""
NO_SCHEMA = (PydanticSchemaGenerationError, PydanticUserError, PydanticUndefinedAnnotation, TypeError)
"""What pydantic raises for a hint that it can't describe."""

Code = TypeVar("Code", bound=Callable[..., Any])


class ClassTool(Protocol):
    """An object of a class that `@tool` declared."""

    @property
    def execute(self) -> Any: ...


class Declared(msgspec.Struct, frozen=True):
    """What `@tool` leaves on a function or class: the fields of its definition and the code behind it."""

    fields: dict[str, Any]
    make: Callable[[Any], Implementation]
    """Given what is registered: the function, perhaps wrapped since; the class, or an object of it."""
    hooks: tuple[Any, ...]


@overload
def tool(code: Code, /) -> Code: ...
@overload
def tool(
    *,
    name: str | None = None,
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
) -> Callable[[Code], Code]: ...
def tool(code: Any = None, /, *, hooks: Sequence[Any] = (), **options: Any) -> Any:
    """Declare a function, or a class with an `execute` method, as a tool. It stays what it was and can be called."""

    def declare(declared: Code) -> Code:
        setattr(declared, MARK, _declare(declared, options, tuple(hooks)))
        return declared

    return declare(code) if code is not None else declare


def declared(code: Any) -> Declared | None:
    """What `@tool` said of this function or class, or of the class of this object."""
    found = vars(code).get(MARK) if inspect.isclass(code) else getattr(code, MARK, None)
    return found if isinstance(found, Declared) else None


def _declare(code: Any, options: dict[str, Any], hooks: tuple[Any, ...]) -> Declared:
    is_class = inspect.isclass(code)
    function = getattr(code, "execute", None) if is_class else code
    name = options.get("name") or getattr(code, "name", None) or code.__name__
    if not callable(function):
        raise DefinitionError(str(name), [Fault("execute", "a class-based tool needs a method `execute`")])
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(str(name), [Fault("", "a tool returns one value, so a generator can't be one")])
    doc = read_docstring(inspect.getdoc(code) or "")
    inner = read_docstring(inspect.getdoc(function) or "")
    takes_self = is_class and inspect.isfunction(inspect.getattr_static(code, "execute"))
    read = _Signature(str(name), function, doc.arguments or inner.arguments, skip_self=takes_self)
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
        )

    return Declared(fields, make, hooks)


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
    return value


class _Signature:
    """The schema and the binding of one function, read once."""

    def __init__(self, tool_name: str, function: Any, described: dict[str, str], *, skip_self: bool) -> None:
        self._tool_name = tool_name
        try:
            signature = inspect.signature(function, eval_str=True)
        except (NameError, TypeError, ValueError, SyntaxError) as error:
            raise self._refuse("", f"its hints can't be read: {error}") from error
        parameters = list(signature.parameters.values())[1 if skip_self else 0 :]
        self.context_parameter: str | None = None
        self._names: list[str] = []
        self._filled: set[str] = set()
        """Parameters whose default is a `Field`: only the model knows its value."""
        fields: dict[str, Any] = {}
        open_ended, plain = False, True
        for parameter in parameters:
            hint, path = parameter.annotation, f"input_schema.properties.{parameter.name}"
            if hint is InvokeContext or InvokeContext in get_args(hint):
                self.context_parameter = parameter.name
                continue
            if parameter.kind is parameter.VAR_KEYWORD:
                open_ended = True
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise self._refuse(path, "arguments are passed by name; *args and positional-only can't be")
            if isinstance(parameter.default, FieldInfo):
                self._filled.add(f"p{len(self._names)}")
            plain = plain and _is_plain(hint) and not self._filled
            fields[f"p{len(self._names)}"] = _field(parameter, described.get(parameter.name))
            self._names.append(parameter.name)
        try:
            self._model = create_model(f"{tool_name}_arguments", **fields)
            schema = self._model.model_json_schema(by_alias=True)
        except NO_SCHEMA as error:
            raise self._refuse(_at_fault(parameters), _first_line(error)) from error
        try:
            self.output_schema = _output_schema(signature.return_annotation)
        except NO_SCHEMA as error:
            raise self._refuse("output_schema", _first_line(error)) from error
        self.input_schema = _tidy(schema) | {"additionalProperties": open_ended}
        self.input_schema.setdefault("properties", {})
        self.bind = None if plain else self._through_model

    def _through_model(self, arguments: dict[str, Any]) -> dict[str, Any]:
        made = self._model.model_validate(arguments)
        given = {
            name: getattr(made, f"p{index}")
            for index, name in enumerate(self._names)
            if f"p{index}" in made.model_fields_set or f"p{index}" in self._filled
        }
        extra = {name: value for name, value in arguments.items() if name not in self._names}
        return given | extra

    def _refuse(self, path: str, message: str) -> DefinitionError:
        return DefinitionError(self._tool_name, [Fault(path, message)])


def _field(parameter: inspect.Parameter, described: str | None) -> tuple[Any, Any]:
    """Hint and default for pydantic, under the parameter's own name whatever it is, with the docstring's words unless
    `Annotated[…, Field(description=…)]` or a `Field` default already has some."""
    hint = Any if parameter.annotation is parameter.empty else parameter.annotation
    given = [*getattr(hint, "__metadata__", ()), parameter.default]
    named: dict[str, Any] = {"alias": parameter.name}
    if described and not any(isinstance(part, FieldInfo) and part.description for part in given):
        named["description"] = described
    return Annotated[hint, Field(**named)], ... if parameter.default is parameter.empty else parameter.default


def _is_plain(hint: Any, *, inside: bool = False) -> bool:
    """Whether the JSON of a valid argument is what the function wants. Inside a list, 3.0 may stand where 3 is meant."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return all(_is_plain(part, inside=inside) for part in parts)
    if origin in (list, dict):
        return parts[:-1] in ((), (str,), (Any,)) and _is_plain(parts[-1], inside=True)
    if origin is Literal:
        return all(type(value) in (str, int, bool, NoneType) for value in parts)
    try:
        return origin is None and hint in PLAIN and not (inside and hint is int)
    except TypeError:
        return False


def _at_fault(parameters: list[inspect.Parameter]) -> str:
    """The path of the first parameter whose hint has no schema."""
    for parameter in parameters:
        try:
            create_model("one", p=_field(parameter, None)).model_json_schema()
        except NO_SCHEMA:
            return f"input_schema.properties.{parameter.name}"
    return "input_schema"


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


def _output_schema(hint: Any) -> dict[str, Any] | None:
    if hint in (inspect.Signature.empty, Any, InvokeContext):
        return None
    return _tidy(TypeAdapter(hint).json_schema(by_alias=False, mode="serialization"))  # models are given out by field name


def _tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the titles that pydantic makes up: a model would pay tokens for them."""

    def clean(value: Any, *, names: bool = False) -> Any:
        if isinstance(value, dict):
            kept = (
                value
                if names
                else {key: part for key, part in value.items() if not (key == "title" and isinstance(part, str))}
            )
            return {key: clean(part, names=key in ("properties", "$defs") and not names) for key, part in kept.items()}
        if isinstance(value, list):
            return [clean(part) for part in value]
        return value

    cleaned: dict[str, Any] = clean(schema)
    return cleaned


SUSPENDING = frozenset({"GET_AWAITABLE", "GET_ANEXT", "GET_AITER", "BEFORE_ASYNC_WITH", "YIELD_VALUE", "SEND"})


def _mode(function: Any) -> Mode:
    """A coroutine function without a single `await` can't suspend, so it needs neither a task nor a timer of its own."""
    if not inspect.iscoroutinefunction(function):
        return "thread"
    plain = inspect.unwrap(function)
    code = getattr(getattr(plain, "__func__", plain), "__code__", None)
    if plain is not function and plain is not getattr(function, "__func__", None):
        return "task"
    if code is None or any(instruction.opname in SUSPENDING for instruction in dis.get_instructions(code)):
        return "task"
    return "inline"

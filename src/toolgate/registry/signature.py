"""A function as a tool: the schema of its parameters and of its result, read off its hints, how JSON
becomes its arguments, and what its docstring says of each (Google or Sphinx style)."""

import inspect
import re
from keyword import iskeyword
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import Field, TypeAdapter, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo

from toolgate.errors import DefinitionError, Fault
from toolgate.pipeline.context import InvokeContext

PLAIN_TYPES = {str, bool, float, int, list, dict, Any, None, NoneType, inspect.Parameter.empty}
"""Hints whose JSON form is what the function wants to be given."""
NO_SCHEMA = (PydanticSchemaGenerationError, PydanticUserError, PydanticUndefinedAnnotation, TypeError)
"""The errors of pydantic for a hint that it can't describe."""
BY_PLACE = {
    inspect.Parameter.VAR_POSITIONAL: "take a list in place of *args",
    inspect.Parameter.POSITIONAL_ONLY: "remove the / from the parameters",
}
"""Parameters that can't be passed by name, and what to do about them."""
_SECTION = re.compile(r"^(Args|Arguments|Parameters|Params|Returns|Raises|Yields|Examples?|Notes?)\s*:\s*$")
_ARGUMENT = re.compile(r"^(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_SPHINX = re.compile(r"^:param\s+(?:[\w\[\], .|]+\s+)?\*{0,2}(\w+)\s*:\s*(.*)$")
_FIELD = re.compile(r"^:\w+[^:]*:(\s|$)")
USABLE = "use str, int, float, bool, list, dict, Literal, an enum, a date, a dataclass or a pydantic model"


class FunctionSchema:
    """The schema and the binding of one function, read once."""

    def __init__(self, tool_name: str, function: Any, described: dict[str, str], *, skip_self: bool) -> None:
        self._tool_name = tool_name
        signature = self._read(function)
        parameters = list(signature.parameters.values())[1 if skip_self else 0 :]
        if parameters and parameters[0].name == "self" and parameters[0].annotation is inspect.Parameter.empty:
            raise self._refuse("", "a method cannot be a tool: put @tool above the class, and name the method `execute`")
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
            if parameter.kind in BY_PLACE:
                raise self._refuse(path, f"arguments are passed by name: {BY_PLACE[parameter.kind]}")
            if isinstance(parameter.default, FieldInfo):
                self._filled.add(f"p{len(self._names)}")
            plain = plain and _is_plain(hint) and not self._filled
            plain = plain and public_name(parameter.name) == parameter.name
            fields[f"p{len(self._names)}"] = _field(parameter, described.get(parameter.name))
            self._names.append(parameter.name)
        try:
            self._model = create_model(f"{tool_name}_arguments", **fields)
            schema = self._model.model_json_schema(by_alias=True)
        except NO_SCHEMA as error:
            raise self._refuse(*_at_fault(parameters, error)) from error
        try:
            self.output_schema = _output_schema(signature.return_annotation)
        except NO_SCHEMA as error:
            raise self._refuse("output_schema", _unusable(signature.return_annotation, error)) from error
        self.input_schema = _tidy(schema) | {"additionalProperties": open_ended}
        self.input_schema.setdefault("properties", {})
        self.bind = None if plain else self._through_model

    def _read(self, function: Any) -> inspect.Signature:
        try:
            return inspect.signature(function, eval_str=True)
        except NameError as error:
            fix = "import it, and not only under `if TYPE_CHECKING`"
            raise self._refuse("", f"the hint {error.name} is not defined: {fix}") from error
        except (TypeError, ValueError, SyntaxError) as error:
            raise self._refuse("", f"its hints cannot be read: {error}") from error

    def _through_model(self, arguments: dict[str, Any]) -> dict[str, Any]:
        made = self._model.model_validate(arguments)
        given = {
            name: getattr(made, f"p{index}")
            for index, name in enumerate(self._names)
            if f"p{index}" in made.model_fields_set or f"p{index}" in self._filled
        }
        known = set(map(public_name, self._names))
        extra = {name: value for name, value in arguments.items() if name not in known}
        return given | extra

    def _refuse(self, path: str, message: str) -> DefinitionError:
        return DefinitionError(self._tool_name, [Fault(path, message)])


def public_name(parameter: str) -> str:
    """The name of the argument for a parameter: the same, but `from` for `from_`, since no parameter can be a keyword."""
    bare = parameter.removesuffix("_")
    return bare if iskeyword(bare) else parameter


def _field(parameter: inspect.Parameter, described: str | None) -> tuple[Any, Any]:
    """Hint and default for pydantic, under the argument's name whatever it is, with the docstring's words unless
    `Annotated[…, Field(description=…)]` or a `Field` default already has some."""
    hint = Any if parameter.annotation is parameter.empty else parameter.annotation
    given = [*getattr(hint, "__metadata__", ()), parameter.default]
    named: dict[str, Any] = {"alias": public_name(parameter.name)}
    if described and not any(isinstance(part, FieldInfo) and part.description for part in given):
        named["description"] = described
    return Annotated[hint, Field(**named)], ... if parameter.default is parameter.empty else parameter.default


def _is_plain(hint: Any, *, inside: bool = False) -> bool:
    """Tells whether the JSON of a valid argument is what the function wants. Inside a list, 3.0 may stand for 3."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return all(_is_plain(part, inside=inside) for part in parts)
    if origin in (list, dict):
        return parts[:-1] in ((), (str,), (Any,)) and _is_plain(parts[-1], inside=True)
    if origin is Literal:
        return all(type(value) in (str, int, bool, NoneType) for value in parts)
    try:
        return origin is None and hint in PLAIN_TYPES and not (inside and hint is int)
    except TypeError:
        return False


def _at_fault(parameters: list[inspect.Parameter], error: Exception) -> tuple[str, str]:
    """The path of the first parameter whose hint has no schema, and what to do about it."""
    for parameter in parameters:
        try:
            create_model("one", p=_field(parameter, None)).model_json_schema()
        except NO_SCHEMA as its_own:
            return f"input_schema.properties.{parameter.name}", _unusable(parameter.annotation, its_own)
    return "input_schema", _first_line(error)


def _unusable(hint: Any, error: Exception) -> str:
    if isinstance(error, PydanticSchemaGenerationError) or "JsonSchema" in _first_line(error):
        return f"the hint {getattr(hint, '__name__', hint)} has no JSON form: {USABLE}"
    return _first_line(error)


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


# -- docstrings


class Docstring(NamedTuple):
    """The parts of a docstring that a definition uses."""

    summary: str
    arguments: dict[str, str]


def read_docstring(text: str) -> Docstring:
    summary: list[str] = []
    arguments: dict[str, str] = {}
    section, indent, current = "", "", ""
    for line in text.splitlines():
        stripped = line.strip()
        if heading := _SECTION.match(stripped):
            section, indent, current = heading[1], "", ""
        elif sphinx := _SPHINX.match(stripped):
            section, indent, current = ":param", "", sphinx[1]
            arguments[current] = sphinx[2]
        elif _FIELD.match(stripped):
            section, current = ":field", ""
        elif section.startswith(("Arg", "Param")) and (found := _ARGUMENT.match(line)) and indent in ("", found[1]):
            indent, current = found[1], found[2]
            arguments[current] = found[3]
        elif current and stripped and line[: len(indent) or 1].isspace():
            arguments[current] = f"{arguments[current]} {stripped}".strip()
        elif section and stripped:
            current = ""  # what follows is about something else
        elif not section:
            summary.append(stripped)
    paragraph = "\n".join(summary).strip().split("\n\n")[0]
    return Docstring(" ".join(paragraph.split()), {name: said for name, said in arguments.items() if said})

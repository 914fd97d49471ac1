"""The fields of a custom tool's file as those of a `Tool`: document E's names, and ours, in either spelling."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from toolgate.errors import CODES, Fault, nearest, unknown
from toolgate.model import Cost, Example, Runtime, UnitCost

REQUIRED_FIELDS = ("name", "description", "schema", "code")
TOOL_FIELDS = {
    "name": "name", "description": "description", "schema": "input_schema", "enabled": "enabled",
    "tokenCost": "declared_tokens", "version": "version", "timeout": "timeout", "outputSchema": "output_schema",
    "category": "category", "requiresPermission": "requires_permission", "tags": "tags", "cost": "cost",
}  # fmt: skip
"""What the file's fields are called in a `Tool`."""
PROGRAM_FIELDS = {"code": "code", "runtime": "runtime", "examples": "examples"}
PERMISSIONS = {"allowlist": "allowlist", "autoAccept": "auto_accept", "riskLevel": "risk_level"}
"""The same in its `ToolProgram`."""
TOOL_FILE_FIELDS = (*TOOL_FIELDS, *PROGRAM_FIELDS, "permissions")
MEANT = {"input_schema": "schema", "inputSchema": "schema", "parameters": "schema", "args": "arguments"}
"""What others call our fields."""
TOLD_AS: dict[str, tuple[str, ...]] = {
    **{ours: (theirs,) for theirs, ours in TOOL_FIELDS.items()},
    **{f"program.{ours}": (theirs,) for theirs, ours in PROGRAM_FIELDS.items()},
    **{f"program.{ours}": ("permissions", theirs) for theirs, ours in PERMISSIONS.items()},
}
RUNTIMES: tuple[str, ...] = get_args(Runtime)
NO_MAPPING = "it must hold names and values"
MAX_ADVICE = 10
"""Unknown names for which the nearest known one is looked for."""

Steps = tuple[str | int, ...]


class FieldFault(NamedTuple):
    """Something wrong with a field of the file."""

    steps: Steps
    message: str


def tool_fields(value: Any) -> tuple[dict[str, Any], list[FieldFault]]:
    """The fields of a `Tool`, and what is wrong with the file's fields, as far as the `Tool` itself can't tell."""
    wrong: list[FieldFault] = []
    if not isinstance(value, dict):
        return {}, [FieldFault((), f"{NO_MAPPING}, such as `name: my_tool`")]
    given = {name: part for name, part in _named(value, TOOL_FILE_FIELDS, (), wrong).items() if part is not None}
    if "runtime" in given and given["runtime"] not in RUNTIMES:  # what else is wrong follows from it, or can wait
        return {}, [FieldFault(("runtime",), unknown(given["runtime"], RUNTIMES))]
    wrong += [FieldFault((name,), "it is missing") for name in REQUIRED_FIELDS if name not in given]
    tool = {ours: given[theirs] for theirs, ours in TOOL_FIELDS.items() if theirs in given}
    program = {ours: given[theirs] for theirs, ours in PROGRAM_FIELDS.items() if theirs in given}
    program |= _permissions(given.get("permissions", {}), wrong)
    if isinstance(program.get("examples"), list):
        program["examples"] = [_example(part, number, wrong) for number, part in enumerate(program["examples"])]
    if "cost" in tool:
        tool["cost"] = _cost(tool["cost"], wrong)
    tokens = tool.get("declared_tokens")
    if isinstance(tokens, int | float) and tokens < 0:
        wrong.append(FieldFault(("tokenCost",), "it can't be less than 0"))
    return {**tool, "program": program, "kind": "sandbox", "source": "custom"}, wrong


def _permissions(value: Any, wrong: list[FieldFault]) -> dict[str, Any]:
    at: Steps = ("permissions",)
    if not isinstance(value, dict):
        wrong.append(FieldFault(at, NO_MAPPING))
        return {}
    given = _named(value, tuple(PERMISSIONS), at, wrong)
    allowlist = given.get("allowlist")
    for number, command in enumerate(allowlist if isinstance(allowlist, list) else []):
        if isinstance(command, str) and (not command.split() or not command.isprintable()):
            wrong.append(FieldFault((*at, "allowlist", number), "it is no beginning of a command, such as `npm test`"))
    return {PERMISSIONS[name]: part for name, part in given.items()}


def _example(example: Any, number: int, wrong: list[FieldFault]) -> Any:
    at: Steps = ("examples", number)
    if not isinstance(example, dict):
        wrong.append(FieldFault(at, f"{NO_MAPPING}, such as `arguments: {{name: Ada}}`"))
        return example
    fields = _named(example, tuple(Example.model_fields), at, wrong)
    code = fields.get("error")
    if isinstance(code, str) and code not in CODES:
        near = nearest(code, CODES)
        wrong.append(FieldFault((*at, "error"), f"there is no such code{f'; did you mean {near}?' if near else ''}"))
    if code is not None and "output" in fields:
        wrong.append(FieldFault((*at, "error"), "an example ends with an output or with an error, not with both"))
    return fields


def _cost(cost: Any, wrong: list[FieldFault]) -> Any:
    """Dollars a call, or all of a `Cost`."""
    if isinstance(cost, int | float | str) and not isinstance(cost, bool):
        return {"fixed": str(cost)}
    if not isinstance(cost, dict):
        return cost
    fields = _named(cost, [_camel(name) for name in Cost.model_fields], ("cost",), wrong)
    unit = fields.get("perUnit")
    if isinstance(unit, dict):
        fields["perUnit"] = _named(unit, tuple(UnitCost.model_fields), ("cost", "perUnit"), wrong)
    return {_snake(name): part for name, part in fields.items()}


def _named(mapping: Mapping[str, Any], known: Sequence[str], at: Steps, wrong: list[FieldFault]) -> dict[str, Any]:
    """A mapping by our names, whichever way the file spells them; what has no such name is wrong."""
    names = {spelling: name for name in known for spelling in (name, _snake(name))}
    fields: dict[str, Any] = {}
    for key, value in mapping.items():
        name = names.get(key)
        if name is None:
            advice = f"; {_advice(key, known, names)}" if len(wrong) < MAX_ADVICE else ""
            wrong.append(FieldFault((*at, key), f"there is no such field{advice}"))
        elif name in fields:
            wrong.append(FieldFault((*at, key), f"{name} stands there already, in its other spelling"))
        else:
            fields[name] = value
    return fields


def _advice(key: str, known: Sequence[str], spellings: Iterable[str]) -> str:
    near = MEANT[key] if MEANT.get(key) in known else nearest(key, spellings)
    return f"did you mean {near}?" if near else f"there are {', '.join(known)}"


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


# -- back to the file


def wrong_in_file(fault: Fault, value: Any) -> FieldFault:
    """A fault of the definition, by the names that its file has for it."""
    parts = fault.path.split(".") if fault.path else []
    steps: Steps = tuple(parts)
    for ours, theirs in TOLD_AS.items():
        if fault.path == ours or fault.path.startswith(f"{ours}."):
            steps = (*theirs, *parts[ours.count(".") + 1 :])
    whole, found = found_at(value, steps)
    message = fault.message
    if message == "Input should be a valid string" and isinstance(found, int | float):
        message = "it must be text: put it in quotes"
    return FieldFault(whole if len(whole) == len(steps) else steps, message)


def found_at(value: Any, steps: Steps) -> tuple[Steps, Any]:
    """How far a path leads into a file's value, as the file spells it, and what is there."""
    found: list[str | int] = []
    for step in steps:
        if isinstance(value, list) and str(step).isdecimal() and int(step) < len(value):
            found.append(int(step))
        elif isinstance(value, dict) and (step in value or _snake(str(step)) in value):
            found.append(str(step) if step in value else _snake(str(step)))
        else:
            break
        value = value[found[-1]]
    return tuple(found), value

"""One custom tool: a YAML file that describes it and holds its code, made into a catalog entry.

Whatever is wrong with it is said with its line and column. Python is compiled here, without running it; what only the
sandbox can compile is checked there, and `ToolFile.problem` says where in the file its complaint belongs.
"""

import os
import stat
import symtable
import warnings
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, get_args

from toolgate.errors import CODES, DefinitionError, Fault, ToolgateError, nearest, unknown
from toolgate.model import TIERS, Capability, Cost, Entry, Example, Risk, Runtime, Source, Tier, Tool, ToolProgram, UnitCost
from toolgate.registry.catalog import ToolProblem
from toolgate.registry.compile import DefinitionRules, compile_entry, definition
from toolgate.yamltext import MAX_YAML_BYTES, Position, YamlDocument, YamlError, read_yaml

TIER_OF_RISK: dict[Risk | None, Tier] = {
    "low": "read_only", "medium": "write", None: "write", "high": "execute", "critical": "execute",
}  # fmt: skip
ASKS = (Capability(action="run", description="Run the tool's code.", requires_confirmation=True),)
"""The meaning of `autoAccept: false`: a person is asked before each call."""
MAX_SHOWN_FAULTS = 10
NO_EXECUTE = "it has no function execute(args, context)"
REQUIRED_FIELDS = ("name", "description", "schema", "code")
TOOL_FIELDS = {
    "name": "name", "description": "description", "schema": "input_schema", "enabled": "enabled",
    "tokenCost": "declared_tokens", "version": "version", "timeout": "timeout", "outputSchema": "output_schema",
    "category": "category", "requiresPermission": "requires_permission", "tags": "tags", "cost": "cost",
    "examples": "examples", "route": "route", "background": "background",
}  # fmt: skip
"""The names that the file's fields have in a `Tool`."""
PROGRAM_FIELDS = {"code": "code", "runtime": "runtime"}
PERMISSIONS = {"allowlist": "allowlist", "autoAccept": "auto_accept", "riskLevel": "risk_level"}
"""The same in its `ToolProgram`."""
TOOL_FILE_FIELDS = (*TOOL_FIELDS, *PROGRAM_FIELDS, "permissions")
MEANT = {"input_schema": "schema", "inputSchema": "schema", "parameters": "schema", "args": "arguments"}
"""Names that others have for our fields."""
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


class ToolFileError(DefinitionError):
    """A file is no custom tool."""

    def __init__(self, problem: ToolProblem, faults: Iterable[Fault] = ()) -> None:
        self.name = ""
        self.faults = tuple(faults)
        self.problem = problem
        ToolgateError.__init__(self, f"{problem.where}: {problem.why}.")


class CodeLocation(NamedTuple):
    """The place in its file at which the code of a tool begins."""

    file: Path
    place: Position
    indent: int | None
    """Its indentation, if it stands in lines of its own; None if it is a text in quotes, say."""

    def problem(self, message: str, line: int | None = None, column: int | None = None) -> ToolProblem:
        """Something that is wrong with the code, at a line and column of it, both from 1."""
        if line is None:
            return ToolProblem(_where(self.file, self.place), f"code: {message}")
        if self.indent is None:
            beside = "" if column is None else f", column {column}"
            return ToolProblem(_where(self.file, self.place), f"line {line} of the code{beside}: {message}")
        place = Position(self.place.line + max(line, 1) - 1, self.indent + max(column or 1, 1))
        return ToolProblem(_where(self.file, place), f"code: {message}")


class ToolFile(NamedTuple):
    """A custom tool and the file that it was read from."""

    file: Path
    entry: Entry
    program: ToolProgram
    code: CodeLocation
    digest: str
    """Of the file's content."""


def read_tool_file(file: Path) -> bytes:
    """The content of a file, if that is a regular one and not too long. A pipe or a device is not waited for."""
    try:
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        with os.fdopen(handle, "rb") as opened:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ToolFileError(ToolProblem(str(file), "it is no regular file"))
            content = opened.read(MAX_YAML_BYTES + 1)
    except OSError as error:
        raise ToolFileError(ToolProblem(str(file), f"it cannot be read: {error.strerror or error}")) from None
    except ValueError:  # a NUL in its name
        raise ToolFileError(ToolProblem(repr(str(file)), "it cannot be read: that is not a valid name of a file")) from None
    if len(content) > MAX_YAML_BYTES:
        raise ToolFileError(ToolProblem(str(file), f"it has more than {MAX_YAML_BYTES:,} bytes"))
    return content


def parse_tool_file(
    content: bytes,
    file: Path,
    rules: DefinitionRules = DefinitionRules(),  # noqa: B008 - it is frozen
    source: Source = "custom",
) -> ToolFile:
    """The tool that a file's content describes; raises ToolFileError. `source`: teams for a file of an organisation."""
    try:
        document = read_yaml(content)
    except YamlError as error:
        raise ToolFileError(ToolProblem(_where(file, error.position), error.message)) from None
    fields, wrong = tool_fields(document.value)
    if wrong:
        raise _refused(file, document, wrong)
    try:
        tool, program = _governed(definition({**fields, "source": source}))
        code = _code_place(file, document, content, program)
        if not _defines_execute(program, code):
            raise ToolFileError(code.problem(NO_EXECUTE))
        entry = compile_entry(tool, program, (), rules)
    except ToolFileError:
        raise
    except DefinitionError as error:
        raise _refused(file, document, [wrong_in_file(fault, document.value) for fault in error.faults]) from None
    return ToolFile(file, entry, program, code, digest_of(content))


def digest_of(content: bytes) -> str:
    return sha256(content).hexdigest()


def _governed(tool: Tool) -> tuple[Tool, ToolProgram]:
    """The tool with what its permissions mean: the tier of its risk, and whether it asks each time."""
    program = tool.program
    if program is None:
        raise DefinitionError(tool.name, [Fault("program", "it has no code")])
    asks = ASKS if program.auto_accept is False else ()
    tier = TIER_OF_RISK[program.risk_level]
    if tool.source == "teams":  # code from elsewhere is not harmless because it says so
        tier = max(tier, "execute" if program.allowlist else "write", key=TIERS.index)
    return tool.model_copy(update={"tier": tier, "capabilities": asks}), program


# -- the code


def _code_place(file: Path, document: YamlDocument, content: bytes, program: ToolProgram) -> CodeLocation:
    begins = document.blocks.get(("code",))
    if begins is None:
        return CodeLocation(file, document.position(("code",)) or Position(1, 1), None)
    written = content.decode("utf-8-sig").replace("\r\n", "\n").split("\n")[begins - 1 :]
    for shown, line in zip(written, program.code.split("\n"), strict=False):
        if line.strip() and shown.endswith(line):
            return CodeLocation(file, Position(begins, 1), len(shown) - len(line))
    return CodeLocation(file, Position(begins, 1), 0)


def _defines_execute(program: ToolProgram, code: CodeLocation) -> bool:
    """True if the code gives a meaning to the name `execute`, as far as that can be told without running it. Python is
    compiled, to see whether it can be."""
    if program.runtime != "python":
        return "execute" in program.code
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape is no reason to refuse it
            compile(program.code, "code", "exec", dont_inherit=True)
            symbols = symtable.symtable(program.code, "code", "exec").get_symbols()
    except SyntaxError as error:
        raise ToolFileError(code.problem(error.msg, error.lineno, error.offset)) from None
    except (MemoryError, RecursionError):
        raise ToolFileError(code.problem("it is nested too deeply to be compiled")) from None
    except (ValueError, OverflowError) as error:
        raise ToolFileError(code.problem(f"it cannot be compiled: {error}")) from None
    return any(symbol.get_name() == "execute" and (symbol.is_assigned() or symbol.is_imported()) for symbol in symbols)


# -- words


def _refused(file: Path, document: YamlDocument, wrong: list[FieldFault]) -> ToolFileError:
    places = [document.position(found_at(document.value, fault.steps)[0]) for fault in wrong]
    words = [
        f"{_dotted(fault.steps)}{f' (line {place.line})' if number and place else ''}: {fault.message}"
        for number, (fault, place) in enumerate(zip(wrong[:MAX_SHOWN_FAULTS], places, strict=False))
    ]
    if len(wrong) > MAX_SHOWN_FAULTS:
        words.append(f"and {len(wrong) - MAX_SHOWN_FAULTS} more")
    faults = [Fault(_dotted(fault.steps), fault.message) for fault in wrong]
    return ToolFileError(ToolProblem(_where(file, places[0]), "; ".join(words)), faults)


def _dotted(steps: Steps) -> str:
    return ".".join(str(step)[:64] for step in steps) or "(top)"


def _where(file: Path, place: Position | None) -> str:
    return str(file) if place is None else f"{file}:{place.line}:{place.column}"


# -- the file's fields as those of a `Tool`: its names, and ours, in either spelling


def tool_fields(value: Any) -> tuple[dict[str, Any], list[FieldFault]]:
    """The fields of a `Tool`, and what is wrong with the file's fields, as far as the `Tool` itself cannot tell."""
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
    if isinstance(tool.get("examples"), list):
        tool["examples"] = [_example(part, number, wrong) for number, part in enumerate(tool["examples"])]
    if "cost" in tool:
        tool["cost"] = _cost(tool["cost"], wrong)
    tokens = tool.get("declared_tokens")
    if isinstance(tokens, int | float) and tokens < 0:
        wrong.append(FieldFault(("tokenCost",), "it cannot be less than 0"))
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
    """The part of a path that leads into a file's value, as the file spells it, and what is there."""
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

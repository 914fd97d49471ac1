"""One custom tool: a YAML file with the fields of document E, made into a catalog entry.

Whatever is wrong with it is said with its line and column. Python is compiled here, without running it; what only the
sandbox can compile is checked there, and `ToolFile.problem` says where in the file its complaint belongs.
"""

import os
import stat
import symtable
import warnings
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from toolgate.errors import DefinitionError, Fault, ToolgateError
from toolgate.model import Capability, Entry, Risk, Tier, Tool, ToolProgram
from toolgate.registry.catalog import ToolProblem
from toolgate.registry.compile import DefinitionRules, compile_entry, definition
from toolgate.sandbox.custom.fields import FieldFault, Steps, found_at, tool_fields, wrong_in_file
from toolgate.yamltext import MAX_YAML_BYTES, Position, YamlDocument, YamlError, read_yaml

TIER_OF_RISK: dict[Risk | None, Tier] = {
    "low": "read_only", "medium": "write", None: "write", "high": "execute", "critical": "execute",
}  # fmt: skip
ASKS = (Capability(action="run", description="Run the tool's code.", requires_confirmation=True),)
"""What `autoAccept: false` means: a person is asked before each call."""
MAX_SHOWN_FAULTS = 10
NO_EXECUTE = "it has no function execute(args, context)"


class ToolFileError(DefinitionError):
    """A file is no custom tool."""

    def __init__(self, problem: ToolProblem, faults: Iterable[Fault] = ()) -> None:
        self.name = ""
        self.faults = tuple(faults)
        self.problem = problem
        ToolgateError.__init__(self, f"{problem.where}: {problem.why}.")


class CodeLocation(NamedTuple):
    """Where the code of a tool begins in its file."""

    file: Path
    place: Position
    indent: int | None
    """How far it is indented, if it stands in lines of its own; None if it is a text in quotes, say."""

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
        raise ToolFileError(ToolProblem(str(file), f"it can't be read: {error.strerror or error}")) from None
    except ValueError:  # a NUL in its name
        raise ToolFileError(ToolProblem(repr(str(file)), "it can't be read: that is no name of a file")) from None
    if len(content) > MAX_YAML_BYTES:
        raise ToolFileError(ToolProblem(str(file), f"it has more than {MAX_YAML_BYTES:,} bytes"))
    return content


def parse_tool_file(content: bytes, file: Path, rules: DefinitionRules = DefinitionRules()) -> ToolFile:  # noqa: B008 - it is frozen
    """The tool that a file's content describes; raises ToolFileError."""
    try:
        document = read_yaml(content)
    except YamlError as error:
        raise ToolFileError(ToolProblem(_where(file, error.position), error.message)) from None
    fields, wrong = tool_fields(document.value)
    if wrong:
        raise _refused(file, document, wrong)
    try:
        tool, program = _governed(definition(fields))
        code = _code_place(file, document, content, program)
        _check_code(program, code)
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
    return tool.model_copy(update={"tier": TIER_OF_RISK[program.risk_level], "capabilities": asks}), program


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


def _check_code(program: ToolProgram, code: CodeLocation) -> None:
    """Refuse code that can't be a tool, as far as that can be told without running it."""
    defines = _defines_execute(program.code, code) if program.runtime == "python" else "execute" in program.code
    if not defines:
        raise ToolFileError(code.problem(NO_EXECUTE))


def _defines_execute(python: str, code: CodeLocation) -> bool:
    """True if Python code gives a meaning to the name `execute`. It is compiled, to see whether it can be, and not run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape is no reason to refuse it
            compile(python, "code", "exec", dont_inherit=True)
            symbols = symtable.symtable(python, "code", "exec").get_symbols()
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

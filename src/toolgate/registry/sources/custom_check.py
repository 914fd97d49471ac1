"""Has the sandbox compile the code of a custom tool, without running it."""

from typing import TYPE_CHECKING, Literal

from toolgate.model import Runtime
from toolgate.registry.catalog import Problem
from toolgate.registry.sources.custom_file import ToolFile

if TYPE_CHECKING:
    from toolgate.sandbox.engine import Sandbox

LANGUAGES: dict[Runtime, Literal["typescript", "javascript"]] = {"typescript": "typescript", "node": "javascript"}
"""What the sandbox compiles. Python is compiled when its file is read."""


async def compiled(tool: ToolFile, sandbox: "Sandbox") -> Problem | None:
    """What is wrong with the code, and where in the file; None if it compiles. Raises a CallError if there is no sandbox."""
    language = LANGUAGES.get(tool.program.runtime)
    if language is None:
        return None
    failure = await sandbox.check(language, tool.program.code)
    return None if failure is None else tool.code.problem(failure.message, failure.line, failure.column)

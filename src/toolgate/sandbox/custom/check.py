"""Has the sandbox compile the code of a custom tool, without running it."""

import contextlib
import json
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from toolgate.model import Runtime
from toolgate.registry.catalog import ToolProblem
from toolgate.sandbox.custom.file import ToolFile
from toolgate.trust import others_write, read_regular, replace_private
from toolgate.version import VERSION

if TYPE_CHECKING:
    from toolgate.sandbox.engine import Sandbox

LANGUAGES: dict[Runtime, Literal["typescript", "javascript"]] = {"typescript": "typescript", "node": "javascript"}
"""What the sandbox compiles. Python is compiled when its file is read."""


MAX_KEPT = 1_000
"""Digests of code that are kept at most."""


class CompiledCode:
    """Code that is known to compile, by its digest, also in later processes: to list its tool needs no sandbox."""

    def __init__(self, sandbox: "Sandbox", file: Path | None) -> None:
        """`file`: where the digests are kept, outside of any project: a clone or an archive could bring them along with code
        that does not compile. None: nowhere."""
        self._sandbox = sandbox
        self._file = file
        self._known: dict[str, None] | None = None

    async def check(self, tool: ToolFile) -> ToolProblem | None:
        """The fault in the code, as `compiled` says it."""
        if tool.program.runtime not in LANGUAGES:
            return None
        digest = sha256(f"{VERSION}\0{tool.program.runtime}\0{tool.program.code}".encode()).hexdigest()
        if self._known is None:
            self._known = dict.fromkeys(self._read())
        if digest in self._known:
            return None
        wrong = await compiled(tool, self._sandbox)
        if wrong is None:
            self._known[digest] = None
            self._write()
        return wrong

    def _read(self) -> list[str]:
        """The digests on record; none if somebody else could have written them."""
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            if self._file is not None and not any(others_write(path.stat()) for path in (self._file, self._file.parent)):
                return [digest for digest in json.loads(read_regular(self._file)) if isinstance(digest, str)]
        return []

    def _write(self) -> None:
        """Adds what is known to the record. Where it can't be written, the code is compiled again the next time."""
        if self._file is not None:
            digests = dict.fromkeys([*self._read(), *(self._known or ())])  # other processes add to it as well
            with contextlib.suppress(OSError):
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                replace_private(self._file, json.dumps(list(digests)[-MAX_KEPT:]))


async def compiled(tool: ToolFile, sandbox: "Sandbox") -> ToolProblem | None:
    """What is wrong with the code, and where in the file; None if it compiles. Raises a CallError if there is no sandbox."""
    language = LANGUAGES.get(tool.program.runtime)
    if language is None:
        return None
    failure = await sandbox.check(language, tool.program.code)
    return None if failure is None else tool.code.problem(failure.message, failure.line, failure.column)

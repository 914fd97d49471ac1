"""Has the sandbox compile the code of a custom tool, without running it."""

import contextlib
import json
import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from toolgate.model import Runtime
from toolgate.registry.catalog import Problem
from toolgate.registry.sources.custom_file import ToolFile
from toolgate.trust import read_regular

if TYPE_CHECKING:
    from toolgate.sandbox.engine import Sandbox

LANGUAGES: dict[Runtime, Literal["typescript", "javascript"]] = {"typescript": "typescript", "node": "javascript"}
"""What the sandbox compiles. Python is compiled when its file is read."""


MAX_KEPT = 1_000
"""Digests of code that are kept at most."""


class CompiledCode:
    """Code that is known to compile, by its digest, also in later processes: to list its tool needs no sandbox."""

    def __init__(self, sandbox: "Sandbox", file: Path | None) -> None:
        """`file`: where the digests are kept; None: nowhere."""
        self._sandbox = sandbox
        self._file = file
        self._known: dict[str, None] | None = None

    async def check(self, tool: ToolFile) -> Problem | None:
        """What is wrong with the code, as `compiled` says it."""
        if tool.program.runtime not in LANGUAGES:
            return None
        digest = sha256(f"{tool.program.runtime}\0{tool.program.code}".encode()).hexdigest()
        if self._known is None:
            self._known = dict.fromkeys(self._read())
        if digest in self._known:
            return None
        wrong = await compiled(tool, self._sandbox)
        if wrong is None:
            self._known[digest] = None
            self._write(list(self._known)[-MAX_KEPT:])
        return wrong

    def _read(self) -> list[str]:
        with contextlib.suppress(OSError, ValueError, TypeError):
            found = json.loads(read_regular(self._file)) if self._file is not None else []
            return [digest for digest in found if isinstance(digest, str)]
        return []

    def _write(self, digests: list[str]) -> None:
        """Replaces the file. One that can't be written means that the code is compiled again the next time."""
        if self._file is None:
            return
        fresh = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            fresh.write_text(json.dumps(digests))
            fresh.replace(self._file)


async def compiled(tool: ToolFile, sandbox: "Sandbox") -> Problem | None:
    """What is wrong with the code, and where in the file; None if it compiles. Raises a CallError if there is no sandbox."""
    language = LANGUAGES.get(tool.program.runtime)
    if language is None:
        return None
    failure = await sandbox.check(language, tool.program.code)
    return None if failure is None else tool.code.problem(failure.message, failure.line, failure.column)

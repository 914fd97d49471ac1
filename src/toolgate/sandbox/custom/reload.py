"""Takes what changes in a folder of custom tools into the catalog, while calls go on.

At the start nothing is compiled in the sandbox: whoever only calls a tool would wait for it. `check` does it, for whoever
lists tools, and soon after the start in a process that stays: a tool whose code does not compile is taken out again. A file
that changes later is compiled first, and if it can't be, its tool stays as it was.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

from toolgate.errors import CallError, DefinitionError
from toolgate.model import Entry
from toolgate.registry.catalog import PROBLEMS, Catalog, ToolProblem
from toolgate.sandbox.custom.file import ToolFile
from toolgate.sandbox.custom.folder import CustomFolder, LoadedTool, RemovedTool
from toolgate.sandbox.engine import LANGUAGES, Sandbox
from toolgate.tasks import repeat, start_task
from toolgate.trust import others_write, read_regular, replace_file
from toolgate.version import VERSION

FOLDER_POLL_SECONDS = 1.0
"""How often the folder is looked at."""
MAX_KEPT = 1_000
"""Digests of code that are kept at most."""

Check = Callable[[ToolFile], Awaitable[ToolProblem | None]]
logger = logging.getLogger(PROBLEMS)


class CustomTools:
    """One for each App. `register` puts an entry into the catalog and on record; `forget` drops what was decided before."""

    def __init__(
        self,
        folder: CustomFolder,
        catalog: Catalog,
        register: Callable[[Entry], object],
        forget: Callable[[], object],
        check: Check,
    ) -> None:
        self._folder = folder
        self._catalog = catalog
        self._register = register
        self._forget = forget
        self._check = check
        self._watching: asyncio.Task[None] | None = None
        self._unchecked: list[LoadedTool] = []
        """Tools that were taken as they are, without their code having been compiled."""
        self._checking = asyncio.Lock()

    @property
    def problems(self) -> list[ToolProblem]:
        return self._folder.problems

    def start(self) -> None:
        """Take all that is there, and from now on what changes."""
        for change in self._folder.changes():
            if isinstance(change, LoadedTool):
                self._take(change)
                self._unchecked.append(change)
        self._watching = start_task(
            repeat(FOLDER_POLL_SECONDS, self._look_again, logger, "custom tools could not be looked at")
        )

    async def check(self) -> None:
        """Take out what was there at the start and does not compile. Without a sandbox, nothing is known to be wrong."""
        async with self._checking:  # whoever comes second has to find it done
            while self._unchecked:
                change = self._unchecked.pop(0)
                try:
                    wrong = await self._wrong(change)
                except asyncio.CancelledError:
                    self._unchecked.insert(0, change)  # for the next who asks
                    raise
                if wrong is not None and self._held(change.entry.name) is change.entry:
                    self._catalog.remove(change.entry.name)
                    self._forget()
                    self._refuse(change, wrong)

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def look(self) -> None:
        for change in self._folder.changes():
            if isinstance(change, RemovedTool):
                if self._held(change.name) is not None:
                    self._catalog.remove(change.name)
                    self._forget()
            elif isinstance(change, LoadedTool):
                wrong = await self._wrong(change)
                if wrong is None:
                    self._take(change)
                else:
                    self._refuse(change, wrong)
            else:
                logger.warning("%s: %s", *change)

    async def _wrong(self, change: LoadedTool) -> ToolProblem | None:
        try:
            return await self._check(change.tool)
        except CallError:  # without a sandbox it does not run either, and says why
            return None

    def _take(self, change: LoadedTool) -> None:
        """Put a tool in the place of what its file held before. Nothing is awaited in between: no call finds neither."""
        before = None if change.replaces is None else self._held(change.replaces)
        if before is not None:
            self._catalog.remove(before.name)
        try:
            self._register(change.entry)
        except DefinitionError as error:
            if before is not None:
                self._register(before)
            words = "; ".join(str(fault) for fault in error.faults)
            self._refuse(change, ToolProblem(str(change.tool.file), words))

    def _held(self, name: str) -> Entry | None:
        """The custom tool of a name; None if a source that comes before has taken the name over meanwhile."""
        try:
            entry = self._catalog.resolve(name, "")
        except CallError:
            return None
        return entry if entry.tool.source == "custom" else None

    def _refuse(self, change: LoadedTool, problem: ToolProblem) -> None:
        self._folder.refuse(change, problem)
        logger.warning("%s: %s", *problem)

    async def _look_again(self) -> None:
        await self.check()
        await self.look()


class CompiledCode:
    """Code that is known to compile, by its digest, also in later processes: to list its tool needs no sandbox."""

    def __init__(self, sandbox: Sandbox, file: Path | None) -> None:
        """`file`: where the digests are kept, outside of any project: a clone or an archive could bring them along with code
        that does not compile. None: nowhere."""
        self._sandbox = sandbox
        self._file = file
        self._known: dict[str, None] | None = None

    async def check(self, tool: ToolFile) -> ToolProblem | None:
        """The fault in the code, as `compiled` says it."""
        if tool.program.runtime == "python":
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
                replace_file(self._file, json.dumps(list(digests)[-MAX_KEPT:]).encode())


async def compiled(tool: ToolFile, sandbox: Sandbox) -> ToolProblem | None:
    """What is wrong with the code, and where in the file; None if it compiles. Raises a CallError if there is no sandbox."""
    if tool.program.runtime == "python":  # which is compiled when its file is read
        return None
    failure = await sandbox.check(LANGUAGES[tool.program.runtime], tool.program.code)
    return None if failure is None else tool.code.problem(failure.message, failure.line, failure.column)

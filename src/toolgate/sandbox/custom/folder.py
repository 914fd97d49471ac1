"""Custom tools: the YAML files of a folder, and what takes their changes into the catalog, while calls go on.

Looking costs a `stat` for each file; only what has changed is read. A file that becomes wrong leaves its tool as it was
last right: an editor's half-saved file must not take a tool away from those who are using it. A file that is gone takes
its tool along. What is wrong stands in `problems` until it is put right.

At the start nothing is compiled in the sandbox: whoever only calls a tool would wait for it. `CustomTools.check` does it,
for whoever lists tools, and soon after the start in a process that stays: a tool whose code does not compile is taken out
again. A file that changes later is compiled first, and if it can't be, its tool stays as it was.
"""

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from toolgate.errors import CallError, DefinitionError
from toolgate.model import Entry
from toolgate.registry.catalog import PROBLEMS, Catalog, ToolProblem
from toolgate.registry.compile import DefinitionRules
from toolgate.sandbox.custom.yaml_file import ToolFile, ToolFileError, digest_of, parse_tool_file, read_tool_file
from toolgate.sandbox.engine import LANGUAGES, Sandbox
from toolgate.tasks import repeat, start_task
from toolgate.trust import others_write, read_regular, replace_file
from toolgate.version import VERSION

SUFFIXES = (".yml", ".yaml")
FRESH_SECONDS = 2.0
"""A file that was changed so shortly before it was read is read again: the clock of its folder may not tell two changes
apart that come so close."""

Stamp = tuple[int, int, int, int]
"""Tells one content of a file from another: times of modification and change, size, inode."""
FOLDER_POLL_SECONDS = 1.0
MAX_KEPT_DIGESTS = 1_000

Check = Callable[[ToolFile], Awaitable[ToolProblem | None]]
logger = logging.getLogger(PROBLEMS)


class LoadedTool(NamedTuple):
    """A tool that is new, or that has changed."""

    tool: ToolFile
    replaces: str | None
    """The name of the tool that the file held before, which may be another; it is to go when this one comes."""

    @property
    def entry(self) -> Entry:
        return self.tool.entry


class RemovedTool(NamedTuple):
    """A tool whose file is gone."""

    file: Path
    name: str


FolderChange = LoadedTool | RemovedTool | ToolProblem


@dataclass(slots=True)
class _Known:
    """The state of a file."""

    stamp: Stamp | None = None
    settled: bool = False
    """True if the stamp would tell if the file changed again."""
    digest: str | None = None
    holds: str | None = None
    """The tool of this file that is in force."""
    wants: str | None = None
    """The name that it would have if another file did not have it."""
    problem: ToolProblem | None = None


class CustomFolder:
    """The custom tools of a folder. One thread at a time may look."""

    def __init__(
        self, folder: Path, rules: DefinitionRules, refusal: Callable[[Path, bytes], str | None] | None = None
    ) -> None:
        """`refusal` gives why a file with this content is not taken; None if it may be."""
        self._folder = folder
        self._rules = rules
        self._refusal = refusal
        self._files: dict[Path, _Known] = {}
        self._unreadable: ToolProblem | None = None
        """The reason why the folder itself cannot be looked at."""

    @property
    def problems(self) -> list[ToolProblem]:
        """The first fault of each file that has one now."""
        found = [known.problem for _, known in sorted(self._files.items()) if known.problem is not None]
        return found if self._unreadable is None else [self._unreadable, *found]

    def file_of(self, name: str) -> Path | None:
        return next((file for file, known in self._files.items() if known.holds == name), None)

    def changes(self) -> list[FolderChange]:
        """The changes since the last time: first what is gone, then what is new or other, and what is wrong with it."""
        stamps = self._look()
        if stamps is None:
            return []
        gone = [file for file in self._files if file not in stamps]
        settled = {file: held.stamp for file, held in self._files.items() if held.settled}
        changed = [file for file, stamp in stamps.items() if settled.get(file) != stamp]
        if not gone and not changed:
            return []
        found: list[FolderChange] = [
            RemovedTool(file, known.holds) for file in gone if (known := self._files.pop(file)).holds is not None
        ]
        for file in changed:
            found += self._reread(file, stamps[file])
        return found + self._waiting()

    def forget(self) -> list[str]:
        """Begins anew, as if nothing had been read; gives the names of the tools that were in force."""
        held = [known.holds for known in self._files.values() if known.holds is not None]
        self._files.clear()
        return held

    def refuse(self, loaded: LoadedTool, problem: ToolProblem) -> None:
        """Say that a tool was not taken: another source has its name, or its code can't be compiled. What its file held
        before stays in force."""
        known = self._files.get(loaded.tool.file)
        if known is not None and known.digest == loaded.tool.digest:
            known.holds, known.problem = loaded.replaces, problem

    # -- looking

    def _look(self) -> dict[Path, Stamp] | None:
        """The stamps of all files that could be tools, in the order of their names; None if nobody can tell."""
        stamps: dict[Path, Stamp] = {}
        try:
            with os.scandir(self._folder) as listing:
                names = sorted(entry.name for entry in listing)
        except FileNotFoundError:
            names = []
        except OSError as error:
            self._unreadable = ToolProblem(str(self._folder), f"the folder cannot be read: {error.strerror or error}")
            return None
        self._unreadable = None
        for name in names:
            if name.lower().endswith(SUFFIXES) and name[0] not in "._":
                file = self._folder / name
                stamps[file] = _stamp(file)
        return stamps

    def _reread(self, file: Path, stamp: Stamp) -> list[FolderChange]:
        known = self._files.setdefault(file, _Known())
        known.settled = time.time_ns() - max(stamp[:2]) > FRESH_SECONDS * 1e9
        known.stamp = stamp
        try:
            content = read_tool_file(file)
        except ToolFileError as refused:
            return self._wrong(known, None, refused.problem)
        digest = digest_of(content)
        if digest == known.digest:
            return []
        why = self._refusal(file, content) if self._refusal is not None else None
        if why is not None:
            known.settled = False  # a person may trust it as it is: look again
            return self._wrong(known, None, ToolProblem(str(file), why))
        try:
            tool = parse_tool_file(content, file, self._rules)
        except ToolFileError as refused:
            return self._wrong(known, digest, refused.problem)
        known.digest = digest
        return self._take(known, tool)

    def _wrong(self, known: _Known, digest: str | None, problem: ToolProblem) -> list[FolderChange]:
        """Leaves in force what a file held. The fault is told once."""
        told = known.problem == problem
        known.digest, known.wants, known.problem = digest, None, problem
        return [] if told else [problem]

    def _take(self, known: _Known, tool: ToolFile) -> list[FolderChange]:
        name = tool.entry.name
        holder = self.file_of(name)
        if holder is not None and holder != tool.file:
            known.wants = name
            known.problem = ToolProblem(str(tool.file), f"name: {name} is the name of the tool in {holder} already")
            return [known.problem]
        loaded = LoadedTool(tool, known.holds)
        known.holds, known.wants, known.problem = name, None, None
        return [loaded]

    def _waiting(self) -> list[FolderChange]:
        """Files whose name has become free."""
        found: list[FolderChange] = []
        held = {known.holds for known in self._files.values()}
        for file, known in sorted(self._files.items()):
            if known.wants is not None and known.wants not in held:
                held.add(known.wants)
                known.digest = None  # read it again, as if it were new
                found += self._reread(file, known.stamp or _stamp(file))
        return found


def _stamp(file: Path) -> Stamp:
    """All zero for a file that cannot be looked at: reading it says why."""
    try:
        found = file.stat()
    except OSError:
        return 0, 0, 0, 0
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


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

    async def unload(self) -> None:
        """Takes all custom tools out of the catalog; `start` loads them again."""
        await self.stop()
        self._unchecked.clear()
        for name in self._folder.forget():
            if self._held(name) is not None:
                self._catalog.remove(name)
        self._forget()

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
                replace_file(self._file, json.dumps(list(digests)[-MAX_KEPT_DIGESTS:]).encode())


async def compiled(tool: ToolFile, sandbox: Sandbox) -> ToolProblem | None:
    """The fault in the code, and its place in the file; None if it compiles. Raises a CallError if there is no sandbox."""
    if tool.program.runtime == "python":  # which is compiled when its file is read
        return None
    failure = await sandbox.check(LANGUAGES[tool.program.runtime], tool.program.code)
    return None if failure is None else tool.code.problem(failure.message, failure.line, failure.column)

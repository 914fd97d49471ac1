"""Custom tools: the YAML files of a folder, and what has changed in it since one last looked.

Looking costs a `stat` for each file; only what has changed is read. A file that becomes wrong leaves its tool as it was
last right: an editor's half-saved file must not take a tool away from those who are using it. A file that is gone takes
its tool along. What is wrong stands in `problems` until it is put right.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from toolgate.model import Entry
from toolgate.registry.catalog import ToolProblem
from toolgate.registry.compile import DefinitionRules
from toolgate.sandbox.custom.file import (
    ToolFile,
    ToolFileError,
    digest_of,
    parse_tool_file,
    read_tool_file,
)

SUFFIXES = (".yml", ".yaml")
FRESH_SECONDS = 2.0
"""A file that was changed so shortly before it was read is read again: the clock of its folder may not tell two changes
apart that come so close."""

Stamp = tuple[int, int, int, int]
"""What tells one content of a file from another: times of modification and change, size, inode."""


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
    """What is known of a file."""

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
        """Why the folder itself can't be looked at."""

    @property
    def problems(self) -> list[ToolProblem]:
        """What is wrong now: of each file the first thing."""
        found = [known.problem for _, known in sorted(self._files.items()) if known.problem is not None]
        return found if self._unreadable is None else [self._unreadable, *found]

    def file_of(self, name: str) -> Path | None:
        return next((file for file, known in self._files.items() if known.holds == name), None)

    def changes(self) -> list[FolderChange]:
        """What has changed since the last time: first what is gone, then what is new or other, and what is wrong with it."""
        stamps = self._look()
        if stamps is None:
            return []
        gone = [file for file in self._files if file not in stamps]
        changed = [file for file, stamp in stamps.items() if self._may_differ(file, stamp)]
        if not gone and not changed:
            return []
        found: list[FolderChange] = [
            RemovedTool(file, known.holds) for file in gone if (known := self._files.pop(file)).holds is not None
        ]
        for file in changed:
            found += self._reread(file, stamps[file])
        return found + self._waiting()

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
            self._unreadable = ToolProblem(str(self._folder), f"the folder can't be read: {error.strerror or error}")
            return None
        self._unreadable = None
        for name in names:
            if name.lower().endswith(SUFFIXES) and name[0] not in "._":
                file = self._folder / name
                stamps[file] = _stamp(file)
        return stamps

    def _may_differ(self, file: Path, stamp: Stamp) -> bool:
        known = self._files.get(file)
        return known is None or known.stamp != stamp or not known.settled

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
        """What a file held stays in force. What is wrong is told once."""
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
    """All zero for a file that can't be looked at: reading it says why."""
    try:
        found = file.stat()
    except OSError:
        return 0, 0, 0, 0
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino

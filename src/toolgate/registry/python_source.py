"""Tools written in Python: those that ship with Toolgate, files in a folder, and what installed packages offer."""

import importlib
import logging
import os
import pkgutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from toolgate.errors import DefinitionError, described
from toolgate.model import Entry, Source
from toolgate.registry.catalog import PROBLEMS, ToolProblem
from toolgate.registry.compile import DefinitionRules, declared_in, entry_of
from toolgate.registry.declare import keeps_going
from toolgate.registry.python_files import FolderPackage, Refusal

GROUP = "toolgate.tools"

logger = logging.getLogger(PROBLEMS)


class PackageSource:
    """Every tool in the modules of a package."""

    def __init__(self, package: str, source: Source, rules: DefinitionRules) -> None:
        self.name: str = source
        self._package = package
        self._source = source
        self._rules = rules

    def load(self) -> Iterator[Entry | ToolProblem]:
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__, f"{self._package}."):
            yield from _load(module.name, partial(importlib.import_module, module.name), self._source, self._rules)


class FolderSource:
    """Every tool in the Python files of a folder, and in the packages there."""

    name = "python"

    def __init__(self, folder: Path, rules: DefinitionRules, refusal: Refusal | None = None) -> None:
        self._folder = folder
        self._rules = rules
        self._refusal = refusal

    def load(self) -> Iterator[Entry | ToolProblem]:
        if not self._folder.is_dir():
            return
        package = FolderPackage(self._folder, self._refusal)
        package.begin()
        seen: set[int] = set()
        for file in package.files():
            yield from _load(str(file), partial(package.load, file), "python", self._rules, package, seen)


class EntryPointSource:
    """Every tool that an installed package offers under the group `toolgate.tools`: a tool, or a module of tools."""

    name = "python"

    def __init__(self, rules: DefinitionRules) -> None:
        self._rules = rules

    def load(self) -> Iterator[Entry | ToolProblem]:
        for point in _entry_points(tuple((folder, _changed_at(folder)) for folder in sys.path)):
            yield from _load(f"entry point {point.name} ({point.value})", point.load, "python", self._rules)


@lru_cache(maxsize=1)
def _entry_points(_folders: tuple[tuple[str, float], ...]) -> tuple[EntryPoint, ...]:
    """What installed packages offer, looked up again where one was installed since: it means to read a file of each."""
    return tuple(entry_points(group=GROUP))


def _changed_at(folder: str) -> float:
    try:
        return Path(folder).stat().st_mtime
    except OSError:
        return 0.0


def _load(
    where: str,
    get: Callable[[], Any],
    source: Source,
    rules: DefinitionRules,
    folder: FolderPackage | None = None,
    seen: set[int] | None = None,
) -> Iterator[Entry | ToolProblem]:
    """The tools in what `get` gives. One that is refused does not keep the others out."""
    offered = _offered_or_problem(where, get, folder)
    if isinstance(offered, ToolProblem):
        yield offered
        return
    for code in offered:
        if seen is not None and id(code) in seen:  # a package has it from one of its modules
            continue
        if seen is not None:
            seen.add(id(code))
        try:
            yield entry_of(code, source, rules)
        except DefinitionError as error:
            yield _problem(where, error, folder)


def _offered_or_problem(where: str, get: Callable[[], Any], folder: FolderPackage | None) -> list[Any] | ToolProblem:
    process = os.getpid()
    try:
        return _tried(where, get, folder)
    finally:
        if os.getpid() != process:  # a child would go on as a second Toolgate, and take the event loop from the first
            os.write(2, f"{where} forks when it is loaded; its child process was ended\n".encode(errors="replace"))
            os._exit(1)


def _tried(where: str, get: Callable[[], Any], folder: FolderPackage | None) -> list[Any] | ToolProblem:
    with warnings.catch_warnings():
        # of a file that is a program: the coroutine that it wanted to run goes with the error, before this ends
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        try:
            return _offered(get)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return _problem(where, error, folder)


def _offered(get: Callable[[], Any]) -> list[Any]:
    going = keeps_going.set(True)
    try:
        return list(_tools_in(get()))
    finally:
        keeps_going.reset(going)


def _tools_in(offered: Any) -> Iterable[Any]:
    if isinstance(offered, ModuleType):
        own = (offered.__name__, f"{offered.__name__}.")
        return [code for code in declared_in(offered) if code.__module__ == own[0] or code.__module__.startswith(own[1])]
    return offered if isinstance(offered, list | tuple) else [offered]


def _problem(where: str, error: BaseException, folder: FolderPackage | None) -> ToolProblem:
    """Notes a tool that could not be loaded, and why, also for the log: with the traceback, where code of the author's
    raised it."""
    problem = ToolProblem(_place(error, folder) or where, _words(error, folder))
    told = isinstance(error, DefinitionError | SyntaxError) or (isinstance(error, ImportError) and error.path == where)
    logger.warning("%s: %s", *problem, exc_info=None if told else error)
    return problem


def _place(error: BaseException, folder: FolderPackage | None) -> str | None:
    """The file and line that an error is about, as far as it is one of the author's."""
    if isinstance(error, DefinitionError):
        return error.where
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__) if folder is not None else ()
    inner = [frame for frame in frames if folder is not None and Path(frame.filename).is_relative_to(folder.folder)]
    return f"{inner[-1].filename}:{inner[-1].lineno}" if inner else None


def _words(error: BaseException, folder: FolderPackage | None) -> str:
    if isinstance(error, DefinitionError):
        return str(error.at(None))
    if isinstance(error, SyntaxError):
        return f"it does not compile: {error.msg}"
    if isinstance(error, RuntimeError) and "cannot be called from a running event loop" in str(error):
        return 'it runs a program when it is loaded: put that below `if __name__ == "__main__":`'
    words = described(error)
    name = error.name if isinstance(error, ImportError) and folder is not None else None
    hidden = folder.hides(name.partition(".")[0]) if name and folder is not None else None
    if hidden is None:
        return words
    return f"{words}; {hidden} has the name of another module: rename it, or import it with `from .{name} import ...`"

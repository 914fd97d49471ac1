"""Tools written in Python: those that ship with Toolgate, files in a folder, and what installed packages offer."""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from toolgate.errors import DefinitionError
from toolgate.model import Entry, Source
from toolgate.registry.catalog import Problem
from toolgate.registry.compile import Rules, declared_in, entry_of

GROUP = "toolgate.tools"


class PackageSource:
    """Every tool in the modules of a package."""

    def __init__(self, package: str, source: Source, rules: Rules) -> None:
        self.name: str = source
        self._package = package
        self._source = source
        self._rules = rules

    def load(self) -> Iterator[Entry | Problem]:
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__, f"{self._package}."):
            yield from _load(module.name, lambda name=module.name: importlib.import_module(name), self._source, self._rules)


class FolderSource:
    """Every tool in the Python files of a folder."""

    name = "python"

    def __init__(self, folder: Path, rules: Rules, refusal: Callable[[Path, bytes], str | None] | None = None) -> None:
        """`refusal` gives why a file with this content is not run; None if it may be."""
        self._folder = folder
        self._rules = rules
        self._refusal = refusal

    def load(self) -> Iterator[Entry | Problem]:
        if not self._folder.is_dir():
            return
        for file in sorted(self._folder.glob("*.py")):
            if not file.name.startswith("_"):
                yield from _load(str(file), lambda file=file: self._import(file), "python", self._rules)

    def _import(self, file: Path) -> ModuleType:
        content = file.read_bytes()
        why = self._refusal(file, content) if self._refusal is not None else None
        if why is not None:
            raise ImportError(why)
        return _import_file(file, content)


class EntryPointSource:
    """Every tool that an installed package offers under the group `toolgate.tools`: a tool, or a module of tools."""

    name = "python"

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def load(self) -> Iterator[Entry | Problem]:
        for point in entry_points(group=GROUP):
            yield from _load(f"entry point {point.name} ({point.value})", point.load, "python", self._rules)


def _load(where: str, get: Any, source: Source, rules: Rules) -> Iterator[Entry | Problem]:
    try:
        offered = list(_tools_in(get()))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        yield Problem(where, _words(error))
        return
    for code in offered:
        try:
            yield entry_of(code, source, rules)
        except DefinitionError as error:
            yield Problem(where, str(error))


def _tools_in(offered: Any) -> Iterable[Any]:
    if isinstance(offered, ModuleType):
        own = (offered.__name__, f"{offered.__name__}.")
        return [code for code in declared_in(offered) if code.__module__ == own[0] or code.__module__.startswith(own[1])]
    return offered if isinstance(offered, list | tuple) else [offered]


def _import_file(file: Path, content: bytes) -> ModuleType:
    """A module of exactly this content: a loader would read the file again, or take compiled code from beside it."""
    name = f"toolgate_local_{file.stem}_{sha256(str(file.resolve()).encode()).hexdigest()[:8]}"
    code = compile(content, str(file), "exec", dont_inherit=True)
    module = ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _words(error: BaseException) -> str:
    if isinstance(error, DefinitionError):
        return str(error)
    if isinstance(error, SyntaxError) and error.filename:
        return f"line {error.lineno}: {error.msg}"
    return f"{type(error).__name__}: {error}"

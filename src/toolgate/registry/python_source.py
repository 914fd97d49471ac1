"""Tools written in Python: those that ship with Toolgate, files in a folder, and what installed packages offer."""

import ast
import importlib
import logging
import os
import pkgutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from toolgate.errors import DefinitionError, described
from toolgate.model import Entry, Source
from toolgate.registry.catalog import PROBLEMS, ToolProblem
from toolgate.registry.compile import DefinitionRules, declared_in, entry_of
from toolgate.registry.decorator import keeps_going
from toolgate.trust import read_regular

GROUP = "toolgate.tools"
INIT = "__init__.py"
Refusal = Callable[[Path, bytes], str | None]
"""Gives why a file with this content is not run; None if it may be."""

logger = logging.getLogger(PROBLEMS)


# -- a folder of files as a package


class FolderPackage(MetaPathFinder, Loader):
    """Finds and runs the modules of one folder, as a package which nothing on `sys.path` leads to.

    A file of tools may import what lies beside it, by its name or relatively. Two folders may have helpers of one name, and
    no file takes the place of a module of the standard library or of an installed package: neither for the process, which
    does not see these files, nor for the files themselves. Each file is run from the very bytes that its trust was judged
    by; code that was compiled before is never taken.
    """

    def __init__(self, folder: Path, refusal: Refusal | None) -> None:
        self.folder = folder
        self.name = f"toolgate_local_{sha256(str(folder.resolve()).encode()).hexdigest()[:12]}"
        self._refusal = refusal
        self._odd: dict[str, Path] = {}
        """Modules whose names are not those of their files."""

    def files(self) -> Iterator[Path]:
        """The files that may hold tools: those of the folder, and those of the packages in it."""
        for file in sorted(self.folder.iterdir()):
            if file.name.startswith(("_", ".")):
                continue
            if file.suffix == ".py":
                yield file
            elif (file / INIT).is_file():
                yield file / INIT
                yield from (inner for inner in sorted(file.glob("*.py")) if not inner.name.startswith("_"))

    def begin(self) -> None:
        """Have the process find these modules under the package's name, and run them anew."""
        sys.meta_path[:] = [one for one in sys.meta_path if getattr(one, "name", None) != self.name]
        for name in [name for name in sys.modules if name == self.name or name.startswith(f"{self.name}.")]:
            del sys.modules[name]
        top = sys.modules[self.name] = ModuleType(self.name, f"The Python tools of {self.folder}.")
        top.__path__ = []  # so that nothing but this finder looks for what is in it
        sys.meta_path.append(self)

    def load(self, file: Path) -> ModuleType:
        """The module of a file."""
        inner = file.relative_to(self.folder).with_suffix("")
        parts = [part.replace(".", "_") for part in (inner.parent.parts if file.name == INIT else inner.parts)]
        name = ".".join((self.name, *parts))
        self._odd[name] = file
        return importlib.import_module(name)

    # -- as a finder

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{self.name}."):
            return None
        file = self._odd.get(fullname) or self._file(fullname.split(".")[1:])
        if file is None:
            return None
        spec = spec_from_loader(fullname, self, origin=str(file), is_package=file.name == INIT)
        if spec is not None:
            spec.has_location = True
        return spec

    def _file(self, parts: Sequence[str]) -> Path | None:
        """The file of a module, if it is one of these."""
        if not all(part.isidentifier() for part in parts):
            return None
        above, last = self.folder.joinpath(*parts[:-1]), parts[-1]
        return next((file for file in (above / last / INIT, above / f"{last}.py") if file.is_file()), None)

    # -- as a loader

    def exec_module(self, module: ModuleType) -> None:
        file = Path(str(module.__file__))
        content = read_regular(file)
        why = self._refusal(file, content) if self._refusal is not None else None
        if why is not None:
            raise ImportError(why, name=module.__name__, path=str(file))
        depth = str(module.__package__).count(".") + 1
        tree = _SiblingImports(self, depth).visit(ast.parse(content, str(file)))
        exec(compile(ast.fix_missing_locations(tree), str(file), "exec", dont_inherit=True), vars(module))

    def has(self, name: str) -> bool:
        """Tells whether a name is that of a file or package in the folder, and of no other module."""
        return self._file([name]) is not None and not _is_elsewhere(name)

    def hides(self, name: str) -> Path | None:
        """The file whose name a module from elsewhere has; None if there is no such file."""
        return self._file([name]) if name and _is_elsewhere(name) else None


def _is_elsewhere(name: str) -> bool:
    """Tells whether the process has a module of this name: in the standard library, installed, or loaded already."""
    if name in sys.stdlib_module_names:
        return True
    try:
        spec = find_spec(name)
    except ValueError:  # something that was put among the modules by hand
        return True
    return spec is not None and spec.origin is not None  # a folder without __init__.py that lies about is none


class _SiblingImports(ast.NodeTransformer):
    """Makes the imports of what lies in the folder relative ones."""

    def __init__(self, package: FolderPackage, depth: int) -> None:
        self._package = package
        self._depth = depth

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if not node.level and node.module is not None and self._package.has(node.module.partition(".")[0]):
            node.level = self._depth
        return node

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        made = [one for alias in node.names for one in self._relative(alias)]
        return [ast.copy_location(one, node) for one in made]

    def _relative(self, alias: ast.alias) -> list[ast.stmt]:
        first, _, rest = alias.name.partition(".")
        if not self._package.has(first):
            return [ast.Import([alias])]
        if not rest:
            return [ast.ImportFrom(None, [alias], self._depth)]
        if alias.asname is not None:  # import a.b.c as d
            above, _, last = alias.name.rpartition(".")
            return [ast.ImportFrom(above, [ast.alias(last, alias.asname)], self._depth)]
        whole = ast.Constant(f"{self._package.name}.{alias.name}")  # import a.b.c, which binds a
        load = ast.Expr(ast.Call(ast.Name("__import__", ast.Load()), [whole], []))
        return [load, ast.ImportFrom(None, [ast.alias(first)], self._depth)]


# -- sources


class PackageSource:
    def __init__(self, package: str, source: Source, rules: DefinitionRules) -> None:
        self.name: str = source
        self._package = package
        self._source = source
        self._rules = rules

    def load(self) -> Iterator[Entry | ToolProblem]:
        for module in _modules_of(self._package):
            yield from _load(module, partial(_codes_of, module), self._source, self._rules)


@lru_cache(maxsize=8)
def _modules_of(package: str) -> tuple[str, ...]:
    """The modules of an installed package, by name. A process that opens many Apps looks for them once."""
    found = importlib.import_module(package)
    return tuple(module.name for module in pkgutil.iter_modules(found.__path__, f"{package}."))


@lru_cache(maxsize=256)
def _codes_of(module: str) -> list[Any]:
    """What a module of an installed package declares as tools."""
    return list(_tools_in(importlib.import_module(module)))


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
    going = keeps_going.set(True)
    with warnings.catch_warnings():
        # of a file that is a program: the coroutine that it wanted to run goes with the error, before this ends
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        try:
            return list(_tools_in(get()))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a file raises when it is loaded
            return _problem(where, error, folder)
        finally:
            keeps_going.reset(going)


def _tools_in(offered: Any) -> Iterable[Any]:
    if isinstance(offered, ModuleType):
        own = (offered.__name__, f"{offered.__name__}.")
        return [code for code in declared_in(offered) if code.__module__ == own[0] or code.__module__.startswith(own[1])]
    return offered if isinstance(offered, list | tuple) else [offered]


def _problem(where: str, error: BaseException, folder: FolderPackage | None) -> ToolProblem:
    """Notes a tool that could not be loaded, and why, also for the log: with the traceback of the author's code."""
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

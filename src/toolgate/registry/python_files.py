"""A folder of Python files as a package of its own, which nothing on `sys.path` leads to.

A file of tools may import what lies beside it, by its name or relatively. Two folders may have helpers of one name, and no
file takes the place of a module of the standard library or of an installed package: neither for the process, which does
not see these files, nor for the files themselves. Each file is run from the very bytes that its trust was judged by; code
that was compiled before is never taken.
"""

import ast
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from toolgate.trust import read_regular

INIT = "__init__.py"
Refusal = Callable[[Path, bytes], str | None]
"""Gives why a file with this content is not run; None if it may be."""


class FolderPackage(MetaPathFinder, Loader):
    """Finds and runs the modules of one folder."""

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

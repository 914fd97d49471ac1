"""Writes what a type checker knows of `App.open_sync` (`sync_app.pyi`), from App and its facets. Run by `make reference`.

At run time each method is the async one, called in another thread; so only signatures are written, without bodies.
"""

import ast
import builtins
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.docs.python_reference import SOURCE, Function, Place, _facets, _found, _parsed, _public

STUB = SOURCE / "toolgate" / "app" / "sync_app.pyi"
HEADER = '''# ruff: noqa: A002 - names are those of App's own methods
"""App and its facets as `App.open_sync` gives them: written by `make reference`."""

import builtins
from contextlib import AbstractContextManager
from collections.abc import Iterator
from types import TracebackType
from typing import Self
'''
LEFT_OUT = frozenset({"open", "open_sync"})
OWN = '''
    settings: Settings
    def __init__(self, app: App) -> None: ...
    def start(self) -> Self:
        """Opens the App, as `with` does; for notebooks, where `with` ends with its cell."""
    def close(self) -> None:
        """Closes the App: running calls are waited for, as the settings say."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
'''
ITERATORS = frozenset({"AsyncIterator", "AsyncGenerator", "AsyncIterable"})


class Names:
    """The imports that signatures need, each from the module that it comes from there."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str]] = {}
        """By the name that it has in the stub: module and name."""
        self._modules: set[str] = set()

    def take(self, name: str, module: str) -> str:
        """Has a name imported; gives the one that it has in the stub, where two modules may have the same."""
        local = name
        if self._known.setdefault(local, (module, name)) != (module, name):
            local = f"{module.rpartition('.')[2].title().replace('_', '')}{name}"
            self._known[local] = module, name
        return local

    def need(self, name: str, module: str) -> str:
        """The name in the stub of what a name means in a module."""
        if hasattr(builtins, name) or name in ("Iterator", "AbstractContextManager", "Self"):
            return name
        for node in ast.walk(_parsed(module)):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return self.take(alias.name, node.module)
            if isinstance(node, ast.Import) and any((alias.asname or alias.name) == name for alias in node.names):
                self._modules.add(name)
                return name
        return self.take(name, module)

    def lines(self) -> list[str]:
        named = [
            f"from {module} import {name}{'' if name == local else f' as {local}'}"
            for local, (module, name) in self._known.items()
        ]
        return sorted([*(f"import {name}" for name in self._modules), *named])


class Annotation(ast.NodeTransformer):
    """A type as a program without an event loop has it."""

    def __init__(self, names: Names, module: str, shadowed: frozenset[str], proxies: "Proxies | None") -> None:
        self.names, self.module, self.shadowed, self.proxies = names, module, shadowed, proxies

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            return self.visit(ast.parse(node.value, mode="eval").body)  # type: ignore[no-any-return]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.shadowed and hasattr(builtins, node.id):
            return ast.Attribute(ast.Name("builtins", ast.Load()), node.id, ast.Load())
        if self.proxies is not None and (proxy := self.proxies.of(node.id, self.module)) is not None:
            return ast.Name(proxy, ast.Load())
        return ast.Name(self.names.need(node.id, self.module), ast.Load())

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A name of a module that is imported whole, under whatever name it has there."""
        for one in ast.walk(_parsed(self.module)):
            if isinstance(one, ast.ImportFrom) and isinstance(node.value, ast.Name):
                for alias in one.names:
                    if (alias.asname or alias.name) == node.value.id:
                        return ast.Name(self.names.take(node.attr, f"{one.module}.{alias.name}"), ast.Load())
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        base = ast.unparse(node.value)
        if base == "Literal":
            self.names.need("Literal", self.module)
            return node
        if base == "Awaitable":
            return self.visit(node.slice)  # type: ignore[no-any-return]
        if base in ITERATORS:
            item = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
            return ast.Subscript(ast.Name("Iterator", ast.Load()), self.visit(item), ast.Load())
        return self.generic_visit(node)


class Proxies:
    """Classes whose methods are to be awaited, and which methods give: each has a class here as well."""

    def __init__(self) -> None:
        self.wanted: dict[str, Place] = {}

    def of(self, name: str, module: str) -> str | None:
        place = _found(name, module)
        if place is None or not isinstance(place.node, ast.ClassDef) or name == "App":
            return None
        if not any(isinstance(one, ast.AsyncFunctionDef) and not one.name.startswith("_") for one in place.node.body):
            return None
        if any(ast.unparse(base) in ("Protocol", "Hook") for base in place.node.bases):
            return None  # what somebody passes in
        self.wanted.setdefault(name, place)
        return f"Sync{name}"


def _methods(place: Place) -> Iterator[tuple[str, Function]]:
    """The public methods of a class and of what it is derived from, with the module of each."""
    assert isinstance(place.node, ast.ClassDef)
    for base in place.node.bases:
        found = _found(ast.unparse(base), place.module)
        if found is not None and isinstance(found.node, ast.ClassDef):
            yield from _methods(found)
    for one in place.node.body:
        if isinstance(one, Function) and not one.name.startswith("_") and one.name not in LEFT_OUT:
            yield place.module, one


def _signature(method: Function, annotation: Annotation, *, takes: Annotation) -> ast.FunctionDef:
    marks = {ast.unparse(mark) for mark in method.decorator_list}
    given = method.args
    for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
        if argument is not None and argument.annotation is not None:
            argument.annotation = takes.visit(argument.annotation)
    given.defaults = [_default(one) for one in given.defaults]
    given.kw_defaults = [None if one is None else _default(one) for one in given.kw_defaults]
    returns = None if method.returns is None else annotation.visit(method.returns)
    if "asynccontextmanager" in marks:
        assert isinstance(returns, ast.Subscript)
        returns = ast.Subscript(ast.Name("AbstractContextManager", ast.Load()), returns.slice, ast.Load())
    about = _about(method).replace("\n", "\n    ")
    kept: list[ast.expr] = [ast.Name("property", ast.Load())] if marks & {"property", "cached_property"} else []
    body: list[ast.stmt] = [ast.Expr(ast.Constant(about or ...))]
    return ast.FunctionDef(method.name, given, body, kept, returns, lineno=0)


def _about(node: Function | ast.ClassDef) -> str:
    """The first paragraph of a docstring, in the words of a program without an event loop."""
    text = (ast.get_docstring(node) or "").split("\n\n")[0]
    return text.replace("async with", "with").replace("async for", "for").replace(": await this.", ".")


def _default(node: ast.expr) -> ast.expr:
    return node if isinstance(node, ast.Constant) else ast.Constant(...)


def _class(name: str, place: Place, names: Names, proxies: Proxies, own: str = "") -> str:
    methods = list(_methods(place))
    shadowed = frozenset(method.name for _, method in methods)
    assert isinstance(place.node, ast.ClassDef)
    about = _about(place.node).replace("\n", "\n    ")
    lines = [f"class {name}:", f'    """{about}"""', own]
    for module, method in methods:
        gives = Annotation(names, module, shadowed, proxies)
        takes = Annotation(names, module, shadowed, None)  # what is passed in is what it was
        fresh = ast.parse(ast.unparse(method)).body[0]
        assert isinstance(fresh, Function)
        text = ast.unparse(ast.fix_missing_locations(_signature(fresh, gives, takes=takes)))
        lines.append("\n".join(f"    {line}" for line in text.splitlines()))
    return "\n".join(lines)


def written() -> str:
    """Gives the text that the stub should have."""
    names, proxies = Names(), Proxies()
    app = _public("App")
    names.need("App", "toolgate")
    names.need("Settings", "toolgate")
    facets = {name: Place(*found) for name, found in _facets().items()}
    kinds = {name: f"Sync{place.node.name}" for name, place in facets.items() if isinstance(place.node, ast.ClassDef)}
    attributes = "\n".join(f"    {name}: {kind}" for name, kind in kinds.items())
    classes = [_class("SyncApp", app, names, proxies, f"{attributes}\n{OWN}")]
    classes += [_class(kinds[name], place, names, proxies) for name, place in facets.items()]
    done: set[str] = set()
    while left := [name for name in proxies.wanted if name not in done]:
        for name in left:
            done.add(name)
            classes.append(_class(f"Sync{name}", proxies.wanted[name], names, proxies))
    return _formatted("\n".join([HEADER, *names.lines(), *classes]))


def _formatted(text: str) -> str:
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    for command in (["check", "--quiet", "--fix", "--select", "I,F401", "-"], ["format", "--quiet", "-"]):
        arguments = [*ruff, *command, "--stdin-filename", str(STUB)]
        text = subprocess.run(arguments, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    STUB.write_text(written(), encoding="utf-8")

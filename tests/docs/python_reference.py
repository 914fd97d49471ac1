"""Writes docs/reference/python.md: the public names, from their signatures and docstrings. Run by `make reference`.

It reads the source and imports nothing of it, so that annotations stand in the page as they were written, the same in every
version of Python.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from tests.docs.markdown import ROOT

SOURCE = ROOT / "src"
PAGE = ROOT / "docs" / "reference" / "python.md"
WIDTH = 110
"""Signatures longer than this are written one parameter to a line."""

GROUPS = {
    "Open and call": ("App", "Actor", "Outcome", "Settings"),
    "Declare tools": (
        "tool", "InvokeContext", "Tool", "Auth", "CacheRule", "Capability", "Cost", "ErrorCase", "Example", "Operation",
        "RateLimit", "Retry", "UnitCost",
    ),
    "Extend calls": ("Hook", "PromptDraft"),
    "Work in the background": ("job_handler", "JobContext", "Job", "PermanentFailure"),
    "Approve calls": ("ApprovalRequest", "Answer", "GrantTerms"),
    "Errors": ("ToolgateError", "CallError", "ToolError", "InvalidInput", "DefinitionError", "SettingsError", "StoreError"),
}  # fmt: skip
ELSEWHERE = {
    "ServerSettings": "Its fields are those of a server in the [settings](settings.md).",
    "Settings": "Its fields are the [settings](settings.md).",
    "Hook": "Its methods are the [stages](stages.md) of a call; [how to write one](../howto/write-a-hook.md).",
}
"""Names whose members are documented on a page of their own."""
INTERNAL = frozenset({"call_inside", "running", "note_hook_error", "scratch", "charged", "ran"})
"""Methods of InvokeContext that the pipeline calls, not tools or hooks."""

NAMED_DEFAULTS = {"JOBS_PAGE": "100", "LOCAL.tenant": "'default'", "LOCAL.user": "'local'", "PAGE": "500"}
"""Defaults that stand in the source as a name, and what that is."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Place(NamedTuple):
    """A class, function or alias, and the module that defines it."""

    module: str
    node: ast.stmt


@cache
def _parsed(module: str) -> ast.Module:
    path = SOURCE / module.replace(".", "/")
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8"))


def public_names() -> list[str]:
    """What `toolgate.__all__` lists."""
    for node in _parsed("toolgate").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise LookupError("__all__")


@cache
def _found(name: str, module: str) -> Place | None:
    """What a name means in a module, followed through its imports as far as they stay in Toolgate."""
    for node in ast.walk(_parsed(module)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("toolgate"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _found(alias.name, node.module)
    for node in _parsed(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return Place(module, node)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return Place(module, node)
    return None


def _public(name: str) -> Place:
    place = _found(name, "toolgate")
    assert place is not None, name
    return place


# -- how things are shown


def _doc(node: ast.AST) -> str:
    """A docstring as Markdown: headings such as Args: become lists."""
    text = ast.get_docstring(node) if isinstance(node, ast.ClassDef | Function) else ""
    lines = []
    for line in (text or "").splitlines():
        heading = re.fullmatch(r"(Args|Returns|Raises|Gives):", line.strip())
        entry = re.match(r" {4}(\*{0,2}\w+): (.*)", line)
        if heading:
            lines.append(f"{heading[1]}:\n")
        elif entry:
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        else:
            lines.append(f"  {line.strip()}" if line.startswith("        ") else line.strip())
    return "\n".join(lines).strip()


def _arguments(function: Function, *, method: bool) -> list[str]:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    shown = []
    for number, (argument, default) in enumerate(zip(positional, defaults, strict=True)):
        shown.append(_argument(argument, default))
        if given.posonlyargs and number == len(given.posonlyargs) - 1:
            shown.append("/")
    if method:
        shown = shown[1:]
        shown = shown[1:] if shown[:1] == ["/"] else shown
    if given.vararg:
        shown.append(f"*{_argument(given.vararg, None)}")
    elif given.kwonlyargs:
        shown.append("*")
    shown += [_argument(one, default) for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return [*shown, f"**{_argument(given.kwarg, None)}"] if given.kwarg else shown


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    given = "" if default is None else NAMED_DEFAULTS.get(ast.unparse(default), ast.unparse(default))
    if argument.annotation is None:
        return f"{argument.arg}={given}" if given else argument.arg
    text = f"{argument.arg}: {_type(argument.annotation)}"
    return f"{text} = {given}" if given else text


def _type(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def _signature(function: Function, name: str, *, method: bool = True) -> str:
    awaited = "await " if isinstance(function, ast.AsyncFunctionDef) or _is_awaitable(function) else ""
    shown = _arguments(function, method=method)
    returns = "" if function.returns is None else re.sub(r"^Awaitable\[(.*)\]$", r"\1", _type(function.returns))
    arrow = f" -> {returns}" if returns and returns != "None" else ""
    line = f"{awaited}{name}({', '.join(shown)}){arrow}"
    if len(line) > WIDTH:
        line = f"{awaited}{name}(\n" + "".join(f"    {one},\n" for one in shown) + f"){arrow}"
    return f"```\n{line}\n```"


def _is_awaitable(function: Function) -> bool:
    return function.returns is not None and _type(function.returns).startswith("Awaitable[")


class Field(NamedTuple):
    """A field of a class: as it is written, and what is said of it in the string that follows it."""

    name: str
    type: str
    default: str
    about: str


def _fields(node: ast.ClassDef) -> list[Field]:
    found = []
    for number, one in enumerate(node.body):
        if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name) or one.target.id.startswith("_"):
            continue
        kind, default = _type(one.annotation), "" if one.value is None else ast.unparse(one.value)
        kind = re.sub(r"^Annotated\[(\w+), .*\]( \| None)?$", r"\1\2", kind)
        factory = re.search(r"default_factory=(?:lambda: )?(.+?)\)$", default)
        plain = re.search(r"\bdefault=(.+?)(?:, \w+=|\)$)", default)
        if default.startswith(("Field(", "msgspec.field(")):
            default = (factory[1] + ("()" if factory[1].isidentifier() else "")) if factory else plain[1] if plain else ""
        following = node.body[number + 1] if number + 1 < len(node.body) else None
        about = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            about = " ".join(str(following.value.value).split())
        found.append(Field(one.target.id, kind, default, about))
    return found


def _table(fields: list[Field]) -> str:
    rows = [f"| `{one.name}` | {_cell(one.type)} | {_cell(one.default)} | {_escaped(one.about)} |" for one in fields]
    return "\n".join(["| field | type | default | |", "|---|---|---|---|", *rows])


def _cell(code: str) -> str:
    return f"`{_escaped(code)}`" if code else ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _members(node: ast.ClassDef) -> Iterator[Function]:
    for one in node.body:
        if isinstance(one, Function) and (not one.name.startswith("_") or one.name == "__init__"):
            yield one


def _is(function: Function, decorator: str) -> bool:
    return any(ast.unparse(one) == decorator for one in function.decorator_list)


def _class(name: str, place: Place) -> list[str]:
    node = place.node
    assert isinstance(node, ast.ClassDef)
    bases = [base for base in map(ast.unparse, node.bases) if base in public_names()]
    shown = [f"### {name}", f"A [`{bases[0]}`](#{bases[0].lower()})." if bases else "", _doc(node)]
    if name in ELSEWHERE:
        return [*shown, ELSEWHERE[name]]
    start = next((one for one in _members(node) if one.name == "__init__"), None)
    if start is not None and place.module == "toolgate.errors":
        shown.append(_signature(start, name))
    fields = _fields(node)
    if fields and place.module != "toolgate.errors":
        shown.append(_table(fields))
    return [*shown, *_methods(name, _members(node))]


def _methods(name: str, functions: Iterable[Function]) -> list[str]:
    listed = [one for one in functions if one.name != "__init__" and one.name not in INTERNAL]
    properties = [one for one in listed if _is(one, "property")]
    shown = []
    if properties:
        rows = [
            f"| `{one.name}` | {_cell(_type(one.returns) if one.returns else '')} | {_escaped(_doc(one))} |".replace(
                "\n", " "
            )
            for one in properties
        ]
        shown.append("\n".join(["| property | type | |", "|---|---|---|", *rows]))
    variable = {"App": "app", "InvokeContext": "ctx", "Outcome": "outcome", "ApprovalRequest": "request"}.get(name, name)
    for one in listed:
        if one in properties or any(ast.unparse(mark).endswith((".setter", "validator")) for mark in one.decorator_list):
            continue
        if any("field_validator" in ast.unparse(mark) for mark in one.decorator_list):
            continue
        owner = name if _is(one, "classmethod") else variable
        shown += [f"#### {name}.{one.name}", _signature(one, f"{owner}.{one.name}"), _doc(one)]
    return shown


def _app() -> list[str]:
    """App, then its facets with their verbs."""
    place = _public("App")
    assert isinstance(place.node, ast.ClassDef)
    facets = _facets()
    rows = [
        f"| [`app.{name}`](#app{name}) | {', '.join(f'[`{one.name}`](#app{name}{one.name})' for one in _verbs(node))} |"
        for name, (_, node) in facets.items()
    ]
    listed = "\n".join(["| facet | verbs |", "|---|---|", *rows])
    shown = ["### App", _doc(place.node), listed, *_methods("App", _members(place.node))]
    for name, (module, node) in facets.items():
        about = ast.get_docstring(_parsed(module)) or ""
        shown += [f"### app.{name}", about.split(": ", 1)[-1][:1].upper() + about.split(": ", 1)[-1][1:]]
        shown += _methods(f"app.{name}", _members(node))
    return shown


def _facets() -> dict[str, tuple[str, ast.ClassDef]]:
    """The attributes of App that are facets, with the module and the class of each."""
    app = _public("App")
    found = {}
    for node in ast.walk(app.node):
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Call(func=ast.Name(id=kind))) if kind.endswith(
                "Facet"
            ):
                place = _found(kind, app.module)
                assert place is not None and isinstance(place.node, ast.ClassDef), kind
                found[name] = place.module, place.node
    return found


def _verbs(node: ast.ClassDef) -> list[Function]:
    return [one for one in _members(node) if one.name != "__init__" and not _is(one, "property")]


def _function(name: str, place: Place) -> list[str]:
    overloads = [one for one in _parsed(place.module).body if isinstance(one, Function) and one.name == name]
    wide = max(overloads, key=lambda one: len(one.args.kwonlyargs) + len(one.args.args))
    return [f"### {name}", _signature(wide, name, method=False), _doc(_definition(name))]


def _definition(name: str) -> Function:
    """A function itself, after its overloads."""
    found = [one for one in _parsed(_public(name).module).body if isinstance(one, Function) and one.name == name]
    return found[-1]


# -- what signatures refer to


def _mentioned(module: str, functions: Iterator[Function]) -> Iterator[tuple[str, str]]:
    for function in functions:
        arguments = function.args
        given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        for annotation in [one.annotation for one in given if one.annotation] + [function.returns]:
            if annotation is not None:
                yield from ((word, module) for word in re.findall(r"[A-Z]\w+", _type(annotation)))


def _others() -> dict[str, Place]:
    """Classes and aliases that App's methods take and give, and that are no public names themselves."""
    app = _public("App")
    assert isinstance(app.node, ast.ClassDef)
    words = [
        pair
        for module, part in [(app.module, app.node), *_facets().values()]
        for pair in _mentioned(module, (one for one in _members(part) if one.name != "__init__"))
    ]
    words += [("PendingInfo", "toolgate.model"), ("ErrorInfo", "toolgate.model"), ("Metrics", "toolgate.model")]
    words += [("Artifact", "toolgate.model"), ("Tier", "toolgate.model"), ("Category", "toolgate.model")]
    found = {word: _found(word, module) for word, module in words if word not in public_names()}
    return {word: place for word, place in sorted(found.items()) if place is not None}


def _other(name: str, place: Place) -> list[str]:
    node = place.node
    if isinstance(node, ast.ClassDef):
        fields = _fields(node)
        return [f"### {name}", _doc(node), ELSEWHERE.get(name) or (_table(fields) if fields else "")]
    assert isinstance(node, ast.Assign)
    return [f"### {name}", f"```\n{_wrapped(ast.unparse(node))}\n```"]


def _wrapped(text: str) -> str:
    return text if len(text) <= WIDTH else text.replace("[", "[\n    ", 1)[:-1].replace(", ", ",\n    ") + ",\n]"


# -- the page


def render() -> str:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(public_names()), set(listed) ^ set(public_names())
    page = [
        "# Python",
        "<!-- Written by `make reference` from signatures and docstrings: change those. -->",
        "Everything that `from toolgate import …` offers. Other modules may change without notice, except\n"
        "[`toolgate.testing`](../howto/test-a-tool.md), [`toolgate.client`](../howto/call-over-http.md#from-python) and\n"
        "`toolgate.adapters`, with a page for each framework. What is shown with `await` is to be awaited.",
        _contents(),
    ]
    for group, names in GROUPS.items():
        page.append(f"## {group}")
        for name in names:
            place = _public(name)
            if name == "App":
                page += _app()
            elif isinstance(place.node, ast.ClassDef):
                page += _class(name, place)
            else:
                page += _function(name, place)
    page += ["## What methods take and give", "Found on what they return; not to be imported."]
    for name, place in _others().items():
        page += _other(name, place)
    return "\n\n".join(part for part in page if part) + "\n"


def _contents() -> str:
    anchors = {name: name.lower() for names in GROUPS.values() for name in names} | {"Tool": "tool-1"}
    rows = [
        f"| {group} | {', '.join(f'[`{name}`](#{anchors[name]})' for name in names)} |" for group, names in GROUPS.items()
    ]
    return "\n".join(["| to | names |", "|---|---|", *rows])


def undocumented() -> list[str]:
    """Public names, and methods of theirs, that no docstring says anything about."""
    missing = []
    for name in public_names():
        node = _public(name).node
        if not (_doc(node) or (isinstance(node, ast.FunctionDef) and _doc(_definition(name)))):
            missing.append(name)
        if isinstance(node, ast.ClassDef) and name not in ELSEWHERE:
            missing += [
                f"{name}.{one.name}"
                for one in _members(node)
                if not _doc(one) and one.name != "__init__" and one.name not in INTERNAL and not _setter(one)
            ]
    for name, (_, node) in _facets().items():
        missing += [f"app.{name}.{one.name}" for one in _verbs(node) if not _doc(one)]
    return missing


def _setter(function: Function) -> bool:
    return any(ast.unparse(mark).endswith(".setter") for mark in function.decorator_list)


def main() -> int:
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

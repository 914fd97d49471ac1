"""Renders the part of Helm's template language that the chart uses, where Helm is not there. Anything else is refused."""

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

TAG = re.compile(r"(\s*)\{\{(-?)\s*(.*?)\s*\}\}", re.DOTALL)
Scope = Mapping[str, Any]


def render(template: str, scope: Scope) -> str:
    text, rest = _block(_pieces(template), scope, emit=True)
    assert rest == [], f"an end without a beginning: {rest[:1]}"
    return text


def _pieces(template: str) -> list[tuple[str, str]]:
    """Texts and tags in turn; `{{-` takes the blanks before it."""
    found, at = [], 0
    for tag in TAG.finditer(template):
        found += [("text", template[at : tag.start()] + ("" if tag[2] else tag[1])), ("tag", tag[3])]
        at = tag.end()
    return [*found, ("text", template[at:])]


def _block(pieces: list[tuple[str, str]], scope: Scope, *, emit: bool) -> tuple[str, list[tuple[str, str]]]:
    out = ""
    while pieces:
        kind, value = pieces[0]
        if kind == "tag" and value == "end":
            return out, pieces
        pieces = pieces[1:]
        if kind == "text":
            out += value
        elif value.startswith("if "):
            negated, path = value[3:].startswith("not "), value[3:].removeprefix("not ")
            inner, pieces = _block(pieces, scope, emit=emit)
            out += inner if bool(_value(path, scope)) != negated else ""
            pieces = pieces[1:]
        elif found := re.fullmatch(r"range \$(\w+), \$(\w+) := (\S+)", value):
            after = pieces
            for key, item in sorted(_value(found[3], scope).items()):
                inner, after = _block(pieces, {**scope, "$" + found[1]: key, "$" + found[2]: item}, emit=emit)
                out += inner
            pieces = after[1:]
        else:
            out += str(_pipeline(value, scope))
    return out, []


def _pipeline(expression: str, scope: Scope) -> Any:
    first, *functions = [part.strip() for part in expression.split("|")]
    words = re.findall(r'"[^"]*"|\S+', first)
    if words[0] == "printf":
        given = [_value(word, scope) for word in words[2:]]
        value: Any = json.loads(words[1]).replace("%q", "%s") % tuple(
            json.dumps(one) if "%q" in words[1] else one for one in given
        )
    elif words[0] == "toYaml":
        value = yaml.safe_dump(_value(words[1], scope), default_flow_style=False).rstrip("\n")
    else:
        [path] = words
        value = _value(path, scope)
    for function in functions:
        name, *arguments = function.split()
        if name == "quote":
            value = json.dumps(str(value))
        else:
            assert name == "nindent", f"unknown function {name}"
            blanks = " " * int(arguments[0])
            value = "\n" + "\n".join(blanks + line for line in value.split("\n"))
    return value


def _value(path: str, scope: Scope) -> Any:
    if path.startswith("$"):
        return scope[path]
    assert re.fullmatch(r"(\.\w+)+", path), f"unknown expression {path}"
    value: Any = scope
    for name in path[1:].split("."):
        value = value[name]
    return value

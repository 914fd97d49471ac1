"""Rego with marks for the style sheet: comments, strings, keywords and numbers, line by line."""

import re

from markupsafe import Markup

from toolgate.serve.console.renderer import visible

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)"""
    r"""|(?P<string>"(?:[^"\\\n]|\\.)*"|`[^`]*`)"""
    r"""|(?P<keyword>\b(?:package|import|default|if|else|in|some|every|not|contains|as|with|true|false|null)\b)"""
    r"""|(?P<base>\b(?:input|data)\b)"""
    r"""|(?P<number>\b\d+(?:\.\d+)?\b)"""
)


def marked_lines(text: str) -> list[Markup]:
    """The lines of a policy, escaped, with a span around each token that has a colour."""
    lines: list[list[Markup]] = [[]]
    at = 0
    for found in _TOKEN.finditer(text):
        _add(lines, text[at : found.start()], None)
        _add(lines, found[0], found.lastgroup)
        at = found.end()
    _add(lines, text[at:], None)
    if not lines[-1]:
        lines.pop()
    return [Markup("").join(line) for line in lines]


def _add(lines: list[list[Markup]], text: str, kind: str | None) -> None:
    for number, part in enumerate(text.split("\n")):
        if number:
            lines.append([])
        if part:
            shown = visible(part)
            lines[-1].append(shown if kind is None else Markup('<span class="rego-{}">{}</span>').format(kind, shown))

"""A docstring as a tool's documentation: its first paragraph, and what it says of each argument (Google or Sphinx style)."""

import re
from typing import NamedTuple

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Params|Returns|Raises|Yields|Examples?|Notes?)\s*:\s*$")
_ARGUMENT = re.compile(r"^(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_SPHINX = re.compile(r"^:param\s+(?:[\w\[\], .|]+\s+)?\*{0,2}(\w+)\s*:\s*(.*)$")
_FIELD = re.compile(r"^:\w+[^:]*:(\s|$)")


class Docstring(NamedTuple):
    """The parts of a docstring that a definition uses."""

    summary: str
    arguments: dict[str, str]


def read_docstring(text: str) -> Docstring:
    summary: list[str] = []
    arguments: dict[str, str] = {}
    section, indent, current = "", "", ""
    for line in text.splitlines():
        stripped = line.strip()
        if heading := _SECTION.match(stripped):
            section, indent, current = heading[1], "", ""
        elif sphinx := _SPHINX.match(stripped):
            section, indent, current = ":param", "", sphinx[1]
            arguments[current] = sphinx[2]
        elif _FIELD.match(stripped):
            section, current = ":field", ""
        elif section.startswith(("Arg", "Param")) and (found := _ARGUMENT.match(line)) and indent in ("", found[1]):
            indent, current = found[1], found[2]
            arguments[current] = found[3]
        elif current and stripped and line[: len(indent) or 1].isspace():
            arguments[current] = f"{arguments[current]} {stripped}".strip()
        elif section and stripped:
            current = ""  # what follows is about something else
        elif not section:
            summary.append(stripped)
    paragraph = "\n".join(summary).strip().split("\n\n")[0]
    return Docstring(" ".join(paragraph.split()), {name: said for name, said in arguments.items() if said})

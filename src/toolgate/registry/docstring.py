"""A docstring as a tool's documentation: its first paragraph, and what it says of each argument (Google or Sphinx style)."""

import re
from typing import NamedTuple

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Params|Returns|Raises|Yields|Examples?|Notes?)\s*:\s*$")
_ARGUMENT = re.compile(r"^(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_SPHINX = re.compile(r"^:param\s+(?:[\w\[\], .|]+\s+)?(\w+)\s*:\s*(.*)$")


class Docstring(NamedTuple):
    """What was read."""

    summary: str
    arguments: dict[str, str]


def read_docstring(text: str) -> Docstring:
    summary: list[str] = []
    arguments: dict[str, str] = {}
    section, indent, current = "", "", ""
    for line in text.splitlines():
        stripped = line.strip()
        if heading := _SECTION.match(stripped):
            section, current = heading[1], ""
        elif sphinx := _SPHINX.match(stripped):
            section, current = ":param", sphinx[1]
            arguments[current] = sphinx[2]
        elif section.startswith(("Arg", "Param")):
            found = _ARGUMENT.match(line)
            if found and (not indent or found[1] == indent):
                indent, current = found[1], found[2]
                arguments[current] = found[3]
            elif current and stripped:
                arguments[current] = f"{arguments[current]} {stripped}".strip()
        elif section == ":param" and current and stripped and not stripped.startswith(":"):
            arguments[current] = f"{arguments[current]} {stripped}".strip()
        elif not section:
            summary.append(stripped)
    paragraph = "\n".join(summary).strip().split("\n\n")[0]
    return Docstring(" ".join(paragraph.split()), {name: said for name, said in arguments.items() if said})

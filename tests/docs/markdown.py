"""What the documentation's tests read from a Markdown page: its fenced blocks, its links, its headings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w-]*)")
NOTE = re.compile(r"^\s*<!--\s*(?P<text>.*?)\s*-->\s*$")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?(?P<target>[^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6}\s+(?P<text>.+?)\s*#*\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block; `note` is the HTML comment on the line before it."""

    page: Path
    line: int
    language: str
    note: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}" if self.page.is_relative_to(ROOT) else f"{self.page}:{self.line}"


def pages(*more: str) -> list[Path]:
    """README.md, everything in docs/, and `more` by name, as far as they exist."""
    named = [ROOT / name for name in ("README.md", *more)]
    return [page for page in named if page.exists()] + sorted((ROOT / "docs").rglob("*.md"))


def blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        if not opening:
            number += 1
            continue
        indent, first = len(opening["indent"]), number + 1
        number = first
        while number < len(lines) and lines[number].strip() != opening["ticks"]:
            number += 1
        before = NOTE.match(lines[first - 2]) if first > 1 else None
        text = "".join(f"{line[indent:] if line[:indent].isspace() else line}\n" for line in lines[first:number])
        yield Block(page, first, opening["language"], before["text"] if before else "", text)
        number += 1


def prose(page: Path) -> list[str]:
    """The lines outside fenced blocks, without inline code."""
    outside: list[str] = []
    fence = ""
    for line in page.read_text(encoding="utf-8").splitlines():
        opening = FENCE.match(line)
        if fence:
            fence = "" if line.strip() == fence else fence
        elif opening:
            fence = opening["ticks"]
        else:
            outside.append(re.sub(r"`[^`]*`", "", line))
    return outside


def links(page: Path) -> Iterator[str]:
    """Targets of the links that stay inside the repository."""
    for line in prose(page):
        for match in LINK.finditer(line):
            if not re.match(r"[a-z][a-z0-9+.-]*:", match["target"], re.IGNORECASE):
                yield match["target"]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings."""
    found: dict[str, int] = {}
    text = re.sub(r"^(`{3,}).*?^\1\s*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for heading in filter(None, map(HEADING.match, text.splitlines())):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading["text"])
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
        if found[slug]:
            found[f"{slug}-{found[slug]}"] = 0
    return set(found)

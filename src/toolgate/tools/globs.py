"""Patterns of file names, as `file_search` takes them: without a slash a name in any folder, with one a path from the folder
that is searched. `*`, `?` and `[…]` stay within a name, `**` stands for any folders, `{a,b}` for either.

ripgrep's own option for such patterns also shows what .gitignore excludes, so they are matched here, after it.
"""

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate

from toolgate.errors import InvalidInput

MAX_ALTERNATIVES = 64
MAX_PATTERN_CHARS = 500
BRACES = re.compile(r"\{([^{}]*)\}")


class Globs:
    """Some patterns, any of which may match. Without one, everything does."""

    def __init__(self, name: str, patterns: Iterable[str], *, ignore_case: bool = False) -> None:
        """`name`: the argument, for messages. Raises InvalidInput for patterns that mean something else elsewhere."""
        flags = re.IGNORECASE if ignore_case else 0
        self._ignore_case = ignore_case
        self._compiled: list[list[re.Pattern[str] | None]] = []
        self._last: list[str] = []
        self.hidden = False
        """True if a pattern names something hidden outright."""
        for pattern in patterns:
            check_glob(name, pattern)
            for one in _alternatives(name, pattern):
                *above, last = (
                    one.strip("/").removeprefix("./").split("/") if "/" in one.strip("/") else ("**", one.strip("/"))
                )
                parts = [*above, last]
                self._compiled.append([None if part == "**" else re.compile(translate(part), flags) for part in parts])
                self._last.append("*" if last == "**" else last)
                self.hidden = self.hidden or any(part.startswith(".") for part in parts)

    def names(self) -> list[str]:
        """Patterns of the names alone, which match at least as much: by these ripgrep leaves out most other files."""
        if self._ignore_case or any(":" in name for name in self._last):
            return []
        return self._last

    def match(self, path: str) -> bool:
        parts = path.split("/")
        return not self._compiled or any(_matches(pattern, parts) for pattern in self._compiled)


def check_glob(name: str, pattern: str) -> None:
    """Raise InvalidInput for what ripgrep would read otherwise."""
    if not 0 < len(pattern) <= MAX_PATTERN_CHARS:
        raise InvalidInput(f"A pattern of {name} has 1 to {MAX_PATTERN_CHARS} characters.")
    if pattern.startswith("!"):
        raise InvalidInput(f"A pattern of {name} can't begin with '!'.", suggestion="Put it into exclude without '!'.")
    if "\\" in pattern:
        raise InvalidInput(f"A pattern of {name} holds a backslash.", suggestion="Put / between folders.")


def _alternatives(name: str, pattern: str) -> list[str]:
    found, whole = [pattern], list[str]()
    while found:
        one = found.pop()
        braces = BRACES.search(one)
        if braces is None:
            whole.append(one)
        else:
            found += [one[: braces.start()] + middle + one[braces.end() :] for middle in braces[1].split(",")]
        if len(found) + len(whole) > MAX_ALTERNATIVES:
            raise InvalidInput(f"A pattern of {name} stands for more than {MAX_ALTERNATIVES} others.")
    return whole


def _matches(pattern: Sequence[re.Pattern[str] | None], parts: Sequence[str]) -> bool:
    """In time that grows with the length of both: a pattern may be hostile."""
    at = {0}
    for piece in pattern:
        if piece is None:
            at = set(range(min(at), len(parts) + 1)) if at else at
        else:
            at = {index + 1 for index in at if index < len(parts) and piece.match(parts[index])}
    return len(parts) in at

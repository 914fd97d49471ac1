"""Rules that say which files of a folder are not deployed: a subset of what gitignore takes, matched in linear time.

The rules come from a file that a stranger may have written. A pattern that is not understood is refused and not passed over,
because what it was to keep back would be published.
"""

from collections.abc import Sequence
from typing import NamedTuple

from toolgate.errors import InvalidInput

MAX_RULES = 1_000
MAX_RULE_CHARS = 500
ALWAYS_IGNORED = frozenset(
    (
        ".git", ".hg", ".svn", "cvs", ".gitmodules", ".gitignore", ".dockerignore", ".npmignore", ".vercel", ".vercelignore",
        ".now", ".nowignore", ".netlify", ".next", ".cache", ".toolgate", "toolgate.yaml", "node_modules", "__pycache__",
        ".venv", "venv", ".ds_store", ".lock-wscript", "npm-debug.log", "config.gypi",
    )
)  # fmt: skip
"""Names, in small letters, that are never part of a site. No rule brings them back."""


class IgnoreRule(NamedTuple):
    """One pattern, part by part; `**` stands for any number of parts."""

    parts: tuple[str, ...]
    keeps: bool
    """True for `!pattern`: what matches is not ignored after all."""
    folders_only: bool

    def matches(self, path: Sequence[str], *, folder: bool) -> bool:
        return (folder or not self.folders_only) and _parts_match(self.parts, path)


class IgnoreRules:
    """The rules of one site."""

    def __init__(self, text: str = "") -> None:
        lines = [line.rstrip() for line in text.splitlines()]
        kept = [line for line in lines if line and not line.startswith("#")]
        if len(kept) > MAX_RULES:
            raise InvalidInput(f"The ignore file has more than {MAX_RULES:,} patterns.")
        self._rules = [_rule(line) for line in kept]

    def ignores(self, path: Sequence[str], *, folder: bool) -> bool:
        """True if a file or folder, of which the folders above are not ignored, is. The last rule that matches counts."""
        if path[-1].lower() in ALWAYS_IGNORED:
            return True
        matching = (not rule.keeps for rule in reversed(self._rules) if rule.matches(path, folder=folder))
        return next(matching, False)


def _rule(line: str) -> IgnoreRule:
    keeps = line.startswith("!")
    pattern = line.removeprefix("!").removeprefix("./")
    if len(line) > MAX_RULE_CHARS or any(char in "[]\\{}" for char in pattern) or not pattern.strip("/"):
        raise InvalidInput(
            f"The pattern {line[:60]!r} of the ignore file is not understood.",
            suggestion="Use names, *, ?, **, / and a leading !.",
        )
    inner = pattern.strip("/").split("/")
    anywhere = len(inner) == 1 and not pattern.startswith("/")
    return IgnoreRule(("**", *inner) if anywhere else tuple(inner), keeps, pattern.endswith("/"))


def _parts_match(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """Matches parts as `_name_matches` does letters: back to the last `**` where it fails, so it takes no more than the
    product of both lengths."""
    at, part, star, mark = 0, 0, -1, 0
    while at < len(path):
        if part < len(pattern) and pattern[part] == "**":
            star, mark, part = part, at, part + 1
        elif part < len(pattern) and _name_matches(pattern[part], path[at]):
            at, part = at + 1, part + 1
        elif star >= 0:
            mark += 1
            at, part = mark, star + 1
        else:
            return False
    return all(rest == "**" for rest in pattern[part:])


def _name_matches(pattern: str, name: str) -> bool:
    """`*` is any number of characters, `?` is one."""
    at, char, star, mark = 0, 0, -1, 0
    while at < len(name):
        if char < len(pattern) and pattern[char] == "*":
            star, mark, char = char, at, char + 1
        elif char < len(pattern) and pattern[char] in ("?", name[at]):
            at, char = at + 1, char + 1
        elif star >= 0:
            mark += 1
            at, char = mark, star + 1
        else:
            return False
    return not pattern[char:].strip("*")

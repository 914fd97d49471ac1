"""What a tier forbids whoever asks and whoever agrees: sensitive files for every tool, unknown commands for tier execute.

`guarded` finds the arguments in question; `paths` and `commands` know what is wrong with them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolgate.approval.guarded import Guarded, Plan, plan
from toolgate.errors import Denied
from toolgate.jsontext import json_path
from toolgate.model import Entry

if TYPE_CHECKING:
    from toolgate.hazards.commands import CommandRules
    from toolgate.hazards.paths import Sensitive

__all__ = ["TierRules", "plan"]

URL = re.compile(r"https?://", re.IGNORECASE)
PACKAGE = re.compile(r"@[\w.-]+/[\w.-]+(?:@[^/]*)?\Z|[\w.-]+@[\d^~<>=*v][^/]*\Z")
"""A package of npm, which looks like a path and is none."""
MOST = 500
"""Paths and commands in one call. Each costs up to a millisecond of looking at files."""


class TierRules:
    """The gate: `check` lets a call's arguments pass, or raises Denied (SECURITY_VIOLATION)."""

    def __init__(
        self,
        *,
        sensitive: Sequence[str] = (),
        allowed: Sequence[str] = (),
        allow: Sequence[str] | None = None,
        deny: Sequence[str] = (),
        home: Path | None = None,
    ) -> None:
        """`home` is where Toolgate keeps its own data, as in the settings."""
        self._path_rules = (sensitive, allowed, home)
        self._command_rules = (allow, deny)

    @cached_property
    def paths(self) -> "Sensitive":
        """What no tool may open. Made when a call first has a path: it takes its time to import."""
        from toolgate.hazards.paths import Sensitive

        sensitive, allowed, home = self._path_rules
        return Sensitive(sensitive, allowed, data=home)

    @cached_property
    def commands(self) -> "CommandRules":
        """What may be run; made when a call first has a command."""
        from toolgate.hazards.commands import CommandRules

        allow, deny = self._command_rules
        return CommandRules(deny=deny) if allow is None else CommandRules(allow, deny)

    def check(self, entry: Entry, arguments: Mapping[str, Any], cwd: Path | None = None) -> None:
        """Look at every path and command among the arguments of a tool that has any. It asks the file system."""
        guards = entry.guards
        if not isinstance(guards, Plan):
            return
        for number, found in enumerate(guards.find(arguments)):
            if number == MOST:
                raise _denied(entry, found, f"is one of more than {MOST} files or commands", "Make several calls of it.")
            if found.kind == "path":
                self._check_path(entry, found, cwd)
            else:
                self._check_command(entry, found, cwd)

    def _check_path(self, entry: Entry, found: Guarded, cwd: Path | None) -> None:
        if URL.match(found.value):
            return
        reason = self.paths.reason(found.value, cwd, writing=entry.tier in ("write", "execute"))
        if reason is not None:
            raise _denied(entry, found, f"names a file that no tool may open: {reason}", self.paths.advice)

    def _check_command(self, entry: Entry, found: Guarded, cwd: Path | None) -> None:
        try:
            words = self.commands.check(_words(found.value))
        except Denied as refused:
            raise _denied(entry, found, f"is a command that may not run: {refused.reason}", refused.suggestion) from None
        for word in words[1:]:
            for path in _paths_in(word, cwd):
                reason = self.paths.reason(path, cwd, writing=True)
                if reason is not None:
                    raise _denied(entry, found, f"names a file that no command may open: {reason}", self.paths.advice)


def _words(command: Any) -> str | list[str]:
    """A command as it was given: a line, a list of words, or a line and the rest of its words."""
    if not isinstance(command, tuple):
        given: str | list[str] = command
        return given
    from toolgate.hazards.commands import parse

    line, rest = command
    return [*parse(line), *(parse(rest) if isinstance(rest, str) else _texts(rest))]


def _texts(rest: Any) -> list[str]:
    if isinstance(rest, list | tuple) and all(isinstance(word, str) for word in rest):
        return list(rest)
    raise Denied("SECURITY_VIOLATION", reason="its arguments are not all text")


def _paths_in(word: str, cwd: Path | None) -> Iterator[str]:
    """What in a word of a command may be a path: the word, what follows = or @ or : in it, or the letter of an option."""
    pieces = {word, *word.split("="), *word.split(":"), word.lstrip("@"), word[2:] if word.startswith("-") else word}
    for piece in pieces:
        if not piece or URL.match(piece) or len(piece) > 4096:
            continue
        is_there = _exists(piece, cwd)
        looks = not re.search(r"\s", piece) and not PACKAGE.match(piece) and re.search(r"[/.~]", piece)
        if looks or is_there:
            yield piece


def _exists(path: str, cwd: Path | None) -> bool:
    try:
        return ((cwd or Path()) / path).exists()
    except (OSError, ValueError):
        return False


def _denied(entry: Entry, found: Guarded, words: str, suggestion: str | None) -> Denied:
    where = json_path(found.where)
    message = f"{entry.name}: the argument {where} {words}."
    return Denied("SECURITY_VIOLATION", message, suggestion=suggestion, details={"argument": where}, reason=message)

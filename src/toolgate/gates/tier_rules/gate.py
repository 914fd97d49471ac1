"""Refuses what a tier forbids, whoever agrees: sensitive files to every tool, unknown commands to tier execute.

`arguments` finds the values in question; `screening.paths` and `screening.commands` know what is wrong with them.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolgate.errors import CallError, Denied
from toolgate.gates.tier_rules.arguments import Guarded, Plan, plan
from toolgate.jsontext import json_path
from toolgate.model import Call, CommandEntry, Entry
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict
from toolgate.threads import Offload

if TYPE_CHECKING:
    from toolgate.screening.commands import CommandReach, CommandRules
    from toolgate.screening.folder_search import FolderLookups
    from toolgate.screening.paths import SensitivePaths

__all__ = ["TierRules", "plan"]

URL = re.compile(r"https?://", re.IGNORECASE)
PACKAGE = re.compile(r"@[\w.-]+/[\w.-]+(?:@[^/]*)?\Z|[\w.-]+@[\d^~<>=*v][^/]*\Z")
"""A package of npm, which looks like a path and is none."""
STARTS_LIKE_A_PATH = re.compile(r"\s*['\"]?(?:[./~\\$%]|[A-Za-z]:[\\/]|[a-z-]*:?file:)", re.IGNORECASE)
ABSOLUTE = re.compile(r"\s*(?:[/~\\]|[A-Za-z]:|\w+://|file:)", re.IGNORECASE)
ADDRESSES = {"api", "database", "service"}
"""Categories of tools whose paths are as likely those of an address or of a document as of a file."""
MAX_GUARDED_VALUES = 500
"""Paths and commands in one call. Each costs up to a millisecond of looking at files."""
MAX_PATH_CHARS = 4096
DECODINGS = 8
FEW_PATHS_BYTES = 2_000
"""Bytes of arguments that hold few paths: each takes up to a millisecond to judge."""
WILDCARD = re.compile(rb"[*?]|[^,:\[{\s]\[")
"""What may be the wildcards of a path among arguments as JSON: to see what they find takes longer than a path does."""


class TierRules:
    """The gate: `check` lets a call's arguments pass, or raises Denied (SECURITY_VIOLATION)."""

    def __init__(
        self,
        *,
        sensitive: Sequence[str] = (),
        allowed: Sequence[str] = (),
        allow: Sequence[CommandEntry] | None = None,
        deny: Sequence[str] = (),
        home: Path | None = None,
        unwritable: Sequence[Path] = (),
        own: Sequence[Path] = (),
        folder: Callable[[Call], Path | None] = lambda _call: None,
        offload: Offload | None = None,
    ) -> None:
        """`home` is where Toolgate keeps its own data, as in the settings, and `own` are files of its own elsewhere: no tool
        opens them. `unwritable` is what it is set up by: no tool above read_only changes, moves or deletes it. `folder` says
        where a call works, from which its paths are seen."""
        self._folder = folder
        self._offload = offload or Offload()
        self._path_rules = (sensitive, allowed, home, own, unwritable)
        self._command_rules = (allow, deny)
        self._narrower: dict[tuple[str, ...], SensitivePaths] = {}

    @cached_property
    def paths(self) -> "SensitivePaths":
        """The files that no tool may open. Made when a call first has a path: it takes its time to import."""
        return self._paths_but(())

    @cached_property
    def commands(self) -> "CommandRules":
        """The commands that may run; made when a call first has one."""
        from toolgate.screening.commands import CommandRules

        allow, deny = self._command_rules
        return CommandRules(deny=deny) if allow is None else CommandRules(allow, deny)

    def enter(self, ctx: InvokeContext, entry: Entry) -> Awaitable[None] | None:
        """Judges the files and commands among the arguments; where there may be many of them, when awaited."""
        call, canonical = ctx.call, ctx.canonical
        check = partial(self.check, entry, ctx.arguments, self._folder(call), call.allow)
        if len(canonical) > FEW_PATHS_BYTES or WILDCARD.search(canonical) is not None:
            return self._enter_large(ctx, check)
        ctx.hosts = check()
        return None

    async def _enter_large(self, ctx: InvokeContext, check: Callable[[], tuple[str, ...]]) -> None:
        ctx.hosts = await self._offload(ctx.call.actor.tenant, check)

    async def explain(self, ctx: InvokeContext, entry: Entry) -> AsyncIterator[GateVerdict]:
        try:
            if entry.guards is not None:
                ctx.hosts = self.check(entry, ctx.arguments, self._folder(ctx.call), ctx.call.allow)
        except CallError as error:
            yield GateVerdict("tier", "deny", error.message)
            return
        destructive = ", destructive" if entry.destructive else ""
        yield GateVerdict("tier", "pass", f"tier {entry.tier}{destructive}; no argument is forbidden in it")

    def check(
        self,
        entry: Entry,
        arguments: Mapping[str, Any],
        cwd: Path | None = None,
        allow: tuple[CommandEntry, ...] | None = None,
    ) -> tuple[str, ...]:
        """Look at every path and command among the arguments of a tool that has any. It asks the file system. `allow`: the
        commands that may run, if others than those of the settings. Gives the hosts that the call may reach."""
        guards, hosts = entry.guards, list(entry.hosts)
        if not isinstance(guards, Plan):
            return tuple(hosts)
        for name in guards.queries:
            _check_query(entry, name, arguments.get(name))
        looks: FolderLookups | None = None
        for number, found in enumerate(guards.find(arguments)):
            if number == MAX_GUARDED_VALUES:
                raise _denied(
                    entry, found, f"is one of more than {MAX_GUARDED_VALUES} files or commands", "Make several calls of it."
                )
            looks = looks or _look()
            if found.kind == "command":
                hosts += self._check_command(entry, found, cwd, looks, allow)
            elif found.kind == "variable":
                _check_variable(entry, found)
            else:
                self._check_path(entry, found, cwd, looks, self._paths_but(guards.blocked))
        return tuple(dict.fromkeys(hosts))

    def _paths_but(self, blocked: tuple[str, ...]) -> "SensitivePaths":
        """The files that a tool may not open; patterns of its own server weigh more than any exception."""
        if blocked not in self._narrower:
            from toolgate.screening.paths import SensitivePaths

            sensitive, allowed, home, own, unwritable = self._path_rules
            self._narrower[blocked] = SensitivePaths(
                sensitive, allowed, data=home, own=own, unwritable=unwritable, blocked=blocked
            )
        return self._narrower[blocked]

    def _check_path(
        self, entry: Entry, found: Guarded, cwd: Path | None, looks: "FolderLookups", paths: "SensitivePaths"
    ) -> None:
        category = entry.tool.category
        perhaps = found.kind == "maybe" and category != "filesystem"
        for path in _spellings(found):
            if (perhaps and not _looks_like_a_path(path, cwd)) or _is_address(path, cwd):
                continue
            reason = paths.reason(
                path,
                cwd,
                writing=entry.tier != "read_only",
                holder=found.holder,
                doubtful=perhaps or found.kind == "inside" or (not found.said and category in ADDRESSES),
                looks=looks,
            )
            if reason is not None:
                raise _denied(entry, found, f"names a file that no tool may open: {reason}", self.paths.advice)

    def _check_command(
        self, entry: Entry, found: Guarded, cwd: Path | None, looks: "FolderLookups", allow: tuple[CommandEntry, ...] | None
    ) -> tuple[str, ...]:
        """Gives the hosts that the command may reach."""
        rules = self.commands if allow is None else self.commands.allowing(allow)
        try:
            # A person agrees to each command of a tool that declares `jails_commands`. With `allow` somebody agreed to
            # these commands at once, and not to what their arguments could make of them.
            words = rules.check(_words(found.value), jailed=entry.jails_commands and allow is None)
        except Denied as refused:
            raise _denied(entry, found, f"is a command that may not run: {refused.reason}", refused.suggestion) from None
        for word in words[1:]:
            for piece in _paths_in(word, cwd, found.bases):
                for path in _spellings(found._replace(value=piece)):
                    reason = self.paths.reason(path, cwd, writing=True, looks=looks)
                    if reason is not None:
                        raise _denied(entry, found, f"names a file that no command may open: {reason}", self.paths.advice)
        # A command that is not jailed has the network of its own program, whatever is said here.
        return (
            _reach(entry, found, rules.reach(words), cwd, "commands.allow" if allow is None else "allowlist")
            if (entry.jails_commands)
            else ()
        )


def _reach(entry: Entry, found: Guarded, reach: "CommandReach", cwd: Path | None, setting: str) -> tuple[str, ...]:
    """The hosts of a jailed command. One that cannot do without any, and has none, is refused: it would fail or wait."""
    from toolgate.screening.network_commands import network_use

    here = cwd or Path()
    folders = [here, *(here / base for base in found.bases)] if reach.hosts is None else []
    use = network_use(reach.words, folders)
    if use is None or (use.helped_by_hosts and reach.hosts is not None):
        return reach.hosts or ()
    advice = use.advice
    if use.helped_by_hosts:
        begins = " ".join(reach.words[:2])
        entry_text = f"{{command: {begins}, hosts: [HOST]}}"
        advice = f"Whoever runs Toolgate can name its hosts in the setting {setting}: {entry_text}. {advice}".strip()
    raise _denied(entry, found, f"is a command that cannot run here: {use.why}", advice)


def _check_query(entry: Entry, name: str, sql: Any) -> None:
    from toolgate.screening.queries import check_query

    try:
        check_query(sql if isinstance(sql, str) else "")
    except Denied as refused:
        words = f"is no query that only reads: {refused.reason or refused.message}"
        raise _denied(entry, Guarded("neither", sql, (name,)), words, refused.suggestion) from None


def _look() -> "FolderLookups":
    from toolgate.screening.folder_search import FolderLookups

    return FolderLookups()


def _check_variable(entry: Entry, found: Guarded) -> None:
    from toolgate.screening.commands import leads_astray

    if leads_astray(found.value):
        words = "sets a variable that can change what a command runs or whom it trusts"
        raise _denied(entry, found, words, "Leave it out. A variable that only the program itself reads is fine.")


def _spellings(found: Guarded) -> Iterator[str]:
    """A path as it stands, and relative to the folders that stand beside it."""
    if found.kind != "inside":
        yield found.value
    if not ABSOLUTE.match(found.value):
        for base in found.bases:
            yield f"{base}/{found.value}"


def _looks_like_a_path(value: str, cwd: Path | None) -> bool:
    """True if a text that may be a path or something else looks like one."""
    if len(value) > MAX_PATH_CHARS or "\n" in value:
        return False
    slash = re.search(r"[/\\]|%2f|%5c", value, re.IGNORECASE) and not re.search(r"\s", value.strip())
    return bool(STARTS_LIKE_A_PATH.match(value) or slash) or _exists(value, cwd)


def _is_address(text: str, cwd: Path | None) -> bool:
    """True of an address of the web that can be nothing else: as a path, http://x/../../a leads to a file."""
    if not URL.match(text):
        return False
    from urllib.parse import unquote

    from toolgate.screening.lookalikes import fold

    for _ in range(DECODINGS):
        before, text = text, unquote(text)
        if before == text:
            break
    else:
        return False
    seen = fold(text)
    if "\\" in seen or any(char < " " or char == "\x7f" for char in seen):
        return False
    return ".." not in re.split(r"[/?#&=;]", seen) and not _exists(text, cwd)


def _words(command: Any) -> str | list[str]:
    """A command as it was given: a line, a list of words, or either and the rest of its words."""
    if not isinstance(command, tuple):
        given: str | list[str] = command
        return given
    from toolgate.screening.commands import parse

    first, *rests = command
    words = parse(first)
    for rest in rests:
        words += parse(rest) if isinstance(rest, str) and rest.strip() else _texts(rest)
    return words


def _texts(rest: Any) -> list[str]:
    if isinstance(rest, Mapping):
        return [f"--{name}={value}" if isinstance(value, str) else f"--{name}" for name, value in rest.items()]
    if isinstance(rest, str):
        return []
    if isinstance(rest, list | tuple) and all(isinstance(word, str) for word in rest):
        return list(rest)
    raise Denied("SECURITY_VIOLATION", reason="its arguments are not all text")


def _paths_in(word: str, cwd: Path | None, bases: Sequence[str]) -> Iterator[str]:
    """The pieces of a command's word that may be paths: the word, what follows = or @ or : in it, or an option's letter."""
    pieces = {word, *word.split("="), word.lstrip("@"), word[2:] if word.startswith("-") else word}
    addresses = {piece for piece in pieces if _is_address(piece, cwd)}
    if not addresses:
        pieces.update(word.split(":"))
    for piece in pieces - addresses:
        if not piece or len(piece) > MAX_PATH_CHARS:
            continue
        is_there = _exists(piece, cwd) or any(_exists(f"{base}/{piece}", cwd) for base in bases)
        looks = not re.search(r"\s", piece) and not PACKAGE.match(piece) and re.search(r"[/.~]", piece)
        if (looks or is_there) and not any(address in piece for address in addresses):
            yield piece


def _exists(path: str, cwd: Path | None) -> bool:
    try:
        return ((cwd or Path()) / Path(path).expanduser()).exists()
    except (OSError, ValueError, RuntimeError):
        return False


def _denied(entry: Entry, found: Guarded, words: str, suggestion: str | None) -> Denied:
    where = json_path(found.where)
    message = f"{entry.name}: the argument {where} {words}."
    return Denied("SECURITY_VIOLATION", message, suggestion=suggestion, details={"argument": where}, reason=message)

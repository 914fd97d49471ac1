"""Commands as argument lists: what is allowed is decided on the words that a program would get, not on a line of text.

A command is never given to a shell. `parse` splits a line as a shell would and refuses all that only a shell could do, so
the line means the same with and without one. `CommandRules` then looks for the command among those that are allowed, and
for what makes an allowed program run another (`programs`). The lists are a convenience; the jail is the boundary.
"""

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple, Protocol

from toolgate.errors import Denied
from toolgate.screening.lookalikes import fold, unseen
from toolgate.screening.programs import DENIED, WRAPPERS, danger, denies, family, is_harmless, runs_others

ALLOWED = ("npm install", "npm run", "git commit", "git push", "npx prisma", "docker build")
PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""The folders of programs, whatever the environment says."""
MAX_COMMAND_CHARS, MAX_COMMAND_WORDS, MAX_WRAPPERS = 100_000, 10_000, 5
LINES = str.maketrans("", "", "\n\t")
"""Characters that may stand inside of a word, for a message of several lines. Between words they are refused."""
PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\Z")
ASSIGNMENT = re.compile(r"\w+\+?=")
SHELL_ONLY = {
    ";": "a second command", "&": "a second command", "|": "a pipe", "<": "a redirection", ">": "a redirection",
    "`": "a command inside the command", "$": "a variable or a command inside the command", "(": "a subshell",
    ")": "a subshell", "*": "a wildcard", "?": "a wildcard", "[": "a wildcard", "]": "a wildcard", "{": "a list of words",
    "}": "a list of words", "~": "a home directory", "#": "a comment", "!": "the history", "\\": "a quoted character",
    "\n": "the end of the command", "\r": "the end of the command",
}  # fmt: skip
TOKEN = re.compile(
    r"""(?P<space>[ \t]+)|'(?P<single>[^']*)'|"(?P<double>[^"$`\\]*)"|(?P<plain>[^\s'";&|<>`$()*?\[\]{}~#!\\]+)"""
)
"""The tokens of a line. Between double quotes a shell expands $, ` and \\ too."""


def parse(command: str | Sequence[str]) -> list[str]:
    """The words of a command, as a program would get them; Denied (SECURITY_VIOLATION) if it takes a shell to say."""
    words = _split(command) if isinstance(command, str) else list(command)
    if not words:
        raise _refuse("it is empty")
    if len(words) > MAX_COMMAND_WORDS:
        raise _refuse("it is too long")
    for word in words:
        if not isinstance(word, str):
            raise _refuse("its arguments are not all text")
        hidden = unseen(word.translate(LINES))
        if hidden is not None:
            raise _refuse(f"it holds the character {hidden}, which is not seen where the command is shown")
    return words


def _split(line: str) -> list[str]:
    if len(line) > MAX_COMMAND_CHARS:
        raise _refuse("it is too long")
    words: list[str] = []
    at, inside = 0, False
    while at < len(line):
        token = TOKEN.match(line, at)
        if token is None:
            raise _refuse(_why_not(line, at))
        text = token["single"] or token["double"] or token["plain"] or ""
        if token["space"]:
            inside = False
        elif inside:
            words[-1] += text
        else:
            words.append(text)
            inside = True
        at = token.end()
    return words


def _why_not(line: str, at: int) -> str:
    """The fault of a line at a place where no word, quote or space begins."""
    char = line[at]
    if char in SHELL_ONLY:
        return f"{char if char > ' ' else 'a new line'} is {SHELL_ONLY[char]}, which only a shell understands"
    if char in "'\"":
        inner = re.search(r'["$`\\]', line[at + 1 :])
        if char == "'" or inner is None or inner[0] == '"':
            return "a quote is not closed"
        return f"{inner[0]} between double quotes is {SHELL_ONLY[inner[0]]}, which only a shell understands"
    return f"it holds the character U+{ord(char):04X}, which is no space that separates words"


ANY_PROGRAM = ("*",)


class HostedCommand(Protocol):
    """An allowed command that may reach hosts (`model.AllowedCommand`)."""

    @property
    def command(self) -> str: ...
    @property
    def hosts(self) -> tuple[str, ...]: ...


class CommandReach(NamedTuple):
    """The command that a list of words runs in the end, and the hosts that it may reach."""

    words: list[str]
    """Without the programs that only run it, such as timeout."""
    hosts: tuple[str, ...] | None
    """None: its entry says nothing of a network."""


class CommandRules:
    """The commands that may run. An allowed one is a beginning, word by word: "git commit" is not "git commit-tree", but
    "git commit*" is. The entry "*" allows the programs that are harmless with any arguments. What is denied stays so,
    whatever is allowed.

    A command that runs in the sandbox is held by the jail, so there its arguments are free, and "*" allows any program. Not
    git's: it may write the workspace itself, which other programs may not."""

    def __init__(self, allow: "Sequence[str | HostedCommand]" = ALLOWED, deny: Sequence[str] = ()) -> None:
        pairs = [(entry, None) if isinstance(entry, str) else (entry.command, entry.hosts) for entry in allow]
        self._entries = [(tuple(command.split()), hosts) for command, hosts in pairs]
        self.allow = [words for words, _ in self._entries]
        self.deny = [tuple(entry.split()) for entry in (*DENIED, *deny)]

    def allowing(self, allow: "Sequence[str | HostedCommand]") -> "CommandRules":
        """The same rules with another list of what is allowed."""
        rules = CommandRules(allow)
        rules.deny = self.deny
        return rules

    def check(self, command: str | Sequence[str], *, jailed: bool = False) -> list[str]:
        """The argument list to run, without a shell; Denied (SECURITY_VIOLATION) if it is not allowed. `jailed`: it is run
        in the sandbox, and nowhere else."""
        words = parse(command)
        self._check(words, 0, jailed)
        return words

    def reach(self, words: list[str]) -> CommandReach:
        """The network of a command that was let through (`check`): what the longest entry that it begins with says. Entries
        of the same words add up."""
        while family(words[0]) in WRAPPERS:
            words = self._wrapped(family(words[0]), words)
        fits = [(entry, hosts) for entry, hosts in self._entries if entry == ANY_PROGRAM or _begins(words, entry)]
        longest = max((_weight(entry) for entry, _ in fits), default=0)
        named = [hosts for entry, hosts in fits if _weight(entry) == longest and hosts is not None]
        return CommandReach(words, tuple(dict.fromkeys(host for hosts in named for host in hosts)) if named else None)

    def _check(self, words: list[str], depth: int, jailed: bool) -> None:
        program = self._program(words, depth)
        name = family(program)
        for rule in self.deny:
            denied = any(fnmatchcase(known, rule[0].lower()) for known in (program.lower(), name))
            if denied and denies(rule[1:], words[1:]):
                raise _refuse(f"{' '.join((program.lower(), *rule[1:]))} is never run")
        start = self._allowed(words, jailed)
        if name in WRAPPERS:
            self._check(self._wrapped(name, words), depth + 1, jailed)
            return
        if jailed and name != "git":
            return
        if start == 0 and not is_harmless(program):
            raise self._unknown(program, "may do harm by its arguments, so it has to be allowed by its name")
        if start < len(words) and runs_others(program):
            raise self._unknown(program, "can start other programs, so allow full command lines of it, not its name alone")
        if any(word.startswith("---") for word in words[max(start, 1) :]):
            raise _refuse("an option begins with three dashes, which some programs read as two")
        more = danger(words, max(start, 1))
        if more is not None:
            raise _refuse(f"{program} is allowed, but not with {more}")

    def _program(self, words: list[str], depth: int) -> str:
        if not words or depth > MAX_WRAPPERS:
            raise _refuse("it does not say what to run" if not words else "it is wrapped too often")
        program = words[0]
        if ASSIGNMENT.match(program):
            raise _refuse("it sets a variable for the program, which can change what is run")
        if "/" in program or "\\" in program:
            raise _refuse("a program is given by its name, without a folder")
        if not program.isascii():
            raise _refuse(f"the program's name only looks like {fold(program)}")
        if not PROGRAM.match(program):
            raise _refuse("a program's name has letters, digits and ._+- only")
        return program

    def _allowed(self, words: list[str], jailed: bool) -> int:
        """The number of words of the longest matching entry; 0 if it does not name the program itself."""
        fits = [
            0 if "*" in entry[0] else len(entry) for entry in self.allow if entry != ANY_PROGRAM and _begins(words, entry)
        ]
        if fits:
            return max(fits)
        if ANY_PROGRAM in self.allow:
            return 0
        is_named = any(entry[:1] == (words[0],) for entry in self.allow)
        raise self._unknown(
            words[0], "is allowed only with other arguments" if is_named else "is not an allowed command", jailed
        )

    def _wrapped(self, name: str, words: list[str]) -> list[str]:
        line = "".join(f"{word}\0" for word in words[1:])
        own = re.match(WRAPPERS[name], line)
        if own is None:
            raise _refuse(f"{name} is given options that hide what it runs")
        return line[own.end() :].split("\0")[:-1]

    def _unknown(self, program: str, words: str, jailed: bool = False) -> Denied:
        hosted = {entry for entry, hosts in self._entries if hosts is not None}
        lacking = {entry for entry in self.allow if entry not in hosted and _needs_network(entry)} if jailed else set()
        listed = ", ".join(" ".join(entry) for entry in self.allow if entry not in lacking) or "nothing"
        others = ", ".join(" ".join(entry) for entry in self.allow if entry in lacking)
        listed = f"{listed}; these lack a network or a daemon in the sandbox: {others}" if others else listed
        return _refuse(f"{program} {words}", f"Allowed commands: {listed}. The setting commands.allow lists them.")


def _needs_network(entry: Sequence[str]) -> bool:
    from toolgate.screening.network_commands import network_use

    return bool(entry) and network_use(entry, ()) is not None


def _weight(entry: Sequence[str]) -> int:
    """Orders entries: the more words, the more exact; the one that allows any program last."""
    return 0 if entry == ANY_PROGRAM else len(entry)


def _begins(words: Sequence[str], entry: Sequence[str]) -> bool:
    """True if a command begins as an entry says. A word of an entry may end in *, which stands for the rest of that word."""
    if not entry or len(words) < len(entry):
        return False
    return all(
        word.startswith(said[:-1]) if said.endswith("*") else word == said for word, said in zip(words, entry, strict=False)
    )


def _refuse(reason: str, suggestion: str | None = None) -> Denied:
    advice = "Give one plain command, as a program and its arguments; the setting commands.allow says which."
    return Denied("SECURITY_VIOLATION", f"The command is refused: {reason}.", suggestion=suggestion or advice, reason=reason)


def clean_environment(home: Path | None = None) -> dict[str, str]:
    """The environment to run a command in: nothing of ours, so no LD_PRELOAD, GIT_SSH, NODE_OPTIONS, BASH_ENV or secret."""
    if os.name == "nt":
        system = os.environ.get("SYSTEMROOT", r"C:\Windows")
        return {
            "PATH": rf"{system}\System32;{system}", "SYSTEMROOT": system, "USERPROFILE": str(home or Path.home()),
        }  # fmt: skip
    return {"PATH": os.pathsep.join(PROGRAM_FOLDERS), "HOME": str(home or Path.home()), "LANG": "C.UTF-8"}


# -- variables that make a program run, load or trust something else than its arguments say

LEADS_ASTRAY = re.compile(
    r"LD_\w+|DYLD_\w+|GIT_(?!(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)\Z|TERMINAL_PROMPT\Z)\w+|SSH_ASKPASS\w*|SVN_SSH|CVS_RSH|RSYNC_RSH"
    r"|NODE_(?!ENV\Z)\w+|NPM_CONFIG_\w+|YARN_\w+|BUN_\w+|DENO_\w+|PYTHON(?!UNBUFFERED\Z|DONTWRITEBYTECODE\Z|UTF8\Z|HASHSEED\Z)\w+"
    r"|PIP_\w+|UV_\w+|VIRTUAL_ENV|PERL\w*|RUBY(?:OPT|LIB|PATH)|GEM_\w+|BUNDLE_\w+|PHP(?:RC|_INI_SCAN_DIR)|LUA_(?:INIT|C?PATH)\w*"
    r"|JAVA_HOME|\w*JAVA_(?:TOOL_)?OPTIONS|CLASSPATH|MAVEN_\w+|GRADLE_\w+|GO(?:FLAGS|ENV|ROOT|PROXY|PATH|TOOLCHAIN)|CARGO_\w+"
    r"|RUSTC?_?(?:WRAPPER|FLAGS)|RUSTC|RUSTDOC|CC|CXX|CPP|LD|AR|MAKEFLAGS|GNUMAKEFLAGS|MAKEFILES|CMAKE_\w+|COMPILER_PATH|GCC_\w+"
    r"|PATH|PATHEXT|CDPATH|FPATH|ENV|BASH_\w+|BASHOPTS|SHELL|SHELLOPTS|IFS|PS[0-4]|PROMPT_COMMAND|ZDOTDIR|GLOBIGNORE|COMSPEC"
    r"|\w*EDITOR|VISUAL|\w*PAGER|BROWSER|LESSOPEN|LESSCLOSE|LESS|MANOPT|TAR_OPTIONS|GZIP|ZIPOPT|GREP_OPTIONS|TAPE|RSH"
    r"|HOME|USERPROFILE|APPDATA|XDG_\w+|TMUX\w*|TERMINFO\w*|TERMCAP|GCONV_PATH|LOCPATH|NLSPATH|HOSTALIASES|RES_OPTIONS|MALLOC_\w+"
    r"|GLIBC_TUNABLES|DOCKER_\w+|BUILDKIT_\w+|BUILDX_\w+|CONTAINER_HOST|KUBECONFIG|OPENSSL_\w+|SSL_CERT_\w+|SSLKEYLOGFILE|CURL_HOME"
    r"|WGETRC|INPUTRC|PRISMA_\w+|\w+_PROXY|\w*PRELOAD\w*",
    re.IGNORECASE,
)
"""By their names: loaders, start files, search paths, editors and pagers, where settings are read and whom to trust."""


def leads_astray(name: str) -> bool:
    """True if a variable of this name decides what is run or loaded; also if it is no proper name."""
    return LEADS_ASTRAY.fullmatch(name) is not None or re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is None

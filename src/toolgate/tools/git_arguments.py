"""The words that `git` takes for each operation: the few options that are known, revisions, paths. None is handed to git as
it came: an option becomes one of ours, a revision can't be an option, and a path is marked as nothing but a path."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Literal

import msgspec

from toolgate.errors import InvalidInput

Operation = Literal["status", "diff", "log", "commit", "branch", "checkout"]
REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./~^@{}+-]{0,250}\Z")
BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,200}\Z")
COUNT = re.compile(r"(?:-n|--max-count=|-)([0-9]{1,4})\Z")
FLAGS: Mapping[Operation, Mapping[str, str]] = {
    "status": {},
    "diff": {"--staged": "staged", "--cached": "staged", "--stat": "names", "--numstat": "names", "--name-only": "names"},
    "log": {"--oneline": "", "--stat": ""},
    "commit": {"-a": "all", "--all": "all"},
    "branch": {"--list": "", "-l": ""},
    "checkout": {},
}
"""Options without a value, and what they mean here; the output of some is the same anyway."""
VALUES: Mapping[Operation, Mapping[str, str]] = {
    "log": {"-n": "count", "--max-count": "count"},
    "commit": {"-m": "message", "--message": "message"},
    "checkout": {"-b": "branch"},
}
COMMIT = "^{commit}"
"""Behind a revision: the commit that it leads to."""
MAX_ARGUMENTS = 200


class Words(msgspec.Struct, kw_only=True):
    """The meaning of some words."""

    flags: set[str] = msgspec.field(default_factory=set)
    count: int | None = None
    messages: list[str] = msgspec.field(default_factory=list)
    branch: str | None = None
    plain: list[str] = msgspec.field(default_factory=list)
    """Words before `--`: revisions, or paths where there can be no revision."""
    paths: list[str] | None = None
    """Words behind `--`; None if there is none."""


def read(operation: Operation, args: Sequence[str]) -> Words:
    """Reads the words of a call; raises InvalidInput for options that are not known here."""
    if len(args) > MAX_ARGUMENTS:
        raise InvalidInput(f"There are more than {MAX_ARGUMENTS} args.")
    words = Words()
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words.paths = rest
            break
        if not word.startswith("-"):
            words.plain.append(word)
        elif word in FLAGS[operation]:
            words.flags.add(FLAGS[operation][word])
        else:
            _take(operation, word, rest, words)
    return words


def _take(operation: Operation, word: str, rest: list[str], words: Words) -> None:
    """An option with a value: beside it, behind `=`, or for a number right behind it."""
    values = VALUES.get(operation, {})
    counted = COUNT.match(word) if "count" in values.values() else None
    name, sign, value = word.partition("=")
    if counted is not None:
        words.count = int(counted[1])
    elif name in values and name.startswith("--") and sign:
        _set(words, values[name], value)
    elif word in values and rest:
        _set(words, values[word], rest.pop(0))
    else:
        known = ", ".join(sorted({*FLAGS[operation], *values})) or "none"
        raise InvalidInput(
            f"git {operation} takes no option {word[:40]!r} here.",
            suggestion=f"Options of {operation}: {known}. Put -- before paths that begin with '-'.",
        )


def _set(words: Words, meaning: str, value: str) -> None:
    if meaning == "message":
        words.messages.append(value)
    elif meaning == "branch":
        words.branch = branch_name(value)
    elif value.isascii() and value.isdigit() and len(value) < 5:
        words.count = int(value)
    else:
        raise InvalidInput("The count must be a number of at most four digits.")


def revision(word: str) -> str:
    """A word that can be nothing but one revision: a branch, tag or commit, and those before it."""
    if not REVISION.match(word) or ".." in word:
        raise InvalidInput(
            f"{word[:60]!r} is no revision.",
            suggestion="Name a branch, a tag or a commit, such as HEAD~2; paths stand behind --.",
        )
    return word


def commit_only(word: str) -> str:
    """A revision that git takes for nothing but a commit. Files and folders of the history have ids too, by which their
    content is compared under another name."""
    return revision(word) + COMMIT


def branch_name(word: str) -> str:
    """A word that can be nothing but the name of a branch."""
    unfit = any(not part or part[0] == "." or part.endswith((".lock", ".")) for part in word.split("/"))
    if unfit or not BRANCH.match(word) or ".." in word:
        raise InvalidInput(f"{word[:60]!r} can't be the name of a branch.", suggestion="Use letters, digits, - and /.")
    if word in ("HEAD", "FETCH_HEAD", "ORIG_HEAD", "MERGE_HEAD"):
        raise InvalidInput(f"{word} is not a valid name for a branch.", suggestion="Choose another.")
    return word


def relative_path(word: str) -> str:
    """A path in the repository, as git has it. Raises InvalidInput for one that is absolute or leads out."""
    path = PurePosixPath(word)
    depth = 0
    for part in path.parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            break
    if not word or word.startswith("/") or depth < 0 or any(char < " " or char == "\x7f" for char in word):
        raise InvalidInput(f"{word[:60]!r} is no path in the repository.", suggestion="Name it relative to the repository.")
    return word


def pathspec(path: str) -> str:
    """A path for git: no pattern, no option, from the top of the repository."""
    return ":(top)" if normpath(path) == "." else f":(top,literal){path}"


def without(path: str) -> str:
    """A path that git is to leave out."""
    return f":(top,exclude,literal){path}"

"""The outputs of `git`, read off what git wrote.

Names and texts in it were made by whoever made the repository: they are split by what can't be in them, and a part that
can't be read is left out.
"""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from typing_extensions import TypedDict

MAX_FILES = 1_000
MAX_DIFF_CHARS = 100_000
STATES = {"M": "modified", "T": "type changed", "A": "added", "D": "deleted", "R": "renamed", "C": "copied", "U": "unmerged"}
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"\Z')
ESCAPE = re.compile(r"\\([0-7]{3}|.)")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class ChangedFile(TypedDict, total=False):
    """A file that differs. `insertions` and `deletions` are lines, and missing for what is no text."""

    path: str
    status: str
    staged: bool
    insertions: int
    deletions: int


class Commit(TypedDict):
    """One commit of a log."""

    commitHash: str
    author: str
    date: str
    subject: str


class Branch(TypedDict):
    """A branch, and whether it is checked out."""

    name: str
    commitHash: str
    current: bool


class Status(TypedDict):
    """The files that differ from the last commit, or are staged. No branch: a commit is checked out."""

    branch: str | None
    files: list[ChangedFile]
    truncated: bool


class Diff(TypedDict):
    """The differences, as a patch."""

    diff: str
    truncated: bool


class DiffFiles(TypedDict):
    """The files that differ."""

    files: list[ChangedFile]
    truncated: bool


class Log(TypedDict):
    """Commits, the newest first."""

    commits: list[Commit]


class Committed(TypedDict):
    """The commit that was made."""

    commitHash: str
    filesChanged: int
    insertions: int
    deletions: int


class Branches(TypedDict):
    """The branches."""

    branches: list[Branch]


class CheckedOut(TypedDict):
    """The commit that is checked out, and how many files changed."""

    commitHash: str
    filesChanged: int


def status(output: str) -> tuple[str | None, list[ChangedFile]]:
    """The branch and the files of `status --porcelain=v2 --branch -z`."""
    branch: str | None = None
    files: list[ChangedFile] = []
    for record in output.split("\0"):
        kind = record[:2]
        if record.startswith("# branch.head "):
            name = record.removeprefix("# branch.head ")
            branch = None if name == "(detached)" else name
        elif kind == "? ":
            files.append({"path": record[2:], "status": "untracked", "staged": False})
        elif kind == "u ":
            files.append({"path": record.split(" ", 10)[-1], "status": "unmerged", "staged": False})
        elif kind == "1 " and record.count(" ") >= 8:
            _, states, *_, path = record.split(" ", 8)
            for state, staged in ((states[0], True), (states[1], False)):
                if state != ".":
                    files.append({"path": path, "status": STATES.get(state, "modified"), "staged": staged})
    return branch, files


def numstat(output: str) -> list[ChangedFile]:
    """The files of `--numstat -z` without renames."""
    files: list[ChangedFile] = []
    for record in output.split("\0"):
        added, _, rest = record.lstrip("\n").partition("\t")
        deleted, sign, path = rest.partition("\t")
        if not sign:
            continue
        file: ChangedFile = {"path": path}
        if added.isdigit() and deleted.isdigit():
            file["insertions"], file["deletions"] = int(added), int(deleted)
        files.append(file)
    return files


def raw_paths(output: str) -> list[str]:
    """The paths of `--raw -z` without renames."""
    records = output.split("\0")
    return [path for meta, path in zip(records[::2], records[1::2], strict=False) if meta.startswith(":")]


def commits(output: str) -> list[Commit]:
    """The commits of a log in the format LOG_FORMAT."""
    fields = output.split("\0")
    return [
        {"commitHash": id.strip(), "author": author, "date": date, "subject": subject}
        for id, author, date, subject in zip(fields[::4], fields[1::4], fields[2::4], fields[3::4], strict=False)
    ]


LOG_FORMAT = "--format=tformat:%H%x00%an%x00%aI%x00%s%x00"
BRANCH_FORMAT = "--format=%(refname:short)%00%(objectname)%00%(HEAD)"


def branches(output: str) -> list[Branch]:
    """The branches of for-each-ref in the format BRANCH_FORMAT."""
    found: list[Branch] = []
    for line in output.split("\n"):
        name, _, rest = line.partition("\0")
        id, sign, head = rest.partition("\0")
        if sign:
            found.append({"name": name, "commitHash": id, "current": head == "*"})
    return found


# -- diffs


def shown_diff(output: str, may_show: Callable[[str], bool]) -> tuple[str, bool]:
    """A diff without the files that may not be shown, nor those whose name can't be read; True: it was cut."""
    pieces = [piece for path, piece in _sections(output) if path is not None and may_show(path)]
    text = "".join(pieces)
    return (text, False) if len(text) <= MAX_DIFF_CHARS else (text[:MAX_DIFF_CHARS].rpartition("\n")[0] + "\n", True)


def _sections(output: str) -> Iterator[tuple[str | None, str]]:
    """A diff file by file. No line of a file can be taken for a beginning: each has a sign before it."""
    starts = [match.start() for match in re.finditer(r"^diff --", output, re.MULTILINE)]
    for start, end in pairwise([*starts, len(output)]):
        piece = output[start:end]
        yield _path_of(piece.partition("\n")[0]), piece


def _path_of(line: str) -> str | None:
    """The path in `diff --git a/PATH b/PATH`: the same twice, since renames are not looked for."""
    both = line.removeprefix("diff --git ")
    if both == line:
        return None
    half = (len(both) - 1) // 2
    one, other = both[:half], both[half + 1 :]
    quoted = QUOTED.match(one), QUOTED.match(other)
    if quoted[0] is not None and quoted[1] is not None:
        one, other = _unquoted(quoted[0][1]), _unquoted(quoted[1][1])
    same = one.startswith("a/") and other.startswith("b/") and one[2:] == other[2:]
    return one[2:] if same else None


def _unquoted(text: str) -> str:
    def char(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code, 8)) if code.isdigit() else ESCAPES.get(code, code)

    found = ESCAPE.sub(char, text)
    try:
        return found.encode("latin-1").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return found

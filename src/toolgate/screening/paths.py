"""Paths that no tool may open: recognised by what would be opened, not by how it is spelled.

A path is read in every way in which a tool might read it (as it stands, URL-decoded, with ~ expanded, with look-alike
letters folded …); each reading is followed through links to the file that it stands for; and each name of it is judged by
`filenames`. Where one of them is sensitive, the path is. `open_read` judges again what was really opened, because a link
can be turned between the check and the opening.

What can't be seen from here: a copy of a secret under an innocent name, and a bind mount of one. The jail is the boundary.
"""

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import unquote

from toolgate.errors import Denied
from toolgate.screening.filenames import hidden_in_home, holds, is_inside, runs, runs_by_name
from toolgate.screening.folder_search import MAGIC, FolderLookups, LookupLimitExceeded, slashed
from toolgate.screening.lookalikes import fold, fold_lower
from toolgate.screening.safe_open import ESCAPE_ADVICE, PathEscape, name_of, open_beneath, open_plainly
from toolgate.screening.toolgate_files import own_by_content

MAX_PATH_CHARS = 4096
WELL_KNOWN = (
    "", ".ssh", ".aws", ".aws/sso/cache", ".gnupg", ".gnupg/private-keys-v1.d", ".azure", ".kube", ".docker",
    ".config/gcloud", ".config/gh",
)  # fmt: skip
"""Folders of a home in which another name of a file is looked for."""
SYSTEM = ("/etc", "/etc/ssh", "/etc/ssl/private", "/run/secrets")
HOME_VARIABLE = re.compile(r"\$(?:\{HOME\}|HOME\b)|%(?:USERPROFILE|HOME)%", re.IGNORECASE)
PATH_ADVICE = "Name another file. If this one is harmless, its owner can add it to the setting paths.allowed."


class SensitivePaths:
    """The rules: those of `filenames`, more of them by pattern, and exceptions by pattern.

    A pattern names files and folders, and with a folder all that is in it. Without a slash it is a name, anywhere
    (`*.sqlite`); with one, the end of a path (`fixtures/*.pem`), or a whole path if it begins with / or ~.
    """

    def __init__(
        self,
        patterns: Iterable[str] = (),
        allowed: Iterable[str] = (),
        home: Path | None = None,
        data: Path | None = None,
        own: Iterable[Path] = (),
        unwritable: Iterable[Path] = (),
        blocked: Iterable[str] = (),
    ) -> None:
        """`own` are files of Toolgate's: nobody opens them. `unwritable` may be read, but not be changed, moved or deleted,
        nor may the folders that they are in. Both count whatever is allowed, and by what they are at the time of a call.
        `blocked` are more patterns, which no exception is made from."""
        self.home = str(home or os.path.expanduser("~"))  # noqa: PTH111 - Path raises where there is none
        self._homes = tuple({slashed(place).lower().rstrip("/") for place in (self.home, os.path.realpath(self.home))})
        self._more = [_compiled(pattern, self.home) for pattern in patterns]
        self._allowed = [_compiled(pattern, self.home) for pattern in allowed]
        self._blocked = [_compiled(pattern, self.home) for pattern in blocked]
        self._data = None if data is None else slashed(os.path.realpath(data))
        self._own, self.unwritable = tuple(own), tuple(unwritable)

    advice = PATH_ADVICE
    """The advice of a refusal."""

    def reason(
        self,
        path: str,
        cwd: Path | None = None,
        *,
        writing: bool = False,
        holder: bool = False,
        doubtful: bool = False,
        looks: FolderLookups | None = None,
    ) -> str | None:
        """Gives the reason why the path is refused; None if it is innocent.

        `holder`: it is a folder that only holds what is written. `doubtful`: it may be no path at all, so where there is no
        such file, a name that merely suggests secrets is innocent. `looks` is what a call has seen of the file system.
        """
        if len(path) > MAX_PATH_CHARS:
            return f"it is longer than {MAX_PATH_CHARS} characters"
        strange = odd(path, path)
        if strange is not None:
            return strange
        try:
            readings = self._readings(path)
            if len(readings) > MAX_READINGS:
                return "it can be read in too many ways"
            judge = _Judgement(self, cwd or Path.cwd(), looks or FolderLookups(), writing, holder, doubtful)
            judged = (odd(reading, path) or judge.reading(reading) for reading in readings)
            return next(filter(None, judged), None)
        except LookupLimitExceeded:
            return "it takes too long to find out what all the patterns and links of this call lead to"
        except (ValueError, OSError, re.error):
            return "what it leads to cannot be found out"

    def open_read(self, path: str, cwd: Path | None = None, root: Path | None = None) -> BinaryIO:
        """Opens a file for reading, if it is innocent and, where `root` is given, inside of that folder.

        Raises Denied (SECURITY_VIOLATION) if not, and OSError where the file can't be opened at all.
        """
        refused = self.reason(path, cwd)
        if refused is not None:
            raise self._denied(refused)
        base = cwd or root or Path.cwd()
        try:
            opened = open_plainly(base, path) if root is None else open_beneath(root, base, path)
        except PathEscape as escape:
            raise self._denied(str(escape), ESCAPE_ADVICE) from None
        try:
            refused = self._judge_opened(opened)
            if refused is not None:
                raise self._denied(refused)
        except BaseException:
            os.close(opened)
            raise
        return os.fdopen(opened, "rb")

    def _denied(self, reason: str, advice: str = PATH_ADVICE) -> Denied:
        return Denied("SECURITY_VIOLATION", f"The file is refused: {reason}.", suggestion=advice, reason=reason)

    # -- how a path can be read

    def _readings(self, path: str) -> dict[str, None]:
        """Every way in which a tool might read a path, or a few more than MAX_READINGS."""
        ways: tuple[Callable[[str], str], ...] = (
            bared, unquote, fold, fold_lower, of_url, from_windows, self._at_home,
        )  # fmt: skip
        found, new = {path: None}, [path]
        while new and len(found) <= MAX_READINGS:
            reading = new.pop()
            others = [other for other in (*(way(reading) for way in ways), *alternatives(reading)) if other not in found]
            found.update(dict.fromkeys(others))
            new.extend(others)
        return found

    def _at_home(self, path: str) -> str:
        path = HOME_VARIABLE.sub(lambda _match: self.home, path)
        if path == "~" or path.startswith(("~/", "~\\")):
            return self.home + path[1:]
        return os.path.expanduser(path) if path.startswith("~") else path  # noqa: PTH111 - Path raises for an unknown user

    # -- what a reading stands for

    def _judge_opened(self, opened: int) -> str | None:
        """The same for a file that is open: whatever it was called, this is what would be read."""
        status = os.fstat(opened)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError("It is a folder.")
        if not stat.S_ISREG(status.st_mode):
            return "it is a device, a pipe or a socket, not a file"
        name, looks = name_of(opened), FolderLookups()
        if name is None:
            return "what was opened cannot be told on this machine"
        found = self.named(slashed(name), looks)
        if found is not None:
            return f"it leads to a place for {found}"
        return self.twin(name, status, looks) if status.st_nlink > 1 else None

    def named(
        self, path: str, looks: FolderLookups, *, writing: bool = False, holder: bool = False, surely: bool = False
    ) -> str | None:
        """The sensitive thing that a path is a place for: by its name, or by its content if it may be a key of ours."""
        own = self._ours(path, looks, writing, holder)
        if own is not None:
            return own
        if any(pattern.match(path) for pattern in self._blocked):
            return "files that the settings of its server block"
        if any(pattern.match(path) for pattern in self._allowed):
            return None
        if any(pattern.match(path) for pattern in self._more):
            return "what the setting paths.sensitive names"
        file = path
        if self._data is not None and f"{path}/".startswith(f"{self._data}/"):
            path = "/.toolgate" + path[len(self._data) :]
        names = dict.fromkeys((path, fold(path), fold_lower(path)))
        if any(hidden_in_home(name, self._homes) for name in names):
            return "what programs keep out of sight in a home"
        judged = (holds(name, surely=surely) or own_by_content(file, name.rpartition("/")[2].lower()) for name in names)
        return next(filter(None, judged), None) or (next(filter(None, map(runs, names)), None) if writing else None)

    def _ours(self, path: str, looks: FolderLookups, writing: bool, holder: bool) -> str | None:
        """The part of our data that a path is, holds or is in. It is asked where the files are now: links can be turned."""
        if not self._own and not (writing and self.unwritable):
            return None
        lower = path.lower()
        for file in self._own:
            for known in looks.places(file):
                is_beside = lower.startswith(f"{known}-")  # SQLite keeps some of it in name-wal and name-shm
                if is_beside or is_inside(lower, known):
                    return "Toolgate's own data"
        if not writing:
            return None
        for file in (*self._own, *self.unwritable):
            for known in looks.places(file):
                if is_inside(lower, known) or (not holder and is_inside(known, lower) and not _around(lower)):
                    return "what Toolgate is set up by"
        return None

    # -- other names of the same file

    def twin(self, path: str, status: os.stat_result, looks: FolderLookups, writing: bool = False) -> str | None:
        """The reason to refuse a file with several names (hard links): a sensitive one, where such names are."""
        for file in (*self._own, *(self.unwritable if writing else ())):
            with contextlib.suppress(OSError):
                if os.path.samestat(file.stat(), status):
                    return "it is another name of what Toolgate keeps or is set up by"
        for folder in self._where_twins_are(Path(path)):
            for entry in looks.named(str(folder), status.st_ino):
                with contextlib.suppress(OSError):
                    same = os.path.samestat(entry.stat(follow_symlinks=False), status)
                    if same and (found := self.named(slashed(entry.path), looks)) is not None:
                        return f"it is another name of a place for {found}"
        return None

    def _where_twins_are(self, file: Path) -> Iterator[Path]:
        yield from (Path(self.home, folder) for folder in WELL_KNOWN)
        yield from map(Path, SYSTEM)
        if self._data is not None:
            yield Path(self._data)
        yield from islice(file.parents, 20)
        yield from islice(Path.cwd().parents, 20)
        yield Path.cwd()


class _Judgement(NamedTuple):
    rules: SensitivePaths
    base: Path
    looks: FolderLookups
    writing: bool
    holder: bool
    doubtful: bool

    def reading(self, reading: str) -> str | None:
        """Gives the reason why one reading is refused, by its own name and by that of the file it leads to."""
        path = os.path.join(self.base, reading)  # noqa: PTH118 - Path would fold the spelling
        flat = os.path.normpath(path)
        names = dict.fromkeys((flat, os.path.realpath(path), os.path.realpath(flat)))
        for name in names:
            found = self._named(name)
            if found is not None and not self._excused(name):
                return f"it {'is' if name == flat else 'leads to'} a place for {found}"
        if MAGIC.search(flat) and self._finds_sensitive(flat):
            return "it is a pattern that finds sensitive files"
        return next(filter(None, map(self._other_name, names)), None)

    def _named(self, name: str, surely: bool = False) -> str | None:
        return self.rules.named(slashed(name), self.looks, writing=self.writing, holder=self.holder, surely=surely)

    def _excused(self, name: str) -> bool:
        """True if a name only suggests secrets and is that of a folder, or of nothing at all where it may be no path."""
        if self._named(name, surely=True) is not None:
            return False
        if self.doubtful and not os.path.lexists(name):
            return True
        return not self.writing and not Path(name).name.startswith(".") and Path(name).is_dir()

    def _finds_sensitive(self, pattern: str) -> bool:
        """True if a tool that expands wildcards would find something sensitive."""
        found = map(os.path.realpath, self.looks.found(slashed(pattern)))
        return any(self._named(match) and not self._excused(match) for match in found)

    def _other_name(self, path: str) -> str | None:
        try:
            status = os.stat(path)  # noqa: PTH116 - one of the hot calls
        except OSError:
            return None
        if status.st_nlink < 2 or not stat.S_ISREG(status.st_mode):
            return None
        return self.rules.twin(path, status, self.looks, self.writing)


def run_by_name(name: str) -> str | None:
    """The thing that a file or folder of a project, by any spelling of its name, would have run later."""
    if name.isascii():
        return runs_by_name(name)
    return next(filter(None, map(runs_by_name, (name, fold(name), fold_lower(name)))), None)


def _around(folder: str) -> bool:
    """True if we work in a folder or below it: it is named all the time, and not in order to move it."""
    return is_inside(slashed(str(Path.cwd())).lower(), folder)


def _compiled(pattern: str, home: str) -> re.Pattern[str]:
    """A pattern of settings: `*` and `?` stay within a name, `**` does not."""
    if pattern.startswith("~"):
        pattern = home + pattern[1:]
    pattern = pattern.replace(os.sep, "/").rstrip("/")
    start = "" if pattern.startswith("/") else "(?:.*/)"
    pieces = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    body = "".join(pieces.get(part) or re.escape(part) for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern))
    return re.compile(f"{start}{body}(?:/.*)?\\Z", re.IGNORECASE)


# -- how else a text can be read as a path: without quotes, with braces expanded, as Windows and URLs have it

MAX_READINGS = 64
FILE_URL = re.compile(r"(?:[a-z-]{1,20}:)?file:(?://(?:localhost|127\.0\.0\.1)?(?=/|\\|$)|(?!//))", re.IGNORECASE)
BEHIND = re.compile(r"[?#|]|!/")
DRIVE = re.compile(r"[A-Za-z]:(?=[^/])")
BRACES = re.compile(r"\{([^{}]*)\}")
AROUND = " \t'\"`<>;,"
"""Characters that the well-meaning take off both ends of a path."""


def odd(reading: str, given: str) -> str | None:
    """The reason why a text is no path at all."""
    if reading.isascii() and reading.isprintable():
        return None
    if any(char < " " or "\x7f" <= char <= "\x9f" for char in reading):
        return "it holds a control character"
    if any("\ud800" <= char <= "\udfff" for char in reading) or ("\ufffd" in reading and "\ufffd" not in given):
        return "it is not valid Unicode"
    return None


def of_url(path: str) -> str:
    """The path in a file: URL; of any text, what stands before a query, a fragment or a place in an archive."""
    start = FILE_URL.match(path)
    return BEHIND.split(path[start.end() if start else 0 :], maxsplit=1)[0] or path


def from_windows(path: str) -> str:
    return DRIVE.sub("", path.replace("\\", "/"), count=1) if DRIVE.match(path) else path.replace("\\", "/")


def bared(path: str) -> str:
    return path.strip().strip(AROUND)


def alternatives(path: str) -> Iterator[str]:
    """The paths that a text with {a,b} in it stands for, for who expands that."""
    found = BRACES.search(path)
    if found is not None and "," in found[1]:
        yield from (path[: found.start()] + middle + path[found.end() :] for middle in found[1].split(",")[:MAX_READINGS])

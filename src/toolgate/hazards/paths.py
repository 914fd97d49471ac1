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
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from toolgate.errors import Denied
from toolgate.hazards.filenames import holds, runs
from toolgate.hazards.lookalikes import fold, fold_lower
from toolgate.hazards.opening import Escapes, name_of, open_beneath, open_plainly

MOST_READINGS = 64
LONGEST = 4096
MOST_ENTRIES = 2000
"""Files of one folder that are looked at for another name of a file."""
WELL_KNOWN = (
    "", ".ssh", ".aws", ".aws/sso/cache", ".gnupg", ".gnupg/private-keys-v1.d", ".azure", ".kube", ".docker",
    ".config/gcloud", ".config/gh",
)  # fmt: skip
"""Folders of a home in which another name of a file is looked for."""
SYSTEM = ("/etc", "/etc/ssh", "/etc/ssl/private", "/run/secrets")
FILE_URL = re.compile(r"file:(?://(?:localhost|127\.0\.0\.1)?(?=/|\\|$)|(?!//))", re.IGNORECASE)
VARIABLE = re.compile(r"\$(?:\{HOME\}|HOME\b)|%(?:USERPROFILE|HOME)%", re.IGNORECASE)
MAGIC = re.compile(r"[*?\[]")
ADVICE = "Name another file. If this one is harmless, its owner can add it to the setting paths.allowed."


class Sensitive:
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
    ) -> None:
        self.home = str(home or Path.home())
        self._more = [_compiled(pattern, self.home) for pattern in patterns]
        self._allowed = [_compiled(pattern, self.home) for pattern in allowed]
        self._data = None if data is None else _slashed(os.path.realpath(data))

    advice = ADVICE
    """What to do about a refusal."""

    def reason(self, path: str, cwd: Path | None = None, *, writing: bool = False) -> str | None:
        """Why the path is refused; None if it is innocent."""
        if len(path) > LONGEST:
            return f"it is longer than {LONGEST} characters"
        odd = _odd(path, path)
        if odd is not None:
            return odd
        try:
            readings = self._readings(path)
            if len(readings) > MOST_READINGS:
                return "it can be read in too many ways"
            base = cwd or Path.cwd()
            judged = (_odd(reading, path) or self._judge(_joined(base, reading), writing) for reading in readings)
            return next(filter(None, judged), None)
        except (ValueError, OSError):
            return "what it leads to can't be found out"

    def open_read(self, path: str, cwd: Path | None = None, root: Path | None = None) -> BinaryIO:
        """Open a file for reading, if it is innocent and, where `root` is given, inside of that folder.

        Raises Denied (SECURITY_VIOLATION) if not, and OSError where the file can't be opened at all.
        """
        refused = self.reason(path, cwd)
        if refused is not None:
            raise self._denied(refused)
        base = cwd or root or Path.cwd()
        try:
            opened = open_plainly(base, path) if root is None else open_beneath(root, base, path)
        except Escapes as escape:
            raise self._denied(str(escape)) from None
        try:
            refused = self._judge_opened(opened)
            if refused is not None:
                raise self._denied(refused)
        except BaseException:
            os.close(opened)
            raise
        return os.fdopen(opened, "rb")

    def _denied(self, reason: str) -> Denied:
        return Denied("SECURITY_VIOLATION", f"The file is refused: {reason}.", suggestion=ADVICE, reason=reason)

    # -- how a path can be read

    def _readings(self, path: str) -> dict[str, None]:
        """Every way in which a tool might read a path, or a few more than MOST_READINGS."""
        ways: tuple[Callable[[str], str], ...] = (
            str.strip, unquote, fold, fold_lower, _of_url, _from_windows, self._at_home,
        )  # fmt: skip
        found, new = {path: None}, [path]
        while new and len(found) <= MOST_READINGS:
            reading = new.pop()
            others = [other for other in (way(reading) for way in ways) if other not in found]
            found.update(dict.fromkeys(others))
            new.extend(others)
        return found

    def _at_home(self, path: str) -> str:
        path = VARIABLE.sub(lambda _match: self.home, path)
        if path == "~" or path.startswith(("~/", "~\\")):
            return self.home + path[1:]
        return os.path.expanduser(path) if path.startswith("~") else path  # noqa: PTH111 - Path raises for an unknown user

    # -- what a reading stands for

    def _judge(self, path: str, writing: bool) -> str | None:
        """Why one reading is refused, by its own name and by that of the file it leads to."""
        flat = os.path.normpath(path)
        real = os.path.realpath(path)
        names = dict.fromkeys((flat, real, os.path.realpath(flat)))
        for name in names:
            found = self._named(_slashed(name), writing)
            if found is not None:
                return f"it {'is' if name == flat else 'leads to'} a place for {found}"
        if MAGIC.search(flat) and self._finds_only_sensitive(flat):
            return "it is a pattern for sensitive files"
        return next(filter(None, map(self._other_name, names)), None)

    def _judge_opened(self, opened: int) -> str | None:
        """The same for a file that is open: whatever it was called, this is what would be read."""
        status = os.fstat(opened)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError("It is a folder.")
        if not stat.S_ISREG(status.st_mode):
            return "it is a device, a pipe or a socket, not a file"
        name = name_of(opened)
        if name is None:
            return "what was opened can't be told on this machine"
        found = self._named(_slashed(name), False)
        if found is not None:
            return f"it leads to a place for {found}"
        return self._twin(name, status) if status.st_nlink > 1 else None

    def _named(self, path: str, writing: bool) -> str | None:
        """What a path is a place for, by its name alone; None if nothing sensitive."""
        if any(pattern.match(path) for pattern in self._allowed):
            return None
        if any(pattern.match(path) for pattern in self._more):
            return "what the setting paths.sensitive names"
        if self._data is not None and f"{path}/".startswith(f"{self._data}/"):
            path = "/.toolgate" + path[len(self._data) :]
        names = dict.fromkeys((path, fold(path), fold_lower(path)))
        return next(filter(None, map(holds, names)), None) or (
            next(filter(None, map(runs, names)), None) if writing else None
        )

    def _finds_only_sensitive(self, pattern: str) -> bool:
        """Whether a tool that expands wildcards would find something, and nothing that is innocent."""
        found = [_slashed(os.path.realpath(match)) for match in _expanded(_slashed(pattern))]
        return bool(found) and all(self._named(match, False) for match in found)

    # -- other names of the same file

    def _other_name(self, path: str) -> str | None:
        try:
            status = os.stat(path)  # noqa: PTH116 - one of the hot calls
        except OSError:
            return None
        return self._twin(path, status) if status.st_nlink > 1 and stat.S_ISREG(status.st_mode) else None

    def _twin(self, path: str, status: os.stat_result) -> str | None:
        """Whether a file with several names (hard links) has a sensitive one in a place where such names are."""
        for folder in self._where_twins_are(Path(path)):
            for entry in _entries(folder):
                if entry.inode() != status.st_ino:
                    continue
                with contextlib.suppress(OSError):
                    same = os.path.samestat(entry.stat(follow_symlinks=False), status)
                    if same and (found := self._named(_slashed(entry.path), False)) is not None:
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


def _entries(folder: Path, most: int = MOST_ENTRIES) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(islice(entries, most))
    except OSError:
        return []


def _expanded(pattern: str) -> list[str]:
    """What a pattern finds; nothing if it would take too long to say, for then it is a broad one."""
    found, left = ["/"], MOST_ENTRIES
    for part in pattern.split("/")[1:]:
        if not MAGIC.search(part):
            found = [_joined(Path(folder), part) for folder in found]
            continue
        inside = [entry for folder in found for entry in _entries(Path(folder), left)]
        left -= len(inside)
        if left <= 0:
            return []
        found = [entry.path for entry in inside if fnmatchcase(entry.name, part)]
    return [path for path in found if os.path.lexists(path)]


def _odd(reading: str, given: str) -> str | None:
    """What makes a text no path at all."""
    if reading.isascii() and reading.isprintable():
        return None
    if any(char < " " or "\x7f" <= char <= "\x9f" for char in reading):
        return "it holds a control character"
    if any("\ud800" <= char <= "\udfff" for char in reading) or ("\ufffd" in reading and "\ufffd" not in given):
        return "it is not valid Unicode"
    return None


def _of_url(path: str) -> str:
    start = FILE_URL.match(path)
    return re.split(r"[?#]", path[start.end() :])[0] if start else path


def _from_windows(path: str) -> str:
    return path.replace("\\", "/")


def _joined(base: Path, path: str) -> str:
    return os.path.join(base, path)  # noqa: PTH118 - Path would fold the spelling


def _slashed(path: str) -> str:
    """A path with / between its parts, also where the system has others, and without a drive's letter."""
    slashed = path.replace(os.sep, "/")
    if os.altsep:
        slashed = slashed.replace(os.altsep, "/")
    return slashed if slashed.startswith("/") else "/" + slashed


def _compiled(pattern: str, home: str) -> re.Pattern[str]:
    """A pattern of settings: `*` and `?` stay within a name, `**` does not."""
    if pattern.startswith("~"):
        pattern = home + pattern[1:]
    pattern = pattern.replace(os.sep, "/").rstrip("/")
    start = "" if pattern.startswith("/") else "(?:.*/)"
    pieces = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    body = "".join(pieces.get(part) or re.escape(part) for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern))
    return re.compile(f"{start}{body}(?:/.*)?\\Z", re.IGNORECASE)

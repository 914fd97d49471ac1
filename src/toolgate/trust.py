"""Records, outside of any project, what a person agreed to have obeyed in a working directory.

A record maps the resolved path of a folder to digests of exactly those files that Toolgate would obey or run from it. It is
kept in the person's own configuration, which no tool may open: what a clone, an archive or a program brings into a folder
can't vouch for itself. TOOLGATE_TRUST names folders that need no record, for containers and CI.
"""

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from toolgate.errors import SettingsError

try:
    import fcntl
except ImportError:  # Windows: one process at a time writes there
    fcntl = None  # type: ignore[assignment]

TRUST_VARIABLE = "TOOLGATE_TRUST"
TRUST_ADVICE = (
    f"Look at it, then run `toolgate trust` in that folder, or name the folder in {TRUST_VARIABLE}. See docs/howto/trust.md."
)
TRUST_ADVICE_FOR_SEVERAL = TRUST_ADVICE.replace("Look at it,", "Look at them,")
BELOW = "/*"
"""Ends an entry of the variable that means all folders below one."""
MAX_RECORD_BYTES = 16_000_000
MAX_FILE_BYTES = 4_000_000
"""No file that is obeyed has more; one that has is not read."""


class Untrusted(SettingsError):
    """Files in the working directory would be obeyed, and no person agreed to that."""


def working_directory() -> Path:
    """The folder that files are found in, without links. Raises SettingsError if it is gone."""
    try:
        return Path(os.path.realpath(Path.cwd()))
    except OSError as error:
        raise SettingsError(
            f"The working directory cannot be used: {error.strerror or error}.",
            suggestion="Change to a folder that is there.",
        ) from error


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def read_regular(file: Path) -> bytes:
    """Reads a file that a stranger may have made: a pipe or a device is not waited for. Raises OSError."""
    with os.fdopen(os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        content = opened.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MAX_FILE_BYTES:,} bytes")
    return content


@dataclass
class TrustedContent:
    """The content of one folder that a person agreed to."""

    files: dict[str, str] = field(default_factory=dict)
    """By name, the digest of the content."""
    home: str | None = None
    """The digest of the mark in the data folder, which shows that Toolgate made the folder here."""
    database: str | None = None
    """The digest of the mark in the database there."""
    at: str = ""


def is_named(folder: Path, environment: Mapping[str, str]) -> bool:
    """Tells whether TOOLGATE_TRUST names a folder (resolved already): the folder itself, or with `/*` one above it."""
    for entry in environment.get(TRUST_VARIABLE, "").split(os.pathsep):
        if not entry:
            continue
        if not Path(entry).is_absolute():
            raise SettingsError(
                f"{TRUST_VARIABLE} names {entry!r}, which is not an absolute path.",
                suggestion=f"Name whole paths, with {os.pathsep!r} between them: {TRUST_VARIABLE}={folder}",
            )
        if entry.endswith(BELOW):
            if folder.is_relative_to(os.path.realpath(entry.removesuffix("*"))):
                return True
        elif str(folder) == os.path.realpath(entry):
            return True
    return False


class TrustRecords:
    """All that a person agreed to, in one file that is theirs alone."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    @property
    def path(self) -> Path:
        """`toolgate/trust.json` in XDG_CONFIG_HOME or ~/.config. Raises SettingsError where there is neither."""
        base = self._environment.get("XDG_CONFIG_HOME", "")
        if not Path(base).is_absolute():  # the XDG specification says to ignore a relative one
            home = Path(self._environment.get("HOME", ""))
            with suppress(RuntimeError):
                home = home if home.is_absolute() else Path.home()
            if not home.is_absolute():  # a relative one would be in the project, which could then vouch for itself
                raise SettingsError(
                    "There is no home directory to keep a record of trust in.",
                    suggestion=f"Set HOME or XDG_CONFIG_HOME, or name the folders that you trust in {TRUST_VARIABLE}.",
                )
            base = str(home / ".config")
        return Path(base, "toolgate", "trust.json")

    def of(self, folder: Path) -> TrustedContent | None:
        return self.all().get(str(folder))

    def all(self) -> dict[str, TrustedContent]:
        """By folder. Raises SettingsError for a record that others could have written, or that can't be read."""
        path = self.path
        try:
            with path.open("rb") as file:
                found, above = os.fstat(file.fileno()), path.parent.stat()
                content = file.read(MAX_RECORD_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise self._unusable(f"it cannot be read: {error.strerror or error}") from error
        if any(others_write(status) for status in (found, above)):
            raise self._unusable("other users could have written it", f"Check it, then `chmod -R go= {path.parent}`.")
        try:
            read = json.loads(content)["folders"]
            return {str(name): TrustedContent(**entry) for name, entry in read.items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise self._unusable("it is damaged", f"Remove it and run `toolgate trust` again: {path}") from None

    @contextmanager
    def changing(self) -> Iterator[dict[str, TrustedContent]]:
        """All records, to be changed: written whole when the block ends, one process at a time."""
        path = self.path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._unusable(f"it cannot be written: {error.strerror or error}") from error
        try:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            records = self.all()
            before = deepcopy(records)
            yield records
            if records != before:
                self._write(path, records)
        finally:
            os.close(lock)

    def forget(self, folder: Path) -> bool:
        with self.changing() as records:
            return records.pop(str(folder), None) is not None

    def _write(self, path: Path, records: dict[str, TrustedContent]) -> None:
        content = json.dumps({"version": 1, "folders": {name: vars(entry) for name, entry in sorted(records.items())}})
        try:
            replace_file(path, content.encode())
        except OSError as error:
            raise self._unusable(f"it cannot be written: {error.strerror or error}") from error

    def _unusable(self, why: str, advice: str | None = None) -> SettingsError:
        return SettingsError(
            f"The record of trusted folders {self.path} is not used: {why}.",
            suggestion=advice or f"Check the rights on it, or name the folders that you trust in {TRUST_VARIABLE}.",
        )


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Puts a content in place of what is there, whole or not at all, on disk before this returns; for the owner alone unless
    `mode` says otherwise. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)  # of a process that died
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink()
        error.filename = str(path)
        raise


def others_write(status: os.stat_result) -> bool:
    """Tells whether users other than this one and root could have written a file or folder, where that can be told."""
    if os.name != "posix":
        return False
    return bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)) or status.st_uid not in (os.geteuid(), 0)

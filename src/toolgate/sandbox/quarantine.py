"""Changes of programs in a workspace that the rule did not bring in: kept apart, until a person takes or drops them.

Each set is a folder of Toolgate's own, with a list and the contents under numbers: no program runs a file for its being
called 7.
"""

import contextlib
import json
import os
import secrets
from pathlib import Path
from time import time
from typing import Literal

import msgspec

from toolgate.errors import InvalidInput
from toolgate.sandbox.untrusted_files import copy, delete, remove, replace, stays_inside
from toolgate.screening.safe_open import PathEscape, folder_beneath, make_folder

FOLDER = "set-aside"
MAX_SETS = 200
"""Beyond it, the oldest are dropped."""
MAX_CHANGES = 20_000
"""Of one set."""
MAX_EARLIER = 100
LIST = "list.json"

Kind = Literal["file", "link", "folder", "deleted", "other"]


class QuarantinedChange(msgspec.Struct, frozen=True):
    """One change that was not brought in."""

    path: str
    """In the workspace."""
    kind: Kind
    why: str
    stored: str | None = None
    """Its content, by number; None: there is none, or it was not kept."""
    mode: int = 0o644
    size: int = 0
    target: str | None = None
    """Of a link."""


class QuarantineSet(msgspec.Struct):
    """One set."""

    id: str
    at: float
    by: str
    """The tool or server that made the changes."""
    workspace: str
    changes: list[QuarantinedChange] = []
    earlier: list[str] = []
    """Ids that it had before it changed: who looked at it under one of these has not seen what it is now."""


class Quarantine:
    """All sets."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER

    def begin(self, workspace: Path, by: str, max_bytes: int) -> "QuarantineWriter":
        """A set to be filled; nothing is written before there is something to keep, and never more than `max_bytes`."""
        return QuarantineWriter(self._folder, QuarantineSet(secrets.token_hex(4), time(), by, str(workspace)), max_bytes)

    def sets(self) -> list[QuarantineSet]:
        found = [read_list(path) for path in self._folder.iterdir()] if self._folder.is_dir() else []
        return sorted((one for one in found if one is not None), key=lambda one: one.at)

    def get(self, number: str) -> QuarantineSet:
        """A set by its id, or the beginning of it."""
        sets = self.sets()
        found = [one for one in sets if one.id.startswith(number)] if number else []
        if len(found) != 1:
            changed = [one for one in sets if number in one.earlier]
            if changed:
                raise InvalidInput(
                    f"Set {number} has changed since you looked at it: its program runs, and went on.",
                    suggestion=f"Look at what it is now: `toolgate workspace show {changed[0].id}`.",
                )
            raise InvalidInput(
                f"{'No' if not found else 'More than one'} set of changes has the id {number!r}.",
                suggestion="`toolgate workspace list` shows all of them.",
            )
        return found[0]

    def content(self, one: QuarantineSet, change: QuarantinedChange) -> bytes | None:
        """The content that a changed file would have; None if it was not kept."""
        return None if change.stored is None else (self._folder / one.id / change.stored).read_bytes()

    def drop(self, one: QuarantineSet) -> None:
        remove(self._folder / one.id)

    def take(self, one: QuarantineSet, changes: list[QuarantinedChange]) -> list[str]:
        """Make these changes in the workspace and forget them here. Gives what could not be done, in words."""
        failed: list[str] = []
        for change in changes:
            try:
                self._apply(one, change)
            except (OSError, PathEscape) as error:
                failed.append(f"{change.path}: {getattr(error, 'strerror', None) or error}")
            else:
                one.changes.remove(change)
        if one.changes:
            with contextlib.suppress(FileNotFoundError):  # it has changed meanwhile, and has another id
                write_list(self._folder / one.id, one)
        else:
            self.drop(one)
        return failed

    def _apply(self, one: QuarantineSet, change: QuarantinedChange) -> None:
        top = Path(one.workspace)
        folder, name = folder_beneath(top, top, change.path, make=change.kind != "deleted")
        try:
            match change.kind:
                case "deleted":
                    delete(name, folder)
                case "folder":
                    make_folder(name, folder)
                case "link" if change.target is not None and stays_inside(change.path, change.target):
                    delete(name, folder)
                    os.symlink(change.target, name, dir_fd=folder)
                case "file" if change.stored is not None:
                    with (self._folder / one.id / change.stored).open("rb") as content:
                        replace(folder, name, content.fileno(), change.mode & 0o775, change.size)
                case _:
                    raise OSError(f"it cannot be taken ({change.why})")
        finally:
            os.close(folder)


class QuarantineWriter:
    """A set that is being filled."""

    def __init__(self, parent: Path, listed: QuarantineSet, max_bytes: int) -> None:
        self._parent = parent
        self._most = self._max_bytes = max_bytes
        self._changes: dict[str, QuarantinedChange] = {}
        self._stored = 0
        self._is_listed = False
        """True if a person may have seen it as it is."""
        self.listed = listed

    def sync(self) -> None:
        """See what a person has taken or dropped meanwhile. A set that is gone is followed by another."""
        if not self._changes:
            return
        now = read_list(self._parent / self.listed.id)
        if now is None:
            self._begin_anew()
            return
        left = {change.path for change in now.changes}
        for path in self._changes.keys() - left:
            self._max_bytes += self._changes.pop(path).size

    def add(self, change: QuarantinedChange, content: int | None = None) -> None:
        """Keep a change; `content` is the open file. What was kept for the same path is replaced. A program that goes on and
        on fills nothing: beyond some, only that there was a change is kept, and then not even that."""
        if self._is_listed:
            self._leave_id()
        before = self._changes.pop(change.path, None)
        if len(self._changes) >= MAX_CHANGES:
            return
        folder = self._parent / self.listed.id
        if not folder.is_dir():
            self._parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)
            self._drop_oldest()
        if before is not None and before.stored is not None:
            self._max_bytes += before.size
            (folder / before.stored).unlink(missing_ok=True)
        if content is not None and change.size <= self._max_bytes:
            self._max_bytes -= change.size
            change = msgspec.structs.replace(change, stored=str(self._stored))
            self._stored += 1
            with (folder / str(change.stored)).open("xb") as file:
                os.fchmod(file.fileno(), 0o600)
                copy(content, file.fileno(), change.size)
        self._changes[change.path] = change

    def save(self) -> None:
        """Write the list, once all is added."""
        folder = self._parent / self.listed.id
        if self._changes and folder.is_dir():
            self.listed.changes = list(self._changes.values())
            write_list(folder, self.listed)
            self._is_listed = True

    def _leave_id(self) -> None:
        """A set that changes gets another id, before it does: nobody takes what they have not seen. It is listed again once
        all is added."""
        number = secrets.token_hex(4)
        try:
            (self._parent / self.listed.id).rename(self._parent / number)
        except FileNotFoundError:
            self._begin_anew()
        else:
            earlier = [*self.listed.earlier, self.listed.id][-MAX_EARLIER:]
            self.listed = msgspec.structs.replace(self.listed, id=number, earlier=earlier)
        self._is_listed = False

    def _begin_anew(self) -> None:
        self.listed = msgspec.structs.replace(self.listed, id=secrets.token_hex(4), at=time(), changes=[], earlier=[])
        self._changes, self._max_bytes, self._is_listed = {}, self._most, False

    def _drop_oldest(self) -> None:
        others = sorted(self._parent.iterdir(), key=lambda path: path.lstat().st_mtime)
        for path in others[:-MAX_SETS]:
            remove(path)


def read_list(folder: Path) -> QuarantineSet | None:
    """The list of a set; None if there is none, or one that names what is not in its folder."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        found = msgspec.json.decode((folder / LIST).read_bytes(), type=QuarantineSet)
        if found.id == folder.name and all(change.stored is None or change.stored.isdecimal() for change in found.changes):
            return found
    return None


def write_list(folder: Path, listed: QuarantineSet) -> None:
    new = folder / f"{LIST}.new"
    new.write_bytes(json.dumps(msgspec.to_builtins(listed), indent=1).encode())
    new.replace(folder / LIST)

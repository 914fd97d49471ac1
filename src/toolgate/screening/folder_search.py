"""Looking into folders for one call: what a pattern finds, and which other names a file has.

To look takes time, and whoever sends a call says how much of it: so there is one budget of entries for all of a call's
paths, and each folder is read once. What is found is as old as the call.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import translate
from itertools import islice
from pathlib import Path

MAX_LOOKUPS = 20_000
"""Entries of folders that are looked at for one call; comparing one with a pattern counts again."""
MATCH_LOOKS = 4
"""The number of looks that a match of a pattern counts for: it is followed to where it leads, and judged there."""
MAX_FOLDER_ENTRIES = 2000
"""Entries that are looked at for one pattern, and in one folder."""
MAX_PART_CHARS = 255
"""Of a pattern between two slashes: to read a longer one takes long by itself."""
MAGIC = re.compile(r"[*?\[]")


class LookupLimitExceeded(Exception):
    """The budget is spent."""


class FolderLookups:
    """The folders that one call has looked into."""

    def __init__(self, most: int = MAX_LOOKUPS) -> None:
        self._left = most
        self._folders: dict[str, list[os.DirEntry[str]]] = {}
        self._inodes: dict[str, dict[int, list[os.DirEntry[str]]]] = {}
        self._places: dict[Path, frozenset[str]] = {}

    def places(self, file: Path) -> frozenset[str]:
        """A file by its absolute path and by that of what it leads to now, in small letters."""
        known = self._places.get(file)
        if known is None:
            absolute, real = os.path.abspath(file), os.path.realpath(file)  # noqa: PTH100
            known = self._places[file] = frozenset((slashed(absolute).lower(), slashed(real).lower()))
        return known

    def named(self, folder: str, inode: int) -> list[os.DirEntry[str]]:
        """The entries of a folder that have this number; on other disks they may be other files."""
        known = self._inodes.get(folder)
        if known is None:
            known = self._inodes[folder] = defaultdict(list)
            for entry in self._entries(folder):
                known[entry.inode()].append(entry)
        return known.get(inode, [])

    def found(self, pattern: str) -> Iterator[str]:
        """The paths that an absolute pattern finds, as a shell would: a wildcard is not the dot of a hidden name. Of a broad
        pattern, those among the first entries."""
        left = MAX_FOLDER_ENTRIES
        found = ["/"]
        for part in pattern.split("/")[1:]:
            if not MAGIC.search(part):
                found = [os.path.join(folder, part) for folder in found]  # noqa: PTH118 - these are texts
            elif part == "**":
                found, left = self._below(found, left)
            else:
                found, left = self._matching(found, part, left)
        for path in found:
            self._spend(MATCH_LOOKS)
            if os.path.lexists(path):
                yield path

    def _matching(self, folders: list[str], part: str, left: int) -> tuple[list[str], int]:
        if len(part) > MAX_PART_CHARS:
            raise LookupLimitExceeded
        fits = re.compile(translate(part)).match
        hidden = part.startswith((".", "["))
        found: list[str] = []
        for folder in folders:
            inside = self._entries(folder)[:left]
            self._spend(len(inside))
            left -= len(inside)
            found += [entry.path for entry in inside if fits(entry.name) and (hidden or not entry.name.startswith("."))]
        return found, left

    def _below(self, folders: list[str], left: int) -> tuple[list[str], int]:
        """The folders and all that is in them, those nearest first."""
        found = list(folders)
        for folder in found:
            if left <= 0:
                break
            inside = self._entries(folder)[:left]
            self._spend(len(inside))
            left -= len(inside)
            found += [entry.path for entry in inside if not entry.name.startswith(".")]
        return found, left

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        known = self._folders.get(folder)
        if known is None:
            try:
                with os.scandir(folder) as entries:
                    known = list(islice(entries, MAX_FOLDER_ENTRIES))
            except OSError:
                known = []
            self._folders[folder] = known
            self._spend(len(known) + 1)
        return known

    def _spend(self, entries: int) -> None:
        self._left -= entries
        if self._left < 0:
            raise LookupLimitExceeded


def slashed(path: str) -> str:
    """A path with / between its parts, also where the system has others, and without a drive's letter."""
    slashed = path.replace(os.sep, "/")
    if os.altsep:
        slashed = slashed.replace(os.altsep, "/")
    return slashed if slashed.startswith("/") else "/" + slashed

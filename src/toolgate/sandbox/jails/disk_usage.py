"""Whether a program fills a folder of the host, which has no size of its own.

The files are counted that came or changed since the program began. That takes as long as the folder is big, so it is done in
a thread and, for a big folder, rarely; but at once if the file system, which knows how much was added to it by anybody, has
taken more than the program may write.
"""

import os
import stat
from collections.abc import Callable, Sequence
from time import time

from toolgate.sandbox.jails.throttled_count import ThrottledCount
from toolgate.sandbox.port import ResourceLimits

_BLOCK = 512
_COARSE = 1.0
"""Clocks of file systems are not ours; so many seconds earlier still counts as since."""


class DiskUsage:
    """What was added to some folders since now."""

    def __init__(self, folders: Sequence[str], limits: ResourceLimits) -> None:
        self.folders = folders
        self.limits = limits
        self.began = time() - _COARSE
        self.before = [os.statvfs(folder) for folder in folders]
        self._aside = ThrottledCount()

    def look_into(self, now: float, members: Callable[[], Sequence[str]], tell: Callable[[], None]) -> None:
        """Count if it is time; tell if it is too much."""
        if self._aside.may_begin(now) and (self._aside.is_time(now) or self._is_suspicious()):
            found = members()
            self._aside.begin(now, lambda: self._count(found), tell)

    def _is_suspicious(self) -> bool:
        """Whether the file systems have taken more than the program may write."""
        return any(self._has_taken(folder, before) for folder, before in zip(self.folders, self.before, strict=True))

    def _has_taken(self, folder: str, before: os.statvfs_result) -> bool:
        try:
            after = os.statvfs(folder)
        except OSError:
            return True
        size = (before.f_bfree - after.f_bfree) * after.f_frsize
        return size > self.limits.disk or before.f_ffree - after.f_ffree > self.limits.files

    def _count(self, members: Sequence[str]) -> bool:
        size, files = _nameless(members), 0
        waiting = list(self.folders)
        while waiting:
            try:
                entries = os.scandir(waiting.pop())
            except OSError:
                continue
            with entries:
                for entry in entries:
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # Deleted meanwhile.
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    if found.st_ctime >= self.began:
                        files, size = files + 1, size + found.st_blocks * _BLOCK
            if size > self.limits.disk or files > self.limits.files:
                return True
        return False


def _nameless(members: Sequence[str]) -> int:
    """Files that were deleted and are still open, in bytes."""
    seen: dict[tuple[int, int], int] = {}
    for member in members:
        try:
            numbers = os.listdir(f"{member}/fd")  # noqa: PTH208
        except OSError:
            continue
        for number in numbers:
            try:
                found = os.stat(f"{member}/fd/{number}")  # noqa: PTH116
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                seen[found.st_dev, found.st_ino] = found.st_blocks * _BLOCK
    return sum(seen.values())

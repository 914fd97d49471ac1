"""The files of a folder that is to be deployed: read through the same guards as the file tools', and bounded."""

import os
import stat
from collections.abc import Iterator
from hashlib import sha1
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from toolgate.errors import Denied, InvalidInput
from toolgate.screening.folder_search import FolderLookups, slashed
from toolgate.screening.safe_open import name_of
from toolgate.services.deployer import SiteFile
from toolgate.services.ignore_rules import IgnoreRules
from toolgate.tools.call_folder import CallFolder, explained, refused

MAX_SITE_FILES = 2_000
MAX_SITE_BYTES = 50_000_000
MAX_SITE_DEPTH = 30
MAX_SITE_ENTRIES = 20_000
"""Entries of folders that are looked at."""
MAX_IGNORE_BYTES = 65_536
MAX_SKIPPED_NAMES = 20
NO_SITES = frozenset((".git", ".hg", ".svn", "cvs"))
"""Folders, in small letters, of which nothing is a site: with what was deleted, they hold secrets that were."""
FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class SiteFolder(NamedTuple):
    """The files of a site, and the names of those that were left out because they may hold secrets or lead elsewhere."""

    files: list[SiteFile]
    skipped: list[str]


def read_site(work: CallFolder, path: str, ignore_file: str | None) -> SiteFolder:
    """All files of a folder but those that its ignore file, or common sense, leaves out. No link is followed."""
    rules = IgnoreRules(_ignore_text(work, path, ignore_file) if ignore_file is not None else "")
    site, size = SiteFolder([], []), 0
    with work.opened(path) as folder:
        if not stat.S_ISDIR(os.fstat(folder).st_mode):
            raise InvalidInput(f"{path} is not a folder.")
        _judge_folder(work, folder)
        for parts in _walk(folder, rules, site.skipped):
            content = _content(work, path, parts, MAX_SITE_BYTES - size)
            if content is None:
                site.skipped.append("/".join(parts))
                continue
            size += len(content)
            site.files.append(SiteFile("/".join(parts), sha1(content, usedforsecurity=False).hexdigest(), content))
            if len(site.files) > MAX_SITE_FILES:
                raise InvalidInput(
                    f"{path} has more than {MAX_SITE_FILES:,} files.", suggestion="Deploy the built site alone."
                )
    if not site.files:
        raise InvalidInput(f"{path} has no files that can be deployed.")
    return site


def _judge_folder(work: CallFolder, folder: int) -> None:
    name = name_of(folder) or ""
    inside = Path(name).relative_to(work.folder).parts if Path(name).is_relative_to(work.folder) else ()
    if not NO_SITES.isdisjoint(map(str.lower, inside)):
        raise refused("it is part of a repository, whose history and settings are no site")
    found = work.places.rules.named(slashed(name), FolderLookups(), surely=True)
    if found is not None:
        raise refused(f"it leads to a place for {found}")


def _walk(top: int, rules: IgnoreRules, skipped: list[str]) -> Iterator[tuple[str, ...]]:
    """The paths of the files below an open folder, by name, folder after folder."""
    looked = 0

    def below(folder: int, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        nonlocal looked
        with os.scandir(folder) as entries:
            found = sorted(islice(entries, MAX_SITE_ENTRIES + 1), key=lambda entry: entry.name)
        for entry in found:
            looked += 1
            if looked > MAX_SITE_ENTRIES or len(above) > MAX_SITE_DEPTH:
                raise InvalidInput(
                    "The folder holds too many entries, or is too deep.", suggestion="Deploy the built site alone."
                )
            path = (*above, entry.name)
            is_folder = entry.is_dir(follow_symlinks=False)
            if rules.ignores(path, folder=is_folder):
                continue
            if is_folder:
                inner = os.open(entry.name, FOLDER_FLAGS, dir_fd=folder)
                try:
                    yield from below(inner, path)
                finally:
                    os.close(inner)
            elif entry.is_file(follow_symlinks=False) and _is_plain(entry.name):
                yield path
            else:
                skipped.append("/".join(path))

    yield from below(top, ())


def _is_plain(name: str) -> bool:
    """True of a name that is the same in an address: no control characters, valid Unicode."""
    return name.isprintable() and not any("\ud800" <= char <= "\udfff" for char in name)


def _content(work: CallFolder, path: str, parts: tuple[str, ...], room: int) -> bytes | None:
    """The content of a file; None if no tool may open it."""
    inside = "/".join((path.rstrip("/") or "/", *parts))
    try:
        with explained(inside), work.places.rules.open_read(inside, work.folder, work.folder) as file:
            work.judge_opened(file.fileno())
            content = file.read(room + 1)
    except Denied:
        return None
    if len(content) > room:
        raise InvalidInput(
            f"The files have more than {MAX_SITE_BYTES:,} bytes.",
            suggestion="Deploy the built site alone, or ignore large files.",
        )
    return content


def _ignore_text(work: CallFolder, path: str, name: str) -> str:
    inside = f"{path.rstrip('/') or '/'}/{name}"
    try:
        with work.places.rules.open_read(inside, work.folder, work.folder) as file:
            text = file.read(MAX_IGNORE_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError:
        raise InvalidInput(f"{name} cannot be read.") from None
    if len(text) > MAX_IGNORE_BYTES:
        raise InvalidInput(f"{name} has more than {MAX_IGNORE_BYTES:,} bytes.")
    return text.decode("utf-8", "replace")

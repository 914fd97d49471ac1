"""The project folder: the nearest one, from the working directory upwards, that holds Toolgate's settings or data.

A folder that is found only says where to look: what is in it is obeyed after a person trusted it (`toolgate.trust`). Above
the working directory nothing counts that another user put there, or could have: the search ends below a folder that belongs
to somebody else (unless a person trusted it, as with git's safe.directory) or that everybody may write, below a home
directory, and at the edge of a file system.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from toolgate.errors import SettingsError
from toolgate.trust import TrustedContent, TrustRecords, is_named, working_directory

SETTINGS_FILE = "toolgate.yaml"
DATA_FOLDER = ".toolgate"
NOT_OBEYED = frozenset({"tools", "sessions", "backups", ".gitignore"})
"""Names in a data folder that need no trust: tools are judged by themselves, the rest is never obeyed."""


class Discovery(NamedTuple):
    """The result of the search for the project folder."""

    folder: Path
    """The project folder, without links; the working directory if there is none."""
    ignored: str | None = None
    """Settings or data that were met on the way and are not used, and why."""


def discover() -> Discovery:
    """Searches from the working directory upwards. Raises SettingsError if there is no working directory."""
    here = working_directory()
    records: dict[str, TrustedContent] = {}
    with suppress(SettingsError):  # one that can't be used vouches for nothing
        records = TrustRecords(os.environ).all()
    if _is_project(here, records):
        return Discovery(here)
    device = here.stat().st_dev
    for folder in here.parents:
        barrier = _barrier(folder, device, records)
        if barrier is not None:
            held = next((name for name in (SETTINGS_FILE, DATA_FOLDER) if os.path.lexists(folder / name)), None)
            return Discovery(here, None if held is None else f"{folder / held} is not used: {barrier}")
        if _is_project(folder, records, by=os.geteuid() if hasattr(os, "geteuid") else None):
            return Discovery(folder)
    return Discovery(here)


def _barrier(folder: Path, device: int, records: dict[str, TrustedContent]) -> str | None:
    """Gives the reason why the search ends below a folder; None if it goes on."""
    try:
        found = folder.stat()
    except OSError as error:
        return f"{folder} cannot be looked at: {error.strerror or error}"
    if folder == Path(folder.anchor) or str(folder) in _homes():
        return "a folder below a home directory or the root is searched, not these themselves"
    if found.st_dev != device:
        return "it is on another file system"
    if os.name != "posix":
        return None
    if found.st_mode & stat.S_IWOTH:
        return f"every user may write to {folder}"
    if found.st_uid != os.geteuid() and not _is_trusted(folder, records):
        return f"{folder} belongs to another user, number {found.st_uid}: `toolgate trust {folder}` if that is right"
    return None


def _homes() -> set[str]:
    with suppress(RuntimeError, OSError):
        return {str(Path.home()), os.path.realpath(Path.home())}
    return set()


def _is_trusted(folder: Path, records: dict[str, TrustedContent]) -> bool:
    with suppress(SettingsError):
        return str(folder) in records or is_named(folder, os.environ)
    return False


def _is_project(folder: Path, records: dict[str, TrustedContent], by: int | None = None) -> bool:
    """Tells whether a folder holds settings or data, or had settings that were trusted and are gone: that is told, and not
    passed over. `by`: only what this user made counts, unless the folder is trusted."""
    agreed = records.get(str(folder))
    if agreed is not None and SETTINGS_FILE in agreed.files:
        return True
    for path, counts in ((folder / SETTINGS_FILE, os.path.lexists), (folder / DATA_FOLDER, _holds_data)):
        with suppress(OSError):
            if counts(path) and (by is None or path.lstat().st_uid == by or _is_trusted(folder, records)):
                return True
    return False


def _holds_data(folder: Path) -> bool:
    """Tells whether something in a data folder would be obeyed or used. An empty one is none, as an empty `.git` is no
    repository: it could come with a clone, and have the settings further up passed over without a question."""
    if folder.is_symlink():
        return True
    entries = list(folder.iterdir())
    if any(entry.name not in NOT_OBEYED or entry.is_symlink() for entry in entries):
        return True
    tools = folder / "tools"
    return tools in entries and any(map(_is_tool, tools.iterdir()))


def _is_tool(path: Path) -> bool:
    return path.name.lower().endswith((".py", ".yml", ".yaml")) or (path / "__init__.py").exists()

"""A copy of the sources of a working directory, for a program that checks them.

Only files with the ending of a source are copied, each opened as `read_file` opens it. So nothing that configures a checker
comes along (deno.json, package.json, tsconfig.json, pyrefly.toml, pyproject.toml), no secret, no link, and nothing that the
program does to its folder reaches the working directory.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

from toolgate.errors import CallError, InvalidInput, ToolError
from toolgate.sandbox.untrusted_files import remove
from toolgate.screening.safe_open import name_of
from toolgate.tools.call_folder import CallFolder

CheckedLanguage = Literal["typescript", "python"]
CHECKED_ENDINGS: dict[str, CheckedLanguage] = {
    ".ts": "typescript", ".tsx": "typescript", ".mts": "typescript", ".cts": "typescript",
    ".py": "python", ".pyi": "python",
}  # fmt: skip
IMPORTED_ENDINGS = frozenset({".js", ".jsx", ".mjs", ".cjs", ".json"})
"""Endings of what TypeScript may import besides: copied, and not checked by itself."""
CONFIGURATION = frozenset({"package.json", "package-lock.json", "deno.json", "tsconfig.json", "jsconfig.json", "jsr.json"})
SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages", "venv", "bower_components"})
"""Besides those whose names begin with a dot."""
MAX_WALKED_ENTRIES = 50_000
MAX_SOURCE_FILES = 2_000
MAX_SOURCE_BYTES = 1_000_000
"""Of one file; a larger one is left out."""
MAX_COPIED_BYTES = 20_000_000


class SourceCopy:
    """The copy, in the folder `work` of a temporary one. For a thread, all of it."""

    def __init__(self, work: CallFolder, project: str, languages: tuple[CheckedLanguage, ...], max_bytes: int) -> None:
        self._work = work
        self._languages = languages
        self._bytes = min(max_bytes, MAX_COPIED_BYTES)
        self._walked = 0
        self._copied: set[str] = set()
        self.checked: dict[CheckedLanguage, list[str]] = {}
        """By language: the files that are asked about, by their paths from the working directory."""
        self.truncated = False
        """True if there are more files than are copied."""
        self.top = Path(tempfile.mkdtemp(prefix="toolgate-check-")).resolve()
        self.folder = self.top / "work"
        try:
            self.folder.mkdir(mode=0o700)
            self._fill(project)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """May be called twice."""
        remove(self.top)

    def texts(self) -> Iterator[str]:
        """The texts of all that was copied."""
        for path in self._copied:
            yield (self.folder / path).read_text("utf-8", "replace")

    def _fill(self, project: str) -> None:
        """First what is asked about, then what it may import."""
        with self._work.opened(project) as opened:
            place = Path(name_of(opened) or self._work.folder)
        start = place.relative_to(self._work.folder).as_posix()
        if place.is_dir():
            for path in self._sources(start):
                self._take(path, asked=True)
        elif self._language(start) is None:
            raise InvalidInput(f"{project} is neither TypeScript nor Python.", suggestion="Name a source or a folder.")
        else:
            self._work.read(start, MAX_SOURCE_BYTES)  # says why, if it can't be
            self._take(start, asked=True)
        if not self.checked:
            raise InvalidInput(f"There is nothing to check in {project}.", suggestion="Name one with TypeScript or Python.")
        truncated = self.truncated
        for path in self._sources("."):
            self._take(path, asked=False)
        self.truncated = truncated  # of what is only imported, a checker says itself what it misses

    def _sources(self, start: str) -> Iterator[str]:
        """The paths of sources below a folder. No link is followed."""
        for root, folders, files in os.walk(self._work.folder / start, followlinks=False):
            self._walked += len(folders) + len(files)
            if self._walked > MAX_WALKED_ENTRIES:
                self.truncated = True
                return
            folders[:] = sorted(name for name in folders if name[0] != "." and name not in SKIPPED_FOLDERS)
            for name in sorted(files):
                ending = PurePosixPath(name).suffix
                if (ending in CHECKED_ENDINGS or ending in IMPORTED_ENDINGS) and name not in CONFIGURATION and _plain(name):
                    yield Path(root, name).relative_to(self._work.folder).as_posix()

    def _language(self, path: str) -> CheckedLanguage | None:
        found = CHECKED_ENDINGS.get(PurePosixPath(path).suffix)
        return found if found in self._languages else None

    def _take(self, path: str, *, asked: bool) -> None:
        if path in self._copied or not _plain(path):
            return
        if len(self._copied) >= MAX_SOURCE_FILES:
            self.truncated = True
            return
        try:
            data = self._work.read(path, MAX_SOURCE_BYTES)
        except (CallError, ToolError):  # it is refused, too large, or gone: it is not checked
            self.truncated = True
            return
        if len(data) > self._bytes:
            self.truncated = True
            return
        self._bytes -= len(data)
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target.write_bytes(data)
        self._copied.add(path)
        language = self._language(path)
        if asked and language is not None:
            self.checked.setdefault(language, []).append(path)


def _plain(name: str) -> bool:
    """Tells whether a name is text that can stand in a line."""
    return name.isprintable()

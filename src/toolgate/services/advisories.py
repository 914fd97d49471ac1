"""The operator's folder of security advisories in the OSV schema, and what it says of packages.

Silence is not health: without a folder, with one that is old or can't be read, and of a package whose version is not known,
the answer is that nothing is known, never that there is nothing.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any, Literal, NamedTuple

from toolgate.errors import CallError
from toolgate.sandbox.helper_process import run_helper
from toolgate.threads import to_thread

INDEX = "toolgate.tools.parsers.advisory_match:index_folder"
MATCH = "toolgate.tools.parsers.advisory_match:match"
INDEX_SECONDS = 100.0
MATCH_SECONDS = 20.0
MAX_INDEX_BYTES = 150_000_000
INDEX_MEMORY_MB = 3_072
INDEX_AGE_SECONDS = 3_600.0
"""Time after which the folder is read again although nothing was added to it: files may have been replaced in place."""
MAX_WATCHED_FOLDERS = 200

AdvisoryStatus = Literal["known", "partial", "unknown"]


class AdvisoryReport(NamedTuple):
    """What is known of packages."""

    status: AdvisoryStatus
    reason: str | None
    """Why not all is known."""
    vulnerabilities: list[dict[str, Any]]


class AdvisoryFolder:
    """The folder, and an index of it that is kept while the folder stays the same."""

    def __init__(self, folder: Path | None, max_age_days: float, now: Callable[[], datetime]) -> None:
        self._folder = folder
        self._max_age = timedelta(days=max_age_days)
        self._now = now
        self._turn = asyncio.Lock()
        self._index: dict[str, Any] | None = None
        self._state: tuple[Any, ...] = ()
        self._read_at = 0.0

    async def check(self, ecosystem: str, packages: Sequence[Mapping[str, Any]], tenant: str) -> AdvisoryReport:
        """What the folder says of packages, each with `name` and `version`, for a tenant who asks."""
        if self._folder is None:
            return AdvisoryReport("unknown", "No advisories: the setting advisories.folder names no folder.", [])
        try:
            index = await self._current_index(self._folder)
            if not index["packages"]:
                return AdvisoryReport("unknown", "The folder of advisories holds none that can be read.", [])
            found = await self._match(self._folder, index["packages"], ecosystem, packages, tenant)
        except (CallError, OSError):
            return AdvisoryReport("unknown", "The folder of advisories cannot be read.", [])
        return self._report(index, found, ecosystem, packages)

    async def _match(
        self,
        folder: Path,
        index: dict[str, list[str]],
        ecosystem: str,
        packages: Sequence[Mapping[str, Any]],
        tenant: str,
    ) -> dict[str, Any]:
        known = [
            {"name": one["name"], "version": one["version"], "files": index[key]}
            for one in packages
            if (key := f"{ecosystem}:{one['name']}") in index
        ]
        if not known:
            return {"vulnerabilities": [], "unsure": []}
        asked = {"folder": str(folder), "ecosystem": ecosystem, "packages": known}
        found: dict[str, Any] = await run_helper(MATCH, asked, tenant=tenant, packages=("univers",), seconds=MATCH_SECONDS)
        return found

    def _report(
        self, index: dict[str, Any], found: dict[str, Any], ecosystem: str, packages: Sequence[Mapping[str, Any]]
    ) -> AdvisoryReport:
        vulnerabilities = found["vulnerabilities"]
        if ecosystem not in index["ecosystems"]:
            return AdvisoryReport("unknown", f"The folder of advisories says nothing of {ecosystem}.", vulnerabilities)
        age = self._age(index["newest"])
        if age is None or age > self._max_age:
            words = "of unknown age" if age is None else f"{age.days} days old"
            return AdvisoryReport("unknown", f"The advisories are {words}: bring them up to date.", vulnerabilities)
        unversioned = sum(one["version"] is None for one in packages)
        if found["unsure"] or unversioned:
            words = f"Of {len(found['unsure']) + unversioned} packages the version is not known or cannot be compared."
            return AdvisoryReport("partial", words, vulnerabilities)
        if index["truncated"] or index["unreadable"]:
            return AdvisoryReport("partial", "Some advisories could not be read.", vulnerabilities)
        return AdvisoryReport("known", None, vulnerabilities)

    def _age(self, newest: str) -> timedelta | None:
        try:
            changed = datetime.fromisoformat(newest)
        except ValueError:
            return None
        return self._now() - (changed if changed.tzinfo else changed.replace(tzinfo=UTC))

    async def _current_index(self, folder: Path) -> dict[str, Any]:
        async with self._turn:
            state = await to_thread(_state_of, folder)
            is_new = monotonic() - self._read_at < INDEX_AGE_SECONDS
            if self._index is None or state != self._state or not is_new:
                self._index = await run_helper(
                    INDEX, str(folder), tenant="", packages=(), seconds=INDEX_SECONDS, memory_mb=INDEX_MEMORY_MB,
                    max_bytes=MAX_INDEX_BYTES,
                )  # fmt: skip
                self._state, self._read_at = state, monotonic()
            index: dict[str, Any] = self._index
            return index


def _state_of(folder: Path) -> tuple[Any, ...]:
    """Changes when a file comes or goes. Raises OSError if there is no such folder."""
    with os.scandir(folder) as entries:
        inner = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))[:MAX_WATCHED_FOLDERS]
    return tuple((path, Path(path).stat().st_mtime_ns) for path in (str(folder), *inner))

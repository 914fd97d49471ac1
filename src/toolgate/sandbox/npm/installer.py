"""One installation: npm in a folder of its own, in a jail that reaches the registry; then, if asked for, the packages' own
scripts, without a network.

The scripts run after package.json and the lock file were read back: they can change the packages, and nothing else.
"""

import asyncio
import os
import secrets
import stat
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import orjson

from toolgate.errors import InvalidInput, NotReached, ToolError
from toolgate.sandbox.jail import MB, ProgramFolder, ResourceLimits, Stopped
from toolgate.sandbox.npm.manifest import MANIFEST, MAX_LOCK_BYTES, MAX_MANIFEST_BYTES, Manifest
from toolgate.sandbox.npm.package_tree import NODE_MODULES
from toolgate.sandbox.results import CommandResult, limit_error
from toolgate.sandbox.untrusted_files import remove
from toolgate.screening.safe_open import PathEscape, open_beneath
from toolgate.store.data_folder import make_home
from toolgate.tasks import finish
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.sandbox.engine import Sandbox
    from toolgate.settings.npm import NpmSettings

STAGING = "npm"
"""The folder of Toolgate's own that installations are made in."""
STALE_SECONDS = 86_400
HIDDEN_LOCK = f"{NODE_MODULES}/.package-lock.json"
"""What npm says is in the tree."""
MAX_PROCESSES, MAX_OPEN_FILES = 256, 1024
"""Threads count as processes: Node alone has a dozen."""
LIMIT_SETTINGS: dict[Stopped, str] = {"memory": "npm.memory_mb", "disk": "npm.disk_mb"}
MAX_SUMMARY_CHARS = 300
FLAGS = (
    "--json", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--ignore-scripts", "--no-workspaces",
    "--no-global", "--package-lock", "--save", "--fetch-retries=1", "--fetch-retry-mintimeout=500",
    "--fetch-retry-maxtimeout=2000", "--fetch-timeout=60000", "--maxsockets=10",
)  # fmt: skip
ENVIRONMENT = {"NPM_CONFIG_GLOBALCONFIG": "/dev/null"}
"""No settings of anybody: its home is empty, and those of the project are not in the folder either."""
CACHE = ".npm-cache"
MISSING = {"E404": "The registry has no such package", "ETARGET": "The registry has no such version"}
UNREACHED = frozenset(
    {
        "E403", "E500", "E502", "E503", "E504", "ECONNREFUSED", "ECONNRESET", "ENOTFOUND", "ETIMEDOUT", "EAI_AGAIN",
        "EHOSTUNREACH", "ERR_SOCKET_TIMEOUT", "FETCH_ERROR",
    }
)  # fmt: skip


class Installed(NamedTuple):
    """The result of npm in its folder."""

    manifest: Manifest
    """As npm saved it."""
    lock: bytes | None
    tree: bytes | None
    """The lock file of what was installed."""


class NpmInstaller:
    """Installs packages into folders of its own."""

    def __init__(self, sandbox: "Sandbox", settings: "NpmSettings", registry: str | None, home: Path) -> None:
        """`registry`: its URL; None: nothing is to be installed. `home`: Toolgate's own folder."""
        self._registry = registry
        self.settings = settings
        self._sandbox = sandbox
        self._home = home
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        self._swept = False
        self.limits = ResourceLimits(
            seconds=settings.seconds,
            memory=settings.memory_mb * MB,
            disk=settings.disk_mb * MB,
            files=settings.files,
            processes=MAX_PROCESSES,
            output=MB,
            open_files=MAX_OPEN_FILES,
        )

    @asynccontextmanager
    async def staging(self, project: Path) -> AsyncIterator[Path]:
        """A folder for one installation, which is gone afterwards; for one project, one at a time."""
        lock = self._locks.setdefault(str(project), asyncio.Lock())
        async with lock:
            folder = await to_thread(self._make_folder)
            try:
                yield folder
            finally:
                await finish(to_thread(remove, folder))

    def _make_folder(self) -> Path:
        make_home(self._home)
        above = self._home / STAGING
        above.mkdir(mode=0o700, exist_ok=True)
        if not self._swept:
            self._swept = True
            _remove_stale(above)
        folder = above.resolve() / secrets.token_hex(8)
        folder.mkdir(mode=0o700)
        return folder

    async def install(
        self,
        folder: Path,
        manifest: Manifest,
        lock: tuple[str, bytes | None],
        words: Sequence[str],
        *,
        scripts: bool,
        seconds: float,
        hosts: Sequence[str],
        depth: int,
    ) -> tuple[Installed, str]:
        """Installs what a manifest and perhaps a word of the command line ask for. Gives what came of it, and the name of
        the jail."""
        if self._registry is None:
            raise NotReached(
                "CONNECTION_ERROR", "There is no registry of npm.", suggestion="The setting registries.npm names one."
            )
        name, content = lock
        await to_thread(_write, folder / MANIFEST, manifest.staged())
        if content is not None:
            await to_thread(_write, folder / name, content)
        ends = time.monotonic() + seconds
        registry = f"--registry={self._registry}"
        ended = await self._run(folder, ("npm", "install", *FLAGS, registry, *words), seconds, hosts, depth)
        _must_have_worked(ended, self._registry, folder)
        installed = await to_thread(_read_back, folder, name)
        if scripts and installed.tree is not None:
            left = max(ends - time.monotonic(), 0.1)
            ended = await self._run(folder, ("npm", "rebuild", "--loglevel=error", "--no-update-notifier"), left, (), depth)
            if ended.exit_code != 0:
                wrote = {name: text.replace(str(folder), ".") for name, text in ended.last_output().items()}
                raise ToolError("A script of the packages failed; nothing was installed.", details=wrote)
        return installed, ended.jail

    async def _run(
        self, folder: Path, argv: Sequence[str], seconds: float, hosts: Sequence[str], depth: int
    ) -> CommandResult:
        from msgspec.structs import replace

        ended = await self._sandbox.run_command(
            argv,
            workspace=ProgramFolder(path=folder),
            # On disk: the jail's own folder for temporary files is memory.
            environment={**ENVIRONMENT, "NPM_CONFIG_CACHE": str(folder / CACHE)},
            limits=replace(self.limits, seconds=seconds),
            hosts=hosts,
            hosts_setting="npm.hosts",
            depth=depth,
        )
        if ended.stopped is not None:
            raise limit_error(ended, LIMIT_SETTINGS)
        return ended


def _must_have_worked(ended: CommandResult, registry: str, folder: Path) -> None:
    if ended.exit_code == 0:
        return
    code, summary = _told(ended.stdout.replace(str(folder), "."))
    if code in MISSING:
        raise InvalidInput(f"{MISSING[code]}: {summary}", suggestion="Check the name and the version.")
    if ended.private_hosts:
        hosts = ", ".join(ended.private_hosts)
        raise NotReached(
            "CONNECTION_ERROR",
            f"npm could not fetch: {hosts} resolves to an address of a private network, which is refused.",
            suggestion=f"Whoever runs Toolgate can allow it: `npm: {{hosts: [{hosts}]}}`, with its port.",
        )
    if code in UNREACHED:
        raise NotReached(
            "CONNECTION_ERROR",
            f"npm could not fetch from {urlsplit(registry).netloc} ({code}): {summary}",
            retryable=True,
            suggestion="Try again later. Packages that come from another host need it in the setting npm.hosts.",
        )
    raise ToolError(f"npm could not install the packages ({code or f'exit {ended.exit_code}'}): {summary}", retryable=False)


def _told(stdout: str) -> tuple[str, str]:
    """The code and the first line of the error that npm tells as JSON. It may quote what a registry said."""
    with suppress(orjson.JSONDecodeError, AttributeError):
        error = orjson.loads(stdout[stdout.index("{") :] if "{" in stdout else "{}").get("error", {})
        code, summary = str(error.get("code") or ""), str(error.get("summary") or "").strip()
        line = summary.splitlines()[0] if summary else "it gave no reason."
        shown = "".join(char if char.isprintable() else " " for char in line[:MAX_SUMMARY_CHARS])
        return code if code.isascii() and code.isprintable() and len(code) < 40 else "", shown
    return "", "it gave no reason."


def _read_back(folder: Path, lock: str) -> Installed:
    """What npm wrote, before anything of the packages runs."""
    manifest = Manifest(_read(folder, MANIFEST, MAX_MANIFEST_BYTES))
    return Installed(manifest, _read(folder, lock, MAX_LOCK_BYTES), _read(folder, HIDDEN_LOCK, MAX_LOCK_BYTES))


def _read(folder: Path, path: str, most: int) -> bytes | None:
    try:
        number = open_beneath(folder, folder, path)
    except FileNotFoundError:
        return None
    except (OSError, PathEscape):
        raise ToolError(f"{path} cannot be read after the installation.", retryable=False) from None
    try:
        content = os.pread(number, most + 1, 0) if stat.S_ISREG(os.fstat(number).st_mode) else b""
    finally:
        os.close(number)
    if len(content) > most:
        raise ToolError(f"{path} is too large.", retryable=False)
    return content


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


def _remove_stale(folder: Path) -> None:
    """Folders of installations that were never ended: of processes that were killed."""
    before = time.time() - STALE_SECONDS
    for found in folder.iterdir():
        with suppress(OSError):
            if found.lstat().st_mtime < before:
                remove(found)

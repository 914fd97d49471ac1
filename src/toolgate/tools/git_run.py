"""Runs git for a call, on a repository of its working directory (`sandbox.repository` says how)."""

import asyncio
import os
import re
import stat
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple, NoReturn

from toolgate.errors import InvalidInput, ToolError
from toolgate.pipeline.context import InvokeContext
from toolgate.sandbox import repository
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.jail import ProgramFolder
from toolgate.sandbox.results import CommandResult, limit_error
from toolgate.sandbox.tenant_places import tenant_places
from toolgate.sandbox.workspace_scan import GIT, ProtectedPaths
from toolgate.screening.safe_open import PathEscape, folder_beneath, name_of
from toolgate.threads import to_thread
from toolgate.tools.call_folder import CallFolder, discarding, explained, folder_of, refused
from toolgate.tools.commands import workspace_of
from toolgate.tools.git_arguments import COMMIT, pathspec, relative_path, without

try:
    import fcntl
except ImportError:  # Windows, where there is no jail either
    fcntl = None  # type: ignore[assignment]

MAX_CONFIG_BYTES = 65_536
MAX_SAID_CHARS = 500
MAX_WAIT_SECONDS, WAIT_SECONDS = 20.0, 0.02
"""For another call that changes the repository: in all, and between two looks."""
FORMAT = re.compile(rb"^\s*(objectformat|refstorage)\s*=", re.IGNORECASE | re.MULTILINE)
"""Without the repository's configuration git can't tell, and would take its objects for damaged."""
OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
NOT_FOUND = 127
"""The exit code of a shell that does not find a program."""


class Repository(NamedTuple):
    """A repository that a call works on, looked at once."""

    ctx: InvokeContext
    work: CallFolder
    folder: Path
    parts: ProtectedPaths
    has_logs: bool

    def paths(self, words: Iterable[str]) -> list[str]:
        """Paths in the repository that a caller named. Raises Denied for those that no tool may open."""
        found = []
        for word in words:
            path = relative_path(word)
            self.work.judge(str(self.folder / path))
            found.append(path)
        return found

    def has(self, word: str) -> bool:
        """True if a word is the path of something in the repository. No link is followed for that: whether something is
        there beyond it is nothing to be told."""
        with suppress(InvalidInput, PathEscape, OSError):
            folder, name = folder_beneath(self.folder, self.folder, relative_path(word))
            try:
                os.stat(name, dir_fd=folder, follow_symlinks=False)
            finally:
                os.close(folder)
            return True
        return False

    def pathspecs(self, paths: Sequence[str]) -> list[str]:
        """What git is to look at: those paths or all, but nothing that is hidden from it, and no repository inside."""
        hidden = [path for path in self.parts.hidden if path.is_relative_to(self.folder)]
        others = [path.parent if path.name == GIT else path for path in self.parts.repositories if path != self.folder / GIT]
        inside = [path for path in (*hidden, *others) if path.is_relative_to(self.folder) and path != self.folder]
        return [
            *(pathspec(path) for path in paths or (".",)),
            *(without(str(path.relative_to(self.folder))) for path in inside),
        ]

    def may_show(self, path: str) -> bool:
        """True if a tool may show what is, or was, in a file of the repository."""
        from toolgate.screening.folder_search import FolderLookups, slashed

        return self.work.places.rules.named(slashed(str(self.folder / path)), FolderLookups()) is None

    async def look(self, *words: str) -> CommandResult:
        """Run git to look at something: whatever it writes is discarded."""
        return await self._run(repository.RUN, words, discarding(self.work.folder, self.parts, self.folder))

    async def target(self, revision: str) -> str:
        """The commit that git would check out by a name."""
        folder = discarding(self.work.folder, self.parts, self.folder)
        return (await self._run(repository.TARGET, [revision], folder)).stdout.strip()

    async def compare(self, *words: str) -> CommandResult:
        """The same for what git would write, whatever its index says that it need not look at."""
        return await self._run(repository.COMPARE, words, discarding(self.work.folder, self.parts, self.folder))

    async def change(self, script: str, *words: str, operation: str, stdin: bytes = b"") -> CommandResult:
        """Run git to change the repository, and for a checkout the files around it."""
        space = await workspace_of(self.ctx, ["git", operation])
        ended = await self._run(script, words, space.given(self.folder), stdin)
        await space.noted("", ())
        if ended.left:
            raise ToolError("Not all that git changed is in the repository.", details={"left": list(ended.left)})
        return ended

    async def _run(self, script: str, words: Sequence[str], folder: ProgramFolder, stdin: bytes = b"") -> CommandResult:
        sandbox: Sandbox = self.ctx.get(Sandbox)
        author = self.ctx.get(repository.CommitAuthors).of(self.ctx.actor)
        async with tenant_places().place(self.ctx.actor.tenant):
            ended = await sandbox.run_command(
                ["/bin/sh", "-c", repository.PRELUDE + script, "git", *words],
                workspace=folder,
                stdin=stdin,
                environment=repository.environment(author, logs=self.has_logs),
                seconds=min(sandbox.limits.seconds, self.ctx.time_limit),
                depth=self.ctx.call.depth,
            )
        self.ctx.used("git", f"sandbox:{ended.jail}")
        if ended.stopped not in (None, "output"):
            raise limit_error(ended)
        if ended.stopped is None and ended.exit_code:
            self._raise(ended)
        return ended

    def _raise(self, ended: CommandResult) -> NoReturn:
        """Raise what git says, without places of this machine."""
        if ended.exit_code == NOT_FOUND:
            raise ToolError("git is not installed.", suggestion="Ask the operator to install git.", charged=False)
        said = ended.stderr.replace(f"{self.folder}/", "").replace(str(self.folder), ".")
        lines = [line.removeprefix("fatal: ").removeprefix("error: ") for line in said.splitlines() if line.strip()]
        words = " ".join(line for line in lines if not line.startswith(("hint:", "warning:"))).replace(COMMIT, "")
        raise InvalidInput(f"git: {words[:MAX_SAID_CHARS] or f'exit code {ended.exit_code}'}")


@asynccontextmanager
async def open_repository(ctx: InvokeContext, path: str, *, writes: bool = False) -> AsyncIterator[Repository]:
    """The repository at a path of the working directory; raises Denied if its .git is no folder."""
    work = await folder_of(ctx)
    folder, has_logs = await to_thread(_checked, work, path)
    async with _alone(ctx, folder / GIT) if writes else nullcontext():
        parts = await to_thread(work.places.parts, work.folder, writes_git=writes)
        yield Repository(ctx, work, folder, parts, has_logs)


@asynccontextmanager
async def _alone(ctx: InvokeContext, git: Path) -> AsyncIterator[None]:
    """Holds a repository against other calls, in other processes too. Each works in a layer of its own, in which git's own
    lock is not seen by others: of two commits at once, one would be lost."""
    handle = os.open(git, OPEN_FLAGS | getattr(os, "O_DIRECTORY", 0))
    try:
        over = monotonic() + min(MAX_WAIT_SECONDS, ctx.time_limit)
        while not _locked(handle):
            if monotonic() > over:
                raise ToolError("Another call changes the repository.", retryable=True, charged=False)
            await asyncio.sleep(WAIT_SECONDS)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _checked(work: CallFolder, path: str) -> tuple[Path, bool]:
    with work.opened(path) as opened:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            raise InvalidInput(f"{path} is no folder.", suggestion="Name the folder of a repository.")
        folder = Path(name_of(opened) or work.folder)
        try:
            found = os.stat(GIT, dir_fd=opened, follow_symlinks=False)
        except FileNotFoundError:
            raise InvalidInput(
                f"There is no repository in {path}.",
                suggestion="Name the folder in which its .git is: one around the working directory is not looked for.",
                details={"missing": True},
            ) from None
        if not stat.S_ISDIR(found.st_mode):
            raise refused("its .git is no folder: a file or link may lead to any repository")
        with explained(path):
            return folder, _check_layout(opened)


def _check_layout(opened: int) -> bool:
    """Raise for a repository that is part of another, or of a kind that only its configuration tells. True: it has logs."""
    inner = os.open(GIT, OPEN_FLAGS | getattr(os, "O_DIRECTORY", 0), dir_fd=opened)
    try:
        names = set(os.listdir(inner))  # noqa: PTH208 - of an open folder
        if not {"commondir", "gitdir"}.isdisjoint(names):
            raise PathEscape("it is part of another repository")
        if "config" in names and FORMAT.search(_start_of("config", inner)):
            raise InvalidInput("The repository has a format that is not supported: SHA-256 objects or reftables.")
        logs = "logs" in names and stat.S_ISDIR(os.stat("logs", dir_fd=inner, follow_symlinks=False).st_mode)
    finally:
        os.close(inner)
    return logs


def _start_of(name: str, folder: int) -> bytes:
    try:
        handle = os.open(name, OPEN_FLAGS, dir_fd=folder)
    except OSError:
        return b""
    try:
        return os.read(handle, MAX_CONFIG_BYTES) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    finally:
        os.close(handle)

"""The journal: what a tool is about to change is kept first, and can be put back by the id of the call.

    async with ctx.get(Journal).changing(ctx.call, path):
        path.write_text("new")

What is kept is on disk before the change may begin, and what can't be kept may not be changed. A directory is kept with all
that is in it; of a link, both the link and the file to which it leads; of a path that does not exist, that it does not,
and that its missing folders don't. Hard links are put back as files of their own.
"""

import asyncio
import logging
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import msgspec

from toolgate.errors import Denied, Failed, described
from toolgate.model import Actor, Call, new_id
from toolgate.store import journal as rows
from toolgate.store.data_folder import make_home
from toolgate.store.database import Store, now
from toolgate.store.journal import BackupRow
from toolgate.tasks import finish, start_task
from toolgate.threads import to_thread
from toolgate.undo import filesystem, steps
from toolgate.undo.filesystem import ABSENT, DIRECTORY, Node
from toolgate.undo.steps import NoBackup, NotUndone, Undone

try:
    import fcntl
except ImportError:  # Windows, where folders can't be opened either
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("toolgate.undo")
CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
MOST_PATHS = 10_000
"""Paths that one change may back up."""
PRUNE_SECONDS = 3_600.0

AnyPath = str | os.PathLike[str]


class Change(msgspec.Struct):
    """One change that is under way: what it began with."""

    call: Call
    place: Path
    makes: bool = True
    """False: what appears in its folder meanwhile is somebody else's."""
    linked: bool = True
    """False: it goes through no link."""
    rows: list[BackupRow] = msgspec.field(default_factory=list)

    def add(self, path: Path, node: Node, kept: str | None = None) -> None:
        actor = self.call.actor
        self.rows.append(
            BackupRow(
                new_id(), self.call.id, actor.tenant, actor.user, _text(path), node.kind,
                _text(node.target) if node.target is not None else kept, node.mode, _text(node.state), None,
            )
        )  # fmt: skip


class Journal:
    """Keeps what was there before, and puts it back."""

    def __init__(self, store: Store, folder: Path, most_bytes: int, keep_days: float) -> None:
        self._store = store
        self._folder = folder
        self._most_bytes = most_bytes
        self._keep_days = keep_days
        self._prune_at = 0.0

    # -- before and after a change

    @asynccontextmanager
    async def changing(self, call: Call, path: AnyPath, *, makes: bool = True, linked: bool = True) -> AsyncIterator[None]:
        """Around a change of a path that a tool writes, makes, moves or removes. Raises if what is there can't be kept: then
        nothing may be changed. If the change fails, what was there is put back at once; what it leaves is noted, since an
        undo refuses if it has changed again by then. `makes`: False if it only removes, so that what others put into a
        folder meanwhile stays there whatever becomes of the change. `linked`: False if it goes through no link: where one
        stands in the way of this whole path, nothing is kept, for it may lead anywhere."""
        place = filesystem.place_of(path) if linked else Path(path)
        beginning = start_task(self._begin(Change(call, place, makes, linked)))
        try:
            change = await finish(beginning)
        except asyncio.CancelledError:
            await finish(self._forget(beginning))
            raise
        try:
            yield
            await self._end(change)
        except BaseException:
            await finish(self._roll_back(change))
            raise

    async def _begin(self, change: Change) -> Change:
        if not CALL_ID.match(change.call.id):
            raise ValueError(f"a call whose id is {change.call.id!r:.80} cannot be kept")
        await self._prune_sometimes()
        await to_thread(self._capture, change)
        await self._store.transact(rows.add(change.rows))
        return change

    async def _end(self, change: Change) -> None:
        afters, made = await to_thread(_left, change)
        await self._store.transact(rows.finish(afters, made))

    async def _forget(self, beginning: asyncio.Future[Change]) -> None:
        """Has nothing undone of a change that will not be made, since whoever was to make it is gone."""
        with suppress(Exception):
            change = await beginning
            await self._store.transact(rows.mark_undone(row.id for row in change.rows))

    async def _roll_back(self, change: Change) -> None:
        """Put back what a change that failed may have touched. The database is not needed for it."""
        try:
            await to_thread(self._put_back_at_once, change)
            await self._store.transact(rows.mark_undone(row.id for row in change.rows))
        except Exception as error:  # noqa: BLE001 - what made the change fail is what the caller must hear of
            call = change.call.id
            logger.warning(
                "what call %s changed was not put back (%s): `toolgate undo %s` may", call, described(error), call
            )

    def _put_back_at_once(self, change: Change) -> None:
        _, made = _left(change)
        steps.carry_out(steps.steps_of([*change.rows, *made], self._of_call(change.call.id)), force=True)

    # -- keeping

    def _of_call(self, call_id: str) -> Path:
        return self._folder / call_id

    def _capture(self, change: Change) -> None:
        folder, place = self._of_call(change.call.id), change.place
        make_home(self._folder.parent)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self._folder.stat().st_mode & 0o077:
                self._folder.chmod(0o700)
            self._capture_into(folder, change)
            for made in (folder, self._folder):
                _sync(made)
        except filesystem.TooLarge:
            _discard(folder, change)
            raise Denied(
                "PERMISSION_DENIED",
                f"{place.name} was not changed: to keep what is there now takes more than {self._most_bytes:,} bytes.",
                suggestion="Raise limits.backup_bytes, or change it by hand.",
                details={"path": place.name, "most_bytes": self._most_bytes},
            ) from None
        except OSError as error:
            _discard(folder, change)
            # Whoever calls learns no place of this machine; the cause is for its log.
            why = (
                "a link stands in the way"
                if isinstance(error, filesystem.InTheWay)
                else error.strerror or "it cannot be read"
            )
            raise Failed(
                "INVOCATION_ERROR",
                f"{place.name} was not changed: what is there now cannot be kept: {why}.",
                suggestion="See to the rights on it, and that the disk of Toolgate's data has room.",
            ) from error

    def _capture_into(self, folder: Path, change: Change) -> None:
        room = self._most_bytes
        for path in _affected(change.place, linked=change.linked):
            name = new_id()
            node = filesystem.keep(path, folder / name, room)
            if node.kind == "other":
                raise OSError(None, f"{path.name} is no file, link or directory")
            if len(change.rows) == MOST_PATHS:
                raise OSError(None, f"there are more than {MOST_PATHS:,} paths in it")
            change.add(path, node, name if node.kind == "file" else None)
            room -= (folder / name).stat().st_size if node.kind == "file" else 0

    # -- undo

    async def undo(self, call_id: str, actor: Actor, force: bool = False) -> list[Undone]:
        """Put back all that a call changed. Refuses, and touches nothing, if it was changed again since, unless forced."""
        await self._pending(call_id, actor)
        with self._alone(call_id) as folder:
            pending = await self._pending(call_id, actor)
            todo = steps.steps_of(pending, folder)
            await to_thread(steps.check, todo, force=force)
            done = await to_thread(steps.carry_out, todo, force=force)
            await self._store.transact(rows.mark_undone(row.id for row in pending))
            return done

    async def preview(self, call_id: str, actor: Actor, force: bool = False) -> list[Undone]:
        """Gives what `undo` would do, or raises what it would raise."""
        todo = steps.steps_of(await self._pending(call_id, actor), self._of_call(call_id))
        await to_thread(steps.check, todo, force=force)
        return await to_thread(steps.preview, todo)

    async def calls(self, beginning: str, actor: Actor) -> list[str]:
        """The calls of the actor that have backups and whose id begins so, the latest first."""
        return await self._store.read(rows.calls(beginning, actor.tenant, actor.user)) if CALL_ID.match(beginning) else []

    async def has_backups(self, call_id: str, actor: Actor) -> bool:
        """Tells whether a call of the actor has backups that were not put back."""
        return any(row.undone_at is None for row in await self._backups(call_id, actor))

    async def _backups(self, call_id: str, actor: Actor) -> list[BackupRow]:
        return await self._store.read(rows.of_call(call_id, actor.tenant, actor.user)) if CALL_ID.match(call_id) else []

    async def _pending(self, call_id: str, actor: Actor) -> list[BackupRow]:
        found = await self._backups(call_id, actor)
        if not found:
            raise NoBackup(
                f"There is nothing to undo for call {call_id:.64}.",
                suggestion=f"Backups are kept for {self._keep_days:g} days, of calls that changed files; only the user who "
                "made a call undoes it (`toolgate undo CALL_ID --tenant T --user U`). "
                "Commits are undone with git: `git revert`.",
            )
        pending = [row for row in found if row.undone_at is None]
        if not pending:
            when = max(row.undone_at for row in found if row.undone_at is not None)
            raise NotUndone(f"Call {call_id} was undone already, at {when:%Y-%m-%d %H:%M:%S} UTC.")
        if not self._of_call(call_id).is_dir():
            raise NotUndone(
                f"The backups of call {call_id} are not on this machine.",
                suggestion="Undo where the call was made; its data folder holds them.",
            )
        return pending

    @contextmanager
    def _alone(self, call_id: str) -> Iterator[Path]:
        """The folder of a call, held against other processes. The hold ends with the process, however that ends."""
        folder = self._of_call(call_id)
        handle = os.open(folder, os.O_RDONLY)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder
        except BlockingIOError:
            raise NotUndone(f"Call {call_id} is being undone by another process.") from None
        finally:
            os.close(handle)

    # -- forgetting

    async def prune(self) -> int:
        """Forget backups that are older than they are kept; gives of how many calls."""
        old = await self._store.transact(rows.prune(now() - timedelta(days=self._keep_days)))
        left_over = await to_thread(self._old_folders)
        still = await self._store.read(rows.known(left_over))
        gone = {*old, *left_over} - still
        await to_thread(_remove_folders, [self._of_call(call_id) for call_id in gone])
        return len(gone)

    async def _prune_sometimes(self) -> None:
        """Once an hour, whichever process comes first."""
        if time.monotonic() < self._prune_at:
            return
        self._prune_at = time.monotonic() + PRUNE_SECONDS
        mark = self._folder / ".pruned"
        if self._folder.is_dir() and not time.time() - PRUNE_SECONDS < _time_of(mark) <= time.time():
            mark.touch()
            await self.prune()

    def _old_folders(self) -> list[str]:
        """Folders in which nothing was put for as long: what a crash, or another machine's pruning, left."""
        if not self._folder.is_dir():
            return []
        oldest = time.time() - self._keep_days * 86_400
        return [entry.name for entry in self._folder.iterdir() if CALL_ID.match(entry.name) and _time_of(entry) < oldest]


def _affected(place: Path, *, linked: bool = True) -> Iterator[Path]:
    """All that a change of a path may touch: its missing folders, outer first; what is in it; itself; where it leads."""
    if not place.name:
        raise OSError(None, "the root of the file system cannot be kept")
    missing = filesystem.missing_folders(place)
    yield from reversed(missing)
    yield from filesystem.below(place)
    yield place
    if not linked:
        return
    target = filesystem.real(place)
    kept = (ABSENT, "file", DIRECTORY)  # of a folder that a link leads to, its rights: not what is in it
    if (
        target != place
        and target.name
        and filesystem.look(target).kind in kept
        and filesystem.look(target.parent).kind == DIRECTORY
    ):
        yield target


def _left(change: Change) -> tuple[list[tuple[str, str]], list[BackupRow]]:
    """Gives what a change left: the state of each path that it began with, and what it made inside besides."""
    known = {Path(row.path) for row in change.rows}
    afters = [(row.id, _text(filesystem.look(Path(row.path), known).state)) for row in change.rows]
    like = change.rows[0]._replace(kind=ABSENT, kept=None, mode=None, before_hash=ABSENT)
    made = [
        like._replace(id=new_id(), path=_text(path), after_hash=_text(filesystem.look(path).state))
        for path in (filesystem.below(change.place) if change.makes else ())
        if path not in known
    ]
    return afters, made


def _text(words: object) -> str:
    """A path or a target as text that every database can hold."""
    text = str(words)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise OSError(None, f"the name {Path(text).name!r} cannot be written as text") from None
    return text


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _discard(folder: Path, change: Change) -> None:
    """Take away the copies of a change that will not be made. The folder stays: it says that the call was made here."""
    for row in change.rows:
        if row.kind == "file" and row.kept is not None:
            (folder / row.kept).unlink(missing_ok=True)
    change.rows.clear()


def _time_of(entry: Path) -> float:
    """When a file was last changed; never, if it is not there."""
    try:
        return entry.lstat().st_mtime
    except OSError:
        return 0.0


def _remove_folders(folders: Sequence[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)

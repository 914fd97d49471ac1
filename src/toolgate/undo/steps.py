"""The steps of an undo: for each path that a call changed, one step from what it left to what was there before.

A call may have changed a path several times; only the first state and the last count. Steps are ordered by the tree and
not by the clock: what is removed goes inner before outer, what is made outer before inner. Each can be done again, so an
undo that was cut short is simply run once more.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from toolgate.errors import ErrorCategory, ToolgateError
from toolgate.store.journal import BackupRow
from toolgate.undo import filesystem
from toolgate.undo.filesystem import ABSENT, DIRECTORY

MOST_TROUBLES = 5
"""Troubles that a message names."""


class NotUndone(ToolgateError):
    """The call can't be undone."""

    category: ErrorCategory = "conflict"


class NoBackup(NotUndone):
    """There is nothing to undo."""

    category = "missing"


class Undone(NamedTuple):
    """The change of a path. `left` means that a directory had to stay, because there is something in it."""

    path: str
    done: Literal["restored", "removed", "unchanged", "left"]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """From what a call left at a path to what was there before."""

    path: Path
    before: str
    after: str | None
    """The state that the call left; None if it ended before that was noted."""
    mode: int | None
    copy: Path | None
    """The file that is put back."""
    target: str | None
    """The target of the link that is put back."""
    gap: bool = False
    """True if somebody else changed the path between two changes of the call."""

    def fits(self, state: str) -> bool:
        """True if what is there now is what the call left, or what a first try of this step put there."""
        if state in (self.before, self.after):
            return True
        kinds = {text.partition(":")[0] for text in (self.before, self.after or self.before)}
        return state == ABSENT and len(kinds) == 2  # one was taken away to make room for the other


def steps_of(rows: Iterable[BackupRow], folder: Path) -> list[Step]:
    """The steps that undo what rows say, first change first."""
    by_path: dict[str, list[BackupRow]] = {}
    for row in rows:
        by_path.setdefault(row.path, []).append(row)
    return [_step(changes, folder) for changes in by_path.values()]


def _step(changes: Sequence[BackupRow], folder: Path) -> Step:
    first, last = changes[0], changes[-1]
    return Step(
        path=Path(first.path),
        before=first.before_hash,
        after=last.after_hash,
        mode=first.mode,
        copy=folder / first.kept if first.kind == "file" and first.kept else None,
        target=first.kept if first.kind == "link" else None,
        gap=any(two.before_hash not in (one.after_hash, one.before_hash) for one, two in pairwise(changes)),
    )


# -- may it?


def check(steps: Sequence[Step], *, force: bool) -> None:
    """Refuse before anything is touched. Force overrides what others changed, not what can't be done."""
    impossible: list[str] = []
    changed: list[str] = []
    own = {step.path for step in steps}
    gone = {step.path for step in steps if step.before == ABSENT}
    for step in steps:
        try:
            now = filesystem.look(step.path, own)
            changed.extend(_changes(step, now, gone))
        except OSError as error:
            impossible.append(f"{step.path}: {error.strerror or error}")
            continue
        if step.copy is not None and now.state != step.before and not filesystem.is_copy(step.copy, step.before):
            impossible.append(f"the copy of {step.path} is missing or damaged")
    if impossible:
        raise NotUndone(f"Nothing was undone: {_listed(impossible)}.")
    if changed and not force:
        raise NotUndone(
            f"Nothing was undone: {_listed(changed)}.",
            suggestion="Look at what would be lost, then undo with force (`toolgate undo CALL_ID --force`).",
        )


def _changes(step: Step, now: filesystem.Node, gone: set[Path]) -> list[str]:
    if step.gap:
        return [f"{step.path} was changed by somebody else while the call ran"]
    if not step.fits(now.state):
        if step.after is None:
            return [f"it is not known what the call left at {step.path}, because it did not end"]
        return [f"{step.path} was changed since"]
    if now.kind != DIRECTORY or step.before == DIRECTORY:
        return []
    return [f"{inner} was put there since" for inner in filesystem.inside(step.path) if inner not in gone]


def _listed(troubles: Sequence[str]) -> str:
    more = len(troubles) - MOST_TROUBLES
    return "; ".join(troubles[:MOST_TROUBLES]) + (f"; and {more} more" if more > 0 else "")


# -- doing it


def preview(steps: Iterable[Step]) -> list[Undone]:
    order = ordered(steps)
    own = {step.path for step in order}
    return [_foreseen(step, own) for step in order]


def _foreseen(step: Step, own: set[Path]) -> Undone:
    if filesystem.look(step.path, own).state == step.before:
        return Undone(str(step.path), "unchanged")
    return Undone(str(step.path), "removed" if step.before == ABSENT else "restored")


def ordered(steps: Iterable[Step]) -> list[Step]:
    """Removals, inner before outer; then directories, outer before inner; then files and links."""

    def rank(step: Step) -> tuple[int, int, str]:
        depth = len(step.path.parts)
        if step.before == ABSENT:
            return 0, -depth, str(step.path)
        return (1 if step.before == DIRECTORY else 2), depth, str(step.path)

    return sorted(steps, key=rank)


def carry_out(steps: Iterable[Step], *, force: bool) -> list[Undone]:
    """Put everything back. Raises NotUndone at the first thing that fails; it may be run again."""
    order = ordered(steps)
    own = {step.path for step in order}
    done: list[Undone] = []
    for step in order:
        try:
            done.append(_put_back(step, own, force=force))
        except OSError as error:
            raise _cut_short(step, error.strerror or str(error), done) from error
    for step in reversed(order):
        if step.before == DIRECTORY and step.mode is not None:
            try:
                filesystem.set_mode(step.path, step.mode)
            except OSError as error:
                raise _cut_short(step, error.strerror or str(error), done) from error
    return done


def _put_back(step: Step, own: set[Path], *, force: bool) -> Undone:
    path, now = step.path, filesystem.look(step.path, own)
    if now.state == step.before:
        return Undone(str(path), "unchanged")
    if not force and not step.fits(now.state):
        raise OSError(None, "it was changed just now")
    if step.before == ABSENT:
        return Undone(str(path), "removed" if filesystem.remove(path) else "left")
    if now.kind == DIRECTORY and not filesystem.remove(path):
        return Undone(str(path), "left")
    if force:
        filesystem.make_folders(path)
    if step.before == DIRECTORY:
        filesystem.put_directory(path)
    elif step.target is not None:
        filesystem.put_link(path, step.target)
    elif step.copy is not None and step.mode is not None:
        filesystem.put_file(path, step.copy, step.mode)
    return Undone(str(path), "restored")


def _cut_short(step: Step, why: str, done: Sequence[Undone]) -> NotUndone:
    return NotUndone(
        f"{step.path} cannot be put back: {why}. {len(done)} paths were put back before it.",
        suggestion="See to it and undo again: what is done is not done twice.",
    )

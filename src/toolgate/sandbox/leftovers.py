"""What a program left in the folder that it worked in: what would have the host run something later gets another name.

Nothing is deleted: a person may have made it meanwhile, and can give it its name back.
"""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from toolgate.errors import Failed
from toolgate.sandbox.heldback import GIT, Parts, by_name, secret_identity, shown

MOST_LINES = 20
"""Lines that are told of what was done."""


def check_secrets(top: Path, before: Parts) -> None:
    """Raise Failed if something hidden was replaced while a program ran: what is put in a hidden file's place is seen."""
    for path, known in before.secret.items():
        try:
            now = secret_identity(path, path.lstat())
        except OSError:
            continue  # what is gone was not seen
        if now != known:
            raise Failed(
                "SANDBOX_ERROR",
                f"What it gave is withheld: a hidden file was replaced while it ran ({shown(top, path)}), "
                "so it may have been seen.",
                suggestion="Run it again, when nobody changes that file.",
                details={"withheld": True},
            )


def set_aside(top: Path, before: Parts, after: Parts, *, writes_git: bool = False) -> list[str]:
    """Give other names to what would have the host run something, unless it was there before. Gives what was done, in
    words; raises Failed, when all that can be done is done, if something of it could not be."""
    done: list[str] = []
    troubles = list(after.troubles)
    for path in sorted(_new(before, after, writes_git), key=lambda path: (len(path.parts), path), reverse=True):
        replaced = path in before.runs
        for target in _to_rename(top, path, path in after.repositories):
            try:
                other = _rename(top, target)
            except FileNotFoundError:
                continue
            except OSError as error:
                troubles.append(f"{shown(top, target)} can't be renamed: {os.strerror(error.errno or 0)}")
            else:
                done.insert(0, _told(shown(top, target), other, replaced))  # the nearest is told first
    if troubles:
        raise Failed(
            "SANDBOX_ERROR",
            "What it left may have something run on the host, and could not all be set aside: " + "; ".join(troubles[:5]),
            suggestion="Look through its working directory before you use an editor or git there.",
            details={"set_aside": done[:MOST_LINES]},
        )
    return done if len(done) <= MOST_LINES else [*done[:MOST_LINES], f"and {len(done) - MOST_LINES} more"]


def _new(before: Parts, after: Parts, writes_git: bool) -> Iterator[Path]:
    """What was not there before. A repository that git made is as it should be, if there was none that could have had git
    run a program of the workspace."""
    from toolgate.hazards.filenames import runs

    changed = {path for path, now in after.runs.items() if before.runs.get(path) != now}
    for path in changed:
        if writes_git and not before.repositories and not after.repositories.isdisjoint((path, *path.parents)):
            continue
        if path in after.repositories or by_name(path.name) or runs(f"/{path.name}") is not None:
            yield path
        elif path.parent not in changed or (path.parent in after.repositories and path.parent.name.lower() != GIT):
            yield path  # otherwise it was the name of its folder that mattered, which is renamed


def _to_rename(top: Path, path: Path, is_repository: bool) -> Iterator[Path]:
    """Of a repository its HEAD, without which it is none under any name."""
    if is_repository:
        yield path / "HEAD"
    if path != top and (not is_repository or path.name.lower() == GIT):
        yield path


def _rename(top: Path, path: Path) -> str:
    from toolgate.hazards.opening import Escapes, folder_beneath

    other = f"{path.name.lstrip('.')}.set-aside-{secrets.token_hex(3)}"
    try:
        folder, name = folder_beneath(top, top, str(path))
    except (Escapes, NotADirectoryError):
        raise FileNotFoundError from None  # a link or a file is in the place of its folder by now
    try:
        os.rename(name, other, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)
    return other


def _told(name: str, other: str, replaced: bool) -> str:
    if replaced:
        return f"{name} was replaced while it ran, and is called {other} now: if that was you, give it its name back"
    return f"{name} is called {other} now: under its own name it could have something run on the host"

"""The folder that a call works in: the paths that a tool may open there, and errors of the system in words that help."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from toolgate.errors import Denied, InvalidInput, ToolError
from toolgate.pipeline.context import InvokeContext
from toolgate.sandbox.jail import ProgramFolder
from toolgate.sandbox.workspace_scan import ProtectedPaths
from toolgate.sandbox.workspaces import Workspaces
from toolgate.screening.safe_open import ESCAPE_ADVICE, PathEscape, folder_beneath, name_of, open_beneath
from toolgate.threads import to_thread

GONE = (errno.ENOENT, errno.ENOTDIR)


class CallFolder(NamedTuple):
    """The folder that a call works in, and the rules there."""

    folder: Path
    places: Workspaces

    def judge(self, path: str, *, writing: bool = False) -> None:
        """Raise Denied if no tool may open the path."""
        reason = self.places.rules.reason(path, self.folder, writing=writing)
        if reason is not None:
            raise refused(reason)

    def judge_opened(self, opened: int) -> None:
        """The same for what is open: nothing of Toolgate's own but what is the call's."""
        name = name_of(opened)
        if name is None or self.places.is_foreign(self.folder, name):
            raise refused("it is Toolgate's own data")

    def judge_place(self, place: Path) -> None:
        """Raise Denied if a file or folder there would have the host run something."""
        later = self.places.runs(self.folder, place) if place.is_relative_to(self.folder) else None
        if later is not None:
            raise refused(f"it is a place for {later}")

    @contextmanager
    def opened(self, path: str) -> Iterator[int]:
        """Opens and judges what a path leads to."""
        self.judge(path)
        with explained(path):
            opened = open_beneath(self.folder, self.folder, path)
            try:
                self.judge_opened(opened)
                yield opened
            finally:
                os.close(opened)

    def read(self, path: str, max_bytes: int) -> bytes:
        """The bytes of a file, which must not be more than so many."""
        with explained(path), self.places.rules.open_read(path, self.folder, self.folder) as file:
            self.judge_opened(file.fileno())
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise InvalidInput(f"{path} has more than {max_bytes:,} bytes, which is the most that is read.")
        return data

    @contextmanager
    def parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The folder of what is to be written, open, and its name there. `make`: folders that are missing are made."""
        folder, name = folder_beneath(self.folder, self.folder, path, make=make)
        try:
            yield folder, name
        finally:
            os.close(folder)


async def folder_of(ctx: InvokeContext) -> CallFolder:
    places: Workspaces = ctx.get(Workspaces)
    return CallFolder(await to_thread(places.of, ctx.call), places)


async def read_text(ctx: InvokeContext, path: str, max_bytes: int) -> str:
    """The text of a file of the working directory, noted as used by the call."""
    work = await folder_of(ctx)
    data = await to_thread(work.read, path, max_bytes)
    ctx.used(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is no text in UTF-8, from byte {error.start} on.") from None


def refused(reason: str) -> Denied:
    return Denied(
        "SECURITY_VIOLATION",
        f"The path is refused: {reason}.",
        suggestion=ESCAPE_ADVICE,
        reason=reason,
    )


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Raises what the system says in words that help."""
    try:
        yield
    except PathEscape as escape:
        raise refused(str(escape)) from None
    except IsADirectoryError:
        raise InvalidInput(f"{path} is a folder.", suggestion="list_directory shows what is in it.") from None
    except OSError as error:
        if error.errno in GONE:
            raise InvalidInput(f"There is no {path}.", details={"missing": True}) from None
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise ToolError(f"{path}: {os.strerror(error.errno)}.") from error
        words = os.strerror(error.errno) if error.errno else str(error)
        raise InvalidInput(f"{path} cannot be used: {words}.") from None


def discarding(root: Path, parts: ProtectedPaths, cwd: Path | None = None) -> ProgramFolder:
    """A folder for a program that only reads: it does not see what is hidden, and nothing that it changes is kept."""
    return ProgramFolder(path=root, cwd=cwd, hidden=parts.hidden, settle=_discard)


def _discard(_upper: int, _deleted: object = None) -> Sequence[str]:
    return ()


def check_words(**given: str | Sequence[str] | None) -> None:
    """Raise InvalidInput for texts that can't be handed to a program as its arguments."""
    for name, value in given.items():
        for text in (value,) if isinstance(value, str) else value or ():
            if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
                raise InvalidInput(f"{name} holds a character that no program can be given.", suggestion="Leave it out.")

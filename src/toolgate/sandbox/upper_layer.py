"""The layer that holds what a program changed, from its end until it is decided about."""

import os

from toolgate.sandbox.jail import JailedProcess, ProgramFolder, SettleChanges
from toolgate.tasks import finish
from toolgate.threads import to_thread


class UpperLayer:
    """The layer with a program's changes, as an open folder, beyond its end."""

    def __init__(self) -> None:
        self._open: list[int] = []

    def __enter__(self) -> "UpperLayer":
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            os.close(self._open.pop())

    def take(self, process: JailedProcess) -> None:
        """Of a program that is about to be closed."""
        self._open += map(os.dup, process.uppers())

    async def settled(self, folder: ProgramFolder | None) -> tuple[str, ...]:
        """Have it decided about. Once that has begun, it is gone through with."""
        if folder is None or folder.settle is None or not self._open:
            return ()
        return await finish(to_thread(_settle, folder.settle, self._open.pop()))


def _settle(settle: SettleChanges, upper: int) -> tuple[str, ...]:
    try:
        return tuple(settle(upper))
    finally:
        os.close(upper)

"""The overlay layers between a jailed server and its folders: settled after each call, and when it ends.

Before a call the server is shown what the host has changed. Of folders that it may only read it sees nothing that was not
scanned first. A writable folder is seen through an overlay, which shows new files at once: so it is scanned before and after
each call, and a server that may have seen a file that no tool may open is stopped. Its response is then withheld, and what
it wrote goes to quarantine.
"""

import logging
import os
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from toolgate.errors import Failed
from toolgate.mcp.client.errors import Unreachable
from toolgate.sandbox.jail import MB, JailedProcess
from toolgate.settings import ServerSettings
from toolgate.tasks import finish
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.mcp.client.mounts import MountPlan
    from toolgate.sandbox.workspaces import Workspaces

LayerStep = Callable[[list[int]], list[str]]
MAX_INLINE_STATS = 100
"""Folders that are checked without a thread: it takes a tenth of a millisecond."""
EXPOSED_REASON = (
    "a file that no tool may open came into a folder of the server while it ran, so it may hold what was in that"
)

logger = logging.getLogger("toolgate.mcp")


class FolderLayers:
    """The layers of one running server."""

    def __init__(
        self,
        server: str,
        settings: ServerSettings,
        box: JailedProcess,
        places: "Workspaces",
        mounts: "MountPlan",
        plan: Callable[[], "MountPlan"],
    ) -> None:
        """`places` decides which of its changes are applied. `mounts`: those that it was given; `plan` plans them again."""
        self._server = server
        self._box = box
        self._intakes = [
            places.intake(
                folder,
                f"server {server}",
                settings.disk_mb * MB,
                bring_in=settings.bring_in,
                setting=f"servers.{server}.bring_in",
                repositories=[path for path in mounts.repositories if path.is_relative_to(folder)],
            )
            for folder in mounts.writable
        ]
        self._mounts = mounts
        self._plan = plan
        self._lock = Lock()
        self.exposed = False
        """True: it may have seen a file that no tool may open, and has to be stopped."""

    async def show_host(self) -> None:
        """Shows the server the host's files as they are now."""
        if self._intakes or len(self._mounts.times) > MAX_INLINE_STATS or self._is_stale():
            await self._in_thread(self._show_host, self._uppers())

    async def settle(self) -> list[str]:
        """Applies what the server changed, or quarantines it; returns notes for the caller."""
        return await self._in_thread(self._settle, self._uppers()) if self._intakes else []

    async def close(self) -> None:
        """Ends the program, then settles its last changes."""
        uppers = self._uppers()
        try:
            await self._box.close()
        finally:
            await self._in_thread(self._settle, uppers)

    def _uppers(self) -> list[int]:
        return list(map(os.dup, self._box.uppers()))

    async def _in_thread(self, step: LayerStep, uppers: list[int]) -> list[str]:
        """Runs a step to its end, whoever waits for it: the folders are open as long as that takes."""

        def run() -> list[str]:
            try:
                with self._lock:
                    return step(uppers)
            except OSError as error:
                logger.error("server %s: its changes cannot be read: %s", self._server, error)
                return ["the changes of its server cannot be read, and were not applied"]
            finally:
                for upper in uppers:
                    os.close(upper)

        return await finish(to_thread(run))

    def _is_stale(self) -> bool:
        """True if something was added to a folder, or removed, since it was scanned."""
        return any(_changed(folder) != known for folder, known in self._mounts.times.items())

    def _look(self) -> None:
        """Projects what the host has now. A secret in a projected folder is never shown; in a writable one, it was."""
        if not self._is_stale():
            return
        try:
            now = self._plan()
        except Unreachable as error:
            logger.warning("server %s: its folders cannot be scanned: %s", self._server, error.message)
            self.exposed = bool(self._intakes)
            return
        before, self._mounts = self._mounts, now
        if (now.projected, now.writable) != (before.projected, before.writable) or not set(now.hidden) <= set(before.hidden):
            self.exposed = True
            return
        project = getattr(self._box, "project", None)
        if project is not None:
            project(now.pieces)

    def _show_host(self, uppers: list[int]) -> list[str]:
        self._look()
        for upper, intake in zip(uppers, self._intakes, strict=False):
            intake.yield_to_host(upper)
        refresh = getattr(self._box, "refresh", None)
        if refresh is not None:
            refresh()
        return []

    def _settle(self, uppers: list[int]) -> list[str]:
        if self._intakes:
            self._look()
        for intake in self._intakes if self.exposed else ():
            intake.withheld = EXPOSED_REASON
        said = [line for upper, intake in zip(uppers, self._intakes, strict=False) for line in intake.settle(upper)]
        for line in said:
            logger.warning("server %s: %s", self._server, line)
        return said


def _changed(folder: str) -> int:
    try:
        return os.stat(folder, follow_symlinks=False).st_ctime_ns  # noqa: PTH116 - for every folder, at each call
    except OSError:
        return -1


def withheld_error(server: str) -> Failed:
    """The error that a caller gets in place of the response."""
    return Failed(
        "SANDBOX_ERROR",
        f"The answer of server {server} is withheld: a file that no tool may open came into a folder that it may write "
        "while it worked, so it may have seen that. The server was ended, and what it wrote is set aside.",
        suggestion="Call it again: it is started anew, and does not see that file.",
        details={"withheld": True},
    )


def with_notes(answer: Mapping[str, Any], said: list[str]) -> Mapping[str, Any]:
    """The result of a tool with notes on its server's changes: the caller would believe that they are where the server
    says."""
    content = answer.get("content")
    if not said or not isinstance(content, list):
        return answer
    return {**answer, "content": [*content, *({"type": "text", "text": f"toolgate: {line}"} for line in said)]}

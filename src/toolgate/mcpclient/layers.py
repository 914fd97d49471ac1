"""What a jailed server changes in the folders that it may write: decided about after each call, and when it ends.

Before a call the server is shown what the host has changed meanwhile.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from toolgate.sandbox.port import Box

if TYPE_CHECKING:
    from toolgate.sandbox.intake import Intake

logger = logging.getLogger("toolgate.mcp")


class FolderLayers:
    """The layers over the folders of one server's program, while it runs."""

    def __init__(self, server: str, box: Box, intakes: Sequence["Intake"]) -> None:
        self._server = server
        self._box = box
        self._intakes = intakes
        self._lock = Lock()

    async def before_call(self) -> None:
        """Have the server see the host's files as they are now."""
        await self._with_uppers(self._show_host)

    async def after_call(self) -> None:
        """Bring in what it changed, or set it aside."""
        await self._with_uppers(self._look)

    async def close(self) -> None:
        """End the program, then deal with what it changed last."""
        uppers = list(map(os.dup, self._box.uppers()))
        try:
            await self._box.close()
        finally:
            await self._in_thread(self._look, uppers)

    async def _with_uppers(self, deal: Callable[[list[int]], None]) -> None:
        await self._in_thread(deal, list(map(os.dup, self._box.uppers())))

    async def _in_thread(self, deal: Callable[[list[int]], None], uppers: list[int]) -> None:
        """Once begun it is gone through with, whoever waits for it: the folders are open as long as that takes."""
        work = asyncio.ensure_future(asyncio.to_thread(self._deal, deal, uppers))
        await asyncio.shield(work)

    def _deal(self, deal: Callable[[list[int]], None], uppers: list[int]) -> None:
        try:
            with self._lock:
                deal(uppers)
        except OSError as error:
            logger.error("what server %s changed can't be read: %s", self._server, error)
        finally:
            for upper in uppers:
                os.close(upper)

    def _show_host(self, uppers: list[int]) -> None:
        for upper, intake in zip(uppers, self._intakes, strict=False):
            intake.yield_to_host(upper)
        refresh = getattr(self._box, "refresh", None)
        if refresh is not None:
            refresh()

    def _look(self, uppers: list[int]) -> None:
        for upper, intake in zip(uppers, self._intakes, strict=False):
            for line in intake.settle(upper):
                logger.warning("server %s: %s", self._server, line)

"""What a jailed server changes in the folders that it may write: decided about after each call, and when it ends.

Before a call the server is shown what the host has changed meanwhile.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from toolgate.sandbox.port import Box

if TYPE_CHECKING:
    from toolgate.sandbox.intake import Intake

Deal = Callable[[list[int]], list[str]]

logger = logging.getLogger("toolgate.mcp")


class FolderLayers:
    """The layers over the folders of one server's program, while it runs."""

    def __init__(self, server: str, box: Box, intakes: Sequence["Intake"]) -> None:
        self._server = server
        self._box = box
        self._intakes = intakes
        self._lock = Lock()

    async def show_host(self) -> None:
        """Have the server see the host's files as they are now."""
        await self._in_thread(self._show_host, self._uppers())

    async def settle(self) -> list[str]:
        """Bring in what the server changed, or set it aside: what is to be said of it."""
        return await self._in_thread(self._settle, self._uppers())

    async def close(self) -> None:
        """End the program, then deal with what it changed last."""
        uppers = self._uppers()
        try:
            await self._box.close()
        finally:
            await self._in_thread(self._settle, uppers)

    def _uppers(self) -> list[int]:
        return list(map(os.dup, self._box.uppers()))

    async def _in_thread(self, deal: Deal, uppers: list[int]) -> list[str]:
        """Once begun it is gone through with, whoever waits for it: the folders are open as long as that takes."""
        return await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(self._deal, deal, uppers)))

    def _deal(self, deal: Deal, uppers: list[int]) -> list[str]:
        try:
            with self._lock:
                return deal(uppers)
        except OSError as error:
            logger.error("what server %s changed can't be read: %s", self._server, error)
            return ["what its server changed in its folders can't be read, and is not in them"]
        finally:
            for upper in uppers:
                os.close(upper)

    def _show_host(self, uppers: list[int]) -> list[str]:
        for upper, intake in zip(uppers, self._intakes, strict=False):
            intake.yield_to_host(upper)
        refresh = getattr(self._box, "refresh", None)
        if refresh is not None:
            refresh()
        return []

    def _settle(self, uppers: list[int]) -> list[str]:
        said = [line for upper, intake in zip(uppers, self._intakes, strict=False) for line in intake.settle(upper)]
        for line in said:
            logger.warning("server %s: %s", self._server, line)
        return said


def noted(answer: Mapping[str, Any], said: list[str]) -> Mapping[str, Any]:
    """The answer to a call of a tool, with what is to be said of its server's changes: whoever called would believe that
    they are where the server says."""
    content = answer.get("content")
    if not said or not isinstance(content, list):
        return answer
    return {**answer, "content": [*content, *({"type": "text", "text": f"toolgate: {line}"} for line in said)]}

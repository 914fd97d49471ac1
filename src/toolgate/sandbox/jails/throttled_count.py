"""A count that takes too long for the event loop: done in a thread, never twice at once, and only for a part of the time."""

import asyncio
from collections.abc import Callable
from time import monotonic

from toolgate.tasks import start_task
from toolgate.threads import to_thread

AGAIN = 0.5
"""Seconds from one count to the next, at least."""

SHARE = 20
"""A count may take this part of the time, if nothing speaks for hurry: the next one comes after so many times as long."""


class ThrottledCount:
    """When something was counted last, and how long that took."""

    def __init__(self, looked: float = 0.0) -> None:
        self._looked, self._took = looked, 0.0
        self._looking = False

    def may_begin(self, now: float) -> bool:
        """Whether another count is allowed at all."""
        return not self._looking and now - self._looked >= AGAIN

    def is_time(self, now: float, every: float = 0.0) -> bool:
        """Whether it is time for one that nothing has asked for."""
        return now - self._looked >= max(every, self._took * SHARE)

    def begin(self, now: float, count: Callable[[], bool], tell: Callable[[], None]) -> None:
        """Count; tell if it is too much, or if it can't be counted."""
        self._looking, self._looked = True, now

        def timed() -> bool:
            began = monotonic()
            try:
                return count()
            finally:
                self._took = monotonic() - began

        def counted(done: asyncio.Future[bool]) -> None:
            self._looking = False
            if not done.cancelled() and (done.exception() is not None or done.result()):
                tell()

        start_task(to_thread(timed)).add_done_callback(counted)

"""Time limits of hooks, kept in the task of the call itself.

A hook may set context variables and open scopes that its call goes on in, so it can't be given a task of its own. Its
coroutine is driven by hand instead: as long as it does not suspend, there is no timer, which would cost more than most
hooks; once it does, a timer cancels it at its limit, and one that ignores that is dropped. What never suspends can't be
interrupted: the log says afterwards how long it took.
"""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Generator, Mapping
from contextlib import suppress
from inspect import isawaitable
from time import perf_counter
from types import CoroutineType
from typing import Any

GRACE_SECONDS = 0.5
"""For what a cancelled hook does in its `finally`."""
BLOCKED_SECONDS = 1.0
"""A hook that held the event loop for this long is named in the log."""

logger = logging.getLogger("toolgate")


class HookTimeout(Exception):
    """The hook did not finish in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it did not finish within {seconds:g} s")


class HookTimer:
    """The time of one hook at one stage. It stands still while the hook waits for the tool that it wraps."""

    __slots__ = ("_cancelled_before", "_cancels", "_left", "_loop", "_paused", "_since", "_task", "_timer", "seconds")

    def __init__(self, seconds: float, since: float | None = None) -> None:
        self.seconds = self._left = seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._since = perf_counter() if since is None else since
        self._paused = 0
        self._cancels = 0
        self._cancelled_before = 0

    def pause(self) -> None:
        self._paused += 1
        if self._paused == 1:
            self._left -= perf_counter() - self._since
            self._stop()

    def resume(self) -> None:
        self._paused -= 1
        if self._paused == 0:
            self._since = perf_counter()
            self._start(max(self._left, 0.0))

    # -- for what is driven

    def begin(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._cancelled_before = 0 if self._task is None else self._task.cancelling()
        if not self._paused:
            self._start(self._left - (perf_counter() - self._since))

    def end(self) -> None:
        self._stop()
        self._loop = None

    def has_fired(self) -> bool:
        """True if a cancellation that arrives is this timer's."""
        return self._cancels > 0

    def take_back(self) -> bool:
        """Take the timer's cancellation back from the task, and tell whether it was the only one: the task is then as if it
        had not been cancelled. Else its caller has cancelled it as well."""
        self._cancels -= 1
        return self._task is not None and self._task.uncancel() <= self._cancelled_before

    def give_grace(self) -> None:
        self._start(GRACE_SECONDS)

    def _start(self, seconds: float) -> None:
        if self._loop is not None:
            self._timer = self._loop.call_later(seconds, self._fire)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._cancels += 1
        if self._task is not None:
            self._task.cancel()


class Awaited:
    """The rest of a coroutine that has suspended, driven step by step."""

    __slots__ = ("_is_ending", "_is_over", "_steps", "_timer", "_waits_for")

    def __init__(self, timer: HookTimer, steps: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._timer, self._steps, self._waits_for = timer, steps, waits_for
        self._is_ending = False
        """Its time is over, and it was told."""
        self._is_over = False
        """That is why it ends: nobody else wanted it to."""

    def __await__(self) -> Generator[Any, Any, Any]:
        waits_for = self._waits_for
        self._timer.begin()
        try:
            while True:
                try:
                    sent = yield waits_for
                except BaseException as thrown:  # noqa: BLE001 - it is passed on to the coroutine
                    waits_for = self._throw(thrown)
                else:
                    waits_for = self._steps.send(sent)
        except StopIteration as done:
            if self._is_over:
                raise HookTimeout(self._timer.seconds) from None
            return done.value
        except Exception as error:
            if self._is_over and not isinstance(error, HookTimeout):
                raise HookTimeout(self._timer.seconds) from error
            raise
        except asyncio.CancelledError:
            if self._is_over:
                raise HookTimeout(self._timer.seconds) from None
            raise
        finally:
            self._timer.end()

    def _throw(self, thrown: BaseException) -> Any:
        """Pass on what the coroutine is to see. When its time is over that is a cancellation; if it goes on after that, it
        is dropped at the second, also if its caller has gone: what the call holds is to be given back."""
        if isinstance(thrown, asyncio.CancelledError) and self._timer.has_fired():
            self._is_over = self._timer.take_back()
            if self._is_ending:
                with suppress(Exception):  # it may ignore this as well
                    self._steps.close()
                raise thrown
            self._is_ending = True
            self._timer.give_grace()
        return self._steps.throw(thrown)


def begun(hook: str, stage: str, given: Any, timer: "HookTimer | float", since: float) -> Any:
    """Gives the value of a hook that was called at `since`; if it takes time, an `Awaited`, which raises HookTimeout at its
    limit. It is no coroutine itself, because most hooks are done by now."""
    if given is not None:
        steps: Coroutine[Any, Any, Any] | None = None
        if type(given) is CoroutineType:
            steps = given
        elif isawaitable(given):
            steps = _awaited(given)
        if steps is not None:
            try:
                waits_for = steps.send(None)
            except StopIteration as done:
                given = done.value
            else:
                return Awaited(timer if isinstance(timer, HookTimer) else HookTimer(timer, since), steps, waits_for)
    seconds = perf_counter() - since
    if seconds > BLOCKED_SECONDS:
        logger.warning(
            "hook %s blocked the event loop for %.1f s at %s, and every call with it: make it async, or move its work to a "
            "thread (asyncio.to_thread)", hook, seconds, stage,
        )  # fmt: skip
    return given


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def limit_of(hook: Any, stage: str, seconds: float) -> float:
    """The limit of a hook at a stage: what its `timeout` says, a number or a mapping by stage, else the setting."""
    said = getattr(hook, "timeout", None)
    if isinstance(said, Mapping):
        said = said.get(stage)
    return seconds if said is None else float(said)


def check_limits(hook: Any, stages: tuple[str, ...]) -> None:
    """Refuse a `timeout` that says nothing."""
    said = getattr(hook, "timeout", None)
    given = said if isinstance(said, Mapping) else {} if said is None else {stages[0]: said}
    for stage, seconds in given.items():
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if stage not in stages or not number or not 0 < seconds <= 86_400:
            raise TypeError(
                f"{type(hook).__name__}.timeout must be seconds above 0 and up to 86400, or a mapping of stages to such "
                f"numbers, not {said!r:.80}"
            )

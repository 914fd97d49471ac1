"""An App for tests: in memory, apart from the settings, the data and the trust of whoever runs them."""

import asyncio
import os
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from toolgate.app.app import App
from toolgate.model import Outcome
from toolgate.settings import Settings, load_settings
from toolgate.testing.calls import RecordedCalls
from toolgate.testing.clock import ManualClock

T = TypeVar("T")


def memory_app(*, clock: ManualClock | None = None, **overrides: Any) -> App:
    """A whole App, with nothing outside this process: no file, no environment, no folder of tools."""
    settings = isolated_settings(overrides)
    return App(settings, time_source=clock) if clock is not None else App(settings)


def isolated_settings(overrides: Mapping[str, Any]) -> Settings:
    values = {"database_url": "memory://", "auto_load_custom_tools": False, "entry_points": False, **overrides}
    return load_settings(os.devnull, values, {})


class FixtureApp(App):
    """The App of the fixture `toolgate_app`. It may be opened again while it is open, and is closed when whoever opened it
    first is done: the plugin opens it around an async test, and a fixture of the test's may have done so before."""

    calls: RecordedCalls
    _times_opened = 0
    _runner: asyncio.Runner | None = None

    def record(self, calls: RecordedCalls) -> None:
        """Note every call there."""
        self.calls = calls
        self.add_hook(calls.recorder())

    async def __aenter__(self) -> Self:
        if not self._times_opened:
            await super().__aenter__()
        self._times_opened += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._times_opened -= 1
        if not self._times_opened:
            await super().__aexit__(kind, error, trace)

    # -- for tests that are not async

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await something in a loop of this App's own, in which it is open until the test ends."""
        if self._runner is None:
            self._runner = asyncio.Runner()
            self._runner.run(self.__aenter__())
        return self._runner.run(work)

    def call(self, name: Any, arguments: Mapping[str, Any] | None = None, **options: Any) -> Outcome:
        """`invoke`, for a test that is not async."""

        async def invoke() -> Outcome:
            return await self.invoke(name, arguments, **options)

        return self.run(invoke())

    def close(self) -> None:
        """Close what `run` opened."""
        if self._runner is not None:
            with self._runner:
                self._runner.run(self.__aexit__(None, None, None))

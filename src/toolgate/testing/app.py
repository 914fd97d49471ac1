"""An App for tests: in memory, apart from the settings, the data and the trust of whoever runs them.

With it come a clock that moves only when told to, an approver whose answers are given beforehand, and the calls on record.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import msgspec

from toolgate.app.app import App
from toolgate.errors import shortened
from toolgate.gates.approval.request import Answer, ApprovalRequest
from toolgate.model import MAX_REPR_CHARS, Actor, Outcome
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.hooks import Hook
from toolgate.registry.decorator import declared
from toolgate.settings import Settings, load_settings

T = TypeVar("T")


class ManualClock:
    """Stands in for the module `time` where an App goes by the time: caches, breakers, rate limits, budgets, approvals,
    grants and idempotency keys. It begins at the moment it is made. The audit log keeps the time of the machine."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._start = self._now = now
        self._began = datetime.now(UTC)

    def monotonic(self) -> float:
        return self._now

    def now(self) -> datetime:
        """The date and time that it shows, in UTC."""
        return self._began + timedelta(seconds=self._now - self._start)

    def time(self) -> float:
        return self.now().timestamp()

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Move it on."""
        self._now += timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()


class ScriptedApprover:
    """An approver whose answers are given beforehand, each for one question. Without one, nobody answers: the call is
    pending, as where no person is there."""

    def __init__(self) -> None:
        self.questions: list[ApprovalRequest] = []
        """The questions that were asked, in order."""
        self._answers: deque[Answer] = deque()
        self._always: Answer | None = None

    def approve(self, times: int | None = 1, *, reason: str | None = None) -> None:
        """Approve the next question, the next few, or all from now on (`times=None`)."""
        self._say(Answer("approve", reason), times)

    def reject(self, times: int | None = 1, *, reason: str | None = None) -> None:
        """Reject the next question, the next few, or all from now on (`times=None`)."""
        self._say(Answer("reject", reason), times)

    def edit(self, arguments: dict[str, Any], *, reason: str | None = None) -> None:
        """Approve the next question with these arguments in place of those that are asked about."""
        self._say(Answer("edit", reason, arguments), 1)

    @property
    def asked(self) -> int:
        """The number of questions."""
        return len(self.questions)

    def _say(self, answer: Answer, times: int | None) -> None:
        if times is None:
            self._always = answer
        else:
            self._answers.extend([answer] * times)

    def __call__(self, request: ApprovalRequest) -> Answer | None:
        self.questions.append(request)
        return self._answers.popleft() if self._answers else self._always


class RecordedCall(msgspec.Struct, frozen=True):
    """One call."""

    tool: str
    arguments: dict[str, Any]
    """As the tool got them, with its defaults; as they came, if it was not reached."""
    outcome: Outcome
    actor: Actor
    parent: str | None = None
    """The id of the call from inside which it was made."""

    def __str__(self) -> str:
        given = ", ".join(f"{name}={shortened(repr(value), MAX_REPR_CHARS)}" for name, value in self.arguments.items())
        return f"{self.tool}({given}) -> {self.outcome!r}"


class RecordedCalls(Sequence[RecordedCall]):
    """The calls of an App in the order in which they ended, those that tools make of each other among them."""

    def __init__(self) -> None:
        self._calls: list[RecordedCall] = []

    @overload
    def __getitem__(self, index: int) -> RecordedCall: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RecordedCall]: ...
    def __getitem__(self, index: int | slice) -> RecordedCall | Sequence[RecordedCall]:
        return self._calls[index]

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[RecordedCall]:
        return iter(self._calls)

    def __repr__(self) -> str:
        return f"[{', '.join(map(str, self._calls))}]"

    def of(self, tool: str | Callable[..., Any]) -> list[RecordedCall]:
        """Those of one tool, by its name or its function."""
        found = None if isinstance(tool, str) else declared(tool)
        name = tool if found is None else found.fields["name"]
        return [call for call in self._calls if call.tool == name]

    def clear(self) -> None:
        """Forget those so far."""
        self._calls.clear()

    def recorder(self) -> Hook:
        """The hook that fills this: `app.add_hook(calls.recorder())`."""
        calls = self._calls

        class Recorder(Hook):
            priority = -1_000_000_000

            async def will_finalize_invoke(self, ctx: InvokeContext) -> None:
                if ctx.outcome is None:
                    return
                given = ctx.arguments if isinstance(ctx.arguments, dict) else {}
                calls.append(RecordedCall(str(ctx.call.tool), dict(given), ctx.outcome, ctx.call.actor, ctx.call.parent))

        return Recorder()


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

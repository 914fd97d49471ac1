"""Calls on record in a test: what was called, with which arguments, and how it ended."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import msgspec

from toolgate.errors import shortened
from toolgate.model import MAX_REPR_CHARS, Actor, Outcome
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.hooks import Hook
from toolgate.registry.declare import declared


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

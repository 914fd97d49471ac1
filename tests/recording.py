"""A hook that writes down every stage it sees."""

from typing import Any

from toolgate import Hook, InvokeContext
from toolgate.pipeline.hooks import STAGES, Next


class Recorder(Hook):
    """Records stages in order; around_execute as an opening and a closing mark."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def around_execute(self, _ctx: InvokeContext, inner: Next) -> Any:
        self.seen.append("around_execute(")
        try:
            return await inner()
        finally:
            self.seen.append(")")


def _recording(stage: str) -> Any:
    def record(self: Recorder, _ctx: InvokeContext) -> None:
        self.seen.append(stage)

    return record


for _stage in STAGES:
    if _stage != "around_execute":
        setattr(Recorder, _stage, _recording(_stage))

"""Tells whether a call would be let through as far as the question to a person: tool, policy, flags, arguments, screening.

For calls that are to be made later. Unlike `explain` it is for callers: it says what the line would say to them, and in the
line's own steps. No hook runs, and nothing is asked, counted, reserved or recorded.
"""

from time import perf_counter, time_ns
from typing import Any

import msgspec
import orjson

from toolgate.model import Call, Entry
from toolgate.pipeline.context import InvokeContext, runs_nothing
from toolgate.pipeline.hooks import Stages
from toolgate.pipeline.invoke import Pipeline


class Rehearsal(msgspec.Struct, frozen=True):
    """A call that would be let through."""

    entry: Entry
    arguments: dict[str, Any]
    """In the form that is hashed."""
    shown: dict[str, Any]
    """As records may hold them: secrets masked."""


async def rehearse(pipeline: Pipeline, call: Call) -> Rehearsal:
    """Asks the gates up to the arguments. Raises the CallError with which one of them would end the call."""
    ctx = InvokeContext(call, pipeline.providers, runs_nothing, time_ns(), perf_counter(), call.arguments, None)
    if pipeline.notices.changed():
        await pipeline.notices.catch_up(pipeline.refresh)
    entry = ctx.entry = pipeline.catalog.find(call.tool, call.actor.tenant) or await pipeline.refuse_missing(ctx, call)
    nobody = Stages()
    await pipeline._permit(ctx, call, entry, nobody)
    entry = await pipeline._validate(ctx, entry, nobody)
    await pipeline._mask(ctx, entry)
    return Rehearsal(entry, orjson.loads(ctx.canonical), orjson.loads(ctx.recorded or ctx.canonical))

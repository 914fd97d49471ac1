"""What spans several gates: a tool that is missing or hidden, arguments that will run, a call that a person has answered."""

from typing import NoReturn

import orjson

from toolgate.errors import CallError, not_found
from toolgate.model import Call, Entry
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.rooms import Rooms


async def take_arguments(rooms: Rooms, ctx: InvokeContext, call: Call) -> CallError | None:
    """Has the arguments that an approval is about, if the call has one and none of its own. Gives why there are none: only
    who may know of the tool is told."""
    if call.approval is not None and call.arguments is None:
        try:
            ctx.input = await rooms.consent.arguments_of(call)
        except CallError as error:
            return error
    return None


async def refuse_missing(rooms: Rooms, ctx: InvokeContext, call: Call) -> NoReturn:
    """Refuses a tool that does not exist, after all that is done for one that is hidden before it is refused: neither the
    answer nor the time that it takes tells them apart. What is recorded is the ledger's to see to."""
    if isinstance(call.tool, str):  # nothing is called otherwise
        await take_arguments(rooms, ctx, call)
        await rooms.policy.refusal(ctx, (await rooms.policy.decide(ctx, None)).reason)
    raise rooms.catalog.missing(call.tool)


async def check_arguments(rooms: Rooms, ctx: InvokeContext, entry: Entry) -> None:
    """Asks policy and tier about the very arguments that will run, whatever hooks made of those that came in."""
    if rooms.policy.guard.reads_arguments:
        await rooms.policy.enter_again(ctx, entry)
    await _screen(rooms, ctx, entry)


async def _screen(rooms: Rooms, ctx: InvokeContext, entry: Entry) -> None:
    screening = None if entry.guards is None else rooms.screening.enter(ctx, entry)
    if screening is not None:
        await screening


async def ask(rooms: Rooms, ctx: InvokeContext, call: Call, entry: Entry, *, costs: bool) -> str:
    """Has a person's approval, or raises what ends the call here. Gives who agreed, and how."""
    if call.covered and not entry.destructive:
        return f"agreed to with call {call.parent}"
    rooms.secrets.check_present(entry, ctx.canonical, ctx.arguments, call.actor)
    await _mask(rooms, ctx, entry)
    agreement = await rooms.consent.enter(ctx, entry)
    await _check_again(rooms, ctx, call, entry)
    if agreement.edited is not None:
        await _take_edited(rooms, ctx, entry, agreement.edited)
        if costs:
            rooms.budgets.estimate(ctx, entry)
    return agreement.words


async def _check_again(rooms: Rooms, ctx: InvokeContext, call: Call, entry: Entry) -> None:
    """Whether the call may still be made, now that a person has answered: that can take long, and rules change."""
    if rooms.notices.changed():
        await rooms.notices.catch_up(rooms.refresh)
    await rooms.policy.enter(ctx, entry)
    off = rooms.catalog.why_off(entry, call.actor.tenant)
    if off is not None:
        raise not_found(call.tool, off)
    rooms.consent.must_be_unchanged(entry, rooms.catalog.resolve(entry.name, call.actor.tenant))
    await _screen(rooms, ctx, entry)  # what a path leads to may have changed as well


async def _take_edited(rooms: Rooms, ctx: InvokeContext, entry: Entry, edited: bytes) -> None:
    """What a person edits is checked like what a caller sends."""
    ctx.arguments, ctx.sealed = orjson.loads(edited), False
    rooms.inputs.accept(ctx, entry)
    await check_arguments(rooms, ctx, entry)
    rooms.secrets.check_present(entry, ctx.canonical, ctx.arguments, ctx.call.actor)
    await _mask(rooms, ctx, entry)


async def _mask(rooms: Rooms, ctx: InvokeContext, entry: Entry) -> None:
    masking = rooms.redaction.mask_arguments(ctx, entry)
    if masking is not None:
        await masking

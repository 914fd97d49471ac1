"""`toolgate schedules`: calls of tools at the times of a cron line."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from toolgate.cli.arguments import merge, read_words, schema_of
from toolgate.cli.completion import ArgumentsJson, ArgumentWords, ToolName
from toolgate.cli.context import (
    ActorOptions,
    CallerOptions,
    CommandGroup,
    Session,
    Usage,
    argument,
    check_workspace,
    opened,
    option,
    text_option,
)
from toolgate.cli.output import Part, answer, answered, as_json, clean, note, pretty, say
from toolgate.cli.table import listing, state
from toolgate.cli.times import shown, until_when
from toolgate.jobs.schedules import Schedule
from toolgate.store.database import now

RUN_BY = "`toolgate worker` or `toolgate serve`"

group = CommandGroup(help="Calls of tools at the times of a cron line.", no_args_is_help=True)
ScheduleName = Annotated[str, argument("ID", "The id of a schedule, or its name.")]


@dataclass(frozen=True, slots=True)
class ScheduleOwnerOptions(ActorOptions):
    """The actor whose schedules a command is about, or everybody of a tenant."""

    everybody: Annotated[bool, option("--all", "Those of all users of the tenant.")] = False

    @property
    def named(self) -> dict[str, Any]:
        """The options as the methods of `app.schedules` take them."""
        return {"actor": self.actor, "all_users": self.everybody}


@group.command("list")
async def list_schedules(ctx: typer.Context, whose: ScheduleOwnerOptions) -> int:
    """List the schedules of a user in the role of --persona, or in none."""
    if whose.everybody and (whose.user is not None or whose.persona is not None):
        raise Usage("--all is for everybody: it goes with neither --user nor --persona.")
    actor = whose.actor
    async with opened(ctx) as app:
        found = await app.schedules.list(**whose.named)
    role = "" if actor.persona is None else f" as {actor.persona}"
    whom = f"Tenant {actor.tenant}" if whose.everybody else f"User {actor.user} of tenant {actor.tenant}{role}"
    return listing(
        {"schedules": [one.to_dict() for one in found]},
        ["name", "user", "state", "schedule", "zone", "does", "next", "runs", "missed", "id"],
        [_row(one) for one in found],
        none=f"{whom} has no schedules. `toolgate schedules add` adds one.",
    )


@group.command()
async def add(
    ctx: typer.Context,
    cron: Annotated[str, argument("CRON", "When: '30 8 * * MON-FRI', or @hourly, @daily, @weekly, @monthly, @yearly.")],
    tool: ToolName,
    whose: CallerOptions,
    words: ArgumentWords = None,
    args: ArgumentsJson = None,
    name: Annotated[str | None, text_option("--name NAME", "A name for the schedule; without it, one is made.")] = None,
    timezone: Annotated[
        str | None, text_option("--timezone ZONE", "The IANA name of the time zone; without it, the user's.")
    ] = None,
    max_runs: Annotated[int | None, option("--max-runs N", "How often it fires; then it ends.")] = None,
    until: Annotated[str | None, option("--until TIME", "The last moment at which it may fire: 2027-01-31, or 30d.")] = None,
    session: Session = None,
    workspace: Annotated[
        Path | None,
        option("--workspace DIR", "The folder that the calls work in. Without it: that of the session, or this one."),
    ] = None,
) -> int:
    """Have a tool called at the times of a cron line. Every call passes all gates as a call of that user.

    \b
      toolgate schedules add "30 8 * * MON-FRI" notify_user message="Stand-up" --timezone Africa/Kigali
    """
    actor = whose.actor
    check_workspace(workspace)
    last = None if until is None else until_when(until, now())
    given, whole = read_words(words or (), args)
    async with opened(ctx) as app:
        arguments = merge(whole or {}, given, schema_of(app, tool, actor))
        added = await app.schedules.add(
            cron, tool, arguments, name=name, timezone=timezone, max_runs=max_runs, until=last, actor=actor,
            session=session, workspace=workspace, door="cli",
        )  # fmt: skip
    answer(added.to_dict(), ("✓ Added", "green"), f" {added.name}; it fires next at {_time(added.next_at)}")
    if not as_json():
        note((f"It fires while {RUN_BY} runs.", "dim"))
    return 0


@group.command()
async def show(ctx: typer.Context, schedule: ScheduleName, whose: ScheduleOwnerOptions) -> int:
    """Show a schedule: its times, what it does, and what came of it."""
    async with opened(ctx) as app:
        found = await app.schedules.get(schedule, **whose.named)
    if not answered(found.to_dict()):
        _show(found)
    return 0


@group.command()
async def pause(ctx: typer.Context, schedule: ScheduleName, whose: ScheduleOwnerOptions) -> int:
    """Have a schedule fire no more until it is resumed."""
    async with opened(ctx) as app:
        paused = await app.schedules.pause(schedule, **whose.named)
    return answer(paused.to_dict(), ("✓ Paused", "green"), f" {paused.name}")


@group.command()
async def resume(ctx: typer.Context, schedule: ScheduleName, whose: ScheduleOwnerOptions) -> int:
    """Have a schedule that is paused fire again, from its next time on."""
    async with opened(ctx) as app:
        resumed = await app.schedules.resume(schedule, **whose.named)
    return answer(resumed.to_dict(), ("✓ Resumed", "green"), f" {resumed.name}; it fires next at {_time(resumed.next_at)}")


@group.command()
async def remove(ctx: typer.Context, schedule: ScheduleName, whose: ScheduleOwnerOptions) -> int:
    """Remove a schedule, and cancel its job if one is not over."""
    async with opened(ctx) as app:
        removed = await app.schedules.remove(schedule, **whose.named)
    return answer(removed.to_dict(), ("✓ Removed", "green"), f" {removed.name}")


@group.command()
async def run(ctx: typer.Context, schedule: ScheduleName, whose: ScheduleOwnerOptions) -> int:
    """Queue the job of a schedule now, besides its times. A worker runs it."""
    async with opened(ctx) as app:
        job = await app.schedules.run_now(schedule, **whose.named)
    answer(job.to_dict(), ("✓ Queued", "green"), f" as job {job.id}")
    if not as_json():
        note((f"{RUN_BY} runs it. To see what comes of it: toolgate jobs show {job.id} --follow", "dim"))
    return 0


def _row(one: Schedule) -> list[Part]:
    missed: Part = (str(one.missed), "yellow" if one.missed else "")
    what = str(one.payload.get("tool", one.type))
    when = [one.cron, one.timezone, what, _time(one.next_at)]
    return [one.name, one.user, state(one.state), *when, str(one.runs), missed, one.id]


def _show(one: Schedule) -> None:
    late = one.last_at is not None and one.last_due is not None and (one.last_at - one.last_due).total_seconds() > 60
    lines: dict[str, Any] = {
        "schedule": f"{one.name} ({one.id})",
        "for": f"user {one.user} of tenant {one.tenant}" + (f" as {one.persona}" if one.persona else ""),
        "state": one.state + (f": {one.reason}" if one.reason else ""),
        "times": f"{one.cron} in {one.timezone}",
        "next": _time(one.next_at),
        "last": _time(one.last_at) + (f", late: it was due at {_time(one.last_due)}" if late else ""),
        "last job": one.last_job or "",
        "runs": f"{one.runs}" + (f" of {one.max_runs}" if one.max_runs is not None else ""),
        "until": _time(one.until),
        "missed": str(one.missed),
        "failures": f"{one.failures} in a row",
        "does": str(one.payload.get("tool", one.type)),
    }
    for name, words in lines.items():
        if words:
            say((f"{name:<9}", "dim"), f" {clean(words)}")
    for line in pretty(one.payload.get("arguments", one.payload)).split("\n"):
        say(f"          {clean(line)}")


def _time(moment: datetime | None) -> str:
    return "" if moment is None else shown(moment)

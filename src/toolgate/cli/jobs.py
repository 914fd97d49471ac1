"""`toolgate jobs`: work in the background, what became of it, and how it is tried again or ended."""

from contextlib import AsyncExitStack, aclosing
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import typer

from toolgate.app.app import App
from toolgate.app.jobs import JOBS_PAGE
from toolgate.cli.completion import job_ids
from toolgate.cli.context import (
    ActorOptions,
    CommandGroup,
    NotFound,
    OnlyTenant,
    Usage,
    actor_of,
    argument,
    naming,
    opened,
    option,
    text_option,
)
from toolgate.cli.job_progress import JobProgressBar
from toolgate.cli.output import Part, answer, answered, as_json, clean, note, pretty, say
from toolgate.cli.prompt import agrees, at_a_terminal
from toolgate.cli.table import listing
from toolgate.cli.table import state as state_cell
from toolgate.cli.times import shown
from toolgate.gates.approval.request import visible
from toolgate.jobs.job import STATES, Job
from toolgate.model import EVERY, LOCAL, Actor
from toolgate.store.database import now

SHORT = 60
"""Characters of an error or a progress message that a list shows."""
MAX_SHOWN_CHARS = 20_000
"""Characters of a payload or a result that `show` prints; `--json` has all."""
PARKED = "Nobody knows whether it had its effect: run again, it may have it a second time."

group = CommandGroup(help="Work in the background.", no_args_is_help=True)

JobId = Annotated[str, argument("ID", "The id of a job, or how it alone begins.", autocompletion=job_ids)]
OnlyUser = Annotated[str | None, text_option("--user U", "Only if it is of this user.")]


@group.command("list")
async def list_jobs(
    ctx: typer.Context,
    whose: ActorOptions,
    state: Annotated[
        Literal["queued", "running", "waiting", "done", "failed", "cancelled", "parked"] | None,
        option("--state STATE", f"Only in this state: {', '.join(STATES)}."),
    ] = None,
    type: Annotated[str | None, text_option("--type TYPE", "Only of this type: execute_tool, say.")] = None,  # noqa: A002
    everybody: Annotated[bool, option("--all-users", "Those of all users of the tenant, in all roles.")] = False,
    limit: Annotated[int, option("--limit N", "List at most so many.", min=1, max=10_000)] = JOBS_PAGE,
) -> int:
    """List the latest jobs of a user, latest first.

    They are those in the role of --persona, or in none. --tenant '*' lists those of all tenants.
    """
    if everybody and whose.user is not None:
        raise Usage("--all-users is for everybody: it does not go with --user.")
    is_all = whose.tenant == EVERY
    if is_all and (whose.user is not None or everybody):
        raise Usage(f"--tenant '{EVERY}' lists those of all users: it goes with neither --user nor --all-users.")
    actor = actor_of(None if is_all else whose.tenant, whose.persona, whose.user)
    async with opened(ctx) as app:
        found = await app.jobs.list(
            state=state, type=type, persona=whose.persona, actor=actor, all_users=everybody, all_tenants=is_all,
            limit=limit + 1,
        )  # fmt: skip
    found, more = found[:limit], len(found) > limit
    listing(
        {"jobs": [job.to_dict() for job in found], "more": more},
        ["id", "state", "type", "for", "queued", "progress", "about"],
        [_row(job) for job in found],
        none=_none(actor, state, type, everybody, is_all),
    )
    if as_json():
        return 0
    if found:
        note(("toolgate jobs show|retry|cancel ID", "dim"))
    if more:
        note((f"There are more: add --limit {min(limit * 10, 10_000)}", "yellow"))
    return 0


def _none(actor: Actor, state: str | None, type: str | None, everybody: bool, is_all: bool) -> str:  # noqa: A002
    """An empty list, as a sentence that says what would fill it."""
    role = "" if actor.persona is None else f" as {actor.persona}"
    whose = f"Tenant {actor.tenant}" if everybody else f"User {actor.user} of tenant {actor.tenant}{role}"
    kind = ("jobs" if state is None else f"{state} jobs") + (f" of type {clean(type)}" if type is not None else "")
    hint = "" if everybody or is_all else " --all-users lists those of all users and roles."
    if state is None and type is None:
        hint = f" `toolgate call NAME KEY=VALUE … --async` queues one.{hint}"
    return f"There are no {kind}.{hint}" if is_all else f"{whose} has no {kind}.{hint}"


@group.command("show")
async def show_job(
    ctx: typer.Context,
    job_id: JobId,
    tenant: OnlyTenant = None,
    user: OnlyUser = None,
    follow: Annotated[bool, option("--follow", "Wait until it is over; at a terminal, with a bar of its progress.")] = False,
) -> int:
    """Show one job. That is what is to be done, how far it has got, and what came of it."""
    async with opened(ctx) as app:
        job, actor = await _find(app, job_id, tenant, user)
        if follow and not job.is_over:
            job = await _followed(app, job, actor)
    if not answered(job.to_dict()):
        _show(job)
    return 0 if not follow or job.state == "done" else 1


async def _followed(app: App, job: Job, actor: Actor) -> Job:
    """A job once it is over. Ctrl-C ends the looking, and not the job."""
    if not as_json():
        due = f", due at {shown(job.run_at, seconds=True)}" if job.state == "queued" and job.run_at > now() else ""
        by = " `toolgate worker` or `toolgate serve` runs it." if job.state == "queued" else ""
        note((f"The job is {job.state}{due}.{by} Ctrl-C ends this command, and not the job.", "dim"))
    async with AsyncExitStack() as stack:
        changes = await stack.enter_async_context(aclosing(app.jobs.follow(job.id, actor=actor, all_users=True)))
        bar = stack.enter_context(JobProgressBar(job, quiet=as_json()))
        async for job in changes:
            bar.show(job)
    return job


@group.command()
async def retry(
    ctx: typer.Context,
    job_id: JobId,
    yes: Annotated[bool, option("--yes", "Have a parked job run again, though its effect may have happened.")] = False,
    tenant: OnlyTenant = None,
    user: OnlyUser = None,
) -> int:
    """Have a job tried again that failed, was cancelled or is parked."""
    async with opened(ctx) as app:
        job, actor = await _find(app, job_id, tenant, user)
        if job.state == "parked" and not yes and not await _may_run_again(job):
            note(("Nothing was changed.", "yellow"))
            return 1
        job = await app.jobs.retry(job.id, actor=actor, all_users=True)
    return answer(job.to_dict(), ("✓ Queued again", "green"), f" {job.type} ({job.id})")


async def _may_run_again(job: Job) -> bool:
    """Asks the person at the terminal, who is told what it means. Where there is none, that is a matter for --yes."""
    if as_json() or not at_a_terminal():
        raise Usage(f"Job {job.id} is parked. {PARKED}", suggestion="If it may run again, add --yes.")
    note((f"Job {job.id} ({_about(job) or job.type}) is parked. {PARKED}", "yellow"))
    return await agrees("Run it again?")


@group.command()
async def cancel(ctx: typer.Context, job_id: JobId, tenant: OnlyTenant = None, user: OnlyUser = None) -> int:
    """End a job. One that waits ends at once, one that runs as soon as its worker hears of it; what it did stays done."""
    async with opened(ctx) as app:
        job, actor = await _find(app, job_id, tenant, user)
        job = await app.jobs.cancel(job.id, actor=actor, all_users=True)
    mark = "✓ Cancelled" if job.state == "cancelled" else "✓ Told its worker to end"
    return answer(job.to_dict(), (mark, "green"), f" {job.type} ({job.id})")


# -- which one


async def _find(app: App, beginning: str, tenant: str | None, user: str | None) -> tuple[Job, Actor]:
    """The job whose id begins so, of a tenant and a user or of any, and the operator as an actor of its tenant. One of
    another tenant or user looks as if there were none."""
    tenant = None if tenant == EVERY else tenant
    found: list[tuple[str, str]] = []
    if beginning and len(beginning) <= SHORT and beginning.isascii() and beginning.isprintable():
        found = await app.jobs.ids(tenant, beginning)
    exact = [one for one in found if one[0] == beginning]
    of = "" if tenant is None else f" of tenant {tenant}"
    everywhere = f"{naming(Actor(tenant))} --all-users" if tenant is not None else f" --tenant '{EVERY}'"
    see = f"`toolgate jobs list{everywhere}` shows them."
    if len(exact or found) > 1:
        raise NotFound(f"More than one id of a job{of} begins with {beginning!r}.", suggestion=see)
    for id, owner in exact or found:
        actor = Actor(owner, user=LOCAL.user)
        job = await app.jobs.get(id, actor=actor, all_users=True)
        if user is None or job.user == user:
            return job, actor
    whose = of if user is None else f" of user {user}{of}"
    raise NotFound(f"There is no job with the id {clean(beginning)[:64]!r}{whose}.", suggestion=see)


# -- how it looks


def _row(job: Job) -> list[Part]:
    return [job.id, state_cell(job.state), job.type, _who(job), shown(job.created_at), _progress(job), _about(job)]


def _who(job: Job) -> str:
    return "/".join(part for part in (job.tenant, job.persona, job.user) if part)


def _about(job: Job) -> str:
    """A few words on a job: the tool that it calls, when it is due, and why it failed."""
    tool = job.payload.get("tool")
    words = [tool] if isinstance(tool, str) else []
    if job.state == "queued" and job.run_at > now():
        words.append(f"due at {shown(job.run_at)}")
    if job.error is not None and job.state != "done":
        words.append(f"{job.error.code}: {job.error.message}")
    text = visible(" · ".join(words))
    return text if len(text) <= SHORT else f"{text[:SHORT]}…"


def _progress(job: Job) -> str:
    progress = job.progress
    if progress is None:
        return ""
    done = f"{progress.done:g}"
    if progress.total is not None and progress.total > 0:
        done = f"{min(max(progress.done / progress.total, 0.0), 1.0):.0%}"
    text = visible(f"{done} {progress.message or ''}".strip())
    return text if len(text) <= SHORT else f"{text[:SHORT]}…"


def _show(job: Job) -> None:
    say((job.type, "bold"), f" ({job.id})")
    say("  State     ", state_cell(job.state))
    for label, text in _facts(job):
        say(f"  {label:<10}{text}", hang=12)
    _show_value("Payload", {name: value for name, value in job.payload.items() if value is not None})
    if job.error is not None:
        say("  Error     ", (f"{job.error.code}: {visible(job.error.message)}", "red"), hang=12)
        if job.error.suggestion:
            say(" " * 12, visible(job.error.suggestion), hang=12)
    if job.result is not None:
        _show_value("Result", job.result)
    if job.state == "parked":
        note((PARKED, "yellow"))
        note((f"toolgate jobs retry {job.id} runs it again; toolgate jobs cancel {job.id} lets it be.", "dim"))
    if job.approval is not None and job.state == "waiting":
        note((f"To answer: toolgate approvals show|approve|reject {job.approval}", "dim"))


def _facts(job: Job) -> list[tuple[str, str]]:
    """The facts of a job, in lines of a label and a text."""

    def at(moment: datetime | None) -> str:
        return "" if moment is None else shown(moment, seconds=True)

    facts = [
        ("For", _who(job)),
        ("Key", job.key or ""),
        ("Priority", str(job.priority) if job.priority else ""),
        ("Queued", at(job.created_at)),
        ("Due", at(job.run_at) if job.state == "queued" and job.run_at > job.created_at else ""),
        ("Started", at(job.started_at)),
        ("Ended", at(job.ended_at)),
        ("Failures", f"{job.attempts} of {job.max_attempts} attempts" if job.attempts else ""),
        ("Crashes", f"{job.crashes} of workers that ran it" if job.crashes else ""),
        ("Approval", job.approval or ""),
        ("Schedule", job.schedule or ""),
        ("Progress", "" if job.state == "done" else _progress(job)),
    ]
    return [(label, text) for label, text in facts if text]


def _show_value(label: str, value: Any) -> None:
    text = pretty(msgspec.to_builtins(value))
    say(f"  {label}")
    for line in text[:MAX_SHOWN_CHARS].split("\n"):
        say(f"  │ {visible(line)}")
    if len(text) > MAX_SHOWN_CHARS:
        note((f"{label}: {len(text):,} characters in all; --json prints them.", "yellow"))

"""`toolgate workflows`: workflows that were started and report their end."""

from datetime import datetime
from typing import Annotated

import typer

from toolgate.cli.context import (
    CommandGroup,
    NotFound,
    Tenant,
    Usage,
    User,
    actor_of,
    argument,
    naming,
    opened,
    option,
    text_option,
)
from toolgate.cli.output import Part, answered, clean, pretty, say
from toolgate.cli.table import STATE_STYLES, listing
from toolgate.cli.times import shown
from toolgate.workflow.invocations import Invocation

group = CommandGroup(help="Workflows that were started and report their end.", no_args_is_help=True)
STATES = ("running", "success", "failure", "timeout", "not_started")


@group.command("list")
async def list_invocations(
    ctx: typer.Context,
    tenant: Tenant = None,
    user: User = None,
    state: Annotated[str | None, text_option("--state S", f"Only those in this state: {', '.join(STATES)}.")] = None,
    everybody: Annotated[bool, option("--all", "Those of all users of the tenant.")] = False,
) -> int:
    """List workflows that report their end."""
    if everybody and user is not None:
        raise Usage("--all is for everybody: it does not go with --user.")
    if state is not None and state not in STATES:
        raise Usage(f"There is no state {clean(state[:40])!r}: use {', '.join(STATES)}.")
    whose = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        found = await app.workflows.list(actor=whose, all_users=everybody, state=state)
    whom = f"Tenant {whose.tenant}" if everybody else f"User {whose.user} of tenant {whose.tenant}"
    return listing(
        {"invocations": [one._asdict() for one in found]},
        ["id", "workflow", "state", "for", "started", "ended", "execution"],
        [_row(one) for one in found],
        none=f"{whom} has started no workflow that reports its end.",
    )


@group.command()
async def show(
    ctx: typer.Context,
    invocation_id: Annotated[str, argument("ID", "The id of an invocation.")],
    tenant: Tenant = None,
    user: User = None,
) -> int:
    """Show a workflow and what it reported."""
    whose = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        found = await app.workflows.get(invocation_id, actor=whose)
    if found is None:
        raise NotFound(
            f"User {whose.user} has no invocation {clean(invocation_id[:80])!r}.",
            suggestion=f"`toolgate workflows list{naming(whose, user=True)}` shows them.",
        )
    if not answered(found._asdict()):
        say((found.workflow, "bold"), " ", (found.state, STATE_STYLES.get(found.state, "")))
        lines = {"started": found.created_at, "limit": found.deadline, "ended": found.ended_at}
        for name, at in lines.items():
            if at is not None:
                say((f"{name}: ", "dim"), shown(datetime.fromisoformat(at)))
        for name, value in (("call", found.call_id), ("n8n execution", found.execution_id)):
            if value is not None:
                say((f"{name}: ", "dim"), clean(value))
        if found.error is not None:
            say((f"{found.error.get('code')}: ", "red"), clean(str(found.error.get("message"))))
        if found.output is not None:
            say(pretty(found.output), lines=True)
    return 0


def _row(one: Invocation) -> list[Part]:
    state: Part = (one.state, STATE_STYLES.get(one.state, ""))
    ended = "" if one.ended_at is None else shown(datetime.fromisoformat(one.ended_at))
    began = shown(datetime.fromisoformat(one.created_at))
    return [one.id, clean(one.workflow), state, clean(one.user), began, ended, clean(one.execution_id or "")]

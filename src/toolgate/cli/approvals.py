"""`toolgate approvals`: what waits for a person's yes, and how it is given."""

import shlex
import sys
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, get_args

import msgspec
import typer

from toolgate.app.app import App
from toolgate.cli.approval_watch import WaitingCalls, WatchScreen, print_changes
from toolgate.cli.arguments import read_object
from toolgate.cli.call import EXIT, exit_code, show_outcome
from toolgate.cli.completion import approval_ids
from toolgate.cli.context import (
    CommandGroup,
    NotFound,
    Reason,
    Usage,
    User,
    actor_of,
    argument,
    diverted,
    naming,
    opened,
    option,
    sentence,
)
from toolgate.cli.editor import edited
from toolgate.cli.output import Part, answer, answered, as_json, clean, emit, note, pretty, say
from toolgate.cli.prompt import SESSION_SECONDS, agrees, at_a_terminal
from toolgate.cli.table import listing
from toolgate.cli.table import state as state_cell
from toolgate.cli.times import seconds_of, shown
from toolgate.gates.approval.questions import ANSWERS_PAGE
from toolgate.gates.approval.request import (
    MOST_USES,
    WHOLE,
    Answer,
    Approval,
    ApprovalError,
    ApprovalRequest,
    GrantTerms,
    State,
    visible,
)
from toolgate.gates.quota.money import parse_dollars
from toolgate.model import EVERY, LOCAL, MASK, Actor, Outcome

SHORT = 60
"""Characters of arguments that a list shows."""

group = CommandGroup(help="Calls that wait for a person's approval.", no_args_is_help=True)

Tenants = Annotated[str | None, option("--tenant T", f"The tenant; without it, default; '{EVERY}' for all.")]
Owner = Annotated[str | None, option("--tenant T", "Only if it is of this tenant.")]
ApprovalId = Annotated[str, argument("ID", "The id of an approval, or how it alone begins.", autocompletion=approval_ids)]
For = Annotated[str | None, option("--for TIME", "Make a grant too, that holds so long: 90s, 30m, 1h, 2d.")]
Cap = Annotated[str | None, option("--cap USD", "Dollars that may be spent under the grant.")]
Uses = Annotated[int | None, option("--uses N", "Calls that the grant covers, in all.", min=1, max=MOST_USES)]


@group.command("list")
async def list_approvals(
    ctx: typer.Context,
    tenant: Tenants = None,
    state: Annotated[
        Literal["waiting", "approved", "rejected", "used", "expired", "all"],
        option("--state STATE", f"Only in this state: {', '.join(get_args(State))}, all."),
    ] = "waiting",
    limit: Annotated[int, option("--limit N", "List at most so many.", min=1, max=10_000)] = ANSWERS_PAGE,
    after: Annotated[str | None, option("--after ID", "List those that came after this one.")] = None,
) -> int:
    """List what waits for an answer, oldest first."""
    whose = None if tenant == EVERY else actor_of(tenant, None, None).tenant
    async with opened(ctx) as app:
        start = None if after is None else (await whole_id(app, "approvals", whose, after))[0]
        found = await app.approvals.list(
            state=None if state == "all" else state,
            actor=Actor(whose) if whose is not None else None,
            limit=limit + 1,
            after=start,
            all_tenants=whose is None,
        )
        waiting = await app.approvals.counts() if tenant is None and state == "waiting" else {}
    found, rest = found[:limit], found[limit:]
    last = found[-1].request.id if rest else None
    listing(
        {"approvals": [to_dict(approval) for approval in found], "next": last},
        ["id", "state", "tool", "arguments", "caller", "asked by", "until"],
        [_row(approval) for approval in found],
        none=_none(state, whose),
    )
    if as_json():
        return 0
    if found and state == "waiting":
        note(("toolgate approvals show|approve|reject ID", "dim"))
    if last is not None:
        note((f"There are more: add --after {last}", "yellow"))
    _note_others(waiting)
    return 0


def _none(state: str, whose: str | None) -> str:
    """An empty list, as a sentence that says what would fill it."""
    of = "" if whose is None else f" of tenant {whose}"
    if state == "waiting":
        example = "`toolgate call NAME KEY=VALUE … < /dev/null`"
        return f"No call{of} waits for approval. One that needs it waits here if nobody is at its terminal: {example}."
    if state == "all":
        return f"No approval{of} has been requested. `toolgate explain NAME KEY=VALUE …` says which calls need one."
    return f"No approval{of} is {state}. `toolgate approvals list --state all` shows all."


def _note_others(waiting: dict[str, int]) -> None:
    """Notes how many calls wait of tenants that were not listed."""
    others = {name: count for name, count in waiting.items() if name != LOCAL.tenant}
    if others:
        named = ", ".join(f"{count} of {clean(name)}" for name, count in list(others.items())[:5])
        more = f", and of {len(others) - 5} tenants more" if len(others) > 5 else ""
        note((f"Of other tenants wait: {named}{more}. --tenant '{EVERY}' lists all.", "dim"))


@group.command("show")
async def show_approval(ctx: typer.Context, approval_id: ApprovalId, tenant: Owner = None) -> int:
    """Show one approval: what is asked, and what became of it."""
    whose = _owner(tenant)
    async with opened(ctx) as app:
        approval = await app.approvals.get(*await whole_id(app, "approvals", whose, approval_id))
    if answered(to_dict(approval)):
        return 0
    say(approval.request.text(most=WHOLE), lines=True)
    say("  State     ", state_cell(approval.state))
    if approval.agreed:
        say(f"  Agreed    {clean(', '.join(approval.agreed))}")
    if approval.answered_by:
        say(f"  Answered  by {approval.answered_by} through {approval.answered_through}{_at(approval.answered_at)}")
    if approval.answer_reason:
        say(f"  Reason    {approval.answer_reason}")
    if approval.edited is not None:
        say("  Edited to")
        for line in pretty(approval.edited).split("\n"):
            say(f"  │ {visible(line)}")
    if approval.used_by:
        say(f"  Used      by call {approval.used_by}{_at(approval.used_at)}")
    if approval.request.outer_call is not None and approval.state in ("waiting", "approved"):
        note((f"toolgate approvals approve {approval.request.id} --run: {_next_step(approval.request)}", "dim"))
    return 0


@group.command()
async def approve(
    ctx: typer.Context,
    approval_id: ApprovalId,
    edit: Annotated[str | None, option("--edit JSON|@FILE|-", "Approve these arguments instead.")] = None,
    in_editor: Annotated[
        bool, option("--editor", "Change the arguments in $VISUAL or $EDITOR, and approve what comes of it.")
    ] = False,
    reason: Reason = None,
    lasting: For = None,
    session_grant: Annotated[
        bool, option("--session-grant", "Allow the tool for the rest of the call's session too.")
    ] = False,
    cap: Cap = None,
    uses: Uses = None,
    same_arguments: Annotated[
        bool, option("--same-arguments", "Have the grant cover calls with the approved arguments alone.")
    ] = False,
    run: Annotated[bool, option("--run", "Run the call now, as the actor who asked, and show its outcome.")] = False,
    tenant: Owner = None,
    user: User = None,
) -> int:
    """Approve a call. Once, or with --for and --session-grant for a while."""
    if in_editor and (edit is not None or not at_a_terminal()):
        raise Usage("--editor needs a terminal, and no --edit beside it.")
    instead = None if edit is None else read_object(edit, "--edit")
    terms = _terms(lasting, session_grant, cap, uses, same_arguments=same_arguments)
    answer = Answer("approve" if instead is None else "edit", reason, instead, terms)
    whose, by = _owner(tenant), actor_of(None, None, user)
    outcome = None
    async with opened(ctx) as app:
        said = await _edited(app, approval_id, whose, answer) if in_editor else answer
        if said is None:
            note(("Nothing was approved.", "yellow"))
            return 1
        approval = await _give(app, approval_id, said, whose, by.user)
        if run and approval.state != "waiting":
            _must_hold_arguments(approval)
            with diverted():
                outcome = await app.approvals.resume(approval.request.id, actor=approval.request.actor)
    return _say_approved(approval, outcome)


def _terms(
    lasting: str | None, session_grant: bool, cap: str | None, uses: int | None, *, same_arguments: bool
) -> GrantTerms | None:
    """The grant that comes with a yes, if one does."""
    if session_grant or lasting is not None:
        seconds = SESSION_SECONDS if lasting is None else seconds_of(lasting)
        return GrantTerms("session" if session_grant else "user", seconds, cap_of(cap), uses, same_arguments)
    for name, given in (("--cap", cap is not None), ("--uses", uses is not None), ("--same-arguments", same_arguments)):
        if given:
            raise Usage(f"{name} is for grants: say --for or --session-grant too.")
    return None


def _say_approved(approval: Approval, outcome: Outcome | None) -> int:
    """Shows what came of a yes; gives the exit code."""
    if outcome is not None:
        if not answered(outcome.to_json()):
            show_outcome(outcome, approval.request.actor)
        return exit_code(outcome)
    if as_json():
        emit(to_dict(approval))
    elif approval.state == "waiting":  # one of several has agreed
        asked, count = approval.request, f" {len(approval.agreed)} of {approval.request.quorum}"
        say(("✓ Counted", "green"), f"{count} for {asked.tool} ({asked.id}): {clean(', '.join(approval.agreed))}")
    else:
        say(("✓ Approved", "green"), f" {approval.request.tool} ({approval.request.id})")
        note((_next_step(approval.request), "dim"))
    return EXIT["pending"] if approval.state == "waiting" else 0


@group.command()
async def reject(
    ctx: typer.Context,
    approval_id: ApprovalId,
    reason: Reason = None,
    tenant: Owner = None,
    user: User = None,
) -> int:
    """Reject a call, and say why."""
    whose, by = _owner(tenant), actor_of(None, None, user)
    async with opened(ctx) as app:
        approval = await _give(app, approval_id, Answer("reject", reason), whose, by.user)
    words = f" {approval.request.tool} ({approval.request.id})"
    return answer(to_dict(approval), ("✓ Rejected", "green"), words)


@group.command("watch")
async def watch_approvals(
    ctx: typer.Context,
    tenant: Tenants = None,
    bell: Annotated[bool, option("--bell", "Ring the terminal's bell when a call comes.")] = False,
    user: User = None,
) -> int:
    """Watch what waits for an answer, and answer it. Without a terminal, or with --json: a line for each change."""
    whose = None if tenant == EVERY else actor_of(tenant, None, None).tenant
    async with opened(ctx) as app:
        calls = WaitingCalls(app, whose)
        if as_json() or not (at_a_terminal() and sys.stdout.isatty()):
            await print_changes(calls)
        else:
            await WatchScreen(app, calls, actor_of(None, None, user).user, bell=bell).run()
    return 0


async def _edited(app: App, beginning: str, whose: str | None, answer: Answer) -> Answer | None:
    """The answer with what a person makes of a call's arguments in their editor; None if they agree to nothing."""
    approval = await app.approvals.get(*await whole_id(app, "approvals", whose, beginning))
    note(approval.request.text(most=WHOLE), lines=True)
    if approval.state != "waiting":
        raise ApprovalError(f"Approval {approval.request.id} no longer waits for an answer: it is {approval.state}.")
    changed = await edited(approval.request, approval.request.arguments, app.approvals.canonical)
    if changed is None or not await agrees("Approve these arguments?"):
        return None
    return msgspec.structs.replace(answer, verdict="edit", arguments=changed)


async def _give(app: App, beginning: str, answer: Answer, whose: str | None, user: str) -> Approval:
    id, owner = await whole_id(app, "approvals", whose, beginning)
    return await app.approvals.answer(id, answer, actor=Actor(owner, user=user), through="cli")


def _owner(tenant: str | None) -> str | None:
    """The tenant whose approval is meant; None: whichever it is."""
    return None if tenant in (None, EVERY) else actor_of(tenant, None, None).tenant


def _next_step(request: ApprovalRequest) -> str:
    """The step by which an approved call runs."""
    if request.outer_call is None:
        return (
            f"It runs when its caller makes the call again, also with approval={request.id}, or its agent is resumed; "
            "`--run` runs it here."
        )
    outer = clean(request.outer_tool or "")
    return f"{outer} goes on when it is called again as before, or with approval={request.id}; `--run` does that here."


def _must_hold_arguments(approval: Approval) -> None:
    """Raise if only the caller knows what is to run: secrets in the arguments were masked. Those of a call inside another
    are made anew by that one."""
    request = approval.request
    if request.outer_call is not None:
        return
    if request.complete or (approval.edited is not None and MASK not in msgspec.json.encode(approval.edited).decode()):
        return
    actor = request.actor
    persona = "" if actor.persona is None else f" --persona {shlex.quote(actor.persona)}"
    scopes = "".join(f" --scope {shlex.quote(scope)}" for scope in actor.scopes)
    options = f"--approval {request.id}{naming(actor, user=True)}{persona}{scopes}"
    raise ApprovalError(
        f"{request.tool} is approved now, but cannot be run from here: secrets in its arguments were masked.",
        suggestion=f"Call it again with the same arguments: `toolgate call {request.tool} KEY=VALUE … {options}`.",
    )


# -- what approvals and grants share


async def whole_id(app: App, table: Literal["approvals", "grants"], tenant: str | None, beginning: str) -> tuple[str, str]:
    """The id that begins so, of a tenant or of any (None), and its tenant. Where none does, or several do, that is what the
    command says."""
    found: list[tuple[str, str]] = []
    if beginning.isascii() and beginning.isprintable() and beginning:
        found = await (app.approvals if table == "approvals" else app.grants).ids(tenant, beginning)
    exact = [one for one in found if one[0] == beginning]
    if len(exact or found) == 1:
        return (exact or found)[0]
    of = "" if tenant is None else f" of tenant {tenant}"
    everywhere = naming(Actor(tenant)) if tenant is not None else f" --tenant '{EVERY}'"
    see = f"see toolgate {table} list{everywhere}."
    raise NotFound(
        f"More than one id of {table}{of} begins with {beginning!r}: {see}"
        if found
        else f"There is no {table[:-1]} with the id {clean(beginning)[:64]!r}{of}: {see}"
    )


def cap_of(text: str | None) -> Decimal | None:
    """The dollars of `--cap`."""
    if text is None:
        return None
    try:
        return Decimal(parse_dollars(text)).scaleb(-9)
    except ValueError as error:
        raise Usage(f"--cap: {sentence(error)}") from None


def short_arguments(arguments: dict[str, Any]) -> str:
    """Arguments on a line of a list."""
    given = visible(msgspec.json.encode(arguments).decode())
    return given if len(given) <= SHORT else f"{given[:SHORT]}…"


def to_dict(approval: Approval) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(approval)
    request = plain.pop("request")
    return {**request, **plain}


def _row(approval: Approval) -> list[Part]:
    request = approval.request
    who = "/".join(part for part in (request.actor.tenant, request.actor.persona, request.actor.user) if part)
    outer = "" if request.outer_call is None else f"{visible(request.outer_tool or '')} (call {request.outer_call})"
    return [
        request.id,
        state_cell(approval.state),
        request.tool,
        short_arguments(request.arguments),
        who,
        outer,
        shown(request.expires_at),
    ]


def _at(moment: datetime | None) -> str:
    return "" if moment is None else f", {shown(moment)}"

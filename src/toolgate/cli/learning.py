"""`toolgate learning`: how tools did, what users say of them, and what follows from it."""

from typing import Annotated

import typer

from toolgate.cli.context import (
    ActorOptions,
    CommandGroup,
    OnlyTenant,
    Tenant,
    User,
    actor_of,
    argument,
    opened,
    option,
    text_option,
)
from toolgate.cli.output import answer
from toolgate.cli.table import listing, state
from toolgate.errors import plural
from toolgate.learning.feedback import Feedback
from toolgate.learning.proposals import Proposal

group = CommandGroup(help="How tools did, and what follows from it.", no_args_is_help=True)
suggestions = CommandGroup(help="Limits of tools that follow from past calls.", no_args_is_help=True)
group.add_typer(suggestions, name="suggestions")

ToolName = Annotated[str, argument("TOOL", "The name of a tool.")]
Limit = Annotated[int, option("--limit -n N", "How many at most.", min=1, max=50)]


@group.command()
async def show(
    ctx: typer.Context,
    tenant: OnlyTenant = None,
    tool: Annotated[str | None, text_option("--tool T", "Only this tool.")] = None,
) -> int:
    """Show how each tool did. Over the last thirty days, the least successful first."""
    async with opened(ctx) as app:
        await app.statistics.catch_up()
        found = await app.learning.show(tenant=tenant, tool=tool)
    return listing(
        {"tools": [one._asdict() for one in found]},
        ["tool", ">calls", ">success", ">p50 ms", ">p95 ms", ">factor", "failed by"],
        [
            [
                one.tool, f"{one.calls:,}", _percent(one.successes, one.failures), *map(_number, one.percentiles[:2]),
                "" if one.factor is None else f"{one.factor:.2f}",
                ", ".join(f"{code} {count:,}" for code, count in one.reasons),
            ]
            for one in found
        ],
        none="No call has ended in the last thirty days.",
    )  # fmt: skip


@group.command()
async def feedback(
    ctx: typer.Context,
    whose: ActorOptions,
    tool: ToolName,
    failed: Annotated[bool, option("--failed", "It did not do what it was called for; without it, it did.")] = False,
    call: Annotated[str | None, text_option("--call ID", "The call. Without one, searches are not changed by it.")] = None,
    score: Annotated[float | None, option("--score N", "From 0 to 1.", min=0, max=1)] = None,
    comment: Annotated[str | None, option("--comment TEXT", "What was wrong, or right.")] = None,
    task: Annotated[str | None, option("--task TEXT", "What it was used for: it is recommended for similar tasks.")] = None,
) -> int:
    """Say whether a tool did what it was called for."""
    said = Feedback(tool_name=tool, success=not failed, call_id=call, score=score, comment=comment, task=task)
    async with opened(ctx) as app:
        row = await app.learning.feedback(said, actor=whose.actor, all_users=True)
    weight = "" if row.is_weighed else " It does not change the order of searches."
    return answer(row._asdict(), ("✓ Kept", "green"), f" feedback about {tool}.{weight}")


@group.command()
async def remember(
    ctx: typer.Context,
    whose: ActorOptions,
    text: Annotated[str, argument("TEXT", "The note.")],
    tag: Annotated[list[str] | None, text_option("--tag T", "A tag; repeatable.")] = None,
) -> int:
    """Keep a note for later recall."""
    async with opened(ctx) as app:
        id = await app.learning.remember(text, tags=tag or (), actor=whose.actor)
    return answer({"id": id}, ("✓ Kept", "green"), f" note {id}")


@group.command()
async def recall(
    ctx: typer.Context, whose: ActorOptions, query: Annotated[str, argument("QUERY", "A task in words.")], limit: Limit = 10
) -> int:
    """Find past tasks and notes, and tools that worked."""
    async with opened(ctx) as app:
        found = await app.learning.recall(query, limit=limit, actor=whose.actor, all_users=True)
        recommended = await app.learning.recommend(query, actor=whose.actor)
    return listing(
        {
            "items": [{**one._asdict(), "tools": [use._asdict() for use in one.tools]} for one in found],
            "recommended": [one._asdict() for one in recommended],
        },
        [">score", "kind", "text", "tools"],
        [
            [f"{one.score:.2f}", one.kind, one.text, ", ".join(f"{use.tool} {_percent(*use[1:])}" for use in one.tools)]
            for one in found
        ],
        none="Nothing like it is kept. `toolgate learning remember TEXT` keeps a note.",
    )  # fmt: skip


@group.command()
async def forget(
    ctx: typer.Context,
    tenant: Tenant = None,
    user: User = None,
    everything: Annotated[bool, option("--all", "All of the tenant, and not of one user.")] = False,
) -> int:
    """Delete feedback, past tasks and notes. Those of a user, or of a whole tenant."""
    whose = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        gone = await app.learning.forget(whose.tenant, user=None if everything else whose.user)
    of = f"tenant {whose.tenant}" if everything else f"user {whose.user} of tenant {whose.tenant}"
    return answer(
        {"count": gone}, ("✓ Deleted", "green"), f" {plural(gone, 'record')} of {of}: feedback, past tasks and notes"
    )


@suggestions.command("list")
async def list_suggestions(ctx: typer.Context) -> int:
    """List limits of tools that follow from past calls. None holds before it is accepted."""
    async with opened(ctx) as app:
        await app.statistics.catch_up()
        found = await app.learning.suggestions()
    return listing(
        {"suggestions": [one._asdict() for one in found]},
        ["id", "limit", "now", "why", "state"],
        [[one.id, _limit(one, one.value), _limit(one, one.current), one.reason, state(one.state)] for one in found],
        none="No suggestions: tools have the limits that fit what was seen of them.",
    )


@suggestions.command()
async def accept(ctx: typer.Context, suggestion: Annotated[str, argument("ID", "The id of a suggestion.")]) -> int:
    """Have a suggestion hold from now on."""
    async with opened(ctx) as app:
        found = await app.learning.accept(suggestion)
    return answer(found._asdict(), ("✓ Accepted", "green"), f" {found.tool}: {_limit(found, found.value)}")


@suggestions.command()
async def reject(ctx: typer.Context, suggestion: Annotated[str, argument("ID", "The id of a suggestion.")]) -> int:
    """Have a suggestion not made again. One that was accepted holds no more."""
    async with opened(ctx) as app:
        found = await app.learning.reject(suggestion)
    return answer(found._asdict(), ("✓ Rejected", "green"), f" {found.tool}: {_limit(found, found.value)}")


def _limit(one: Proposal, value: float | None) -> str:
    if value is None:
        return ""
    return {"timeout": f"timeout {value:g} s", "retry": f"{value:g} attempts", "breaker": "circuit breaker"}[one.kind]


def _percent(good: int, bad: int) -> str:
    return f"{100 * good / (good + bad):.1f} %" if good + bad else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"

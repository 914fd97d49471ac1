"""`toolgate idempotency`: the keys that stand for one effect each, and a person's word on those whose outcome is unknown."""

from typing import Annotated, Any, Literal

import typer

from toolgate.cli.context import CommandGroup, OnlyTenant, Tenant, Usage, User, actor_of, argument, naming, opened, option
from toolgate.cli.files import json_of
from toolgate.cli.output import Part, answer, as_json, note
from toolgate.cli.table import listing
from toolgate.cli.table import state as state_cell
from toolgate.cli.times import iso, shown
from toolgate.store.idempotency import KeyRow

NONE = {
    "unknown": "No idempotency key has an unknown outcome.",
    "running": "No call with an idempotency key is running.",
    "done": "No idempotency key has an outcome on record.",
}

group = CommandGroup(help="Idempotency keys, and calls whose outcome is unknown.", no_args_is_help=True)


@group.command("list")
async def list_keys(
    ctx: typer.Context,
    state: Annotated[
        Literal["unknown", "running", "done"],
        option("--state", "Those whose outcome nobody knows, that have none yet, or whose outcome is on record."),
    ] = "unknown",
    tenant: OnlyTenant = None,
) -> int:
    """List the latest keys, oldest first. Those whose outcome is unknown, or those in another state."""
    async with opened(ctx) as app:
        if state == "unknown":
            found = await app.idempotency.unsettled(tenant)
        else:
            found = await app.idempotency.list(tenant, state=state)
    listing(
        {"keys": [_to_dict(row) for row in found]},
        ["since", "state", "tool", "tenant", "user", "call", "key", "settled by"],
        [_cells(row) for row in found],
        none=f"{NONE[state]} `toolgate call NAME KEY=VALUE … --idempotency-key KEY` uses a key.",
    )
    if state == "unknown" and found and not as_json():
        command = f"toolgate idempotency settle KEY{_whose(found)} --happened | --did-not-happen"
        note((f"Find out what happened, then: {command}", "dim"))
    return 0


@group.command()
async def settle(
    ctx: typer.Context,
    key: Annotated[str, argument("KEY", "The key that the call came with.")],
    happened: Annotated[
        bool | None, option("--happened/--did-not-happen", "Whether the call had its effect.", show_default=False)
    ] = None,
    output: Annotated[
        str | None, option("--output JSON", "With --happened: what calls with this key are given; null without it.")
    ] = None,
    tenant: Tenant = None,
    user: User = None,
) -> int:
    """Say what became of a call whose outcome is unknown.

    If it had its effect, whoever calls with its key again is given a success. If it had none, the key is free, and the next
    call with it runs.
    """
    if happened is None:
        raise Usage(
            "Say --happened or --did-not-happen.", suggestion="`toolgate audit show CALL_ID` shows what is on record."
        )
    if output is not None and not happened:
        raise Usage("What did not happen has no --output.")
    value = None if output is None else json_of(output, "--output", """Write text as '"text"'.""")
    whose = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        row = await app.idempotency.settle(key, happened=happened, output=value, actor=whose)
    told = {**_to_dict(row), "state": "done" if happened else None, "happened": happened, "output": value}
    mark, words = "✓ Settled: it did not happen", f": the next call with this key runs {row.holder.tool}"
    if happened:
        words = f": {row.holder.tool} is not run again with this key (call {row.holder.call_id})"
        mark = "✓ Settled: it happened"
    return answer(told, (mark, "green"), words)


def _whose(rows: list[KeyRow]) -> str:
    """The options that settling takes: of the one whose keys these are, or which, if they are of several."""
    actors = {actor_of(row.scope.tenant, None, row.scope.user) for row in rows}
    return naming(actors.pop(), user=True) if len(actors) == 1 else " --tenant TENANT --user USER"


def _cells(row: KeyRow) -> list[Part]:
    scope, holder = row.scope, row.holder
    who = scope.tenant, scope.user, holder.call_id, scope.key, row.settled_by or ""
    return [shown(row.updated_at), state_cell(row.state), holder.tool, *who]


def _to_dict(row: KeyRow) -> dict[str, Any]:
    return {
        **row.scope._asdict(),
        "state": row.state,
        "tool": row.holder.tool,
        "call_id": row.holder.call_id,
        "settled_by": row.settled_by,
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
    }

"""`toolgate idempotency`: the keys that stand for one effect each, and a person's word on those whose outcome is unknown."""

from typing import Annotated, Any, Literal

import orjson
import typer

from toolgate.cli.context import AsJson, Tenant, Usage, User, actor_of, naming, opened, readable
from toolgate.cli.output import Part, emit, note, say
from toolgate.cli.table import state as state_cell
from toolgate.cli.table import table
from toolgate.cli.times import iso, shown
from toolgate.store.idempotency import KeyRow

NONE = {
    "unknown": "No idempotency key has an unknown outcome.",
    "running": "No call with an idempotency key is running.",
    "done": "No idempotency key has an outcome on record.",
}

group = typer.Typer(help="Idempotency keys, and calls whose outcome is unknown.", no_args_is_help=True)


@group.command("list")
async def list_keys(
    ctx: typer.Context,
    state: Annotated[
        Literal["unknown", "running", "done"],
        typer.Option("--state", help="Those whose outcome nobody knows, that have none yet, or whose outcome is on record."),
    ] = "unknown",
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="T", help="Only of this tenant.")] = None,
    as_json: AsJson = False,
) -> int:
    """List the latest keys, oldest first. Those whose outcome is unknown, or those in another state."""
    readable("--tenant", tenant)

    async with opened(ctx) as app:
        if state == "unknown":
            found = await app.idempotency.unsettled(tenant)
        else:
            found = await app.idempotency.list(tenant, state=state)
    if as_json:
        emit({"keys": [_to_dict(row) for row in found]})
        return 0
    if not found:
        note((f"{NONE[state]} `toolgate call NAME KEY=VALUE … --idempotency-key KEY` uses a key.", "dim"))
        return 0
    table(["since", "state", "tool", "tenant", "user", "call", "key", "settled by"], [_cells(row) for row in found])
    if state == "unknown":
        command = f"toolgate idempotency settle KEY{_whose(found)} --happened | --did-not-happen"
        note((f"Find out what happened, then: {command}", "dim"))
    return 0


@group.command()
async def settle(
    ctx: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key that the call came with.", show_default=False)],
    happened: Annotated[
        bool | None,
        typer.Option("--happened/--did-not-happen", help="Whether the call had its effect.", show_default=False),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", metavar="JSON", help="With --happened: what calls with this key are given; null without it."
        ),
    ] = None,
    tenant: Tenant = None,
    user: User = None,
    as_json: AsJson = False,
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
    value = _read(output)
    whose = actor_of(tenant, None, user)

    async with opened(ctx) as app:
        row = await app.idempotency.settle(key, happened=happened, output=value, actor=whose)
    if as_json:
        emit({**_to_dict(row), "state": "done" if happened else None, "happened": happened, "output": value})
    elif happened:
        told = f": {row.holder.tool} is not run again with this key (call {row.holder.call_id})"
        say(("✓ Settled: it happened", "green"), told)
    else:
        say(("✓ Settled: it did not happen", "green"), f": the next call with this key runs {row.holder.tool}")
    return 0


def _read(output: str | None) -> Any:
    if output is None:
        return None
    try:
        return orjson.loads(output)
    except orjson.JSONDecodeError as error:
        raise Usage(f"--output is not JSON: {error}.", suggestion="""Write text as '"text"'.""") from None


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

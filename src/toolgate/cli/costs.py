"""`toolgate costs`: what calls have cost, by tool, user, persona, tenant or day; as a table with bars."""

from datetime import UTC, datetime
from typing import Annotated, Any, get_args

import typer

from toolgate.cli.catalog import bar
from toolgate.cli.context import OnlyTenant, opened, option
from toolgate.cli.output import answered, note, say
from toolgate.cli.table import table
from toolgate.cli.times import iso, shown, since_when
from toolgate.errors import plural
from toolgate.gates.quota.budget_accounts import counted_since
from toolgate.model import NANO
from toolgate.pipeline.usage import dollars
from toolgate.store.budgets import By, CostLine


async def costs(
    ctx: typer.Context,
    by: Annotated[By, option("--by WHAT", f"What is summed: {', '.join(get_args(By))}.")] = "tool",
    since: Annotated[
        str, option("--since WHEN", "How far back, in whole hours: 24h, 7d, or a date such as 2026-11-01.")
    ] = "7d",
    tenant: OnlyTenant = None,
) -> int:
    """Show what calls have cost. A table, with a bar for each line's share."""
    begin = counted_since(since_when(since, datetime.now(UTC)), is_daily=by == "user")
    async with opened(ctx) as app:
        lines = await app.budgets.costs(by, since=begin, tenant=tenant)
    total, calls = sum(line.nano for line in lines), sum(line.calls for line in lines)
    told = {
        "by": by, "since": iso(begin), "tenant": tenant, "calls": calls, "cost_usd": total / NANO,
        "lines": [_plain(line, by, total) for line in lines],
    }  # fmt: skip
    if answered(told):
        return 0
    if not lines:
        more = "`toolgate costs --since 52w` looks further back; every call counts: `toolgate call NAME KEY=VALUE …`."
        if tenant is not None:
            more = f"Without --tenant, what all tenants have run is shown. {more}"
        whose = "" if tenant is None else f" of tenant {tenant}"
        note((f"Nothing{whose} has run since {shown(begin)}. {more}", "dim"))
        return 0
    largest = max(line.nano for line in lines)
    table(
        [by, ">calls", ">cost", ">share", ""],
        [
            [
                _label(line, tenant),
                f"{line.calls:,}",
                dollars(line.nano),
                f"{_share(line, total):.1%}",
                bar(line.nano, largest) if line.nano else "",
            ]
            for line in lines
        ],
    )
    say((f"Total: {plural(calls, 'call')}, {dollars(total)}", "bold"), (f"  since {shown(begin)}", "dim"))
    return 0


def _label(line: CostLine, tenant: str | None) -> str:
    name = line.name or "(none)"
    return name if line.tenant is None or tenant is not None else f"{line.tenant}/{name}"


def _share(line: CostLine, total: int) -> float:
    return line.nano / total if total else 0.0


def _plain(line: CostLine, by: By, total: int) -> dict[str, Any]:
    told: dict[str, Any] = {by: line.name, "calls": line.calls, "cost_usd": line.nano / NANO}
    if line.tenant is not None:
        told["tenant"] = line.tenant
    return {**told, "share": round(_share(line, total), 6)}

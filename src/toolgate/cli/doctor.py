"""`toolgate doctor`: is everything there, and does it work?"""

from contextlib import aclosing

import typer

from toolgate.app.checks.check import Check
from toolgate.cli.checks import probe
from toolgate.cli.context import AsJson, GlobalOptions, global_options
from toolgate.cli.output import emit, folded, plural, say

INDENT = 15
MARKS = {"ok": ("✓ ", "green"), "unused": ("- ", "dim"), "warning": ("! ", "yellow"), "fault": ("✗ ", "red")}


async def doctor(ctx: typer.Context, as_json: AsJson = False) -> int:
    """Check everything that Toolgate needs, by using it."""
    checks = await _examine(global_options(ctx), aloud=not as_json)
    faults = sum(check.status == "fault" for check in checks)
    warnings = sum(check.status == "warning" for check in checks)
    if as_json:
        emit({"ok": not faults, "checks": [check._asdict() for check in checks]})
    elif faults or warnings:
        say(f"\n{plural(faults, 'fault')}, {plural(warnings, 'warning')}.", lines=True)
    else:
        say(("\nAll is well.", "green"), lines=True)
    return 1 if faults else 0


async def _examine(place: GlobalOptions, *, aloud: bool) -> list[Check]:
    checks = []
    async with aclosing(probe(place)) as probing:  # also when nobody reads any more
        async for check in probing:
            checks.append(check)
            if aloud:
                _show(check)
    return checks


def _show(check: Check) -> None:
    first, *rest = folded(check.message, INDENT)
    say(MARKS[check.status], (check.name.ljust(INDENT - 2), "bold"), first)
    for line in rest:
        say(" " * INDENT, line)
    for line in folded(check.advice, INDENT) if check.advice else ():
        say(" " * INDENT, (line, "dim"))

"""`toolgate doctor`: is everything there, and does it work?"""

from contextlib import aclosing

import typer

from toolgate.app.checks import Check
from toolgate.app.checks.installation import examine
from toolgate.cli.context import diverted, global_options, problems_logged
from toolgate.cli.output import as_json, emit, say
from toolgate.errors import plural

MESSAGE_INDENT = 15
CHECK_MARKS = {"ok": ("✓ ", "green"), "unused": ("- ", "dim"), "warning": ("! ", "yellow"), "fault": ("✗ ", "red")}


async def doctor(ctx: typer.Context) -> int:
    """Check everything that Toolgate needs, by using it."""
    options, checks = global_options(ctx), []
    async with aclosing(examine(options.settings, options.overrides)) as examining:  # also when nobody reads any more
        while True:
            with diverted(), problems_logged(False):
                check = await anext(examining, None)
            if check is None:
                break
            checks.append(check)
            if not as_json():
                _show(check)
    faults = sum(check.status == "fault" for check in checks)
    warnings = sum(check.status == "warning" for check in checks)
    if as_json():
        emit({"ok": not faults, "checks": [check._asdict() for check in checks]})
    elif faults or warnings:
        say(f"\n{plural(faults, 'fault')}, {plural(warnings, 'warning')}.", lines=True)
    else:
        say(("\nAll checks passed.", "green"), lines=True)
    return 1 if faults else 0


def _show(check: Check) -> None:
    say(CHECK_MARKS[check.status], (check.name.ljust(MESSAGE_INDENT - 2), "bold"), check.message, hang=MESSAGE_INDENT)
    if check.advice:
        say(" " * MESSAGE_INDENT, (check.advice, "dim"), hang=MESSAGE_INDENT)

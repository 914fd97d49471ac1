"""The check of work in the background: what waits for a worker that is not there, or for a person."""

from collections.abc import AsyncIterator

from toolgate.app.app import App
from toolgate.app.checks import Check
from toolgate.errors import plural
from toolgate.jobs.job import STATES

DAY_SECONDS = 86_400.0
DUE_SECONDS = 60.0
"""A job that has been due for longer, while nothing runs, waits for a worker that is not there."""


async def job_checks(app: App) -> AsyncIterator[Check]:
    """The jobs of all tenants."""
    found = await app.jobs.backlog(DAY_SECONDS, DUE_SECONDS)
    if not found.counts:
        yield Check("jobs", "ok", "there are none")
        return
    words = ", ".join(f"{found.counts[state]:,} {state}" for state in STATES if state in found.counts)
    trouble, advice = [], []
    if parked := found.counts.get("parked", 0):
        trouble.append(f"{plural(parked, 'job')} parked: nobody knows whether the effect happened")
        advice.append(
            "`toolgate jobs list --tenant '*' --state parked` shows what is parked; `retry` or `cancel` settles it."
        )
    if found.failed:
        trouble.append(f"{found.failed:,} failed within a day")
        advice.append("`toolgate jobs list --tenant '*' --state failed` shows what failed, and why.")
    known = sum(count for name, count in found.overdue.items() if name in app.jobs.types)
    strange = {name: count for name, count in found.overdue.items() if name not in app.jobs.types}
    if known and not found.is_worked:
        trouble.append(f"{known:,} due for more than a minute, and no worker runs any")
        advice.append("`toolgate worker` runs them; so does `toolgate serve`, unless jobs.serve is false.")
    if strange:
        types = ", ".join(f"{count:,} of type {name}" for name, count in strange.items())
        trouble.append(f"due, but without a handler here: {types}")
        advice.append("Install the package that handles them, or run a worker where it is installed.")
    if trouble:
        yield Check("jobs", "warning", f"{words} ({'; '.join(trouble)})", " ".join(advice), details=_details(found.counts))
    else:
        yield Check("jobs", "ok", words, details=_details(found.counts))


def _details(counts: dict[str, int]) -> dict[str, str]:
    return {state: str(count) for state, count in counts.items()}

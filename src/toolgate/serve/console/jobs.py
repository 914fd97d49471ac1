"""/jobs: work in the background: what waits, runs and failed, one job whole, and trying it again."""

from typing import Any

import msgspec

from toolgate.jobs.job import STATES, Job
from toolgate.jobs.tool_calls import TYPE
from toolgate.serve.console.page import Go, PageRequest, Pages, View
from toolgate.serve.http.jobs import JobsQuery, WaitQuery, cancel_job, count_jobs, get_job, list_jobs, retry_job
from toolgate.serve.problems import HttpProblem

pages = Pages("system")

EXPLAINED = {
    "queued": "It waits for a worker.",
    "running": "A worker has it.",
    "waiting": "It waits until a person has agreed.",
    "done": "It is done.",
    "failed": "It failed, and is not tried again by itself.",
    "cancelled": "Somebody cancelled it.",
    "parked": "The worker that had it died in the middle, so nobody knows whether it had its effect.",
}
NOT_OVER = ("queued", "running", "waiting")
TRIED = ("running", "done", "failed", "parked")
"""States in which the last attempt is not among those that `attempts` counts, unless it was the last that is made."""
AGAIN = ("failed", "cancelled", "parked")


class ShownJob(msgspec.Struct, frozen=True):
    """A job in the words of the page."""

    job: Job
    subject: str
    """The tool that it calls, or its type."""
    is_call: bool
    arguments: Any
    call: str | None
    """The id of the call that it made last."""
    took_ms: float | None
    tries: int
    may_retry: bool
    may_cancel: bool
    explained: str


@pages.get("/jobs", permission="own", twin="/v1/jobs")
async def jobs(request: PageRequest, query: JobsQuery) -> View:
    """The latest first, with the number in each state; of the persona that is chosen for the whole page, or of all."""
    found = await list_jobs(request, msgspec.structs.replace(query, persona=request.persona))
    counts = await count_jobs(request) if request.all_users else None
    values = {
        "found": [_shown(request, job) for job in found.items], "next": found.next, "states": STATES,
        "counts": counts, "query": query,
    }  # fmt: skip
    return View(
        template="jobs.html", title="Jobs", values=values, listed=found.items,
        twin={**request.fields, "persona": request.persona},
    )  # fmt: skip


@pages.get("/jobs/{id}", permission="own", twin="/v1/jobs/{id}")
async def job(request: PageRequest, id: str) -> View:
    """One job: what it is, how far it is, what went wrong, what can be done."""
    found = _shown(request, await get_job(request, id, WaitQuery()))
    return View(template="job.html", title=f"Job {found.subject}", values={"shown": found})


@pages.post("/jobs/{id}/change", permission="call")
async def change(request: PageRequest, id: str) -> Go:
    """Has it tried again, or ends it. It has an address of its own: POST /jobs/{type} is QStash's."""
    act = request.typed("act")
    if act == "retry":
        await retry_job(request, id)
    elif act == "cancel":
        await cancel_job(request, id)
    else:
        raise HttpProblem(422, "A job is retried or cancelled.")
    return Go(f"/jobs/{id}", done="job-retried" if act == "retry" else "job-cancelled")


def _shown(request: PageRequest, job: Job) -> ShownJob:
    is_call = job.type == TYPE
    tool = job.payload.get("tool")
    result = job.result if is_call and isinstance(job.result, dict) else {}
    took = None if job.started_at is None or job.ended_at is None else (job.ended_at - job.started_at).total_seconds() * 1000
    may = request.credential.may("call") and (request.credential.may("administer") or _is_own(request, job))
    return ShownJob(
        job=job, subject=str(tool) if is_call and tool else job.type, is_call=is_call,
        arguments=job.payload.get("arguments") if is_call else job.payload, call=_text(result.get("id")), took_ms=took,
        tries=min(job.attempts + (job.state in TRIED and job.started_at is not None), job.max_attempts),
        may_retry=may and job.state in AGAIN, may_cancel=may and job.state in (*NOT_OVER, "parked"),
        explained=EXPLAINED[job.state],
    )  # fmt: skip


def _is_own(request: PageRequest, job: Job) -> bool:
    actor = request.credential.actor
    return (job.tenant, job.user, job.persona) == (actor.tenant, actor.user, actor.persona)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None

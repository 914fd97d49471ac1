"""/schedules: calls at the times of a cron line: when each fires next, pausing, running now, and a form for a new one."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
import orjson

from toolgate.errors import CallError, ToolgateError
from toolgate.jobs.cron import read_zone
from toolgate.jobs.schedules import MAX_RUNS, CronTimes, Schedule
from toolgate.jobs.tool_calls import TYPE
from toolgate.serve.console.page import NOTHING_TYPED, Go, PageRequest, Pages, Typed, View
from toolgate.serve.http.endpoint import ApiModel
from toolgate.serve.http.schedules import (
    NewSchedule,
    SchedulesQuery,
    add_schedule,
    get_schedule,
    list_schedules,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
)
from toolgate.serve.problems import HttpProblem

pages = Pages("system")

SHOWN_TIMES = 5
CHANGES = {"pause": pause_schedule, "resume": resume_schedule, "run": run_schedule, "remove": remove_schedule}
DONE_WORDS = {"pause": "schedule-paused", "resume": "schedule-resumed", "run": "schedule-run", "remove": "removed"}
Text = Annotated[str, msgspec.Meta(max_length=250)]


class ShownSchedule(msgspec.Struct, frozen=True):
    """A schedule in the words of the page."""

    schedule: Schedule
    subject: str
    arguments: Any
    next_local: str | None
    """Its next time as a clock in its time zone shows it."""
    may_change: bool


class TimesQuery(ApiModel, frozen=True):
    """A cron line as somebody types it, perhaps not finished."""

    cron: Text = ""
    timezone: Text = ""


class NewQuery(ApiModel, frozen=True):
    """Values that the form begins with."""

    tool: Text = ""


@pages.get("/schedules", permission="own", twin="/v1/schedules")
async def schedules(request: PageRequest, query: SchedulesQuery) -> View:
    """The oldest first, each with its next time."""
    if request.all_tenants:
        return View(template="schedules.html", title="Schedules", values={"found": [], "next": None, "choose": True})
    found = await list_schedules(request, query)
    values = {"found": [_shown(request, one) for one in found.items], "next": found.next, "choose": False}
    return View(template="schedules.html", title="Schedules", values=values, listed=found.items)


@pages.get("/schedules/times", permission="own", twin="/v1/cron")
async def times(request: PageRequest, query: TimesQuery) -> View:
    """The next times of a cron line: the form loads this part of it as somebody types."""
    told, fault = _times(request, query.cron, query.timezone)
    values = {"told": told, "fault": fault, "clock": _clock, "asked": query}
    return View(template="schedule_times.html", title="Times of a cron line", values=values, status=422 if fault else 200)


@pages.get("/schedules/new", permission="call")
async def new_form(request: PageRequest, query: NewQuery) -> View:
    """The form."""
    return await _form(request, Typed({"tool": query.tool}) if query.tool else NOTHING_TYPED)


@pages.post("/schedules/new", permission="call")
async def make(request: PageRequest) -> View | Go:
    """Makes it, or shows the form once more with what is wrong; "check" only shows the next times."""
    faults = _faults(request)
    if request.typed("act") == "check" or faults:
        return await _form(request, request.typed_form(faults), 422 if faults else 200)
    try:
        made = await add_schedule(request, _wanted(request))
    except ToolgateError as error:
        return await _form(request, request.typed_form({_field_of(error): _words(error)}), 422)
    return Go(f"/schedules/{made.id}", done="schedule-added")


@pages.get("/schedules/{id}", permission="own", twin="/v1/schedules/{id}")
async def schedule(request: PageRequest, id: str) -> View:
    """One of them, with its next five times."""
    shown = _shown(request, await get_schedule(request, id))
    told, _ = _times(request, shown.schedule.cron, shown.schedule.timezone)
    values = {"shown": shown, "told": told if shown.schedule.state == "active" else None, "clock": _clock}
    return View(template="schedule.html", title=f"Schedule {shown.schedule.name}", values=values)


@pages.post("/schedules/{id}", permission="call")
async def change(request: PageRequest, id: str) -> Go:
    """Pauses, resumes, runs or removes it."""
    act = request.typed("act")
    if act not in CHANGES:
        raise HttpProblem(422, "A schedule is paused, resumed, run or removed.")
    await CHANGES[act](request, id)
    return Go("/schedules" if act == "remove" else f"/schedules/{id}", done=DONE_WORDS[act])


# -- the form


async def _form(request: PageRequest, typed: Typed, status: int = 200) -> View:
    cron, zone = typed.values.get("cron", ""), typed.values.get("timezone", "")
    told, _ = _times(request, cron, zone) if cron else (None, None)
    known = [tool.name for tool in await request.app.tools.list(request.sender)]
    values = {
        "typed": typed, "told": told, "fault": None, "clock": _clock, "known": sorted(known), "choose": request.all_tenants,
    }  # fmt: skip
    return View(template="schedule_form.html", title="New schedule", values=values, status=status)


def _times(request: PageRequest, cron: str, zone: str) -> tuple[CronTimes | None, str | None]:
    """The next times, or what is wrong."""
    if not cron.strip():
        return None, None
    try:
        return request.app.schedules.times(cron, timezone=zone or None, count=SHOWN_TIMES, actor=request.sender), None
    except ToolgateError as error:
        return None, _words(error)


def _faults(request: PageRequest) -> dict[str, str]:
    """Finds the faults of the form, before the tool and the policy are asked."""
    found: dict[str, str] = {}
    zone = request.typed("timezone")
    try:
        read_zone(zone or "UTC")
        zone = zone or ""
    except ToolgateError as error:
        found["timezone"], zone = _words(error), "UTC"
    if not request.typed("cron").strip():
        found["cron"] = "Say when it is to run, such as 30 8 * * MON-FRI."
    elif (wrong := _times(request, request.typed("cron"), zone)[1]) is not None:
        found["cron"] = wrong
    if request.typed("act") == "check":
        return found
    if not request.typed("tool").strip():
        found["tool"] = "Name the tool that is to be called."
    try:
        if not isinstance(orjson.loads(request.typed("arguments") or "{}"), dict):
            found["arguments"] = 'The arguments are one JSON object, such as {"text": "hello"}.'
    except orjson.JSONDecodeError as error:
        found["arguments"] = f"This is not JSON: {error}."
    runs = request.typed("max_runs")
    if runs and not (runs.isascii() and runs.isdigit() and 1 <= int(runs[:9]) <= MAX_RUNS and len(runs) < 9):
        found["max_runs"] = f"A whole number between 1 and {MAX_RUNS:,}."
    return found


def _wanted(request: PageRequest) -> NewSchedule:
    fields = {name: request.typed(name).strip() for name in ("cron", "tool", "name", "timezone", "max_runs")}
    given: dict[str, Any] = {name: text for name, text in fields.items() if text}
    arguments = msgspec.Raw((request.typed("arguments").strip() or "{}").encode())
    try:
        return msgspec.convert({**given, "arguments": arguments}, NewSchedule, strict=False)
    except msgspec.ValidationError as error:
        raise HttpProblem(422, f"The form is wrong: {error}.") from None


def _field_of(error: ToolgateError) -> str:
    """The field that a refusal is about; the form as a whole where it is about none."""
    if error.category == "conflict" or "its name must be" in error.message:
        return "name"
    if not isinstance(error, CallError):
        return ""
    if error.code in ("TOOL_NOT_FOUND", "PERMISSION_DENIED", "SECURITY_VIOLATION"):
        return "tool"
    return "arguments" if error.code in ("VALIDATION_ERROR", "INVALID_INPUT") else ""


def _words(error: ToolgateError) -> str:
    return f"{error.message} {error.suggestion}" if error.suggestion else error.message


# -- what is shown


def _shown(request: PageRequest, one: Schedule) -> ShownSchedule:
    credential, actor = request.credential, request.credential.actor
    is_own = (one.tenant, one.user, one.persona) == (actor.tenant, actor.user, actor.persona)
    is_call = one.type == TYPE
    return ShownSchedule(
        schedule=one, subject=str(one.payload.get("tool")) if is_call else one.type,
        arguments=one.payload.get("arguments") if is_call else one.payload,
        next_local=None if one.next_at is None else _clock(one.next_at, one.timezone),
        may_change=credential.may("call") and (is_own or credential.may("administer")),
    )  # fmt: skip


def _clock(moment: datetime, zone: str) -> str:
    """A moment as a clock in a time zone shows it."""
    return moment.astimezone(read_zone(zone)).strftime("%a %d %b %Y, %H:%M")

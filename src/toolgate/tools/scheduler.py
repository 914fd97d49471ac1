"""`scheduler`: tasks at the times of a cron line: calls of tools, and reminders to the user."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import orjson
from pydantic import Field, WithJsonSchema
from typing_extensions import TypedDict

from toolgate.errors import CallError, InvalidInput, ToolError
from toolgate.model import Call, Capability, ErrorCase, Example, Operation, new_id
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool

if TYPE_CHECKING:
    from toolgate.jobs.schedules import Schedule

REMINDER = "notify_user"
MAX_SHOWN_CHARS = 200
TaskText = Annotated[
    str | None, Field(max_length=20_000), WithJsonSchema({"type": ["string", "null"], "x-path": False, "x-command": False})
]
CronLine = Annotated[str | None, Field(max_length=200), WithJsonSchema({"type": ["string", "null"], "x-path": False})]
ZoneName = Annotated[str | None, Field(max_length=64), WithJsonSchema({"type": ["string", "null"], "x-path": False})]
ScheduleId = Annotated[str | None, Field(max_length=64), WithJsonSchema({"type": ["string", "null"], "x-path": False})]
TASK_FORM = 'Write {"tool": "NAME", "arguments": {…}}, or the words of a reminder.'


class ScheduledTask(TypedDict):
    """A schedule."""

    id: str
    schedule: str
    timezone: str
    task: str
    state: str
    next_at: str | None


class ScheduledTasks(TypedDict):
    """What was added or cancelled, or all."""

    schedules: list[ScheduledTask]


@tool(
    tier="write",
    category="service",
    tags=["agent", "jobs"],
    capabilities=[Capability(action="schedule", description="Have tasks done at set times")],
    operations={"add": Operation(tier="write"), "list": Operation(tier="read_only"), "cancel": Operation(tier="write")},
    errors=[
        ErrorCase("INVALID_INPUT", "schedule is no cron line or never fires, or the time zone is unknown", "correct it"),
        ErrorCase("INVALID_INPUT", "the task's arguments are wrong, or there is no such schedule", "correct it"),
        ErrorCase("TOOL_NOT_FOUND", "the task's tool is not there for you", "schedule one that you have"),
        ErrorCase("PERMISSION_DENIED", "the task may not be done", "schedule what you may do"),
        ErrorCase("CAPACITY_EXCEEDED", "the user has too many schedules", "remove one"),
    ],
    examples=[
        Example(
            name="A reminder on weekdays at 8:30",
            arguments={"task": "Stand-up in half an hour", "schedule": "30 8 * * MON-FRI"},
        ),
        Example(
            name="A call every night",
            arguments={"task": '{"tool": "echo", "arguments": {"text": "hello"}}', "schedule": "0 3 * * *"},
        ),
    ],
)  # fmt: skip
async def scheduler(
    ctx: InvokeContext,
    task: TaskText = None,
    schedule: CronLine = None,
    operation: Literal["add", "list", "cancel"] = "add",
    timezone: ZoneName = None,
    id: ScheduleId = None,
) -> ScheduledTasks:
    """Schedule tasks: reminders to the user, and calls of tools. Each call is checked again when its time comes.

    Args:
        task: Words to remind the user of, or {"tool": name, "arguments": {}} as JSON.
        schedule: Cron line of five fields.
        operation: add needs task and schedule; cancel needs id.
        timezone: IANA name; else the user's.
    """
    from toolgate.jobs.scheduled_calls import ScheduledCalls

    calls: ScheduledCalls = ctx.get(ScheduledCalls)
    try:
        match operation:
            case "add":
                cron = _given(schedule, "schedule", operation)
                found = [await calls.add(cron, _call(ctx, task), timezone=timezone, by_call=ctx.id)]
            case "list":
                found = await calls.of_actor(ctx.actor)
            case "cancel":
                found = [await calls.remove(ctx.actor, _given(id, "id", operation), ctx.id)]
    except CallError as error:
        code = "INVALID_INPUT" if error.code == "VALIDATION_ERROR" else error.code
        raise ToolError(error.message, code=code, suggestion=error.suggestion, details=error.details) from None
    return {"schedules": [_shown(one) for one in found]}


def _call(ctx: InvokeContext, task: str | None) -> Call:
    """The call that a task is."""
    name, arguments = _read(_given(task, "task", "add"))
    outer = ctx.call
    return Call(
        new_id(), name, arguments, outer.actor, outer.session, door=outer.door, workspace=outer.workspace,
        from_code=outer.from_code, spending_limit=outer.spending_limit, on_behalf_of=outer.on_behalf_of,
        connection=outer.connection,
    )  # fmt: skip


def _read(task: str) -> tuple[str, dict[str, Any]]:
    """The tool and the arguments of a task."""
    if not task.lstrip().startswith("{"):
        return REMINDER, {"message": task}
    try:
        read = orjson.loads(task)
    except orjson.JSONDecodeError:
        raise InvalidInput("The task is not JSON.", suggestion=TASK_FORM) from None
    name, arguments = read.pop("tool", None), read.pop("arguments", {})
    if not isinstance(name, str) or not isinstance(arguments, dict) or read:
        raise InvalidInput("The task names no tool with arguments.", suggestion=TASK_FORM)
    return name, arguments


def _given(value: str | None, name: str, operation: str) -> str:
    if value is None or not value.strip():
        raise InvalidInput(f"The operation {operation} needs {name}.")
    return value


def _shown(one: "Schedule") -> ScheduledTask:
    arguments = one.payload.get("arguments") or {}
    is_reminder = one.payload.get("tool") == REMINDER
    task = arguments.get("message") if is_reminder else orjson.dumps(
        {"tool": one.payload.get("tool", one.type), "arguments": arguments}
    ).decode()  # fmt: skip
    words = str(task)
    return {
        "id": one.id,
        "schedule": one.cron,
        "timezone": one.timezone,
        "task": words if len(words) <= MAX_SHOWN_CHARS else f"{words[:MAX_SHOWN_CHARS]}…",
        "state": one.state,
        "next_at": None if one.next_at is None else one.next_at.isoformat(timespec="minutes"),
    }

"""The results of runs in the sandbox, and the errors that a caller gets of them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from toolgate.errors import CallError, Failed, NotReached, timed_out
from toolgate.sandbox.jail import Feature, ResourceLimits, Stopped
from toolgate.sandbox.worker_protocol import CodeFailure, WorkerLogLine, limit_message

MAX_TOLD_CHARS = 2_000
"""Of what a run wrote, how much is told with its error."""
LIMIT_SETTINGS: Mapping[Stopped, str] = {
    "memory": "sandbox.memory_mb", "disk": "sandbox.disk_mb", "processes": "sandbox.processes",
    "output": "sandbox.output_bytes",
}  # fmt: skip


class ProgramResult(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a program, and the jail that held it."""

    stdout: str
    stderr: str
    stopped: Stopped | None
    """The limit that it ran into, if it did."""
    limits: ResourceLimits
    jail: str
    enforced: Mapping[Feature, str]
    """The features that were held, and by what means."""
    seconds: float
    left: tuple[str, ...] = ()
    """Sentences on the changes that it made in its layer."""

    def last_output(self) -> dict[str, str]:
        """The end of what it wrote, for the details of an error."""
        wrote = (("stdout", self.stdout), ("stderr", self.stderr))
        return {name: text[-MAX_TOLD_CHARS:] for name, text in wrote if text}


class CodeResult(ProgramResult, frozen=True, kw_only=True):
    """The result of code."""

    value: Any
    failure: CodeFailure | None
    logs: tuple[WorkerLogLine, ...]
    lane: str
    """The runtime that ran it; results have called it so since the first version."""


class CommandResult(ProgramResult, frozen=True, kw_only=True):
    """The result of a command."""

    exit_code: int
    private_hosts: tuple[str, ...] = ()
    """Hosts that it may reach but was kept from, because they resolve to private addresses."""


def unavailable(why: str, suggestion: str | None = None, what: str = "No sandbox can be had") -> NotReached:
    """The error where nothing can hold code: it is not run."""
    return NotReached(
        "SANDBOX_UNAVAILABLE",
        f"{what}: {why}",
        suggestion=suggestion or "`toolgate doctor` shows what was tried. On Debian: apt-get install bubblewrap.",
    )


def limit_error(ended: ProgramResult, settings: Mapping[Stopped, str] = LIMIT_SETTINGS) -> CallError:
    """The error of a run that met a limit, with the end of what it wrote: TIMEOUT if it was that of time, SANDBOX_ERROR for
    memory, disk, processes and output."""
    assert ended.stopped is not None
    details = {"stopped": ended.stopped, **ended.last_output()}
    if ended.stopped == "time":
        return timed_out(ended.limits.seconds, details=details)
    setting = settings.get(ended.stopped) or LIMIT_SETTINGS[ended.stopped]
    return Failed(
        "SANDBOX_ERROR",
        limit_message(ended.stopped, ended.limits),
        suggestion=f"Give it less to do. Whoever runs Toolgate can raise the setting {setting}.",
        details=details,
    )


def as_error(failure: CodeFailure, ran: CodeResult | None = None) -> CallError:
    """The error of code that failed: what it did wrong, and where."""
    details: dict[str, Any] = {"kind": failure.kind}
    for field in ("name", "line", "column", "stack"):
        if getattr(failure, field) is not None:
            details[field] = getattr(failure, field)
    if ran is not None:
        details |= {"lane": ran.lane, **ran.last_output()}
    return Failed("SANDBOX_ERROR", f"The code failed: {failure}", details=details)

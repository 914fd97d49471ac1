"""`toolgate call`: run one tool, through the same pipeline as every other door."""

import asyncio
import math
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from toolgate.app.app import App
from toolgate.cli.arguments import RawArgument, merge, read_words, schema_of
from toolgate.cli.catalog import why_missing
from toolgate.cli.completion import ArgumentsJson, ArgumentWords, ToolName
from toolgate.cli.context import (
    CallerOptions,
    Session,
    Usage,
    WorkspaceFolder,
    check_workspace,
    diverted,
    naming,
    opened,
    option,
)
from toolgate.cli.output import answered, as_json, complain, emit_error, note, say, show
from toolgate.cli.prompt import approver_for
from toolgate.cli.spinner import Spinner, has_spinner
from toolgate.errors import span_words
from toolgate.jobs.job import MAX_PRIORITY, MIN_PRIORITY
from toolgate.mcp.runner import is_plain, parts, says
from toolgate.model import NANO, Actor, Outcome, check_request_id
from toolgate.pipeline.usage import dollars

EXIT = {"success": 0, "pending": 3}
"""By the status of the outcome; every other is 1."""
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The options of a call besides its caller and its arguments."""

    session: Session = None
    workspace: WorkspaceFolder = None
    key: Annotated[str | None, option("--idempotency-key KEY", "Run once for this key; again, give what came of it.")] = None
    approval: Annotated[str | None, option("--approval ID", "Use this approval, for the call that it was given for.")] = None
    request_id: Annotated[str | None, option("--request-id ID", "Your own id for this request, kept with its records.")] = (
        None
    )
    yes: Annotated[bool, option("--yes", "Approve the call as the person at this machine.")] = False
    verbose: Annotated[bool, option("--verbose", "Show what the call's record logged: what held its code, say.")] = False
    timeout: Annotated[float | None, option("--timeout SECONDS", "Give up sooner than the tool's own limit.")] = None
    in_background: Annotated[bool, option("--async", "Queue it as a job, which a worker runs, and give the job's id.")] = (
        False
    )
    delay: Annotated[float | None, option("--delay SECONDS", "With --async: not before so many seconds from now.")] = None
    priority: Annotated[
        int | None,
        option("--priority N", "With --async: the higher, the sooner.", min=MIN_PRIORITY, max=MAX_PRIORITY),
    ] = None

    def check(self) -> None:
        """Refuses what `App.invoke` would raise for, by the names of the options."""
        check_workspace(self.workspace)
        if self.timeout is not None and not (self.timeout > 0 and math.isfinite(self.timeout)):
            raise Usage("--timeout must be a number of seconds above 0.")
        if not self.in_background and (self.delay is not None or self.priority is not None):
            raise Usage(
                f"{'--delay' if self.delay is not None else '--priority'} is for calls that are queued: add --async."
            )
        if self.delay is not None and not (self.delay >= 0 and math.isfinite(self.delay)):
            raise Usage("--delay must be a number of seconds, 0 or above.")
        if self.request_id is not None:
            try:
                check_request_id(self.request_id)
            except ValueError as error:
                raise Usage(f"{error}.".replace("request_id", "--request-id", 1)) from None


def call(
    ctx: typer.Context,
    name: ToolName,
    whose: CallerOptions,
    options: CallOptions,
    words: ArgumentWords = None,
    args: ArgumentsJson = None,
) -> int:
    """Call a tool, and show what it gives. Where a person must agree, it asks at a terminal; else the call is pending.

    A value is taken as text or read as JSON, as the tool's schema says of its key. key=@FILE is the text of a file, key=@-
    of stdin, key=@@x the text @x; a.b=x is a member of an object, a[]=x one more item of a list. Some ways to say the same:

    \b
      toolgate call datetime operation=add date=2026-11-15 amount=3 unit=days
      toolgate call datetime operation=add date=2026-11-15 amount:=3 unit=days
      toolgate call datetime operation=add --args '{"date": "2026-11-15", "amount": 3, "unit": "days"}'
      toolgate call datetime --args @arguments.json
    """
    options.check()
    actor = whose.actor
    given, whole = read_words(words or (), args)
    if whole is None and (given or options.approval is None):
        whole = {}
    try:
        outcome, advice, logs = asyncio.run(_call(ctx, name, whole, given, actor, options))
    except KeyboardInterrupt:
        return _interrupted()
    if not answered({**outcome.to_dict(), "logs": logs} if options.verbose else outcome.to_json()):
        show_outcome(outcome, actor, advice)
        for line in logs:
            note((f"{line['level']}: {line['message']}", "dim"))
    return exit_code(outcome)


def _interrupted() -> int:
    """Ctrl-C: the pipeline has ended the call, recorded that it did, and given back what it had taken."""
    message = "The call was interrupted before it ended; what the tool did until then stays done."
    hint = "`toolgate audit tail` shows its record."
    if as_json():
        emit_error("CANCELLED", message, hint)
    else:
        complain(f"CANCELLED: {message}", hint)
    return INTERRUPTED


def exit_code(outcome: Outcome) -> int:
    """Of the command; a program that was run and failed is a failure too, though its tool gave its output."""
    return 1 if _failed_program(outcome) else EXIT.get(outcome.status, 1)


def _failed_program(outcome: Outcome) -> int | None:
    """The exit code of a program that a tool ran and gave the output of, if it is not 0."""
    output = outcome.output
    if outcome.status != "success" or not isinstance(output, dict) or not {"stdout", "stderr", "exitCode"} <= output.keys():
        return None
    code = output["exitCode"]
    return code if isinstance(code, int) and code else None


async def _call(
    ctx: typer.Context,
    name: str,
    whole: dict[str, Any] | None,
    given: Sequence[RawArgument],
    actor: Actor,
    options: CallOptions,
) -> tuple[Outcome, str | None, list[dict[str, str]]]:
    """The outcome, for a person why a tool was not found, and what its record logged, if that is wanted."""
    spinner = None if as_json() or not has_spinner() else Spinner(name)
    async with opened(ctx) as app:
        quiet = nullcontext if spinner is None else spinner.paused
        approver = approver_for(name, app.approvals.canonical, yes=options.yes, quiet=quiet)
        if approver is not None:
            app.approvals.add_approver(approver)
        arguments = None  # those that were approved
        if whole is not None:
            arguments = merge(whole, given, schema_of(app, name, actor))
        if spinner is not None and options.key is not None and options.key.isprintable():  # else the pipeline refuses it
            await _say_whom_it_waits_for(app, actor, options.key)
        with nullcontext() if spinner is None else spinner.running(), diverted():
            outcome = await _made(app, name, arguments, actor, options, spinner)
        logs = await _logs(app, outcome.id) if options.verbose else []
        if as_json() or outcome.error is None:
            return outcome, None, logs
        if options.yes and (inner := _inner_tool(outcome)) is not None:
            words = f"--yes approves {name} alone. To let {inner} run without asking for a while, then call again: "
            return outcome, f"{words}`toolgate grants add {inner} --for 1h{naming(actor, user=True)}`.", logs
        return outcome, await _advice(app, name, actor, outcome.error.code), logs


async def _made(
    app: App, name: str, arguments: dict[str, Any] | None, actor: Actor, options: CallOptions, spinner: Spinner | None
) -> Outcome:
    """The outcome of the call, made now or queued."""
    common: dict[str, Any] = {
        "actor": actor, "session": options.session, "idempotency_key": options.key, "approval": options.approval,
        "timeout": options.timeout, "request_id": options.request_id, "workspace": options.workspace, "door": "cli",
    }  # fmt: skip
    if not options.in_background:
        return await app.invoke(name, arguments, caller=spinner, **common)
    return await app.enqueue(name, arguments, delay=options.delay or 0.0, priority=options.priority or 0, **common)


def _inner_tool(outcome: Outcome) -> str | None:
    """The tool of a call inside the call that waits for a person; None if it is the call itself that waits."""
    details = None if outcome.error is None or outcome.pending is None else outcome.error.details
    return (details or {}).get("tool") if "outer_tool" in (details or {}) else None


async def _logs(app: App, id: str) -> list[dict[str, str]]:
    """The lines that a call wrote into its record."""
    from toolgate.cli.audit import AuditRecord  # not wanted by every call, and its imports take a while

    records = [AuditRecord(*row) for row in await app.audit.of_call(id)]
    return [line for record in records if isinstance(record.content, dict) for line in record.content.get("logs", ())]


async def _advice(app: App, name: str, actor: Actor, code: str) -> str | None:
    """A suggestion for the person at the terminal, where the pipeline's own suggestion does not say it."""
    if code == "TOOL_NOT_FOUND":
        return await why_missing(app, name, actor)
    needed = (app.policy.data.entry(name, actor.tenant) or {}).get("requires_permission")
    if code == "PERMISSION_DENIED" and needed is not None and needed not in actor.scopes:
        return f"It needs the scope {needed}: add `--scope {shlex.quote(needed)}`."
    return None


async def _say_whom_it_waits_for(app: App, actor: Actor, key: str) -> None:
    """Say at a terminal that a call with the same key has not ended, since this one waits for it."""
    first = await app.idempotency.get(key, actor=actor)
    if first is not None and first.state == "running":
        wait = span_words(app.idempotency.lease_seconds)
        words = f"Waiting for call {first.holder.call_id}, which has the same key and has not ended."
        note((f"{words} If its process has died, that is known within {wait}.", "dim"))


def show_outcome(outcome: Outcome, actor: Actor, advice: str | None = None) -> None:
    """For a person; with advice, that stands in place of the suggestion of an error."""
    if outcome.status == "success":
        show(_without_copy(outcome.output))
    else:
        _show_fault(outcome, advice)
    if outcome.pending is not None and outcome.pending.kind == "job":
        say(("Waiting" if outcome.error is not None else "Queued", "yellow"), f" as job {outcome.pending.id}")
        note((f"toolgate jobs show {outcome.pending.id} --follow{naming(actor)}", "dim"))
        approval = (outcome.error.details or {}).get("approval") if outcome.error is not None else None
        if approval is not None:
            note((f"To answer: toolgate approvals show|approve|reject {approval}", "dim"))
        else:
            note(("`toolgate worker` or `toolgate serve` runs it.", "dim"))
    if outcome.artifact is not None:
        for cut in outcome.artifact.cut:
            note((f"cut: {cut}", "yellow"))
        if outcome.artifact.id:
            note((f"whole output: toolgate artifacts get {outcome.artifact.id}{naming(actor)}", "yellow"))
    failed = _failed_program(outcome)
    if failed is not None:
        note((f"The program failed with exit code {failed}.", "red"))
    note((_summary(outcome), "dim"))


def _without_copy(output: Any) -> Any:
    """The value of an MCP tool that gave it both as text and as `{"result": value}`, as many servers' libraries do."""
    content = parts(output)
    structured = output.get("structuredContent") if content else None
    if not content or not isinstance(structured, dict) or structured.keys() != {"result"}:
        return output
    value = structured["result"]
    values = value if isinstance(value, list) and len(value) == len(content) != 1 else [value]
    texts = [part["text"] if is_plain(part) else None for part in content]
    same = len(texts) == len(values) and all(
        text is not None and (text == one or says(text, one)) for text, one in zip(texts, values, strict=True)
    )
    return value if same else output


def _show_fault(outcome: Outcome, advice: str | None) -> None:
    error = outcome.error
    if error is None:
        return
    details = error.details or {}
    faults = details.get("errors")
    several = isinstance(faults, list) and len(faults) > 1
    message = error.message.partition(": ")[0] if several else error.message
    own = f" ({details['tool_code']})" if "tool_code" in details else ""
    note((f"{error.code}{own}: {message}", "yellow" if outcome.status == "pending" else "red"), lines=True)
    for fault in faults if several and isinstance(faults, list) else ():
        note("  ", (str(fault.get("path") or "(top)"), "bold"), f": {fault.get('message')}")
    if advice or error.suggestion:
        note(advice or error.suggestion or "", lines=True)
    if outcome.pending is not None and outcome.pending.kind == "approval" and sys.stderr.isatty():
        note(f"To answer: toolgate approvals show|approve|reject {outcome.pending.id}")
    if isinstance(details.get("retry_after"), int | float) and "try again in" not in message:
        note(f"Try again in {span_words(details['retry_after'])}.")


def _summary(outcome: Outcome) -> str:
    metrics = outcome.metrics
    failed = _failed_program(outcome)
    parts = [outcome.status if failed is None else f"exit code {failed}", f"{metrics.duration_ms:,.1f} ms"]
    if metrics.attempts > 1:
        parts.append(f"{metrics.attempts} attempts")
    if metrics.cached:
        parts.append("cached")
    if metrics.tokens_used is not None:
        parts.append(f"{metrics.tokens_used:,} tokens")
    if metrics.cost_usd:
        parts.append(dollars(round(metrics.cost_usd * NANO)))
    return " · ".join((*parts, f"call {outcome.id}"))

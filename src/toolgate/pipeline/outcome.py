"""The end of a call: whatever stopped it as one error, and the outcome that its caller is given, without secrets."""

import asyncio
import logging
import traceback
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from toolgate.errors import (
    CODES,
    CallError,
    Denied,
    Failed,
    NotReached,
    Pending,
    StoreError,
    ToolgateError,
    call_error,
    described,
    printable,
    said,
    span_words,
)
from toolgate.model import Crash, CrashedOutcome, Entry, ErrorInfo, Metrics, Outcome, PendingInfo
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.early_exit import Abort, Control, Halt, RetryAfter
from toolgate.screening.secret_fields import without
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.gates.redaction import Redactor

logger = logging.getLogger("toolgate")

MAX_FRAMES = 50
MAX_TRACE_CHARS = 16_000
LONG_TO_MASK = 100_000
"""Characters of a traceback from which on secrets are looked for off the event loop."""

SHORTEST_QUOTED = 4
"""Characters of a secret among the arguments from which on it is looked for in what a tool says."""


class Ending:
    def __init__(
        self, redactor: "Redactor", charge: Callable[[InvokeContext, Entry], float], *, keeps_records: bool
    ) -> None:
        """`charge` says what a call of a tool that can cost something did cost, in dollars."""
        self._redactor = redactor
        self._charge = charge
        self._keeps_records = keeps_records
        """True if another process, such as `toolgate audit show`, finds the records of this one."""

    def understand(self, error: BaseException) -> CallError:
        """Whatever stopped the call, as the error that its outcome will show."""
        if isinstance(error, CallError):
            return error if _is_sound(error) else _rebuilt(error)
        if isinstance(error, Control):
            return _chosen(error)
        if isinstance(error, StoreError):
            return Failed(
                "UNEXPECTED_ERROR",
                f"The store cannot be used, so the call was not run: {error.message}",
                suggestion="`toolgate doctor` shows what is wrong with the store.",
            )
        unexpected = Failed("UNEXPECTED_ERROR", f"Toolgate failed unexpectedly: {described(error)}")
        unexpected.__cause__ = error
        return unexpected

    async def told(self, ctx: InvokeContext, error: CallError) -> ErrorInfo:
        """The error as the caller and the records are told it. The traceback of a crash goes to the program's log and to
        the end record, for the operator; whoever called is not shown it."""
        try:
            info = await self._redactor.error(error, ctx.injected, self._quotable(ctx))
            if (crash := _crash(error)) is not None:
                await self._trace(ctx, crash)
            return info
        except asyncio.CancelledError:
            ctx.went_away = True
        except Exception as unexpected:
            logger.error("an error could not be told: %s", type(unexpected).__name__)
        return ErrorInfo(error.code, CODES[error.code].message, error.retryable)

    async def _trace(self, ctx: InvokeContext, crash: BaseException) -> None:
        """Masked as a whole, then cut in the middle: both ends say most."""
        text = "".join(traceback.format_exception(crash, limit=MAX_FRAMES))
        text = text.encode("utf-8", "backslashreplace").decode()  # a log can't be written with half a surrogate pair
        mask = partial(self._redactor.text, without(self._quotable(ctx), text), ctx.injected)
        if not self._redactor.ready:
            await self._redactor.prepare(text)
        text = await to_thread(mask) if len(text) > LONG_TO_MASK else mask()
        if len(text) > MAX_TRACE_CHARS:
            half = MAX_TRACE_CHARS // 2
            text = f"{text[:half]}\n...[{len(text) - 2 * half:,} characters left out]...\n{text[-half:]}"
        ctx.scratch.traceback = text
        if logger.isEnabledFor(logging.ERROR):
            name = "a call" if ctx.entry is None else ctx.entry.name
            where = f": `toolgate audit show {ctx.id} --verbose` shows where" if self._keeps_records else ""
            words = "%s failed in call %s%s"
            record = logger.makeRecord(logger.name, logging.ERROR, __file__, 0, words, (name, ctx.id, where), None)
            record.exc_text = text  # what a Formatter writes of an exception, already masked
            logger.handle(record)

    def outcome(self, ctx: InvokeContext, info: ErrorInfo | None) -> Outcome:
        """The outcome of a call that has ended, and what it cost: there is one, whatever was left in the context."""
        try:
            call, error, entry = ctx.call, ctx.error, ctx.entry
            duration = (ctx.finished_at - ctx.started_at) * 1000
            report = ctx.report
            cost = 0.0
            if entry is not None and (entry.priced or report is not None):
                cost = self._charge(ctx, entry)
            if report is None:
                metrics = Metrics(duration, ctx.attempts, ctx.cached, None, cost)
            else:
                resources = self._redactor.mask(report.resources_used, frozenset(), ctx.injected)
                metrics = Metrics(duration, ctx.attempts, ctx.cached, report.tokens_used, cost, resources)
            if error is None:
                return Outcome(call.id, call.tool, "success", ctx.result, None, None, metrics, ctx.artifact)
            name = entry.name if entry is not None else self._redactor.text(printable(call.tool), ctx.injected)
            pending = PendingInfo(error.kind, error.id) if isinstance(error, Pending) else None
            crash = _crash(error)
            if crash is not None and (call.parent is None or not ctx.injected):  # a tool that calls it has other secrets
                return CrashedOutcome(call.id, name, error.status, None, info, pending, metrics, crash=Crash(crash))
            if pending is not None and pending.kind == "job":
                info = None  # that it is queued is no error
            return Outcome(call.id, name, error.status, None, info, pending, metrics)
        except Exception as unexpected:
            return self._without_report(ctx, unexpected)

    def _without_report(self, ctx: InvokeContext, unexpected: Exception) -> Outcome:
        logger.error("an outcome could not be made: %s", self._redactor.text(described(unexpected), ctx.injected))
        code = "OUTCOME_UNKNOWN" if ctx.ran else "UNEXPECTED_ERROR"
        metrics = Metrics((ctx.finished_at - ctx.started_at) * 1000, ctx.attempts)
        name = "" if ctx.entry is None else ctx.entry.name
        return Outcome(ctx.call.id, name, "failure", None, ErrorInfo(code, CODES[code].message), None, metrics)

    def hook_errors(self, ctx: InvokeContext) -> tuple[dict[str, str], ...]:
        """Errors of hooks once the call was decided, fit to be recorded."""
        quotable = self._quotable(ctx)
        errors = ((trouble, without(quotable, trouble["error"])) for trouble in ctx.hook_errors)
        return tuple({**trouble, "error": self._redactor.text(text, ctx.injected)} for trouble, text in errors)

    def remarks(self, ctx: InvokeContext) -> dict[str, Any]:
        """The remarks of the end record: lines that the tool logged, and what hooks did wrong."""
        found: dict[str, Any] = {}
        scratch = ctx.scratch
        if scratch.hook_errors:
            found["hook_errors"] = self.hook_errors(ctx)
        if scratch.traceback is not None:
            found["traceback"] = scratch.traceback
        if scratch.logs:
            quotable = self._quotable(ctx)
            lines = ((line, without(quotable, line["message"])) for line in ctx.logs)
            found["logs"] = [{**line, "message": self._redactor.text(text, ctx.injected)} for line, text in lines]
        if scratch.observed:
            found["observed"] = [{**said, "reason": self._reason(said["reason"], ctx)} for said in scratch.observed]
        return found

    def _quotable(self, ctx: InvokeContext) -> tuple[str, ...]:
        """The secrets among the arguments, known by the names of their fields: a tool that was given them may quote them.
        One that is too short would be found in any text."""
        if ctx.entry is None or not ctx.canonical or ctx.recorded == ctx.canonical:
            return ()
        found = self._redactor.named_secrets(ctx.arguments, ctx.entry.public_input)
        return tuple(secret for secret in found if len(secret) >= SHORTEST_QUOTED)

    def words(self, ctx: InvokeContext, error: BaseException) -> str:
        """An error as the program's log may hold it."""
        return self._redactor.text(described(error), ctx.injected)

    def mask_reason(self, ctx: InvokeContext, error: CallError) -> None:
        if error.reason is not None:
            error.reason = self._redactor.text(said(error.reason), ctx.injected)

    def _reason(self, reason: str, ctx: InvokeContext) -> str:
        """A policy's reason without what it may quote of the arguments that records do not hold."""
        return self._redactor.text(self._redactor.without_fields(reason, ctx.arguments), ctx.injected)

    def log_hook_errors(self, ctx: InvokeContext) -> None:
        for trouble in self.hook_errors(ctx):
            logger.warning("hook %(hook)s failed at %(stage)s: %(error)s", trouble)


def _crash(error: CallError) -> BaseException | None:
    """The bug behind an error, if there is one: what somebody's code raised that was no answer of its own."""
    cause = error.__cause__
    return None if cause is None or isinstance(cause, ToolgateError) or isinstance(error, NotReached) else cause


def _is_sound(error: CallError) -> bool:
    """True if an error that somebody raised is made as ours are: its class may be anybody's."""
    code, status = getattr(error, "code", None), getattr(error, "status", None)
    return (
        isinstance(code, str)
        and code in CODES
        and status == CODES[code].status
        and (status == "pending") == isinstance(error, Pending)
        and isinstance(getattr(error, "message", None), str)
        and isinstance(getattr(error, "suggestion", None), str | None)
        and isinstance(getattr(error, "retryable", None), bool)
        and isinstance(getattr(error, "details", None), dict | None)
        and hasattr(error, "reason")
    )


def _rebuilt(error: CallError) -> CallError:
    """As much of an unsound error as can be understood."""
    code = getattr(error, "code", None)
    known = isinstance(code, str) and code in CODES and CODES[code].status != "pending"
    return call_error(str(code) if known else "UNEXPECTED_ERROR", described(error))


def _chosen(control: Control) -> CallError:
    """The error that a hook or a tool chose, or that a call inside it left it with."""
    if isinstance(control, Halt):
        return control.error
    if isinstance(control, Abort):
        known = isinstance(control.code, str) and control.code in CODES and CODES[control.code].status != "pending"
        details: dict[str, Any] = {} if control.http_status is None else {"http_status": control.http_status}
        if not known:
            details["code"] = said(control.code)
        return call_error(control.code if known else "PERMISSION_DENIED", said(control.reason), details=details)
    if isinstance(control, RetryAfter):
        words = said(control.reason) if control.reason else "The call cannot be served now"
        wait = control.seconds
        return Denied("RATE_LIMITED", f"{words}; try again in {span_words(wait)}.", details={"retry_after": wait})
    return Failed("UNEXPECTED_ERROR", f"{type(control).__name__} where it has no meaning.")

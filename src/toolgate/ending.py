"""How a call ended: whatever stopped it as one error, and the outcome that its caller is given, without secrets."""

import asyncio
import logging
import traceback
from typing import Any

from toolgate.context import Abort, Control, InvokeContext, RetryAfter
from toolgate.errors import CODES, CallError, Denied, Failed, Pending, StoreError, call_error, described, said
from toolgate.model import NANO, ErrorInfo, Metrics, Outcome, PendingInfo
from toolgate.quota.money import UNPRICED, actual
from toolgate.redact import Redactor
from toolgate.registry.catalog import printable

logger = logging.getLogger("toolgate")


class Ending:
    """Makes outcomes."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def understand(self, error: BaseException, ctx: InvokeContext) -> CallError:
        """Whatever stopped the call, as the error that its outcome will show."""
        if isinstance(error, CallError):
            return error
        if isinstance(error, Control):
            return _chosen(error)
        if isinstance(error, StoreError):
            return Failed(
                "UNEXPECTED_ERROR",
                f"The store can't be used, so the call was not run: {error.message}",
                suggestion="`toolgate doctor` shows what is wrong with the store.",
            )
        trace = "".join(traceback.format_exception(error))
        logger.error("unexpected error in a call: %s", self._redactor.text(trace, ctx.injected))
        return Failed("UNEXPECTED_ERROR", f"Something unexpected went wrong: {described(error)}")

    async def told(self, ctx: InvokeContext, error: CallError) -> ErrorInfo:
        """What the caller and the records are told of an error."""
        try:
            return await self._redactor.error(error, ctx.injected)
        except asyncio.CancelledError:
            ctx.went_away = True
            return ErrorInfo(error.code, CODES[error.code].message, error.retryable)

    def outcome(self, ctx: InvokeContext, info: ErrorInfo | None) -> Outcome:
        """The outcome of a call that has ended, and what it cost."""
        call, error, entry = ctx.call, ctx.error, ctx.entry
        duration = (ctx.finished_at - ctx.started_at) * 1000
        report = ctx.report
        cost = 0.0
        if entry is not None and (entry.priced or report is not None):
            ctx.cost = actual(
                entry, ctx.estimate or UNPRICED, report, ctx.attempts, error.code if error is not None else None
            )
            ctx.owes = ctx.owes or ctx.cost > 0
            cost = ctx.cost / NANO
        if report is None:
            metrics = Metrics(duration, ctx.attempts, ctx.cached, None, cost)
        else:
            resources = self._redactor.mask(report.resources_used, frozenset(), ctx.injected)
            metrics = Metrics(duration, ctx.attempts, ctx.cached, report.tokens_used, cost, resources)
        if error is None:
            return Outcome(call.id, call.tool, "success", ctx.result, None, None, metrics, ctx.artifact)
        name = entry.name if entry is not None else self._redactor.text(printable(call.tool), ctx.injected)
        pending = PendingInfo(error.kind, error.id) if isinstance(error, Pending) else None
        return Outcome(call.id, name, error.status, None, info, pending, metrics)

    def hook_errors(self, ctx: InvokeContext) -> tuple[dict[str, str], ...]:
        """What went wrong in hooks once the call was decided, fit to be recorded."""
        return tuple(
            {**trouble, "error": self._redactor.text(trouble["error"], ctx.injected)} for trouble in ctx.hook_errors
        )

    def log_hook_errors(self, ctx: InvokeContext) -> None:
        for trouble in self.hook_errors(ctx):
            logger.warning("hook %(hook)s failed at %(stage)s: %(error)s", trouble)


def _chosen(control: Control) -> CallError:
    """The error that a hook or a tool chose."""
    if isinstance(control, Abort):
        known = control.code in CODES and CODES[control.code].status != "pending"
        details: dict[str, Any] = {} if control.http_status is None else {"http_status": control.http_status}
        if not known:
            details["code"] = control.code
        return call_error(control.code if known else "PERMISSION_DENIED", said(control.reason), details=details)
    if isinstance(control, RetryAfter):
        words = control.reason or "The call can't be served now"
        wait = control.seconds
        return Denied("RATE_LIMITED", f"{words}; try again in {wait:g} s.", details={"retry_after": wait})
    return Failed("UNEXPECTED_ERROR", f"{type(control).__name__} where it has no meaning.")

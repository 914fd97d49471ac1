"""Metrics for Prometheus and spans for OpenTelemetry, as hooks: switched off, they are not there and cost nothing."""

from collections.abc import Mapping
from typing import Any, Protocol

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.hooks import Hook, Next

FIRST = 1_000_000
SPANS = "toolgate.spans"
GROUPS = {
    "will_authorize": "authorize",
    "will_parse_input": "input",
    "will_check_consent": "consent",
    "will_acquire_quota": "quota",
    "will_read_cache": "cache",
    "will_inject_secrets": "prepare",
    "will_validate_output": "output",
    "will_audit": "record",
}
"""The stage at which a group of stages, and so its span, begins."""


class HasType(Protocol):
    """A job, as far as it is counted."""

    @property
    def type(self) -> str: ...


class CallMetrics(Hook):
    """Counts calls and how long they take."""

    priority = FIRST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ["tool", "tier", "status", "code"]
        self._calls = Counter("toolgate_calls", "Calls that ended", labels, registry=self.registry)
        self._seconds = Histogram("toolgate_call_seconds", "How long calls took", ["tool"], registry=self.registry)
        self._running = Gauge("toolgate_calls_running", "Calls on their way", registry=self.registry)
        self._cost = Counter("toolgate_cost_usd", "Dollars spent", ["tool"], registry=self.registry)
        self._hooks = Counter(
            "toolgate_hook_errors", "Hooks that failed or ran out of time, and whose call went on", ["hook", "stage"],
            registry=self.registry,
        )  # fmt: skip
        self._attempts = Counter(
            "toolgate_jobs", "Attempts at jobs that this process has ended, by the state that the job was in then",
            ["type", "state"], registry=self.registry,
        )  # fmt: skip
        self._job_seconds = Histogram(
            "toolgate_job_seconds", "How long attempts at jobs took", ["type"], registry=self.registry
        )

    def count_attempt(self, job: HasType, state: str, seconds: float) -> None:
        """Counts an attempt at a job."""
        self._attempts.labels(job.type, state).inc()
        self._job_seconds.labels(job.type).observe(seconds)

    def did_create_invoke_context(self, ctx: InvokeContext) -> None:
        ctx.data[self] = True
        self._running.inc()

    def on_metrics(self, ctx: InvokeContext) -> None:
        outcome, entry = ctx.outcome, ctx.entry
        assert outcome is not None
        tool = entry.name if entry is not None else "(unknown)"  # a caller's own words would make labels without end
        code = outcome.error.code if outcome.error is not None else ""
        self._calls.labels(tool, entry.tier if entry is not None else "", outcome.status, code).inc()
        self._seconds.labels(tool).observe(outcome.metrics.duration_ms / 1000)
        if outcome.metrics.cost_usd:
            self._cost.labels(tool).inc(outcome.metrics.cost_usd)

    def will_finalize_invoke(self, ctx: InvokeContext) -> None:
        if ctx.data.pop(self, False):
            self._running.dec()
        for trouble in ctx.hook_errors:
            self._hooks.labels(trouble["hook"], trouble["stage"]).inc()

    def text(self) -> bytes:
        """All metrics in Prometheus' format."""
        return generate_latest(self.registry)


class Tracing(Hook):
    """A span for each call, and inside it one for each group of stages."""

    priority = FIRST

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        """`provider`: where the spans go; None: to that of the program."""
        self._tracer = trace.get_tracer("toolgate", tracer_provider=provider)

    def will_create_invoke_context(self, ctx: InvokeContext) -> None:
        carried = getattr(ctx.call.caller, "trace_context", None)
        parent = _context_of(carried) if carried else None  # None: the current one
        root = self._tracer.start_span(f"toolgate.call {ctx.call.tool}"[:128], context=parent)
        root.set_attributes(
            {"toolgate.call_id": ctx.id, "toolgate.tool": ctx.call.tool, "toolgate.tenant": ctx.actor.tenant}
        )
        token = otel_context.attach(trace.set_span_in_context(root))
        ctx.data[SPANS] = _Spans(root, token)

    async def around_execute(self, ctx: InvokeContext, inner: Next) -> Any:
        spans = _spans(ctx)
        if spans is not None:
            spans.end_group()
        with self._tracer.start_as_current_span("toolgate.execute"):
            return await inner()

    def on_error(self, ctx: InvokeContext) -> None:
        spans = _spans(ctx)
        if spans is not None and ctx.error is not None:
            spans.root.set_status(StatusCode.ERROR, ctx.error.code)

    def will_finalize_invoke(self, ctx: InvokeContext) -> None:
        spans = ctx.data.pop(SPANS, None)
        if spans is None:
            return
        spans.end_group()
        if ctx.outcome is not None:
            spans.root.set_attributes({"toolgate.status": ctx.outcome.status, "toolgate.attempts": ctx.attempts})
        spans.root.end()
        otel_context.detach(spans.token)

    def begin(self, ctx: InvokeContext, group: str) -> None:
        spans = _spans(ctx)
        if spans is not None:
            spans.end_group()
            spans.group = self._tracer.start_span(f"toolgate.{group}")


class _Spans:
    """The open spans of one call."""

    def __init__(self, root: Span, token: Any) -> None:
        self.root, self.token = root, token
        self.group: Span | None = None

    def end_group(self) -> None:
        if self.group is not None:
            self.group.end()
            self.group = None


def _context_of(carried: Mapping[str, str]) -> otel_context.Context:
    """The W3C trace context that a client sent with its call; one that can't be read is none."""
    return TraceContextTextMapPropagator().extract(carried)


def _spans(ctx: InvokeContext) -> _Spans | None:
    spans = ctx.data.get(SPANS)
    return spans if isinstance(spans, _Spans) else None


def _begin(group: str) -> Any:
    return lambda self, ctx: self.begin(ctx, group)


for _stage, _group in GROUPS.items():
    setattr(Tracing, _stage, _begin(_group))

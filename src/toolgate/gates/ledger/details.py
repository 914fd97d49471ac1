"""What is kept of a call beside its records: the gates that it passed, with their times and verdicts, and its output.

It is made from the marks of the call in the writer's thread. It lies outside the hash chain, because retention removes it;
the end record holds its hash.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import orjson

from toolgate.model import Outcome, Tier, Tool
from toolgate.pipeline.stage_marks import ATTEMPT_FAILED, HOOKS_DONE, HOOKS_STOPPED, TIMED, StageMarks
from toolgate.settings import Settings

VERDICTS = {"denied": "deny", "pending": "ask"}
"""What the gate said at which a call ended, by its status; `fail` for the others."""
RETRY_WAIT = "retry wait"


class KeptStages:
    """Knows of which tools the stages are kept, and which gates have something to do for them."""

    def __init__(self, settings: Settings, mask: Callable[..., Any]) -> None:
        self._settings = settings
        self._mask = mask
        self._made: dict[tuple[int, frozenset[str]], StageMarks] = {}

    def marks(self, tool: Tool, tier: Tier, *, takes_text: bool, asks: bool) -> StageMarks | None:
        """The marks of a tool's calls, shared by tools that pass the same gates; None: nothing is kept of them."""
        settings, details = self._settings, self._settings.audit.details
        keep = next((rule.keep for rule in details.rules if rule.matches(tool.name, tier)), "nothing")
        if keep == "nothing":
            return None
        costs = bool(tool.cost.fixed or tool.cost.per_unit or any(one.estimated_cost for one in tool.capabilities))
        idle = {
            "will_check_consent": not asks,
            "will_acquire_quota": not (costs or settings.rate_limits or tool.rate_limit),
            "will_acquire_semaphore": not (settings.limits.tenant_concurrency or tool.concurrency),
            "will_redact_input": not takes_text,
            "will_read_cache": tool.cache is None,
        }
        without = frozenset(stage for stage, is_idle in idle.items() if is_idle)
        size = details.output_bytes if keep == "output" else 0
        return self._made.setdefault((size, without), StageMarks(size, self._mask, without))


class Span(msgspec.Struct, omit_defaults=True):
    """The time that a call spent at one gate. Times are milliseconds, `start_ms` from the beginning of the call."""

    gate: str
    start_ms: float
    ms: float
    """Without the time of users' hooks."""
    verdict: str
    """pass, deny, ask (a person), or fail."""
    hooks_ms: float = 0.0
    reason: str | None = None
    code: str | None = None
    attempt: int | None = None


def detail(marks: list[Any], outcome: Outcome, decision: tuple[str, ...], reason: str | None) -> bytes:
    """What is kept, as JSON."""
    _, finished_at, started_at, cached, output, size = marks[-1]
    spans = list(_spans(marks[:-1], started_at, finished_at))
    _explain(spans, outcome, decision, reason, cached=cached)
    found: dict[str, Any] = {"stages": [msgspec.to_builtins(span) for span in spans]}
    if output is not None:
        found["output_bytes"] = size
        if len(output) == size:
            found["output"] = orjson.Fragment(output)
        else:
            found["output_beginning"] = output.decode("utf-8", "ignore")
    return orjson.dumps(found)


def _spans(marks: list[Any], started_at: float, finished_at: float) -> Iterator[Span]:
    """The gates in the order in which they were passed. A gate's time ends where the next one's begins."""
    begin = since = started_at
    span, attempts = Span("catalog", 0.0, 0.0, "pass"), 0
    for mark in marks:
        name, at = mark[0], mark[1]
        if name in (HOOKS_DONE, HOOKS_STOPPED):
            span.hooks_ms = _ms(span.hooks_ms / 1000 + at - since)
            if name == HOOKS_STOPPED:
                span.reason = f"a hook at {mark[2]} ended it here"
        elif name == ATTEMPT_FAILED or name in TIMED:
            yield _closed(span, begin, at)
            begin = at
            if name == ATTEMPT_FAILED:
                span.verdict, span.code = "fail", mark[2]
            span = Span(TIMED.get(name, RETRY_WAIT), _ms(at - started_at), 0.0, "pass")
            if name == "will_execute":
                attempts += 1
                span.attempt = attempts
        since = at
    if span.gate != RETRY_WAIT:  # the call ended with the attempt that failed
        yield _closed(span, begin, finished_at)


def _closed(span: Span, begin: float, end: float) -> Span:
    span.ms = max(_ms(end - begin - span.hooks_ms / 1000), 0.0)
    return span


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 4)


def _explain(spans: list[Span], outcome: Outcome, decision: tuple[str, ...], reason: str | None, *, cached: bool) -> None:
    """Say why the gates let the call pass, and at the last one how it ended."""
    known = dict(zip(("policy", "consent"), decision, strict=False))
    for span in spans:
        span.reason = span.reason or _text(known.get(span.gate))
    last = spans[-1]
    if outcome.error is not None:
        last.verdict, last.code = VERDICTS.get(outcome.status, "fail"), outcome.error.code
        last.reason = _text(reason or outcome.error.message)
    elif cached:
        last.reason = "answered from the cache" if last.gate == "cache" else "answered with the first outcome of its key"


def _text(text: str | None) -> str | None:
    """Text that can be written as UTF-8: half of a surrogate pair is written out."""
    return text if text is None or text.isascii() else text.encode("utf-8", "backslashreplace").decode()

"""The gates of the line, in its order: for `explain`, for the reference of stages, and for a test that follows a real call.

The order that calls take is written in `invoke` and nowhere else; a test fails when this list differs from it.
"""

from typing import Any, Literal, NamedTuple

import msgspec

Verdict = Literal["pass", "deny", "ask", "unknown"]


class GateVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer that one gate would give to a call, and why."""

    gate: str
    verdict: Verdict
    reason: str
    details: dict[str, Any] | None = None
    """Of arguments that do not fit: `errors`, each with its path."""


class Gate(NamedTuple):
    stage: str
    """The stage whose hooks run before it."""
    room: str
    """The field of `Pipeline` that it is."""
    enter: str
    """Its method that a call passes."""
    does: str
    """Its purpose, for the reference."""
    explain: str | None = None
    """Its method that says what it would do, where it can refuse a call or have it asked about."""
    verdicts: tuple[str, ...] = ()
    """The names that explanations give it, where they can't be had without valid arguments."""
    timed: str = ""
    """The name that details of calls (`stage_marks`) give the time from here to the next gate that is timed."""
    mark: str = ""
    """The mark with which that time begins, where that is not the gate's stage."""


LINE: tuple[Gate, ...] = (
    Gate("", "catalog", "find", "name"),
    Gate("will_authorize", "policy", "enter", "policy", "explain", timed="policy"),
    Gate("will_check_feature_flags", "catalog", "why_off", "flags of tool and tenant", "explain"),
    Gate("will_validate_input", "inputs", "enter", "schema", "explain", timed="input", mark="will_parse_input"),
    Gate("will_normalize_input", "inputs", "seal", "defaults, canonical form"),
    Gate(
        "will_normalize_input", "policy", "enter_again", "policy on the arguments", "explain_again", ("policy_final",),
        "screening", "screening",
    ),
    Gate("will_normalize_input", "screening", "enter", "paths and commands", "explain", ("tier",)),
    Gate(
        "will_normalize_input", "idempotency", "enter", "idempotency key", "explain", ("idempotency",),
        "idempotency", "idempotency",
    ),
    Gate("will_normalize_input", "continuations", "enter", "a call that goes on"),
    Gate("will_check_consent", "budgets", "estimate", "estimate", timed="consent"),
    Gate("will_check_consent", "free_tiers", "look", "free calls left", "explain", ("free tier",)),
    Gate("will_check_consent", "secrets", "check_present", "credentials", "explain", ("credentials",)),
    Gate("will_check_consent", "consent", "enter", "approval", "explain", ("consent",)),
    Gate("will_check_consent", "spending", "enter", "spending limit of the program"),
    Gate("will_acquire_quota", "rates", "enter", "rate", "explain", timed="quota"),
    Gate("will_acquire_quota", "free_tiers", "enter", "free tier of the service"),
    Gate("will_acquire_quota", "budgets", "enter", "budget", "explain", ("budget",)),
    Gate("will_acquire_quota", "queue", "enter", "queue, for a call in the background", "explain", ("queue",)),
    Gate("will_acquire_semaphore", "concurrency", "enter", "concurrency", timed="place"),
    Gate("will_redact_input", "redaction", "enter", "the copy that records hold", timed="redaction"),
    Gate("will_read_cache", "cache", "enter", "cache", timed="cache"),
    Gate("will_inject_secrets", "secrets", "enter", "secrets", timed="start record"),
    Gate("will_inject_secrets", "ledger", "start", "start record"),
    Gate("will_execute", "execution", "run", "run", "explain", timed="execute"),
    Gate("will_validate_output", "outputs", "enter", "schema", timed="output"),
    Gate("will_redact_output", "redaction", "mask_output", "redaction", timed="masking"),
    Gate("will_transform_output", "outputs", "limit", "limits, artifact"),
    Gate("will_write_cache", "cache", "keep", "cache"),
    Gate("will_audit", "ledger", "end", "end record"),
)  # fmt: skip

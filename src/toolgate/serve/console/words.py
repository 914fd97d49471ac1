"""The words and marks of the console: one place for what a status, a tier, a door or a finished action is called."""

from typing import NamedTuple


class Mark(NamedTuple):
    """A word with the tone of its colour and the icon that stands beside it: never colour alone."""

    word: str
    tone: str
    """ok, bad, warn, wait or quiet"""
    icon: str


STATUSES = {
    "success": Mark("success", "ok", "✓"),
    "failure": Mark("failed", "bad", "✗"),
    "timeout": Mark("timed out", "bad", "✗"),
    "denied": Mark("denied", "bad", "⊘"),
    "pending": Mark("waiting", "wait", "◔"),
}
"""Of calls."""

STATES = {
    "waiting": Mark("waiting", "wait", "◔"),
    "approved": Mark("approved", "ok", "✓"),
    "rejected": Mark("rejected", "bad", "✗"),
    "expired": Mark("expired", "quiet", "—"),
    "used": Mark("approved and run", "ok", "✓"),
    "queued": Mark("queued", "wait", "◔"),
    "running": Mark("running", "wait", "▸"),
    "done": Mark("done", "ok", "✓"),
    "failed": Mark("failed", "bad", "✗"),
    "parked": Mark("parked", "warn", "▲"),
    "cancelled": Mark("cancelled", "quiet", "—"),
    "paused": Mark("paused", "quiet", "—"),
    "active": Mark("active", "ok", "✓"),
    "up": Mark("up", "ok", "✓"),
    "down": Mark("down", "bad", "✗"),
    "quarantined": Mark("quarantined", "wait", "◔"),
    "ended": Mark("ended", "quiet", "—"),
    "ok": Mark("works", "ok", "✓"),
    "degraded": Mark("needs attention", "warn", "▲"),
    "valid": Mark("valid", "ok", "✓"),
    "revoked": Mark("revoked", "quiet", "—"),
    "open": Mark("open", "wait", "◔"),
    "accepted": Mark("accepted", "ok", "✓"),
    "enabled": Mark("enabled", "ok", "✓"),
    "disabled": Mark("disabled", "quiet", "—"),
    "off": Mark("off", "quiet", "—"),
    "idle": Mark("not started", "quiet", "○"),
    "starting": Mark("starting", "wait", "▸"),
    "resting": Mark("backing off after failures", "warn", "▲"),
}
"""Of approvals, jobs, servers and the like."""

TIERS = {
    "read_only": Mark("only reads", "quiet", "○"),
    "write": Mark("changes data here", "warn", "▲"),
    "execute": Mark("runs programs here", "bad", "◆"),
    "external_api": Mark("acts on other services", "bad", "◆"),
}

GATES = {
    "catalog": ("Tool", "found"),
    "flags": ("Flags", "the tool is enabled"),
    "policy": ("Policy", "allows it"),
    "policy_final": ("Policy on the arguments", "allows it"),
    "input": ("Arguments", "match the schema"),
    "tier": ("Paths and commands", "allowed"),
    "screening": ("Paths and commands", "allowed"),
    "idempotency": ("Idempotency key", "checked"),
    "free tier": ("Free calls", "checked"),
    "credentials": ("Credentials", "present"),
    "consent": ("Approval", "nobody had to be asked"),
    "rate": ("Rate", "within the limits"),
    "quota": ("Budget and rate", "within the limits"),
    "budget": ("Budget", "within the limits"),
    "queue": ("Queue", "there was room"),
    "place": ("Place to run", "there was room"),
    "redaction": ("Masking for records", "searched for secrets"),
    "cache": ("Cache", "checked"),
    "start record": ("Secrets, start record", "recorded before it ran"),
    "breaker": ("Circuit", "closed"),
    "runner": ("Runner", "available"),
    "model": ("Model", "available"),
    "execute": ("Run", "the tool answered"),
    "retry wait": ("Wait before the next attempt", ""),
    "around hooks": ("Hooks around the run", ""),
    "output": ("Output", "matches the output schema"),
    "masking": ("Masking of output", "searched for secrets"),
}
"""Of each gate: its name, and what it says by letting a call pass where it gives no reason."""

VERDICTS = {
    "pass": Mark("passed", "ok", "✓"),
    "run": Mark("would run", "ok", "✓"),
    "deny": Mark("denied", "bad", "⊘"),
    "ask": Mark("asks a person", "wait", "◔"),
    "fail": Mark("failed", "bad", "✗"),
    "unknown": Mark("not known", "quiet", "·"),
}
"""Of gates."""
SOURCES = {
    "builtin": "built in", "teams": "Teams", "python": "Python", "workflow": "workflow", "mcp": "MCP server",
    "openapi": "OpenAPI", "custom": "custom", "dynamic": "run time",
}  # fmt: skip

DOORS = {"http": "HTTP", "mcp": "MCP", "cli": "the command line", "python": "Python", "console": "the console"}

DONE = {
    "ran-again": "This is the new call, with the arguments of the one before.",
    "undone": "The files are as they were before the call.",
    "approved": "Approved.",
    "approved-run": "Approved, and the call was made.",
    "rejected": "Rejected.",
    "agreed": "Your yes is counted. Others must agree as well before it runs.",
    "revoked": "Revoked: it covers no call any more.",
    "feedback": "Thank you: the feedback is kept.",
    "limit-accepted": "Accepted: the limit holds from now on.",
    "suggestion-rejected": "Rejected: it does not hold, and is not suggested again.",
    "saved": "Saved.",
    "removed": "Removed.",
    "job-retried": "The job is queued again.",
    "job-cancelled": "The job is cancelled, or will be as soon as its worker hears of it.",
    "schedule-added": "The schedule is added.",
    "schedule-paused": "The schedule is paused: it fires no more until it is resumed.",
    "schedule-resumed": "The schedule fires again, from its next time on.",
    "schedule-run": "A job is queued now, besides the times of the schedule.",
    "key-revoked": "The key is revoked: no process takes it any more.",
    "signed-out": "The browser is signed out.",
    "enabled": "Enabled. It holds for the next call.",
    "disabled": "Disabled. The next call is denied.",
    "flag-removed": "The flag is removed. What holds for everybody holds again.",
    "accepted": "Accepted. It can be called now.",
    "synced": "The newest bundle was received.",
    "refreshed": "The server was asked what it has now.",
    "restarted": "The server is started again.",
    "server-added": "Added. None of its tools can be called before you accept it below.",
    "budget-set": "The budget is set. It holds from the next call on.",
    "budget-removed": "The budget is removed.",
}
"""Sentences that are shown once after something was done. An address names one; it cannot bring words of its own."""


def made_mark(parts: tuple[str, str, str]) -> Mark:
    """A mark of a template's own: word, tone, icon."""
    return Mark(*parts)


def mark_of(word: str) -> Mark:
    """The mark of a status or a state; one that has none is shown as it is."""
    return STATUSES.get(word) or STATES.get(word) or Mark(word.replace("_", " "), "quiet", "·")


def door_of(name: str) -> str:
    """The word of a door in a table."""
    return DOORS.get(name, name).replace("the ", "")


def gate_of(name: str) -> tuple[str, str]:
    return GATES.get(name) or (name.replace("_", " ").capitalize(), "")


def verdict_of(word: str) -> Mark:
    return VERDICTS.get(word) or Mark(word, "quiet", "·")


REASONS = {
    "tier execute asks for every run": "tools that run programs here ask each time",
    "tier external_api asks for every call": "tools that act on other services ask each time",
}
"""Reasons why a person is asked, in the words of people who do not know the tiers."""


CODES = {
    "INVOCATION_ERROR": "tool failed", "MCP_ERROR": "MCP server failed", "VALIDATION_ERROR": "wrong arguments",
    "TIMEOUT": "timed out",
}  # fmt: skip
"""Of error codes whose name says less than these words."""


def code_words(code: str) -> str:
    """An error code in words; the code itself stands beside them or in their title."""
    return CODES.get(code) or code.replace("_", " ").lower()


def asked_because(reason: str) -> str:
    for told, words in REASONS.items():
        reason = reason.replace(told, words)
    return reason


def tier_of(word: str) -> Mark:
    return TIERS.get(word) or Mark(word.replace("_", " "), "quiet", "·")

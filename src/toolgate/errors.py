"""All errors, as one tree; below everything, it imports nothing of ours.

    ToolgateError
    ├── CallError                  a call ended otherwise than by success; raised by outcome.raise_for_status()
    │   ├── Denied                 PERMISSION_DENIED SECURITY_VIOLATION USER_CANCELLED MISSING_AUTH
    │   │                          BUDGET_EXCEEDED RATE_LIMITED
    │   ├── Failed                 TOOL_NOT_FOUND VALIDATION_ERROR CAPACITY_EXCEEDED CIRCUIT_OPEN MCP_ERROR N8N_ERROR
    │   │                          INVOCATION_ERROR CONNECTION_ERROR SANDBOX_ERROR SANDBOX_UNAVAILABLE OUTPUT_INVALID
    │   │                          IDEMPOTENCY_CONFLICT OUTCOME_UNKNOWN CANCELLED UNKNOWN_TOOL_TYPE UNEXPECTED_ERROR
    │   │   └── NotReached         one of them, before the tool was reached
    │   ├── TimedOut               TIMEOUT
    │   └── Pending                APPROVAL_REQUIRED, or queued: waiting is a value, this is how it travels inside
    ├── ToolError                  what a tool's author raises; InvalidInput is its most common kind
    ├── DefinitionError            a tool definition that is refused, with the path of every fault
    ├── SettingsError              a setting that is wrong, with its name and where it was read
    ├── StoreError                 the database can't be used, with what to do about it
    ├── PolicyError                the policy or its data can't be used (gates.policy)
    ├── ApprovalError              an approval or grant can't be given, answered or found (gates.approval)
    ├── NotUndone                  a call can't be undone (undo)
    ├── FeedbackRefused            feedback, or the answer to a suggestion, that is not taken (learning)
    ├── MissingExtra               an optional part is not installed, with the command that installs it (extras)
    ├── KeyRefused                 an API key can't be made or revoked
    ├── SignInRefused              a sign-in link can't be made, or a browser's session ended
    ├── NotServing                 the HTTP server can't be started
    ├── CoordinationError          Redis, or the file beside the database, can't be used (coordination.redis)
    ├── NotRegistered              misuse: a function is called that is not registered
    └── NotOpen                    misuse: the App is not open

Each call error has one code; `CODES` says what a code means for status and retry. Doors translate codes with one
table of their own (exit codes in `cli`, HTTP statuses in `serve`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, NamedTuple

Status = Literal["success", "failure", "timeout", "denied", "pending"]


ErrorCategory = Literal["invalid", "missing", "conflict", "forbidden"]
"""The reason for which something is refused: it is wrong in itself, there is no such thing (or none that the asker may see),
it does not go with what is there by now, or the asker may not."""


class Code(NamedTuple):
    """The meaning of one error code: the status of the outcome, whether trying again may help, and its usual words."""

    status: Status
    retryable: bool
    message: str


CODES: dict[str, Code] = {
    "TOOL_NOT_FOUND": Code("failure", False, "There is no tool of that name."),
    "VALIDATION_ERROR": Code("failure", False, "The arguments do not fit the tool's schema."),
    "INVALID_INPUT": Code("failure", False, "The tool cannot work with these arguments."),
    "PERMISSION_DENIED": Code("denied", False, "This caller may not use this tool."),
    "SECURITY_VIOLATION": Code("denied", False, "The call breaks a security rule."),
    "APPROVAL_REQUIRED": Code("pending", False, "The call waits for a person's approval."),
    "USER_CANCELLED": Code("denied", False, "A person rejected the call."),
    "MISSING_AUTH": Code("denied", False, "A credential that the tool needs is missing."),
    "BUDGET_EXCEEDED": Code("denied", False, "The call would exceed a budget."),
    "RATE_LIMITED": Code("denied", True, "Too many calls."),
    "CAPACITY_EXCEEDED": Code("failure", True, "Too many calls are running at once."),
    "CIRCUIT_OPEN": Code("failure", True, "The circuit of the target is open after repeated failures."),
    "TIMEOUT": Code("timeout", True, "The tool did not finish in time."),
    "MCP_ERROR": Code("failure", False, "The MCP server answered with an error."),
    "N8N_ERROR": Code("failure", False, "The workflow answered with an error."),
    "INVOCATION_ERROR": Code("failure", False, "The tool raised an error."),
    "CONNECTION_ERROR": Code("failure", True, "The target could not be reached."),
    "SANDBOX_ERROR": Code("failure", False, "The sandboxed code failed."),
    "SANDBOX_UNAVAILABLE": Code("failure", False, "No sandbox can enforce the limits on this machine."),
    "OUTPUT_INVALID": Code("failure", False, "The tool's output is not what it promised."),
    "IDEMPOTENCY_CONFLICT": Code("failure", False, "The idempotency key was used for another call."),
    "OUTCOME_UNKNOWN": Code("failure", False, "The call may have had its effect, but no record says so."),
    "CANCELLED": Code("failure", False, "The call was cancelled."),
    "UNKNOWN_TOOL_TYPE": Code("failure", False, "Nothing here can run a tool of this kind."),
    "UNEXPECTED_ERROR": Code("failure", False, "Toolgate failed unexpectedly."),
}


UNSURE = frozenset({"TIMEOUT", "CANCELLED", "OUTCOME_UNKNOWN"})
"""Codes of an attempt that reached the tool and may have had its effect all the same."""


def said(words: object) -> str:
    """Whatever was given as words, as text; also if it refuses to say what it is."""
    try:
        return words if isinstance(words, str) else str(words)
    except Exception:  # noqa: BLE001 - its own __str__ failed, with whatever
        return f"(a {type(words).__name__} that cannot be shown)"


def quoted(text: str, most: int = 40) -> str:
    """A text in quotation marks; of a longer one, how long it is. Nothing is cut, because half a secret is not known as one
    when the message is masked."""
    return repr(text) if len(text) <= most else f"of {len(text):,} characters"


def unknown(given: object, known: Sequence[str]) -> str:
    """Words for a value that is none of those that are known."""
    shown = quoted(given) if isinstance(given, str) else f"a {type(given).__name__}"
    near = nearest(given, known) if isinstance(given, str) else None
    listed = f"{', '.join(known[:-1])} or {known[-1]}"
    return f"{shown} is unknown, did you mean {near}? It can be {listed}" if near else f"{shown} is unknown: use {listed}"


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters, cut between words, so that none is left whose end is missing."""
    if len(text) <= most:
        return text
    whole = text[: most + 1].rsplit(None, 1)[0]
    return whole if len(whole) <= most else f"({len(text):,} characters)"


def described(error: BaseException) -> str:
    """An exception in words: its class, and what it says."""
    words = said(error)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


class ToolgateError(Exception):
    """Something went wrong in Toolgate.

    `message` says what, `suggestion` what to do about it.
    """

    category: ErrorCategory = "invalid"

    def __init__(
        self, message: str | None = None, *, suggestion: str | None = None, category: ErrorCategory | None = None
    ) -> None:
        self.message = said(message) if message else (type(self).__doc__ or "").split("\n", 1)[0]
        self.suggestion = said(suggestion) if suggestion else None
        if category is not None:
            self.category = category
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} {self.suggestion}" if self.suggestion else self.message


class CallError(ToolgateError):
    """A call ended otherwise than by success."""

    code: str = "UNEXPECTED_ERROR"
    charged: bool = True
    """True if an attempt that ended so may have had its effect, and is paid for. False only where the tool was not reached,
    or its own error says that it did nothing."""

    def __init__(
        self,
        code: str | None = None,
        message: str | None = None,
        *,
        retryable: bool | None = None,
        suggestion: str | None = None,
        details: Mapping[str, Any] | None = None,
        reason: str | None = None,
        category: ErrorCategory | None = None,
    ) -> None:
        known = CODES[code or self.code]
        super().__init__(message or known.message, suggestion=suggestion, category=category)
        self.code = code or self.code
        self.status: Status = known.status
        self.retryable = known.retryable if retryable is None else retryable
        self.details = dict(details) if details else None
        self.reason = reason
        """The words of the audit log, where it may say more than the caller is told."""


class Denied(CallError):
    """A gate refused the call."""

    code = "PERMISSION_DENIED"


class Failed(CallError):
    """The call failed."""


class NotReached(Failed):
    """The call failed on its way to the tool: nothing was run."""

    charged = False


class TimedOut(CallError):
    """The tool did not finish in time."""

    code = "TIMEOUT"


def timed_out(
    seconds: float, *, attempts: int = 1, suggestion: str | None = None, details: Mapping[str, Any] | None = None
) -> TimedOut:
    """The error of a tool whose time ran out, the same whatever runs it."""
    tried = "" if attempts == 1 else f", in {attempts} attempts"
    return TimedOut(
        message=f"The tool did not finish within {seconds:g} s{tried}.",
        suggestion=suggestion
        or "Give it less to do, or more time: its limit is the least of the call's and the tool's own.",
        details=details,
    )


class Pending(CallError):
    """The call waits for a person or for a queue."""

    code = "APPROVAL_REQUIRED"

    def __init__(self, code: str | None = None, message: str | None = None, *, kind: str, id: str, **rest: Any) -> None:
        super().__init__(code, message, **rest)
        self.kind = kind
        self.id = id


_CLASSES: dict[Status, type[CallError]] = {"denied": Denied, "failure": Failed, "timeout": TimedOut}


NO_SUCH_TOOL = "no such tool"
"""The log's words for a name that nothing has, and for no other."""


def printable(name: Any) -> str:
    """A name that somebody made up, fit for messages and records."""
    return (name if isinstance(name, str) else type(name).__name__)[:64].encode("unicode_escape").decode()


def not_found(name: Any, reason: str | None = None) -> Failed:
    """The error of a tool that does not exist, and of one that the caller may not see: the same."""
    return Failed(
        "TOOL_NOT_FOUND",
        f"There is no tool named '{printable(name)}'.",
        suggestion="`toolgate tools list` shows the tools that you have.",
        reason=reason or NO_SUCH_TOOL,
    )


def call_error(code: str, message: str | None = None, **rest: Any) -> CallError:
    """The error of the right class for a code that is not `pending`."""
    return _CLASSES[CODES[code].status](code, message, **rest)


NO_EFFECT = frozenset({"INVALID_INPUT", "VALIDATION_ERROR", "MISSING_AUTH"})
"""Codes of a ToolError by which a tool says that it did nothing, unless its `charged` says otherwise."""


class ToolError(ToolgateError):
    """The tool can't do what was asked. `charged=False`: it did nothing that costs anything, so the call is not paid for."""

    default_code: ClassVar[str] = "INVOCATION_ERROR"

    def __init__(
        self,
        message: str | None = None,
        *,
        code: str | None = None,
        retryable: bool | None = None,
        suggestion: str | None = None,
        details: Mapping[str, Any] | None = None,
        charged: bool | None = None,
    ) -> None:
        super().__init__(message, suggestion=suggestion)
        self.code = code or self.default_code
        self.charged = self.code not in NO_EFFECT if charged is None else charged
        self.retryable = retryable
        self.details = dict(details) if details else None


class InvalidInput(ToolError):
    """The tool can't work with these arguments."""

    default_code = "INVALID_INPUT"


class Fault(NamedTuple):
    """One thing wrong with a definition or with arguments: where, and what."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path or '(top)'}: {self.message}"


class DefinitionError(ToolgateError):
    """A tool definition is not valid."""

    def __init__(
        self, name: str, faults: Sequence[Fault], *, suggestion: str | None = None, where: str | None = None
    ) -> None:
        self.name = name
        self.faults = tuple(faults)
        self.where = where
        """The file and line of its code, if it has any."""
        listed = "; ".join(str(fault) if fault.path else fault.message for fault in self.faults)
        if suggestion is not None:
            listed = f"{listed}."
        place = f" ({where})" if where else ""
        super().__init__(f"The definition of tool {name!r}{place} is refused: {listed}", suggestion=suggestion)

    def at(self, where: str | None) -> "DefinitionError":
        """The same, with the place of its code if none is known yet, or without any."""
        if where is None or self.where is None:
            return DefinitionError(self.name, self.faults, suggestion=self.suggestion, where=where)
        return self


class SettingsError(ToolgateError):
    """A setting is not valid."""


class StoreError(ToolgateError):
    """The database can't be used."""


MAX_SUGGESTIONS = 3


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The question after names that are spelled nearly like a word; None if there are none."""
    near = _close(word, known, MAX_SUGGESTIONS, 0.7)
    return f"Did you mean {' or '.join(near)}?" if near else None


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one name that is spelled most like a word; None if none is spelled nearly so."""
    return next(iter(_close(word, known, 1, 0.6)), None)


def _close(word: str, known: Iterable[str], most: int, alike: float) -> list[str]:
    names = {name.lower(): name for name in known}
    return [names[name] for name in get_close_matches(word[:64].lower(), names, most, alike)]


def span_words(seconds: float) -> str:
    """A time to wait, for people: never less than it is."""
    if seconds <= 60:
        return f"{seconds:g} s"
    minutes, left = divmod(math.ceil(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {left} s"
    hours, minutes = divmod(math.ceil(seconds / 60), 60)
    return f"{hours} h {minutes} min"


def plural(number: int, word: str) -> str:
    """A number of things: 1 call, 2 calls."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


class KeyRefused(ToolgateError):
    """The API key can't be made or revoked."""


class SignInRefused(ToolgateError):
    """The sign-in link can't be made, or the session can't be ended."""


class BundleRefused(ToolgateError):
    """The bundle of an organisation is refused."""


class NotServing(ToolgateError):
    """The HTTP server can't be started."""


class NotRegistered(ToolgateError):
    """The tool is not registered."""


class NotOpen(ToolgateError):
    """The App is not open: use it inside `async with App.open() as app:`."""

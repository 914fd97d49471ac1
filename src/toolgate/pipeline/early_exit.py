"""Ways out of the line that a hook, a tool or a call inside a call chooses: raised, and understood by the pipeline alone."""

from typing import Any

from toolgate.errors import CallError


class Control(BaseException):
    """A way out of the straight line that a hook or a tool chose. Not an Exception, so that `except Exception` in their
    own code does not catch it by accident."""


class Respond(Control):
    """Go on to the output stages with this value."""

    def __init__(self, value: Any) -> None:
        super().__init__("respond")
        self.value = value


class Abort(Control):
    def __init__(self, reason: str, code: str, http_status: int | None) -> None:
        super().__init__(reason)
        self.reason, self.code, self.http_status = reason, code, http_status


class RetryAfter(Control):
    """End the call and tell the caller when to come again."""

    def __init__(self, milliseconds: float, reason: str | None) -> None:
        super().__init__(reason or "retry later")
        self.seconds, self.reason = milliseconds / 1000, reason


class Halt(Control):
    """A call from inside this one can't go on: neither can this one, whatever its tool makes of it."""

    def __init__(self, error: CallError) -> None:
        super().__init__(error.message)
        self.error = error

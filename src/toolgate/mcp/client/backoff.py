"""How often a server failed in a row, and when it is started again: after a wait that doubles, with full jitter, and after
too many failures after a long rest."""

import random
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Literal

from toolgate.mcp.client.errors import SessionLost, Unreachable
from toolgate.mcp.client.untrusted_text import innermost, sentence, span
from toolgate.settings import ServerSettings

if TYPE_CHECKING:
    from toolgate.mcp.client.connection import ServerChannel

FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.5, 30.0
"""Seconds: between these the longest wait doubles."""
STDERR_PREFIX = " The last that it said: "
MAX_WAIT_FOR_START_SECONDS = 3.0
"""Seconds: a start that is so near is waited for."""


class ProcessExited(Unreachable):
    """A server went away when it was asked whether it speaks the new protocol: some that don't, do. It is asked no more."""


class RestartBackoff:
    """Of one server."""

    def __init__(self, name: str, settings: ServerSettings, conceal: Callable[[str], str]) -> None:
        """`conceal`: masks the server's secrets in words of its own."""
        self.in_a_row = 0
        self.failed_starts = 0
        """In all."""
        self.failure: Unreachable | None = None
        """What went wrong last, until it is up again: as anybody may know it."""
        self._said = ""
        """The last that the server said then, if it had been asked something: it may be about anybody's call, so it is for
        operators only."""
        self.last_lines: tuple[str, ...] = ()
        """The last that it said when it could not be started: about nobody's call."""
        self._name = name
        self._settings = settings
        self._conceal = conceal
        self._next = 0.0

    def failed(self) -> tuple[float, Literal["waiting", "resting"]]:
        """Count a failure. The seconds until the next try, and what the server is until then."""
        self.in_a_row += 1
        rests = self.in_a_row > self._settings.restarts
        longest = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(self.in_a_row - 1, 16))
        wait = self._settings.rest_seconds if rests else random.uniform(0, longest)
        self._next = monotonic() + wait
        return wait, "resting" if rests else "waiting"

    def note(self, failure: Unreachable, said: str = "", lines: tuple[str, ...] = ()) -> None:
        """Keep it, fit to be shown. `said`: the last words of the server, if those may be about a call. `lines`: if not."""
        self.last_lines = lines
        self.failure = Unreachable(failure.code, self._conceal(failure.message), suggestion=failure.suggestion)
        self._said = self._conceal(said)

    def words(self) -> str | None:
        """What went wrong last, for operators."""
        return with_stderr(str(self.failure), self._said) if self.failure is not None else None

    def forget(self) -> None:
        """Begin anew."""
        self.in_a_row, self.failure = 0, None

    def soon(self) -> None:
        """The next try comes as soon as what is left of the last one is gone."""
        self._next = monotonic()

    @property
    def left(self) -> float:
        """Seconds until the next try."""
        return max(0.0, self._next - monotonic())

    def unreachable(self) -> Unreachable:
        """For whoever asks meanwhile: why not, and when again."""
        failure, left = self.failure, self.left
        words = [f"The server {self._name} can't be used.", failure.message if failure is not None else ""]
        if left:
            words.append(f"The next try is in {span(left)}.")
        code, suggestion = (failure.code, failure.suggestion) if failure is not None else (None, None)
        return Unreachable(code, " ".join(filter(None, words)), suggestion=suggestion)


async def start_failure(error: Exception, line: "ServerChannel | None", settings: ServerSettings) -> Unreachable:
    """Why a server did not start: what the transport knows says more than what was raised. It was asked nothing yet, so its
    last words are about nobody's call, and help whoever set it up."""
    inner = innermost(error)
    if line is None or isinstance(inner, SessionLost):
        return inner if isinstance(inner, Unreachable) else Unreachable(message=sentence(error))
    if isinstance(inner, TimeoutError):
        words = f"It did not say what it is within {span(settings.start_seconds)} (setting start_seconds)."
        return Unreachable(message=with_stderr(words, line.said()))
    if not isinstance(inner, Unreachable):
        why = await line.why()
        return Unreachable(message=with_stderr(why, line.said()) if why else sentence(error))
    why = await line.why() if inner.suggestion is None else None
    kind = ProcessExited if isinstance(inner, ProcessExited) else Unreachable
    words = with_stderr(why, line.said()) if why else inner.message
    return kind(inner.code, words, suggestion=inner.suggestion)


def with_stderr(words: str, said: str) -> str:
    """Words of ours, and the last of the server's."""
    return f"{words}{STDERR_PREFIX}{said}" if said else words

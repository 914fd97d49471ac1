"""Restarts a server with exponential backoff and jitter; after too many failures, once per `rest_seconds`."""

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
"""The upper bound of the random wait doubles between these."""
STDERR_PREFIX = " The end of its stderr: "
MAX_WAIT_FOR_START_SECONDS = 3.0
"""A call waits for a start that is nearer than this."""


class ProcessExited(Unreachable):
    """A server exited on `server/discover`, as some that don't know it do. It is not sent again."""


class RestartBackoff:
    """The failures of one server, and when it is started next."""

    def __init__(self, name: str, settings: ServerSettings, mask: Callable[[str], str]) -> None:
        """`mask` masks the server's secrets in a text."""
        self.in_a_row = 0
        self.failed_starts = 0
        self.failure: Unreachable | None = None
        """The last failure, until it is up again: without what is for operators only."""
        self._said = ""
        """The end of its stderr after a request was sent: for operators only, since it may be about anybody's call."""
        self.last_lines: tuple[str, ...] = ()
        """The end of the stderr of a failed start: about nobody's call."""
        self._name = name
        self._settings = settings
        self._mask = mask
        self._next = 0.0

    def failed(self) -> tuple[float, Literal["waiting", "resting"]]:
        """Counts a failure; returns the seconds until the next start, and the state until then."""
        self.in_a_row += 1
        rests = self.in_a_row > self._settings.restarts
        longest = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(self.in_a_row - 1, 16))
        wait = self._settings.rest_seconds if rests else random.uniform(0, longest)
        self._next = monotonic() + wait
        return wait, "resting" if rests else "waiting"

    def note(self, failure: Unreachable, said: str = "", lines: tuple[str, ...] = ()) -> None:
        """Stores a failure, masked. `said`: stderr that may be about a call; `lines`: stderr of a failed start."""
        self.last_lines = lines
        self.failure = Unreachable(failure.code, self._mask(failure.message), suggestion=failure.suggestion)
        self._said = self._mask(said)

    def words(self) -> str | None:
        """The last failure, for operators."""
        return with_stderr(str(self.failure), self._said) if self.failure is not None else None

    def forget(self) -> None:
        self.in_a_row, self.failure = 0, None

    def soon(self) -> None:
        """Makes the next start due as soon as the last one has ended."""
        self._next = monotonic()

    @property
    def left(self) -> float:
        """Seconds until the next start."""
        return max(0.0, self._next - monotonic())

    def unreachable(self) -> Unreachable:
        """The error of a call meanwhile: the cause, and when the next start is."""
        failure, left = self.failure, self.left
        words = [f"Server {self._name} is unavailable.", failure.message if failure is not None else ""]
        if left:
            words.append(f"The next start is in {span(left)}.")
        code, suggestion = (failure.code, failure.suggestion) if failure is not None else (None, None)
        return Unreachable(code, " ".join(filter(None, words)), suggestion=suggestion)


async def start_failure(error: Exception, channel: "ServerChannel | None", settings: ServerSettings) -> Unreachable:
    """Explains why a server did not start: what the transport knows says more than the exception. Nothing was sent yet, so
    its stderr is about nobody's call."""
    inner = innermost(error)
    if channel is None or isinstance(inner, SessionLost):
        return inner if isinstance(inner, Unreachable) else Unreachable(message=sentence(error))
    if isinstance(inner, TimeoutError):
        words = f"It did not complete the handshake within {span(settings.start_seconds)} (setting start_seconds)."
        return Unreachable(message=with_stderr(words, channel.said()))
    if not isinstance(inner, Unreachable):
        why = await channel.why()
        return Unreachable(message=with_stderr(why, channel.said()) if why else sentence(error))
    why = await channel.why() if inner.suggestion is None else None
    kind = ProcessExited if isinstance(inner, ProcessExited) else Unreachable
    words = with_stderr(why, channel.said()) if why else inner.message
    return kind(inner.code, words, suggestion=inner.suggestion)


def with_stderr(words: str, said: str) -> str:
    return f"{words}{STDERR_PREFIX}{said}" if said else words

"""Text of servers in a form that can be shown, and exceptions as one sentence."""

import asyncio

from toolgate.settings import ServerSettings

CONTROL_CHARACTERS = dict.fromkeys(
    (*range(9), 11, 12, *range(14, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), None
)
"""Characters that a terminal would obey, or that reverse the direction of text; not tab and newline."""


def printable(text: str | bytes, most: int) -> str:
    """Cuts a text and removes control characters."""
    words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    words = words.translate(CONTROL_CHARACTERS)
    return words if len(words) <= most else f"{words[:most]}…"


def size(number: int) -> str:
    return f"{number / 1_048_576:.0f} MB" if number >= 1_048_576 else f"{number / 1024:.0f} KB"


def span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"


def longest_timeout(settings: ServerSettings) -> float:
    """The longest timeout of any call in the settings, in seconds; 0 if they have none."""
    return max([0.0, *(one for one in (settings.timeout, *(tool.timeout for tool in settings.tools.values())) if one)])


def sentence(error: BaseException) -> str:
    """One sentence for any exception, also for a group."""
    first = innermost(error)
    if isinstance(first, TimeoutError):
        return "It took too long."
    words = " ".join(printable(str(first), 500).split()) or type(first).__name__
    return words if words.endswith((".", "!", "?", "…")) else f"{words}."


def innermost(error: BaseException) -> BaseException:
    """The most telling exception of a group: one that is not just the cancelling of the others."""
    while isinstance(error, BaseExceptionGroup):
        inner = error.exceptions
        error = next((one for one in inner if not isinstance(one, asyncio.CancelledError)), inner[0])
    return error

"""What strangers say, in a form that can be shown; and exceptions as one sentence."""

import asyncio

from toolgate.settings import ServerSettings

CONTROL_CHARACTERS = dict.fromkeys(
    (*range(9), 11, 12, *range(14, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), None
)
"""Characters that a terminal would obey, or that turn the order of others round; not the tab and the ends of lines."""


def printable(text: str | bytes, most: int) -> str:
    """Cut, and without anything that a terminal would obey."""
    words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    words = words.translate(CONTROL_CHARACTERS)
    return words if len(words) <= most else f"{words[:most]}…"


def size(number: int) -> str:
    """Bytes, for people."""
    return f"{number / 1_048_576:.0f} MB" if number >= 1_048_576 else f"{number / 1024:.0f} KB"


def span(seconds: float) -> str:
    """Seconds, for people."""
    return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"


def longest_timeout(settings: ServerSettings) -> float:
    """Seconds: the most that the settings give any call; 0 if they say nothing of it."""
    return max([0.0, *(one for one in (settings.timeout, *(tool.timeout for tool in settings.tools.values())) if one)])


def sentence(error: BaseException) -> str:
    """One clear sentence out of whatever was raised, also out of a group."""
    first = innermost(error)
    if isinstance(first, TimeoutError):
        return "It took too long."
    words = " ".join(printable(str(first), 500).split()) or type(first).__name__
    return words if words.endswith((".", "!", "?", "…")) else f"{words}."


def innermost(error: BaseException) -> BaseException:
    """The one of a group that says the most: one that is not just the cancelling of the others."""
    while isinstance(error, BaseExceptionGroup):
        inner = error.exceptions
        error = next((one for one in inner if not isinstance(one, asyncio.CancelledError)), inner[0])
    return error

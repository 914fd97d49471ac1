"""`echo` and `timestamp`: the smallest tools, good for a first call and for finding out whether anything works."""

import re
from datetime import UTC, datetime

from typing_extensions import TypedDict

from toolgate.errors import InvalidInput, quoted
from toolgate.model import ErrorCase, Example
from toolgate.registry.decorator import tool

MAX_PATTERN = 200
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_PORTABLE = frozenset("aAbBcdfGHIjmMpSuUVwWxXyYzZ%")
"""The strftime directives that mean the same on every platform."""


class Echoed(TypedDict):
    """The text that was given."""

    text: str


class Timestamp(TypedDict):
    """The current time, and the format it is in."""

    timestamp: str | int
    format: str


@tool(
    tier="read_only",
    category="development",
    tags=["executor", "text"],
    capabilities=["echo"],
    pure=True,
    examples=[Example(name="hello", arguments={"text": "Hello"}, output={"text": "Hello"})],
)
async def echo(text: str) -> Echoed:
    """Echo text back, unchanged.

    Args:
        text: The text to give back.
    """
    return {"text": text}


@tool(
    tier="read_only",
    category="development",
    tags=["executor", "time"],
    capabilities=["now"],
    pure=True,
    errors=[ErrorCase("INVALID_INPUT", "the format is unknown", "Use iso, unix, unix_ms or a strftime pattern.")],
    examples=[
        Example(name="ISO 8601", arguments={}),
        Example(name="seconds since 1970", arguments={"format": "unix"}),
        Example(name="no format", arguments={"format": "tomorrow"}, error="INVALID_INPUT"),
    ],
)
async def timestamp(format: str = "iso") -> Timestamp:  # noqa: A002
    """Get the current timestamp, in UTC.

    Args:
        format: "iso" for ISO 8601 text, "unix" for whole seconds, "unix_ms" for whole milliseconds since 1970, or a
            strftime pattern such as "%Y-%m-%d %H:%M".
    """
    now = datetime.now(UTC)
    match format:
        case "iso":
            return {"timestamp": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"), "format": format}
        case "unix":
            return {"timestamp": int(now.timestamp()), "format": format}
        case "unix_ms":
            return {"timestamp": int(now.timestamp() * 1000), "format": format}
    return {"timestamp": _strftime(now, format), "format": format}


def _strftime(now: datetime, pattern: str) -> str:
    if len(pattern) > MAX_PATTERN:
        raise InvalidInput(f"The format is {len(pattern)} characters long; {MAX_PATTERN} is the most.")
    directives = _DIRECTIVE.findall(pattern)
    unknown = [letter for letter in directives if letter not in _PORTABLE]
    if unknown or not directives:
        raise InvalidInput(
            f"There is no directive %{unknown[0]}." if unknown else f"The pattern {quoted(pattern)} is not a format.",
            suggestion='Use "iso", "unix", "unix_ms" or a strftime pattern such as "%Y-%m-%d %H:%M:%S".',
        )
    try:
        return now.strftime(pattern)
    except ValueError as error:
        raise InvalidInput(
            f"No time can be written in the format {quoted(pattern)}.",
            suggestion="Remove NUL characters and halves of surrogate pairs from it.",
        ) from error

"""What a probe of the doctor gives."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Status = Literal["ok", "unused", "warning", "fault"]
"""ok: it can be used. unused: it is not in use, or can't be used, and nothing waits for it."""


class Check(NamedTuple):
    """What a probe found."""

    name: str
    status: Status
    message: str
    advice: str | None = None
    details: Mapping[str, str] | None = None
    """More of it, for programs."""

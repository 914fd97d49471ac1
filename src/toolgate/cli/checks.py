"""What a probe of the doctor gives."""

from typing import Literal, NamedTuple


class Check(NamedTuple):
    """What a probe found."""

    name: str
    status: Literal["ok", "warning", "fault"]
    message: str
    advice: str | None = None

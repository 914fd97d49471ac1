"""The clock that stamps the records of the audit log: that of the machine, for every installation.

The one exception is demo content, which shows a week that did not pass. A clock of its own is taken only while the data
folder is marked as one that is being filled with demo content, and the log says so itself (`demo.begun`, `demo.filled`).
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from toolgate.errors import SettingsError
from toolgate.model import LOCAL
from toolgate.settings import Settings
from toolgate.store.data_folder import demo_state

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts


def record_clock(clock: Any, settings: Settings) -> Callable[[], int]:
    """Gives the function that tells the time of records, in nanoseconds since 1970. Raises SettingsError if `clock` has one
    of its own and this is no demo content."""
    own: Callable[[], int] | None = getattr(clock, "time_ns", None)
    if own is None or clock is time:
        return time.time_ns
    if settings.in_memory or demo_state(settings.home) != "filling":
        raise SettingsError(
            "Records of the audit log have the time of this machine; this clock would give them another.",
            suggestion="Leave `time_ns` out of it: only demo content has times of its own, while it is made.",
        )
    return own


async def note_clock(parts: "Parts", action: str) -> None:
    """Puts on record that records have times of their own from here on, or no longer, with the time of the machine."""
    if parts.record_time is not time.time_ns:
        await parts.events.record(action, LOCAL, "", {"machine_time": f"{datetime.now(UTC):%FT%TZ}"})

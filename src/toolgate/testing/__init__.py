"""For tests of tools, hooks and backends: an App in memory, a clock that stands still, suites that a backend must pass."""

import os
from typing import Any

from toolgate.app import App
from toolgate.settings import load_settings
from toolgate.testing.clock import ManualClock

__all__ = ["ManualClock", "memory_app"]


def memory_app(*, clock: ManualClock | None = None, **overrides: Any) -> App:
    """A whole App, with nothing outside this process: no file, no environment, no folder of tools."""
    values: dict[str, Any] = {
        "database_url": "memory://", "auto_load_custom_tools": False, "entry_points": False, **overrides,
    }  # fmt: skip
    settings = load_settings(os.devnull, values, {})
    return App(settings, time_source=clock) if clock is not None else App(settings)

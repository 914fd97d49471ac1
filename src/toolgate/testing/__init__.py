"""For tests of tools, hooks and backends: an App in memory, a clock, an approver, recorded calls, the fixtures of the pytest
plugin (`plugin`), and suites that a backend must pass (`stores`).

Each name is loaded when it is first asked for: pytest loads the plugin in every run.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolgate.testing.app import FixtureApp, memory_app
    from toolgate.testing.approver import ScriptedApprover
    from toolgate.testing.calls import RecordedCall, RecordedCalls
    from toolgate.testing.clock import ManualClock

__all__ = ["FixtureApp", "ManualClock", "RecordedCall", "RecordedCalls", "ScriptedApprover", "memory_app"]

_HOMES = {
    "FixtureApp": "app", "memory_app": "app", "ScriptedApprover": "approver",
    "RecordedCall": "calls", "RecordedCalls": "calls", "ManualClock": "clock",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'toolgate.testing' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"toolgate.testing.{_HOMES[name]}"), name)
    return value

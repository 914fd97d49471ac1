"""For tests of tools, hooks and backends: an App in memory, a clock, an approver, recorded calls, the fixtures of the pytest
plugin (`plugin`), and suites that a backend must pass (`stores`).

Names are loaded when one is first asked for: pytest loads the plugin in every run.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolgate.testing.app import FixtureApp, ManualClock, RecordedCall, RecordedCalls, ScriptedApprover, memory_app

__all__ = ["FixtureApp", "ManualClock", "RecordedCall", "RecordedCalls", "ScriptedApprover", "memory_app"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'toolgate.testing' has no attribute {name!r}")
    return getattr(import_module("toolgate.testing.app"), name)

"""Toolgate: one registry and one governed pipeline for everything an AI agent can do.

These are the names for people outside; inside, everything is imported from the module that defines it. Each is loaded when
it is first asked for: a module with tools needs `tool`, and not the whole of an App.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolgate.version import VERSION

if TYPE_CHECKING:
    from toolgate.app.app import App
    from toolgate.errors import CallError, DefinitionError, InvalidInput, SettingsError, StoreError, ToolError, ToolgateError
    from toolgate.gates.approval.request import Answer, ApprovalRequest, GrantTerms
    from toolgate.jobs.handlers import JobContext, PermanentFailure, job_handler
    from toolgate.jobs.job import Job
    from toolgate.model import (
        Actor,
        Auth,
        CacheRule,
        Capability,
        Cost,
        ErrorCase,
        Example,
        Operation,
        Outcome,
        RateLimit,
        Retry,
        Tool,
        UnitCost,
    )
    from toolgate.pipeline.context import InvokeContext
    from toolgate.pipeline.hooks import Hook, PromptDraft
    from toolgate.registry.decorator import tool
    from toolgate.settings import Settings

__all__ = [
    "Actor", "Answer", "App", "ApprovalRequest", "Auth", "CacheRule", "CallError", "Capability", "Cost",
    "DefinitionError", "ErrorCase", "Example", "GrantTerms", "Hook", "InvalidInput", "InvokeContext", "Job",
    "JobContext", "Operation", "Outcome", "PermanentFailure", "PromptDraft", "RateLimit", "Retry", "Settings",
    "SettingsError", "StoreError", "Tool", "ToolError", "ToolgateError", "UnitCost", "job_handler", "tool",
]  # fmt: skip
__version__ = VERSION

_HOMES = {
    "toolgate.app.app": ("App",),
    "toolgate.gates.approval.request": ("Answer", "ApprovalRequest", "GrantTerms"),
    "toolgate.pipeline.context": ("InvokeContext",),
    "toolgate.errors": (
        "CallError", "DefinitionError", "InvalidInput", "SettingsError", "StoreError", "ToolError", "ToolgateError",
    ),
    "toolgate.jobs.handlers": ("JobContext", "PermanentFailure", "job_handler"),
    "toolgate.jobs.job": ("Job",),
    "toolgate.pipeline.hooks": ("Hook", "PromptDraft"),
    "toolgate.model": (
        "Actor", "Auth", "CacheRule", "Capability", "Cost", "ErrorCase", "Example", "Operation", "Outcome", "RateLimit",
        "Retry", "Tool", "UnitCost",
    ),
    "toolgate.registry.decorator": ("tool",),
    "toolgate.settings": ("Settings",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'toolgate' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Toolgate: one registry and one governed pipeline for everything an AI agent can do.

These are the names for people outside; inside, everything is imported from the module that defines it.
"""

from toolgate.app import App
from toolgate.approval.request import Answer, ApprovalRequest, GrantTerms
from toolgate.context import InvokeContext
from toolgate.errors import CallError, DefinitionError, InvalidInput, SettingsError, StoreError, ToolError, ToolgateError
from toolgate.hooks import Hook
from toolgate.model import (
    Actor,
    Auth,
    CacheRule,
    Capability,
    Cost,
    Outcome,
    RateLimit,
    Retry,
    Tool,
    UnitCost,
)
from toolgate.registry.declare import tool
from toolgate.settings import Settings

__all__ = [
    "Actor",
    "Answer",
    "App",
    "ApprovalRequest",
    "Auth",
    "CacheRule",
    "CallError",
    "Capability",
    "Cost",
    "DefinitionError",
    "GrantTerms",
    "Hook",
    "InvalidInput",
    "InvokeContext",
    "Outcome",
    "RateLimit",
    "Retry",
    "Settings",
    "SettingsError",
    "StoreError",
    "Tool",
    "ToolError",
    "ToolgateError",
    "UnitCost",
    "tool",
]

__version__ = "0.1.0"

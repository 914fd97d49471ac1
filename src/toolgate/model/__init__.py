"""The words of Toolgate: what a tool, a call, an actor and an outcome are. No I/O; only `errors` is below.

Two kinds of values. What a person writes (a `Tool` and its parts) is a pydantic model, because its faults must be
named with their path. What travels with every call (`Call`, `Actor`, `Outcome`, `Metrics`) is a frozen msgspec struct,
because making one costs 0.1 µs where a frozen dataclass costs 0.8 (docs/decisions/0002-hot-values.md).
"""

from toolgate.model.allowed_command import AllowedCommand, CommandEntry, bound_fingerprint, reach_words
from toolgate.model.call import (
    EVERY,
    LOCAL,
    LOCAL_DOORS,
    Actor,
    Background,
    Call,
    Caller,
    Decision,
    SpendingLimit,
    UserMessage,
    can_name_actor,
    check_request_id,
    new_id,
)
from toolgate.model.catalog_entry import Entry, Implementation, Mode, Validator
from toolgate.model.definition import (
    CALL_TOOL,
    DISCOVERY_TOOLS,
    EXACT,
    MAX_DOLLARS,
    NANO,
    PROPOSES,
    SOURCES,
    TIERS,
    TOOL_NAME,
    WORD,
    Auth,
    CacheRule,
    Capability,
    Category,
    Cost,
    ErrorCase,
    Example,
    McpEndpoint,
    Operation,
    RateLimit,
    Retry,
    Risk,
    Runtime,
    Source,
    Tier,
    Tool,
    ToolProgram,
    UnitCost,
    WorkflowEndpoint,
    must_ask,
    nano,
)  # fmt: skip
from toolgate.model.outcome import (
    MAX_REPR_CHARS,
    Artifact,
    Crash,
    CrashedOutcome,
    ErrorInfo,
    Invoke,
    Metrics,
    Outcome,
    PendingInfo,
)  # fmt: skip
from toolgate.screening import MASK

__all__ = [
    "CALL_TOOL", "DISCOVERY_TOOLS", "EVERY", "EXACT", "LOCAL", "LOCAL_DOORS", "MASK", "MAX_DOLLARS", "MAX_REPR_CHARS",
    "NANO",
    "PROPOSES", "SOURCES", "TIERS",
    "TOOL_NAME", "WORD", "Actor", "AllowedCommand", "Artifact", "Auth", "Background", "CacheRule", "Call", "Caller",
    "Capability",
    "Category", "CommandEntry", "Cost", "Crash", "CrashedOutcome", "Decision", "Entry", "ErrorCase", "ErrorInfo",
    "Example", "Implementation", "Invoke", "McpEndpoint",
    "Metrics", "Mode", "Operation", "Outcome", "PendingInfo", "RateLimit", "Retry",
    "Risk", "Runtime", "Source", "SpendingLimit", "Tier", "Tool", "ToolProgram", "UnitCost", "UserMessage", "Validator",
    "WorkflowEndpoint",
    "bound_fingerprint", "can_name_actor", "check_request_id", "must_ask", "nano", "new_id", "reach_words",
]  # fmt: skip

"""The methods that `App` had before it had facets. They work for this version, with a DeprecationWarning."""

import warnings
from typing import Any

_VERBS: dict[str, dict[str, str]] = {
    "approvals": {
        "add_approver": "add_approver", "answer_approval": "answer", "resume": "resume", "waiting": "counts",
    },
    "audit": {
        "audit_end": "end", "audit_heads": "heads", "audit_key": "key", "call_details": "details",
        "prove": "prove", "sign_audit": "sign", "sign_heads_with": "sign_with", "verify_audit": "verify",
    },
    "budgets": {"budget_status": "list", "costs": "costs", "remove_budget": "remove", "set_budget": "set"},
    "grants": {"grant": "create", "revoke_grant": "revoke"},
    "idempotency": {"settle_key": "settle", "unsettled_keys": "unsettled"},
    "policy": {
        "allow_adding_tools": "allow_adding_tools", "observed_policies": "observed",
        "policy_documents": "documents", "reload_policy": "reload", "replay_policy": "replay",
        "restrict_code_execution": "restrict_code", "set_global_deny": "deny",
    },
    "servers": {
        "accept_tools": "accept", "add_server": "add", "import_servers": "import_from",
        "log_in_server": "log_in", "missing_secrets": "missing_secrets", "quarantined": "quarantined",
        "refresh_server": "refresh", "remove_server": "remove", "restart_server": "restart", "server": "get",
        "try_server": "try_out",
    },
    "sessions": {"share_session": "share", "work_in": "work_in"},
    "tools": {
        "check_tools": "check", "export": "export", "load": "load", "problems": "problems",
        "register_dynamic": "add_dynamic", "register_many": "register_many", "set_enabled": "set_enabled",
        "set_tenant_flags": "set_flags", "token_costs": "token_costs", "typed": "typed",
    },
    "workspace": {"drop_changes": "drop", "set_aside": "changes", "take_changes": "take"},
}  # fmt: skip
"""By facet, the old name → the verb."""
RENAMED = {old: f"{facet}.{verb}" for facet, verbs in _VERBS.items() for old, verb in verbs.items()}
"""Old name → facet and verb."""

CALLED = {**dict.fromkeys(("approvals", "grants", "servers", "tools"), "list"), "undo": "revert"}
"""Facets that were methods of the same name → the verb that they were."""


def renamed(app: Any, name: str) -> Any:
    """Gives what an attribute that `App` no longer has is called now. Raises `AttributeError` for one that it never had."""
    if name not in RENAMED:
        raise AttributeError(f"'App' object has no attribute {name!r}")
    _warn(name, RENAMED[name], stacklevel=4)
    facet, verb = RENAMED[name].split(".")
    return getattr(getattr(app, facet), verb)


def warn_of_call(facet: str) -> str:
    """Gives the verb that a facet was when it was a method."""
    _warn(f"{facet}(…)", f"{facet}.{CALLED[facet]}", stacklevel=4)
    return CALLED[facet]


def _warn(old: str, new: str, stacklevel: int) -> None:
    warnings.warn(f"app.{old} is now app.{new}", DeprecationWarning, stacklevel=stacklevel)

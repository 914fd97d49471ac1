"""The methods that `App` had before it had facets. They work for this version, with a DeprecationWarning."""

import warnings
from typing import Any

RENAMED = {
    "accept_tools": "servers.accept",
    "add_approver": "approvals.add_approver",
    "add_server": "servers.add",
    "allow_adding_tools": "policy.allow_adding_tools",
    "answer_approval": "approvals.answer",
    "audit_end": "audit.end",
    "audit_heads": "audit.heads",
    "audit_key": "audit.key",
    "budget_status": "budgets.list",
    "call_details": "audit.details",
    "check_tools": "tools.check",
    "costs": "budgets.costs",
    "drop_changes": "workspace.drop",
    "export": "tools.export",
    "grant": "grants.create",
    "import_servers": "servers.import_from",
    "load": "tools.load",
    "log_in_server": "servers.log_in",
    "missing_secrets": "servers.missing_secrets",
    "observed_policies": "policy.observed",
    "policy_documents": "policy.documents",
    "problems": "tools.problems",
    "prove": "audit.prove",
    "quarantined": "servers.quarantined",
    "refresh_server": "servers.refresh",
    "register_dynamic": "tools.add_dynamic",
    "register_many": "tools.register_many",
    "reload_policy": "policy.reload",
    "remove_budget": "budgets.remove",
    "remove_server": "servers.remove",
    "replay_policy": "policy.replay",
    "restart_server": "servers.restart",
    "restrict_code_execution": "policy.restrict_code",
    "resume": "approvals.resume",
    "revoke_grant": "grants.revoke",
    "server": "servers.get",
    "set_aside": "workspace.changes",
    "set_budget": "budgets.set",
    "set_enabled": "tools.set_enabled",
    "set_global_deny": "policy.deny",
    "set_tenant_flags": "tools.set_flags",
    "settle_key": "idempotency.settle",
    "share_session": "sessions.share",
    "sign_audit": "audit.sign",
    "sign_heads_with": "audit.sign_with",
    "take_changes": "workspace.take",
    "token_costs": "tools.token_costs",
    "try_server": "servers.try_out",
    "typed": "tools.typed",
    "unsettled_keys": "idempotency.unsettled",
    "verify_audit": "audit.verify",
    "waiting": "approvals.counts",
    "work_in": "sessions.work_in",
}
"""Old name → facet and verb."""

CALLED = {
    "approvals": "list",
    "grants": "list",
    "servers": "list",
    "tools": "list",
    "undo": "revert",
}
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

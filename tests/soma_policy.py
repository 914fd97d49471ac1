"""The first policy of package soma.policy and its example data, word for word, for the tests that hold ours against them."""

from typing import Any

from toolgate.gates.policy.documents import PolicyData

POLICY = """
package soma.policy

import future.keywords.if
import future.keywords.in

# Default: deny all tool operations
default allow = false

# === TOOL VIEW PERMISSION ===
# Can the agent see this tool in the prompt?

allow if {
    input.action == "tool.view"
    tool_enabled_for_tenant
    not tool_in_deny_list
}

# === TOOL REQUEST PERMISSION ===
# Can the agent execute this tool?

allow if {
    input.action == "tool.request"
    tool_enabled_for_tenant
    not tool_in_deny_list
    not tool_args_restricted
}

# === TOOL ENABLE PERMISSION ===
# Can the agent add a new tool?

allow if {
    input.action == "tool.enable"
    persona_can_add_tools
    not tool_in_global_deny_list
}

# === HELPER RULES ===

tool_enabled_for_tenant if {
    # Check tenant-specific flag
    data.tenant_tool_flags[input.tenant][input.resource].enabled == true
}

tool_enabled_for_tenant if {
    # Fallback to global catalog
    not data.tenant_tool_flags[input.tenant][input.resource]
    data.tool_catalog[input.resource].enabled == true
}

tool_enabled_for_tenant if {
    # Default enabled if not in catalog
    not data.tenant_tool_flags[input.tenant][input.resource]
    not data.tool_catalog[input.resource]
}

tool_in_deny_list if {
    input.resource in data.persona_tool_deny[input.persona_id]
}

tool_in_global_deny_list if {
    input.resource in data.global_tool_deny
}

tool_args_restricted if {
    # Example: restrict code_execute for certain tenants
    input.resource == "code_execute"
    input.tenant in data.code_execution_restricted_tenants
}

persona_can_add_tools if {
    data.persona_permissions[input.persona_id].can_add_tools == true
}

persona_can_add_tools if {
    # Default: allow if not explicitly restricted
    not data.persona_permissions[input.persona_id]
}
"""

DATA: dict[str, Any] = {
    "tool_catalog": {
        "memory_load": {"enabled": True},
        "memory_save": {"enabled": True},
        "code_execute": {"enabled": True},
        "http_fetch": {"enabled": True},
    },
    "tenant_tool_flags": {"tenant-1": {"code_execute": {"enabled": False}}},
    "persona_tool_deny": {"persona-restricted": ["code_execute", "http_fetch"]},
    "global_tool_deny": ["dangerous_tool"],
    "code_execution_restricted_tenants": ["tenant-sandbox"],
    "persona_permissions": {
        "persona-admin": {"can_add_tools": True},
        "persona-user": {"can_add_tools": False},
    },
}


def policy_data(documents: dict[str, Any], **more: Any) -> PolicyData:
    """Documents of that shape as the guard is given them: as the catalog and the store would say it."""
    reasons = documents.get("deny_reasons", {})
    own: dict[str, dict[str, Any]] = documents.get("tenant_tool_catalog", {})
    catalog = documents["tool_catalog"]
    return PolicyData(
        lambda tool, tenant: catalog.get(tool) or own.get(tenant, {}).get(tool),
        lambda: list(catalog),
        {
            tenant: {tool: flag["enabled"] for tool, flag in flags.items()}
            for tenant, flags in documents["tenant_tool_flags"].items()
        },
        {
            persona: {
                tool: reasons.get("personas", {}).get(persona, {}).get(tool, "denied to this persona") for tool in denied
            }
            for persona, denied in documents["persona_tool_deny"].items()
        },
        {persona: may["can_add_tools"] for persona, may in documents["persona_permissions"].items()},
        {
            tool: reasons.get("everybody", {}).get(tool, "it is on the global deny list")
            for tool in documents["global_tool_deny"]
        },
        documents["code_execution_restricted_tenants"],
        tenant_names=lambda: [(tenant, tool) for tenant, tools in own.items() for tool in tools],
        **more,
    )

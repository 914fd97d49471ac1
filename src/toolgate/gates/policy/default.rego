# The policy that Toolgate ships: who may see (tool.view), call (tool.request) and add (tool.enable) which tool.
#
# The package, rule names, actions, input and data are those of policies written for soma.policy, so that one of these can
# take this one's place. Unlike there, silence denies: what is not in the catalog, a persona without permissions that wants
# to add a tool, and any value that is missing, null, empty or of the wrong kind. The global deny list counts for every action.
#
# Nothing here depends on how an engine understands `not` over a missing key (they differ): what a rule reads of the input
# was seen to be there by `caller_named` first.
package soma.policy

import rego.v1

default allow := false

allow if {
	caller_named
	name(input.resource)
	data_ready
	permitted_action(input.action, input.resource)
}

# What is asked: the answer, and its reason in words.
decision := {"allow": true, "reason": why_allowed} if allow

else := {"allow": false, "reason": why_denied}

# Many tools at once: those of input.resources for which the action is allowed.
permitted contains tool if {
	caller_named
	data_ready
	is_array(input.resources)
	some tool in input.resources
	name(tool)
	permitted_action(input.action, tool)
}

# === ACTIONS ===

permitted_action("tool.view", tool) if {
	tool_enabled_for_tenant(tool)
	not tool_in_deny_list(tool)
	not tool_in_global_deny_list(tool)
	not outside_allow_list(tool)
}

permitted_action("tool.request", tool) if {
	tool_enabled_for_tenant(tool)
	not tool_in_deny_list(tool)
	not tool_in_global_deny_list(tool)
	not outside_allow_list(tool)
	not tool_args_restricted(tool)
	not argument_refused(tool)
	scopes_suffice(tool)
}

permitted_action("tool.enable", tool) if {
	persona_can_add_tools
	not tool_in_global_deny_list(tool)
	not outside_allow_list(tool)
}

# === RULES ON TOOLS ===

# A tenant's own flag counts; without one, the catalog's.
tool_enabled_for_tenant(tool) if {
	in_catalog(tool)
	tenant_flags[tool].enabled == true
}

tool_enabled_for_tenant(tool) if {
	in_catalog(tool)
	not has(tenant_flags, tool)
	entry(tool).enabled == true
}

tool_in_deny_list(tool) if tool in persona_denied

tool_in_global_deny_list(tool) if tool in data.global_tool_deny

# A tenant that has an allow list has the tools on its caller's persona's list, and no others, for every action.
outside_allow_list(tool) if {
	tenant_has_allow_list
	not persona_unrestricted
	not tool in allow_listed
	not listed_for_everybody(tool)
}

listed_for_everybody(tool) if tool in data.tenant_tool_allow[input.tenant].everybody

# Never true here. A policy that is this text with more rules below it can refuse values of arguments by this rule.
argument_refused(tool) if tool == ""

tool_args_restricted(tool) if {
	runs_code(tool)
	input.tenant in data.code_execution_restricted_tenants
}

# By what the catalog says of the tool; code_execute runs code also where the catalog does not say.
runs_code(tool) if tool == "code_execute"

runs_code(tool) if object.get(entry(tool), "runs_code", false) != false

scopes_suffice(tool) if needed_scope(tool) == null

scopes_suffice(tool) if {
	name(needed_scope(tool))
	needed_scope(tool) in input.context.scopes
}

persona_can_add_tools if data.persona_permissions[input.persona_id].can_add_tools == true

# === WHAT THEY LOOK AT ===

# A tool of the catalog that all share, or of the tenant's own.
entry(tool) := data.tool_catalog[tool] if has(data.tool_catalog, tool)

else := data.tenant_tool_catalog[input.tenant][tool]

in_catalog(tool) if {
	is_object(entry(tool))
	is_boolean(entry(tool).enabled)
}

needed_scope(tool) := object.get(entry(tool), "requires_permission", null)

tenant_flags := object.get(data.tenant_tool_flags, input.tenant, {})

persona_denied := object.get(data.persona_tool_deny, input.persona_id, [])

tenant_has_allow_list if type_name(data.tenant_tool_allow[input.tenant]) != ""

allow_listed := data.tenant_tool_allow[input.tenant].no_persona if {
	input.persona_id == null
	is_array(data.tenant_tool_allow[input.tenant].no_persona)
}

else := data.tenant_tool_allow[input.tenant].personas[input.persona_id] if {
	is_array(data.tenant_tool_allow[input.tenant].personas[input.persona_id])
}

else := []

# A list may be for some personas alone; then the others have what they would have without it.
persona_unrestricted if {
	data.tenant_tool_allow[input.tenant].unlisted_personas == "unrestricted"
	is_object(data.tenant_tool_allow[input.tenant].personas)
	not persona_listed
}

persona_listed if {
	input.persona_id == null
	type_name(data.tenant_tool_allow[input.tenant].no_persona) != ""
}

persona_listed if type_name(data.tenant_tool_allow[input.tenant].personas[input.persona_id]) != ""

# === WHAT MUST BE THERE ===

caller_named if {
	name(input.tenant)
	is_string(input.action)
	persona_named
	names(input.context.scopes)
}

persona_named if input.persona_id == null

persona_named if name(input.persona_id)

data_ready if {
	is_object(data.tool_catalog)
	is_object(data.tenant_tool_flags)
	is_object(data.persona_tool_deny)
	is_object(data.persona_permissions)
	names(data.global_tool_deny)
	names(data.code_execution_restricted_tenants)
	is_object(tenant_flags)
	names(persona_denied)
	allow_lists_ready
}

allow_lists_ready if not allow_lists_given

allow_lists_ready if is_object(data.tenant_tool_allow)

allow_lists_given if type_name(data.tenant_tool_allow) != ""

name(value) if {
	is_string(value)
	value != ""
}

names(list) if {
	is_array(list)
	every value in list {
		name(value)
	}
}

# Whether there is such a key, whatever its value.
has(object_, key) if type_name(object_[key]) != ""

# === REASONS ===

why_allowed := sprintf("persona %s may add tools", [input.persona_id]) if input.action == "tool.enable"

else := sprintf("%s is enabled for tenant %s", [input.resource, input.tenant]) if has(tenant_flags, input.resource)

else := sprintf("%s is enabled", [input.resource])

why_denied := "the request is incomplete: it needs tenant, persona_id, action, resource and context" if not request_named

else := "the policy's data is missing or malformed" if not data_ready

else := sprintf("there is no action %s", [input.action]) if not input.action in ["tool.view", "tool.request", "tool.enable"]

else := sprintf("%s is denied to everybody: %s", [input.resource, global_reason]) if {
	tool_in_global_deny_list(input.resource)
}

else := "nobody may add tools without a persona that has the right" if {
	input.action == "tool.enable"
	input.persona_id == null
}

else := sprintf("%s is not on the allow list of tenant %s", [input.resource, input.tenant]) if {
	input.action == "tool.enable"
	persona_can_add_tools
	outside_allow_list(input.resource)
}

else := sprintf("persona %s was not given the right to add tools", [input.persona_id]) if {
	input.action == "tool.enable"
}

else := sprintf("persona %s: %s", [input.persona_id, persona_reason]) if tool_in_deny_list(input.resource)

else := sprintf("%s is not in the catalog", [input.resource]) if not in_catalog(input.resource)

else := sprintf("%s is not on the allow list of tenant %s", [input.resource, input.tenant]) if {
	outside_allow_list(input.resource)
}

else := sprintf("%s is disabled for tenant %s", [input.resource, input.tenant]) if {
	has(tenant_flags, input.resource)
	not tool_enabled_for_tenant(input.resource)
}

else := sprintf("%s is disabled", [input.resource]) if not tool_enabled_for_tenant(input.resource)

else := sprintf("tenant %s may not run code", [input.tenant]) if tool_args_restricted(input.resource)

else := sprintf("an argument of %s has a value that is not allowed", [input.resource]) if argument_refused(input.resource)

else := sprintf("%s needs the permission %v, which the caller was not given", [input.resource, needed]) if {
	needed := needed_scope(input.resource)
	not scopes_suffice(input.resource)
}

else := "nothing in the policy allows it"

request_named if {
	caller_named
	name(input.resource)
}

# What an operator gave as the reason, where one did.
persona_reason := data.deny_reasons.personas[input.persona_id][input.resource] if {
	name(data.deny_reasons.personas[input.persona_id][input.resource])
}

else := "denied to this persona"

global_reason := data.deny_reasons.everybody[input.resource] if name(data.deny_reasons.everybody[input.resource])

else := "it is on the global deny list"

# Who may do what at acme. A tool that is off for a tenant is not seen; one that a persona may not use is, with the reason.
package soma.policy

import rego.v1

default allow := false

allow if {
	input.action == "tool.view"
	offered
}

allow if {
	input.action == "tool.request"
	offered
	count(objections) == 0
}

allow if {
	input.action == "tool.enable"
	data.persona_permissions[input.persona_id].can_add_tools == true
}

decision := {"allow": true, "reason": sprintf("%s is enabled for tenant %s", [input.resource, input.tenant])} if allow

else := {"allow": false, "reason": concat("; ", objections)} if count(objections) > 0

else := {"allow": false, "reason": "the policy does not allow it"}

# === WHAT IS THERE ===

offered if {
	object.get(data.tool_catalog, input.resource, {"enabled": false}).enabled == true
	object.get(object.get(data.tenant_tool_flags, input.tenant, {}), input.resource, {"enabled": true}).enabled == true
	count([tool | some tool in data.global_tool_deny; tool == input.resource]) == 0
}

# === WHY NOT ===

objections contains sprintf("persona %s: %s", [input.persona_id, reason]) if {
	some tool, reason in object.get(reserved, input.persona_id, {})
	tool == input.resource
}

objections contains sprintf("tenant %s may not run code", [input.tenant]) if {
	some tenant in data.code_execution_restricted_tenants
	tenant == input.tenant
	object.get(data.tool_catalog, input.resource, {}).runs_code == true
}

objections contains "a refund of more than $500 is made by a person, not by an agent" if {
	input.resource == "refund"
	input.context.arguments.amount > 500
}

reserved := {
	"analyst": {
		"update_stock": "analysts read; only ops changes the stock",
		"order_parts": "only ops orders at the supplier",
	},
	"ops": {"credit_check": "credit reports are for analysts"},
}

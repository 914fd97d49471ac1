# Who may do what in the tour's shop.
package soma.policy

import rego.v1

default allow := false

known if data.tool_catalog[input.resource].enabled == true

allow if {
	input.action == "tool.view"
	known
}

allow if {
	input.action == "tool.request"
	known
	not large_refund
}

large_refund if {
	input.resource == "refund"
	input.context.arguments.amount > 500
	input.persona_id != "manager"
}

decision := {"allow": true, "reason": "within the limit"} if allow

else := {"allow": false, "reason": "only a manager may refund more than $500"} if large_refund

else := {"allow": false, "reason": "the policy does not allow it"}

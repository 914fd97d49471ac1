package soma.policy

import rego.v1

default allow := false

# everybody sees the tools
allow if input.action == "tool.view"

# payments up to 100, by accountants only
allow if {
	input.action == "tool.request"
	input.resource == "pay"
	input.persona_id == "accountant"
	input.context.arguments.amount <= 100
}

decision := {"allow": true, "reason": "within the limit"} if allow

else := {"allow": false, "reason": sprintf("%v may not pay that much", [input.persona_id])} if input.resource == "pay"

else := {"allow": false, "reason": "only payments are allowed here"}

"""Judges calls by a policy that somebody tries, in a process of its own (`sandbox.helper_process`): whatever was typed may
go on for ever or take all memory there is, and only that process ends.
"""

from typing import Any

from toolgate.gates.policy.documents import PolicyError
from toolgate.gates.policy.embedded_rego import EmbeddedRego


def judge(asked: dict[str, Any]) -> dict[str, Any]:
    """Gives a decision, as allow and reason, for each of the inputs (`inputs`, each a JSON text) on some documents; or the
    fault of a policy that cannot be used."""
    try:
        policy = EmbeddedRego(asked["policy"])
    except PolicyError as error:
        return {"fault": [error.message, error.line, error.suggestion]}
    decisions = policy.evaluate_many(asked["inputs"], asked["documents"])
    return {"decisions": [(one.allow, one.reason) for one in decisions]}

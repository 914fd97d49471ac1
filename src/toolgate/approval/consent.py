"""What must be asked of a person before it runs. With nobody to ask yet, such a call ends as pending: it never runs."""

from toolgate.errors import Pending
from toolgate.model import Call, Entry


class Consent:
    """Decides by the effective tier, by what is destructive, and by what a capability says."""

    def check(self, call: Call, entry: Entry) -> str:
        """Why the call may go on without asking; raises Pending if it may not."""
        if entry.tier == "read_only" and not entry.confirms:
            return "tier read_only runs unasked"
        reason = must_ask(entry)
        if reason is None:
            return f"tier {entry.tier} runs unasked"
        raise Pending(
            "APPROVAL_REQUIRED",
            f"{entry.name} needs a person's approval: {reason}.",
            kind="approval",
            id=call.id,
            suggestion="Nobody is there to ask: approvals come with governance.",
            details={"tier": entry.tier, "reason": reason},
            reason=reason,
        )


def must_ask(entry: Entry) -> str | None:
    """Why a person must be asked; None if nobody has to be."""
    if entry.tier == "execute":
        return "tier execute asks for every run"
    if entry.tier == "external_api":
        return "tier external_api asks for every call"
    if entry.tier == "write" and entry.destructive:
        return "it is destructive"
    if entry.confirms:
        return "its definition asks for confirmation"
    return None

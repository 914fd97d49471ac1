"""One effect for one key. Until keys are kept durably, a call that brings one is refused: run without its promise, it could
have its effect twice.
"""

from toolgate.errors import Failed
from toolgate.model import Call


class Idempotency:
    """The step."""

    async def claim(self, call: Call) -> None:
        """Take the key for this call."""
        raise Failed(
            "VALIDATION_ERROR",
            "Idempotency keys can't be kept yet, so the call was not run.",
            suggestion="Call without a key; durable keys come with governance (part 2).",
            details={"errors": [{"path": "idempotency_key", "message": f"{call.idempotency_key!r:.80} can't be kept"}]},
        )

"""The workflows that Toolgate knows: their definitions, for which `examples/n8n` has the files to import into n8n."""

from decimal import Decimal
from typing import Any, NamedTuple

from toolgate.model import Capability, Cost, ErrorCase, Example

ERRORS = (
    ErrorCase(code="MISSING_AUTH", when="no n8n server or no secret is configured", advice="Set both up."),
    ErrorCase(code="N8N_ERROR", when="the workflow is not published, refuses the secret, or fails", advice="Look into n8n."),
    ErrorCase(code="TIMEOUT", when="the workflow takes too long", advice="Look into n8n before calling again."),
    ErrorCase(code="CONNECTION_ERROR", when="n8n cannot be reached", advice="Try again later."),
    ErrorCase(
        code="INVOCATION_ERROR", when="the connection broke, or the answer is unreadable", advice="Look into n8n first."
    ),
)


class StandardWorkflow(NamedTuple):
    """A workflow that Toolgate knows."""

    name: str
    webhook_path: str
    description: str
    properties: dict[str, Any]
    required: tuple[str, ...]
    timeout: float
    requires_permission: str
    cost: Cost
    action: str
    example: dict[str, Any]
    tags: tuple[str, ...] = ()

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of its definition as a tool that are its own."""
        return {
            "input_schema": {"type": "object", "properties": self.properties, "required": list(self.required)},
            "capabilities": (Capability(action=self.action, description=self.description, requires_confirmation=True),),
            "errors": ERRORS,
            "examples": (Example(arguments=self.example),),
            "category": "service",
            "tags": self.tags,
            "documentation": f"docs/reference/tools/{self.name}.md",
        }


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


STANDARD = (
    StandardWorkflow(
        "send_email",
        "send-email",
        "Send an email. Always confirm with user before sending.",
        {
            "to": _text("Recipient email address", **{"x-path": False}),
            "subject": _text("Email subject line"),
            "body": _text("Email body (plain text or HTML)"),
            "isHtml": {"type": "boolean", "description": "Whether body is HTML", "default": False},
        },
        ("to", "subject", "body"),
        30,
        "tool:send_email",
        Cost(model="usage_based", fixed=Decimal("0.001")),
        "send_email",
        {"to": "ann@example.com", "subject": "Your order", "body": "It is on its way."},
        ("email",),
    ),
    StandardWorkflow(
        "create_calendar_event",
        "calendar-create",
        "Create a calendar event. Requires user confirmation.",
        {
            "title": _text("Event title"),
            "description": _text("Event description"),
            "startTime": _text("Start time (ISO 8601)", format="date-time"),
            "endTime": _text("End time (ISO 8601)", format="date-time"),
            "attendees": {"type": "array", "items": {"type": "string"}, "description": "Attendee emails"},
        },
        ("title", "startTime", "endTime"),
        30,
        "tool:calendar",
        Cost(model="usage_based", fixed=Decimal("0.001")),
        "create_event",
        {"title": "Review", "startTime": "2026-12-01T09:00:00Z", "endTime": "2026-12-01T10:00:00Z"},
        ("calendar",),
    ),
    StandardWorkflow(
        "send_notification",
        "send-notification",
        "Send a push notification to user devices.",
        {
            "title": _text("Notification title"),
            "body": _text("Notification body"),
            "data": {"type": "object", "description": "Custom data payload"},
        },
        ("title", "body"),
        10,
        "tool:notifications",
        Cost(model="free"),
        "send_notification",
        {"title": "Build finished", "body": "All tests passed."},
        ("notification",),
    ),
)

"""`sendgrid_send_email`: mail through SendGrid."""

import re
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from toolgate.errors import InvalidInput
from toolgate.model import Auth, Capability, Cost, ErrorCase, Example, Retry
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tests_credential, tool
from toolgate.services.sendgrid import SETUP_URL, SendGrid, mail
from toolgate.services.service_api import is_accepted, seconds_for

FREE_MAILS_A_DAY = 100
MAX_ADDRESS_CHARS = 254
MAX_BODY_CHARS = 1_000_000
ADDRESS = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z][A-Za-z0-9-]{0,61}[A-Za-z0-9]\Z"
)
"""One address and nothing else: no name, no list, no line break."""

Address = Annotated[str, Field(max_length=MAX_ADDRESS_CHARS, json_schema_extra={"x-path": False})]
Body = Annotated[str, Field(max_length=MAX_BODY_CHARS)]


class Sent(TypedDict):
    """What became of the mail: SendGrid has it in its queue."""

    messageId: str
    status: Literal["sent", "queued", "failed"]


async def _accepts_sendgrid(credential: str, ctx: InvokeContext) -> bool:
    return await is_accepted(ctx.get(SendGrid).check(credential))


@tool(
    tier="external_api",
    category="service",
    target="sendgrid",
    timeout=60,
    tags=["email"],
    requires_auth=Auth(type="api_key", config_key="SENDGRID_API_KEY", setup_url=SETUP_URL),
    cost=Cost(
        model="free",
        free_tier_limit=FREE_MAILS_A_DAY,
        free_tier_period="day",
        billing_url="https://app.sendgrid.com/settings/billing",
    ),
    capabilities=[
        Capability(
            action="send_email",
            description="Send email via SendGrid",
            requires_confirmation=True,
            estimated_time_ms=2000,
        )
    ],
    # SendGrid knows no idempotency key: only an attempt that did not reach it is repeated.
    retry=Retry(max_attempts=3, backoff_ms=200, codes=("CONNECTION_ERROR",)),
    errors=[
        ErrorCase("INVALID_INPUT", "an address is none, there is no text, or SendGrid refuses the mail", "Correct it."),
        ErrorCase("MISSING_AUTH", "SendGrid does not accept the key", "Set another SENDGRID_API_KEY."),
        ErrorCase("PERMISSION_DENIED", "the key may not send, or the sender is not verified", "Verify the sender."),
        ErrorCase("RATE_LIMITED", "SendGrid gets too many requests", "Wait for retry_after seconds."),
        ErrorCase(
            "OUTCOME_UNKNOWN", "no clear answer came, and the mail may be on its way", "Look into SendGrid's activity."
        ),
    ],
    examples=[
        Example(
            name="a short mail",
            arguments={
                "to": "ann@example.com",
                "from": "shop@example.com",
                "subject": "Your order",
                "text": "It is on its way.",
            },
        ),
    ],
)
@tests_credential(_accepts_sendgrid)
async def sendgrid_send_email(
    ctx: InvokeContext,
    to: Address,
    from_: Address,
    subject: Annotated[str, Field(min_length=1, max_length=998)],
    html: Body | None = None,
    text: Body | None = None,
) -> Sent:
    """Send an email to one address through SendGrid. Give text, html or both.

    Args:
        to: The receiver's address.
        from_: A sender's address that SendGrid has verified.
    """
    for name, address in (("to", to), ("from", from_)):
        if ADDRESS.match(address) is None or len(address.partition("@")[0]) > 64:
            raise InvalidInput(f"{name} is not an email address.", suggestion="Give one address such as ann@example.com.")
    if not subject.strip() or not subject.isprintable():
        raise InvalidInput("The subject must be one line of text, without control characters.")
    if not html and not text:
        raise InvalidInput("The mail is empty.", suggestion="Give text, html or both.")
    client: SendGrid = ctx.get(SendGrid)
    body = mail(to=to, sender=from_, subject=subject, text=text, html=html)
    message_id = await client.send(ctx.credential, body, seconds=seconds_for(ctx.time_limit))
    ctx.used(f"sendgrid:{message_id}")
    return {"messageId": message_id, "status": "queued"}

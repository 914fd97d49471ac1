"""`stripe_create_payment`: payments at Stripe."""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from toolgate.model import Auth, Capability, Cost, ErrorCase, Example
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tests_credential, tool
from toolgate.services.service_api import is_accepted, seconds_for
from toolgate.services.stripe import SETUP_URL, Stripe, idempotency_key

FEE = Decimal("0.30")
STATUSES: dict[str, Literal["succeeded", "pending", "failed"]] = {"succeeded": "succeeded", "canceled": "failed"}
"""Those of Stripe that are an end; all others wait for the customer or for the bank."""


class Payment(TypedDict):
    """The payment intent. The client secret is masked wherever models and records see it."""

    paymentIntentId: str
    clientSecret: str
    status: Literal["succeeded", "pending", "failed"]


async def _accepts_stripe(credential: str, ctx: InvokeContext) -> bool:
    return await is_accepted(ctx.get(Stripe).check(credential))


@tool(
    tier="external_api",
    category="service",
    target="stripe",
    timeout=60,
    tags=["payments"],
    requires_auth=Auth(type="api_key", config_key="STRIPE_SECRET_KEY", setup_url=SETUP_URL),
    cost=Cost(model="usage_based", fixed=FEE, billing_url="https://dashboard.stripe.com/settings/billing"),
    capabilities=[
        Capability(
            action="create_payment",
            description="Create Stripe payment intent",
            requires_confirmation=True,
            estimated_cost=FEE,
        )
    ],
    errors=[
        ErrorCase("INVALID_INPUT", "Stripe refuses the request, or the card is declined", "Read the message; correct it."),
        ErrorCase("MISSING_AUTH", "Stripe does not accept the key", "Set another STRIPE_SECRET_KEY."),
        ErrorCase("PERMISSION_DENIED", "the key may not create payments", "Give the key that permission in the dashboard."),
        ErrorCase("RATE_LIMITED", "Stripe gets too many requests", "Wait for retry_after seconds."),
        ErrorCase("IDEMPOTENCY_CONFLICT", "the idempotency key stands for another payment", "Use another key."),
        ErrorCase(
            "OUTCOME_UNKNOWN", "no clear answer came after three attempts", "Call again with the same idempotency key."
        ),
    ],
    examples=[
        Example(name="20 dollars", arguments={"amount": 2000, "currency": "usd", "description": "Order 1001"}),
    ],
)
@tests_credential(_accepts_stripe)
async def stripe_create_payment(
    ctx: InvokeContext,
    amount: Annotated[int, Field(ge=1, le=99_999_999)],
    currency: Annotated[str, Field(pattern="^[A-Za-z]{3}$")],
    customerId: Annotated[str, Field(pattern="^cus_[A-Za-z0-9]{1,100}$")] | None = None,
    description: Annotated[str, Field(max_length=1000)] | None = None,
) -> Payment:
    """Create a Stripe payment intent. A call that is repeated with the same idempotency key charges once.

    Args:
        amount: In the smallest unit of the currency: 1000 is 10 dollars.
        currency: Three letters, such as usd.
        customerId: A customer of Stripe.
        description: What it is for.
    """
    fields: dict[str, str | int] = {"amount": amount, "currency": currency.lower()}
    if customerId is not None:
        fields["customer"] = customerId
    if description:
        fields["description"] = description
    key = idempotency_key(ctx.actor.tenant, ctx.actor.user, ctx.call.idempotency_key, ctx.id)
    stripe: Stripe = ctx.get(Stripe)
    made = await stripe.create_payment_intent(ctx.credential, fields, key=key, seconds=seconds_for(ctx.time_limit, 50))
    ctx.used(f"stripe:{made.id}")
    return {
        "paymentIntentId": made.id,
        "clientSecret": made.client_secret,
        "status": STATUSES.get(made.status, "pending"),
    }

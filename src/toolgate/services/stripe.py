"""Stripe: payment intents.

Every POST carries an idempotency key, so that a repeated attempt is the same request to Stripe and never a second charge.
The attempts are made here and not by the pipeline, which would count the price of each.
"""

import asyncio
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from toolgate.errors import CallError, ToolError
from toolgate.network.http_client import HttpClient
from toolgate.services.service_api import ServiceApi, ServiceFault

API_VERSION = "2026-09-30.endive"
SETUP_URL = "https://dashboard.stripe.com/apikeys"
KEY_IN_USE = "idempotency_key_in_use"
PAUSES = (0.2, 0.6)
"""Seconds before the second and the third attempt."""
MIN_ATTEMPT_SECONDS = 1.0
CLEAR = frozenset({"INVALID_INPUT", "IDEMPOTENCY_CONFLICT"})
"""Codes of an answer about the payment itself, which is also the answer to every attempt before it with the same key."""


class PaymentIntent(NamedTuple):
    """A payment intent, as far as it is told."""

    id: str
    client_secret: str
    status: str


class Stripe:
    """The client."""

    def __init__(self, base_url: str, http: HttpClient) -> None:
        self._api = ServiceApi("Stripe", base_url, http, setup_url=SETUP_URL, read_fault=_fault)

    async def create_payment_intent(
        self, credential: str | None, fields: Mapping[str, str | int], *, key: str, seconds: float
    ) -> PaymentIntent:
        """Creates a payment intent, once for one key, within `seconds`. An attempt without a clear answer is repeated."""
        headers = {**self._headers(credential), "Idempotency-Key": key}
        now = asyncio.get_running_loop().time
        deadline, unclear = now() + seconds, None
        for pause in (*PAUSES, None):
            try:
                left = deadline - now()
                return await self._create(headers, fields, left / 2 if pause is not None else left)
            except (CallError, ToolError) as error:
                if error.code == "OUTCOME_UNKNOWN":
                    unclear = error
                elif error.code in CLEAR or (unclear is None and error.code != "CONNECTION_ERROR"):
                    raise
                if pause is None or now() + pause + MIN_ATTEMPT_SECONDS > deadline:
                    # That a later attempt did not get through says nothing of an earlier one that may have.
                    raise unclear or error from None
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _create(self, headers: Mapping[str, str], fields: Mapping[str, str | int], seconds: float) -> PaymentIntent:
        try:
            response = await self._api.send(
                "POST", "/v1/payment_intents", headers=headers, form=fields, changes=True, seconds=seconds
            )
        except ToolError as error:
            raise _judged(error) from error
        made = self._api.json(response, dict, changes=True)
        intent = PaymentIntent(_text(made, "id"), _text(made, "client_secret"), _text(made, "status"))
        if not intent.id or not intent.status:
            raise self._api.unreadable(changes=True)
        return intent

    async def check(self, credential: str | None) -> None:
        """Raises if the credential is not accepted. A restricted key that may not read the balance is."""
        try:
            await self._api.send("GET", "/v1/balance", headers=self._headers(credential), changes=False)
        except ToolError as error:
            if error.code != "PERMISSION_DENIED":
                raise

    def _headers(self, credential: str | None) -> dict[str, str]:
        return {**self._api.bearer(credential), "Stripe-Version": API_VERSION}


def idempotency_key(tenant: str, user: str, given: str | None, call_id: str) -> str:
    """The key of a call: of the caller's own key if there is one, so that calling again is the same request too. Tenants may
    share an account, so one can't come upon the payment of another."""
    parts = (tenant, user, "key" if given is not None else "call", given if given is not None else call_id)
    return "toolgate-" + sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _text(made: Mapping[str, Any], name: str) -> str:
    value = made.get(name)
    return value if isinstance(value, str) and len(value) <= 1_000 else ""


def _fault(body: Any) -> ServiceFault:
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return ServiceFault()
    more = {name: error[name] for name in ("decline_code", "param") if isinstance(error.get(name), str)}
    return ServiceFault(error.get("message"), error.get("code"), error.get("type"), {k: v[:100] for k, v in more.items()})


def _judged(error: ToolError) -> ToolError:
    """The error with the code that its type has here, where its status alone does not say it."""
    details = error.details or {}
    kind, status = details.get("type"), details.get("status")
    if status == 409 or details.get("code") == KEY_IN_USE:
        # An earlier attempt of this very request is still at work there, so whether it will succeed is open.
        return _as(error, "OUTCOME_UNKNOWN", "Call again with the same idempotency key.")
    if kind == "idempotency_error":
        return _as(error, "IDEMPOTENCY_CONFLICT", "Use another idempotency key for another payment.", charged=False)
    if kind == "card_error":
        return _as(error, "INVALID_INPUT", "Ask the customer for another way to pay.", charged=False)
    return error


def _as(error: ToolError, code: str, suggestion: str, *, charged: bool = True) -> ToolError:
    return ToolError(error.message, code=code, suggestion=suggestion, details=error.details, charged=charged)

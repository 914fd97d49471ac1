"""`stripe_create_payment`: the request as Stripe documents it, and what its answers become."""

import json
from typing import Any

import pytest

from tests.loopback import Asked, Said, site
from tests.services import Answer, failed, hang_up, never, records, scripted, serving
from toolgate import Actor, App
from toolgate.gates.secrets.names import Owner
from toolgate.model import MASK
from toolgate.services import stripe as stripe_client
from toolgate.services.stripe import idempotency_key
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("BUILTIN-3")
KEY = "sk_test_4eC39HqLyjWDarjtT1zdp7dc"
PAYMENT = {"amount": 2000, "currency": "USD", "customerId": "cus_NffrFeUfNV2Hib", "description": "Order 1001"}
INTENT = {"id": "pi_3MtwBwLkdIwHu7ix28a3tqPa", "object": "payment_intent", "amount": 2000, "currency": "usd",
          "client_secret": "pi_3MtwBwLkdIwHu7ix28a3tqPa_secret_YrKJUKribcBjcG8HVhfZluoGH",
          "status": "requires_payment_method"}  # fmt: skip


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_STRIPE_SECRET_KEY", KEY)


def error(kind: str, status: int, **more: Any) -> Said:
    return Said(status, {"error": {"type": kind, "message": "Something is wrong.", **more}})


async def test_the_request_is_the_one_that_stripe_documents() -> None:
    async with serving("stripe", Said(200, INTENT)) as (app, stripe):
        outcome = await app.invoke("stripe_create_payment", PAYMENT)
    assert outcome.output == {"paymentIntentId": INTENT["id"], "clientSecret": MASK, "status": "pending"}
    assert outcome.metrics.cost_usd == 0.3
    (asked,) = stripe.asked
    assert (asked.method, asked.path, asked.query) == ("POST", "/v1/payment_intents", {})
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
    assert asked.headers["stripe-version"] == "2026-09-30.endive"
    assert asked.headers["idempotency-key"] == idempotency_key("default", "local", None, outcome.id)
    assert asked.form == {
        "amount": "2000", "currency": "usd", "customer": "cus_NffrFeUfNV2Hib", "description": "Order 1001",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "said"),
    [("succeeded", "succeeded"), ("canceled", "failed"), ("processing", "pending"), ("requires_action", "pending")],
)
async def test_the_status_is_one_of_three(status: str, said: str) -> None:
    async with serving("stripe", Said(200, {**INTENT, "status": status})) as (app, _):
        assert (await app.invoke("stripe_create_payment", PAYMENT)).output["status"] == said


async def test_neither_the_key_nor_the_client_secret_is_on_record() -> None:
    answer = error("invalid_request_error", 400, message=f"No such key: {KEY}")
    async with serving("stripe", Said(200, INTENT), answer) as (app, _):
        await app.invoke("stripe_create_payment", PAYMENT)
        outcome = await app.invoke("stripe_create_payment", PAYMENT)
        assert KEY not in failed(outcome, "INVALID_INPUT").message
        log = await records(app)
    assert KEY not in log
    assert "YrKJUKribcBjcG8HVhfZluoGH" not in log


# -- one effect


@pytest.mark.parametrize(
    "trouble",
    [
        Said(500, {"error": {"type": "api_error", "message": "Sorry."}}),
        Said(503, "<html>"),
        Said(409, {"error": {"type": "idempotency_error", "code": "idempotency_key_in_use", "message": "In use."}}),
        Said(raw=hang_up),
        Said(200, "not json"),
        Said(200, b"x" * 3_000_000),
        Said(200, {"object": "list"}),
    ],
    ids=["500", "503", "409", "hung up", "malformed", "huge", "something else"],
)
@pytest.mark.sample(2)
async def test_an_attempt_without_a_clear_answer_is_repeated_with_the_same_key(trouble: Answer) -> None:
    async with serving("stripe", trouble, Said(200, INTENT)) as (app, stripe):
        outcome = await app.invoke("stripe_create_payment", PAYMENT)
    assert outcome.output["paymentIntentId"] == INTENT["id"]
    assert len(stripe.asked) == 2
    assert outcome.metrics.cost_usd == 0.3
    assert len({asked.headers["idempotency-key"] for asked in stripe.asked}) == 1
    assert len({asked.body for asked in stripe.asked}) == 1


async def test_after_three_attempts_nobody_knows_and_the_key_stays_taken() -> None:
    async with serving("stripe", Said(502)) as (app, stripe):
        outcome = await app.invoke("stripe_create_payment", PAYMENT, idempotency_key="order-1001")
        failed(outcome, "OUTCOME_UNKNOWN")
        assert len(stripe.asked) == 3
        again = await app.invoke("stripe_create_payment", PAYMENT, idempotency_key="order-1001")
        failed(again, "OUTCOME_UNKNOWN")
        assert len(stripe.asked) == 3
        sent = {asked.headers["idempotency-key"] for asked in stripe.asked}
    assert sent == {idempotency_key("default", "local", "order-1001", "whatever")}


@pytest.mark.parametrize("later", [Said(429), Said(401), Said(503), None], ids=["429", "401", "503", "down"])
@pytest.mark.sample(2)
async def test_a_later_attempt_that_does_not_get_through_says_nothing_of_an_earlier_one(later: Said | None) -> None:
    async with serving("stripe", Said(500), later or Said(raw=hang_up)) as (app, stripe):
        outcome = await app.invoke("stripe_create_payment", PAYMENT)
    failed(outcome, "OUTCOME_UNKNOWN")
    assert outcome.metrics.cost_usd == 0.3
    assert 2 <= len(stripe.asked) <= 3


async def test_an_answer_about_the_payment_is_the_answer_to_all_attempts() -> None:
    async with serving("stripe", Said(500), error("card_error", 402, code="card_declined")) as (app, stripe):
        failed(await app.invoke("stripe_create_payment", PAYMENT), "INVALID_INPUT")
    assert len(stripe.asked) == 2


async def test_the_approver_is_told_what_one_payment_costs() -> None:
    async with serving("stripe", Said(200, INTENT)) as (app, _):
        assert "$0.30" in str(await app.explain("stripe_create_payment", PAYMENT))
        assert "$0.90" not in str(await app.explain("stripe_create_payment", PAYMENT))


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_timeout_is_no_failure_that_is_known() -> None:
    async with serving("stripe", never) as (app, stripe):
        failed(await app.invoke("stripe_create_payment", PAYMENT, timeout=5.0), "OUTCOME_UNKNOWN")
        assert len({asked.headers["idempotency-key"] for asked in stripe.asked}) == 1


def test_no_two_callers_share_a_key() -> None:
    keys = {
        idempotency_key(tenant, user, given, call)
        for tenant in ("a", "b") for user in ("a", "b") for given in (None, "a", "call") for call in ("a", "call")
    }  # fmt: skip
    assert len(keys) == 4 * (2 + 2)
    assert all(len(key) <= 255 for key in keys)


# -- errors as Stripe documents them


@pytest.mark.parametrize(
    ("answer", "code", "kind"),
    [
        (error("card_error", 402, code="card_declined", decline_code="insufficient_funds"), "INVALID_INPUT", "card_error"),
        (error("invalid_request_error", 400, param="amount"), "INVALID_INPUT", "invalid_request_error"),
        (error("idempotency_error", 400), "IDEMPOTENCY_CONFLICT", "idempotency_error"),
        (error("invalid_request_error", 401), "MISSING_AUTH", "invalid_request_error"),
        (error("invalid_request_error", 403), "PERMISSION_DENIED", "invalid_request_error"),
    ],
)
async def test_errors_have_codes_of_their_own_and_are_not_repeated(answer: Said, code: str, kind: str) -> None:
    async with serving("stripe", answer) as (app, stripe):
        outcome = await app.invoke("stripe_create_payment", PAYMENT)
        told = failed(outcome, code)
    assert told.details["type"] == kind
    assert "Something is wrong." in told.message
    assert len(stripe.asked) == 1
    assert outcome.metrics.cost_usd == 0.0
    if code in ("MISSING_AUTH", "PERMISSION_DENIED"):
        assert "dashboard.stripe.com/apikeys" in told.suggestion
    if kind == "card_error":
        assert told.details["decline_code"] == "insufficient_funds"


async def test_a_limit_of_stripe_says_when_to_come_again() -> None:
    limited = Said(429, {"error": {"type": "rate_limit_error", "message": "Too many."}}, {"retry-after": "7"})
    async with serving("stripe", limited) as (app, stripe):
        told = failed(await app.invoke("stripe_create_payment", PAYMENT), "RATE_LIMITED")
    assert (told.details["retry_after"], told.retryable, len(stripe.asked)) == (7.0, True, 1)


async def test_declined_cards_do_not_shut_others_out() -> None:
    declined = error("card_error", 402, code="card_declined")
    async with serving("stripe", *[declined] * 12, Said(200, INTENT)) as (app, _):
        for _ in range(12):
            failed(await app.invoke("stripe_create_payment", PAYMENT), "INVALID_INPUT")
        assert (await app.invoke("stripe_create_payment", PAYMENT)).status == "success"


async def test_one_tenant_cannot_open_the_circuit_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stripe_client, "PAUSES", (0.0, 0.0))
    async with serving("stripe", Said(200, INTENT)) as (app, stripe):
        await stripe.stop()
        for _ in range(6):
            outcome = await app.invoke("stripe_create_payment", PAYMENT, actor=Actor("acme", user="ann"))
        failed(outcome, "CIRCUIT_OPEN")
        await stripe.start()
        assert (await app.invoke("stripe_create_payment", PAYMENT, actor=Actor("globex", user="gus"))).status == "success"


# -- who pays, and where it goes


async def test_without_a_key_nothing_is_sent_and_the_answer_says_where_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLGATE_SECRET_STRIPE_SECRET_KEY")
    async with serving("stripe", Said(200, INTENT)) as (app, stripe):
        told = failed(await app.invoke("stripe_create_payment", PAYMENT), "MISSING_AUTH")
        assert await app.approvals.list() == []
    assert told.details == {"missing": "STRIPE_SECRET_KEY", "setup_url": "https://dashboard.stripe.com/apikeys"}
    assert stripe.asked == []


async def test_without_anybody_to_approve_nothing_is_sent() -> None:
    async with (
        site(scripted([Said(200, INTENT)])) as stripe,
        memory_app(services={"stripe": {"base_url": stripe.url}}) as app,
    ):
        outcome = await app.invoke("stripe_create_payment", PAYMENT)
        assert outcome.status == "pending"
        assert stripe.asked == []


async def test_each_user_pays_with_their_own_key(tmp_path: Any) -> None:
    async with site(scripted([Said(200, INTENT)])) as stripe:
        async with App.open("/dev/null", home=tmp_path, services={"stripe": {"base_url": stripe.url}}) as app:
            app.approvals.add_approver(lambda _request: True)
            await app.secrets.set("STRIPE_SECRET_KEY", "sk_test_of_acme_tenant", Owner("acme"))
            await app.secrets.set("STRIPE_SECRET_KEY", "sk_test_of_ann_herself", Owner("acme", "ann"))
            for actor in (Actor("acme", user="ann"), Actor("acme", user="bob"), Actor("globex", user="ann")):
                assert (await app.invoke("stripe_create_payment", PAYMENT, actor=actor)).status == "success"
        sent = [asked.headers["authorization"].removeprefix("Bearer ") for asked in stripe.asked]
    assert sent == ["sk_test_of_ann_herself", "sk_test_of_acme_tenant", KEY]


async def test_a_redirect_is_not_followed_and_takes_no_key_along() -> None:
    async with site(scripted([Said(200, INTENT)])) as other:
        async with serving("stripe", Said(307, "", {"location": f"{other.url}/v1/payment_intents"})) as (app, stripe):
            told = failed(await app.invoke("stripe_create_payment", PAYMENT), "INVOCATION_ERROR")
        assert "redirect" in told.message
        assert (len(stripe.asked), other.asked) == (1, [])


async def test_a_key_that_no_header_can_carry_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_STRIPE_SECRET_KEY", "sk_test_1234\nX-Evil: yes")
    async with serving("stripe", Said(200, INTENT)) as (app, stripe):
        told = failed(await app.invoke("stripe_create_payment", PAYMENT), "MISSING_AUTH")
    assert "Evil" not in json.dumps([told.message, told.suggestion, told.details])
    assert stripe.asked == []


@pytest.mark.parametrize(
    "wrong",
    [{"amount": 0}, {"amount": 10.5}, {"amount": -1}, {"currency": "us"}, {"currency": "us\n"}, {"customerId": "../balance"},
     {"amount": 10**9}, {"description": "x" * 1001}],
)  # fmt: skip
async def test_what_is_no_payment_is_refused_before_it_is_sent(wrong: dict[str, Any]) -> None:
    async with serving("stripe", Said(200, INTENT)) as (app, stripe):
        failed(await app.invoke("stripe_create_payment", {**PAYMENT, **wrong}), "VALIDATION_ERROR")
    assert stripe.asked == []


async def test_a_form_cannot_be_broken_out_of() -> None:
    text = "a&confirm=true&amount=1\r\nX: y%00 ünï"
    async with serving("stripe", Said(200, INTENT)) as (app, stripe):
        await app.invoke("stripe_create_payment", {"amount": 5, "currency": "eur", "description": text})
        asked: Asked = stripe.asked[0]
    assert asked.form == {"amount": "5", "currency": "eur", "description": text}


@pytest.mark.parametrize(
    ("status", "result"), [(200, "works"), (403, "works"), (401, "refused"), (500, "failed"), (302, "failed")]
)
async def test_the_key_is_tested_by_a_request_that_costs_nothing(status: int, result: str) -> None:
    """A restricted key that may not read the balance is a key all the same."""
    async with serving("stripe", Said(status, {"object": "balance"})) as (app, stripe):
        tested = await app.secrets.test("stripe_create_payment")
    assert (tested.result, tested.credential) == (result, "STRIPE_SECRET_KEY")
    assert KEY not in tested.message
    (asked,) = stripe.asked
    assert (asked.method, asked.path, asked.headers["authorization"]) == ("GET", "/v1/balance", f"Bearer {KEY}")

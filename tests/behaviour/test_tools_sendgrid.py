"""`sendgrid_send_email`: the request as SendGrid documents it, and what its answers become."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loopback import Said, site
from tests.services import failed, hang_up, never, records, scripted, serving
from toolgate.network.service_answers import retry_after, told
from toolgate.tools.mail import ADDRESS

pytestmark = pytest.mark.requirement("BUILTIN-3")
KEY = "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"
MAIL = {"to": "ann@example.com", "from": "shop@example.org", "subject": "Grüße", "text": "Hello", "html": "<p>Hello</p>"}
QUEUED = Said(202, b"", {"x-message-id": "14c5d75ce93.dfd.64b469"})


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_SENDGRID_API_KEY", KEY)


async def test_the_request_is_the_one_that_sendgrid_documents() -> None:
    async with serving("sendgrid", QUEUED) as (app, sendgrid):
        outcome = await app.invoke("sendgrid_send_email", MAIL)
        log = await records(app)
    assert outcome.output == {"messageId": "14c5d75ce93.dfd.64b469", "status": "queued"}
    (asked,) = sendgrid.asked
    assert (asked.method, asked.path) == ("POST", "/v3/mail/send")
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["content-type"] == "application/json"
    assert asked.json == {
        "personalizations": [{"to": [{"email": "ann@example.com"}]}],
        "from": {"email": "shop@example.org"},
        "subject": "Grüße",
        "content": [{"type": "text/plain", "value": "Hello"}, {"type": "text/html", "value": "<p>Hello</p>"}],
    }
    assert KEY not in log


async def test_either_text_or_html_will_do() -> None:
    async with serving("sendgrid", QUEUED) as (app, sendgrid):
        assert (await app.invoke("sendgrid_send_email", {**MAIL, "text": ""})).status == "success"
        failed(await app.invoke("sendgrid_send_email", {**MAIL, "text": "", "html": ""}), "INVALID_INPUT")
    assert [asked.json["content"] for asked in sendgrid.asked] == [[{"type": "text/html", "value": "<p>Hello</p>"}]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"to": "ann@example.com\r\nBcc: eve@example.com"}, {"to": "ann@example.com, eve@example.com"}, {"to": "ann"},
        {"to": "Ann <ann@example.com>"}, {"to": "ann@example"}, {"to": "ann@-example.com"}, {"to": "a..b@example.com"},
        {"to": f"{'a' * 65}@example.com"}, {"to": "ann@exa mple.com"}, {"to": "ann@[127.0.0.1]"}, {"to": ""},
        {"from": "shop@example.org\nBcc: eve@example.com"}, {"from": "shop@example.org\x00"}, {"from": "ann@exämple.com"},
        {"subject": "Hi\r\nBcc: eve@example.com"}, {"subject": "Hi\nthere"}, {"subject": "\x00"}, {"subject": "   "},
        {"subject": "Hi\u2028there"},
    ],
)  # fmt: skip
@pytest.mark.sample(4)
async def test_neither_addresses_nor_the_subject_bring_headers_along(wrong: dict[str, str]) -> None:
    async with serving("sendgrid", QUEUED) as (app, sendgrid):
        failed(await app.invoke("sendgrid_send_email", {**MAIL, **wrong}), "INVALID_INPUT")
    assert sendgrid.asked == []


@given(st.emails())
def test_addresses_that_people_have_are_taken(address: str) -> None:
    if len(address.partition("@")[0]) <= 64 and not address.rpartition(".")[2][-1:].isdigit():
        assert ADDRESS.match(address)


@given(st.text(max_size=60))
def test_whatever_passes_is_one_address_on_one_line(text: str) -> None:
    if ADDRESS.match(text):
        assert text.count("@") == 1
        assert text.isascii()
        assert text.isprintable()
        assert not set(text) & set(' ,;<>"()[]:\\')


async def test_errors_are_told_field_by_field() -> None:
    errors = [
        {"message": "The from email does not contain a valid address.", "field": "from.email", "help": "http://x"},
        {"message": "Something else", "field": None},
    ]
    async with serving("sendgrid", Said(400, {"errors": errors})) as (app, sendgrid):
        error = failed(await app.invoke("sendgrid_send_email", MAIL), "INVALID_INPUT")
    assert "from.email: The from email does not contain a valid address.; Something else" in error.message
    assert error.details["fields"] == ["from.email"]
    assert len(sendgrid.asked) == 1


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (
            Said(401, {"errors": [{"message": "The grant is expired"}]}),
            "MISSING_AUTH",
        ),
        (
            Said(403, {"errors": [{"message": "The from address is not verified."}]}),
            "PERMISSION_DENIED",
        ),
        (Said(413, {"errors": "odd"}), "INVALID_INPUT"),
        (Said(429, {"errors": [{"message": "too many requests"}]}), "RATE_LIMITED"),
        (Said(400, b"\xff\xfe"), "INVALID_INPUT"),
        (Said(400, b"[" * 100_000), "INVALID_INPUT"),
        (Said(500, {"errors": []}), "OUTCOME_UNKNOWN"),
        (Said(503, b""), "OUTCOME_UNKNOWN"),
        (Said(raw=hang_up), "OUTCOME_UNKNOWN"),
    ],
)
@pytest.mark.sample(4)
async def test_no_answer_leads_to_a_second_mail(answer: Said, code: str) -> None:
    async with serving("sendgrid", answer, QUEUED) as (app, sendgrid):
        failed(await app.invoke("sendgrid_send_email", MAIL), code)
    assert len(sendgrid.asked) == 1


async def test_a_mail_whose_answer_does_not_come_in_time_may_be_on_its_way() -> None:
    async with serving("sendgrid", never) as (app, sendgrid):
        outcome = await app.invoke("sendgrid_send_email", MAIL, timeout=3.0, idempotency_key="mail-1")
        failed(outcome, "OUTCOME_UNKNOWN")
        failed(await app.invoke("sendgrid_send_email", MAIL, idempotency_key="mail-1"), "OUTCOME_UNKNOWN")
    assert len(sendgrid.asked) == 1


async def test_a_service_that_is_down_is_tried_three_times() -> None:
    async with serving("sendgrid", QUEUED) as (app, sendgrid):
        await sendgrid.stop()
        outcome = await app.invoke("sendgrid_send_email", MAIL)
        failed(outcome, "CONNECTION_ERROR")
        assert outcome.metrics.attempts == 3


async def test_a_redirect_takes_no_key_and_no_mail_along() -> None:
    async with site(scripted([QUEUED])) as other:
        async with serving("sendgrid", Said(302, b"", {"location": other.url})) as (app, _):
            failed(await app.invoke("sendgrid_send_email", MAIL), "INVOCATION_ERROR")
        assert other.asked == []


async def test_a_hundred_mails_a_day_are_free() -> None:
    async with serving("sendgrid", QUEUED) as (app, _):
        explained = await app.explain("sendgrid_send_email", MAIL)
    assert "100 of 100 free calls of this day left" in str(explained)


async def test_without_a_key_the_answer_says_where_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLGATE_SECRET_SENDGRID_API_KEY")
    async with serving("sendgrid", QUEUED) as (app, sendgrid):
        error = failed(await app.invoke("sendgrid_send_email", MAIL), "MISSING_AUTH")
    assert error.details["setup_url"] == "https://app.sendgrid.com/settings/api_keys"
    assert sendgrid.asked == []


async def test_the_key_is_tested_by_a_request_that_sends_nothing() -> None:
    async with serving("sendgrid", Said(200, {"scopes": []}), Said(401)) as (app, sendgrid):
        assert (await app.secrets.test("sendgrid_send_email")).result == "works"
        assert (await app.secrets.test("sendgrid_send_email")).result == "refused"
    assert (sendgrid.asked[0].method, sendgrid.asked[0].path) == ("GET", "/v3/scopes")


@pytest.mark.parametrize(
    ("value", "wait"),
    [("7", 7.0), ("0.5", 0.5), ("", 30.0), ("soon", 30.0), ("-5", 30.0), ("nan", 30.0), ("inf", 30.0), ("1e99", 30.0),
     ("Wed, 21 Oct 2015 07:28:00 GMT", 30.0), ("99999999999999999999", 30.0)],
)  # fmt: skip
def test_a_time_to_wait_is_a_sane_number(value: str, wait: float) -> None:
    assert retry_after({"retry-after": value}) == wait


@given(st.one_of(st.text(), st.none(), st.integers()))
def test_what_a_service_says_is_one_short_line(text: Any) -> None:
    line = told(text)
    assert line is None or (len(line) <= 400 and line.isprintable())

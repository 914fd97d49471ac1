"""What travels over the event stream: signatures that hold, and messages that cannot break what reads them."""

import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.event_caller import signed
from toolgate.events.messages import MalformedRequest, read_request, read_result, short_reason
from toolgate.events.signatures import BadSignature, SigningKeys
from toolgate.settings.events import EventKeySettings, EventSettings

pytestmark = pytest.mark.requirement("JOB-3")

SECRET = "s" * 40
KEYS = SigningKeys({"crm": EventKeySettings(secret="CRM")}, {"CRM": SECRET}.get)
REQUEST = {"id": "a", "tenant": "acme", "user": "u-1", "tool": "echo", "deadline": 1.0, "arguments": {"text": "x"}}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary(max_size=200))
def test_the_signature_of_the_documentation_is_the_signature(body: bytes) -> None:
    assert KEYS.sign("crm", "request", body) == signed(body, key="crm", secret=SECRET)
    assert KEYS.verify(signed(body, key="crm", secret=SECRET), "request", body) == "crm"


@given(st.binary(max_size=50), st.binary(max_size=50), st.text(max_size=120))
def test_no_other_header_and_no_other_body_passes(body: bytes, other: bytes, header: str) -> None:
    with pytest.raises(BadSignature):
        KEYS.verify(header, "request", body)
    if other != body:
        with pytest.raises(BadSignature):
            KEYS.verify(KEYS.sign("crm", "request", body), "request", other)
    with pytest.raises(BadSignature):
        KEYS.verify(KEYS.sign("crm", "request", body), "result", body)


@given(st.binary(max_size=100) | json_values.map(orjson.dumps))
def test_whatever_comes_is_a_request_or_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_request(body)
    assert read_result(body) is None


@given(st.sampled_from(sorted(REQUEST)), json_values)
def test_a_field_of_another_kind_is_refused_with_the_id(field: str, value: object) -> None:
    try:
        read = read_request(orjson.dumps({**REQUEST, field: value}))
    except MalformedRequest as error:
        assert error.id == ("a" if field != "id" else None)
    else:
        assert getattr(read, field) == value


def test_depth_and_number_of_values_are_bounded() -> None:
    for body in (b"[" * 500_000, b'{"a":' * 200_000, b"[" + b"1," * 400_000 + b"1]"):
        begun = time.monotonic()
        with pytest.raises(MalformedRequest):
            read_request(body)
        assert time.monotonic() - begun < 10


@given(st.text())
def test_a_reason_is_fit_for_a_header(words: str) -> None:
    assert short_reason(words).isascii()
    assert "\n" not in short_reason(words)


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "http://127.0.0.1:1"},
        {"url": "nats://"},
        {"url": "nats://user:password@127.0.0.1:4222"},
        {"url": "nats://127.0.0.1:99999"},
        {"url": "kafka://a:9092,"},
        {"url": "nats://10.0.0.1", "username": "u", "password": "P"},
        {"username": "u"},
        {"sign_with": "nobody"},
        {"requests": "a", "results": "a"},
        {"requests": "a.*"},
        {"keys": {"a b": {"secret": "K"}}},
        {"keys": {"a": {"secret": "1-K"}}},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        EventSettings.model_validate(settings)


def test_an_address_has_its_usual_port() -> None:
    assert EventSettings(url="nats://a,b:5000").addresses == ["a:4222", "b:5000"]
    assert EventSettings(url="kafka+tls://[::1]").addresses == ["[::1]:9092"]


def test_a_key_that_is_too_short_signs_nothing() -> None:
    short = SigningKeys({"crm": EventKeySettings(secret="CRM")}, {"CRM": "short"}.get)
    with pytest.raises(BadSignature):
        short.sign("crm", "request", b"")
    with pytest.raises(BadSignature):
        short.verify(signed(b"", key="crm", secret="short"), "request", b"")
    assert "fewer than 32 bytes" in str(short.why_not("crm"))

"""`deep_reasoning`: the requests as OpenAI and Anthropic document them, and what their answers become."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loopback import Said, site
from tests.model_servers import KEY, anthropic, modelled, openai
from tests.services import failed, hang_up, never, records
from toolgate import Actor
from toolgate.errors import CODES, SettingsError
from toolgate.llm.completion import Malformed, Message, ModelRequest
from toolgate.llm.dialects import DIALECTS
from toolgate.llm.service_errors import error_of
from toolgate.settings import load_settings
from toolgate.settings.model import ModelChoice
from toolgate.testing import ScriptedApprover, memory_app

pytestmark = pytest.mark.requirement("BUILTIN-1")
PROBLEM = {"problem": "Is 91 prime?", "context": "Only divide."}
PROMPT = """You are a reasoning specialist. Think step-by-step to solve the following problem.

CONTEXT:
Only divide.

PROBLEM:
Is 91 prime?

Provide your reasoning process, then state your final answer clearly."""
FIELDS = ["choices", "message", "content", "refusal", "finish_reason", "usage", "error", "type", "text", "code", "details"]
BOTH = pytest.mark.parametrize("dialect", ["openai", "anthropic"])


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_MODEL_API_KEY", KEY)


# -- the request


async def test_the_request_is_the_one_that_openai_documents() -> None:
    async with modelled("openai", openai("91 = 7 * 13: no.")) as (app, server):
        outcome = await app.invoke("deep_reasoning", PROBLEM)
        log = await records(app)
    assert outcome.output["reasoning"] == "91 = 7 * 13: no."
    assert outcome.output["model"] == "m-1"
    assert outcome.output["tokensUsed"] == 29
    assert outcome.output["durationMs"] >= 0
    assert set(outcome.output) == {"reasoning", "model", "tokensUsed", "durationMs"}
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.query) == ("POST", "/v1/chat/completions", {})
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["content-type"] == "application/json"
    assert asked.json == {"model": "m-1", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8000}
    assert KEY not in log


async def test_the_request_is_the_one_that_anthropic_documents() -> None:
    answer = anthropic({"type": "thinking", "thinking": "…", "signature": "x"}, {"type": "text", "text": "No."})
    async with modelled("anthropic", answer, model={"max_tokens": 1024, "temperature": 0}) as (app, server):
        outcome = await app.invoke("deep_reasoning", PROBLEM)
    assert outcome.output["reasoning"] == "No."
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.query) == ("POST", "/v1/messages", {})
    assert asked.headers["x-api-key"] == KEY
    assert asked.headers["anthropic-version"] == "2023-06-01"
    assert asked.headers["content-type"] == "application/json"
    assert "authorization" not in asked.headers
    messages = [{"role": "user", "content": PROMPT}]
    assert asked.json == {"model": "m-1", "max_tokens": 1024, "temperature": 0.0, "messages": messages}


async def test_without_a_context_nothing_is_said_of_one() -> None:
    async with modelled("openai", openai("ok")) as (app, server):
        await app.invoke("deep_reasoning", {"problem": "Why?"})
    assert "CONTEXT" not in server.asked[0].json["messages"][0]["content"]


async def test_a_server_that_wants_no_key_gets_none() -> None:
    async with modelled("openai", openai("ok"), model={"secret": None}) as (app, server):
        assert (await app.invoke("deep_reasoning", PROBLEM)).ok
    assert "authorization" not in server.asked[0].headers


async def test_a_tenant_has_its_own_model_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_ACME_KEY", "acme-key-88")
    acme = Actor(tenant="acme", user="u-1")
    async with site(lambda _asked: _said(anthropic({"type": "text", "text": "from acme's"}))) as own:
        tenants = {
            "acme": {"provider": "anthropic", "name": "m-2", "base_url": own.url, "secret": "ACME_KEY"},
            "guests": {"name": None},
        }
        async with modelled("openai", openai("from everybody's"), model={"tenants": tenants}) as (app, server):
            assert (await app.invoke("deep_reasoning", PROBLEM, actor=acme)).output["reasoning"] == "from acme's"
            assert (await app.invoke("deep_reasoning", PROBLEM)).output["reasoning"] == "from everybody's"
            guest = await app.invoke("deep_reasoning", PROBLEM, actor=Actor(tenant="guests", user="u-1"))
        assert failed(guest, "MISSING_AUTH")
        assert own.asked[0].headers["x-api-key"] == "acme-key-88"
        assert own.asked[0].json["model"] == "m-2"
        assert len(server.asked) == 1


async def _said(said: Said) -> Said:
    return said


# -- tokens and money


@BOTH
async def test_tokens_and_cost_come_from_the_answer(dialect: str) -> None:
    answer = openai("x", read=1000, written=200)
    if dialect == "anthropic":
        answer = anthropic({"type": "text", "text": "x"}, read=700, written=200, cache_read_input_tokens=300)
    async with modelled(dialect, answer, model={"input_price": 3, "output_price": "15"}) as (app, _):
        outcome = await app.invoke("deep_reasoning", PROBLEM)
    assert outcome.metrics.tokens_used == 1200
    assert outcome.metrics.cost_usd == pytest.approx(1000 * 3e-6 + 200 * 15e-6, abs=1e-9)
    assert outcome.metrics.resources_used == ("model:m-1",)


async def test_without_prices_a_million_tokens_are_14_cents() -> None:
    async with modelled("openai", openai("x", read=600_000, written=400_000)) as (app, _):
        outcome = await app.invoke("deep_reasoning", PROBLEM)
    assert outcome.metrics.cost_usd == pytest.approx(0.14)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": -1, "completion_tokens": "many"},
        {"prompt_tokens": 10**18},
        {"prompt_tokens": 0, "completion_tokens": 0},
    ],
)
async def test_a_server_that_does_not_count_is_counted_by_characters(usage: Any) -> None:
    said = openai("four" * 10)
    assert isinstance(said.body, dict)
    said.body["usage"] = usage
    async with modelled("openai", said) as (app, _):
        outcome = await app.invoke("deep_reasoning", PROBLEM)
    assert outcome.output["tokensUsed"] == -(-len(PROMPT) // 4) + 10


async def test_a_call_that_may_cost_more_than_is_left_is_refused_before_it() -> None:
    model = {"output_price": 100, "max_tokens": 200_000}
    async with modelled("openai", openai("x"), model=model, budgets={"external_api_daily": "10"}) as (app, server):
        failed(await app.invoke("deep_reasoning", PROBLEM), "BUDGET_EXCEEDED")
        assert server.asked == []
    async with modelled("openai", openai("x"), model={**model, "max_tokens": 20_000}) as (app, server):
        assert (await app.invoke("deep_reasoning", PROBLEM)).ok


# -- answers that are none


@BOTH
async def test_an_answer_that_reached_its_limit_is_flagged(dialect: str) -> None:
    answer = openai("cut", finish="length")
    if dialect == "anthropic":
        answer = anthropic({"type": "text", "text": "cut"}, stop="max_tokens")
    async with modelled(dialect, answer) as (app, _):
        outcome = await app.invoke("deep_reasoning", PROBLEM)
    assert outcome.output["truncated"] is True
    assert outcome.output["reasoning"] == "cut"


REFUSALS = [
    ("openai", openai(None, refusal="I can't help with that.")),
    ("openai", openai("", finish="content_filter")),
    ("anthropic", anthropic(stop="refusal")),
]


@pytest.mark.parametrize(("dialect", "answer"), REFUSALS)
async def test_a_model_that_declines_is_paid_for(dialect: str, answer: Said) -> None:
    async with modelled(dialect, answer) as (app, _):
        outcome = await app.invoke("deep_reasoning", PROBLEM)
    assert "declined" in failed(outcome, "INVALID_INPUT").message
    assert outcome.metrics.tokens_used == 29
    assert outcome.metrics.cost_usd > 0


@pytest.mark.parametrize(
    ("dialect", "answer"),
    [
        ("openai", openai("")),
        ("openai", openai(" \n")),
        ("openai", openai(None, finish="tool_calls", tool_calls=[])),
        ("openai", openai("", finish="length")),
        ("openai", Said(body={})),
        ("openai", Said(body={"choices": []})),
        ("openai", Said(body={"choices": [None]})),
        ("openai", Said(body={"choices": [{"message": {"content": ["x"]}}]})),
        ("openai", Said(body=[1])),
        ("anthropic", anthropic()),
        ("anthropic", anthropic({"type": "text"})),
        ("anthropic", anthropic({"type": "tool_use", "id": "t", "name": "x", "input": {}}, stop="tool_use")),
        ("anthropic", Said(body={"content": "x"})),
    ],
)
async def test_what_is_no_answer_is_told(dialect: str, answer: Said) -> None:
    async with modelled(dialect, answer) as (app, _):
        failed(await app.invoke("deep_reasoning", PROBLEM), "OUTPUT_INVALID")


@pytest.mark.parametrize("body", ["<html>hello</html>", b"\xff\xfe", b"{", b"[" * 100_000])
async def test_a_body_that_is_no_json_is_told(body: bytes | str) -> None:
    async with modelled("openai", Said(200, body)) as (app, _):
        assert (await app.invoke("deep_reasoning", PROBLEM)).error is not None


async def test_an_answer_without_end_is_cut_off() -> None:
    async with modelled("openai", Said(200, b'{"a":"' + b"x" * 6_000_000)) as (app, _):
        outcome = await app.invoke("deep_reasoning", PROBLEM)
    assert outcome.error is not None
    assert "longer than" in outcome.error.message


# -- errors


def openai_error(status: int, message: str, kind: str, code: str | None = None, **headers: str) -> Said:
    return Said(status, {"error": {"message": message, "type": kind, "param": None, "code": code}}, headers)


def anthropic_error(status: int, kind: str, message: str, **headers: str) -> Said:
    return Said(status, {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}, headers)


ERRORS = [
    ("openai", openai_error(401, f"Incorrect API key provided: {KEY}.", "invalid_request_error", "invalid_api_key"),
     "MISSING_AUTH", False),
    ("openai", openai_error(403, "Country not supported", "request_forbidden"), "MISSING_AUTH", False),
    ("openai", openai_error(429, "Rate limit reached", "requests", "rate_limit_exceeded"), "RATE_LIMITED", True),
    ("openai", openai_error(429, "You exceeded your current quota", "insufficient_quota", "insufficient_quota"),
     "INVOCATION_ERROR", False),
    ("openai", openai_error(400, "This model's maximum context length is 128000 tokens.", "invalid_request_error",
                            "context_length_exceeded"), "INVALID_INPUT", False),
    ("openai", openai_error(400, "Unsupported value: 'temperature'", "invalid_request_error"), "INVALID_INPUT", False),
    ("openai", openai_error(404, "The model does not exist", "invalid_request_error", "model_not_found"),
     "INVOCATION_ERROR", False),
    ("openai", openai_error(402, "Insufficient Balance", "unknown_error"), "INVOCATION_ERROR", False),
    ("openai", openai_error(500, "The server had an error", "server_error"), "CONNECTION_ERROR", True),
    ("openai", Said(503, "<html>Service Unavailable</html>"), "CONNECTION_ERROR", True),
    ("openai", Said(404, {"error": "model 'm-1' not found"}), "INVOCATION_ERROR", False),
    ("openai", Said(302, b"", {"location": "https://evil.example/"}), "CONNECTION_ERROR", False),
    ("anthropic", anthropic_error(401, "authentication_error", f"invalid x-api-key {KEY}"), "MISSING_AUTH", False),
    ("anthropic", anthropic_error(403, "permission_error", "not permitted"), "MISSING_AUTH", False),
    ("anthropic", anthropic_error(429, "rate_limit_error", "too many"), "RATE_LIMITED", True),
    ("anthropic", anthropic_error(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
     "INVALID_INPUT", False),
    ("anthropic", anthropic_error(413, "request_too_large", "Request exceeds the maximum size"), "INVALID_INPUT", False),
    ("anthropic", anthropic_error(404, "not_found_error", "model: m-1"), "INVOCATION_ERROR", False),
    ("anthropic", anthropic_error(500, "api_error", "Internal server error"), "CONNECTION_ERROR", True),
    ("anthropic", anthropic_error(529, "overloaded_error", "Overloaded"), "CONNECTION_ERROR", True),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "answer", "code", "retryable"), ERRORS)
@pytest.mark.sample(4)
async def test_errors_of_the_server_have_toolgates_codes_and_cost_nothing(
    dialect: str, answer: Said, code: str, retryable: bool
) -> None:
    async with modelled(dialect, answer) as (app, server):
        outcome = await app.invoke("deep_reasoning", PROBLEM)
        log = await records(app)
    error = failed(outcome, code)
    assert error.retryable is retryable
    assert outcome.metrics.cost_usd == 0
    assert len(server.asked) == 1
    assert KEY not in f"{error.message}{error.suggestion}{error.details}{log}"


async def test_a_refused_key_is_named() -> None:
    async with modelled("openai", openai_error(401, "no", "x"), model={"secret": "TEAM_KEY"}) as (app, _):
        error = failed(await app.invoke("deep_reasoning", PROBLEM), "MISSING_AUTH")
        assert "TEAM_KEY" in error.message  # it is missing
    async with modelled("openai", openai_error(401, "no", "x")) as (app, _):
        error = failed(await app.invoke("deep_reasoning", PROBLEM), "MISSING_AUTH")
    assert "MODEL_API_KEY" in error.message
    assert "toolgate secrets set MODEL_API_KEY" in error.suggestion
    assert error.details == {"missing": "MODEL_API_KEY"}


@BOTH
async def test_the_time_to_wait_is_passed_on(dialect: str) -> None:
    said = Said(429, {"error": {"type": "rate_limit_error", "message": "slow down"}}, {"retry-after": "17"})
    async with modelled(dialect, said) as (app, _):
        assert failed(await app.invoke("deep_reasoning", PROBLEM), "RATE_LIMITED").details == {"retry_after": 17.0}


async def test_a_server_that_is_slow_gone_or_breaks_off_is_told() -> None:
    async with modelled("openai", never, model={"timeout": 0.2}) as (app, _):
        assert "0.2 s" in failed(await app.invoke("deep_reasoning", PROBLEM), "TIMEOUT").message
    async with modelled("openai", Said(raw=hang_up)) as (app, server):
        failed(await app.invoke("deep_reasoning", PROBLEM), "CONNECTION_ERROR")
        await server.stop()
        gone = await app.invoke("deep_reasoning", PROBLEM)
        assert failed(gone, "CONNECTION_ERROR").retryable
        assert gone.metrics.cost_usd == 0


# -- without a model, without a key, without a yes


async def test_without_a_model_nobody_is_asked() -> None:
    async with memory_app() as app:
        approver = ScriptedApprover()
        app.approvals.add_approver(approver)
        error = failed(await app.invoke("deep_reasoning", PROBLEM), "MISSING_AUTH")
        assert approver.asked == 0
    assert "model.name" in error.message


async def test_explain_says_what_is_missing_and_what_it_may_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_app() as app:
        told = await app.explain("deep_reasoning", PROBLEM)
        assert (told.verdict, told.reason.partition(":")[0]) == ("deny", "model")
    async with memory_app(model={"name": "m", "output_price": 10, "input_price": 1, "max_tokens": 1000}) as app:
        told = await app.explain("deep_reasoning", PROBLEM)
        assert told.verdict == "ask"
        assert told.estimate is not None
        assert 0.01 < told.estimate.cost_usd < 0.011
        assert told.estimate.latency_ms == 20_000
        monkeypatch.delenv("TOOLGATE_SECRET_MODEL_API_KEY")
        assert "MODEL_API_KEY" in (await app.explain("deep_reasoning", PROBLEM)).reason


async def test_without_its_key_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLGATE_SECRET_MODEL_API_KEY")
    async with site(_unreached) as server, memory_app(model={"name": "m", "base_url": server.url}) as app:
        approver = ScriptedApprover()
        app.approvals.add_approver(approver)
        error = failed(await app.invoke("deep_reasoning", PROBLEM), "MISSING_AUTH")
        assert approver.asked == 0
        assert server.connections == 0
    assert "toolgate secrets set MODEL_API_KEY" in error.message


async def _unreached(_asked: Any) -> Said:
    raise AssertionError("nothing should be sent")


@pytest.mark.parametrize("value", ["a b", "a\r\nX-Evil: 1", "schlüssel"])
async def test_a_key_that_is_none_is_not_sent(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_MODEL_API_KEY", value)
    async with modelled("openai", openai("x")) as (app, server):
        error = failed(await app.invoke("deep_reasoning", PROBLEM), "MISSING_AUTH")
        assert server.connections == 0
    assert value not in error.message


async def test_a_person_is_asked_about_each_question() -> None:
    async with site(lambda _asked: _said(openai("x"))) as server:
        model = {"name": "m", "base_url": server.url}
        async with memory_app(model=model) as app:
            assert (await app.invoke("deep_reasoning", PROBLEM)).status == "pending"
            approver = ScriptedApprover()
            approver.reject()
            app.approvals.add_approver(approver)
            failed(await app.invoke("deep_reasoning", PROBLEM), "USER_CANCELLED")
        assert server.asked == []


async def test_a_key_in_an_answer_is_masked() -> None:
    async with modelled("openai", openai(f"Your key is {KEY}, is it not?")) as (app, _):
        outcome = await app.invoke("deep_reasoning", PROBLEM)
    assert outcome.ok
    assert KEY not in outcome.output["reasoning"]


async def test_openai_itself_is_asked_with_the_name_that_its_models_take() -> None:
    asked = ModelRequest([Message("system", "s"), Message("user", "u")], max_tokens=8000)
    body = DIALECTS["openai"].body(ModelChoice(name="gpt-5.1"), asked)
    assert body == {
        "model": "gpt-5.1",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "max_completion_tokens": 8000,
    }
    body = DIALECTS["anthropic"].body(ModelChoice(name="c"), asked)
    assert body == {"model": "c", "max_tokens": 8000, "messages": [{"role": "user", "content": "u"}], "system": "s"}


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"base_url": "ftp://x"}, "must be an address"),
        ({"base_url": "https://user:pass@x/v1"}, "no user"),
        ({"base_url": "http://models.example/v1"}, "https"),
        ({"secret": "no name"}, "not the name of a secret"),
        ({"provider": "gemini"}, "openai"),
        ({"tenants": {"acme": {"base_url": "http://models.example/v1", "secret": "K"}}}, "https"),
        ({"tenants": {"acme": {"base_url": "https://models.example/v1"}}}, "which secret"),
        ({"tenants": {"acme": {"provider": "anthropic"}}}, "which secret"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_wrong_settings_are_refused(model: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        memory_app(model=model)


def test_names_of_tenants_in_a_file_stay_as_they_are(tmp_path: Any) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text("model:\n  name: a\n  tenants:\n    AcmeCorp: {name: b, maxTokens: 5, secret: null}\n")
    model = load_settings(file, {}, {}).model
    assert (model.of("AcmeCorp").name, model.of("AcmeCorp").max_tokens, model.of("AcmeCorp").secret) == ("b", 5, None)
    assert model.of("acme_corp").name == "a"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=4), inner),
    max_leaves=15,
)


@given(dialect=st.sampled_from(["openai", "anthropic"]), answer=JSON, status=st.integers(201, 599))
def test_whatever_a_server_sends_is_an_answer_or_an_error(dialect: str, answer: Any, status: int) -> None:
    try:
        read = DIALECTS[dialect].read(answer, ModelRequest([Message("user", "u")]))
        assert read.tokens >= 0
        assert isinstance(read.text, str)
    except Malformed as error:
        assert str(error)
    told = error_of(status, {"retry-after": str(answer)[:20]}, answer, ModelChoice(name="m"))
    assert told.code in CODES
    assert not told.charged
    assert len(told.message) < 1000

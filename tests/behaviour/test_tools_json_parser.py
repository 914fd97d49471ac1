"""`json_parser`: the value that a text holds, by the first way that gives one; never another, never without end."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.examples import at_most
from tests.model_servers import KEY, modelled, spoken
from tests.services import failed
from toolgate import Actor, App
from toolgate.llm import json_answers, json_extraction
from toolgate.testing import ScriptedApprover, memory_app

pytestmark = pytest.mark.requirement("BUILTIN-1")
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
HOLDERS = VALUES.filter(lambda value: isinstance(value, dict | list))
PROSE = st.text(st.characters(codec="utf-8", exclude_characters="[]{}<>`"), max_size=60)
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app(limits={"output_string": 10_000_000, "output_items": 1_000_000}) as app:
        yield app


async def parse(app: App, text: str, schema: Any = None) -> dict[str, Any]:
    outcome = await app.invoke("json_parser", {"text": text} if schema is None else {"text": text, "schema": schema})
    assert outcome.ok, outcome.error
    answer: dict[str, Any] = outcome.output
    assert set(answer) == ({"success", "data", "method"} if answer["success"] else {"success", "error"})
    return answer


def same(first: Any, second: Any) -> bool:
    """Equal, and of the same types: 1, 1.0 and True are three things."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


# -- what is there is found


@given(value=VALUES, indent=st.sampled_from([None, 2]))
async def test_any_json_is_read_directly(app: App, value: Any, indent: int | None) -> None:
    answer = await parse(app, f" {json.dumps(value, indent=indent)}\n")
    assert answer["method"] == "direct_parse"
    assert same(answer["data"], value)


@given(value=HOLDERS, before=PROSE, after=PROSE, indent=st.sampled_from([None, 2]))
async def test_any_object_or_list_is_found_in_prose(
    app: App, value: Any, before: str, after: str, indent: int | None
) -> None:
    assume(before.strip() or after.strip())
    written = json.dumps(value, indent=indent, ensure_ascii=False)
    answer = await parse(app, f"{before}: {written}\n{after}.")
    assert answer["method"] == "regex_extraction"
    assert same(answer["data"], value)


@given(value=VALUES, before=PROSE, after=PROSE, word=st.sampled_from(["json", "", "JSON", "javascript"]))
async def test_any_value_is_found_in_a_fence(app: App, value: Any, before: str, after: str, word: str) -> None:
    written = json.dumps(value, indent=1, ensure_ascii=False)
    answer = await parse(app, f"{before}\n```{word}\n{written}\n```\n{after}.")
    assert answer["method"] == "regex_extraction"
    assert same(answer["data"], value)


@settings(max_examples=12, suppress_health_check=list(HealthCheck), deadline=None)
@given(value=st.dictionaries(st.text("abc", min_size=1), SCALARS | st.text("xyz "), min_size=1, max_size=5), data=st.data())
async def test_what_is_cut_off_is_a_part_of_the_whole(app: App, value: dict[str, Any], data: st.DataObject) -> None:
    written = json.dumps(value)
    cut = written[: data.draw(st.integers(0, len(written) - 1))]
    answer = await parse(app, cut)
    if answer["success"]:
        assert answer["method"] == "repair"
        assert isinstance(answer["data"], dict)
        assert set(answer["data"]) <= {key[:length] for key in value for length in range(len(key) + 1)}


@pytest.mark.parametrize(
    ("text", "data", "method"),
    [
        ("{'a': True, b: None}", {"a": True, "b": None}, "repair"),
        ('{"a": 1, // first\n "b": [1, 2,],}', {"a": 1, "b": [1, 2]}, "repair"),
        ('{"a": "he said "hi" to me"}', {"a": 'he said "hi" to me'}, "repair"),
        ('{"a": {"b": [1, {"c": "d', {"a": {"b": [1, {"c": "d"}]}}, "repair"),
        ('[{"a": 1}, {"b": 2},]', [{"a": 1}, {"b": 2}], "repair"),
        ("[[1, 2], [3", [[1, 2], [3]], "repair"),
        ('["x" "y"]', ["x", "y"], "repair"),
        ('```json\n{"a": 1,}\n```', {"a": 1}, "repair"),
        ("Result: {a: 1} Hope this helps.", {"a": 1}, "repair"),
        ("For {name}, as in [1], it is {age: 3}", {"age": 3}, "repair"),
        ('<think>{"a": 1}</think> {"b": 2}', {"b": 2}, "regex_extraction"),
        ('\u0130<THINK>maybe {"a": 1}</THINK>{"b": 2}', {"b": 2}, "regex_extraction"),
        ('{"a": 1}</think>{"b": 2}', {"b": 2}, "regex_extraction"),
        ('As {name} says: {"a": 1}', {"a": 1}, "regex_extraction"),
        ('One {"a": 1} and two {"b": [1, 2, 3]}', {"b": [1, 2, 3]}, "regex_extraction"),
        ("The list is [1, 2, 3].", [1, 2, 3], "regex_extraction"),
        ('{"a": 1, "a": 2}', {"a": 2}, "direct_parse"),
        ("\ufeff[1]", [1], "direct_parse"),
        ('ok\r\n```json\r\n{"a": "x\u2028```\x85"}\r\n```\r\n', {"a": "x\u2028```\x85"}, "regex_extraction"),
        ("null", None, "direct_parse"),
    ],
)
@pytest.mark.sample(4)
async def test_texts_as_models_write_them(app: App, text: str, data: Any, method: str) -> None:
    answer = await parse(app, text)
    assert answer == {"success": True, "data": data, "method": method}
    assert same(answer["data"], data)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "prose", "no", "{", "ends with {", "as in [1", "{}}", "<think>{}</think>", '<think>{"a": 1}', "{name}",
        '{"a": NaN}', "[NaN]", '{"a": Infinity}', '{"a": -Infinity}', '{"a": undefined}', '{"a": }', '{"a":1,,"b":2}',
        '{"a": 1e999}', '{"a": 123456789012345678901234567890}', '"\\ud800"', "[" * 300 + "]" * 300, "[" * 5000,
    ],
)  # fmt: skip
@pytest.mark.sample(4)
async def test_what_is_no_value_is_not_made_one(app: App, text: str) -> None:
    answer = await parse(app, text)
    if answer["success"]:  # only what is really there
        assert (text, answer["data"]) == ("{}}", {})
    else:
        assert answer["error"]


PIECES = [
    "{", "}", "[", "]", '"', "'", ":", ",", "a", "1", "-", "true", "NaN", "\\", "\n", "```", "<think>", "</think>",
    "//", "/*", "*/", '{"a":', "[1,", "undefined", "#", "\u201c", " ",
]  # fmt: skip


@at_most(300)
@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_any_jumble_gives_json_or_a_reason(pieces: list[str]) -> None:
    try:
        found = json_extraction.extract("".join(pieces))
    except json_extraction.Unfit as error:
        assert str(error)
        return
    assert same(json.loads(json.dumps(found.data, allow_nan=False)), found.data)
    assert found.method != "repair" or (isinstance(found.data, dict | list) and found.data)


# -- hostile texts

QUADRATIC = '{"a": \'' + "\\'" * 15_000
N = 150_000
ATTACKS = {
    "brackets": "[" * N, "braces": "{" * N, "opened texts": '["' * (N // 2), "unclosed": "[" * 1000 + '"' + "a" * N,
    "numbers": "[1," * (N // 3), "objects": '{"a":' * (N // 5), "thoughts": "<think>" * (N // 7),
    "fences": "```\n" * (N // 4),
    "digits": "[" + "1" * N, "escapes": '{"a":"\\"' * (N // 8), "empty": "[]" * (N // 2), "closes": "]}" * (N // 2),
    "quotes": "{'" * (N // 2), "colons": "{a:" * (N // 3),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.sample(4)
async def test_a_hostile_text_takes_no_longer_than_its_length(app: App, name: str) -> None:
    began = time.process_time()
    await parse(app, ATTACKS[name])
    assert time.process_time() - began < 5  # of this process; the other one is ended


@pytest.mark.parametrize("attack", ['{"a": "' + '\\"' * 16_000 + "x} y", '{"a": "' + '\\"' * 16_000, QUADRATIC])
async def test_a_repair_without_end_is_ended(app: App, monkeypatch: pytest.MonkeyPatch, attack: str) -> None:
    monkeypatch.setattr(json_answers, "HELPER_SECONDS", 1.0)
    began = time.monotonic()
    answer = await parse(app, attack)
    assert time.monotonic() - began < 20
    assert not answer["success"] or isinstance(answer["data"], dict)


async def test_others_are_served_while_one_tenants_repairs_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_answers, "HELPER_SECONDS", 3.0)
    slow = "{a: '" + "\\'\"" * 10_000
    async with memory_app() as app:
        flood = [
            asyncio.ensure_future(app.invoke("json_parser", {"text": slow}, actor=Actor(tenant="rude", user="u")))
            for _ in range(8)
        ]
        await asyncio.sleep(0)
        answer = await asyncio.wait_for(app.invoke("json_parser", {"text": "{a: 1}"}), 20)
        assert answer.output["data"] == {"a": 1}
        assert sum(task.done() for task in flood) < 8
        for task in flood:
            task.cancel()
        await asyncio.gather(*flood, return_exceptions=True)


# -- schemas


async def test_a_value_must_fit_the_schema(app: App) -> None:
    assert (await parse(app, '{"name": "Ada", "age": 36}', PERSON))["method"] == "direct_parse"
    text = 'First {"name": "x", "age": "unknown to all of us"}, then {"name": "Ada", "age": 36}.'
    assert (await parse(app, text, PERSON))["data"] == {"name": "Ada", "age": 36}
    answer = await parse(app, '{"name": "Ada", "age": "36"}', PERSON)
    assert "age" in answer["error"]
    assert "schema" in answer["error"]
    assert (await parse(app, "{name: 'Ada', age: 36}", PERSON))["method"] == "repair"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$schema": "http://127.0.0.1:1/draft"},
        {"$ref": "#/nowhere"},
        {"properties": 1},
    ],
)
async def test_a_schema_that_is_none_or_leads_elsewhere_is_refused(app: App, schema: dict[str, Any]) -> None:
    outcome = await app.invoke("json_parser", {"text": "{}", "schema": schema})
    assert "schema" in failed(outcome, "INVALID_INPUT").message


async def test_a_schema_that_takes_for_ever_is_ended(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_answers, "HELPER_SECONDS", 1.0)
    doubling = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    schema = {"$defs": {**doubling, "d40": {"type": "string"}}, "$ref": "#/$defs/d0"}
    answer = await parse(app, "[1]", schema)
    assert answer["success"] is False


# -- by a model


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_MODEL_API_KEY", KEY)


@pytest.mark.usefixtures("key")
async def test_a_model_reads_the_value_out_of_a_text_without_json() -> None:
    said = 'The draft {"name": "?", "age": 0} is wrong.\n```json\n{"name": "Ada", "age": 36}\n```'
    async with modelled("openai", spoken("openai", said)) as (app, server):
        outcome = await app.invoke("json_parser", {"text": "Ada is 36 years old.", "schema": PERSON})
    assert outcome.output == {"success": True, "data": {"name": "Ada", "age": 36}, "method": "llm_extraction"}
    prompt = server.asked[0].json["messages"][0]["content"]
    assert "Ada is 36 years old." in prompt
    assert '"required":["name","age"]' in prompt


@pytest.mark.usefixtures("key")
async def test_a_model_is_the_last_resort_and_needs_a_schema() -> None:
    async with modelled("openai", spoken("openai", "{}")) as (app, server):
        assert (await app.invoke("json_parser", {"text": "nothing"})).output["success"] is False
        found = await app.invoke("json_parser", {"text": "so: {name: 'Ada', age: 36}", "schema": PERSON})
        assert found.output["method"] == "repair"
        assert server.asked == []


@pytest.mark.usefixtures("key")
async def test_a_models_answer_that_does_not_fit_is_no_success() -> None:
    async with modelled("openai", spoken("openai", '{"name": "Ada"}')) as (app, _):
        outcome = await app.invoke("json_parser", {"text": "Ada", "schema": PERSON})
    assert outcome.output["success"] is False
    assert "model" in outcome.output["error"]


@pytest.mark.usefixtures("key")
async def test_the_question_to_the_model_is_a_call_of_its_own() -> None:
    async with modelled("openai", spoken("openai", '{"name": "Ada", "age": 1}')) as (app, _):
        calls = [row.tool for row in (await _records_of(app, {"text": "Ada", "schema": PERSON}))]
    assert calls == ["deep_reasoning", "json_parser"]


async def _records_of(app: App, arguments: dict[str, Any]) -> list[Any]:
    from toolgate.testing.app import RecordedCalls

    calls = RecordedCalls()
    app.add_hook(calls.recorder())
    await app.invoke("json_parser", arguments)
    return list(calls)


@pytest.mark.usefixtures("key")
async def test_without_a_yes_the_model_is_not_asked() -> None:
    asked = {"text": "Ada", "schema": PERSON}
    async with memory_app(model={"name": "m", "base_url": "http://127.0.0.1:1/v1"}) as app:
        assert (await app.invoke("json_parser", asked)).status == "pending"
    async with memory_app(model={"name": "m", "base_url": "http://127.0.0.1:1/v1"}) as app:
        approver = ScriptedApprover()
        approver.reject()
        app.approvals.add_approver(approver)
        failed(await app.invoke("json_parser", asked), "USER_CANCELLED")

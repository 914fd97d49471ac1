"""`text_transform`: by the model where there is one, else offline what can be done offline, in any script and any size."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loopback import Said, site
from tests.model_servers import KEY, modelled, spoken
from tests.services import failed, never, records, scripted
from toolgate import App
from toolgate.extras import MissingExtra
from toolgate.testing import memory_app
from toolgate.testing.app import RecordedCalls
from toolgate.tools import offline_text
from toolgate.tools.offline_text import MAX_OFFLINE_CHARS

pytestmark = pytest.mark.requirement("BUILTIN-1")
OFFLINE = ["summarize", "extract_entities", "sentiment", "keywords"]
STORY = (
    "The river flooded the old town on Monday. Dr. Miller said that the river had risen by 2.5 metres in one night. "
    "Shops in the old town were closed. The mayor of the town promised help for the shops near the river. "
    "My cat slept. Volunteers carried sand to the river, and the town thanked them."
)


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        yield app


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_MODEL_API_KEY", KEY)


def missing(extra: str) -> None:
    raise MissingExtra(extra)


async def run(app: App, text: str, operation: str, **options: Any) -> dict[str, Any]:
    outcome = await app.invoke("text_transform", {"text": text, "operation": operation, "options": options})
    assert outcome.ok, outcome.error
    answer: dict[str, Any] = outcome.output
    return answer


# -- counting


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("", (0, 0, 0, 0)),
        (" \n\n ", (4, 0, 0, 0)),
        ("Hello", (5, 1, 1, 1)),
        ("One. Two words!\n\nThree more words?", (34, 6, 3, 2)),
        ("It costs 3.14 euros, he said.", (29, 6, 1, 1)),
        ("don't re-use it", (15, 3, 1, 1)),
        ("今天天气很好。我们走吧\uff01", (12, 10, 2, 1)),
        ("Привет, мир! Как дела?", (22, 4, 2, 1)),
        ("!!! ... ???", (11, 0, 0, 1)),
        ("a\n \n\n b", (7, 2, 1, 2)),
        ("🎉🎉", (2, 0, 0, 1)),
    ],
)
async def test_words_are_counted_in_any_script(app: App, text: str, counts: tuple[int, int, int, int]) -> None:
    answer = await run(app, text, "word_count")
    assert answer == dict(zip(("characters", "words", "sentences", "paragraphs"), counts, strict=True))


@given(words=st.lists(st.text("abcdefgäöüλжя", min_size=1, max_size=8), max_size=40))
async def test_words_between_spaces_are_words(app: App, words: list[str]) -> None:
    answer = await run(app, " ".join(words), "word_count")
    assert answer["words"] == len(words)
    assert answer["sentences"] == answer["paragraphs"] == bool(words)


async def test_counting_never_asks_a_model_and_needs_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline_text, "require", missing)
    async with memory_app(model={"name": "m", "base_url": "http://127.0.0.1:1/v1", "secret": None}) as app:
        assert (await run(app, "x " * 1_000_000, "word_count"))["words"] == 1_000_000


# -- offline


async def test_a_summary_is_made_of_the_sentences_that_say_most(app: App) -> None:
    answer = await run(app, STORY, "summarize", maxLength=200)
    assert answer["method"] == "offline"
    assert len(answer["summary"]) <= 200
    assert "river" in answer["summary"]
    assert "cat" not in answer["summary"]
    assert all(sentence in STORY for sentence in answer["summary"].split(". "))


@given(text=st.text(max_size=300), most=st.integers(20, 200))
async def test_a_summary_is_never_longer_than_asked(app: App, text: str, most: int) -> None:
    arguments = {"text": text, "operation": "summarize", "options": {"maxLength": most}}
    outcome = await app.invoke("text_transform", arguments)
    if outcome.ok:
        assert 0 < len(outcome.output["summary"]) <= most
    else:
        failed(outcome, "INVALID_INPUT")


async def test_a_sentence_that_is_too_long_is_cut_between_words(app: App) -> None:
    answer = await run(app, "word " * 500, "summarize", maxLength=30)
    assert answer["summary"] == "word word word word word…"


@pytest.mark.parametrize(
    ("text", "sentiment"),
    [
        ("I love this. It is wonderful and great!", "positive"),
        ("This is horrible, I hate it and it is the worst.", "negative"),
        ("The table has four legs.", "neutral"),
        ("Great!", "positive"),
    ],
)
async def test_the_sentiment_of_english_is_told(app: App, text: str, sentiment: str) -> None:
    answer = await run(app, text, "sentiment")
    assert answer["sentiment"] == sentiment
    assert -1 <= answer["score"] <= 1
    assert answer["method"] == "offline"


@pytest.mark.parametrize(
    "text",
    [
        "Ich bin sehr traurig und das Wetter ist heute Abend schlecht",
        "Я очень люблю этот город.",
        "今天天气很好",
        "Ce film est vraiment magnifique et les acteurs jouent parfaitement bien",
    ],
)
async def test_the_sentiment_of_other_languages_is_not_guessed(app: App, text: str) -> None:
    outcome = await app.invoke("text_transform", {"text": text, "operation": "sentiment"})
    assert "English" in failed(outcome, "INVALID_INPUT").message


async def test_keywords_are_what_the_text_is_about(app: App) -> None:
    answer = await run(app, STORY, "keywords", count=6)
    assert len(answer["keywords"]) == 6
    assert "river" in " ".join(answer["keywords"])
    assert not {"the", "in", "and", "by"} & {word for phrase in answer["keywords"] for word in phrase.split()}
    assert (await run(app, "公园很大。公园很美。公园有树。", "keywords", count=1))["keywords"] == ["公园"]


async def test_only_what_a_pattern_surely_finds_is_an_entity_offline(app: App) -> None:
    text = (
        "Ada Lovelace (ada@example.org) paid $1,200.50 on 2024-03-01 and 30 EUR on March 5, 2024, 12% of it at "
        "https://shop.example/a?b=1. Version v2 and 192.168.0.1 and 42 more; 7 May 2023."
    )
    answer = await run(app, text, "extract_entities")
    assert [(one["text"], one["type"]) for one in answer["entities"]] == [
        ("ada@example.org", "email"),
        ("$1,200.50", "money"),
        ("2024-03-01", "date"),
        ("30 EUR", "money"),
        ("March 5, 2024", "date"),
        ("12%", "percentage"),
        ("https://shop.example/a?b=1", "url"),
        ("42", "number"),
        ("7 May 2023", "date"),
    ]
    assert "need a language model" in answer["note"]


@pytest.mark.parametrize("operation", OFFLINE)
@pytest.mark.parametrize("text", ["", "  \n", "...", "🎉", "\x00", "a", "Ж", "ك", "ไทย", "हिन्दी भाषा", "1", "שלום עולם"])
@pytest.mark.sample(8)
async def test_short_texts_of_any_script_have_an_answer_or_a_clear_refusal(app: App, operation: str, text: str) -> None:
    outcome = await app.invoke("text_transform", {"text": text, "operation": operation})
    if not outcome.ok:
        failed(outcome, "INVALID_INPUT")


HOSTILE = {
    "one word": "a" * 40_000, "initials": "A. " * 13_000, "lines": "\n\na" * 13_000, "digits": "1" * 40_000,
    "commas": "1," * 20_000, "ats": "a@" * 20_000, "dots": "a." * 20_000, "mails": "x@x." * 10_000,
    "dollars": "$1" * 20_000, "months": "Jan " * 10_000, "sentences": "The thing is big and small. " * 1_500,
    "apostrophes": "a'" * 20_000, "cjk": "公园" * 20_000, "spaces": "a" + " " * 40_000 + "b", "hyphens": "a-" * 20_000,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.sample(4)
async def test_a_hostile_text_takes_no_longer_than_its_length(app: App, name: str) -> None:
    for operation in [*OFFLINE, "word_count"]:
        await in_time(app, HOSTILE[name], operation, 4)


@pytest.mark.parametrize(
    ("text", "operation"),
    [("!?" * 99_000 + "a b", "summarize"), ('".' * 99_000 + "a b", "summarize"), ("good but bad " * 15_000, "sentiment")],
    ids=["marks", "quotes", "but"],
)
async def test_libraries_that_take_the_square_of_a_text_get_it_in_pieces(app: App, text: str, operation: str) -> None:
    await in_time(app, text, operation, 12)


async def in_time(app: App, text: str, operation: str, seconds: float) -> None:
    began = time.process_time()
    outcome = await app.invoke("text_transform", {"text": text, "operation": operation})
    assert time.process_time() - began < seconds, operation
    if not outcome.ok:
        failed(outcome, "INVALID_INPUT")


@pytest.mark.parametrize("operation", OFFLINE)
async def test_more_than_can_be_read_offline_is_refused(app: App, operation: str) -> None:
    outcome = await app.invoke("text_transform", {"text": "a " * MAX_OFFLINE_CHARS, "operation": operation})
    assert "200,000" in failed(outcome, "INVALID_INPUT").message


async def test_a_translation_needs_a_model_and_a_language(app: App) -> None:
    asked = {"text": "Hello", "operation": "translate"}
    assert "targetLanguage" in str(failed(await app.invoke("text_transform", asked), "INVALID_INPUT").suggestion)
    outcome = await app.invoke("text_transform", {**asked, "options": {"targetLanguage": "German"}})
    error = failed(outcome, "MISSING_AUTH")
    assert error.details == {"missing": "model.name"}
    assert "model.name" in error.suggestion


@pytest.mark.parametrize("operation", ["summarize", "sentiment"])
async def test_a_missing_extra_is_named(app: App, monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    monkeypatch.setattr(offline_text, "require", missing)
    offline_text._analyzer.cache_clear()
    outcome = await app.invoke("text_transform", {"text": STORY, "operation": operation, "options": {"maxLength": 50}})
    assert outcome.error is not None
    assert "toolgate[text]" in outcome.error.message


@pytest.mark.parametrize(
    "options", [{"maxLength": 0}, {"count": 10_000}, {"targetLanguage": "x\nIgnore"}, {"other": 1}, {"maxLength": "all"}]
)
async def test_options_that_make_no_sense_are_refused(app: App, options: dict[str, Any]) -> None:
    outcome = await app.invoke("text_transform", {"text": "Hello", "operation": "keywords", "options": options})
    failed(outcome, "VALIDATION_ERROR")


# -- by a model

ANSWERS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("summarize", {"maxLength": 100}, '{"summary": "Flood."}', {"summary": "Flood."}),
    (
        "translate",
        {"targetLanguage": "German"},
        '{"translation": "Hochwasser"}',
        {"translation": "Hochwasser", "targetLanguage": "German"},
    ),
    (
        "extract_entities",
        {},
        '{"entities": [{"text": "Dr. Miller", "type": "person", "more": 1}]}',
        {"entities": [{"text": "Dr. Miller", "type": "person"}]},
    ),
    ("sentiment", {}, '{"sentiment": "negative", "score": -0.4}', {"sentiment": "negative", "score": -0.4}),
    ("keywords", {"count": 2}, '{"keywords": ["river", "flood", "town"]}', {"keywords": ["river", "flood"]}),
]


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize(("operation", "options", "said", "output"), ANSWERS)
async def test_a_model_is_asked_where_there_is_one(
    operation: str, options: dict[str, Any], said: str, output: dict[str, Any]
) -> None:
    async with modelled("anthropic", spoken("anthropic", f"Let me see.\n```json\n{said}\n```")) as (app, server):
        calls = RecordedCalls()
        app.add_hook(calls.recorder())
        answer = await run(app, STORY, operation, **options)
    assert answer == {**output, "method": "model"}
    assert STORY in server.asked[0].json["messages"][0]["content"]
    assert [call.tool for call in calls] == ["deep_reasoning", "text_transform"]
    assert calls[0].outcome.metrics.cost_usd > 0
    assert calls[1].outcome.metrics.cost_usd == 0


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize(
    "said", ["I would rather not.", '{"sentiment": "furious", "score": 1}', '{"sentiment": "positive", "score": 7}', "[]"]
)
async def test_a_models_answer_is_taken_only_in_the_form_that_was_asked_for(said: str) -> None:
    token = "ghp_" + "a1B2" * 9
    async with modelled("openai", spoken("openai", f"{said} {token}")) as (app, _):
        answer = await run(app, STORY, "sentiment")
        asked = {"text": "Hello", "operation": "translate", "options": {"targetLanguage": "German"}}
        message = failed(await app.invoke("text_transform", asked), "OUTPUT_INVALID").message
        kept = await records(app)
    assert answer["method"] == "offline"
    assert answer["note"] == "The language model gave no answer that can be used: done offline."
    assert message == "The model's answer is not what was asked for: JSON with translation."
    assert f"It begins: {said}" in kept.replace('\\"', '"')
    assert token not in kept


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize("operation", OFFLINE)
async def test_a_model_that_is_asked_in_vain_is_replaced_offline(operation: str) -> None:
    async with modelled("openai", Said(500, {"error": {"message": "overloaded"}})) as (app, server):
        calls = RecordedCalls()
        app.add_hook(calls.recorder())
        answer = await run(app, STORY, operation)
        asked = {"text": "a " * 150_000, "operation": operation}
        failed(await app.invoke("text_transform", asked), "CONNECTION_ERROR")
        assert server.asked
    assert answer["method"] == "offline"
    assert answer["note"].startswith("The language model could not be reached: done offline.")
    assert calls[0].outcome.metrics.cost_usd == 0


@pytest.mark.usefixtures("key")
async def test_a_model_that_is_late_is_replaced_offline() -> None:
    async with modelled("openai", never, model={"timeout": 0.2}) as (app, _):
        answer = await run(app, STORY, "keywords")
    assert (answer["method"], answer["note"]) == ("offline", "The language model did not answer in time: done offline.")


@pytest.mark.usefixtures("key")
async def test_no_model_is_asked_if_the_caller_wants_none() -> None:
    async with site(scripted([spoken("openai", "{}")])) as server:
        async with memory_app(model={"name": "m", "base_url": server.url}) as app:  # nobody approves anything
            for operation in OFFLINE:
                assert (await run(app, STORY, operation, offline=True))["method"] == "offline"
            asked = {"text": "Hi", "operation": "translate", "options": {"targetLanguage": "German", "offline": True}}
            failed(await app.invoke("text_transform", asked), "INVALID_INPUT")
        assert server.asked == []


@pytest.mark.usefixtures("key")
async def test_who_may_not_ask_the_model_gets_what_can_be_done_offline() -> None:
    async with modelled("openai", spoken("openai", "{}"), tools={"deep_reasoning": {"enabled": False}}) as (app, server):
        assert (await run(app, STORY, "keywords"))["method"] == "offline"
        asked = {"text": "Hello", "operation": "translate", "options": {"targetLanguage": "German"}}
        failed(await app.invoke("text_transform", asked), "MISSING_AUTH")
        assert server.asked == []


@pytest.mark.usefixtures("key")
async def test_a_question_to_the_model_waits_for_a_person_and_goes_on_with_their_yes() -> None:
    asked = {"text": STORY, "operation": "keywords"}
    async with site(scripted([spoken("openai", '{"keywords": ["flood"]}')])) as server:
        async with memory_app(model={"name": "m", "base_url": server.url}) as app:
            waits = await app.invoke("text_transform", asked)
            assert waits.pending is not None
            assert server.asked == []
            await app.approvals.answer(waits.pending.id, True)
            done = await app.invoke("text_transform", asked, approval=waits.pending.id)
        assert done.output == {"keywords": ["flood"], "method": "model"}
        assert len(server.asked) == 1


@pytest.mark.usefixtures("key")
async def test_a_text_that_no_model_would_read_is_not_sent() -> None:
    async with modelled("openai", spoken("openai", "{}")) as (app, server):
        outcome = await app.invoke("text_transform", {"text": "a " * 600_000, "operation": "summarize"})
        assert "too long" in failed(outcome, "INVALID_INPUT").message
        assert server.asked == []


@pytest.mark.usefixtures("key")
async def test_a_long_translation_is_not_cut_on_its_way() -> None:
    long = "wort " * 5_000
    async with modelled("openai", spoken("openai", f'{{"translation": "{long}"}}'), limits={"output_string": 30_000}) as (
        app,
        _,
    ):
        answer = await run(app, "word", "translate", targetLanguage="German")
    assert answer["translation"] == long


@pytest.mark.parametrize(
    ("tool", "arguments", "asks"),
    [
        ("text_transform", {"text": "x", "operation": "summarize"}, True),
        ("text_transform", {"text": "x", "operation": "word_count"}, False),
        ("text_transform", {"text": "x", "operation": "summarize", "options": {"offline": True}}, False),
        ("json_parser", {"text": "x", "schema": {"type": "object"}}, True), ("json_parser", {"text": "x"}, False),
    ],
)  # fmt: skip
async def test_explain_says_whether_a_model_may_be_asked(tool: str, arguments: dict[str, Any], asks: bool) -> None:
    async with memory_app(model={"name": "m", "base_url": "http://127.0.0.1:1/v1", "secret": None}) as app:
        explained = await app.explain(tool, arguments)
        assert explained.verdict == "run" and explained.gates[-1].gate == "model"
        assert ("deep_reasoning" in explained.gates[-1].reason) is asks
    async with memory_app() as app:
        assert "deep_reasoning" not in (await app.explain(tool, arguments)).gates[-1].reason


@pytest.mark.parametrize("tool", ["text_transform", "json_parser", "http_fetch", "search_engine"])
@pytest.mark.parametrize("arguments", [[1], "x", {"options": 3, "schema": 4, "url": 7}])
async def test_explain_of_arguments_of_another_kind_is_a_refusal(tool: str, arguments: Any) -> None:
    async with memory_app(model={"name": "m", "base_url": "http://127.0.0.1:1/v1", "secret": None}) as app:
        explained = await app.explain(tool, arguments)
        assert explained.verdict == "deny" and explained.reason.startswith("input: ")

"""`text_transform`: a text summarized, translated, counted or searched: by the configured language model, else offline."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from toolgate.errors import CallError, InvalidInput, ToolError, ToolgateError
from toolgate.llm.json_answers import JsonFinder
from toolgate.llm.models import MODEL_CALL_SECONDS, LanguageModels, ModelUse, no_model
from toolgate.model import Capability, ErrorCase, Example
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.threads import to_thread
from toolgate.tools import offline_text
from toolgate.tools.offline_text import MAX_ENTITIES, MAX_OFFLINE_CHARS, TextEntity

DEFAULT_SUMMARY_CHARS = 500
DEFAULT_KEYWORDS = 10
MAX_SUMMARY_CHARS = 20_000
MAX_KEYWORDS = 100
PATTERNS_ONLY = "Found by patterns: names of people, places and organizations need a language model."
NOT_PERMITTED = frozenset({"TOOL_NOT_FOUND", "PERMISSION_DENIED"})
"""Ends of the call to the model by which a caller is told that it is not theirs to use."""

FALLBACKS = {
    "CONNECTION_ERROR": "could not be reached",
    "CIRCUIT_OPEN": "could not be reached",
    "TIMEOUT": "did not answer in time",
    "OUTPUT_INVALID": "gave no answer that can be used",
}
"""Ends of the call to the model after which the text is read offline, where that is possible."""

Operation = Literal["summarize", "translate", "extract_entities", "sentiment", "keywords", "word_count"]


class TransformOptions(TypedDict, total=False):
    """What an operation takes besides the text."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    maxLength: Annotated[int, Field(ge=20, le=MAX_SUMMARY_CHARS)]
    targetLanguage: Annotated[str, Field(pattern=r"^[\w ()-]{2,60}$")]
    count: Annotated[int, Field(ge=1, le=MAX_KEYWORDS)]
    offline: bool


class Transformed(TypedDict, total=False):
    """What the operation gives. `method`: by a model, or offline; `note`: why offline, or what that leaves out."""

    summary: str
    translation: str
    targetLanguage: str
    entities: list[TextEntity]
    note: str
    sentiment: Literal["positive", "negative", "neutral"]
    score: float
    keywords: list[str]
    characters: int
    words: int
    sentences: int
    paragraphs: int
    method: Literal["model", "offline"]


def _may_ask(arguments: Mapping[str, Any]) -> bool:
    options = arguments.get("options")
    offline = isinstance(options, Mapping) and options.get("offline")
    return arguments.get("operation") != "word_count" and not offline


@tool(
    tier="read_only",
    category="service",
    tags=["text", "model"],
    capabilities=[
        Capability(action="summarize", estimated_time_ms=500),
        *("translate", "extract_entities", "sentiment", "keywords", "word_count"),
    ],
    timeout=MODEL_CALL_SECONDS,
    hooks=[ModelUse(_may_ask)],
    pure=True,
    errors=[
        ErrorCase("MISSING_AUTH", "the operation needs a model, and none is configured", "Set model.name and its key."),
        ErrorCase("INVALID_INPUT", "there is no text, or too much for the operation", "Give another text."),
        ErrorCase("INVALID_INPUT", "an option is missing: targetLanguage of translate", "Add it."),
        ErrorCase("OUTPUT_INVALID", "the model's answer is of no use, and offline is not possible", "Try again."),
    ],
    examples=[
        Example(
            name="count",
            arguments={"text": "One. Two words!", "operation": "word_count"},
            output={"characters": 15, "words": 3, "sentences": 2, "paragraphs": 1},
        ),
        Example(
            name="summary",
            arguments={
                "text": "Tools have tiers. A tier says what a tool may do. Every tool has one tier.",
                "operation": "summarize",
                "options": {"maxLength": 40},
            },
        ),
        Example(name="no language", arguments={"text": "Hello", "operation": "translate"}, error="INVALID_INPUT"),
    ],
)
async def text_transform(
    ctx: InvokeContext,
    text: Annotated[str, Field(json_schema_extra={"x-command": False, "x-path": False})],
    operation: Operation,
    options: TransformOptions | None = None,
) -> Transformed:
    """Transform text: summarize, translate, extract entities, sentiment, keywords, or count words.

    Args:
        text: The text.
        operation: What to do with it.
        options: maxLength of a summary in characters, targetLanguage of a translation, count of keywords; offline: no model.
    """
    if operation == "word_count":
        counts = await to_thread(offline_text.count, text)
        return {**counts}  # type: ignore[typeddict-item]
    chosen = options or {}
    if not text.strip():
        raise InvalidInput("There is no text.")
    if operation == "translate" and "targetLanguage" not in chosen:
        raise InvalidInput("There is no language to translate to.", suggestion="Give options.targetLanguage.")
    if operation == "translate" and chosen.get("offline"):
        raise InvalidInput("A translation needs a language model.", suggestion="Leave options.offline out.")
    models: LanguageModels = ctx.get(LanguageModels)
    if not models.is_configured(ctx.actor) or chosen.get("offline"):
        return await to_thread(_offline, text, operation, chosen)
    try:
        return await _by_model(ctx, text, operation, chosen)
    except (CallError, ToolError) as error:
        if error.code in NOT_PERMITTED:
            return await to_thread(_offline, text, operation, chosen)
        if error.code not in FALLBACKS or operation == "translate":
            raise
        return await _instead(text, operation, chosen, error)


async def _instead(text: str, operation: str, options: TransformOptions, error: CallError | ToolError) -> Transformed:
    """What is found offline after the model failed; where that is nothing either, the model's error."""
    try:
        made = await to_thread(_offline, text, operation, options)
    except ToolgateError:
        raise error from None
    why = f"The language model {FALLBACKS[error.code]}: done offline."
    made["note"] = f"{why} {made['note']}" if "note" in made else why
    return made


# -- by the model


def _question(operation: str, options: TransformOptions) -> tuple[str, dict[str, Any]]:
    """What the model is asked, and the schema of its answer."""
    words = {"type": "string", "minLength": 1}
    match operation:
        case "summarize":
            most = options.get("maxLength", DEFAULT_SUMMARY_CHARS)
            asked = f"Summarize the context in at most {most} characters, in the language that it is written in."
            return asked, {"summary": words}
        case "translate":
            return f"Translate the whole context into {options['targetLanguage']}.", {"translation": words}
        case "extract_entities":
            kinds = "person, organization, place, date, money, number, email, url, product or event"
            entity = {"type": "object", "properties": {"text": words, "type": words}, "required": ["text", "type"]}
            asked = f"List the entities that the context names, as it writes them. The type is {kinds}."
            return asked, {"entities": {"type": "array", "items": entity, "maxItems": MAX_ENTITIES}}
        case "sentiment":
            kinds_of = {"enum": ["positive", "negative", "neutral"]}
            asked = "Tell the sentiment of the context, with a score from -1 (negative) to 1 (positive)."
            return asked, {"sentiment": kinds_of, "score": {"type": "number", "minimum": -1, "maximum": 1}}
    count = options.get("count", DEFAULT_KEYWORDS)
    return f"List the {count} keywords of the context, the most telling first.", {
        "keywords": {"type": "array", "items": words, "maxItems": MAX_KEYWORDS}
    }


async def _by_model(ctx: InvokeContext, text: str, operation: str, options: TransformOptions) -> Transformed:
    asked, fields = _question(operation, options)
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    finder: JsonFinder = ctx.get(JsonFinder)
    answer = await finder.ask_model(ctx, f"{asked} The fields of the answer: {', '.join(fields)}.", text, schema)
    if answer.method is None:
        raise ToolError(
            f"The model's answer is not what was asked for: JSON with {' and '.join(fields)}.",
            code="OUTPUT_INVALID",
            suggestion="Try again, or ask a model that writes JSON. The call's record has the beginning of what it wrote.",
        )
    taken = {name: answer.data[name] for name in fields}
    if operation == "extract_entities":
        taken["entities"] = [{"text": one["text"], "type": one["type"]} for one in taken["entities"]]
    if operation == "keywords":
        taken["keywords"] = taken["keywords"][: options.get("count", DEFAULT_KEYWORDS)]
    if operation == "translate":
        taken["targetLanguage"] = options["targetLanguage"]
    made: Transformed = {**taken, "method": "model"}  # type: ignore[typeddict-item]
    return made


# -- offline


def _offline(text: str, operation: str, options: TransformOptions) -> Transformed:
    if operation == "translate":
        raise no_model("translate")
    if len(text) > MAX_OFFLINE_CHARS:
        raise InvalidInput(
            f"Without a language model, a text has at most {MAX_OFFLINE_CHARS:,} characters.", suggestion="Split it."
        )
    if operation == "extract_entities":
        return {"entities": offline_text.entities(text), "note": PATTERNS_ONLY, "method": "offline"}
    if not offline_text.words_of(text):
        raise InvalidInput("There are no words in the text.")
    if operation == "summarize":
        summary = offline_text.summarize(text, options.get("maxLength", DEFAULT_SUMMARY_CHARS))
        return {"summary": summary, "method": "offline"}
    if operation == "sentiment":
        kind, score = offline_text.sentiment(text)
        return {"sentiment": kind, "score": score, "method": "offline"}
    return {"keywords": offline_text.keywords(text, options.get("count", DEFAULT_KEYWORDS)), "method": "offline"}

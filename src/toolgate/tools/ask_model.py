"""`ask_model`: one turn of a language model. The agent loop, `context.llm` of custom tools and sampling of MCP servers ask
a model by calling this, so that each turn is permitted, approved, paid for and recorded as a call. No list shows it."""

from time import perf_counter
from typing import Annotated, Any, Literal, NotRequired

import msgspec
from pydantic import Field
from typing_extensions import TypedDict

from toolgate.jsontext import with_texts
from toolgate.llm.completion import Completion, Conversations, Ending, ToolRequest
from toolgate.llm.models import MAX_PROBLEM_CHARS, MODEL_CALL_SECONDS, LanguageModels
from toolgate.llm.turns import ModelTurn, turn_of
from toolgate.model import Capability, Cost, ErrorCase, Example, UnitCost
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.screening.secret_patterns import masker
from toolgate.threads import to_thread

PLAIN = {"x-command": False, "x-path": False}
Name = Annotated[str, Field(min_length=1, max_length=256, json_schema_extra=PLAIN)]
Text = Annotated[str, Field(max_length=MAX_PROBLEM_CHARS, json_schema_extra=PLAIN)]


class TurnRequest(TypedDict):
    """A tool that the model wants called. `arguments` is null where they could not be parsed: `text` is what came."""

    id: Name
    name: Annotated[str, Field(max_length=256)]
    arguments: dict[str, Any] | None
    text: NotRequired[Text]


class TurnMessage(TypedDict):
    """A message. `requests`: of role assistant. `request_id`, `is_error`: of role tool."""

    role: Literal["system", "user", "assistant", "tool"]
    text: Text
    requests: NotRequired[list[TurnRequest]]
    request_id: NotRequired[Name | None]
    is_error: NotRequired[bool]


class ModelAnswer(TypedDict):
    """The answer of the model."""

    text: str
    requests: list[TurnRequest]
    ending: Ending
    model: str
    tokens: int
    inputTokens: int
    outputTokens: int
    durationMs: int


@tool(
    tier="external_api",
    category="api",
    internal=True,
    timeout=MODEL_CALL_SECONDS,
    tags=["model"],
    capabilities=[Capability(action="ask", description="Ask the configured language model", estimated_time_ms=20_000)],
    cost=Cost(per_unit=UnitCost(unit="token", price="0.00000014")),
    hooks=[ModelTurn],
    errors=[
        ErrorCase("MISSING_AUTH", "no model is configured, or its key is missing or refused", "Set model.name and its key."),
        ErrorCase("RATE_LIMITED", "the model's server has had too many requests", "Wait for retry_after seconds."),
        ErrorCase("INVALID_INPUT", "the conversation is unknown, or too long for the model", "Ask with less."),
        ErrorCase("TIMEOUT", "no answer came within model.timeout", "Raise it, or ask for less."),
        ErrorCase("CONNECTION_ERROR", "the server cannot be reached, fails, or breaks off", "Ask again."),
        ErrorCase("OUTPUT_INVALID", "the answer cannot be read", "Check model.provider."),
        ErrorCase("INVOCATION_ERROR", "the server does not know the model, or the account has no credit", "Correct it."),
    ],
    examples=[Example(name="a question", arguments={"messages": [{"role": "user", "text": "Is 91 prime?"}]})],
)
async def ask_model(
    ctx: InvokeContext,
    messages: Annotated[list[TurnMessage], Field(min_length=1, max_length=10_000, json_schema_extra={"x-literal": True})],
    conversation: Name | None = None,
    turn: Annotated[int, Field(ge=0)] = 0,
    tools: Annotated[list[Name], Field(max_length=10_000)] = [],  # noqa: B006 - a default of the schema
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None,
    purpose: Annotated[str, Field(max_length=500, json_schema_extra=PLAIN)] | None = None,  # noqa: ARG001 - for who is asked
) -> ModelAnswer:
    """Have the configured language model take one turn.

    Args:
        messages: The messages that are new in this turn.
        conversation: The conversation that they continue; without it, they are the whole.
        turn: The number of the turn in the conversation.
        tools: The tools that the model is told of, of those that the conversation has.
        max_tokens: The longest answer, if less than model.max_tokens.
        purpose: Who asks, and for what.
    """
    models: LanguageModels = ctx.get(LanguageModels)
    asked = await turn_of(ctx, {"messages": messages, "conversation": conversation, "turn": turn, "tools": tools})
    conversations: Conversations | None = None if conversation is None else ctx.get(Conversations)
    sink = None if conversations is None or conversation is None else conversations.sink(conversation, ctx.actor)
    began = perf_counter()
    answer = await models.complete(asked.messages, ctx, tools=asked.tools, on_text=sink, max_tokens=max_tokens)
    if ctx.injected:
        answer = await to_thread(_masked, answer, ctx.injected)
    if conversations is not None and conversation is not None:
        await conversations.keep(conversation, turn, answer, ctx.actor, asked.new)
    return {
        "text": answer.text,
        "requests": list(map(_request, answer.requests)),
        "ending": answer.ending,
        "model": models.choice(ctx.actor).name or "",
        "tokens": answer.tokens,
        "inputTokens": answer.input_tokens,
        "outputTokens": answer.output_tokens,
        "durationMs": round((perf_counter() - began) * 1000),
    }


def _request(request: ToolRequest) -> TurnRequest:
    plain: TurnRequest = {"id": request.id, "name": request.name, "arguments": request.arguments}
    return plain if request.arguments is not None else {**plain, "text": request.text}


def _masked(answer: Completion, known: tuple[str, ...]) -> Completion:
    """The answer as the model wrote it, but for the secrets that this call was given: the server has its key from us."""
    return msgspec.convert(with_texts(msgspec.to_builtins(answer), masker(known).text, names=True), Completion)

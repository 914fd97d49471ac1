"""`deep_reasoning`: a hard problem, thought through by a language model. Other tools that need a model call this one, so
that each question to a model is asked about, paid for and recorded in the same way."""

from time import perf_counter
from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from toolgate.errors import InvalidInput, ToolError
from toolgate.llm.completion import Completion, Message
from toolgate.llm.models import MAX_PROBLEM_CHARS, MODEL_CALL_SECONDS, LanguageModels, ModelCheck
from toolgate.model import Capability, Cost, ErrorCase, Example, UnitCost
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool

PLAIN = {"x-command": False, "x-path": False}
PROMPT = """You are a reasoning specialist. Think step-by-step to solve the following problem.

{context}PROBLEM:
{problem}

Provide your reasoning process, then state your final answer clearly."""


class Reasoned(TypedDict):
    """The model's reasoning and answer. `truncated`: it reached the longest that an answer may be."""

    reasoning: str
    model: str
    tokensUsed: int
    durationMs: int
    truncated: NotRequired[bool]


@tool(
    tier="external_api",
    category="api",
    timeout=MODEL_CALL_SECONDS,
    tags=["model", "reasoning"],
    capabilities=[Capability(action="reason", description="Ask the configured language model", estimated_time_ms=20_000)],
    cost=Cost(per_unit=UnitCost(unit="token", price="0.00000014")),
    hooks=[ModelCheck],
    errors=[
        ErrorCase("MISSING_AUTH", "no model is configured, or its key is missing or refused", "Set model.name and its key."),
        ErrorCase("RATE_LIMITED", "the model's server has had too many requests", "Wait for retry_after seconds."),
        ErrorCase("INVALID_INPUT", "the text is too long for the model, or it declines", "Ask for less, or otherwise."),
        ErrorCase("TIMEOUT", "no answer came within model.timeout", "Raise it, or ask for less."),
        ErrorCase("CONNECTION_ERROR", "the server cannot be reached, or fails", "Try again later."),
        ErrorCase("OUTPUT_INVALID", "the answer is empty or cannot be read", "Check model.provider."),
        ErrorCase("INVOCATION_ERROR", "the server does not know the model, or the account has no credit", "Correct it."),
    ],
    examples=[
        Example(
            name="a proof",
            arguments={"problem": "Is 2^61 - 1 prime?", "context": "Name the test that shows it."},
        )
    ],
)
async def deep_reasoning(
    ctx: InvokeContext,
    problem: Annotated[str, Field(min_length=1, max_length=MAX_PROBLEM_CHARS, json_schema_extra=PLAIN)],
    context: Annotated[str | None, Field(max_length=MAX_PROBLEM_CHARS, json_schema_extra=PLAIN)] = None,
) -> Reasoned:
    """Use advanced reasoning for complex problems: math, logic, code analysis, planning.

    Args:
        problem: The problem to analyze.
        context: Additional context or constraints.
    """
    models: LanguageModels = ctx.get(LanguageModels)
    model = models.choice(ctx.actor).name or ""
    prompt = PROMPT.format(context=f"CONTEXT:\n{context}\n\n" if context else "", problem=problem)
    began = perf_counter()
    completion = await models.complete([Message("user", prompt)], ctx)
    _check(completion)
    result: Reasoned = {
        "reasoning": completion.text,
        "model": model,
        "tokensUsed": completion.tokens,
        "durationMs": round((perf_counter() - began) * 1000),
    }
    return {**result, "truncated": True} if completion.ending == "truncated" else result


def _check(completion: Completion) -> None:
    """Refuses what is no answer. It was paid for all the same."""
    if completion.ending == "refused":
        raise InvalidInput("The model declined to answer.", suggestion="Word the problem otherwise.", charged=True)
    if not completion.text.strip():
        words = "used up its tokens before it came to an answer" if completion.ending == "truncated" else "gave no text"
        raise ToolError(f"The model {words}.", code="OUTPUT_INVALID", suggestion="Raise model.max_tokens, or ask for less.")

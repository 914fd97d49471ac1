"""A turn of a conversation with a model: what is new in it, and what the conversation holds already.

The arguments of `ask_model` hold only the new messages, so that the audit log does not hold a conversation once for each of
its turns, and whoever approves a turn sees what newly goes out. The rest is found by the port `Conversations`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from toolgate.errors import InvalidInput, ToolError, ToolgateError, quoted
from toolgate.llm.completion import Conversations, Message, ToolDefinition
from toolgate.llm.models import LanguageModels, lacking_model
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict
from toolgate.pipeline.hooks import Estimates
from toolgate.pipeline.usage import Estimate


class Turn(NamedTuple):
    """All that the model is asked with."""

    messages: Sequence[Message]
    tools: Sequence[ToolDefinition]
    new: Sequence[Message] = ()
    """Those of the messages that are new in a conversation."""


async def turn_of(ctx: InvokeContext, arguments: Mapping[str, Any]) -> Turn:
    """The turn that the arguments of `ask_model` are about. Raises InvalidInput if there is none such."""
    conversation, number = arguments.get("conversation"), arguments.get("turn") or 0
    new, wanted = [_message(one) for one in arguments["messages"]], arguments.get("tools") or ()
    if conversation is None:
        if wanted:
            raise InvalidInput("Tools are those of a conversation, and none is named.", suggestion="Leave out tools.")
        return Turn(new, ())
    earlier, known = await _earlier(ctx, conversation, number)
    by_name = {definition.name: definition for definition in known}
    missing = next((name for name in wanted if name not in by_name), None)
    if missing is not None:
        raise InvalidInput(f"The conversation has no tool {quoted(missing)}.")
    return Turn([*earlier, *new], [by_name[name] for name in wanted], new)


async def _earlier(ctx: InvokeContext, conversation: str, turn: int) -> tuple[Sequence[Message], Sequence[ToolDefinition]]:
    """Looked up once for each call: its price is estimated from it before it is made."""
    key = (Conversations, conversation, turn)
    if key not in ctx.data:
        conversations: Conversations | None = ctx.try_get(Conversations)
        if conversations is None:
            raise InvalidInput(
                "There is no conversation of that id.", suggestion="Leave out conversation, and give all messages."
            )
        earlier = await conversations.history(conversation, turn, ctx.actor)
        ctx.data[key] = earlier, await conversations.definitions(conversation, ctx.actor)
    found: tuple[Sequence[Message], Sequence[ToolDefinition]] = ctx.data[key]
    return found


def _message(given: Mapping[str, Any]) -> Message:
    message = msgspec.convert(given, Message)
    if (message.role == "tool") != (message.request_id is not None):
        raise InvalidInput("A message of role tool, and no other, has the request_id that it answers.")
    if message.requests and message.role != "assistant":
        raise InvalidInput("Only a message of role assistant has requests.")
    return message


class ModelTurn(Estimates):
    """Refuses a turn that lacks a model, its key or its conversation before a person is asked about it, and says what it may
    cost: with all that the conversation holds already."""

    async def will_check_consent(self, ctx: InvokeContext) -> None:
        lacking = lacking_model(ctx)
        if lacking is not None:
            ctx.abort(lacking, "MISSING_AUTH")
        try:
            await turn_of(ctx, ctx.arguments)
        except ToolError as error:
            ctx.abort(str(error), error.code)

    async def estimate(self, ctx: InvokeContext) -> Estimate | None:
        models: LanguageModels = ctx.get(LanguageModels)
        try:
            turn = await turn_of(ctx, ctx.arguments)
            most = ctx.arguments.get("max_tokens")
            asked = models.asked(turn.messages, ctx.actor, tools=turn.tools, max_tokens=most)
            return await models.estimate(asked, ctx.actor)
        except ToolgateError:  # it will be refused, and costs nothing
            return None

    def explain(self, ctx: InvokeContext) -> GateVerdict:
        lacking = lacking_model(ctx)
        return GateVerdict("model", "pass" if lacking is None else "deny", lacking or "it has a model and its key")

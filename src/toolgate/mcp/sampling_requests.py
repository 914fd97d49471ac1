"""Sampling: an MCP server asks for an answer of a language model (`sampling/createMessage`).

Where the setting `servers.NAME.sampling` allows it, the request becomes a call of `ask_model` inside the call of the tool
during which it came: the same actor, its model and its money, and a person sees the server's name and its text. Whatever
else a server asks goes to the caller, and so does sampling where the setting does not allow it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from toolgate.errors import Denied, Failed, call_error
from toolgate.model import Actor, Caller, Outcome
from toolgate.pipeline.context import InvokeContext
from toolgate.settings import SamplingSettings

SAMPLING = "sampling/createMessage"
ROLES = ("user", "assistant")
STOP_REASONS = {"complete": "endTurn", "truncated": "maxTokens", "refused": "refusal"}
Withdraw = Callable[[str, Actor, str], Awaitable[None]]
"""Ends a question to a person that nobody waits for any more."""


class NoCaller:
    """The way back to a caller that can be told and asked nothing."""

    capabilities: Mapping[str, Any] = {}
    input_responses: Mapping[str, Any] | None = None
    request_state: str | None = None
    log_level: str | None = None
    can_come_again = False

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Nobody is told."""

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Nobody is told."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002 - as Caller has it
        raise Failed("MCP_ERROR", "The call has no caller that can be asked.")

    def remind(self, state: str | None, requests: Mapping[str, Any]) -> None:
        """Nobody comes again."""

    def goes_on(self) -> None:
        """Nobody waits."""


class SamplingCaller:
    """A caller in whose place the actor's own language model answers sampling requests."""

    def __init__(
        self, caller: Caller | None, ctx: InvokeContext, server: str, limits: SamplingSettings, withdraw: Withdraw
    ) -> None:
        self._caller: Caller = caller or NoCaller()
        self._ctx, self._server, self._limits, self._withdraw = ctx, server, limits, withdraw
        self._asked = 0
        self.capabilities = {**self._caller.capabilities, "sampling": {}}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._caller, name)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if method != SAMPLING:
            return await self._caller.ask(method, params)
        self._asked += 1
        if self._asked > self._limits.requests:
            raise Denied("RATE_LIMITED", f"A server may ask the model {self._limits.requests} times during a call.")
        tool = self._ctx.call.tool
        asked = sampling_arguments(params, self._limits.max_tokens)
        arguments = {**asked, "purpose": f"sampling for the MCP server {self._server}, during a call of {tool}"}
        # To go on after an answer, the tool would be called again: only one without effects can be.
        entry = self._ctx.entry
        goes_on = entry is not None and entry.tier == "read_only"
        outcome = await self._ctx.call_inside("ask_model", arguments, whole=True, internal=True, goes_on=goes_on)
        if outcome.pending is not None:
            await self._withdraw(outcome.pending.id, self._ctx.actor, "the server was refused meanwhile")
            self._ctx.log("ask_model needs approval, which only a grant, or somebody who answers at once, can give here")
        elif outcome.error is not None:
            self._ctx.log(f"ask_model failed: {outcome.error.code}: {outcome.error.message}")
        return sampling_result(outcome)


def sampling_arguments(params: Mapping[str, Any], most: int) -> dict[str, Any]:
    """The arguments of `ask_model` for a sampling request. Raises Failed for one that can't be answered."""
    if params.get("tools"):
        raise Failed("INVALID_INPUT", "Sampling with tools is not supported.")
    given, wanted = params.get("messages"), params.get("maxTokens")
    if not isinstance(given, list) or not given:
        raise Failed("INVALID_INPUT", "messages is missing or empty.")
    if type(wanted) is not int or wanted < 1:
        raise Failed("INVALID_INPUT", "maxTokens is missing, or is no positive number.")
    messages = [_message(one) for one in given]
    system = params.get("systemPrompt")
    if isinstance(system, str) and system:
        messages.insert(0, {"role": "system", "text": system})
    return {"messages": messages, "max_tokens": min(wanted, most)}


def _message(given: Any) -> dict[str, Any]:
    role, content = (given.get("role"), given.get("content")) if isinstance(given, Mapping) else (None, None)
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in parts]
    if role not in ROLES or not texts or not all(isinstance(text, str) for text in texts):
        raise Failed("INVALID_INPUT", "A message must have the role user or assistant, and text as its content.")
    return {"role": role, "text": "\n".join(text for text in texts if text is not None)}


def sampling_result(outcome: Outcome) -> Mapping[str, Any]:
    """The result of a sampling request. Raises a CallError where there is no answer."""
    if outcome.pending is not None:
        raise Denied(message="A person must approve what is asked, and none could be asked now.")
    if outcome.error is not None:  # its words are for the actor, not for the server
        raise call_error(outcome.error.code, f"The language model gave no answer ({outcome.error.code}).")
    output = outcome.output
    return {
        "role": "assistant",
        "content": {"type": "text", "text": output["text"]},
        "model": output["model"],
        "stopReason": STOP_REASONS.get(output["ending"], "endTurn"),
    }


def is_sampling(requests: Mapping[str, Any]) -> bool:
    """True if all that a server needs to know is for a model to answer."""
    return all(isinstance(asked, Mapping) and asked.get("method") == SAMPLING for asked in requests.values())

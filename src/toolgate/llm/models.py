"""The language models of an App: which one an actor has, and the way to ask it.

The base URL is the operator's setting, so its address may be private; the key is a secret, found for the actor and masked
in whatever comes of the call.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol

from toolgate.errors import Denied, StoreError
from toolgate.llm.completion import Completion, Message, ModelRequest, ToolDefinition
from toolgate.llm.masked_stream import MaskedStream
from toolgate.llm.model_client import ModelClient
from toolgate.model import Actor, Auth, Cost, UnitCost, nano
from toolgate.network.http_client import HttpClient
from toolgate.network.service_answers import CREDENTIAL
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict
from toolgate.pipeline.hooks import Explains, Hook
from toolgate.pipeline.usage import Estimate
from toolgate.registry.export import count_tokens
from toolgate.settings.model import ModelChoice, ModelSettings
from toolgate.threads import to_thread

MILLION = Decimal(1_000_000)
TOKENS_A_MESSAGE = 8
"""Tokens that stand around a message."""
MAX_PROBLEM_CHARS = 1_000_000
MODEL_CALL_SECONDS = 3_660.0
"""The time limit of tools that ask a model: more than the setting model.timeout can be, so that that one decides."""
NO_MODEL = "No language model is configured"


class Keys(Protocol):
    """The secrets, of which a model's key is one."""

    def find(self, name: str, actor: Actor) -> str | None:
        """A secret of an actor. Raises StoreError if it can't be looked up."""

    def lend(self, ctx: InvokeContext, auth: Auth) -> str:
        """A credential, for one call: whatever comes of it is masked there. Raises Denied if there is none."""


class LanguageModels:
    """Asks the model of an actor. Found by tools with `ctx.get(LanguageModels)`."""

    def __init__(self, settings: ModelSettings, http: HttpClient, keys: Keys) -> None:
        self._settings, self._client, self._keys = settings, ModelClient(http), keys

    def is_configured(self, actor: Actor) -> bool:
        """Tells whether there is a model for an actor, whether its key is set or not."""
        return self._settings.of(actor.tenant).name is not None

    def choice(self, actor: Actor) -> ModelChoice:
        """The model of an actor. Raises Denied (MISSING_AUTH) if there is none."""
        choice = self._settings.of(actor.tenant)
        if choice.name is None:
            raise no_model()
        return choice

    def missing_key(self, actor: Actor) -> str | None:
        """The name of the secret that an actor's model lacks; None: it has its key, or needs none."""
        name = self.choice(actor).secret
        if name is None:
            return None
        try:
            return None if self._keys.find(name, actor) else name
        except StoreError:
            return name

    async def complete(
        self,
        messages: Sequence[Message],
        ctx: InvokeContext,
        *,
        tools: Sequence[ToolDefinition] = (),
        on_text: Callable[[str], None] | None = None,
        max_tokens: int | None = None,
    ) -> Completion:
        """Asks the model; what the answer cost is counted for the call. `on_text`: has it streamed, and is given each piece
        of text as it comes. Raises a CallError or ToolError for whatever is no answer."""
        choice = self.choice(ctx.actor)
        key = None if choice.secret is None else self._key(choice.secret, ctx)
        streamed = None if on_text is None else MaskedStream(ctx, on_text)

        def spent(read: int, written: int) -> None:
            price = float(price_of(choice, read, written))
            ctx.used(f"model:{choice.name}", tokens=read + written, cost_usd=price)

        completion = await self._client.ask(
            choice,
            key,
            self.asked(messages, ctx.actor, tools=tools, max_tokens=max_tokens, streamed=streamed is not None),
            spent=spent,
            on_text=None if streamed is None else streamed.take,
            log=ctx.log,
        )
        if streamed is not None:
            streamed.end()
        return completion

    def asked(
        self,
        messages: Sequence[Message],
        actor: Actor,
        *,
        tools: Sequence[ToolDefinition] = (),
        max_tokens: int | None = None,
        streamed: bool = False,
    ) -> ModelRequest:
        """The request to an actor's model. An answer can be limited to less than the setting model.max_tokens."""
        most = self.choice(actor).max_tokens
        return ModelRequest(messages, tools, most if max_tokens is None else min(max_tokens, most), streamed)

    async def estimate(self, asked: ModelRequest, actor: Actor) -> Estimate:
        """The most that an answer may cost: what is asked, by a tokenizer's count, and an answer as long as it may be."""
        read = await to_thread(count_tokens, asked.text) + TOKENS_A_MESSAGE * len(asked.messages)
        cost = price_of(self.choice(actor), read, asked.max_tokens)
        return Estimate(nano(cost), "estimate", read + asked.max_tokens)

    def _key(self, name: str, ctx: InvokeContext) -> str:
        key = self._keys.lend(ctx, Auth(config_key=name))
        if CREDENTIAL.match(key) is None:
            raise Denied(
                "MISSING_AUTH",
                f"The key in the secret {name} cannot be sent: it has spaces or other characters that no key has.",
                suggestion=f"`toolgate secrets set {name}` sets another.",
                details={"missing": name},
            )
        return key


def price_of(choice: ModelChoice, read: int, written: int) -> Decimal:
    """The dollars for so many tokens, at the prices of the settings."""
    return (read * choice.input_price + written * choice.output_price) / MILLION


def no_model(purpose: str | None = None) -> Denied:
    """The error of what needs a model where there is none."""
    return Denied(
        "MISSING_AUTH",
        f"{NO_MODEL}{f', and {purpose} needs one' if purpose else ''}.",
        suggestion="Set model.name and the secret that model.secret names: docs/howto/use-a-model.md.",
        details={"missing": "model.name"},
    )


def cost_of(settings: ModelSettings) -> Cost:
    """The most that a call may cost before the answer is known: what is asked, and an answer as long as it may be."""
    choices = [settings, *map(settings.of, settings.tenants)]
    written = max(choice.output_price * choice.max_tokens for choice in choices) / MILLION
    read = max(choice.input_price for choice in choices) / MILLION
    return Cost(fixed=written, per_unit=UnitCost(unit="token", price=read))


class ModelCheck(Hook):
    """Refuses a call that lacks a model or its key before a person is asked about it."""

    def will_check_consent(self, ctx: InvokeContext) -> None:
        lacking = lacking_model(ctx)
        if lacking is not None:
            ctx.abort(lacking, "MISSING_AUTH")

    def explain(self, ctx: InvokeContext) -> GateVerdict:
        lacking = lacking_model(ctx)
        return GateVerdict("model", "pass" if lacking is None else "deny", lacking or "it has a model and its key")


def lacking_model(ctx: InvokeContext) -> str | None:
    """The words for a call whose actor has no model, or no key for it; None: both are there."""
    models: LanguageModels = ctx.get(LanguageModels)
    try:
        missing = models.missing_key(ctx.actor)
    except Denied as error:
        return str(error)
    if missing is None:
        return None
    return (
        f"The key of the language model is not set. `toolgate secrets set {missing}` sets it; "
        "for a server that wants no key, write `secret: null` under `model` in the settings."
    )


class ModelUse(Explains):
    """Says in `toolgate explain` that a call may ask a model: by a call of deep_reasoning, which is governed as that."""

    def __init__(self, asks: Callable[[Mapping[str, Any]], bool]) -> None:
        """`asks`: tells of the arguments of a call whether they are something for a model."""
        self._asks = asks

    def explain(self, ctx: InvokeContext) -> GateVerdict:
        models: LanguageModels = ctx.get(LanguageModels)
        if not self._asks(ctx.arguments or {}):
            return GateVerdict("model", "pass", "none is asked")
        if not models.is_configured(ctx.actor):
            return GateVerdict("model", "pass", "none is configured, so none is asked")
        return GateVerdict("model", "pass", "it may call deep_reasoning, which passes these gates as a call of its own")

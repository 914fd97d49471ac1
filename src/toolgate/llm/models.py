"""The language models of an App: which one an actor has, and the way to ask it.

The base URL is the operator's setting, so its address may be private; the key is a secret, found for the actor and masked
in whatever comes of the call.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol

from toolgate.errors import Denied, StoreError, ToolError
from toolgate.llm.completion import Completion, Malformed, Message
from toolgate.llm.dialects import DIALECTS
from toolgate.llm.service_errors import error_of
from toolgate.model import Actor, Auth, Cost, UnitCost
from toolgate.network.http_client import HttpClient
from toolgate.network.http_response import HttpResponse
from toolgate.network.service_answers import CREDENTIAL
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict
from toolgate.pipeline.hooks import Explains, Hook
from toolgate.settings.model import ModelChoice, ModelSettings

MILLION = Decimal(1_000_000)
MAX_ANSWER_BYTES = 5_000_000
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
        self._settings, self._http, self._keys = settings, http, keys

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

    async def complete(self, messages: Sequence[Message], ctx: InvokeContext) -> Completion:
        """Asks the model. Raises a CallError or ToolError for whatever is no answer."""
        choice = self.choice(ctx.actor)
        dialect = DIALECTS[choice.provider]
        key = None if choice.secret is None else self._key(choice.secret, ctx)
        response = await self._http.request(
            "POST",
            f"{choice.address}{dialect.path}",
            headers=dialect.headers(key),
            json=dialect.body(choice, messages),
            timeout=choice.timeout,
            max_bytes=MAX_ANSWER_BYTES,
            redirects=0,
            trusted=True,
        )
        if response.status != 200:
            raise error_of(response.status, response.headers, _answer(response), choice)
        try:
            return dialect.read(response.json(), messages)
        except Malformed as error:
            raise ToolError(
                f"The answer of the model's server cannot be read: {error}.",
                code="OUTPUT_INVALID",
                suggestion=f"Check that it speaks the dialect {choice.provider}: the setting model.provider.",
            ) from None

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

    def price(self, completion: Completion, actor: Actor) -> Decimal:
        """The dollars that an answer cost, at the prices of the settings."""
        choice = self._settings.of(actor.tenant)
        read, written = completion.input_tokens * choice.input_price, completion.output_tokens * choice.output_price
        return (read + written) / MILLION


def _answer(response: HttpResponse) -> Any:
    """The body of an error, which may be no JSON: a proxy may have written it."""
    try:
        return response.json()
    except ToolError:
        return None


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
        lacking = _lacking(ctx)
        if lacking is not None:
            ctx.abort(lacking, "MISSING_AUTH")

    def explain(self, ctx: InvokeContext) -> GateVerdict:
        lacking = _lacking(ctx)
        return GateVerdict("model", "pass" if lacking is None else "deny", lacking or "it has a model and its key")


def _lacking(ctx: InvokeContext) -> str | None:
    models: LanguageModels = ctx.get(LanguageModels)
    try:
        missing = models.missing_key(ctx.actor)
    except Denied as error:
        return str(error)
    return missing and f"The key of the language model is not set. `toolgate secrets set {missing}` sets it."


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

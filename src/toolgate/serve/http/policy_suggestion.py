"""/v1/policy/suggest and /v1/policy/allow-lists: the smallest policy data that allows what was used, and who applies it."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from toolgate.gates.policy.suggestion import PersonaUse, PolicySuggestion, ToolUse
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.reach import Name, Reason, tenant_of

resource = Resource("policy suggestions")

Tools = Annotated[list[Name], msgspec.Meta(max_length=100_000)]


class ToolUseView(ApiView, frozen=True):
    """A tool that was used, or could have been."""

    tool: str
    calls: int
    last_used: str | None
    """The day (UTC) of the last call that ran; null: none is on record."""


class StoppedToolView(ApiView, frozen=True):
    """A tool whose calls were let through by the policy and stopped by a person or another check."""

    tool: str
    calls: int


class ArgumentRuleView(ApiView, frozen=True):
    """The values that an argument had: few of them, or all within one folder."""

    tool: str
    argument: str
    values: list[Any]
    under: str | None
    calls: int


class PersonaUseView(ApiView, frozen=True):
    """The tools that the callers of a tenant with one persona, or with none (null), used and did not use."""

    tenant: str
    persona: str | None
    used: list[ToolUseView]
    """The most used first."""
    unused: list[ToolUseView]
    """Tools that they may see and did not use: the first 1,000 by name."""
    unused_count: int
    stopped: list[StoppedToolView]
    removed: list[ToolUseView]
    """Tools that they used before the allow list in force left them out: they are not suggested."""
    rules: list[ArgumentRuleView]


class PolicySuggestionView(ApiView, frozen=True):
    """The smallest policy data that would have allowed what was used. Nothing is applied."""

    since: datetime
    until: datetime
    calls: int
    read_calls: int
    """Calls that were read for rules on arguments, the newest first."""
    personas: list[PersonaUseView]
    data: dict[str, Any]
    """The document `tenant_tool_allow`: `data` of POST /v1/policy/replay, and the bodies of the allow lists."""
    rego: str | None
    """The shipped policy with the rules on arguments: `rego` of POST /v1/policy/replay; null: there are none."""


class SuggestQuery(ApiModel, frozen=True):
    """The calls that are looked at."""

    persona: Annotated[str, msgspec.Meta(max_length=256)] | None = None
    """Only this persona's; empty: those of callers without one. The lists of others then stay as they are."""
    days: Annotated[int, msgspec.Meta(ge=1, le=366)] = 30


class AllowListChange(ApiModel, frozen=True):
    """The tools that the callers of a tenant have, and no others."""

    personas: dict[Name, Tools]
    no_persona: Tools | None = None
    """For callers without a persona; null: there is no list for them."""
    everybody: Tools = msgspec.field(default_factory=list)
    unlisted_personas: Literal["deny", "unrestricted"] = "deny"
    """The tools of callers for whom there is no list: nothing, or what they would have without any."""
    reason: Reason | None = None


def _use(use: ToolUse) -> ToolUseView:
    return ToolUseView(tool=use.tool, calls=use.calls, last_used=use.last.isoformat())


def _persona(one: PersonaUse) -> PersonaUseView:
    return PersonaUseView(
        tenant=one.tenant, persona=one.persona,
        used=[_use(use) for use in one.used],
        unused=[
            ToolUseView(tool=each.tool, calls=0, last_used=None if each.last is None else each.last.isoformat())
            for each in one.unused
        ],
        unused_count=one.unused_count,
        stopped=[StoppedToolView(tool=each.tool, calls=each.calls) for each in one.stopped],
        removed=[_use(use) for use in one.removed],
        rules=[
            ArgumentRuleView(
                tool=rule.tool, argument=rule.argument, values=list(rule.values), under=rule.under, calls=rule.calls
            )
            for rule in one.rules
        ],
    )  # fmt: skip


def _view(found: PolicySuggestion) -> PolicySuggestionView:
    return PolicySuggestionView(
        since=found.since, until=found.until, calls=found.calls, read_calls=found.read_calls,
        personas=[_persona(one) for one in found.personas], data=found.data, rego=found.rego,
    )  # fmt: skip


@resource.get("/v1/policy/suggest", permission="operate")
async def suggest_policy(request: ApiRequest, query: SuggestQuery) -> PolicySuggestionView:
    """Suggest the smallest policy data that would have allowed what was used in the tenant, or with `tenant=*` in all.

    For operators: it names the tools that every persona used. Nothing is applied.
    """
    found = await request.app.policy.suggest(tenant=tenant_of(request), persona=query.persona, days=query.days)
    return _view(found)


@resource.put("/v1/policy/allow-lists/{restricted}", permission="operate")
async def set_allow_list(request: ApiRequest, restricted: str, body: AllowListChange) -> None:
    """Leave the callers of a tenant the tools on a list, and no others."""
    document: dict[str, Any] = {"personas": body.personas, "everybody": body.everybody}
    document["unlisted_personas"] = body.unlisted_personas
    if body.no_persona is not None:
        document["no_persona"] = body.no_persona
    await request.app.policy.set_allow_list(restricted, document, reason=body.reason, actor=request.sender)


@resource.delete("/v1/policy/allow-lists/{restricted}", permission="operate")
async def remove_allow_list(request: ApiRequest, restricted: str) -> None:
    """Take the allow list of a tenant away."""
    await request.app.policy.set_allow_list(restricted, None, actor=request.sender)

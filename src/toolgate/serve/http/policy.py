"""/v1/policy: the policy in force, the data that it decides by, and what another policy would have said."""

from typing import Annotated, Any, Literal

import msgspec

from toolgate.errors import CallError
from toolgate.gates.policy.engine import Action
from toolgate.gates.policy.replay import Change, Replay
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.reach import Instant, Name, Reason, named_actor, tenant_of

resource = Resource("policy")


class PolicyView(ApiView, frozen=True):
    """The policy in force."""

    engine: Literal["embedded", "opa"]
    hash: str
    text: str | None
    """Its Rego text, for operators; null for others, and where an OPA server has it."""


class PolicyVerdictView(ApiView, frozen=True):
    """The policy's decision on an action that is not done."""

    allow: bool
    reason: str


class ReplayGroup(ApiView, frozen=True):
    """Calls that would change in the same way, for the same reason."""

    change: Change
    tool: str
    tenant: str
    persona: str | None
    reason: str
    count: int
    examples: list[str]
    """Ids of some of the calls."""


class ReplayView(ApiView, frozen=True):
    """The decisions that would change under another policy."""

    calls: int
    same: int
    newly_denied: int
    newly_allowed: int
    unknown: int
    """Calls of which the record does not say enough."""
    groups: list[ReplayGroup]
    """The largest first."""


class PolicyDecision(ApiModel, frozen=True):
    """An action that the policy is asked about, by somebody of the tenant."""

    tool: Name
    action: Action = "tool.request"
    user: Name | None = None
    """Without it: whoever asks."""
    persona: Name | None = None
    scopes: Annotated[list[Name], msgspec.Meta(max_length=100)] = msgspec.field(default_factory=list)
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


class ReplayWish(ApiModel, frozen=True):
    """A policy, or data, that is tried on the calls on record."""

    rego: Annotated[str, msgspec.Meta(min_length=1, max_length=200_000)] | None = None
    """Without it: the policy in force."""
    data: dict[str, Any] | None = None
    """Documents; those that it leaves out, and the allow lists of tenants that it does not name, are those in force."""
    since: Instant | None = None
    """Only calls since then."""


class ObservedQuery(ApiModel, frozen=True):
    """The calls that are compared."""

    since: Instant | None = None


class DeniedTool(ApiModel, frozen=True):
    """The reason for which a tool is denied to everybody."""

    reason: Reason | None = None


class PersonaPermissions(ApiModel, frozen=True):
    """The permissions of a persona."""

    can_add_tools: bool


def _replay(found: Replay) -> ReplayView:
    groups = [
        ReplayGroup(
            change=one.change, tool=one.tool, tenant=one.tenant, persona=one.persona, reason=one.reason, count=one.count,
            examples=list(one.examples),
        )
        for one in found.groups
    ]  # fmt: skip
    return ReplayView(
        calls=found.calls, same=found.same, newly_denied=found.newly_denied, newly_allowed=found.newly_allowed,
        unknown=found.unknown, groups=groups,
    )  # fmt: skip


@resource.get("/v1/policy", permission="read")
async def get_policy(request: ApiRequest) -> PolicyView:
    """Get the policy in force: its hash, and for operators its text."""
    engine = request.app.policy.engine
    text = getattr(engine, "text", None) if request.credential.may("operate") else None
    return PolicyView(engine="opa" if engine.remote is True else "embedded", hash=engine.hash, text=text)


@resource.get("/v1/policy/data", permission="administer")
async def get_policy_data(request: ApiRequest) -> dict[str, Any]:
    """Get the data that the policy decides by: the tenant's part; of operators, with `tenant=*`, all of it."""
    return await request.app.policy.documents(tenant_of(request))


@resource.post("/v1/policy/decide", permission="administer")
async def ask_policy(request: ApiRequest, body: PolicyDecision) -> PolicyVerdictView:
    """Ask the policy about an action of somebody of the tenant, without doing it."""
    by = request.actor
    actor = named_actor(by.tenant, body.persona, body.user or by.user, tuple(body.scopes))
    try:
        tier = request.app.tools.get(body.tool, actor).tier
    except CallError:
        tier = None
    decision = await request.app.policy.decide(
        actor, body.action, body.tool, tier=tier, door="http", arguments=body.arguments
    )
    return PolicyVerdictView(allow=decision.allow, reason=decision.reason)


@resource.post("/v1/policy/replay", permission="operate")
async def replay_policy(request: ApiRequest, body: ReplayWish) -> ReplayView:
    """Apply another policy, or other data, to the calls on record: of the tenant, or with `tenant=*` of all.

    For operators: a policy reads the data of all tenants, and is evaluated in the server.
    """
    found = await request.app.policy.replay(body.rego, data=body.data, since=body.since, tenant=tenant_of(request))
    return _replay(found)


@resource.get("/v1/policy/observed", permission="administer")
async def get_observed(request: ApiRequest, query: ObservedQuery) -> dict[str, ReplayView]:
    """Get what the policies that are observed would have changed, by their names (setting policy.observe)."""
    found = await request.app.policy.observed(since=query.since, tenant=tenant_of(request))
    return {name: _replay(one) for name, one in found.items()}


# -- the lists that the policy looks at


@resource.put("/v1/policy/denied-tools/{tool}", permission="operate")
async def deny_tool(request: ApiRequest, tool: str, body: DeniedTool) -> None:
    """Deny a tool to everybody: it cannot be seen, called or added."""
    await request.app.policy.deny(tool, True, reason=body.reason, actor=request.sender)


@resource.delete("/v1/policy/denied-tools/{tool}", permission="operate")
async def undeny_tool(request: ApiRequest, tool: str) -> None:
    """Take a tool off the list of those that are denied to everybody."""
    await request.app.policy.deny(tool, False, actor=request.sender)


@resource.put("/v1/policy/code-restrictions/{restricted}", permission="operate")
async def restrict_code(request: ApiRequest, restricted: str) -> None:
    """Keep a tenant from running code or commands."""
    await request.app.policy.restrict_code(restricted, True, actor=request.sender)


@resource.delete("/v1/policy/code-restrictions/{restricted}", permission="operate")
async def unrestrict_code(request: ApiRequest, restricted: str) -> None:
    """Let a tenant run code and commands again."""
    await request.app.policy.restrict_code(restricted, False, actor=request.sender)


@resource.put("/v1/policy/personas/{persona}", permission="operate")
async def set_persona_permissions(request: ApiRequest, persona: str, body: PersonaPermissions) -> None:
    """Let a persona add tools, or keep it from that."""
    await request.app.policy.allow_adding_tools(persona, body.can_add_tools, actor=request.sender)

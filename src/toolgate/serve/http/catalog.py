"""/v1/tools: a tool with its definition, search, the shapes that models take, and tools that are registered at run time."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from toolgate.model import Entry, Tier
from toolgate.registry.export import Shape, is_exact
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.tools import ToolSummary, summary_of, visible

resource = Resource("catalog")

Words = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Text = Annotated[str, msgspec.Meta(max_length=100_000)]


class ToolDetail(ApiView, frozen=True):
    """A tool with its whole definition."""

    name: str
    enabled: bool
    """False: flags disable it for this tenant."""
    tier: Tier
    """The tier that counts: what is declared can be raised, never lowered."""
    definition: dict[str, Any]
    """Everything that was declared: schemas, cost, capabilities, documentation …"""


class FoundTool(ApiView, frozen=True):
    """A tool that a search found."""

    tool: ToolSummary
    score: float
    """From 0 to 1."""


class FoundTools(ApiView, frozen=True):
    """The tools that a search found, best first."""

    items: list[FoundTool]


class ToolTokens(ApiView, frozen=True):
    """The tokens that a model reads for a tool."""

    name: str
    tokens: int


class TokenReport(ApiView, frozen=True):
    """The tokens that a model reads for the definitions of all tools that the caller may see."""

    tools: list[ToolTokens]
    """The most tokens first."""
    total: int
    exact: bool
    """False: estimated from the length."""


class SearchQuery(ApiModel, frozen=True):
    """The words that are looked for."""

    q: Words
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10


class DefinitionsQuery(ApiModel, frozen=True):
    """The shape of the definitions."""

    shape: Shape = "openai"


class ToolRegistration(ApiModel, frozen=True, omit_defaults=True):
    """A tool to be registered at run time, for the tenant."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
    description: Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
    kind: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    """The way it runs: sandbox, or another kind that this installation has a runner for."""
    tier: Tier | UnsetType = UNSET
    """Raised to the least tier of its kind; without it, write."""
    version: Annotated[str, msgspec.Meta(max_length=100)] | UnsetType = UNSET
    category: Annotated[str, msgspec.Meta(max_length=100)] | UnsetType = UNSET
    documentation: Text | UnsetType = UNSET
    input_schema: dict[str, Any] | UnsetType = UNSET
    """A JSON Schema of an object."""
    output_schema: dict[str, Any] | UnsetType = UNSET
    program: dict[str, Any] | UnsetType = UNSET
    """Of kind sandbox: runtime (typescript, node or python) and code."""
    target: Annotated[str, msgspec.Meta(max_length=2_000)] | UnsetType = UNSET
    """The external system that it depends on."""
    timeout: Annotated[float, msgspec.Meta(gt=0, le=86_400)] | UnsetType = UNSET
    tags: Annotated[list[Words], msgspec.Meta(max_length=100)] | UnsetType = UNSET
    requires_permission: Words | UnsetType = UNSET
    requires_auth: dict[str, Any] | UnsetType = UNSET
    cost: dict[str, Any] | UnsetType = UNSET
    retry: dict[str, Any] | UnsetType = UNSET
    cache: dict[str, Any] | UnsetType = UNSET
    rate_limit: dict[str, Any] | UnsetType = UNSET
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | UnsetType = UNSET
    background: bool | UnsetType = UNSET


def detail_of(request: ApiRequest, entry: Entry) -> ToolDetail:
    """Gives a tool as the tenant has it."""
    is_off = request.app.tools.is_off(entry, request.actor.tenant)
    definition = entry.tool.model_dump(mode="json", exclude={"tenant"})
    return ToolDetail(name=entry.name, enabled=not is_off, tier=entry.tier, definition=definition)


@resource.get("/v1/tools/search", permission="own")
async def search_tools(request: ApiRequest, query: SearchQuery) -> FoundTools:
    """Find tools that the caller may see, by words in their names, tags and descriptions."""
    found = await request.app.tools.search(query.q, request.actor, limit=query.limit)
    return FoundTools(items=[FoundTool(tool=summary_of(tool), score=score) for tool, score in found])


@resource.get("/v1/tools/export", permission="own")
async def export_tools(request: ApiRequest, query: DefinitionsQuery) -> list[dict[str, Any]]:
    """Give the tools that the caller may see in the shape that a model's API or an MCP client takes."""
    return await request.app.tools.export(query.shape, request.actor)


@resource.get("/v1/tools/tokens", permission="own")
async def count_tokens(request: ApiRequest) -> TokenReport:
    """Count the tokens that a model reads for each tool that the caller may see."""
    costs = await request.app.tools.token_costs(request.actor)
    listed = [
        ToolTokens(name=name, tokens=tokens) for name, tokens in sorted(costs.items(), key=lambda one: (-one[1], one[0]))
    ]
    return TokenReport(tools=listed, total=sum(costs.values()), exact=is_exact())


@resource.post("/v1/tools", permission="administer", status=201)
async def register_tool(request: ApiRequest, body: ToolRegistration) -> ToolDetail:
    """Register a tool for the tenant; it is there after a restart too. The policy says which personas may (tool.enable)."""
    actor = request.actor
    tool = await request.app.tools.add_dynamic(msgspec.to_builtins(body), actor)
    return detail_of(request, request.app.tools.get(tool.name, actor))


@resource.get("/v1/tools/{name}", permission="own")
async def get_tool(request: ApiRequest, name: str) -> ToolDetail:
    """Get a tool with its whole definition. One that is hidden from the caller looks missing."""
    return detail_of(request, await visible(request, name))


@resource.delete("/v1/tools/{name}", permission="administer")
async def remove_tool(request: ApiRequest, name: str) -> None:
    """Remove a tool that was registered at run time for the tenant."""
    await request.app.tools.remove_dynamic(name, request.actor)

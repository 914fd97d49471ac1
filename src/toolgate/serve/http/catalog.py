"""/v1/tools: a tool with its definition, search, the shapes that models take, and tools that are registered at run time."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from toolgate.agent.prompt import Style
from toolgate.errors import SettingsError
from toolgate.model import DISCOVERY_TOOLS, Entry, Tier
from toolgate.registry.export import Shape, is_exact
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.tools import ToolSummary, summary_of, visible
from toolgate.serve.problems import HttpProblem
from toolgate.tool_search.result import Basis

logger = logging.getLogger("toolgate")
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
    """The tools that a search found, best first; none, if nothing fits."""

    items: list[FoundTool]
    is_sure: bool
    """False if even the best is a doubtful fit."""
    basis: Basis
    """`meaning`: descriptions were compared with the task; `words`: only words were, before the index is ready,
    or without the extra `embeddings`."""


class ToolTokens(ApiView, frozen=True):
    """The tokens that a model reads for a tool."""

    name: str
    tokens: int


class ServedReport(ApiView, frozen=True):
    """The tools that a model is listed which works for the caller."""

    tools: list[str]
    tokens: int
    """Of their definitions."""
    discovery: bool
    """True: they are not all; the model finds the others with search_tools."""


class TokenReport(ApiView, frozen=True):
    """The tokens that a model reads for the definitions of all tools that the caller may see."""

    tools: list[ToolTokens]
    """The most tokens first; those of discovery are not among them."""
    total: int
    """Of all of them, which a model reads where it is listed all."""
    exact: bool
    """False: estimated from the length."""
    served: ServedReport


class SearchQuery(ApiModel, frozen=True):
    """The task that a tool is looked for."""

    q: Annotated[list[Words], msgspec.Meta(min_length=1, max_length=8)]
    """The task in words; given several times, in several phrasings, which find more than one."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10


class DefinitionsQuery(ApiModel, frozen=True):
    """The shape of the definitions."""

    shape: Shape = "openai"


class PromptQuery(ApiModel, frozen=True):
    """The form of a prompt."""

    style: Style = "native"
    """json: the definitions are in the text, with the form of the reply that calls a tool."""
    shape: Shape = "openai"
    """Of the definitions in style native."""


class PromptView(ApiView, frozen=True):
    """The system prompt of a model."""

    text: str
    definitions: list[dict[str, Any]]
    """Empty in style json."""
    tokens: int
    """Of the text and the definitions together."""
    exact: bool
    """False: estimated from the length."""


class ToolRegistration(ApiModel, frozen=True, omit_defaults=True):
    """A tool to be registered at run time, for the tenant."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
    description: Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
    kind: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    """The way it runs: sandbox, http, mcp, workflow, or another kind that this installation has a runner for."""
    tier: Tier | UnsetType = UNSET
    """Raised to the least tier of its kind; it can only be higher."""
    version: Annotated[str, msgspec.Meta(max_length=100)] | UnsetType = UNSET
    category: Annotated[str, msgspec.Meta(max_length=100)] | UnsetType = UNSET
    documentation: Text | UnsetType = UNSET
    input_schema: dict[str, Any] | UnsetType = UNSET
    """A JSON Schema of an object."""
    output_schema: dict[str, Any] | UnsetType = UNSET
    program: dict[str, Any] | UnsetType = UNSET
    """Of kind sandbox: runtime (typescript, node or python) and code."""
    http: dict[str, Any] | UnsetType = UNSET
    """Of kind http: method, url, parameters and body of the request."""
    mcp: dict[str, Any] | UnsetType = UNSET
    """Of kind mcp: the url of a server, and its tool. input_schema must be the server's own."""
    workflow: dict[str, Any] | UnsetType = UNSET
    """Of kind workflow: the webhook of the n8n server, one that the setting registration.workflows opens to the tenant."""
    target: Annotated[str, msgspec.Meta(max_length=2_000)] | UnsetType = UNSET
    """The external system that it depends on."""
    timeout: Annotated[float, msgspec.Meta(gt=0, le=86_400)] | UnsetType = UNSET
    tags: Annotated[list[Words], msgspec.Meta(max_length=100)] | UnsetType = UNSET
    requires_permission: Words | UnsetType = UNSET
    cost: dict[str, Any] | UnsetType = UNSET
    cache: dict[str, Any] | UnsetType = UNSET
    rate_limit: dict[str, Any] | UnsetType = UNSET
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | UnsetType = UNSET
    background: bool | UnsetType = UNSET
    annotations: dict[str, bool] | UnsetType = UNSET
    """Hints as MCP has them, which can raise the tier."""
    replace: bool | UnsetType = UNSET
    """True: replaces the tool of this name that the tenant has registered. Approvals of that one do not hold for it."""


def detail_of(request: ApiRequest, entry: Entry) -> ToolDetail:
    """Gives a tool as the tenant has it."""
    is_off = request.app.tools.is_off(entry, request.actor.tenant)
    definition = entry.tool.model_dump(mode="json", exclude={"tenant"})
    return ToolDetail(name=entry.name, enabled=not is_off, tier=entry.tier, definition=definition)


@resource.get("/v1/tools/search", permission="own")
async def search_tools(request: ApiRequest, query: SearchQuery) -> FoundTools:
    """Find tools that the caller may see and that fit a task, which may be said in several ways."""
    ranking = await request.app.tools.search(query.q, request.actor, limit=query.limit)
    found = [FoundTool(tool=summary_of(tool), score=score) for tool, score in ranking.found]
    return FoundTools(items=found, is_sure=ranking.is_sure, basis=ranking.basis)


@resource.get("/v1/tools/export", permission="own")
async def export_tools(request: ApiRequest, query: DefinitionsQuery) -> list[dict[str, Any]]:
    """Give the tools that a model is listed which works for the caller, in the shape that its API or an MCP client takes."""
    with _prompt_files():
        return await request.app.tools.export(query.shape, request.actor)


@contextmanager
def _prompt_files() -> Iterator[None]:
    """Keeps from callers what is wrong with the operator's prompt files, and where they are."""
    try:
        yield
    except SettingsError as error:
        logger.error("a request failed: %s", error)
        raise HttpProblem(500, "The prompt files of this installation cannot be used. Its log says why.") from error


@resource.get("/v1/tools/tokens", permission="own")
async def count_tokens(request: ApiRequest) -> TokenReport:
    """Count the tokens that a model reads for each tool that the caller may see."""
    costs = await request.app.tools.token_costs(request.actor)
    served = await request.app.tools.served(request.actor)
    names = [tool.name for tool in served.tools]
    listed = [
        ToolTokens(name=name, tokens=tokens)
        for name, tokens in sorted(costs.items(), key=lambda one: (-one[1], one[0]))
        if name not in DISCOVERY_TOOLS
    ]
    total = sum(one.tokens for one in listed)
    report = ServedReport(tools=names, tokens=sum(costs.get(name, 0) for name in names), discovery=served.is_discovery)
    return TokenReport(tools=listed, total=total, exact=is_exact(), served=report)


@resource.get("/v1/tools/prompt", permission="administer")
async def show_prompt(request: ApiRequest, query: PromptQuery) -> PromptView:
    """Show what a model is told before it begins to work for the caller, with the tools that the caller may see."""
    with _prompt_files():
        made = await request.app.tools.prompt(request.actor, style=query.style)
        is_native = query.style == "native"
        definitions = await request.app.tools.export(query.shape, request.actor) if is_native else []
    return PromptView(text=made.text, definitions=definitions, tokens=made.tokens, exact=is_exact())


@resource.post("/v1/tools", permission="administer", status=201)
async def register_tool(request: ApiRequest, body: ToolRegistration) -> ToolDetail:
    """Register a tool for the tenant; it is there after a restart too. The policy says which personas may (tool.enable)."""
    actor = request.actor
    fields = msgspec.to_builtins(body)
    replace = fields.pop("replace", False)
    tool = await request.app.tools.add_dynamic(fields, actor, replace=replace, door="http")
    return detail_of(request, request.app.tools.get(tool.name, actor))


@resource.get("/v1/tools/{name}", permission="own")
async def get_tool(request: ApiRequest, name: str) -> ToolDetail:
    """Get a tool with its whole definition. One that is hidden from the caller looks missing."""
    return detail_of(request, await visible(request, name))


@resource.delete("/v1/tools/{name}", permission="administer")
async def remove_tool(request: ApiRequest, name: str) -> None:
    """Remove a tool that was registered at run time for the tenant."""
    await request.app.tools.remove_dynamic(name, request.actor)

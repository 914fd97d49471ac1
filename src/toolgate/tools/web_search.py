"""`search_engine`: web search, by a SearXNG of the operator's or by the MCP tool `web_search`."""

from contextlib import suppress
from typing import Annotated, Any

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from toolgate.errors import Denied, InvalidInput
from toolgate.model import Capability, ErrorCase, Example
from toolgate.network.searxng import SearchResult, SearxngClient, search_result
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.services.call_checks import CallCheck, ToolLookup

SEARCH_SECONDS = 20.0
MAX_TEXT_RESULT_CHARS = 4_000
MAX_RESULT_DEPTH = 20
"""Levels at which results are looked for in what a search tool gives."""

Words = Annotated[str, Field(min_length=1, max_length=1_000, json_schema_extra={"x-path": False, "x-command": False})]


class FoundPage(TypedDict):
    """One page that was found."""

    title: str
    url: str
    snippet: str


class SearchResults(TypedDict):
    """The pages, best first."""

    results: list[FoundPage]


def _check_engine(ctx: InvokeContext) -> None:
    """Raises Denied where there is neither a SearXNG nor a tool that searches."""
    searxng: SearxngClient = ctx.get(SearxngClient)
    tools: ToolLookup = ctx.get(ToolLookup)
    if searxng.url is None and not tools.has("web_search", ctx.actor.tenant):
        raise _no_engine()


def _no_engine() -> Denied:
    return Denied(
        "MISSING_AUTH",
        "No search engine is set up.",
        suggestion="Set `search.searxng_url`, or run `toolgate servers add brave-search`.",
        details={"missing": "search.searxng_url"},
    )


@tool(
    tier="external_api",
    category="search",
    timeout=60,
    tags=["agent", "web"],
    hooks=[CallCheck("search", _check_engine, "a search engine is set up")],
    capabilities=[Capability(action="search", description="Search the web", estimated_time_ms=2_000)],
    errors=[
        ErrorCase("MISSING_AUTH", "no search engine is set up", "set `search.searxng_url`, or add the server brave-search"),
        ErrorCase("INVOCATION_ERROR", "the search engine answers with an error", "see the message"),
        ErrorCase("CONNECTION_ERROR", "the search engine cannot be reached", "try again later"),
        ErrorCase("TIMEOUT", "the search engine takes too long", "try again later"),
    ],
    examples=[Example(name="Search", arguments={"query": "weather in Kigali", "count": 3})],
)
async def search_engine(ctx: InvokeContext, query: Words, count: Annotated[int, Field(ge=1, le=20)] = 10) -> SearchResults:
    """Search the web: titles, addresses and snippets of pages.

    Args:
        query: What to look for.
        count: How many pages.
    """
    if not query.strip():
        raise InvalidInput("There is nothing to look for.")
    searxng: SearxngClient = ctx.get(SearxngClient)
    if searxng.url is not None:
        found = await searxng.search(query, count, min(SEARCH_SECONDS, ctx.time_limit))
    else:
        found = await _by_mcp(ctx, query, count)
    return {"results": [{"title": one.title, "url": one.url, "snippet": one.snippet} for one in found]}


async def _by_mcp(ctx: InvokeContext, query: str, count: int) -> list[SearchResult]:
    """The results of the tool `web_search`, which is governed, asked about and paid as itself."""
    outcome = await ctx.call_tool("web_search", query=query, count=count)
    if outcome.error is not None and outcome.error.code == "TOOL_NOT_FOUND":
        raise _no_engine()
    outcome.raise_for_status()
    return list(_results(outcome.output))[:count]


def _results(output: Any, depth: int = 0) -> list[SearchResult]:
    """What a search tool gives: a list of results, one as JSON in each part, or text in its own form."""
    if depth > MAX_RESULT_DEPTH:
        return []
    if isinstance(output, str):
        with suppress(orjson.JSONDecodeError):
            return _results(orjson.loads(output), depth + 1)
        return [SearchResult("", "", output[:MAX_TEXT_RESULT_CHARS])] if output else []
    if isinstance(output, list):
        return [result for one in output for result in _results(one, depth + 1)]
    if not isinstance(output, dict):
        return []
    single = search_result(output)
    if single is not None:
        return [single]
    if isinstance(output.get("text"), str):
        return _results(output["text"], depth + 1)
    inner = next((key for key in ("results", "structuredContent", "web", "content") if key in output), None)
    return [] if inner is None else _results(output[inner], depth + 1)

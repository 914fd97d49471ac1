"""`search_tools`, `describe_tool` and `call_tool`: the way of a model to tools that it was not listed.

They show what the actors of the call may see, and nothing else: a tool that is hidden from one of them looks as if it were
missing. `call_tool` has no rights of its own. The call that it makes passes the whole pipeline under the name of the tool
that is called, with that tool's tier, policy, approval, budget and record.
"""

from textwrap import shorten
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from toolgate.errors import InvalidInput
from toolgate.model import DISCOVERY_TOOLS, NANO, Capability, Entry, ErrorCase, Example, Tier
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.services.tool_directory import FoundEntry, ToolDirectory

PLAIN = {"x-path": False, "x-command": False}
Phrasing = Annotated[str, Field(min_length=1, max_length=500, json_schema_extra=PLAIN)]
Name = Annotated[str, Field(min_length=1, max_length=64, json_schema_extra=PLAIN)]
MAX_SUMMARY_CHARS = 160
MAX_EXAMPLES = 2
CALL_SECONDS = 86_400.0
"""The time limit of call_tool: that of the tool which it calls decides."""
FOUND = "describe_tool gives the arguments of a tool, call_tool calls it."
UNSURE = "None of these is sure to fit: describe those that might before you call one, or search in other words."
NOTHING_FITS = (
    "No tool that you may use fits. Search once more, for what the tool would do in other words; if that finds nothing "
    "either, say that there is no tool for this."
)


class ToolInShort(TypedDict):
    """A tool that fits."""

    name: str
    description: str
    tier: Tier
    score: float
    tokens: int


class SearchAnswer(TypedDict):
    """The tools that fit, best first, and what to do with them."""

    tools: list[ToolInShort]
    next_step: str


class ToolInFull(TypedDict):
    """All that is needed to call a tool. `asks`: why a person is asked before it runs."""

    name: str
    description: str
    parameters: dict[str, Any]
    tier: Tier
    cost_usd: float
    asks: str | None
    operations: NotRequired[dict[str, Tier]]
    examples: NotRequired[list[dict[str, Any]]]


class DescribeAnswer(TypedDict):
    """The definitions, and the names of which there is no tool."""

    tools: list[ToolInFull]
    unknown: list[str]


@tool(
    tier="read_only",
    category="search",
    tags=["discovery"],
    capabilities=[Capability(action="search", description="Find tools for a task")],
    examples=[
        Example(
            name="One task, said in several ways",
            arguments={"phrasings": ["add up numbers", "evaluate an arithmetic expression", "calculator"], "limit": 3},
        )
    ],
)
async def search_tools(
    ctx: InvokeContext,
    phrasings: Annotated[list[Phrasing], Field(min_length=1, max_length=8)],
    limit: Annotated[int, Field(ge=1, le=50)] = 8,
) -> SearchAnswer:
    """Find tools for a task. There are many more tools than you were listed: search before you say that something can't be
    done.

    Args:
        phrasings: The task in 3 or 4 different phrasings, in English: what is to be done, with other verbs and nouns each
            time, and what a tool for it might be called.
        limit: How many tools to give.
    """
    directory: ToolDirectory = ctx.get(ToolDirectory)
    found = await directory.search(phrasings, ctx.call.actors, limit)
    said = NOTHING_FITS if not found.entries else FOUND if found.is_sure else f"{UNSURE} {FOUND}"
    return {"tools": [_in_short(one) for one in found.entries], "next_step": said}


@tool(
    tier="read_only",
    category="search",
    tags=["discovery"],
    capabilities=[Capability(action="describe", description="Give the definitions of tools")],
    examples=[Example(name="Two tools", arguments={"names": ["calculator", "timestamp"]})],
)
async def describe_tool(
    ctx: InvokeContext, names: Annotated[list[Name], Field(min_length=1, max_length=20)]
) -> DescribeAnswer:
    """Describe tools: what they do, the JSON Schema of their arguments, their risk and cost, and whether a person is asked
    before they run.

    Args:
        names: As search_tools gave them.
    """
    directory: ToolDirectory = ctx.get(ToolDirectory)
    answer: DescribeAnswer = {"tools": [], "unknown": []}
    for name in dict.fromkeys(names):
        entry = await directory.find(name, ctx.call.actors)
        if entry is None:
            answer["unknown"].append(name)
        else:
            answer["tools"].append(_in_full(entry))
    return answer


@tool(
    tier="write",
    category="service",
    timeout=CALL_SECONDS,
    tags=["discovery"],
    capabilities=[Capability(action="call", description="Call a tool by its name")],
    errors=[ErrorCase("TOOL_NOT_FOUND", "there is no such tool, or it is hidden from you", "search_tools finds others")],
    examples=[
        Example(name="Call", arguments={"name": "calculator", "arguments": {"expression": "6 * 7"}}),
    ],
)
async def call_tool(
    ctx: InvokeContext,
    name: Name,
    arguments: Annotated[dict[str, Any], Field(json_schema_extra={**PLAIN, "x-literal": True})],
) -> Any:
    """Call a tool that search_tools found and that you were not listed. It gives what the tool gives. Approval, cost and
    limits are those of the tool.

    Args:
        name: The name of the tool.
        arguments: Its arguments, as describe_tool says.
    """
    if name in DISCOVERY_TOOLS:
        raise InvalidInput(f"{name} is called by itself.", suggestion=f"Call {name} directly, without call_tool.")
    if ctx.call.from_code:  # the call would no longer be one of code, which may do less
        raise InvalidInput("Code in the sandbox does not use call_tool.", suggestion=f"Call {name} by its name.")
    outcome = await ctx.call_inside(name, arguments, whole=True, from_code=False)
    return outcome.raise_for_status().output


def _in_short(found: FoundEntry) -> ToolInShort:
    entry = found.entry
    summary = shorten(entry.tool.description.strip().partition("\n")[0], MAX_SUMMARY_CHARS, placeholder=" …")
    return {
        "name": entry.name, "description": summary, "tier": entry.riskiest.tier, "score": round(found.score, 3),
        "tokens": found.tokens,
    }  # fmt: skip


def _in_full(entry: Entry) -> ToolInFull:
    tool, riskiest = entry.tool, entry.riskiest
    told: ToolInFull = {
        "name": entry.name,
        "description": tool.description,
        "parameters": {"type": "object", "properties": {}, **tool.input_schema},
        "tier": riskiest.tier,
        "cost_usd": max(entry.fixed_nano, entry.capability_nano) / NANO,
        "asks": riskiest.asks,
    }
    if entry.operations:
        told["operations"] = {name: one.tier for name, one in entry.operations.items()}
    if tool.examples:
        told["examples"] = [one.arguments for one in tool.examples[:MAX_EXAMPLES]]
    return told

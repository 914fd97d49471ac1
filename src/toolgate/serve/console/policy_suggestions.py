"""/policy/suggestions: the tools that personas used and did not, and the smallest policy data that allows what was used."""

import asyncio
import json
from typing import Annotated, Literal

import msgspec

from toolgate.errors import ToolgateError
from toolgate.serve.console.page import PageRequest, Pages, View
from toolgate.serve.console.policy import CHANGES, REPLAY_SECONDS, SHOWN_GROUPS
from toolgate.serve.console.series import named_plot
from toolgate.serve.http.endpoint import ApiModel
from toolgate.serve.http.policy import ReplayView, ReplayWish, replay_policy
from toolgate.serve.http.policy_suggestion import PolicySuggestionView, SuggestQuery, suggest_policy
from toolgate.serve.http.statistics import StatisticsQuery, get_statistics
from toolgate.serve.problems import HttpProblem

pages = Pages("system")

RANGES = ((7, "7 days"), (30, "30 days"), (90, "90 days"))
SUGGEST_SECONDS = 30.0
SHOWN_PERSONAS, SHOWN_TOOLS = 50, 100
DAY = 86_400


class SuggestionsQuery(ApiModel, frozen=True):
    """The calls that are looked at."""

    days: Annotated[int, msgspec.Meta(ge=1, le=366)] = 30
    replay: Literal["yes"] | None = None
    """The suggestion is tried on these calls."""


@pages.get("/policy/suggestions", permission="operate", twin="/v1/policy/suggest")
async def suggestions(request: PageRequest, query: SuggestionsQuery) -> View:
    """Shows the tools that each persona used and did not, and the data that would allow those. Nothing is applied here."""
    try:
        async with asyncio.timeout(SUGGEST_SECONDS):
            found = await suggest_policy(request, SuggestQuery(days=query.days))
    except TimeoutError:
        raise HttpProblem(
            503, f"The calls are not counted yet, and that takes more than {SUGGEST_SECONDS:.0f} seconds.",
            suggestion="Try again in a few minutes: they are counted in the background.",
        ) from None  # fmt: skip
    used = StatisticsQuery(by="tool", since=found.since, until=found.until, step=DAY)
    replay, fault = await _replayed(request, found) if query.replay else (None, None)
    plot = named_plot(await get_statistics(request, used), "calls")
    values = {
        "found": found, "days": query.days, "ranges": RANGES, "plot": plot,
        "text": json.dumps(found.data, indent=2), "replay": replay, "fault": fault, "changes": CHANGES, "most": SHOWN_GROUPS,
        "shown_personas": SHOWN_PERSONAS, "shown_tools": SHOWN_TOOLS, "lists": set(request.app.policy.data.allow_lists),
    }  # fmt: skip
    return View(
        template="policy_suggestions.html", title="Policy suggestions", values=values, listed=found.data,
        twin={"days": query.days},
    )  # fmt: skip


async def _replayed(request: PageRequest, found: PolicySuggestionView) -> tuple[ReplayView | None, str | None]:
    """The suggestion tried on the calls that it was made of; or why that can't be."""
    try:
        async with asyncio.timeout(REPLAY_SECONDS):
            return await replay_policy(request, ReplayWish(data=found.data, since=found.since)), None
    except TimeoutError:
        return None, f"It takes more than {REPLAY_SECONDS:.0f} seconds: choose fewer days."
    except ToolgateError as error:
        return None, error.message

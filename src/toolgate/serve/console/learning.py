"""/learning: how well tools do, which are recommended for a task, what users say, and what limits tools should have."""

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from toolgate.errors import ToolgateError
from toolgate.serve.console.page import NOTHING_TYPED, Go, PageRequest, Pages, Typed, View
from toolgate.serve.console.series import latency_plot, named_plot, success_plot
from toolgate.serve.console.words import code_words
from toolgate.serve.http.learning import (
    FeedbackQuery,
    FeedbackView,
    LearningQuery,
    NewFeedback,
    SuggestionAnswer,
    SuggestionList,
    SuggestionView,
    answer_suggestion,
    get_learning,
    give_feedback,
    list_feedback,
    list_suggestions,
)
from toolgate.serve.http.statistics import StatisticsQuery, StatisticsView, get_statistics
from toolgate.serve.problems import HttpProblem, problem_of
from toolgate.store.database import now

pages = Pages("tools")

DAY, WEEK = 86_400, 7 * 86_400
MAX_DAILY = 60
"""Days up to which a plot has a point for each; a longer time has one for each week."""
LIMITS = {"timeout": "timeout of {:g} s", "retry": "{:g} attempts", "breaker": "circuit breaker"}


@pages.get("/learning", permission="own", twin="/v1/learning")
async def learning(request: PageRequest, query: LearningQuery) -> View:
    """How each tool did, over time and by reason; recommendations for a task; feedback, and suggestions for operators."""
    if query.task and request.all_tenants:
        raise HttpProblem(422, "Tools are recommended in one tenant: choose it first.")
    return await _shown(request, query)


async def _shown(request: PageRequest, query: LearningQuery, typed: Typed = NOTHING_TYPED, status: int = 200) -> View:
    report, (outcomes, codes), said, suggested = await asyncio.gather(
        get_learning(request, query), _over_time(request, query), _feedback(request), _suggestions(request)
    )
    values = {
        "found": report.tools, "recommended": report.recommended, "query": query, "said": said, "suggested": suggested,
        "success": success_plot(outcomes), "latency": latency_plot(outcomes),
        "failures": named_plot(codes, "calls", code_words), "limits": LIMITS, "behind": report.behind, "typed": typed,
    }  # fmt: skip
    return View(template="learning.html", title="Learning", values=values, listed=report.tools, status=status)


@pages.post("/learning/feedback", permission="call")
async def say(request: PageRequest) -> View | Go:
    """Keeps what was typed about a call; or shows it once more, with what is wrong beside its field."""
    body = NewFeedback(
        tool_name=request.typed("tool_name"), call_id=request.typed("call_id") or None,
        success=request.typed("success") == "yes", comment=request.typed("comment") or None,
        task=request.typed("task") or None,
    )  # fmt: skip
    try:
        await give_feedback(request, body)
    except ToolgateError as error:
        problem = problem_of(error)
        if problem is None or problem.status not in (404, 409, 422):
            raise
        field = "call_id" if body.call_id else "tool_name" if problem.status == 404 else ""
        return await _shown(request, LearningQuery(), request.typed_form({field: problem.message}), problem.status)
    return Go("/learning", done="feedback")


@pages.post("/learning/suggestions/{id}", permission="operate")
async def decide(request: PageRequest, id: str) -> Go:
    """Accepts or rejects a suggestion."""
    accepted = request.typed("verdict") == "accept"
    await answer_suggestion(request, id, SuggestionAnswer(verdict="accept" if accepted else "reject"))
    return Go("/learning", done="limit-accepted" if accepted else "suggestion-rejected")


async def _over_time(request: PageRequest, query: LearningQuery) -> tuple[StatisticsView, StatisticsView]:
    """Calls by status, and failed ones by code."""
    until = now()
    step = DAY if query.days <= MAX_DAILY else WEEK
    wanted = StatisticsQuery(since=until - timedelta(days=query.days), until=until, tool=query.tool, step=step)
    by_status = await get_statistics(request, wanted)
    return by_status, await get_statistics(request, replace(wanted, by="code", status="failure"))


async def _feedback(request: PageRequest) -> list[FeedbackView]:
    return [] if request.all_tenants else (await list_feedback(request, FeedbackQuery(limit=20))).items


async def _suggestions(request: PageRequest) -> list[SuggestionView] | None:
    """None: the sender may not see them."""
    if not request.credential.may("operate"):
        return None
    listed: SuggestionList = await list_suggestions(request)
    return listed.items

"""/v1/learning, /v1/feedback, /v1/recall and /v1/remember: how tools did, and what users say of them."""

from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec

from toolgate.learning.feedback import MAX_COMMENT_CHARS, Feedback
from toolgate.learning.past_tasks import MAX_TAG_CHARS, MAX_TAGS, MAX_TASK_CHARS
from toolgate.learning.proposals import Proposal
from toolgate.learning.recommendations import Recommendation
from toolgate.learning.tool_reports import ToolReport
from toolgate.model import NANO
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.reach import Instant, Name, tenant_of, user_of
from toolgate.serve.http.statistics import caught_up
from toolgate.store.database import now
from toolgate.store.learning import FeedbackRow, LimitKind

resource = Resource("learning")

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TASK_CHARS)]
Tag = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TAG_CHARS)]
Days = Annotated[int, msgspec.Meta(ge=1, le=365)]
Found = Annotated[int, msgspec.Meta(ge=1, le=50)]


class FailureReason(ApiView, frozen=True):
    """An error code, and how many calls ended with it."""

    code: str
    calls: int


class LearnedTool(ApiView, frozen=True):
    """How a tool did."""

    tool: str
    calls: int
    successes: int
    failures: int
    """Calls that failed or took too long; denied ones are neither."""
    success_share: float | None
    """Of the calls that ran; null: none did."""
    cost_usd: float
    p50_ms: float | None
    """Half of its calls took no longer; within 23 %."""
    p95_ms: float | None
    p99_ms: float | None
    reasons: list[FailureReason]
    """The most frequent first."""
    reliability: float | None
    """The share of its next calls that is expected to succeed; null: of all tenants together it is not known."""
    factor: float | None
    """The factor by which it is moved in searches of the tenant."""


class RecommendedTool(ApiView, frozen=True):
    """A tool that did well with similar tasks."""

    tool: str
    score: float
    successes: int
    failures: int


class LearningReport(ApiView, frozen=True):
    """How tools did, and which are recommended for a task."""

    since: datetime
    tools: list[LearnedTool]
    """The least successful first, at most 100."""
    recommended: list[RecommendedTool]
    """For `task`; without one, none."""
    by_meaning: bool
    """False: tasks are compared by their words."""
    behind: int
    """Records that are not counted yet. 0: these figures are complete."""


class LearningQuery(ApiModel, frozen=True):
    """The calls that are looked at, and a task that a tool is wanted for."""

    days: Days = 30
    tool: Name | None = None
    task: Annotated[str, msgspec.Meta(max_length=MAX_TASK_CHARS)] | None = None


class NewFeedback(ApiModel, frozen=True):
    """The feedback of the caller on a tool, or on one call of it."""

    tool_name: Name
    success: bool
    call_id: Name | None = None
    """The call; feedback without one is kept, and does not weigh on searches."""
    score: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    comment: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_COMMENT_CHARS)] | None = None
    task: Text | None = None
    """The task that the tool was used for, in words: kept to recommend it for similar tasks."""
    duration_ms: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Of a known call, what the audit log says counts; so for `args_hash`."""
    args_hash: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] | None = None
    response_size: Annotated[int, msgspec.Meta(ge=0)] | None = None
    tenant: Name | None = None
    """Only the caller's own is taken; so for `persona_id`."""
    persona_id: Name | None = None


class FeedbackView(ApiView, frozen=True):
    """Feedback that was given."""

    id: str
    tool_name: str
    success: bool
    call_id: str | None
    score: float | None
    comment: str | None
    duration_ms: float | None
    args_hash: str | None
    response_size: int | None
    tenant: str
    persona_id: str | None
    user: str
    is_weighed: bool
    """True if it moves the tool in searches."""
    created_at: datetime


class FeedbackList(ApiView, frozen=True):
    """The latest feedback, the newest first."""

    items: list[FeedbackView]


class FeedbackQuery(ApiModel, frozen=True):
    """Filters of the list."""

    tool: Name | None = None
    user: Name | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 50


class RecallQuery(ApiModel, frozen=True):
    """A task or a question in words."""

    query: Text
    limit: Found = 10


class RecalledToolUse(ApiView, frozen=True):
    """How often a tool did what it was used for."""

    tool: str
    successes: int
    failures: int


class RecalledTask(ApiView, frozen=True):
    """A past task or a note that is like the query."""

    text: str
    score: float
    kind: Literal["task", "note"]
    tags: list[str]
    tools: list[RecalledToolUse]
    created_at: str


class RecalledTasks(ApiView, frozen=True):
    """Past tasks and notes, the most similar first, and the tools that did well with such tasks in the tenant."""

    items: list[RecalledTask]
    recommended: list[RecommendedTool]


class NoteToKeep(ApiModel, frozen=True):
    """A note for later recall."""

    text: Text
    tags: Annotated[list[Tag], msgspec.Meta(max_length=MAX_TAGS)] = msgspec.field(default_factory=list)


class RememberedNote(ApiView, frozen=True):
    """A note that was kept."""

    id: str


class ForgetQuery(ApiModel, frozen=True):
    """The records to forget: all of the tenant, of one user, or what is older."""

    user: Name | None = None
    before: Instant | None = None


class Forgotten(ApiView, frozen=True):
    """How much was deleted."""

    count: int


class SuggestionView(ApiView, frozen=True):
    """A limit that a tool should have by what was seen of it, or that was accepted or rejected."""

    id: str
    tool: str
    kind: LimitKind
    value: float
    """Seconds of a timeout; attempts with retries; 1 for a breaker."""
    current: float | None
    reason: str
    state: Literal["open", "accepted", "rejected"]
    decided_by: str | None
    decided_at: datetime | None


class SuggestionList(ApiView, frozen=True):
    """The open suggestions first."""

    items: list[SuggestionView]


class SuggestionAnswer(ApiModel, frozen=True):
    """An operator's answer."""

    verdict: Literal["accept", "reject"]


@resource.get("/v1/learning", permission="own")
async def get_learning(request: ApiRequest, query: LearningQuery) -> LearningReport:
    """Show how each tool did: its calls of the caller, or with the permission read of all users.

    With `task`, which tools did well with similar tasks in the tenant."""
    counted = await request.once(caught_up)
    since = now() - timedelta(days=query.days)
    learning = request.app.learning
    found = await learning.show(tenant=tenant_of(request), tool=query.tool, user=user_of(request), since=since)
    wanted = query.task.strip() if query.task else ""
    recommended = await learning.recommend(wanted, actor=request.actor) if wanted else []
    return LearningReport(
        since=since, tools=[_learned(one) for one in found], recommended=[_recommended(one) for one in recommended],
        by_meaning=learning.by_meaning, behind=counted.behind,
    )  # fmt: skip


@resource.post("/v1/feedback", permission="call", status=201, problems=(404, 409, 429))
async def give_feedback(request: ApiRequest, body: NewFeedback) -> FeedbackView:
    """Say whether a tool did what it was called for. Of each call, a user may speak once."""
    said = Feedback(**msgspec.structs.asdict(body))
    row = await request.app.learning.feedback(said, actor=request.actor, all_users=request.all_users)
    return feedback_view(row)


@resource.get("/v1/feedback", permission="own")
async def list_feedback(request: ApiRequest, query: FeedbackQuery) -> FeedbackList:
    """List the latest feedback of the tenant: the caller's own, or with the permission read of all users."""
    found = await request.app.learning.said(
        tenant=request.actor.tenant, user=user_of(request, query.user), tool=query.tool, limit=query.limit
    )
    return FeedbackList(items=[feedback_view(row) for row in found])


@resource.post("/v1/recall", permission="own")
async def recall(request: ApiRequest, body: RecallQuery) -> RecalledTasks:
    """Find past tasks and notes like a query, with the tools that worked: the caller's, or with the permission read all."""
    learning, actor = request.app.learning, request.actor
    found = await learning.recall(body.query, limit=body.limit, actor=actor, all_users=request.all_users)
    recommended = await learning.recommend(body.query, actor=actor)
    items = [
        RecalledTask(
            text=one.text, score=one.score, kind="task" if one.kind == "task" else "note", tags=list(one.tags),
            tools=[RecalledToolUse(**use._asdict()) for use in one.tools], created_at=one.created_at,
        )
        for one in found
    ]  # fmt: skip
    return RecalledTasks(items=items, recommended=[_recommended(one) for one in recommended])


@resource.post("/v1/remember", permission="call", status=201, problems=(429, 503))
async def remember(request: ApiRequest, body: NoteToKeep) -> RememberedNote:
    """Keep a note for later recall. Secrets in it are masked."""
    return RememberedNote(id=await request.app.learning.remember(body.text, tags=body.tags, actor=request.actor))


@resource.delete("/v1/learning", permission="administer")
async def forget_learning(request: ApiRequest, query: ForgetQuery) -> Forgotten:
    """Delete feedback, past tasks and notes of the whole tenant, or of one of its users.

    Without `user` those of all users are deleted, unlike in the terminal, where that takes `--all`."""
    gone = await request.app.learning.forget(
        request.actor.tenant, user=query.user, before=query.before, actor=request.sender
    )
    return Forgotten(count=gone)


@resource.get("/v1/learning/suggestions", permission="operate")
async def list_suggestions(request: ApiRequest) -> SuggestionList:
    """List limits of tools that follow from all tenants' calls. None is applied before an operator accepts it."""
    return SuggestionList(items=[_suggestion(one) for one in await request.app.learning.suggestions()])


@resource.post("/v1/learning/suggestions/{id}", permission="operate", problems=(404,))
async def answer_suggestion(request: ApiRequest, id: str, body: SuggestionAnswer) -> SuggestionView:
    """Accept a suggestion, so that it holds from now on, or reject it. One that was accepted is undone by rejecting it."""
    learning = request.app.learning
    answer = learning.accept if body.verdict == "accept" else learning.reject
    return _suggestion(await answer(id, actor=request.sender))


def feedback_view(row: FeedbackRow) -> FeedbackView:
    same = row._asdict()
    return FeedbackView(tenant=same.pop("tenant_id"), user=same.pop("user_id"), **same)


def _learned(one: ToolReport) -> LearnedTool:
    p50, p95, p99 = one.percentiles
    ended = one.successes + one.failures
    return LearnedTool(
        tool=one.tool, calls=one.calls, successes=one.successes, failures=one.failures,
        success_share=one.successes / ended if ended else None, cost_usd=one.nano / NANO, p50_ms=p50, p95_ms=p95, p99_ms=p99,
        reasons=[FailureReason(code=code, calls=calls) for code, calls in one.reasons], reliability=one.reliability,
        factor=one.factor,
    )  # fmt: skip


def _recommended(one: Recommendation) -> RecommendedTool:
    return RecommendedTool(**one._asdict())


def _suggestion(one: Proposal) -> SuggestionView:
    return SuggestionView(**one._asdict())

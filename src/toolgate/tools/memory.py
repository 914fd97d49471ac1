"""`memory_load`, `memory_save`, `memory_delete` and `memory_forget`: notes that a persona keeps from one conversation to the
next, and finds again by their meaning."""

from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from toolgate.memory.notes import Memory
from toolgate.model import Capability, ErrorCase, Example
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool

Threshold = Annotated[float, Field(ge=0, le=1)]


class LoadedNote(TypedDict):
    """A note; its score is from 0 to 1."""

    id: str
    text: str
    score: float
    metadata: dict[str, Any]
    created_at: str


class LoadedNotes(TypedDict):
    """Notes, the nearest first. `note`: why there are none."""

    notes: list[LoadedNote]
    note: NotRequired[str]


class NoteSaved(TypedDict):
    """The id of a note. `masked`: a secret in it was replaced by [REDACTED]."""

    id: str
    masked: NotRequired[bool]


class NotesDeleted(TypedDict):
    """How many notes were deleted, and the ids that no note has."""

    deleted: int
    missing: list[str]


class NotesForgotten(TypedDict):
    """How many notes were deleted."""

    deleted: int


BAD_QUERY = ErrorCase(
    "INVALID_INPUT", when="the query is empty or the filter can't be read", advice="Correct it as the message says."
)
NOT_INSTALLED = ErrorCase(
    "INVOCATION_ERROR", when="search by meaning is not installed", advice="Install the extra toolgate[embeddings]."
)


@tool(
    tier="read_only",
    category="database",
    tags=["agent", "memory"],
    capabilities=[Capability(action="search", description="Find notes by meaning")],
    errors=[BAD_QUERY, NOT_INSTALLED],
    examples=[
        Example(name="by meaning", arguments={"query": "When may we deploy?"}),
        Example(
            name="with a filter",
            arguments={"query": "invoices", "threshold": 0.6, "limit": 3, "filter": "topic == 'billing' and priority >= 2"},
        ),
    ],
)
async def memory_load(
    ctx: InvokeContext,
    query: str,
    threshold: Threshold = 0.7,
    limit: Annotated[int, Field(ge=1, le=100)] = 5,
    filter: str = "",  # noqa: A002 - its public name
) -> LoadedNotes:
    """Load memories by meaning: the saved notes nearest to a query.

    Args:
        query: What to look for, in words.
        threshold: Least score of a note: 1 is the same, 0.5 unrelated.
        limit: Most notes to give.
        filter: Condition on metadata, such as topic == 'billing' and priority >= 2. Also on created_at.
    """
    memory: Memory = ctx.get(Memory)
    found = await memory.load(ctx.actor, query, threshold=threshold, limit=limit, condition=filter)
    if found:
        return {"notes": [LoadedNote(**note._asdict()) for note in found]}  # type: ignore[typeddict-item]
    nearest = await memory.load(ctx.actor, query, threshold=0, limit=1, condition=filter)
    return {"notes": [], "note": _why_none(threshold, nearest[0].score if nearest else None, filtered=bool(filter.strip()))}


def _why_none(threshold: float, nearest: float | None, *, filtered: bool) -> str:
    if nearest is None:
        return "No note fits the filter." if filtered else "There are no notes yet."
    return (
        f"No note reaches the threshold {threshold:g}; the nearest has {nearest:g}. "
        "Ask in other words, or lower the threshold."
    )


@tool(
    tier="write",
    category="database",
    tags=["agent", "memory"],
    capabilities=[Capability(action="write", description="Keep a note")],
    errors=[
        ErrorCase(
            "INVALID_INPUT", when="the text is empty or too long, or metadata is not flat", advice="Save less at once."
        ),
        ErrorCase("CAPACITY_EXCEEDED", when="as many notes are kept as may be", advice="Delete some that are not needed."),
        NOT_INSTALLED,
    ],
    examples=[
        Example(name="a fact", arguments={"text": "Deployments on Fridays are forbidden."}),
        Example(
            name="with metadata",
            arguments={"text": "Acme wants invoices in euros.", "metadata": {"topic": "billing", "priority": 2}},
        ),
    ],
)
async def memory_save(ctx: InvokeContext, text: str, metadata: dict[str, Any] | None = None) -> NoteSaved:
    """Save text to memory: one fact a note, in words that can be understood later.

    Args:
        text: What to remember.
        metadata: Flat fields to filter by, such as topic.
    """
    memory: Memory = ctx.get(Memory)
    (saved,) = await memory.save(ctx.actor, [(text, metadata or {})], known=ctx.injected)
    return {"id": saved.id, "masked": True} if saved.masked else {"id": saved.id}


@tool(
    tier="write",
    category="database",
    tags=["agent", "memory"],
    capabilities=[Capability(action="delete", description="Delete notes")],
    errors=[
        ErrorCase("INVALID_INPUT", when="no id is given, or more than 1,000", advice="Give the ids that memory_load gave.")
    ],
    examples=[
        Example(
            name="one that is not there",
            arguments={"ids": "0123456789abcdef"},
            output={"deleted": 0, "missing": ["0123456789abcdef"]},
        )
    ],
)
async def memory_delete(ctx: InvokeContext, ids: str | list[str]) -> NotesDeleted:
    """Delete memories by ids.

    Args:
        ids: Ids of notes, separated by commas.
    """
    given = ids.split(",") if isinstance(ids, str) else ids
    wanted = list(dict.fromkeys(id.strip() for id in given if id.strip()))
    memory: Memory = ctx.get(Memory)
    gone = set(await memory.delete(ctx.actor, wanted))
    return {"deleted": len(gone), "missing": [id for id in wanted if id not in gone]}


@tool(
    tier="write",
    category="database",
    tags=["agent", "memory"],
    capabilities=[Capability(action="delete", description="Delete notes by meaning")],
    errors=[BAD_QUERY, NOT_INSTALLED],
    examples=[Example(name="one topic", arguments={"query": "the old office address", "threshold": 0.8})],
)
async def memory_forget(
    ctx: InvokeContext,
    query: str,
    threshold: Threshold = 0.75,
    filter: str = "",  # noqa: A002 - its public name
) -> NotesForgotten:
    """Remove memories by query: deletes every note whose meaning is near it.

    Args:
        query: What to forget, in words.
        threshold: Least score of a note that is deleted: 1 is the same, 0.5 unrelated.
        filter: Condition on metadata, as of memory_load.
    """
    memory: Memory = ctx.get(Memory)
    return {"deleted": len(await memory.forget(ctx.actor, query, threshold=threshold, condition=filter))}

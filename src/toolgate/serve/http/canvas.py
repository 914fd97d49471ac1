"""/v1/canvas: what agents and people put beside a conversation, a canvas to a session."""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from toolgate.model import Outcome
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Reply, Resource
from toolgate.serve.http.pages import DEFAULT_PAGE, MAX_PAGE, Page
from toolgate.serve.http.tools import CALL_ALSO, status_of
from toolgate.serve.problems import HttpProblem

resource = Resource("canvas")

PaneName = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
APPEND_TOOL = "canvas_append"


class CanvasView(ApiView, frozen=True):
    """A canvas in a list."""

    session: str
    is_shared: bool
    """True if other users of the tenant have the session too."""
    blocks: int
    size_bytes: int
    updated_at: datetime


class BlockView(ApiView, frozen=True):
    """A block of a canvas."""

    number: int
    pane: str
    content: Any
    created_by: str
    created_at: str


class CanvasBlocks(ApiView, frozen=True):
    """Some blocks of a canvas, in order."""

    session: str
    blocks: list[BlockView]
    last: int
    """The number of the last block here: `after` of the next request."""


class BlocksQuery(ApiModel, frozen=True):
    """The blocks that are asked for."""

    after: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    """The number after which they begin."""
    pane: PaneName | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE


class NewBlock(ApiModel, frozen=True):
    """A block."""

    content: str | dict[str, Any] | list[Any]
    """Text, or JSON."""
    pane: PaneName | None = None


@resource.get("/v1/canvas", permission="own")
async def list_canvases(request: ApiRequest) -> Page[CanvasView]:
    """List the canvases of the caller's sessions, latest change first: all, since there are few."""
    found = await request.app.canvas.list(actor=request.actor)
    views = [
        CanvasView(
            session=row.session_id, is_shared=not row.user_id, blocks=row.blocks, size_bytes=row.size_bytes,
            updated_at=row.updated_at,
        )
        for row in found
    ]  # fmt: skip
    return Page(views)


@resource.get("/v1/canvas/{session}", permission="own")
async def get_canvas(request: ApiRequest, session: str, query: BlocksQuery) -> CanvasBlocks:
    """Get the blocks of the canvas of one of the caller's sessions after a number. One that has no canvas has no blocks."""
    found = await request.app.canvas.read(
        session, pane=query.pane, after=query.after, limit=query.limit, actor=request.actor
    )
    blocks = [BlockView(**one._asdict()) for one in found]
    return CanvasBlocks(session=session, blocks=blocks, last=blocks[-1].number if blocks else query.after)


@resource.post("/v1/canvas/{session}", permission="call", also=CALL_ALSO)
async def append_to_canvas(request: ApiRequest, session: str, body: NewBlock) -> Outcome:
    """Append a block to a canvas: a call of the tool canvas_append, with all that governs it. The answer is its outcome."""
    arguments = {"content": body.content, **({} if body.pane is None else {"pane": body.pane})}
    outcome = await request.app.invoke(
        APPEND_TOOL, arguments, actor=request.actor, session=session, request_id=request.request_id,
        door="http",
    )  # fmt: skip
    return Reply(outcome, status_of(outcome))  # type: ignore[return-value]


@resource.delete("/v1/canvas/{session}", permission="call")
async def clear_canvas(request: ApiRequest, session: str) -> None:
    """Remove the canvas of one of the caller's sessions, with all its blocks."""
    if not await request.app.canvas.clear(session, actor=request.actor):
        raise HttpProblem(404, "There is no such canvas.", suggestion="GET /v1/canvas lists them.")

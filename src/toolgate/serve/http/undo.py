"""/v1/invocations/{id}/undo: the files that a call changed are put back."""

from typing import Literal

from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource

resource = Resource("undo")


class UndoWish(ApiModel, frozen=True):
    """The way in which a call is undone."""

    preview: bool = False
    """True: nothing is done; the answer says what would be."""
    force: bool = False
    """True: also files that were changed again since."""


class UndonePath(ApiView, frozen=True):
    """A path that a call changed, and what was done to it."""

    path: str
    done: Literal["restored", "removed", "unchanged", "left"]
    """left: a folder had to stay, because there is something else in it."""


class UndoneCall(ApiView, frozen=True):
    """The paths that were put back, or would be."""

    call_id: str
    preview: bool
    paths: list[UndonePath]


@resource.post("/v1/invocations/{id}/undo", permission="call", problems=(409,))
async def undo_call(request: ApiRequest, id: str, body: UndoWish) -> UndoneCall:
    """Put back the files that a call of one's own changed. Files that were changed again since are left, and refused."""
    actor, undo = request.actor, request.app.undo
    act = undo.preview if body.preview else undo.revert
    found = await act(id, actor=actor, force=body.force)
    paths = [UndonePath(path=one.path, done=one.done) for one in found]
    return UndoneCall(call_id=id, preview=body.preview, paths=paths)

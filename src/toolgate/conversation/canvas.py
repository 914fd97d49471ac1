"""Keeps a canvas for each session: blocks that agents append, and people see in order."""

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from toolgate.errors import InvalidInput
from toolgate.gates.redaction import Redactor
from toolgate.model import Actor
from toolgate.sessions import Sessions
from toolgate.store import canvas as table
from toolgate.store.canvas import BlockRow, CanvasFull, CanvasKey, CanvasRow
from toolgate.store.database import Store, now
from toolgate.tasks import finish
from toolgate.threads import to_thread

MAX_BLOCK_BYTES = 100_000
MAX_BLOCKS = 2_000
MAX_CANVAS_BYTES = 2_000_000
MAX_CANVASES = 100
"""Of a user; those that have not changed for longest are dropped."""
MAX_SESSION_CHARS = 256
BLOCKS_PAGE = 500

Tell = Callable[[str, dict[str, Any]], None]


class CanvasBlock(NamedTuple):
    """One block of a canvas."""

    number: int
    pane: str
    content: Any
    created_by: str
    created_at: str


class Canvas:
    """The canvases of all sessions. A session belongs to its tenant and user, unless the operator shares it."""

    def __init__(self, store: Store, sessions: Sessions, redactor: Redactor, tell: Tell) -> None:
        self._store = store
        self._sessions = sessions
        self._redactor = redactor
        self._tell = tell

    def _key(self, actor: Actor, session: str) -> CanvasKey:
        if not 0 < len(session) <= MAX_SESSION_CHARS or not session.isprintable():
            raise InvalidInput(f"The name of a session has 1 to {MAX_SESSION_CHARS} printable characters.")
        tenant, user, _ = self._sessions.key(actor, session)
        return CanvasKey(tenant, user or "", session)

    async def append(self, actor: Actor, session: str, pane: str, content: Any, known: tuple[str, ...] = ()) -> int:
        """Appends a block to the canvas of a session, secrets masked; gives its number. `known`: values of secrets."""
        key = self._key(actor, session)
        if not self._redactor.ready:
            await self._redactor.prepare(content)
        text = (await to_thread(lambda: orjson.dumps(self._redactor.mask(content, known=known)))).decode()
        if len(text) > MAX_BLOCK_BYTES:
            raise InvalidInput(
                f"The block has more than {MAX_BLOCK_BYTES:,} bytes as JSON.", suggestion="Append it in several blocks."
            )
        appending = table.append(
            key, pane, text, actor.user, now(),
            most=MAX_BLOCKS, most_bytes=MAX_CANVAS_BYTES, most_canvases=MAX_CANVASES,
        )  # fmt: skip
        try:
            number = await finish(self._store.transact(appending))
        except CanvasFull:
            raise InvalidInput(
                f"The canvas is full: it has {MAX_BLOCKS:,} blocks, or {MAX_CANVAS_BYTES:,} bytes.",
                suggestion="Go on in another session, or have the operator clear it (`toolgate canvas clear`).",
            ) from None
        told = {"tenant": key.tenant, "user": key.user or None, "session": session, "pane": pane, "number": number}
        self._tell("canvas.appended", told)
        return number

    # -- for people

    async def read(
        self, actor: Actor, session: str, *, pane: str | None = None, after: int = 0, limit: int = BLOCKS_PAGE
    ) -> list[CanvasBlock]:
        """The blocks of a session's canvas after a number, in order."""
        rows = await self._store.read(table.blocks(self._key(actor, session), pane, after, limit))
        return [_block(row) for row in rows]

    async def list(self, actor: Actor) -> list[CanvasRow]:
        """The canvases of an actor's sessions, those first that changed last."""
        rows = await self._store.read(table.listed(actor.tenant, actor.user))
        return [row for row in rows if self._key(actor, row.session_id).user == row.user_id]

    async def clear(self, actor: Actor, session: str) -> int:
        """Removes the canvas of a session; gives how many blocks it had."""
        return await finish(self._store.transact(table.clear(self._key(actor, session))))


def _block(row: BlockRow) -> CanvasBlock:
    at = row.created_at.isoformat(timespec="seconds")
    return CanvasBlock(row.number, row.pane, orjson.loads(row.content), row.created_by, at)

"""Keeps what users type in their sessions: hashed, for the pipeline to look values up in, and the beginning of the last few
messages, for an approver to read beside a call.

It comes from whoever has it first hand: a program that embeds Toolgate, the person at this machine, a client whose
credential may speak for the user. No tool leads here, nor anything that a model, a program in the sandbox or a server says.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import NamedTuple

import orjson

from toolgate.errors import InvalidInput
from toolgate.gates.flow.words import HASH_BYTES, MAX_TEXT_CHARS, SessionWords, appended
from toolgate.model import Actor, Call, UserMessage, new_id
from toolgate.sessions import lineage
from toolgate.store import flow_sessions as table
from toolgate.store.database import Store
from toolgate.store.flow_sessions import FlowKey, UserMessageRow
from toolgate.store.keys import key_for
from toolgate.store.sealed_values import Seal
from toolgate.threads import to_thread

HASH_PURPOSE, SEAL_PURPOSE = "flow.words", "flow.messages"
IDLE, IDLE_UNNAMED = timedelta(days=7), timedelta(minutes=30)
"""A session that nobody used for so long has ended: one with a name, and that of a user's calls without one."""
TOUCH_EVERY = timedelta(minutes=5)
"""The time of use is put down no oftener."""
PRUNE_EVERY = timedelta(hours=1)
MAX_MESSAGES, MAX_MESSAGE_CHARS = 3, 500
MASKED_CHARS = 10_000
"""Characters of a message that are searched for secrets: more than are shown, so that none is cut where it can be told."""
MAX_SESSIONS = 200
"""Of one user."""
MAX_SESSION_CHARS = 256
LARGE_CHARS = 5_000
"""Longer messages are hashed off the event loop."""

Mask = Callable[[str], Awaitable[str]]
"""Masks secrets in a text."""


class KeptWords(NamedTuple):
    """The part of a message that is known from now on."""

    tokens: int
    is_whole: bool
    """False: it was too long, and only its beginning is known."""
    is_new: bool
    """False: there is nothing in it, or it is the message that came last, told again."""


class UserWords:
    """The words of all sessions."""

    def __init__(self, store: Store, mask: Mask, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._mask = mask
        self._clock = clock
        self._seal = Seal(store, SEAL_PURPOSE)
        self._key: bytes | None = None
        self._prune_at: datetime | None = None

    async def say(self, actor: Actor, session: str | None, text: str) -> KeptWords:
        """Keeps what the user of a session typed. Raises `InvalidInput` for what is no text, or no name of a session."""
        key = _key(actor, session)
        if not isinstance(text, str):
            raise InvalidInput(f"The words of a user are text, not a {type(text).__name__}.")
        words = SessionWords(await self._key_of(key))
        hashed = words.hashed(text) if len(text) <= LARGE_CHARS else await to_thread(words.hashed, text)
        kept = KeptWords(len(hashed) // HASH_BYTES, is_whole=len(text) <= MAX_TEXT_CHARS, is_new=False)
        if not hashed:
            return kept
        at = self._clock()
        adding = table.say(
            key, lambda before: appended(before, hashed), await self._sealed(text, at), at,
            idle_since=_idle_since(key, at), most_messages=MAX_MESSAGES, most_sessions=MAX_SESSIONS,
        )  # fmt: skip
        is_new = await self._store.transact(adding)
        await self._prune_sometimes(at)
        return kept._replace(is_new=is_new)

    async def of_call(self, call: Call) -> tuple[SessionWords, ...]:
        """Gives the words that a call's session has, and those of the whole of which it is a part."""
        found = [(key, row) for key in _keys(call) if (row := await self._row(key)) is not None]
        return tuple([SessionWords(await self._key_of(key), row) for key, row in found])

    async def messages(self, call: Call) -> tuple[UserMessage, ...]:
        """Gives the last messages of a call's user in its session, oldest first, as an approver is shown them."""
        found: list[UserMessage] = []
        for key in _keys(call):
            if await self._row(key) is not None:
                rows = await self._store.read(table.last_messages(key, MAX_MESSAGES))
                found += [message for row in rows if (message := await self._opened(row)) is not None]
        return tuple(sorted(found, key=lambda message: message.said_at)[-MAX_MESSAGES:])

    async def _row(self, key: FlowKey) -> bytes | None:
        """The hashes of a session that has not ended. That they are looked at is a use of it."""
        at = self._clock()
        row = await self._store.read(table.words(key, _idle_since(key, at)))
        if row is None:
            return None
        if at - row[1] >= TOUCH_EVERY:
            await self._store.transact(table.touch(key, at))
            await self._prune_sometimes(at)
        return row[0]

    async def _key_of(self, key: FlowKey) -> bytes:
        """The key of a session's hashes: no two sessions have the same, so that what they hold can't be compared."""
        if self._key is None:
            self._key = bytes.fromhex(await self._store.transact(key_for(HASH_PURPOSE)))
        return blake2b(orjson.dumps([*key]), key=self._key, digest_size=32).digest()

    async def _sealed(self, text: str, at: datetime) -> UserMessageRow | None:
        """The beginning of a message as it is kept; None: nothing can be encrypted here, so it is not."""
        masked = await self._mask(text[:MASKED_CHARS].strip().encode(errors="replace").decode())
        shown, id = masked[:MAX_MESSAGE_CHARS], new_id()
        is_cut = len(masked) > len(shown) or len(text) > MASKED_CHARS
        sealed = await self._seal.close(id, orjson.dumps([shown, is_cut]))
        return None if sealed is None else UserMessageRow(id, sealed, at)

    async def _opened(self, row: UserMessageRow) -> UserMessage | None:
        if (found := await self._seal.open(row.id, row.sealed)) is None:
            return None
        text, is_cut = orjson.loads(found)
        return UserMessage(text, row.said_at, is_cut)

    async def _prune_sometimes(self, at: datetime) -> None:
        if self._prune_at is not None and at < self._prune_at:
            return
        self._prune_at = at + PRUNE_EVERY
        if await self._store.transact(table.prune(at - IDLE, at - IDLE_UNNAMED)) == table.MAX_PRUNED_SESSIONS:
            self._prune_at = at  # there are more


def _key(actor: Actor, session: str | None) -> FlowKey:
    if session is not None and not _is_name(session):
        raise InvalidInput(f"The name of a session has 1 to {MAX_SESSION_CHARS} printable characters.")
    return FlowKey(actor.tenant, actor.user, session or "")


def _is_name(session: str) -> bool:
    return isinstance(session, str) and 0 < len(session) <= MAX_SESSION_CHARS and session.isprintable()


def _keys(call: Call) -> list[FlowKey]:
    """The sessions of a call that can have words."""
    found = [key for key in lineage(call) if key.name is None or _is_name(key.name)]
    return [FlowKey(key.tenant, key.user or "", key.name or "") for key in found]


def _idle_since(key: FlowKey, at: datetime) -> datetime:
    return at - (IDLE if key.session else IDLE_UNNAMED)

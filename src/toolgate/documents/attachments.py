"""Files that users uploaded, for `document_ingest` and for programs to fetch again. Their names are data, never paths."""

import re
from hashlib import sha256

from toolgate.errors import Failed, InvalidInput
from toolgate.model import Actor, new_id
from toolgate.store import attachments as table
from toolgate.store.attachments import AttachmentRow, AttachmentsFull
from toolgate.store.database import Store, now
from toolgate.tasks import finish
from toolgate.threads import to_thread

MAX_ATTACHMENTS = 1_000
"""Of a user."""
MAX_NAME_CHARS = 255
MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}\Z")
UNKNOWN_TYPE = "application/octet-stream"


class Attachments:
    """The attachments of all users."""

    def __init__(self, store: Store, max_bytes: int, total_bytes: int) -> None:
        """`max_bytes`: of one file. `total_bytes`: of all files of a user."""
        self._store = store
        self.max_bytes = max_bytes
        self._total_bytes = total_bytes

    async def add(self, actor: Actor, name: str, content: bytes, media_type: str | None = None) -> AttachmentRow:
        """Keeps a file of the actor's user. Raises InvalidInput or Failed if it is not taken."""
        if not content:
            raise InvalidInput("The file is empty.")
        if len(content) > self.max_bytes:
            raise InvalidInput(f"The file has more than {self.max_bytes:,} bytes.")
        given = (media_type or "").partition(";")[0].strip().lower()
        kind = given if MEDIA_TYPE.match(given) else UNKNOWN_TYPE
        digest = (await to_thread(sha256, content)).hexdigest()
        row = AttachmentRow(f"att_{new_id()}", actor.tenant, actor.user, plain_name(name), kind, len(content), digest, now())
        try:
            await finish(self._store.transact(table.add(row, content, MAX_ATTACHMENTS, self._total_bytes)))
        except AttachmentsFull:
            raise Failed(
                "CAPACITY_EXCEEDED",
                f"A user's attachments may have {self._total_bytes:,} bytes together, and be {MAX_ATTACHMENTS:,}.",
                retryable=False,
                suggestion="Remove some, or raise the setting limits.attachments_bytes.",
                category="conflict",
            ) from None
        return row

    async def get(self, id: str, tenant: str, user: str | None) -> AttachmentRow | None:
        """A file of a tenant, or of one of its users; None: there is none."""
        return await self._store.read(table.get(id, tenant, user))

    async def content(self, row: AttachmentRow) -> bytes:
        """The content of a file."""
        return await self._store.read(table.content(row.id))

    async def list(self, tenant: str, user: str | None, limit: int, before: str | None = None) -> list[AttachmentRow]:
        """The latest files of a user, or of all users of a tenant, latest first."""
        return await self._store.read(table.listed(tenant, user, limit, before))

    async def remove(self, id: str, tenant: str, user: str | None) -> AttachmentRow | None:
        """Removes a file of a tenant, or of one of its users; None: there is none."""
        return await finish(self._store.transact(table.remove(id, tenant, user)))


def plain_name(name: str) -> str:
    """The last part of a name that may be a path of some system, without what can't be shown. Raises InvalidInput."""
    last = re.split(r"[/\\]", name)[-1]
    shown = "".join(char for char in last if char.isprintable()).strip()
    if not shown.strip(".") or len(shown) > MAX_NAME_CHARS:
        raise InvalidInput(f"The name of a file has 1 to {MAX_NAME_CHARS} characters that can be shown.")
    return shown

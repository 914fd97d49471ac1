"""Outputs that were cut, kept whole for a while under an id."""

from datetime import timedelta

from toolgate.errors import StoreError
from toolgate.model import Actor, Artifact, Call, new_id
from toolgate.store import artifacts
from toolgate.store.database import Store, now


class Artifacts:
    """The step, and the way to fetch them again."""

    def __init__(self, store: Store, days: float, most_bytes: int) -> None:
        self._store = store
        self._days = days
        self._most = most_bytes

    async def keep(self, call: Call, content: bytes, cuts: tuple[str, ...]) -> Artifact:
        """Keep an output. One that is too large even for that, or that the store refuses, is only cut, and says so."""
        identity = f"art_{new_id()}"
        if len(content) > self._most:
            return Artifact("", len(content), (*cuts, f"not kept: over {self._most:,} bytes"))
        row = artifacts.ArtifactRow(
            identity, call.id, call.actor.tenant, call.actor.user, content, now() + timedelta(days=self._days)
        )
        try:
            await self._store.transact(artifacts.keep(row))
        except StoreError as error:
            return Artifact("", len(content), (*cuts, f"not kept: {error.message}"))
        return Artifact(identity, len(content), cuts)

    async def fetch(self, identity: str, actor: Actor) -> bytes | None:
        """The whole output as JSON, for the user whose call it was."""
        return await self._store.read(artifacts.fetch(identity, actor.tenant, actor.user))

    async def fetch_any(self, identity: str, tenant: str) -> bytes | None:
        """The whole output of any user's call, for whoever runs this installation."""
        return await self._store.read(artifacts.fetch(identity, tenant))

"""`app.workflows`: the workflows that were started and are not waited for."""

from toolgate.app.facets import Facet
from toolgate.model import LOCAL, Actor
from toolgate.workflow.callbacks import Proof, check_time
from toolgate.workflow.invocations import Invocation

INVOCATIONS_PAGE = 100


class WorkflowsFacet(Facet):
    """The workflows that were started and report their end by a callback."""

    async def get(self, id: str, *, actor: Actor | None = None) -> Invocation | None:
        """Gives an invocation of the actor's user; None: there is none."""
        return await self._parts.invocations.get(id, actor or LOCAL)

    async def wait(self, id: str, seconds: float, *, actor: Actor | None = None) -> Invocation | None:
        """Gives an invocation of the actor's user when it is over, or as it is when the seconds are."""
        return await self._parts.invocations.wait(id, actor or LOCAL, seconds)

    def check_proof(self, *, timestamp: str, signature: str) -> None:
        """Raises `CallbackRefused` for a report that can't be valid, before it is read."""
        check_time(Proof(timestamp, signature), self._parts.now().timestamp())

    async def report(self, id: str, body: bytes, *, timestamp: str, signature: str) -> None:
        """Takes the report of a workflow's end. Raises `CallbackRefused` if it is not signed, or was made before."""
        await self._parts.invocations.receive(id, Proof(timestamp, signature), body)

    async def list(
        self,
        *,
        actor: Actor | None = None,
        all_users: bool = False,
        workflow: str | None = None,
        state: str | None = None,
        limit: int = INVOCATIONS_PAGE,
    ) -> list[Invocation]:
        """Gives the latest invocations of the actor's user, or of all users of the tenant, oldest first."""
        invocations = self._parts.invocations
        return await invocations.list(actor or LOCAL, all_users=all_users, workflow=workflow, state=state, limit=limit)

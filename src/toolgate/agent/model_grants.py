"""The grant of a run: whoever starts a run agrees to its questions to the model, up to its limit of cost.

It is listed like any other, each turn is charged to it, and whoever revokes it stops the run. It is for the turns of that
run alone: what a tool or a server asks the model meanwhile is asked about, and what a crash leaves of it is of no use. Where
the rules on approvals do not let the starter agree to their own calls, there is none, and each turn is asked about.
"""

import json
import logging
from collections.abc import Callable

from toolgate.agent.calls import MODEL_TOOL
from toolgate.agent.journal import actor_of
from toolgate.agent.run import RunLimits
from toolgate.gates.approval.grants import Grants
from toolgate.gates.approval.request import LONGEST_GRANT, ApprovalError, GrantTerms
from toolgate.model import LOCAL_DOORS, Call, Entry
from toolgate.store.agent_runs import RunRow

logger = logging.getLogger("toolgate.agent")


class ModelGrants:
    """Makes, watches and ends the grants of runs."""

    def __init__(self, grants: Grants, find: Callable[[str, str], Entry | None], wait_seconds: float) -> None:
        """`wait_seconds`: the longest that a run may wait for a person's answer, for which its grant has to last too."""
        self._grants = grants
        self._find = find
        self._wait_seconds = wait_seconds

    async def make(self, row: RunRow, limits: RunLimits, *personas: str | None, root: str | None = None) -> str:
        """The grants of a run as its record has them: for its own persona, or for these. None: it needs none, or its starter
        may not give it. `root`: the outermost run, if that is another."""
        made = [
            await self._make(row._replace(persona_id=persona), limits, root or row.id)
            for persona in personas or (row.persona_id,)
        ]
        return json.dumps([id for id in made if id is not None])

    async def _make(self, row: RunRow, limits: RunLimits, root: str) -> str | None:
        entry, actor = self._find(MODEL_TOOL, row.tenant_id), actor_of(row)
        if entry is None or entry.asks is None:
            return None
        terms = GrantTerms(
            "user" if row.session_id is None else "session",
            min(limits.seconds + self._wait_seconds, LONGEST_GRANT),
            limits.cost_usd if entry.priced else None,
        )
        call = Call(
            "", MODEL_TOOL, None, actor, row.session_id, door=row.door, workspace=row.workspace, here=row.here
        )  # fmt: skip
        through = row.door if row.door in LOCAL_DOORS else "agent"
        try:
            made = await self._grants.make(
                entry, terms, actor, actor, session=row.session_id, reason=f"Run {row.id} of an agent", through=through,
                call=call, run=root,
            )  # fmt: skip
        except ApprovalError as error:
            logger.info("the turns of run %s are asked about: %s", row.id, error)
            return None
        return made.id

    async def end(self, row: RunRow) -> None:
        """Revokes the grants of a run that has ended: what is left of them is nobody's."""
        for id in json.loads(row.grants):
            try:
                await self._grants.revoke(id, actor_of(row))
            except ApprovalError as error:
                logger.debug("a grant of run %s was over: %s", row.id, error)

    async def why_revoked(self, row: RunRow) -> str | None:
        """Words for a run of which a grant was taken back; None: none was."""
        for id in json.loads(row.grants):
            try:
                grant = await self._grants.get(id, row.tenant_id)
            except ApprovalError:
                return f"Its grant to ask the model ({id}) is gone."
            if grant.revoked_at is not None:
                return f"Its grant to ask the model ({grant.id}) was revoked by {grant.revoked_by}."
        return None
